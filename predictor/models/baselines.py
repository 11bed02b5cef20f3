"""Baselines for tables of errors: the ratio of FLOPs to peak, a line and an interpolation over batch sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu, find_gpu, is_cpu, peak_tflop_per_s
from predictor.catalogue.modes import MODE_COLUMNS, UNKNOWN, mode_words
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.groups import chips_of
from predictor.models import base
from predictor.models.forecast import Reason
from predictor.models.registry import name_of
from predictor.operators.work import cnn_flops

if TYPE_CHECKING:
    import pandas as pd

_OF_CNN = tuple[str, int, str]
_SERIES_COLUMNS = ("gpu", "cnn", "image_size", "batch_size")
_LIKENESS = ((True, True), (True, False), (False, True), (False, False))
"""Likeness of a run to a case as (same GPU, same batch size), closest first."""


class _Run(NamedTuple):
    """A measured run: time x peak / batch size is the FLOPs per image, in 10^9, at the peak rate in that time."""

    gpu: str
    batch_size: float
    reached: float


class FlopsRatio(base.WholePredictor):
    """Iteration time proportional to FLOPs / the GPU's peak rate at the precision.

    `by_cnn`: whether to keep the runs of the training CNNs; without them only anchors tell CNNs apart, and no training
    row is kept. `per_flop_`: median of time x peak / training FLOPs by precision: the inverse of the share of the peak
    reached.

    X is a feature table, y is `iteration_time_ms`. A CNN timed on this GPU scales with the batch size: t = t_a batch /
    batch_a. Timed on other GPUs only: t = t_a peak_a / peak, at the same batch size if there is one. The median is
    taken over all a. Never timed: FLOPs / (median share of the peak x peak).
    """

    columns: ClassVar[tuple[str, ...]] = _SERIES_COLUMNS
    uses_anchors: ClassVar[bool] = True
    served_parameters: ClassVar[Mapping[str, Any]] = {"by_cnn": False}

    def __init__(self, by_cnn: bool = True) -> None:
        self.by_cnn = by_cnn

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> FlopsRatio:
        """Learn from a feature table of n rows and their iteration times in milliseconds, of shape (n,).

        SchemaError if a column is missing, a GPU has no peak rate at the row's precision, or a time is not above 0.
        """
        times = base.times_of(y, len(self._checked(X, _SERIES_COLUMNS)), "iteration_time_ms")
        shares: dict[str, list[float]] = {}
        self.runs_: dict[_OF_CNN, list[_Run]] = {}
        for case, rows in base.cases_of(X):
            reached = times[rows] * _peak(case.gpu, case.mode.precision, SchemaError) / case.batch_sizes
            if case.table is not None:
                flops = cnn_flops(case.table, 1)
                shares.setdefault(f"precision {case.mode.precision}", []).extend(reached / flops)
            if self.by_cnn:
                runs = map(_Run, [case.gpu.name] * len(rows), case.batch_sizes.tolist(), reached.tolist())
                self.runs_.setdefault(_of_cnn(case), []).extend(runs)
        self.per_flop_ = {precision: float(np.median(shares[precision])) for precision in sorted(shares)}
        self.gpus_ = tuple(sorted({case.gpu.name for case, _ in base.cases_of(X)}))
        return self

    def parts(self, case: base.Case) -> dict[str, Array]:
        """The time as one summand, by the runs that are most alike: the case's, else those of the training rows.

        OutOfRangeError if a GPU has no peak rate at the precision (it is named), or a CNN without layer table, or a
        precision, was never timed.
        """
        self._check_fitted("per_flop_")
        precision = case.mode.precision
        peak = _peak(case.gpu, precision, OutOfRangeError)
        runs = self.runs_.get(_of_cnn(case), [])
        on_gpus = [(run, find_gpu(run.gpu)) for run in case.anchors if not is_cpu(run.gpu)]
        if on_gpus:
            reached = [run.iteration_time_ms * peak_tflop_per_s(gpu, precision) for run, gpu in on_gpus]
            sizes = [run.batch_size for run, _ in on_gpus]
            runs = list(map(_Run, [gpu.name for _, gpu in on_gpus], sizes, np.divide(reached, sizes)))
        per_image = np.array([self._per_image(case, size, runs) for size in case.batch_sizes])
        return {"flops": per_image * case.batch_sizes / peak}

    def scope(self, case: base.Case) -> tuple[tuple[Reason, ...], ...]:
        """A reason for caution on GPUs that were not fitted."""
        unknown = (Reason("gpu", "flops-ratio was not fitted on it", 1.0),)
        return (() if case.gpu.name in self.gpus_ else unknown,) * case.batch_sizes.size

    def _per_image(self, case: base.Case, size: float, runs: Sequence[_Run]) -> float:
        for same_gpu, same_size in _LIKENESS:
            on_gpu = [run for run in runs if not same_gpu or run.gpu == case.gpu.name]
            alike = [run.reached for run in on_gpu if not same_size or run.batch_size == size]
            if alike:
                return float(np.median(alike))
        precision = case.mode.precision
        if case.table is None or f"precision {precision}" not in self.per_flop_:
            timed = ", ".join(name.removeprefix("precision ") for name in self.per_flop_)
            raise OutOfRangeError(
                f"{case.cnn} at image size {case.image_size} was not timed in {precision}, and its time follows "
                f"from no other: it has no layer table, or no CNN was timed in {precision} (timed: {timed}). "
                "Ask for one of these precisions, or add a measurement or a layer table of this CNN."
            )
        return self.per_flop_[f"precision {precision}"] * cnn_flops(case.table, 1)

    def _left_out(self, X: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Rows of each chip in turn, which make its GPUs unseen ones."""
        chips = chips_of(X)
        for chip in sorted(set(chips)):
            yield base.UNSEEN, np.flatnonzero(chips == chip)

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("per_flop_")
        runs = [[list(cnn), list(map(list, runs_of_cnn))] for cnn, runs_of_cnn in self.runs_.items()]
        return {"per_flop": self.per_flop_, "runs": runs, "gpus": list(self.gpus_)}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.per_flop_ = {name: base.finite(value) for name, value in learned["per_flop"].items()}
        self.runs_ = {}
        for (cnn, size, precision), runs in learned["runs"]:
            own = [_Run(str(gpu), base.finite(batch_size), base.finite(ms)) for gpu, batch_size, ms in runs]
            self.runs_[str(cnn), int(size), str(precision)] = own
        self.gpus_ = tuple(learned["gpus"])


