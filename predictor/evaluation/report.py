"""Writes what an evaluation found: Markdown tables and plots."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.errors import BackendUnavailableError
from predictor.evaluation.scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    import pandas as pd

    from predictor.evaluation.run import EvaluationResult

_COLUMNS = ("predictor", "mape", "median", "p90", "n", "worst_mape", "coverage", "worst_coverage")
_HEADINGS = ("predictor", "MAPE", "median", "p90", "n", "worst group", "coverage", "worst group")


def write_report(result: EvaluationResult, folder: str | PathLike[str], plots: bool = True) -> list[Path]:
    """Write an evaluation into a folder, made if it is missing, and return the paths of its files.

    They are `summary.csv` (the table of every scenario), `predictions.csv` (every tested row), `not_applicable.csv`
    (what was not answered and why), then, with `plots`, a PNG per scenario that has answers: BackendUnavailableError
    without matplotlib, when the CSV files are written.
    """
    path = Path(folder)
    path.mkdir(parents=True, exist_ok=True)
    tables = {
        "summary.csv": result.table(),
        "predictions.csv": result.predictions,
        "not_applicable.csv": result.not_applicable,
    }
    for name, table in tables.items():
        table.to_csv(path / name, index=False)
    return [path / name for name in tables] + (write_plots(result, path) if plots else [])


def percent(fraction: float | None) -> str:
    """Write a fraction as percent with one digit, ``-`` where it is unknown."""
    return "-" if fraction is None or fraction != fraction else f"{100 * fraction:.1f} %"


def scenario_text(result: EvaluationResult, scenario: str) -> str:
    """One scenario as plain text: question, MAPE to beat (start), goal, noise; a line per predictor, then its notes."""
    about, table = SCENARIOS[scenario], result.table(scenario)
    start, goal = result.start_and_goal(scenario)
    answered = table[table["n"] > 0]
    head = [
        f"{about.title} [{about.name}]",
        about.question,
        f"start {percent(start)}, goal {percent(goal)}, "
        f"noise of the data (median IQR of repeats) {percent(result.noise.get(scenario))}",
    ]
    rows = [list(_HEADINGS), *map(_cells, answered.to_dict("records"))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    noted = table[table["notes"] != ""]
    notes = [f"  {row['predictor']}: {row['notes']}" for row in noted.to_dict("records")]
    return "\n".join([*head, *(lines if len(answered) else []), *notes])


def _cells(row: dict[Any, Any]) -> list[str]:
    shown = {name: row[name] if name in ("predictor", "n") else percent(row[name]) for name in _COLUMNS}
    return [f"{cell} {row.get(f'{name}_group', '')}".strip() for name, cell in shown.items()]


def write_plots(result: EvaluationResult, folder: Path) -> list[Path]:
    """Draw predicted against measured times of every scenario that has answers."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendUnavailableError(
            "matplotlib is not installed: pip install 'epochcast[plots]', or leave the plots out."
        ) from error
    written: list[Path] = []
    for name, answers in result.predictions.groupby("scenario", sort=False):
        drawing = Figure(figsize=(8, 6), layout="constrained")
        _draw(drawing.add_subplot(), answers, SCENARIOS[str(name)])
        written.append(folder / f"{name}-predicted-vs-measured.png")
        drawing.savefig(written[-1], dpi=110, metadata={"Software": None})
    return written


def _draw(axes: Any, answers: pd.DataFrame, scenario: Scenario) -> None:
    unit = "epoch time (s)" if scenario.answer == "epoch_time_s" else "iteration time (ms)"
    for name, rows in answers[answers["predicted"] > 0].groupby("predictor", sort=False):
        axes.scatter(rows["measured"], rows["predicted"], s=8, alpha=0.6, label=name)
    ends = [answers["measured"].min(), answers["measured"].max()]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", title=scenario.title)
    axes.set(xlabel=f"measured {unit}", ylabel=f"predicted {unit}")
    axes.legend(fontsize=8)
