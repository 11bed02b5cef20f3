"""Runs scenarios: fits every fold from nothing, predicts what was held out, and sums up errors and coverage.

Cells that a predictor or a split refuses are kept with their reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from predictor.errors import DataError, EpochcastError, SchemaError
from predictor.evaluation.scenarios import DEFAULT, SCENARIOS, Scenario, find_scenario, holds_published_rows
from predictor.evaluation.splits import Fold

if TYPE_CHECKING:
    import pandas as pd

COVERAGE = 0.9
"""Intended share of truths inside an interval."""

ROW_COLUMNS = ("gpu", "cnn", "image_size", "batch_size", "precision")
"""What identifies a tested row in the tables of an evaluation."""

_ANSWERS = ("iteration_time_ms", "iteration_time_ms_iqr", "epoch_time_s")
_MEASURED_BESIDE = ("gpu_time_ms", "host_time_ms", "peak_memory_mib", "conv_algorithms")
_MACHINE = ("source", "host")
_CELL = ["gpu", "cnn", "image_size"]
_SAME_RUN = (
    "source", "framework", "gpu", "cnn", "image_size", "batch_size", "precision", "memory_format", "xla",
    "optimizer",
)  # fmt: skip


class Refusal(NamedTuple):
    """Rows of a fold that a predictor did not answer, and why."""

    scenario: str
    fold: str
    predictor: str
    n_rows: int
    reason: str


Answers = tuple["list[pd.DataFrame]", list[Refusal]]
"""Tables of predictions, and what was refused."""


@dataclass(frozen=True, slots=True, eq=False)
class EvaluationResult:
    """Predicted and measured times of every scenario, fold and predictor.

    `predictions` has one row per scenario, fold, predictor and tested row: `scenario, fold, predictor, row`
    (position in the feature table), `gpu, cnn, image_size, batch_size, precision, measured, predicted, low,
    high` (ms, or seconds where the scenario says so). `not_applicable` has `scenario, fold,
    predictor, n_rows, reason`; `noise` gives each scenario's run-to-run noise as a fraction; `published` says
    whether published data were evaluated: only these have starts and goals.
    """

    predictions: pd.DataFrame
    not_applicable: pd.DataFrame
    noise: Mapping[str, float] = field(default_factory=dict)
    seed: int = 0
    published: bool = True

    def start_and_goal(self, scenario: str) -> tuple[float | None, float | None]:
        """Best MAPE known before this project, and the goal, as fractions; None where the evaluated data have none."""
        about = find_scenario(scenario)
        return (about.start, about.goal) if self.published else (None, None)

    def scenarios(self) -> list[str]:
        """Names of the scenarios that were judged or refused, in order."""
        names = {*self.predictions["scenario"], *self.not_applicable["scenario"]}
        return [name for name in SCENARIOS if name in names]

    def table(self, scenario: str | None = None) -> pd.DataFrame:
        """Errors by predictor, best first, of one scenario; of all scenarios by default.

        Gives `scenario, predictor, mape, median, p90, n, coverage, worst_coverage, worst_coverage_group, worst_mape,
        worst_mape_group, noise, start, goal, notes`; errors, coverage and noise are fractions.
        """
        import pandas as pd

        names = self.scenarios() if scenario is None else [find_scenario(scenario).name]
        tables = [error_table(self, SCENARIOS[name]) for name in names]
        return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def evaluate(
    features: pd.DataFrame,
    scenarios: Sequence[str] | None = None,
    predictors: Sequence[str] | Mapping[str, Any] | None = None,
    seed: int = 0,
    n_jobs: int = 1,
) -> EvaluationResult:
    """Judge predictors on measurements that their fit never saw.

    `features` is a feature table (`predictor.measurements.features.feature_table`) with `iteration_time_ms`. Scenarios
    are names in `SCENARIOS`; by default all but those of a `scaling`, on data without published rows those for any
    table. Predictors are registered names, or estimators of your own by name; by default every registered one that
    applies. `seed` decides what a scenario draws at random, and predictors' own `random_state`.

    Cells that cannot be answered (an EpochcastError of the predictor or of the split) are in `not_applicable` with
    their reason. DataError if the table is empty, or a scenario or predictor is unknown.
    """
    from joblib import Parallel, delayed

    if features.empty:
        raise DataError("the table has no rows to evaluate on. Pass measurements with iteration_time_ms.")
    published = holds_published_rows(features)
    usual = [
        name
        for name, scenario in SCENARIOS.items()
        if scenario.for_any_table or (published and not scenario.scaling)
    ]
    chosen = [find_scenario(name) for name in (usual if scenarios is None else scenarios)]
    tasks: list[_Task] = []
    refused: list[Refusal] = []
    noise: dict[str, float] = {}
    for scenario in chosen:
        try:
            folds = scenario.folds(features, seed)
        except EpochcastError as error:
            refused.append(Refusal(scenario.name, "all", "all", 0, str(error)))
            continue
        tested = np.unique(np.concatenate([fold.test for fold in folds]))
        noise[scenario.name] = run_to_run_noise(features.iloc[tested])
        for name, estimator in _applicable(scenario, predictors).items():
            tasks += [_Task(scenario, name, estimator, fold) for fold in folds]
    # positions of tasks whose fits are shown the same rows and columns
    groups: dict[tuple[Any, ...], list[int]] = {}
    for i, (scenario, _, _, fold) in enumerate(tasks):
        shown = (fold.train.tobytes(), fold.proxies.tobytes(), scenario.answer, scenario.known)
        groups.setdefault(shown, []).append(i)
    answers = Parallel(n_jobs=n_jobs)(
        delayed(_run)(features, [tasks[i] for i in positions], seed) for positions in groups.values()
    )
    by_position = dict(zip(chain.from_iterable(groups.values()), chain.from_iterable(answers), strict=True))
    in_order = [by_position[i] for i in range(len(tasks))]
    return EvaluationResult(*_collected(in_order, refused), noise, seed, published)


def registered_predictors(names: Iterable[str] | None = None) -> dict[str, Any]:
    """Fresh, unfitted predictors by name: those of `predictor.models.registry.PREDICTORS`, and `DEFAULT`.

    All of the registry if no names are given; SchemaError if there is no predictor of a name.
    """
    from predictor.evaluation.served import ShippedModel
    from predictor.models.base import new_predictor
    from predictor.models.registry import PREDICTORS

    return {
        name: ShippedModel() if name == DEFAULT else new_predictor(name)
        for name in (PREDICTORS if names is None else names)
    }


def _applicable(scenario: Scenario, predictors: Sequence[str] | Mapping[str, Any] | None) -> dict[str, Any]:
    from sklearn.base import clone

    from predictor.evaluation.epoch_time import as_epoch_time

    if not isinstance(predictors, Mapping):
        usual = scenario.predictors or None
        predictors = registered_predictors(usual if predictors is None else predictors)
    estimators = dict(predictors)
    for name, model in predictors.items() if scenario.answer == "gpu_time_ms" else ():
        if "answers" in model.get_params():  # the others predict whatever y holds
            estimators[name] = clone(model).set_params(answers=scenario.answer)
    return as_epoch_time(estimators) if scenario.answer == "epoch_time_s" else estimators


class _Task(NamedTuple):
    """One fold to be predicted by one estimator."""

    scenario: Scenario
    name: str
    estimator: Any
    fold: Fold

    def refusal(self, error: EpochcastError) -> Refusal:
        """All rows of the fold, refused for the error's reason."""
        return Refusal(self.scenario.name, self.fold.name, self.name, self.fold.test.size, str(error))


