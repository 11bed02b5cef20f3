"""Base of all predictors: a fit on a feature table, predictions, what is refused and why, JSON.

It keeps scikit-learn's rules (parameters, clones, tags) and imports none of it, since answering a question needs none.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu, device_of
from predictor.catalogue.modes import UNKNOWN, Mode, mode_words
from predictor.cnns.layer_table import LayerTable
from predictor.errors import NotFittedError, OutOfRangeError, SchemaError, nearest
from predictor.measurements.groups import chips_of, is_set
from predictor.models.forecast import COVERAGE, Anchor, IterationForecast, Reason, Term, widening
from predictor.models.registry import PREDICTORS, estimator_class, name_of

if TYPE_CHECKING:
    import pandas as pd

Anchors = tuple["pd.DataFrame", ArrayLike]
"""Measured rows of the CNNs that are predicted, and their times in ms."""

MEASURED, UNSEEN = "measured", "unseen"
"""Keys of `WholePredictor.half_widths_`: GPUs that a predictor was fitted on, and others."""

INSTEAD = "Leave the method out: the default answers there"
_LEAST_ROWS = 10
_FOLDS = 5


class KnownHost(NamedTuple):
    """Host of an iteration: name, time to enqueue the iteration in ms, 90 % half width of the ln of that time."""

    name: str
    host_ms: float
    spread: float


class Measuring(NamedTuple):
    """How an iteration was measured: what tables of measurements hold beside the mode.

    `machine`: key of `RooflineLaw.host_offset`; None stands for the average machine. `host`: the host where it is none
    of these machines. `copies`, `waits`: whether the iteration copies its images, and waits for a loader. `passes`: the
    table's ``pass``.
    """

    machine: str | None = None
    copies: bool = False
    waits: bool = False
    passes: str = "training"
    host: KnownHost | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Question to a predictor: one CNN on one device in one mode at n batch sizes, with measured runs of the CNN."""

    cnn: str
    image_size: int
    table: LayerTable | None
    gpu: Gpu
    mode: Mode
    batch_sizes: Array
    anchors: Sequence[Anchor] = ()
    measuring: Measuring = Measuring()  # noqa: RUF009 - a tuple


