"""Plots draw what is in an answer, and say what is missing where there is nothing to draw."""

import builtins

import pytest

import epochcast
from epochcast import plots
from predictor.errors import BackendUnavailableError, SchemaError

GPUS = ["T4", "K80", "H200"]


@pytest.fixture(scope="module")
def answer():
    return epochcast.predict("resnet18", GPUS, [16, 64, 1024], data_set="imagenet")


@pytest.fixture(scope="module")
def ranking():
    return epochcast.compare("resnet18", batch_size=[64], data_set="imagenet", epochs=9)


def test_every_gpu_has_a_panel_that_draws_its_numbers_its_best_batch_size_and_what_does_not_fit(answer):
    figure, gpus = plots.epoch_times(answer), list(dict.fromkeys(answer["gpu"]))
    assert [axes.get_title() for axes in figure.axes] == gpus
    dashed = [line for line in figure.axes[0].lines if line.get_linestyle() == "--"]
    times = answer["epoch_time_s"][answer["gpu"] == "Tesla T4"] / _scale(answer)
    assert list(dashed[0].get_ydata()) == pytest.approx(list(times))
    assert not answer["fits_in_memory"].all()
    assert "does not fit in memory" in _legend(figure)
    for axes, gpu in zip(figure.axes, gpus, strict=True):
        (star,) = [line for line in axes.lines if line.get_marker() == "*"]
        best = answer[(answer["gpu"] == gpu) & answer["best_batch"]]
        assert list(star.get_xdata()) == list(best["batch_size"])
    assert figure._repr_png_().startswith(b"\x89PNG")  # as a notebook shows it


def test_every_offer_is_a_point_with_its_interval_and_a_limit_that_nothing_reaches_is_drawn(ranking):
    axes = plots.cost_against_time(ranking).axes[0]
    points = sum(len(collection.get_offsets()) for collection in axes.collections)
    assert points == ranking["total_cost_usd"].notna().sum()
    assert len(axes.texts) == ranking["pareto"].sum()
    first = next(line for line in axes.lines if line.get_linewidth() == 5)
    row = ranking[ranking["pareto"]].sort_values("total_time_h").iloc[0]
    assert list(first.get_xdata()) == pytest.approx([row["total_low_h"], row["total_high_h"]])
    prices = [row["usd_per_hour"] * hours for hours in first.get_xdata()]
    assert list(first.get_ydata()) == pytest.approx(prices)
    axes = plots.cost_against_time(ranking, budget_usd=1e6, deadline_h=1e6).axes[0]
    assert axes.get_xlim()[1] > 1e6 < axes.get_ylim()[1]
    with pytest.raises(SchemaError, match="budget_usd -3 is not a positive number"):
        plots.cost_against_time(ranking, budget_usd=-3)


def test_modes_are_drawn_side_by_side_where_a_gpu_has_them(answer):
    tf32 = epochcast.predict("resnet18", "H200", [16, 64], data_set="imagenet", precision="tf32")
    axes = plots.modes({"fp32": answer, "tf32": tf32}).axes[0]
    assert [len(line.get_xdata()) for line in axes.lines] == [len(GPUS), 1]
    assert [label.get_text() for label in axes.get_yticklabels()] == list(dict.fromkeys(answer["gpu"]))[::-1]


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda answer: plots.cost_against_time(answer), "no column 'total_time_h'"),
        (lambda _: plots.modes({}), "at least one"),
        (lambda answer: plots.modes([answer]), "by name, as a dict"),
        (lambda _: plots.epoch_times(None), "no column 'gpu'"),
        (lambda answer: plots.epoch_times(answer[:0]), "the frame has no rows"),
    ],
)
def test_what_cannot_be_drawn_says_why(answer, draw, words):
    with pytest.raises(SchemaError, match=words):
        draw(answer)


def test_a_cnn_described_in_python_is_answered_like_the_zoo_s_and_two_cnns_or_no_samples_are_not_drawn():
    blind = epochcast.predict("resnet18", "T4", [16])
    for draw in (plots.epoch_times, lambda answer: plots.modes({"fp32": answer})):
        with pytest.raises(SchemaError, match="samples"):
            draw(blind)
    two_cnns = epochcast.predict(["resnet18", "alexnet"], "T4", 16, data_set="imagenet")
    with pytest.raises(SchemaError, match="one CNN"):
        plots.epoch_times(two_cnns)
    from predictor.cnns.families.resnet import resnet

    net = epochcast.NetBuilder("my resnet", image_size=224)
    resnet(net, (2, 2, 2, 2), bottleneck=False)
    mine, theirs = (epochcast.predict(cnn, "T4", 32) for cnn in (net.table(), "resnet18"))
    assert mine["iteration_time_ms"].tolist() == theirs["iteration_time_ms"].tolist()
    assert net.table().source == "python"


def test_without_matplotlib_the_extra_is_named(answer, monkeypatch):
    really = builtins.__import__

    def without(name, *arguments):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return really(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BackendUnavailableError, match=r"epochcast\[plots\]"):
        plots.epoch_times(answer)


def _scale(answer):
    return {"s": 1, "min": 60, "h": 3600}[plots._unit(answer["epoch_time_s"].median())[1]]


def _legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]
