"""Recorded steps were forecast before they ran; the programs that recorded and timed them are gone, tables stay."""

import csv
import importlib
import math
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"


def rows_of(name):
    with (BENCHMARKS / name).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize(("dozen", "refused"), [("", 1), ("_2", 0)])
def test_steps_were_forecast_before_they_ran(dozen, refused):
    measured = {(row["step"], row["gpu"]): row for row in rows_of(f"recorded_steps_h100{dozen}.csv")}
    without_host = [
        row
        for row in rows_of(f"recorded_steps_forecast{dozen}.csv")
        if (row["step"], row["gpu"]) in measured and row["host"] == "not measured"
    ]
    assert len(measured) == len(without_host) == 12
    assert sum(bool(row["error"]) for row in without_host) == refused
    for row in without_host:
        assert row["at"] < measured[row["step"], row["gpu"]]["at"]


@pytest.mark.parametrize(("scenario", "n"), [("not measured", 11), ("not measured later", 12)])
def test_the_figure_of_steps_reads_them(scenario, n):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        judges = importlib.import_module("judges")
    judged = judges.of_steps(judges.Asked((scenario,)))
    assert len(judged) == n
    assert (judged["low"] < judged["predicted"]).all()
    assert all(math.isfinite(ms) and ms > 0 for ms in judged["measured"])
