"""The laws that the named methods fitted, applied with numpy alone: what serving reads from JSON.

Estimators fit them and predict by them (`predictor.models.founding`, `predictor.models.baselines`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, find_gpu, peak_tflop_per_s
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import PROXY_TIME_PREFIX, proxy_counts
from predictor.errors import OutOfRangeError
from predictor.measurements.features import FEATURES, FOUNDING_SPECIFICATIONS
from predictor.models.epochs import iterations_per_epoch
from predictor.models.forecast import Anchor

__all__ = [
    "FlopsLaw",
    "LinearLaw",
    "LogPoints",
    "ProxyLaw",
    "SpecsLaw",
    "fit_linear_law",
    "proxy_columns",
    "specs_columns",
    "unknown_shapes",
]

Array = NDArray[np.float64]

_RANK_TOLERANCE = 1e-10  # of the largest singular value, every column being scaled to length 1


@dataclass(frozen=True, slots=True)
class LinearLaw:
    """intercept + slopes . row; `slopes` has shape (n_columns,)."""

    columns: tuple[str, ...]
    intercept: float
    slopes: Array

    def predict(self, design: Array) -> Array:
        """Values of shape (n_rows,) for a design of shape (n_rows, n_columns)."""
        return np.asarray(self.intercept + design @ self.slopes, dtype=float)

    def parts(self, design: Array, groups: Mapping[str, str]) -> dict[str, Array]:
        """Summands of `predict`, those of the columns by their group; each of shape (n_rows,).

        `groups` names the group of the columns that begin with a text; the others are groups of their own.
        """
        found = {"constant": np.full(len(design), self.intercept)}
        for column, values in zip(self.columns, (design * self.slopes).T, strict=True):
            group = next((name for start, name in groups.items() if column.startswith(start)), column)
            found[group] = found.get(group, np.zeros(len(design))) + values
        return found

    def to_json(self) -> dict[str, Any]:
        """Intercept and slopes; the columns' names stay with their predictor."""
        return {"intercept": self.intercept, "slopes": self.slopes.tolist()}

    @classmethod
    def from_json(cls, columns: tuple[str, ...], found: Mapping[str, Any]) -> LinearLaw:
        """Read `to_json`; a ValueError if there is no finite slope for each column."""
        slopes = np.array([_finite(value) for value in found["slopes"]])
        if slopes.size != len(columns):
            raise ValueError(f"{slopes.size} slopes for {len(columns)} columns")
        return cls(columns, _finite(found["intercept"]), slopes)

    def coefficients(self) -> dict[str, float]:
        """Name of the column -> its slope; the intercept under `intercept`."""
        return {"intercept": self.intercept} | dict(zip(self.columns, map(float, self.slopes), strict=True))


def fit_linear_law(columns: tuple[str, ...], design: Array, y: Array, relative: bool = False) -> LinearLaw:
    """Least squares of y on the columns and an intercept.

    Parameters
    ----------
    columns : tuple of str
    design : ndarray of shape (n_rows, n_columns)
    y : ndarray of shape (n_rows,)
        Above zero if `relative`.
    relative : bool
        Minimise the sum of ((prediction - y) / y)^2 instead of (prediction - y)^2.

    Notes
    -----
    Columns are scaled first: CUDA cores count thousands, L2 a few MiB, and the cut-off of small singular values on raw
    columns, as in scikit-learn's LinearRegression, drops the latter. Where columns depend on each other, the smallest
    scaled coefficients are taken, the intercept's among them; LinearRegression centres the columns instead and gives
    another law there, so `scipy.linalg.lstsq` is called directly.
    """
    from scipy.linalg import lstsq

    weights = 1 / y if relative else np.ones_like(y)
    weighted = np.column_stack([np.ones(len(design)), design]) * weights[:, None]
    lengths = np.linalg.norm(weighted, axis=0)
    scales = np.where(lengths > 0, lengths, 1.0)
    solved = lstsq(weighted / scales, y * weights, cond=_RANK_TOLERANCE)[0] / scales
    return LinearLaw(columns, float(solved[0]), solved[1:])


