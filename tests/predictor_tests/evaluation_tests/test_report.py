"""Tests of what an evaluation leaves on paper."""

import sys

import pandas as pd
import pytest
from case_tables import each_row

from predictor.errors import BackendUnavailableError
from predictor.evaluation.report import percent, scenario_text, write_report
from predictor.evaluation.run import evaluate


@pytest.fixture(scope="module")
def result(made_up_table, world):
    predictors = {"law": world.lawful_with_interval(1.1), "refusing": world.refusing()}
    return evaluate(made_up_table, ["unseen-cnn", "unseen-cnn-quick-preset"], predictors)


def test_a_report_has_three_tables_and_a_plot_per_answered_scenario(result, tmp_path):
    pytest.importorskip("matplotlib")
    paths = write_report(result, tmp_path / "new folder")
    tables, plot = (
        ["summary.csv", "predictions.csv", "not_applicable.csv"],
        "unseen-cnn-predicted-vs-measured.png",
    )
    assert [path.name for path in paths] == [*tables, plot]
    assert paths[3].read_bytes()[:4] == b"\x89PNG"
    errors = result.table()["mape"].tolist()
    assert pd.read_csv(paths[0])["mape"].tolist() == pytest.approx(errors, nan_ok=True)


def test_without_matplotlib_the_tables_are_written_and_the_next_step_is_named(result, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(BackendUnavailableError, match=r"pip install 'epochcast\[plots\]'"):
        write_report(result, tmp_path)
    assert (tmp_path / "summary.csv").is_file()


def test_the_text_shows_error_start_goal_noise_and_why_rows_are_not_answered(result):
    text = scenario_text(result, "unseen-cnn")
    assert "start 8.7 %, goal 6.0 %" in text
    assert "noise of the data (median IQR of repeats) 2.0 %" in text
    assert "law        10.0 %" in text
    assert "refusing: not applicable to 20 rows: profet/Cnn0 is not for me" in text


def test_a_scenario_that_the_table_cannot_answer_is_one_line_under_its_question(result):
    text = scenario_text(result, "unseen-cnn-quick-preset")
    assert "no single layers are among the rows" in text
    assert "MAPE" not in text


@each_row
def test_fractions_are_written_as_percent(fraction, text):
    assert percent(fraction) == text
