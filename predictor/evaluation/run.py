"""Runs predictors through scenarios: fit on what a fold shows, predict the rest, keep every row's answer.

Called by the command, benchmarks and notebooks; calls scenarios, summary and predictors. The same table and
seed give the same numbers to the last digit, whatever the number of jobs.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.errors import DataError, EpochcastError, SchemaError
from predictor.evaluation.noise import run_to_run_noise
from predictor.evaluation.scenarios import SCENARIOS, Scenario, find_scenario
from predictor.evaluation.splits import Fold, Positions
from predictor.evaluation.summary import error_table
from predictor.proxies import PROXY_TIME_PREFIX

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["COVERAGE", "EvaluationResult", "evaluate", "registered_predictors"]

COVERAGE = 0.9
"""Share of truths that an interval is meant to hold."""

_MEASURED_COLUMNS = (
    "iteration_time_ms",
    "gpu_time_ms",
    "host_time_ms",
    "iteration_time_ms_iqr",
    "epoch_time_s",
    "peak_memory_mib",
    "conv_algorithms",
)
_CELL = ["gpu", "cnn", "image_size"]
_ROW_COLUMNS = ("gpu", "cnn", "image_size", "batch_size", "precision")


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationResult:
    """What every predictor answered, and what was true.

    `predictions` has one row per scenario, fold, predictor and tested row: `scenario, fold, predictor, row`
    (position in the feature table), `gpu, cnn, image_size, batch_size, precision, measured, predicted, low,
    high` (ms; ms per image or seconds where the scenario says so). `not_applicable` has `scenario, fold,
    predictor, n_rows, reason`; `noise` gives each scenario's run-to-run noise as a fraction.
    """

    predictions: pd.DataFrame
    not_applicable: pd.DataFrame
    noise: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0

    def scenarios(self) -> list[str]:
        """Names of the scenarios that were asked for, in order."""
        asked = {*self.predictions["scenario"], *self.not_applicable["scenario"]}
        return [name for name in SCENARIOS if name in asked]

    def table(self, scenario: str | None = None) -> pd.DataFrame:
        """One scenario's errors by predictor, best first; those of all scenarios where none is named.

        Returns
        -------
        DataFrame
            `scenario, predictor, mape, median, p90, n, coverage, worst_coverage, worst_coverage_group,
            worst_mape, worst_mape_group, noise, start, goal, not_applicable`; errors, coverage and noise are
            fractions.
        """
        import pandas as pd

        names = self.scenarios() if scenario is None else [find_scenario(scenario).name]
        tables = [error_table(self, SCENARIOS[name]) for name in names]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every scenario's table by its name."""
        return {name: self.table(name) for name in self.scenarios()}


def registered_predictors(names: Iterable[str] | None = None) -> dict[str, Any]:
    """Fresh, unfitted predictors of `predictor.predictors.PREDICTORS` by name; all of them if none is named.

    Raises
    ------
    SchemaError
        If a name is not registered.
    """
    from predictor.predictors import PREDICTORS, predictor_class

    return {name: predictor_class(name)() for name in (PREDICTORS if names is None else names)}


def evaluate(
    features: pd.DataFrame,
    scenarios: Sequence[str] | None = None,
    predictors: Sequence[str] | Mapping[str, Any] | None = None,
    seed: int = 0,
    n_jobs: int = 1,
) -> EvaluationResult:
    """Judge predictors on measurements that their fit never saw.

    Parameters
    ----------
    features : DataFrame of n rows
        A feature table (`predictor.features.feature_table`) with `iteration_time_ms`.
    scenarios : sequence of str, optional
        Names in `SCENARIOS`; all of them by default.
    predictors : sequence of str, or mapping of name to estimator, optional
        Registered names, or estimators of one's own; by default every registered one that applies.
    seed : int
        Decides what a scenario draws at random, and predictors' own `random_state`.
    n_jobs : int
        Processes.

    Returns
    -------
    EvaluationResult
        Cells that cannot be answered (an EpochcastError of the predictor or of the split) are in
        `not_applicable` with their reason.

    Raises
    ------
    DataError
        If the table is empty, or a scenario or predictor is unknown.
    """
    from joblib import Parallel, delayed

    if features.empty:
        raise DataError("the table has no rows to evaluate on. Pass measurements with iteration_time_ms.")
    chosen = [find_scenario(name) for name in (SCENARIOS if scenarios is None else scenarios)]
    jobs: list[tuple[Scenario, str, Any, list[Fold]]] = []
    refused: list[_Refusal] = []
    noise: dict[str, float] = {}
    for scenario in chosen:
        try:
            folds = scenario.folds(features, seed)
        except EpochcastError as error:
            refused.append((scenario.name, "all", "all", 0, str(error)))
            continue
        noise[scenario.name] = run_to_run_noise(features.iloc[_tested(folds)])
        for name, estimator in _applicable(scenario, predictors).items():
            jobs += [(scenario, name, estimator, alike) for alike in _by_training_rows(folds)]
    done = Parallel(n_jobs=n_jobs)(delayed(_run)(features, *job, seed) for job in jobs)
    return _collected(done, refused, noise, seed)


