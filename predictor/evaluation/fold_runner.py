"""Fits a predictor on a fold and asks it about the rest, showing it nothing of what it is asked.

Called by `predictor.evaluation.run`, in processes of its own; calls splits, scenarios and the error tree.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.errors import DataError, EpochcastError, SchemaError
from predictor.evaluation.scenarios import Scenario
from predictor.evaluation.splits import Fold
from predictor.proxies import PROXY_TIME_PREFIX

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COVERAGE", "ROW_COLUMNS", "Outcome", "Refusal", "run_folds"]

COVERAGE = 0.9
"""Share of truths that an interval is meant to hold."""

ROW_COLUMNS = ("gpu", "cnn", "image_size", "batch_size", "precision")
"""What a tested row is told by."""

_ANSWERS = ("iteration_time_ms", "iteration_time_ms_iqr", "epoch_time_s")
_MEASURED_BESIDE = ("gpu_time_ms", "host_time_ms", "peak_memory_mib", "conv_algorithms")
_KERNEL_TIME_PREFIX = "kernel_time_ms_"
_CELL = ["gpu", "cnn", "image_size"]

Refusal = tuple[str, str, str, int, str]
"""Scenario, fold, predictor, number of rows, and the reason why they were not answered."""

Outcome = tuple["list[pd.DataFrame]", list[Refusal]]


def run_folds(
    features: pd.DataFrame, scenario: Scenario, name: str, estimator: Any, folds: list[Fold], seed: int
) -> Outcome:
    """Fit once and predict every fold; one BLAS thread, since the order of sums changes digits."""
    from sklearn.base import clone
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    answered: list[pd.DataFrame] = []
    refused: list[Refusal] = []
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # Said in the table: how many predicted times are not above zero.
        warnings.filterwarnings("ignore", message=".*predicted times are not above zero")
        model = clone(estimator)
        if "random_state" in model.get_params():
            model.set_params(random_state=seed)
        try:
            _fit(model, features, scenario, folds[0])
        except EpochcastError as error:
            return [], [(scenario.name, fold.name, name, fold.test.size, str(error)) for fold in folds]
        for fold in folds:
            answers, refusals = _whole_or_by_cell(model, features, scenario, name, fold)
            answered += answers
            refused += refusals
    return answered, refused


def _whole_or_by_cell(
    model: Any, features: pd.DataFrame, scenario: Scenario, name: str, fold: Fold
) -> Outcome:
    """Predict a fold; if it is refused, each of its CNNs apart, so that one cannot silence the others."""
    try:
        return [_answers(model, features, scenario, name, fold)], []
    except EpochcastError as error:
        cells = features.iloc[fold.test].groupby(_CELL, sort=False).indices
        if len(cells) == 1:
            return [], [(scenario.name, fold.name, name, fold.test.size, str(error))]
    parts = [replace(fold, test=fold.test[rows]) for rows in cells.values()]
    outcomes = [_whole_or_by_cell(model, features, scenario, name, part) for part in parts]
    return [each for answers, _ in outcomes for each in answers], [
        each for _, refusals in outcomes for each in refusals
    ]


def _fit(model: Any, features: pd.DataFrame, scenario: Scenario, fold: Fold) -> None:
    uses_operators = getattr(model, "uses_operators", False)
    if scenario.needs_operators and not uses_operators:
        raise DataError("it reads no single layers, so that it answers as in unseen-gpu-specs")
    train = features.iloc[fold.train]
    if not uses_operators and "kind" in train:
        train = train[train["kind"].fillna("target") == "target"]
    model.fit(_shown_to_fit(train, scenario), _truth(train, scenario))


def _shown_to_fit(rows: pd.DataFrame, scenario: Scenario) -> pd.DataFrame:
    """Leave out the answer, but not what else was measured: kernel times are labels to learn from."""
    return rows.drop(columns=_hidden(rows, scenario, _ANSWERS))


def _shown_to_predict(rows: pd.DataFrame, scenario: Scenario) -> pd.DataFrame:
    """Leave out all that was measured of the rows, so that no predictor can read the answer."""
    profiled = [str(column) for column in rows if str(column).startswith(_KERNEL_TIME_PREFIX)]
    return rows.drop(columns=_hidden(rows, scenario, (*_ANSWERS, *_MEASURED_BESIDE, *profiled)))


def _hidden(rows: pd.DataFrame, scenario: Scenario, measured: Iterable[str]) -> list[str]:
    hidden = [column for column in measured if column in rows and column not in scenario.known]
    if not scenario.proxies_known:
        hidden += [str(column) for column in rows if str(column).startswith(PROXY_TIME_PREFIX)]
    return hidden


def _truth(rows: pd.DataFrame, scenario: Scenario) -> NDArray[np.float64]:
    return rows[scenario.answer].to_numpy(dtype=float)


def _answers(model: Any, features: pd.DataFrame, scenario: Scenario, name: str, fold: Fold) -> pd.DataFrame:
    rows = features.iloc[fold.test]
    shown = _shown_to_predict(rows, scenario)
    known = features.iloc[fold.anchors]
    extra: dict[str, Any] = {}
    if getattr(model, "uses_anchors", False):
        extra["anchors"] = (_shown_to_predict(known, scenario), _truth(known, scenario))
    predicted = _one_per_row(model.predict(shown, **extra), name, len(rows))
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    if hasattr(model, "predict_interval"):
        ends = model.predict_interval(shown, **extra, coverage=COVERAGE)
        low, high = (_one_per_row(end, name, len(rows)) for end in ends)
    scale = 1.0 / rows["batch_size"].to_numpy(dtype=float) if scenario.per_image else 1.0
    answered = rows[list(ROW_COLUMNS)].reset_index(drop=True)
    answered.insert(0, "scenario", scenario.name)
    answered.insert(1, "fold", fold.name)
    answered.insert(2, "predictor", name)
    answered.insert(3, "row", fold.test)
    truth = _truth(rows, scenario)
    return answered.assign(
        measured=truth * scale, predicted=predicted * scale, low=low * scale, high=high * scale
    )


def _one_per_row(answer: Any, name: str, n_rows: int) -> NDArray[np.float64]:
    times = np.asarray(answer, dtype=float)
    if times.shape != (n_rows,):
        raise SchemaError(f"{name} gave an answer of shape {times.shape} for {n_rows} rows")
    return times