class Predictor:
    """Base of all predictors: what a question is answered with, and what evaluations judge on a feature table.

    A subclass gives `fit`, `forecasts`, `_learned` and `_restore`; X of `fit` and `predict` is a feature table
    (`predictor.measurements.features.feature_table`) with the `columns`. With `uses_operators` the training rows may
    contain single layers, with `uses_proxies` proxy CNNs. With `uses_anchors` `predict` takes measurements of the
    predicted CNNs; with `needs_anchors` it answers only where there are some. One that `carries_by_proxies` is also
    fitted on proxies of the GPU that an evaluation holds out. Subclasses that inherit the same `fit` learn the same,
    so evaluations fit one of them for all.
    """

    columns: ClassVar[tuple[str, ...]] = ("gpu", "cnn", "image_size", "batch_size", "layer_table")
    uses_operators: ClassVar[bool] = False
    uses_proxies: ClassVar[bool] = False
    carries_by_proxies: ClassVar[bool] = False
    uses_anchors: ClassVar[bool] = False
    needs_anchors: ClassVar[bool] = False

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - no parameter is an estimator
        """The arguments of `__init__`, as scikit-learn's clones and pipelines ask for them."""
        return {name: getattr(self, name) for name in self._parameter_names()}

    def set_params(self, **parameters: Any) -> Self:
        """Set arguments of `__init__`; ValueError for an unknown name."""
        for name, value in parameters.items():
            if name not in self._parameter_names():
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}: {self._parameter_names()}"
                )
            setattr(self, name, value)
        return self

    @classmethod
    def _parameter_names(cls) -> list[str]:
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        declared = inspect.signature(cls).parameters.values()
        return sorted(parameter.name for parameter in declared if parameter.kind in kinds)

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({arguments})"

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Self:
        """Learn from a feature table of n rows and their times, of shape (n,)."""
        raise NotImplementedError(f"{type(self).__name__} has no fit.")

    def forecasts(self, cases: Sequence[Case]) -> Sequence[IterationForecast]:
        """Forecast of each case; the cases share their CNN and may differ in GPU, precision and anchors.

        OutOfRangeError where the predictor refuses a case. The message says why, and what to do.
        """
        raise NotImplementedError(f"{type(self).__name__} answers nothing.")

    def predict(self, X: pd.DataFrame, anchors: Anchors | None = None) -> Array:
        """Times in ms, shape (n_rows,), corrected by `anchors` where it uses them; errors as of `forecasts`."""
        times = np.empty(len(self._checked(X, self.columns)))
        for cases, rows in self._alike(X, anchors):
            for time_ms, at in zip(self._times(cases), rows, strict=True):
                times[at] = time_ms
        return times

    def predict_interval(self, X: pd.DataFrame, anchors: Anchors | None = None) -> tuple[Array, Array]:
        """Lower and upper ends of the 90 % intervals in ms, each (n_rows,); errors as of `forecasts`."""
        low, high = np.empty((2, len(self._checked(X, self.columns))))
        for cases, rows in self._alike(X, anchors):
            for ends, at in zip(self._ends(cases), rows, strict=True):
                low[at], high[at] = ends
        return low, high

    def _times(self, cases: Sequence[Case]) -> list[Array]:
        return [forecast.iteration_time_ms for forecast in self.forecasts(cases)]

    def _ends(self, cases: Sequence[Case]) -> list[tuple[Array, Array]]:
        return [(forecast.low_ms, forecast.high_ms) for forecast in self.forecasts(cases)]

    def _alike(
        self, X: pd.DataFrame, anchors: Anchors | None
    ) -> Iterator[tuple[list[Case], list[NDArray[np.intp]]]]:
        """Groups of cases that one call of `forecasts` answers, and the positions in X of each case's rows."""
        runs: dict[tuple[str, int], list[tuple[Case, Anchor]]] = {}
        if anchors is not None and len(anchors[0]):
            times = times_of(anchors[1], len(anchors[0]), "iteration_time_ms")
            for run, rows in cases_of(anchors[0]):
                runs_of_cnn = runs.setdefault((run.cnn, run.image_size), [])
                name, image_size, precision = run.gpu.name, run.image_size, run.mode.precision
                runs_of_cnn += (
                    (run, Anchor(name, int(size), float(ms), image_size, precision, of_table=True))
                    for size, ms in zip(run.batch_sizes, times[rows], strict=True)
                )
        usual = Mode().precision
        alike: dict[tuple[Any, ...], list[tuple[Case, NDArray[np.intp]]]] = {}
        for case, rows in cases_of(X):
            runs_of_cnn = runs.get((case.cnn, case.image_size), [])
            own = tuple(anchor for run, anchor in runs_of_cnn if self._is_run_of(run, case))
            mode = replace(case.mode, precision=usual)
            key = case.cnn, case.image_size, id(case.table), mode, case.measuring, case.batch_sizes.tobytes()
            alike.setdefault(key, []).append((replace(case, anchors=own), rows))
        for members in alike.values():
            yield [case for case, _ in members], [rows for _, rows in members]

    def _is_run_of(self, run: Case, case: Case) -> bool:
        """Whether a run of the case's CNN is an anchor of the case."""
        return run.mode.precision == case.mode.precision

    def score(self, X: pd.DataFrame, y: ArrayLike) -> float:
        """Coefficient of determination of the predictions, as of scikit-learn's regressors."""
        measured, predicted = np.asarray(y, dtype=float), self.predict(X)
        return float(1 - np.sum((measured - predicted) ** 2) / np.sum((measured - measured.mean()) ** 2))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import InputTags, RegressorTags, Tags, TargetTags

        return Tags(
            estimator_type="regressor",
            target_tags=TargetTags(required=True, positive_only=True),
            regressor_tags=RegressorTags(),
            input_tags=InputTags(two_d_array=False, string=True, allow_nan=True),
            no_validation=True,  # X has text and objects in it; `_checked` validates instead
        )

    def to_json(self) -> dict[str, Any]:
        """Parameters and what was learned, as plain lists and dicts."""
        return {"parameters": self.get_params(deep=False), "learned": self._learned()}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """A fitted estimator from `to_json`; a KeyError, TypeError or ValueError if it is damaged."""
        parameters = stored["parameters"].items()
        made = cls(**{name: tuple(value) if isinstance(value, list) else value for name, value in parameters})
        made._restore(stored["learned"])
        return made

    def _learned(self) -> dict[str, Any]:
        """Learned attributes as plain lists and dicts."""
        raise NotImplementedError(f"{type(self).__name__} has no JSON form.")

    def _restore(self, learned: Mapping[str, Any]) -> None:
        """Set the learned attributes from `_learned`."""
        raise NotImplementedError(f"{type(self).__name__} has no JSON form.")

    def _checked(self, X: Any, columns: Sequence[str]) -> pd.DataFrame:
        """Return X if it is a table with rows, these columns, and only rows of trained CNNs."""
        name = type(self).__name__
        import pandas as pd

        if not isinstance(X, pd.DataFrame):
            raise SchemaError(
                f"{name} needs a feature table (pandas DataFrame), got {type(X).__name__}. "
                "Build it with predictor.measurements.features.feature_table."
            )
        for column in columns:
            if column not in X:
                like = nearest(column, map(str, X.columns))
                raise SchemaError(f"{name} needs the column {column!r}. Nearest: {like}.")
        if X.empty:
            raise SchemaError(f"{name} got a feature table without rows.")
        if not self.uses_operators:
            _refuse_values(X, "kind", ("proxy", "target"), name)
            _refuse_values(X, "pass", ("training",), name)
        return X

    def _check_fitted(self, attribute: str) -> None:
        if not hasattr(self, attribute):
            from sklearn.exceptions import NotFittedError as SklearnNotFittedError

            class UnfittedError(NotFittedError, SklearnNotFittedError):
                """Error of this project and of scikit-learn: either `except` clause catches it."""

            raise UnfittedError(f"{type(self).__name__} has not been fitted yet. Call fit(X, y) first.")


