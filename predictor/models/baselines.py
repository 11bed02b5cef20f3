"""Baselines for tables of errors: the ratio of FLOPs to peak, a line and an interpolation over batch sizes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from predictor.catalogue.devices import find_gpu, is_cpu, peak_tflop_per_s
from predictor.catalogue.modes import MODE_COLUMNS, mode_words
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.features import FEATURES
from predictor.models.base import (
    UNSEEN,
    Case,
    Floats,
    WholePredictor,
    chips_of,
    finite,
    numbers_of,
    times_of,
)
from predictor.models.forecast import Anchor, Reason
from predictor.models.residuals import is_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd
    from numpy.typing import NDArray

    Anchors = tuple[pd.DataFrame, ArrayLike]

__all__ = ["FlopsRatio", "Interpolation", "Line", "rows_by_series"]

_RATIO_COLUMNS = (
    "gpu",
    "gpu_name",
    "cnn",
    "image_size",
    "batch_size",
    "precision",
    "peak_tflop_per_s",
    "training_flops_per_image",
)
_RATIO_SERIES = ("cnn", "image_size", "precision")
_LIKENESS = (  # columns in which a training row equals the row to predict, closest first
    ("gpu_name", *_RATIO_SERIES, "batch_size"),
    ("gpu_name", *_RATIO_SERIES),
    (*_RATIO_SERIES, "batch_size"),
    _RATIO_SERIES,
)


class FlopsRatio(WholePredictor):
    """Iteration time proportional to FLOPs / the GPU's peak rate at the row's precision.

    Parameters
    ----------
    by_cnn : bool, default=True
        Whether to keep the training CNNs' own medians; without them only anchors tell CNNs apart, and no training row
        is kept.

    Attributes
    ----------
    per_image_ : dict of str -> float
        Median of time x peak / batch size, in 10^9 FLOP, over the training rows alike in the columns named.
    per_flop_ : dict of str -> float
        Median of time x peak / training FLOPs by precision: the inverse of the share of the peak reached.
    gpus_ : tuple of str

    Notes
    -----
    X is a feature table, y is `iteration_time_ms`. A CNN timed on this GPU scales with the batch size:
    t = t_a batch / batch_a. Timed on other GPUs only: t = t_a peak_a / peak, at the same batch size if there is one.
    The median is taken over all a. Never timed: FLOPs / (median share of the peak x peak).
    """

    uses_anchors: ClassVar[bool] = True
    served_parameters: ClassVar[Mapping[str, Any]] = {"by_cnn": False}

    def __init__(self, by_cnn: bool = True) -> None:
        self.by_cnn = by_cnn

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> FlopsRatio:
        """Learn from a feature table of n rows and their iteration times in milliseconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing, a GPU has no peak rate at the row's precision, or a time is not above 0.
        """
        table = self._checked(X, _RATIO_COLUMNS)
        per_image = _reached_per_image(table, y)
        flops_per_image = table["training_flops_per_image"].to_numpy(dtype=float)
        self.per_image_ = _medians_by_likeness(table, per_image) if self.by_cnn else {}
        self.per_flop_ = _medians(table, ("precision",), per_image / flops_per_image)
        self.gpus_ = tuple(sorted(set(map(str, table["gpu_name"]))))
        return self

    def predict(self, X: pd.DataFrame, anchors: Anchors | None = None) -> Floats:
        """Predict iteration times in milliseconds, of shape (n,), for a feature table of n rows.

        Parameters
        ----------
        X : DataFrame of n rows
        anchors : (DataFrame of m rows, array of shape (m,)), optional
            More measurements of the same CNNs, with their times in milliseconds.

        Raises
        ------
        OutOfRangeError
            If a GPU has no peak rate at the row's precision (it is named), or if a CNN without layer table,
            or a precision, was not in the training rows.
        """
        self._check_fitted("per_image_")
        table = self._checked(X, _RATIO_COLUMNS)
        peak = numbers_of(table, "peak_tflop_per_s", OutOfRangeError)
        known = self.per_image_ | self._medians_of(anchors)
        flops_per_image = table["training_flops_per_image"].to_numpy(dtype=float)
        per_image = _looked_up(table, ("precision",), self.per_flop_) * flops_per_image
        for columns in reversed(_LIKENESS):
            closer = _looked_up(table, columns, known)
            per_image = np.where(np.isnan(closer), per_image, closer)
        _refuse_unknown(table, per_image)
        return np.asarray(per_image * numbers_of(table, "batch_size", OutOfRangeError) / peak, dtype=float)

    def parts(self, case: Case) -> dict[str, Floats]:
        """The time as one summand; the case's runs as the anchors of `predict`, without a table."""
        peak = peak_tflop_per_s(case.gpu, case.mode.precision)
        if not np.isfinite(peak):
            raise OutOfRangeError(
                f"{case.gpu.name} has no peak rate in {case.mode.precision}. Leave the method out."
            )
        per_image = np.array([self._per_image(case, float(size)) for size in case.batch_sizes])
        return {"flops": per_image * case.batch_sizes / peak}

    def scope(self, case: Case) -> tuple[tuple[Reason, ...], ...]:
        """A reason for caution on GPUs that were not fitted."""
        unknown = (Reason("gpu", "flops-ratio was not fitted on it", 1.0),)
        return (() if case.gpu.name in self.gpus_ else unknown,) * case.batch_sizes.size

    def coefficients(self) -> dict[str, float]:
        """Every median by the values that its rows share."""
        self._check_fitted("per_image_")
        return self.per_flop_ | self.per_image_

    def _per_image(self, case: Case, size: float) -> float:
        precision, runs = case.mode.precision, [each for each in case.anchors if not is_cpu(each.gpu)]
        reached = [
            each.iteration_time_ms * peak_tflop_per_s(find_gpu(each.gpu), precision) / each.batch_size
            for each in runs
        ]
        alike = [(is_of(each, case.gpu), each.batch_size == size) for each in runs]
        for here, same in ((True, True), (True, False), (False, True), (False, False)):
            some = [
                ms for ms, (gpu, batch) in zip(reached, alike, strict=True) if gpu >= here and batch >= same
            ]
            if some:
                return float(np.median(some))
        label = f"precision {precision}"
        if label not in self.per_flop_ or case.table is None:
            known = ", ".join(name.removeprefix("precision ") for name in self.per_flop_)
            raise OutOfRangeError(f"no CNN was timed in {precision}, but in {known}. Ask for one of these.")
        return self.per_flop_[label] * FEATURES["training_flops_per_image"](case.table)

    def _left_out(self, X: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Chip by chip: without rows of its own a known GPU is as unknown as another."""
        chips = chips_of(X)
        for chip in sorted(set(chips)):
            yield UNSEEN, np.flatnonzero(chips == chip)

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("per_image_")
        return {"per_flop": self.per_flop_, "per_image": self.per_image_, "gpus": list(self.gpus_)}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.per_flop_ = {name: finite(value) for name, value in learned["per_flop"].items()}
        self.per_image_ = {name: finite(value) for name, value in learned["per_image"].items()}
        self.gpus_ = tuple(learned["gpus"])

    def _medians_of(self, anchors: Anchors | None) -> dict[str, float]:
        if anchors is None or not len(anchors[0]):
            return {}
        table = self._checked(anchors[0], _RATIO_COLUMNS)
        return _medians_by_likeness(table, _reached_per_image(table, anchors[1]))


def _reached_per_image(table: pd.DataFrame, y: ArrayLike) -> Floats:
    """Time x peak / batch size: FLOPs per image at the peak rate in that time, in 10^9."""
    times = times_of(y, len(table), "iteration_time_ms")
    peak = numbers_of(table, "peak_tflop_per_s", SchemaError)
    return times * peak / numbers_of(table, "batch_size", SchemaError)


def _medians_by_likeness(table: pd.DataFrame, values: Floats) -> dict[str, float]:
    return {key: median for columns in _LIKENESS for key, median in _medians(table, columns, values).items()}


def _medians(table: pd.DataFrame, columns: tuple[str, ...], values: Floats) -> dict[str, float]:
    import pandas as pd

    known = pd.Series(values, index=_labels(table, columns)).dropna()  # NaN: a CNN without layer table
    return {str(key): float(median) for key, median in known.groupby(level=0).median().items()}


def _looked_up(table: pd.DataFrame, columns: tuple[str, ...], known: dict[str, float]) -> Floats:
    return np.array([known.get(label, np.nan) for label in _labels(table, columns)], dtype=float)


def _labels(table: pd.DataFrame, columns: tuple[str, ...]) -> list[str]:
    rows = mode_words(table, columns).itertuples(index=False, name=None)
    return [", ".join(f"{column} {word}" for column, word in zip(columns, row, strict=True)) for row in rows]


def _refuse_unknown(table: pd.DataFrame, work: Floats) -> None:
    missing = np.isnan(work)
    if missing.any():
        first = table.loc[missing].iloc[0]
        raise OutOfRangeError(
            f"{first['cnn']} at image size {first['image_size']} was not timed in {first['precision']}, "
            f"and has no layer table or no CNN was ({missing.sum()} such rows). Add a measurement at this "
            "precision, or a layer_table_of that has this CNN."
        )


_SERIES_COLUMNS = ("gpu", "cnn", "image_size", "batch_size")
_LINE_SERIES = ("gpu", "cnn", "image_size", *MODE_COLUMNS)
_LEAST_SIZES = 2


def rows_by_series(table: pd.DataFrame) -> dict[tuple[str, ...], list[int]]:
    """Positions of the rows of each series: one GPU, CNN, image size and mode."""
    rows: dict[tuple[str, ...], list[int]] = {}
    for i, series in enumerate(mode_words(table, _LINE_SERIES).itertuples(index=False, name=None)):
        rows.setdefault(series, []).append(i)
    return rows


@dataclass(frozen=True, slots=True)
class _StraightLine:
    """intercept + slope x batch size: least squares of the relative error."""

    intercept: float
    slope: float

    @classmethod
    def of(cls, sizes: Floats, times_ms: Floats) -> _StraightLine:
        """Fitted on measured runs; columns are scaled, so that units decide nothing."""
        weighted = np.column_stack([np.ones(sizes.size), sizes]) / times_ms[:, None]
        scales = np.linalg.norm(weighted, axis=0)
        intercept, slope = np.linalg.lstsq(weighted / scales, np.ones(sizes.size), rcond=1e-10)[0] / scales
        return cls(float(intercept), float(slope))

    def parts(self, sizes: Floats) -> dict[str, Floats]:
        """Summands of the times in ms."""
        return {"constant": np.full(sizes.size, self.intercept), "batch_size": self.slope * sizes}

    def coefficients(self) -> dict[str, float]:
        """Milliseconds, and milliseconds per image."""
        return {"intercept": self.intercept, "batch_size": self.slope}


@dataclass(frozen=True, slots=True, eq=False)
class _LogPoints:
    """ln time linear in ln batch size between neighbours; `log_sizes` ascending, at least two."""

    log_sizes: Floats
    log_ms: Floats

    @classmethod
    def of(cls, sizes: Floats, times_ms: Floats) -> _LogPoints:
        """Points of measured runs; repeated measurements are averaged."""
        at, member = np.unique(np.log(sizes), return_inverse=True)
        return cls(at, np.bincount(member, np.log(times_ms)) / np.bincount(member))

    def parts(self, sizes: Floats) -> dict[str, Floats]:
        """Times in ms; beyond the measured batch sizes the outermost piece is extrapolated."""
        at, known, asked = self.log_sizes, self.log_ms, np.log(sizes)
        right = np.clip(np.searchsorted(at, asked), 1, at.size - 1)
        slope = (known[right] - known[right - 1]) / (at[right] - at[right - 1])
        return {
            "interpolated": np.asarray(
                np.exp(known[right - 1] + slope * (asked - at[right - 1])), dtype=float
            )
        }

    def coefficients(self) -> dict[str, float]:
        """Batch size -> milliseconds."""
        return {
            f"{np.exp(at):.0f}": float(np.exp(ms)) for at, ms in zip(self.log_sizes, self.log_ms, strict=True)
        }


class _OfOwnRuns(WholePredictor):
    """A law of its own for each series of one GPU, CNN, image size and mode, from two batch sizes or more.

    Attributes
    ----------
    laws_ : dict of tuple of str -> law
        By GPU, CNN, image size and MODE_COLUMNS; series of a single batch size have none.
    """

    needs_anchors: ClassVar[bool] = False
    law: ClassVar[Any]
    name: ClassVar[str]
    p90: ClassVar[float]
    """Relative error of nine tenths of the batch sizes between measured ones: the scenario ``problem-scaling``."""

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> _OfOwnRuns:
        """Learn from a feature table of n rows and their iteration times in milliseconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing or empty, or if a time is not above 0.
        """
        table = self._checked(X, _SERIES_COLUMNS)
        times = times_of(y, len(table), "iteration_time_ms")
        sizes = numbers_of(table, "batch_size", SchemaError)
        self.laws_ = {
            series: self.law.of(sizes[rows], times[rows])
            for series, rows in rows_by_series(table).items()
            if np.unique(sizes[rows]).size >= _LEAST_SIZES
        }
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Predict iteration times in milliseconds, of shape (n,), for a feature table of n rows.

        Raises
        ------
        OutOfRangeError
            If a row's series had fewer than two batch sizes in the training rows.
        """
        self._check_fitted("laws_")
        table = self._checked(X, _SERIES_COLUMNS)
        sizes, times = numbers_of(table, "batch_size", OutOfRangeError), np.empty(len(table))
        for series, rows in rows_by_series(table).items():
            times[rows] = np.sum(list(self._law_of(series).parts(sizes[rows]).values()), axis=0)
        return times

    def parts(self, case: Case) -> dict[str, Floats]:
        """Summands by the law through the case's runs on its GPU."""
        sizes, times = self._own(case)
        parts: dict[str, Floats] = self.law.of(sizes, times).parts(case.batch_sizes)
        return parts

    def scope(self, case: Case) -> tuple[tuple[Reason, ...], ...]:
        """No reasons; refused are batch sizes outside the measured ones."""
        sizes, _ = self._own(case)
        outside = [f"{size:.0f}" for size in case.batch_sizes if not sizes.min() <= size <= sizes.max()]
        if outside:
            raise OutOfRangeError(
                f"batch_size {', '.join(outside)} lies outside {sizes.min():.0f}..{sizes.max():.0f}, where {self.name} was "
                "fitted. Ask for batch sizes in that range, or leave the method out."
            )
        return ((),) * case.batch_sizes.size

    def half_width(self, case: Case) -> float:
        """From the evaluation of batch sizes between measured ones."""
        return math.log1p(self.p90)

    def trained_on(self, case: Case) -> str:
        """The batch sizes of the runs."""
        return f"your runs at batch size {', '.join(f'{size:.0f}' for size in np.unique(self._own(case)[0]))}"

    def coefficients(self) -> dict[str, float]:
        """`<series>:<coefficient>` -> milliseconds."""
        self._check_fitted("laws_")
        return {
            f"{' '.join(series)}:{name}": value
            for series, law in self.laws_.items()
            for name, value in law.coefficients().items()
        }

    def _own(self, case: Case) -> tuple[Floats, Floats]:
        """Batch sizes and times of the runs on the case's GPU; OutOfRangeError if they are of fewer than two sizes."""
        own: Sequence[Anchor] = [each for each in case.anchors if is_of(each, case.gpu)]
        sizes = np.array([each.batch_size for each in own], dtype=float)
        distinct = [f"{size:.0f}" for size in np.unique(sizes)]
        if len(distinct) < _LEAST_SIZES:
            raise OutOfRangeError(
                f"{self.name} needs runs of {case.cnn} on {case.gpu.name} at two batch sizes, got "
                f"{', '.join(distinct) or 'none'}. Give two anchors, or a measurement table with them."
            )
        return sizes, np.array([each.iteration_time_ms for each in own], dtype=float)

    def _law_of(self, series: tuple[str, ...]) -> Any:
        if series not in self.laws_:
            gpu, cnn, image_size, *mode = series
            known = [word for word in mode if word != "unknown"]
            raise OutOfRangeError(
                f"{type(self).__name__} has no two batch sizes of {cnn} at image size {image_size} on {gpu} "
                f"({', '.join(known)}). "
                "Measure two, or use a predictor that carries over between GPUs and CNNs."
            )
        return self.laws_[series]

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("laws_")
        return {
            "laws": [
                {"series": list(series)}
                | {name: np.asarray(getattr(law, name)).tolist() for name in law.__slots__}
                for series, law in self.laws_.items()
            ]
        }

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.laws_ = {
            tuple(each["series"]): self.law(*(_read(each[name]) for name in self.law.__slots__))
            for each in learned["laws"]
        }


def _read(value: Any) -> Any:
    return np.array([finite(each) for each in value]) if isinstance(value, list) else finite(value)


class Line(_OfOwnRuns):
    """Iteration time a + b batch_size, for each series of one GPU, CNN, image size and mode apart.

    X is a feature table, y is `iteration_time_ms`. Least squares of the relative error: small batches weigh as much as large
    ones.
    """

    law: ClassVar[Any] = _StraightLine
    name: ClassVar[str] = "line"
    p90: ClassVar[float] = 0.072


class Interpolation(_OfOwnRuns):
    """ln time linear in ln batch size between neighbours, for each series of one GPU, CNN, image size and mode.

    X is a feature table, y is `iteration_time_ms`. Beyond the measured batch sizes the outermost piece is extrapolated.
    """

    law: ClassVar[Any] = _LogPoints
    name: ClassVar[str] = "interpolation"
    p90: ClassVar[float] = 0.087