_COUNT_PREFIX = "proxy_"
_SPECS_PARTS = {"gpu_": "gpu_specifications", _COUNT_PREFIX: "convolution_counts"}
_MS_PER_S = 1000.0


def specs_columns(shapes: Sequence[str]) -> tuple[str, ...]:
    """Columns of approach 1: batch size, specifications, counts of these convolution shapes."""
    specifications = (f"gpu_{name}" for name in FOUNDING_SPECIFICATIONS)
    return ("batch_size", *specifications, *(_COUNT_PREFIX + shape for shape in shapes))


def proxy_columns(proxies: Sequence[str]) -> tuple[str, ...]:
    """Columns of approach 2: batch size, and the epoch times of these proxies."""
    return ("batch_size", *(PROXY_TIME_PREFIX + proxy for proxy in proxies))


def unknown_shapes(name: str, cnns: Sequence[str], shapes: Sequence[str], n_known: int) -> OutOfRangeError:
    """The refusal of CNNs with convolution shapes that no training CNN had."""
    return OutOfRangeError(
        f"{', '.join(cnns)}: convolution shapes without a column: {', '.join(shapes)}. "
        f"{name} was fitted on the {n_known} shapes of its training CNNs. "
        "Train it with a CNN that has these, or use a predictor that computes with shapes (roofline)."
    )


@dataclass(frozen=True, eq=False)
class SpecsLaw:
    """Approach 1: an epoch of `samples` images, linear in batch size, specifications and counts of convolutions."""

    samples: int
    shapes: tuple[str, ...]
    law: LinearLaw

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> SpecsLaw:
        """Read the JSON of a fitted `IterationFromEpoch` of `GpuSpecs`."""
        learned = found["epoch"]["learned"]
        shapes = tuple(learned["shapes"])
        return cls(int(found["samples"]), shapes, LinearLaw.from_json(specs_columns(shapes), learned["law"]))

    def parts(self, name: str, table: LayerTable, gpu: Gpu, batch_sizes: Array) -> dict[str, Array]:
        """Summands of an iteration's time in ms at each batch size; some may be below zero."""
        counts = proxy_counts(table)
        new = [shape for shape in counts if shape not in self.shapes]
        if new:
            raise unknown_shapes(name, [table.cnn], sorted(new), len(self.shapes))
        row = [getattr(gpu, each) for each in FOUNDING_SPECIFICATIONS] + [
            counts.get(each, 0) for each in self.shapes
        ]
        design = np.column_stack([batch_sizes, np.tile(np.array(row, dtype=float), (batch_sizes.size, 1))])
        return _per_iteration(self.law.parts(design, _SPECS_PARTS), self.samples, batch_sizes)


@dataclass(frozen=True, eq=False)
class ProxyLaw:
    """Approach 2: an epoch of `samples` images of each CNN, linear in batch size and in epoch times of proxies."""

    samples: int
    proxies: tuple[str, ...]
    laws: Mapping[tuple[str, int], LinearLaw]
    batch_sizes: Mapping[tuple[str, int], tuple[int, int]]

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> ProxyLaw:
        """Read the JSON of a fitted `IterationFromEpoch` of `ProxyTimes`."""
        learned = found["epoch"]["learned"]
        proxies = tuple(learned["proxies"])
        known = {(str(law["cnn"]), int(law["image_size"])): law for law in learned["laws"]}
        return cls(
            int(found["samples"]),
            proxies,
            {cnn: LinearLaw.from_json(proxy_columns(proxies), law) for cnn, law in known.items()},
            {cnn: (int(law["batch_sizes"][0]), int(law["batch_sizes"][1])) for cnn, law in known.items()},
        )

    def law_of(self, name: str, table: LayerTable) -> LinearLaw:
        """The law of a CNN at its image size; OutOfRangeError, naming those there are, if it has none."""
        law = self.laws.get((table.cnn, table.image_size))
        if law is None:
            known = ", ".join(f"{cnn} at {size}" for cnn, size in sorted(self.laws))
            raise OutOfRangeError(
                f"{name} has no law for {table.cnn} at image size {table.image_size}; it has {known}. "
                "Measure this CNN on one GPU together with the proxies, and fit again."
            )
        return law

    def parts(self, name: str, table: LayerTable, batch_sizes: Array, proxy_times: Array) -> dict[str, Array]:
        """Summands of an iteration's time in ms; `proxy_times` in seconds per epoch, shape (n_batches, n_proxies)."""
        design = np.column_stack([batch_sizes, proxy_times])
        found = self.law_of(name, table).parts(design, {PROXY_TIME_PREFIX: "proxies"})
        return _per_iteration(found, self.samples, batch_sizes)


