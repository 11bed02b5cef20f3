"""The judged figures: what is shown and kept of them, and that each judge judges; the figures themselves take hours."""

import json

import figures
import judges
import numpy as np
import pandas as pd
import pytest
import refit_differences
from case_tables import each_row

from predictor.answers.answer import MEMORY_IN_WORDS
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.evaluation.scenarios import SCENARIOS
from predictor.measurements.features import feature_table
from predictor.models.served import Model
from predictor.operators.operators import operators_of


def test_every_figure_names_a_judge_and_figures_have_names_of_their_own():
    rows = figures.chosen_figures()
    assert len({row["name"] for row in rows}) == len(rows)
    for row in rows:
        assert None not in row.values(), row  # a line with fewer columns
        assert row["judge"] in figures.JUDGES, row
        assert row["judge"] not in ("published", "own") or row["scenario"] in SCENARIOS, row
        assert all(0 <= float(row[name]) < 1 for name in ("goal", "committed") if row[name]), row


def test_a_figure_is_chosen_by_how_its_name_begins_and_an_unknown_one_refused_with_the_nearest():
    names = [row["name"] for row in figures.chosen_figures(["own-layers", "chips"])]
    assert names == ["own-layers-tf32", "own-layers-bf16", "own-layers-channels-last", "chips"]
    with pytest.raises(DataError, match="Nearest: 'chips'"):
        figures.chosen_figures(["chip-s"])


def test_a_card_quotes_the_committed_figures_and_so_do_the_named_methods(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "data_file", lambda _: tmp_path / "model.json")
    figures.write_card()
    model = Model.load(tmp_path / "model.json")
    committed = {row["name"]: row["committed"] for row in figures.chosen_figures()}
    assert model.card["figures"]["unseen-cnn-profet"]["error"] == float(committed["unseen-cnn-profet"])
    errors = {"problem-scaling": "batch-size-profet", "unseen-gpu-specs": "specs-profet"}
    for name, quotes_runs in (("flops-ratio", True), ("gpu-specs", False)):
        quoted = {error.scenario: error.default_mape for error in model.named_methods().errors[name]}
        same = {
            scenario for scenario, figure in errors.items() if quoted[scenario] == float(committed[figure])
        }
        assert same == {"unseen-gpu-specs"} | ({"problem-scaling"} if quotes_runs else set())


def test_the_sentence_about_memory_has_the_judged_shares():
    peaks = judges.of_memory(None)
    near = np.isclose(peaks["predicted"], peaks["measured"], rtol=0.02, atol=0).mean()
    higher = (peaks["measured"] > 1.1 * peaks["predicted"]).mean()
    assert f"{100 * near:.0f} % of {len(peaks)} peaks" in (words := MEMORY_IN_WORDS[True])
    assert f"{100 * higher:.0f} % are over 10 % higher" in words


JUDGED = pd.DataFrame(
    {
        "gpu": ["T4", "T4", "T4", "K80"], "precision": "fp32", "memory_format": "nchw", "cnn": ["a", "a", "b", "b"],
        "part": ["x", "x", "y", "y"], "measured": 10.0, "predicted": [11.0, 11.0, 13.0, 10.0], "low": 9.0,
        "high": [12.0, 12.0, 12.0, 9.5],
    }
)  # fmt: skip
ANY = dict.fromkeys(
    ("name", "question", "goal", "committed", "predictor", "gpu", "precision", "memory_format", "cnn"), ""
)


def test_a_figure_is_the_mean_over_parts_of_the_rows_of_its_gpu_and_mode():
    every = figures.value_of(ANY, JUDGED)
    assert (every.error, every.bias, every.inside, every.n) == pytest.approx((0.125, 0.125, 0.75, 4))
    assert every.worst == "b 15%"
    assert figures.value_of(ANY | {"gpu": "T4"}, JUDGED).error == pytest.approx(0.2)
    assert "gpu" in figures.parts(ANY, JUDGED, ["gpu"])
    with pytest.raises(DataError, match="nothing was judged"):
        figures.value_of(ANY | {"gpu": "V100"}, JUDGED)