def new_predictor(name: str) -> Predictor:
    """Make the unfitted scikit-learn estimator of this name.

    SchemaError if no predictor has this name; the message lists the nearest.
    """
    if name not in PREDICTORS:
        raise SchemaError(
            f"no predictor is called {name!r}. Nearest: {nearest(name, PREDICTORS)}; "
            f"all: {', '.join(PREDICTORS)}."
        )
    made: Predictor = estimator_class(name)(**PREDICTORS[name].parameters)
    return made


class WholePredictor(Predictor):
    """Base of the predictors of whole iterations, each of which a question may name as its method.

    A subclass gives `fit`, `parts` (the summands of the time, which `predict`, `grid` and every answer add up),
    `_learned` and `_restore`; `scope` where it refuses cases or has reasons for caution. `half_widths_`: half widths of
    90 % intervals of ln time, by `MEASURED` and `UNSEEN` (and more, of a subclass). `trained_on_`: the training rows in
    words. `calibrate` sets both.
    """

    served_parameters: ClassVar[Mapping[str, Any]] = {}
    """Parameters of the predictor in a model's file, where they differ from those of an evaluation."""

    def parts(self, case: Case) -> dict[str, Array]:
        """Summands of the iteration's time in ms at each batch size; OutOfRangeError where there is no answer."""
        raise NotImplementedError(f"{type(self).__name__} predicts nothing.")

    def scope(self, case: Case) -> tuple[tuple[Reason, ...], ...]:
        """Reasons for caution at each batch size; OutOfRangeError, saying why and what to do, where it refuses."""
        return ((),) * case.batch_sizes.size

    def half_width(self, case: Case) -> float:  # noqa: ARG002 - for subclasses
        """Half width of the 90 % interval of ln time."""
        return max(self.half_widths_.values())

    def knows(self, case: Case) -> bool:  # noqa: ARG002 - for subclasses
        """Whether the predictor interpolates among times of this CNN on this device."""
        return False

    def regression_terms(self, case: Case) -> dict[str, Term]:  # noqa: ARG002 - for subclasses
        """Terms of the regression behind `parts`, by name; empty if the predictor is no regression."""
        return {}

    def with_measurements(self, X: pd.DataFrame) -> Self:  # noqa: ARG002 - for subclasses
        """The predictor with what it learns from a user's rows; unchanged where it learns nothing."""
        return self

    def _times(self, cases: Sequence[Case]) -> list[Array]:
        return [np.sum(list(self.parts(case).values()), axis=0) for case in cases]

    def _ends(self, cases: Sequence[Case]) -> list[tuple[Array, Array]]:
        if hasattr(self, "half_widths_"):
            return super()._ends(cases)
        unknown = np.full(cases[0].batch_sizes.size, np.nan)  # not calibrated, as in evaluations
        return [(unknown, unknown)] * len(cases)

    def forecasts(self, cases: Sequence[Case]) -> list[IterationForecast]:
        """Forecast of each case; OutOfRangeError as of `scope` and `parts`, and for a time that is not above zero."""
        return [self._forecast(name_of(type(self)), case) for case in cases]

    def _forecast(self, name: str, case: Case) -> IterationForecast:
        own, parts = self.scope(case), self.parts(case)
        time_ms = np.sum(list(parts.values()), axis=0)
        bad = np.flatnonzero(~(time_ms > 0))
        if bad.size:
            raise OutOfRangeError(
                f"{name} gives {time_ms[bad[0]]:.4g} ms for {case.cnn} on {case.gpu.name} at batch_size "
                f"{case.batch_sizes[bad[0]]:.0f}, which is not a time. {INSTEAD}, or ask at another batch size."
            )
        below, above = self.half_width(case) * np.array(widening(own))
        nothing = np.full(time_ms.size, np.nan)
        return IterationForecast(
            time_ms,
            nothing,
            nothing,
            time_ms * np.exp(-below),
            time_ms * np.exp(above),
            nothing,
            nothing,
            name,
            self.trained_on_,
            own,
            "not distinguished from the GPU",
            lambda: (parts, {}),
            terms=partial(self.regression_terms, case),
        )

    def calibrate(self, X: pd.DataFrame, y: Array) -> Self:
        """Set `half_widths_` and `trained_on_` by refits that each leave a group of the training rows out."""
        targets = X if "kind" not in X else X[X["kind"].fillna("target") == "target"]
        gpus = targets["gpu"].nunique()
        self.trained_on_ = (
            f"{len(targets):,} iterations of {targets.groupby(['cnn', 'image_size']).ngroups} CNNs (by image size) "
            f"on {gpus} GPU{'s' * (gpus > 1)}"
        )
        errors: dict[str, list[float]] = {}
        for kind, rows in self._left_out(X):
            errors.setdefault(kind, []).extend(self._errors_without(X, y, rows))
        enough = {kind: log_errors for kind, log_errors in errors.items() if len(log_errors) >= _LEAST_ROWS}
        self.half_widths_ = {kind: max(float(np.quantile(enough[kind], COVERAGE)), 1e-6) for kind in enough}
        return self

    def _left_out(self, X: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Rows of trained CNNs that calibration leaves out together: series in five groups, then chip by chip."""
        kinds = X["kind"].fillna("target").to_numpy() if "kind" in X else np.full(len(X), "target")
        target = kinds == "target"
        series = X.groupby(["gpu", "cnn", "image_size"]).ngroup().to_numpy()
        dealt = np.random.default_rng(0).permutation(series.max() + 1)[series] % _FOLDS
        for fold in range(_FOLDS):
            yield MEASURED, np.flatnonzero(target & (dealt == fold))
        chips = chips_of(X)
        for chip in sorted(set(chips[target])):
            yield UNSEEN, np.flatnonzero(target & (chips == chip))

    def _errors_without(self, X: pd.DataFrame, y: Array, rows: NDArray[np.intp]) -> list[float]:
        """|ln(measured / predicted)| of these rows by a fit on all other rows; refused rows are left out."""
        kept = np.setdiff1d(np.arange(len(X)), rows)
        if not rows.size or not kept.size:
            return []
        try:
            fitted = type(self)(**self.get_params()).fit(X.iloc[kept], y[kept])
        except (SchemaError, OutOfRangeError):  # too few rows without these
            return []
        errors: list[float] = []
        left_out = X.iloc[rows]
        for case, places in cases_of(left_out):
            try:
                fitted.scope(case)
                times = np.sum(list(fitted.parts(case).values()), axis=0)
            except OutOfRangeError:
                continue
            errors += np.abs(np.log(y[rows][places] / times)).tolist()
        return errors

    def to_json(self) -> dict[str, Any]:
        """Parameters, what was learned, and its calibration if there is one, as plain lists and dicts."""
        calibrated = {name: getattr(self, f"{name}_", None) for name in ("half_widths", "trained_on")}
        return super().to_json() | {name: value for name, value in calibrated.items() if value is not None}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """A fitted estimator from `to_json`, with its calibration; errors as of `Predictor`."""
        made = super().from_json(stored)
        if "half_widths" in stored:
            made.half_widths_ = {str(kind): finite(width) for kind, width in stored["half_widths"].items()}
            made.trained_on_ = str(stored["trained_on"])
        return made


_OF_MODE = tuple(field.name for field in fields(Mode))
_OF_CASES = ("gpu", "cnn", "image_size", "source", "host", "pass", *_OF_MODE)


def cases_of(X: pd.DataFrame) -> Iterator[tuple[Case, NDArray[np.intp]]]:
    """Cases of a feature table, each with the positions of its rows; unknown fields of a mode take the defaults."""
    words, usual = mode_words(X, _OF_CASES), Mode()
    tables = X["layer_table"].to_numpy() if "layer_table" in X else np.full(len(X), None)
    fed = zip(is_set(X, "copies_input").tolist(), is_set(X, "waits_for_loader").tolist(), strict=True)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for position, (row, of_row) in enumerate(zip(words.itertuples(index=False, name=None), fed, strict=True)):
        groups.setdefault((*row, of_row, id(tables[position])), []).append(position)
    sizes = numbers_of(X, "batch_size", SchemaError)
    for (gpu, cnn, image_size, source, host, passes, *mode, of_row, _), positions in groups.items():
        named = {name: word for name, word in zip(_OF_MODE, mode, strict=True) if word != UNKNOWN}
        read = {n: w == "True" if isinstance(getattr(usual, n), bool) else w for n, w in named.items()}
        device, table = device_of(str(gpu)), tables[positions[0]]
        rows = np.array(positions, dtype=np.intp)
        machine = f"{'' if source == UNKNOWN else source}: {device.name if host == UNKNOWN else host}"
        copies, waits = of_row
        measuring = Measuring(machine, copies, waits, "training" if passes == UNKNOWN else str(passes))
        of_case = device, Mode(**read), sizes[rows], (), measuring
        layers = table if isinstance(table, LayerTable) else None
        yield Case(str(cnn), int(float(image_size)), layers, *of_case), rows


def table_of(case: Case) -> LayerTable:
    """The layers of a case's CNN; OutOfRangeError if they are unknown."""
    if case.table is None:
        raise OutOfRangeError(
            f"{case.cnn} at image size {case.image_size} has no layer table, so its layers are unknown. "
            "Give them as a CSV file, or leave the row out."
        )
    return case.table


def check_image_size(anchor: Anchor, table: LayerTable) -> None:
    """Raise OutOfRangeError if an anchor was measured at another image size than the question's."""
    if anchor.image_size not in (None, table.image_size):
        raise OutOfRangeError(
            f"the anchor's image size {anchor.image_size} is not the question's {table.image_size}. "
            "Give a measurement at that image size."
        )


def finite(value: Any) -> float:
    """A number read from JSON; ValueError if it is not finite."""
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number


def numbers_of(X: pd.DataFrame, column: str, error: type[SchemaError | OutOfRangeError]) -> Array:
    """One column as finite numbers of shape (n_rows,); `error` names the column and the GPUs without a value."""
    import pandas as pd

    values = pd.to_numeric(X[column], errors="coerce").to_numpy(dtype=float)
    bad = ~np.isfinite(values)
    if bad.any():
        whose = sorted({str(value) for value in X.loc[bad, "gpu"]}) if "gpu" in X else ["some rows"]
        raise error(
            f"column {column!r} has no value for {', '.join(whose[:5])}{' ...' if len(whose) > 5 else ''}. "
            "Fill it in, or use a predictor that does not need it."
        )
    return values


def times_of(y: ArrayLike | None, n_rows: int, name: str) -> Array:
    """Training times of shape (n_rows,), checked to be finite and above zero; `name` carries the unit."""
    if y is None:
        raise SchemaError(f"fit requires y, one {name} per row; got None.")
    times = np.asarray(y, dtype=float)
    if times.shape != (n_rows,):
        raise SchemaError(f"y has shape {times.shape}, X has {n_rows} rows: pass one {name} per row.")
    bad = np.flatnonzero(~(np.isfinite(times) & (times > 0)))
    if bad.size:
        raise SchemaError(
            f"{name} must be above 0 and finite; row {bad[0]} has {times[bad[0]]:g} ({bad.size} such rows). "
            "Check the unit, or leave the row out."
        )
    return times


def _refuse_values(X: pd.DataFrame, column: str, allowed: tuple[str, ...], name: str) -> None:
    refused = sorted(set(mode_words(X, (column,))[column]) - {*allowed, UNKNOWN})
    if refused:
        raise SchemaError(
            f"{name} takes rows whose {column} is {' or '.join(allowed)}, got {', '.join(refused)}. "
            "Leave these rows out."
        )