def _per_iteration(epoch_s: Mapping[str, Array], samples: int, batch_sizes: Array) -> dict[str, Array]:
    iterations = iterations_per_epoch(samples, batch_sizes)
    return {name: seconds * _MS_PER_S / iterations for name, seconds in epoch_s.items()}


@dataclass(frozen=True, eq=False)
class FlopsLaw:
    """FLOPs over the peak: `per_flop` is the inverse of the share of the peak that CNNs reach, by precision."""

    per_flop: Mapping[str, float]

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> FlopsLaw:
        """Read the JSON of a fitted `FlopsRatio`."""
        return cls({str(name): _finite(value) for name, value in found["learned"]["per_flop"].items()})

    def parts(
        self, table: LayerTable, gpu: Gpu, precision: str, batch_sizes: Array, anchors: Sequence[Anchor]
    ) -> dict[str, Array]:
        """An iteration's time in ms at each batch size; by the measured runs of this CNN that are most alike."""
        peak = peak_tflop_per_s(gpu, precision)
        if not np.isfinite(peak):
            raise OutOfRangeError(f"{gpu.name} has no peak rate in {precision}. Leave the method out.")
        per_image = [self._per_image(table, gpu, precision, float(size), anchors) for size in batch_sizes]
        return {"flops": np.array(per_image) * batch_sizes / peak}

    def _per_image(
        self, table: LayerTable, gpu: Gpu, precision: str, size: float, anchors: Sequence[Anchor]
    ) -> float:
        runs = [
            (find_gpu(each.gpu).name == gpu.name, each.batch_size == size, self._reached(each, precision))
            for each in anchors
        ]
        for alike in ((True, True), (True, False), (False, True), (False, False)):
            found = [reached for here, same, reached in runs if here >= alike[0] and same >= alike[1]]
            if found:
                return median(found)
        label = f"precision {precision}"
        if label not in self.per_flop:
            known = ", ".join(name.removeprefix("precision ") for name in self.per_flop)
            raise OutOfRangeError(f"no CNN was timed in {precision}, but in {known}. Ask for one of these.")
        return self.per_flop[label] * FEATURES["training_flops_per_image"](table)

    @staticmethod
    def _reached(anchor: Anchor, precision: str) -> float:
        """Time x peak / batch size of a run."""
        peak = peak_tflop_per_s(find_gpu(anchor.gpu), precision)
        return anchor.iteration_time_ms * peak / anchor.batch_size


@dataclass(frozen=True, slots=True, eq=False)
class LogPoints:
    """ln time linear in ln batch size between neighbours; `log_sizes` ascending, at least two."""

    log_sizes: Array
    log_ms: Array

    @classmethod
    def of(cls, batch_sizes: Array, times_ms: Array) -> LogPoints:
        """Points of measured runs; repeated measurements are averaged."""
        at, member = np.unique(np.log(batch_sizes), return_inverse=True)
        return cls(at, np.bincount(member, np.log(times_ms)) / np.bincount(member))

    def predict(self, batch_sizes: Array) -> Array:
        """Times in ms; beyond the measured batch sizes the outermost piece is extrapolated."""
        at, known, sizes = self.log_sizes, self.log_ms, np.log(batch_sizes)
        right = np.clip(np.searchsorted(at, sizes), 1, at.size - 1)
        slope = (known[right] - known[right - 1]) / (at[right] - at[right - 1])
        return np.asarray(np.exp(known[right - 1] + slope * (sizes - at[right - 1])), dtype=float)


def _finite(value: Any) -> float:
    number = float(value)
    if not np.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number