def test_a_figure_that_became_worse_is_marked():
    value = figures.value_of(ANY, JUDGED)
    worse, same = (figures.line(ANY | {"committed": committed}, value) for committed in ("0.119", "0.121"))
    assert worse.endswith("WORSE THAN COMMITTED")
    assert "WORSE" not in same


def test_what_was_judged_is_committed_and_other_figures_stay(tmp_path, monkeypatch):
    copy = tmp_path / "figures.csv"
    copy.write_bytes(figures.FIGURES.read_bytes())
    monkeypatch.setattr(figures, "FIGURES", copy)
    before = {row["name"]: row for row in figures.chosen_figures()}
    figures.write({"chips": figures.value_of(ANY, JUDGED)})
    after = {row["name"]: row for row in figures.chosen_figures()}
    assert [name for name in before if before[name] != after[name]] == ["chips"]
    numbers = [after["chips"][name] for name in ("committed", "inside", "width")]
    assert numbers == ["0.1250", "0.7500", "0.1438"]


def test_what_was_judged_in_other_code_or_data_is_not_used_again(tmp_path):
    group, states = figures.chosen_figures(["chips"]), []
    for text in ("a\n1\n", "a\n2\n"):
        (tmp_path / "table.csv").write_text(text)
        states.append(figures.state_of(tmp_path))
    figures.keep(JUDGED, group, tmp_path, states[0], 1.0)
    pd.testing.assert_frame_equal(figures.kept(group, tmp_path, states[0]), JUDGED, check_like=True)
    assert figures.kept(group, tmp_path, states[1]) is None


def test_without_published_measurements_it_says_which_figures_lack_them(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("EPOCHCAST_PUBLISHED_DATA", raising=False)
    assert figures.main(["--figure", "chips", "--kept-in", str(tmp_path)]) == 1
    refusal = capsys.readouterr().err
    assert refusal.startswith("chips: not judged: ")
    assert "epochcast data list" in refusal


@pytest.mark.slow
@each_row
def test_our_own_tables_are_judged(judge, scenario, limit):
    judged = figures.JUDGES[judge](judges.Request((scenario,)))
    assert figures.value_of(ANY, judged).error < limit


CNNS = ("resnet18", "squeezenet1_1", "vgg11_bn", "mobilenet_v2")


def test_an_unseen_cnns_eager_iteration_is_near_where_operators_take_the_host_alike(made_up_gpu, monkeypatch):
    operators = dict.fromkeys(o for cnn in CNNS for o in operators_of(zoo_cnn(cnn)))
    rows = made_up_gpu.operator_rows(operators, (8, 64)) + made_up_gpu.target_rows(CNNS, (8, 64))
    table = pd.DataFrame(rows).assign(iteration_time_ms_iqr=np.nan, source="h200", held_out=False)
    features = feature_table(table)
    monkeypatch.setattr(judges, "own_features", lambda *_: features)
    judged = judges.of_eager(judges.Request(("",)))
    assert set(judged["cnn"]) == set(CNNS)
    assert (judged["predicted"] / judged["measured"] - 1).abs().max() < 0.06


def test_refitted_models_are_compared_number_by_number(tmp_path, capsys):
    for name, terms in (("before", [1.0, 2.0]), ("near", [1.0, 2.0 + 1e-9]), ("far", [1.0, 2.1])):
        (tmp_path / name).mkdir()
        model = {"card": {"fitted_on": name, "n": 3}, "terms": terms, "name": "law"}
        (tmp_path / name / "default.json").write_text(json.dumps(model))
    folders = [[str(tmp_path / "before"), str(tmp_path / name)] for name in ("before", "near", "far")]
    assert [refit_differences.main(pair) for pair in folders] == [0, 0, 1]
    printed = capsys.readouterr().out
    assert printed.startswith("default.json")
    assert ".terms[1]: 4.8e-02" in printed