def _of_cnn(case: base.Case) -> _OF_CNN:
    return case.cnn, case.image_size, case.mode.precision


def _peak(gpu: Gpu, precision: str, error: type[SchemaError | OutOfRangeError]) -> float:
    peak = peak_tflop_per_s(gpu, precision)
    if not np.isfinite(peak):
        raise error(f"{gpu.name} has no peak rate in {precision}. Use a predictor that does not need it.")
    return peak


_LINE_SERIES = ("gpu", "cnn", "image_size", *MODE_COLUMNS)
_LEAST_SIZES = 2


def rows_by_series(table: pd.DataFrame) -> dict[tuple[str, ...], list[int]]:
    """Positions of the rows of each series: one GPU, CNN, image size and mode."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for i, series in enumerate(mode_words(table, _LINE_SERIES).itertuples(index=False, name=None)):
        rows.setdefault(series, []).append(i)
    return rows


class _OfOwnRuns(base.Predictor):
    """Base of laws that are fitted to each series apart: one GPU, CNN, image size and mode, at two batch sizes or more.

    It is judged by evaluations; no question names it, and it has no JSON form. `runs_`: by GPU, CNN, image size and
    MODE_COLUMNS; series of a single batch size have none.
    """

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> _OfOwnRuns:
        """Keep the times, in milliseconds, of a feature table.

        SchemaError if a column is missing or empty, or if a time is not above 0.
        """
        table = self._checked(X, _SERIES_COLUMNS)
        times = base.times_of(y, len(table), "iteration_time_ms")
        sizes = base.numbers_of(table, "batch_size", SchemaError)
        self.runs_ = {
            series: (sizes[rows], times[rows])
            for series, rows in rows_by_series(table).items()
            if np.unique(sizes[rows]).size >= _LEAST_SIZES
        }
        return self

    def predict(self, X: pd.DataFrame, anchors: base.Anchors | None = None) -> Array:  # noqa: ARG002 - of series
        """Predict iteration times in milliseconds, of shape (n,), for a feature table of n rows.

        OutOfRangeError if a row's series had fewer than two batch sizes in the training rows.
        """
        self._check_fitted("runs_")
        table = self._checked(X, _SERIES_COLUMNS)
        sizes, times = base.numbers_of(table, "batch_size", OutOfRangeError), np.empty(len(table))
        for series, rows in rows_by_series(table).items():
            if series not in self.runs_:
                gpu, cnn, image_size, *mode = series
                mode_text = ", ".join(word for word in mode if word != UNKNOWN)
                raise OutOfRangeError(
                    f"{name_of(type(self))} has no two batch sizes of {cnn} at image size {image_size} on {gpu} "
                    f"({mode_text}). Measure two, or use a predictor that carries over between GPUs and CNNs."
                )
            times[rows] = self._times_ms(*self.runs_[series], sizes[rows])
        return times

    def predict_interval(self, X: pd.DataFrame, anchors: base.Anchors | None = None) -> tuple[Array, Array]:  # noqa: ARG002
        """NaN at both ends: such a law has no intervals."""
        unknown = np.full(len(X), np.nan)
        return unknown, unknown

    @staticmethod
    def _times_ms(sizes: Array, times_ms: Array, batch_sizes: Array) -> Array:
        """Times at the batch sizes asked, given measured ones."""
        raise NotImplementedError


class Line(_OfOwnRuns):
    """Iteration time a + b batch_size, for each series of one GPU, CNN, image size and mode apart.

    X is a feature table, y is `iteration_time_ms`. Least squares of the relative error: small batches weigh as much
    as large ones.
    """

    @staticmethod
    def _times_ms(sizes: Array, times_ms: Array, batch_sizes: Array) -> Array:
        line = np.polyfit(sizes, times_ms, 1, w=1 / times_ms)
        return np.asarray(np.polyval(line, batch_sizes), dtype=float)


class Interpolation(_OfOwnRuns):
    """ln time linear in ln batch size between neighbours, for each series of one GPU, CNN, image size and mode.

    X is a feature table, y is `iteration_time_ms`. Repeated measurements are averaged; beyond the measured batch sizes
    the outermost piece is extrapolated.
    """

    @staticmethod
    def _times_ms(sizes: Array, times_ms: Array, batch_sizes: Array) -> Array:
        from scipy.interpolate import make_interp_spline

        at, member = np.unique(np.log(sizes), return_inverse=True)
        log_ms = np.bincount(member, np.log(times_ms)) / np.bincount(member)
        return np.asarray(np.exp(make_interp_spline(at, log_ms, k=1)(np.log(batch_sizes))), dtype=float)