def _collected(done: Iterable[Answers], refused: list[Refusal]) -> tuple[pd.DataFrame, pd.DataFrame]:
    import pandas as pd

    frames: list[pd.DataFrame] = []
    for answered, not_answered in done:
        frames += answered
        refused += not_answered
    columns = ["scenario", "fold", "predictor", "row", *ROW_COLUMNS, "measured", "predicted", "low", "high"]
    predictions = pd.concat(frames, ignore_index=True) if frames else pd.DataFrame(columns=columns)
    return predictions, pd.DataFrame(refused, columns=list(Refusal._fields))


def _run(features: pd.DataFrame, tasks: Sequence[_Task], seed: int) -> list[Answers]:
    """Answers of tasks that train on the same rows; one BLAS thread, since the order of sums changes digits."""
    from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

    fits: list[tuple[Any, Any]] = []
    with threadpool_limits(limits=1):
        return [_answered(features, task, fits, seed) for task in tasks]


def _answered(features: pd.DataFrame, task: _Task, fits: list[tuple[Any, Any]], seed: int) -> Answers:
    try:
        model = _fitted(features, task, fits, seed)
    except EpochcastError as error:
        return [], [task.refusal(error)]
    return _whole_or_by_cell(model, features, task)


def _fitted(features: pd.DataFrame, task: _Task, fits: list[tuple[Any, Any]], seed: int) -> Any:
    """The task's estimator with what one that learns the same has learned of these rows, else fitted on them.

    `fits` holds the estimators so far, each with itself fitted or the error of its fit.
    """
    from sklearn.base import clone

    model = clone(task.estimator)
    if getattr(model, "needs_anchors", False) and not task.fold.anchors.size:
        raise DataError("it needs a measurement of the CNN, of which this scenario knows none")
    for estimator, learned in fits:
        if _learn_the_same(estimator, task.estimator):
            if isinstance(learned, EpochcastError):
                raise learned
            vars(model).update(vars(learned))
            return model
    if "random_state" in model.get_params():
        model.set_params(random_state=seed)
    try:
        train = _shown_to_fit(model, features, task.fold)
        # a fit may learn from everything measured but the answer
        model.fit(_without(train, task.scenario, _ANSWERS), _truth(train, task.scenario))
    except EpochcastError as error:
        fits.append((task.estimator, error))
        raise
    fits.append((task.estimator, model))
    return model


