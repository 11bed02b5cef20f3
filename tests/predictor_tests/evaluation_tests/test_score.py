"""The scorer of the benchmark of published trainings: what counts, in which unit, and what it refuses."""

import csv
import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).parents[3] / "benchmarks" / "score.py"
SPEC = importlib.util.spec_from_file_location("score", PATH)
assert SPEC is not None
assert SPEC.loader is not None
SCORER = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(SCORER)

CLAIMS = {
    "a": {"id": "a", "group": "one", "measured": "iteration_ms", "value": "100", "confidence": "high"},
    "b": {"id": "b", "group": "one", "measured": "images/s", "value": "100", "confidence": "medium"},
    "c": {"id": "c", "group": "two", "measured": "total_s", "value": "100", "confidence": "high"},
    "d": {"id": "d", "group": "two", "measured": "total_s", "value": "100", "confidence": "low"},
}


def test_groups_weigh_alike_rates_are_times_and_rows_of_low_confidence_do_not_count():
    rows = [
        {"id": "a", "predicted": "110", "low": "90", "high": "120"},
        {"id": "b", "predicted": "80", "low": "70", "high": "90"},
        {"id": "c", "predicted": "150", "low": "", "high": ""},
        {"id": "d", "predicted": "900"},
    ]
    assert SCORER.score(CLAIMS, rows).split() == [
        *("33.8", "28.3", "25.0", "67", "%", "50", "%"),
        *("3", "of", "3,", "2", "groups"),
    ]


@pytest.mark.parametrize("ids", [["a", "x"], ["a", "a"]])
def test_an_id_that_is_no_claims_or_stands_twice_is_named(ids):
    with pytest.raises(ValueError, match=f"not so: {ids[1]}"):
        SCORER.score(CLAIMS, [{"id": name, "predicted": "1"} for name in ids])


def test_every_predictor_is_a_line(tmp_path, capsys):
    claims, entry = tmp_path / "claims.csv", tmp_path / "mine.csv"
    with claims.open("w", newline="") as file:
        writer = csv.DictWriter(file, CLAIMS["a"])
        writer.writeheader()
        writer.writerows(CLAIMS.values())
    entry.write_text("id,predicted\na,100\n")
    assert SCORER.main([str(claims), str(entry)]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("mine ")
