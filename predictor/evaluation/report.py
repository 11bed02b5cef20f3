"""Writes what an evaluation found: Markdown tables and plots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.errors import BackendUnavailableError
from predictor.evaluation.run import absolute_error
from predictor.evaluation.scenarios import SCENARIOS, Scenario

if TYPE_CHECKING:
    import pandas as pd

    from predictor.evaluation.run import EvaluationResult

_PERCENT_COLUMNS = ("mape", "median", "p90", "worst_mape", "coverage", "worst_coverage")
_HEADINGS = ("predictor", "MAPE", "median", "p90", "n", "worst group", "coverage", "worst group")


def write_report(result: EvaluationResult, folder: str | PathLike[str], plots: bool = True) -> list[Path]:
    """Write an evaluation into a folder, made if it is missing.

    Parameters
    ----------
    result : EvaluationResult
    folder : path
    plots : bool
        Whether to draw PNG files too; needs matplotlib.

    Returns
    -------
    list of Path
        `summary.csv` (the table of every scenario), `predictions.csv` (every tested row),
        `not_applicable.csv` (what was not answered and why), then three plots per scenario that has answers.

    Raises
    ------
    BackendUnavailableError
        If plots are wanted and matplotlib is not installed; the CSV files are written before.
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
    """One scenario's table as plain text: its question, start, goal and noise, then a line per predictor."""
    about, table = SCENARIOS[scenario], result.table(scenario)
    start, goal = result.start_and_goal(scenario)
    answered = table[table["n"] > 0]
    head = [
        f"{about.title} [{about.name}]",
        about.question,
        f"start {percent(start)}, goal {percent(goal)}, "
        f"noise of the data (median IQR of repeats) {percent(result.noise.get(scenario))}",
    ]
    lines = _aligned([list(_HEADINGS), *(_cells(row) for row in answered.to_dict("records"))])
    noted = table[table["notes"] != ""]
    notes = [f"  {row['predictor']}: {row['notes']}" for row in noted.to_dict("records")]
    return "\n".join([*head, *(lines if len(answered) else []), *notes])


def _cells(row: dict[Any, Any]) -> list[str]:
    shown = {column: percent(row[column]) for column in _PERCENT_COLUMNS}
    return [
        str(row["predictor"]),
        shown["mape"],
        shown["median"],
        shown["p90"],
        str(row["n"]),
        f"{shown['worst_mape']} {row['worst_mape_group']}".strip(),
        shown["coverage"],
        f"{shown['worst_coverage']} {row['worst_coverage_group']}".strip(),
    ]


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


_N_SERIES = 6
_MOST_LABELS = 8
_LARGEST_ERROR_SHOWN = 1.0  # plain least squares can be off by thousands of percent
_SERIES = ["gpu", "cnn", "image_size", "precision"]


def write_plots(result: EvaluationResult, folder: Path) -> list[Path]:
    """Draw three PNG files for every scenario that has answers.

    Raises
    ------
    BackendUnavailableError
        If matplotlib is not installed.
    """
    figure = _figure_class()
    drawings: dict[str, Callable[[Any, pd.DataFrame, Scenario], None]] = {
        "predicted-vs-measured": _draw_predicted_vs_measured,
        "error-by-batch-size": _draw_error_by_batch_size,
        "time-vs-batch-size": _draw_time_vs_batch_size,
    }
    written: list[Path] = []
    for name, answers in result.predictions.groupby("scenario", sort=False):
        for kind, draw in drawings.items():
            drawing = figure(figsize=(8, 6), layout="constrained")
            draw(drawing, answers, replace(SCENARIOS[str(name)], goal=result.start_and_goal(str(name))[1]))
            written.append(folder / f"{name}-{kind}.png")
            drawing.savefig(written[-1], dpi=110, metadata={"Software": None})
    return written


def _figure_class() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise BackendUnavailableError(
            "matplotlib is not installed: pip install 'epochcast[plots]', or leave the plots out."
        ) from error
    return Figure


def _unit(scenario: Scenario) -> str:
    if scenario.answer == "epoch_time_s":
        return "epoch time (s)"
    return "iteration time (ms)"


def _draw_predicted_vs_measured(figure: Any, answers: pd.DataFrame, scenario: Scenario) -> None:
    axes = figure.add_subplot()
    for name, rows in answers[answers["predicted"] > 0].groupby("predictor", sort=False):
        axes.scatter(rows["measured"], rows["predicted"], s=8, alpha=0.6, label=name)
    ends = [answers["measured"].min(), answers["measured"].max()]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    axes.set(xscale="log", yscale="log", title=scenario.title)
    axes.set(xlabel=f"measured {_unit(scenario)}", ylabel=f"predicted {_unit(scenario)}")
    axes.legend(fontsize=8)


def _draw_error_by_batch_size(figure: Any, answers: pd.DataFrame, scenario: Scenario) -> None:
    axes = figure.add_subplot()
    errors = answers.assign(error=absolute_error(answers).clip(upper=_LARGEST_ERROR_SHOWN))
    for name, rows in errors.groupby("predictor", sort=False):
        mean = rows.groupby("batch_size")["error"].mean() * 100
        axes.plot(mean.index, mean, marker="o", markersize=3, label=name)
    if scenario.goal is not None:
        axes.axhline(100 * scenario.goal, color="black", linewidth=0.8, linestyle="--", label="goal")
    _scale_batch_sizes(axes, errors["batch_size"])
    axes.set(title=scenario.title, xlabel="batch size")
    axes.set_ylabel(f"mean absolute error (%), each at most {100 * _LARGEST_ERROR_SHOWN:.0f}")
    axes.legend(fontsize=8)


def _draw_time_vs_batch_size(figure: Any, answers: pd.DataFrame, scenario: Scenario) -> None:
    best = str(answers.assign(error=absolute_error(answers)).groupby("predictor")["error"].mean().idxmin())
    rows = answers[answers["predictor"] == best].drop_duplicates([*_SERIES, "batch_size"])
    for place, (series, each) in enumerate(_spread_series(rows), start=1):
        axes = figure.add_subplot(2, _N_SERIES // 2, place)
        each = each.sort_values("batch_size")
        axes.plot(each["batch_size"], each["measured"], "o", color="black", markersize=4, label="measured")
        axes.plot(each["batch_size"], each["predicted"], "-x", label=best)
        axes.fill_between(each["batch_size"], each["low"], each["high"], alpha=0.25, label="90 % interval")
        _scale_batch_sizes(axes, each["batch_size"])
        axes.set_title(f"{series[1]} {series[2]} px\n{series[0]}", fontsize=8)
        axes.tick_params(labelsize=7)
    figure.supxlabel("batch size")
    figure.supylabel(_unit(scenario))
    figure.suptitle(scenario.title)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower right", fontsize=8, ncols=3)


def _scale_batch_sizes(axes: Any, batch_sizes: pd.Series[int]) -> None:
    axes.set_xscale("log", base=2)
    measured = sorted(set(batch_sizes))
    if len(measured) <= _MOST_LABELS:
        axes.set_xticks(measured, labels=[str(batch_size) for batch_size in measured])


def _spread_series(rows: pd.DataFrame) -> list[tuple[Any, pd.DataFrame]]:
    """Choose some of the longest series, spread evenly over the table."""
    series = [(key, each) for key, each in rows.groupby(_SERIES)]
    longest = max(len(each) for _, each in series)
    whole = [pair for pair in series if len(pair[1]) == longest]
    return whole[:: max(1, len(whole) // _N_SERIES)][:_N_SERIES]