def _learn_the_same(first: Any, second: Any) -> bool:
    """Whether two estimators learn the same from the same rows: `roofline` and `anchored` do."""
    from predictor.models.base import Predictor

    if first is second:
        return True
    ours = isinstance(first, Predictor) and type(first).fit is type(second).fit
    return ours and first.get_params() == second.get_params()


def _whole_or_by_cell(model: Any, features: pd.DataFrame, task: _Task) -> Answers:
    """Predict a fold; if it is refused, predict each of its CNNs apart, so that one refusal costs one CNN."""
    try:
        return [_answers(model, features, task)], []
    except EpochcastError as error:
        cells = features.iloc[task.fold.test].groupby(_CELL, sort=False).indices
        if len(cells) == 1:
            return [], [task.refusal(error)]
    tables: list[pd.DataFrame] = []
    refused: list[Refusal] = []
    for rows in cells.values():
        cell = task._replace(fold=replace(task.fold, test=task.fold.test[rows]))
        answered, not_answered = _whole_or_by_cell(model, features, cell)
        tables += answered
        refused += not_answered
    return tables, refused


def _shown_to_fit(model: Any, features: pd.DataFrame, fold: Fold) -> pd.DataFrame:
    """Training rows of the kinds that a predictor learns from."""
    carries = getattr(model, "carries_by_proxies", False)
    train = features.iloc[np.union1d(fold.train, fold.proxies) if carries else fold.train]
    if getattr(model, "uses_operators", False) or "kind" not in train:
        return train
    kinds = ("target", "proxy") if getattr(model, "uses_proxies", False) else ("target",)
    train = train[train["kind"].fillna("target").isin(kinds)]
    return train[train["pass"].fillna("training") == "training"] if "pass" in train else train


def _shown_to_predict(rows: pd.DataFrame, scenario: Scenario) -> pd.DataFrame:
    """Leave out all that was measured of the rows, so that no predictor can read the answer."""
    machine = () if scenario.host_known else _MACHINE
    return _without(rows, scenario, (*_ANSWERS, *_MEASURED_BESIDE, *machine))


def _without(rows: pd.DataFrame, scenario: Scenario, measured: Iterable[str]) -> pd.DataFrame:
    hidden = [name for name in measured if name in rows and name not in scenario.known]
    return rows.drop(columns=hidden)


def _truth(rows: pd.DataFrame, scenario: Scenario) -> NDArray[np.float64]:
    return rows[scenario.answer].to_numpy(dtype=float)


def _answers(model: Any, features: pd.DataFrame, task: _Task) -> pd.DataFrame:
    import pandas as pd

    scenario, name, _, fold = task
    rows, anchors = features.iloc[fold.test], features.iloc[fold.anchors]
    shown, extra = _shown_to_predict(rows, scenario), {}
    if getattr(model, "uses_anchors", False):
        extra["anchors"] = (_shown_to_predict(anchors, scenario), _truth(anchors, scenario))
    predicted = _one_per_row(model.predict(shown, **extra), name, len(rows))
    low, high = np.full(len(rows), np.nan), np.full(len(rows), np.nan)
    if hasattr(model, "predict_interval"):
        ends = model.predict_interval(shown, **extra)
        low, high = (_one_per_row(end, name, len(rows)) for end in ends)
    identity = {column: rows[column].array for column in ROW_COLUMNS}
    times = {"measured": _truth(rows, scenario), "predicted": predicted, "low": low, "high": high}
    cell = {"scenario": scenario.name, "fold": fold.name, "predictor": name}
    return pd.DataFrame({**cell, "row": fold.test, **identity, **times})


def _one_per_row(answer: Any, name: str, n_rows: int) -> NDArray[np.float64]:
    times = np.asarray(answer, dtype=float)
    if times.shape != (n_rows,):
        raise SchemaError(f"{name} gave an answer of shape {times.shape} for {n_rows} rows")
    return times


