"""The table of goals: what it shows, what it keeps; the figures themselves take hours (benchmarks/goals.py)."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from predictor.errors import DataError
from predictor.evaluation.scenarios import SCENARIOS

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def goals():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("goals")


def test_every_goal_can_be_judged_or_is_shown_as_one_that_nothing_judges(goals):
    for goal in goals.chosen_goals():
        assert 0 < float(goal["goal"]) < 1, goal
        if goal["benchmark"]:
            assert goal["benchmark"] in goals.JUDGES, goal
            assert goal["scenario"] in (*SCENARIOS, ""), goal
            assert 0 < float(goal["committed"]) < 1, goal
        else:
            assert goal["committed"] == "", goal
            assert goals.table([goal], {}).endswith("nothing judges it")


def test_a_goal_is_chosen_by_how_its_name_begins(goals):
    assert [goal["name"] for goal in goals.chosen_goals(["own-layers", "chips"])] == [
        "own-layers-tf32",
        "own-layers-bf16",
        "own-layers-channels-last",
        "chips",
    ]


def test_an_unknown_goal_is_refused_with_the_nearest(goals):
    with pytest.raises(DataError, match="Nearest: 'chips'"):
        goals.chosen_goals(["chip-s"])


def test_a_figure_is_met_missed_or_worse_than_committed(goals):
    (goal,) = goals.chosen_goals(["chips"])  # goal 11.0 %, committed 12.2 %
    lines = [
        goals.table([goal], figures).splitlines()[1]
        for figures in ({}, *({"chips": x} for x in (0.1, 0.124, 0.13)))
    ]
    assert lines[0].endswith("11.0%     12.2%")
    assert lines[1].endswith("10.0% met")
    assert lines[2].endswith("12.4% missed by 1.4")
    assert lines[3].endswith("13.0% missed by 2.0 WORSE THAN COMMITTED")


def test_figures_of_other_code_or_data_are_not_used_again(goals, tmp_path):
    path = tmp_path / "build" / "goals.csv"
    goals.keep({"chips": 0.125}, path, "a state")
    assert goals.kept_figures(path, "a state") == {"chips": 0.125}
    assert goals.kept_figures(path, "another") == {}


def test_the_state_changes_with_the_published_tables(goals, tmp_path):
    (tmp_path / "table.csv").write_text("a\n1\n")
    before = goals.state_of(tmp_path)
    (tmp_path / "table.csv").write_text("a\n2\n")
    assert goals.state_of(tmp_path) != before


def test_without_published_measurements_it_says_how_to_get_them():
    environment = {k: v for k, v in os.environ.items() if k != "EPOCHCAST_PUBLISHED_DATA"}
    command = [sys.executable, str(BENCHMARKS / "goals.py"), "--goal", "chips"]
    environment["PYTHONPATH"] = str(BENCHMARKS.parent)
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert "epochcast data fetch" in done.stderr


def test_refitted_models_are_compared_number_by_number(tmp_path):
    model = {"card": {"fitted_on": "today", "n": 3}, "terms": [1.0, 2.0], "name": "law"}
    for name, terms in (("before", [1.0, 2.0]), ("near", [1.0, 2.0 + 1e-9]), ("far", [1.0, 2.1])):
        (tmp_path / name).mkdir()
        text = json.dumps(model | {"terms": terms, "card": {"fitted_on": name, "n": 3}})
        (tmp_path / name / "default.json").write_text(text)

    def run(name):
        command = [
            sys.executable,
            str(BENCHMARKS / "refit_differences.py"),
            str(tmp_path / "before"),
            str(tmp_path / name),
        ]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    assert run("before").stdout.startswith("default.json")
    assert (run("before").returncode, run("near").returncode, run("far").returncode) == (0, 0, 1)
    assert ".terms[1]: 4.8e-02" in run("far").stdout
