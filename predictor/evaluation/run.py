"""Runs predictors through scenarios: fit on what a fold shows, predict the rest, keep every row's answer.

Called by the command, benchmarks and notebooks; calls scenarios, fold_runner, summary and predictors. The
same table and seed give the same numbers to the last digit, whatever the number of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.errors import DataError, EpochcastError
from predictor.evaluation.fold_runner import ROW_COLUMNS, Outcome, Refusal, run_folds
from predictor.evaluation.noise import run_to_run_noise
from predictor.evaluation.scenarios import SCENARIOS, Scenario, find_scenario, holds_published_rows
from predictor.evaluation.splits import Fold, Positions
from predictor.evaluation.summary import error_table

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["EvaluationResult", "evaluate", "registered_predictors"]


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationResult:
    """What every predictor answered, and what was true.

    `predictions` has one row per scenario, fold, predictor and tested row: `scenario, fold, predictor, row`
    (position in the feature table), `gpu, cnn, image_size, batch_size, precision, measured, predicted, low,
    high` (ms; ms per image or seconds where the scenario says so). `not_applicable` has `scenario, fold,
    predictor, n_rows, reason`; `noise` gives each scenario's run-to-run noise as a fraction; `published` says
    whether published data were evaluated, to which alone starts and goals belong.
    """

    predictions: pd.DataFrame
    not_applicable: pd.DataFrame
    noise: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    published: bool = True

    def start_and_goal(self, scenario: str) -> tuple[float | None, float | None]:
        """Give the best figure known before and the goal (MAPE, fractions); None on data that have none."""
        found = find_scenario(scenario)
        return (found.start, found.goal) if self.published else (None, None)

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
            worst_mape, worst_mape_group, noise, start, goal, notes`; errors, coverage and noise are
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
        Names in `SCENARIOS`; by default all of them, on data without published rows those for any table.
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
    published = holds_published_rows(features)
    usual = [name for name, scenario in SCENARIOS.items() if published or scenario.for_any_table]
    chosen = [find_scenario(name) for name in (usual if scenarios is None else scenarios)]
    jobs: list[tuple[Scenario, str, Any, list[Fold]]] = []
    refused: list[Refusal] = []
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
    done = Parallel(n_jobs=n_jobs)(delayed(run_folds)(features, *job, seed) for job in jobs)
    return EvaluationResult(*_collected(done, refused), noise, seed, published)


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
    if scenario.answer == "gpu_time_ms":
        found = {name: _answering(each, scenario.answer) for name, each in found.items()}
    found = as_iteration_time(found)
    return as_epoch_time(found) if scenario.answer == "epoch_time_s" else found


def _answering(estimator: Any, answer: str) -> Any:
    """Tell predictors that know several times which one is asked; to the others y is the time."""
    from sklearn.base import clone

    return clone(estimator).set_params(answers=answer) if "answers" in estimator.get_params() else estimator


def _by_training_rows(folds: list[Fold]) -> list[list[Fold]]:
    """Folds that train on the same rows, together: they need one fit."""
    alike: dict[bytes, list[Fold]] = {}
    for fold in folds:
        alike.setdefault(fold.train.tobytes(), []).append(fold)
    return list(alike.values())


def _collected(done: Iterable[Outcome], refused: list[Refusal]) -> tuple[pd.DataFrame, pd.DataFrame]:
    import pandas as pd

    frames: list[pd.DataFrame] = []
    for answered, not_answered in done:
        frames += answered
        refused += not_answered
    columns = ["scenario", "fold", "predictor", "row", *ROW_COLUMNS, "measured", "predicted", "low", "high"]
    predictions = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
    return predictions, pd.DataFrame(refused, columns=["scenario", "fold", "predictor", "n_rows", "reason"])