def _tested(folds: list[Fold]) -> Positions:
    return np.unique(np.concatenate([fold.test for fold in folds]))


def _applicable(scenario: Scenario, predictors: Sequence[str] | Mapping[str, Any] | None) -> dict[str, Any]:
    from predictor.evaluation.epoch_time import as_epoch_time, as_iteration_time

    if isinstance(predictors, Mapping):
        found = dict(predictors)
    elif predictors is None and scenario.predictors:
        found = registered_predictors(scenario.predictors)
    else:
        found = registered_predictors(predictors)
    found = as_iteration_time(found)
    return as_epoch_time(found) if scenario.answer == "epoch_time_s" else found


def _by_training_rows(folds: list[Fold]) -> list[list[Fold]]:
    """Folds that train on the same rows, together: they need one fit."""
    alike: dict[bytes, list[Fold]] = {}
    for fold in folds:
        alike.setdefault(fold.train.tobytes(), []).append(fold)
    return list(alike.values())


_Refusal = tuple[str, str, str, int, str]
_Outcome = tuple["list[pd.DataFrame]", list[_Refusal]]


def _run(
    features: pd.DataFrame, scenario: Scenario, name: str, estimator: Any, folds: list[Fold], seed: int
) -> _Outcome:
    """Fit once and predict every fold; one BLAS thread, since the order of sums changes digits."""
    from sklearn.base import clone
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    answered: list[pd.DataFrame] = []
    refused: list[_Refusal] = []
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
) -> _Outcome:
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
    model.fit(_visible(train, scenario), _truth(train, scenario))


def _visible(rows: pd.DataFrame, scenario: Scenario) -> pd.DataFrame:
    """Leave out what was measured of the rows, so that no predictor can read the answer."""
    hidden = [column for column in _MEASURED_COLUMNS if column in rows and column not in scenario.known]
    if not scenario.proxies_known:
        hidden += [str(column) for column in rows if str(column).startswith(PROXY_TIME_PREFIX)]
    return rows.drop(columns=hidden)


def _truth(rows: pd.DataFrame, scenario: Scenario) -> NDArray[np.float64]:
    return rows[scenario.answer].to_numpy(dtype=float)


def _answers(model: Any, features: pd.DataFrame, scenario: Scenario, name: str, fold: Fold) -> pd.DataFrame:
    rows = features.iloc[fold.test]
    shown = _visible(rows, scenario)
    known = features.iloc[fold.anchors]
    extra: dict[str, Any] = {}
    if getattr(model, "uses_anchors", False):
        extra["anchors"] = (_visible(known, scenario), _truth(known, scenario))
    predicted = _one_per_row(model.predict(shown, **extra), name, len(rows))
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    if hasattr(model, "predict_interval"):
        ends = model.predict_interval(shown, **extra, coverage=COVERAGE)
        low, high = (_one_per_row(end, name, len(rows)) for end in ends)
    scale = 1.0 / rows["batch_size"].to_numpy(dtype=float) if scenario.per_image else 1.0
    answered = rows[list(_ROW_COLUMNS)].reset_index(drop=True)
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


def _collected(
    done: Iterable[_Outcome], refused: list[_Refusal], noise: Mapping[str, float], seed: int
) -> EvaluationResult:
    import pandas as pd

    frames: list[pd.DataFrame] = []
    for answered, not_answered in done:
        frames += answered
        refused += not_answered
    columns = ["scenario", "fold", "predictor", "row", *_ROW_COLUMNS, "measured", "predicted", "low", "high"]
    predictions = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
    reasons = pd.DataFrame(refused, columns=["scenario", "fold", "predictor", "n_rows", "reason"])
    return EvaluationResult(predictions, reasons, noise, seed)
