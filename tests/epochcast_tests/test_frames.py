"""A notebook shows an answer's sentence, then the command's table; what pandas makes of an answer is plain."""

import copy
import pickle

import pandas as pd
import pytest

import epochcast
from epochcast import frames
from predictor.errors import SchemaError

GPUS, IMAGENET = ["T4", "H200"], {"data_set": "imagenet"}


@pytest.fixture(scope="module")
def answers():
    return {
        "predict": epochcast.predict("resnet50", GPUS, [64, 128], **IMAGENET),
        "compare": epochcast.compare("resnet50", ["T4", "V100-SXM2-16GB"], epochs=90, **IMAGENET),
        "explain": epochcast.explain("resnet50", "H200", [1, 256]),
        "without epochs": epochcast.predict(["resnet18", "vgg16"], "T4", 32),
    }


def test_an_answer_begins_with_its_sentence_and_shows_the_table_of_the_command(answers, epochcast_command):
    for answer in answers.values():
        words = " ".join(repr(answer).split())
        assert words.startswith(answer.sentence.partition(" vgg16: ")[0])
        assert "--verbose" not in words
    run = epochcast_command(
        "predict", "resnet50", *["--gpu", "T4", "--gpu", "H200", "-b", "64,128", "--data-set", "imagenet"]
    )
    lines = [line for line in run.out.splitlines() if line.startswith(("GPU", "T4", "H200"))]
    assert len(lines) == 3
    assert all(line in repr(answers["predict"]) for line in lines)


def test_a_page_shows_the_sentence_at_most_eight_columns_and_intervals_on_one_scale(answers):
    for name in ("predict", "compare", "without epochs"):
        page = answers[name]._repr_html_()
        assert page.startswith(f"<p><strong>{answers[name].sentence[:10]}")
        assert page.count("<th>") <= 9
        assert page.count("background:#0072b280") == len(answers[name])
    assert "<pre>" in answers["explain"]._repr_html_()
    assert "&lt;b&gt;" in epochcast.predict([_named("<b>"), "alexnet"], "T4", 1)._repr_html_()


def _named(name):
    net = epochcast.NetBuilder(name, 8)
    net.linear(net.flatten(net.image), "classes", 2)
    return net.table()


def test_rows_are_the_objects_and_a_comparison_has_its_verdict(answers):
    assert isinstance(answers["predict"].rows[0], epochcast.PredictionRow)
    assert isinstance(answers["compare"].rows[0], epochcast.ComparisonRow)
    assert answers["compare"].verdict is answers["compare"].attrs["verdict"]
    assert (answers["predict"].verdict, len(answers["predict"].rows)) == (None, 4)


@pytest.mark.parametrize(
    "change",
    [
        lambda answer: answer[["gpu"]],
        lambda answer: answer.head(1),
        lambda answer: answer.copy(),
        copy.deepcopy,
        lambda answer: pickle.loads(pickle.dumps(answer)),  # noqa: S301 - its own
        lambda answer: answer.assign(more=1),
        lambda answer: pd.concat([answer, answer]),
    ],
)
def test_what_pandas_makes_of_an_answer_is_a_plain_frame_with_its_attributes(change, answers):
    frame = change(answers["predict"])
    assert type(frame) is pd.DataFrame
    assert "covers" in frame.attrs
    assert repr(frame).lstrip().startswith(("gpu", "cnn"))


@pytest.mark.parametrize("name", ["predict", "compare", "explain", "without epochs"])
def test_an_answer_is_written_as_parquet_and_read_back(name, answers, tmp_path):
    pytest.importorskip("pyarrow")
    answer = answers[name]
    answer.to_parquet(tmp_path / "answer.parquet")
    back = pd.read_parquet(tmp_path / "answer.parquet")
    with_objects = ["energy_basis", "co2_basis", "extrapolates", "data_exceeds"]
    plain = answer.columns.difference(with_objects)
    pd.testing.assert_frame_equal(back[plain], pd.DataFrame(answer)[plain])
    assert back.attrs["covers"] == answer.attrs["covers"]
    if name == "compare":
        assert back.attrs["verdict"]["sentence"] == answer.sentence
        assert back["energy_basis"][0]["text"] == str(answer["energy_basis"][0])


def test_plot_draws_the_answer_and_with_arguments_what_pandas_draws(answers):
    pytest.importorskip("matplotlib")
    assert [axes.get_title() for axes in answers["predict"].plot().axes] == ["Tesla T4", "NVIDIA H200"]
    assert answers["compare"].plot().axes
    assert answers["predict"].plot(x="batch_size", y="iteration_time_ms").get_xlabel() == "batch_size"
    assert answers["explain"].plot.bar is not None


def test_altair_draws_intervals_where_it_is_asked_or_matplotlib_is_missing(answers, monkeypatch):
    altair = pytest.importorskip("altair")
    chart = answers["predict"].plot(backend="altair").to_dict()
    assert [layer["mark"]["type"] for layer in chart["layer"]] == ["rule", "point"]
    assert {value["gpu"] for value in chart["data"]["values"]} == {"Tesla T4", "NVIDIA H200"}
    monkeypatch.setattr(frames, "find_spec", lambda name: None if name == "matplotlib" else altair.__spec__)
    assert "layer" in answers["compare"].plot().to_dict()
    with pytest.raises(SchemaError, match="no intervals to draw"):
        answers["explain"].plot(backend="altair")


def test_other_answers_begin_with_their_sentence_and_list_what_belongs_to_it(answers):
    objects = [
        answers["compare"].verdict,
        answers["explain"].rows[0],
        epochcast.check("resnet50", "T4", 64, iteration_time_ms=2000),
        epochcast.fit_memory("resnet50", "L4", 256, memory_gib=8, **IMAGENET),
        *epochcast.diff("vgg16", "vgg16_bn", "T4", 64),
    ]
    for answer in objects:
        assert repr(answer) == "\n".join([answer.sentence, *answer.lines()])
        assert len(answer.lines()) > 0
        assert answer._repr_html_().startswith("<p><strong>")
