"""What the page says of forecasts of recorded steps follows from the tables of forecasts and truths."""

from pathlib import Path
from statistics import mean

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def trainings(torch, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import trainings

    return trainings


@pytest.mark.parametrize(
    ("forecast", "truth", "host"),
    [
        ("trainings_forecast", "trainings_h100", ""),
        ("strangers_forecast", "strangers_h100", "h100_16_cores"),
        ("strangers_forecast", "strangers_h100_2", "h100_16_cores"),
        ("third_forecast", "third_h100", ""),
        ("third_forecast", "third_h100", "h100_16_cores"),
        ("third_forecast", "third_h100", "third_host_before"),
        ("third_forecast", "third_h100", "third_host_after"),
    ],
)
def test_the_errors_of_the_page_are_those_of_its_tables(trainings, forecast, truth, host):
    page = (ROOT / "docs/recorded_steps.md").read_text(encoding="utf-8")
    files = (ROOT / f"benchmarks/{name}.csv" for name in (forecast, truth))
    found, inside = trainings.compared(*files, host)
    errors = (
        mean(abs(a / b - 1) for a, b in (each[name] for each in found.values())) for name in trainings.GOALS
    )
    figures = " | ".join(f"{error:.1%}".replace("%", " %") for error in errors)
    assert f"(`{host or f'{forecast}.csv'}`) | {figures} | {inside} of {len(found)} |" in page
