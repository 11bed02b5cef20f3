"""The numbers of an evaluation: error, spread, coverage, each beside the noise and the goal.

Called by `EvaluationResult.table`; calls nothing of ours but the scenario's own words.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from predictor.evaluation.run import EvaluationResult
    from predictor.evaluation.scenarios import Scenario

__all__ = ["absolute_error", "error_table", "inside_interval"]


def absolute_error(predictions: pd.DataFrame) -> pd.Series[float]:
    """|predicted / measured - 1| of every row, a fraction; NaN where nothing finite was predicted."""
    error = (predictions["predicted"].astype(float) / predictions["measured"].astype(float) - 1.0).abs()
    return error.where(np.isfinite(error))


def inside_interval(predictions: pd.DataFrame) -> pd.Series[float]:
    """1.0 where the truth lies inside the interval, 0.0 where not, NaN where no interval was given."""
    low, high = predictions["low"].astype(float), predictions["high"].astype(float)
    measured = predictions["measured"].astype(float)
    return ((measured >= low) & (measured <= high)).astype(float).where(low.notna() & high.notna())


def error_table(result: EvaluationResult, scenario: Scenario) -> pd.DataFrame:
    """One scenario's row per predictor, best first, then those that could not answer.

    Returns
    -------
    DataFrame
        The columns that `EvaluationResult.table` documents.
    """
    import pandas as pd

    answers = result.predictions[result.predictions["scenario"] == scenario.name]
    refused = result.not_applicable[result.not_applicable["scenario"] == scenario.name]
    names = list(dict.fromkeys([*answers["predictor"], *refused["predictor"]]))
    start, goal = result.start_and_goal(scenario.name)
    beside = {"noise": result.noise.get(scenario.name, np.nan), "start": start, "goal": goal}
    rows = [
        {
            "scenario": scenario.name,
            "predictor": name,
            **_errors(answers[answers["predictor"] == name], scenario.group),
            **beside,
            "notes": _notes(answers[answers["predictor"] == name], refused[refused["predictor"] == name]),
        }
        for name in names
    ]
    return pd.DataFrame(rows).sort_values("mape", kind="stable", na_position="last", ignore_index=True)


def _errors(answers: pd.DataFrame, group: str) -> dict[str, Any]:
    error, inside = absolute_error(answers), inside_interval(answers)
    worst_coverage, worst_coverage_group = _worst(inside, answers[group], largest=False)
    worst_mape, worst_mape_group = _worst(error, answers[group], largest=True)
    return {
        "mape": float(error.mean()),
        "median": float(error.median()),
        "p90": float(error.quantile(0.9)),
        "n": int(error.notna().sum()),
        "coverage": float(inside.mean()),
        "worst_coverage": worst_coverage,
        "worst_coverage_group": worst_coverage_group,
        "worst_mape": worst_mape,
        "worst_mape_group": worst_mape_group,
    }


def _worst(values: pd.Series[float], groups: pd.Series[str], largest: bool) -> tuple[float, str]:
    means = values.groupby(groups).mean().dropna()
    if means.empty:
        return float("nan"), ""
    worst = str(means.idxmax() if largest else means.idxmin())
    return float(means[worst]), worst


def _notes(answers: pd.DataFrame, refused: pd.DataFrame) -> str:
    """Say in one line what was not answered and why, and what was answered that no time can be."""
    parts: list[str] = []
    if len(refused):
        first, n_rows = str(refused["reason"].iloc[0]), int(refused["n_rows"].sum())
        parts.append(f"not applicable to {n_rows} rows: {first}" if n_rows else first)
        others = refused["reason"].nunique() - 1
        parts += [f"{others} more reasons"] * bool(others)
    n_missing = int(absolute_error(answers).isna().sum())
    n_impossible = int((answers["predicted"].astype(float) <= 0).sum())
    parts += [f"{n_missing} rows: no finite prediction"] * bool(n_missing)
    parts += [f"{n_impossible} rows: predicted time not above 0 (counted)"] * bool(n_impossible)
    return "; ".join(parts)