def error_table(result: EvaluationResult, scenario: Scenario) -> pd.DataFrame:
    """Errors of one scenario, a row per predictor: best first, predictors that could not answer last.

    Columns are those of `EvaluationResult.table`.
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
    errors: dict[str, Any] = {
        "mape": float(error.mean()),
        "median": float(error.median()),
        "p90": float(error.quantile(0.9)),
        "n": int(error.notna().sum()),
        "coverage": float(inside.mean()),
    }
    for name, values in (("coverage", inside), ("mape", error)):
        means = values.groupby(answers[group]).mean().dropna()
        worst = "" if means.empty else str(means.idxmin() if name == "coverage" else means.idxmax())
        errors |= {f"worst_{name}": float(means[worst]) if worst else np.nan, f"worst_{name}_group": worst}
    return errors


def _notes(answers: pd.DataFrame, refused: pd.DataFrame) -> str:
    """Say in one line what was not answered and why, and what was answered that no time can be."""
    notes: list[str] = []
    if len(refused):
        first, n_rows = str(refused["reason"].iloc[0]), int(refused["n_rows"].sum())
        notes.append(f"not applicable to {n_rows} rows: {first}" if n_rows else first)
        n_more = refused["reason"].nunique() - 1
        notes += [f"{n_more} more reasons"] * bool(n_more)
    n_missing = int(absolute_error(answers).isna().sum())
    n_impossible = int((answers["predicted"].astype(float) <= 0).sum())
    notes += [f"{n_missing} rows: no finite prediction"] * bool(n_missing)
    notes += [f"{n_impossible} rows: predicted time not above 0 (counted)"] * bool(n_impossible)
    return "; ".join(notes)


def errors_by(rows: pd.DataFrame, columns: str | list[str]) -> pd.DataFrame:
    """Mean absolute error, bias and share inside the interval (fractions), and size `n`, of each group of rows.

    Rows have `measured` and `predicted`, or their `error`, and `low` and `high` where there is an interval.
    """
    error = rows["error"] if "error" in rows else rows["predicted"] / rows["measured"] - 1.0
    inside = inside_interval(rows) if "low" in rows else np.nan
    groups = rows.assign(error=error.abs(), bias=error, inside=inside).groupby(columns)
    return groups[["error", "bias", "inside"]].mean().assign(n=groups.size())


def absolute_error(predictions: pd.DataFrame) -> pd.Series[float]:
    """|predicted / measured - 1| of every row, a fraction; NaN where nothing finite was predicted."""
    error = (predictions["predicted"].astype(float) / predictions["measured"].astype(float) - 1.0).abs()
    return error.where(np.isfinite(error))


def inside_interval(predictions: pd.DataFrame) -> pd.Series[float]:
    """1.0 where the truth lies inside the interval, 0.0 where not, NaN where no interval was given."""
    low, high = predictions["low"].astype(float), predictions["high"].astype(float)
    inside = predictions["measured"].astype(float).between(low, high).astype(float)
    return inside.where(low.notna() & high.notna())


def run_to_run_noise(features: pd.DataFrame) -> float:
    """Median over rows of the relative spread of repeats, as a fraction; NaN where nothing was repeated."""
    if features.empty:
        return float("nan")
    spread = relative_spread(features)
    finite = spread[np.isfinite(spread)]
    return float(np.median(finite)) if finite.size else float("nan")


def relative_spread(features: pd.DataFrame) -> NDArray[np.float64]:
    """Interquartile range of each row's repeats over its time, as a fraction.

    Where a row keeps no repeats but the table times the same configuration several times, the interquartile
    range of those rows over their median stands in; NaN where neither is known.
    """
    time_ms = features["iteration_time_ms"].to_numpy(dtype=float)
    spread = np.full(len(features), np.nan)
    if "iteration_time_ms_iqr" in features:
        spread = features["iteration_time_ms_iqr"].to_numpy(dtype=float) / time_ms
    return np.where(np.isnan(spread), _spread_of_repeated_rows(features), spread)


def _spread_of_repeated_rows(features: pd.DataFrame) -> NDArray[np.float64]:
    columns = [column for column in _SAME_RUN if column in features]
    run = features.groupby(columns, dropna=False, sort=False).ngroup()
    times = features["iteration_time_ms"].groupby(run)
    low, median, high = (run.map(times.quantile(q)) for q in (0.25, 0.5, 0.75))
    repeated = times.transform("size") > 1
    return ((high - low) / median).where(repeated).to_numpy(dtype=float)
