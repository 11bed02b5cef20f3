"""The estimators `Roofline` and `Anchored`: kernels and specifications, corrected by measured iterations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from predictor.catalogue.devices import find_gpu
from predictor.errors import SchemaError
from predictor.models.base import FeatureTablePredictor, Floats, times_of
from predictor.models.intervals import Calibration, Predicted, Refit, Shares, calibrate, sites_of
from predictor.models.residuals import Locations, gp_posterior
from predictor.models.roofline.features import FAMILIES, FAMILY_OF
from predictor.models.roofline.fit import Measured, Objective, Strengths
from predictor.models.roofline.law import RooflineLaw
from predictor.models.roofline.rows import Rows, pass_rows_of, rows_of, single_passes, whole_iterations
from predictor.models.roofline.terms import KernelContext
from predictor.operators.kernels import KERNEL_CLASSES

__all__ = ["Anchored", "Roofline"]

_ORDER = ("gpu", "cnn", "image_size", "batch_size", "precision", "pass", "iteration_time_ms")
_COLUMNS = ("gpu", "cnn", "image_size", "batch_size", "precision", "layer_table")
_FULL_WEIGHT = 30
"""Rows of one source on one GPU that count in full; more of them count n^-1/2 each, for their errors are shared."""


class Roofline(FeatureTablePredictor):
    """Sum of kernels, each its roofline time x exp(features . coefficients), joined with the host's time.

    Parameters
    ----------
    strengths : Strengths, optional
        Ridge of each kind of coefficient.
    operator_weight : float
        Weight of a pass of a single layer, relative to a whole iteration.
    forward_weight : float
        Weight of a whole CNN's forward pass, relative to a whole iteration.
    calibrate : bool
        Whether to calibrate intervals, which refits the law ten times, from nothing, without groups of rows.
    random_state : int
        Random seed of the groups of CNNs and chips that calibration leaves out.

    Attributes
    ----------
    law_ : RooflineLaw
        What `predict` asks, and what a served model holds.
    n_without_structure_ : int
        Training rows left out because their CNN has no layer table.
    """

    uses_operators: ClassVar[bool] = True

    def __init__(
        self,
        strengths: Strengths | None = None,
        operator_weight: float = 0.0005,
        forward_weight: float = 0.1,
        calibrate: bool = True,
        random_state: int = 0,
    ) -> None:
        self.strengths = strengths
        self.operator_weight = operator_weight
        self.forward_weight = forward_weight
        self.calibrate = calibrate
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Roofline:
        """Fit on a feature table; y is `iteration_time_ms` of every row (of single layers too)."""
        frame = self._checked(X, _COLUMNS)
        frame = frame.assign(iteration_time_ms=times_of(y, len(frame), "iteration_time_ms"))
        passes, whole = self._split(_in_order(frame))
        objective = self._objective(whole, passes)
        x = objective.solve()
        found = objective.coefficients(x)
        self.law_ = RooflineLaw(
            found.terms,
            found.host,
            found.host_offset,
            found.feed,
            _fed(objective.whole.rows),
            self._calibrated(objective, whole),
        )
        self._keep(whole, objective.whole.time_ms, objective.times(x))
        return self

    def predict(self, X: pd.DataFrame) -> Floats:
        """Iteration time in ms, shape (n_rows,)."""
        return self._answered(X)[0]

    def predict_interval(self, X: pd.DataFrame, *, coverage: float = 0.9) -> tuple[Floats, Floats]:
        """Ends of the intervals that hold a share `coverage` of the true times, in ms."""
        middle, shares = self._answered(X)
        width = self.law_.calibration.half_widths([find_gpu(name) for name in X["gpu"]], shares, coverage)
        return middle * np.exp(-width), middle * np.exp(width)

    def coefficients(self) -> dict[str, float]:
        """Every coefficient, by ``kernels|feature|condition``."""
        self._check_fitted("law_")
        return {"|".join(term): value for term, value in self.law_.terms.items()}

    def to_json(self) -> dict[str, Any]:
        """The fitted law as plain lists and dicts."""
        self._check_fitted("law_")
        return self.law_.to_json()

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """A fitted estimator from `to_json`."""
        made = cls()
        made.law_ = RooflineLaw.from_json(found)
        return made

    def _answered(self, X: pd.DataFrame) -> tuple[Floats, Shares]:
        """Times in ms, and the shares on which the width of the interval depends."""
        self._check_fitted("law_")
        rows = rows_of(self._checked(X, _COLUMNS))
        alike: dict[tuple[int, str, bool, bool], list[int]] = {}
        for i, (kernels, machine) in enumerate(zip(rows.kernels, rows.machines, strict=True)):
            fed = bool(rows.copies[i]), bool(rows.waits[i])
            alike.setdefault((id(kernels), machine, *fed), []).append(i)
        times, shares = np.empty(len(rows)), Shares(*np.empty((len(Shares._fields), len(rows))))
        for (_, machine, copies, waits), places in alike.items():
            is_new_host = machine not in self.law_.host_offset
            for contexts, sizes, cells in _blocks(rows, places):
                found = self.law_.times(
                    rows.kernels[places[0]], contexts, sizes, machine, copies=copies, waits=waits
                )
                context, size, row = (np.array(each) for each in zip(*cells, strict=True))
                times[row] = found.iteration_ms[context, size]
                for share, values in zip(shares, found.shares(is_new_host=is_new_host), strict=True):
                    share[row] = values[context, size]
        return times, shares

    def _split(self, frame: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Single passes, and iterations of whole CNNs with a layer table."""
        whole, passes = whole_iterations(frame), single_passes(frame)
        known = whole["layer_table"].notna()
        self.n_without_structure_ = int((~known).sum())
        if not known.any():
            raise SchemaError("Roofline needs rows of whole CNNs whose layers are known; got none.")
        return passes, whole[known]

    def _objective(self, whole: pd.DataFrame, passes: pd.DataFrame) -> Objective:
        times = whole["iteration_time_ms"].to_numpy(dtype=float)
        gpu_times = np.full(len(whole), np.nan)
        if "gpu_time_ms" in whole:
            gpu_times = whole["gpu_time_ms"].to_numpy(dtype=float)
        measured = Measured(rows_of(whole), times, gpu_times, _weights(whole))
        if passes.empty:
            return Objective(measured, strengths=self.strengths)
        alone = passes["iteration_time_ms"].to_numpy(dtype=float)
        of_layers = (
            (passes["kind"] == "operator").to_numpy()
            if "kind" in passes
            else np.zeros(len(passes), dtype=bool)
        )
        weight = np.where(of_layers, self.operator_weight, self.forward_weight * _weights(passes))
        single = Measured(pass_rows_of(passes), alone, np.full(len(passes), np.nan), weight)
        return Objective(measured, single, self.strengths)

    def _calibrated(self, objective: Objective, whole: pd.DataFrame) -> Calibration:
        if not self.calibrate:
            return Calibration(gpus=tuple(sorted({find_gpu(name).name for name in whole["gpu"]})))
        rows = objective.whole.rows
        return calibrate(
            self._sites(whole),
            rows.machines,
            objective.whole.time_ms,
            self._refit(objective),
            self.random_state,
        )

    def _refit(self, objective: Objective) -> Refit:
        """Fit from nothing without some rows, and without the single layers of chips that these rows alone have."""
        chips = np.array([context.gpu.chip for context in objective.whole.rows.contexts])
        of_passes = objective.passes.rows.contexts if objective.passes is not None else []
        pass_chips = np.array([context.gpu.chip for context in of_passes])

        def refit(group: NDArray[np.intp]) -> Predicted:
            gone = np.zeros(chips.size, dtype=bool)
            gone[group] = True
            unseen = sorted(set(chips[gone]) - set(chips[~gone]))
            passes_gone = np.isin(pass_chips, unseen) if pass_chips.size else None
            return objective.predicted(objective.solve(gone, passes_gone), gone, passes_gone)

        return refit

    def _sites(self, X: pd.DataFrame) -> Locations:
        """Locations of the rows' residuals; `anchored` adds the work of each row."""
        return sites_of(X)

    def _keep(self, whole: pd.DataFrame, measured: Floats, predicted: Floats) -> None:
        """Do nothing; `anchored` keeps the training rows' residuals here."""


def _weights(frame: pd.DataFrame) -> Floats:
    """Weight of each row: (n / 30)^-1/2, at most 1, for n rows of one source on one GPU."""
    columns = [name for name in ("source", "gpu") if name in frame]
    n = frame.groupby(columns, dropna=False)["gpu"].transform("size").to_numpy(dtype=float)
    return np.minimum(1.0, np.sqrt(_FULL_WEIGHT / n))


def _fed(rows: Rows) -> tuple[str, ...]:
    """Frameworks most of whose measured iterations copy their images."""
    copies: dict[str, list[bool]] = {}
    for context, copied, waits in zip(rows.contexts, rows.copies, rows.waits, strict=True):
        copies.setdefault(context.framework, []).append(bool(copied and not waits))
    return tuple(sorted(name for name, found in copies.items() if 2 * sum(found) > len(found)))


def _blocks(
    rows: Rows, places: Sequence[int]
) -> Iterator[tuple[list[KernelContext], list[int], list[tuple[int, int, int]]]]:
    """Full grids of contexts x batch sizes that hold these rows of one CNN and no other cell.

    Yields contexts, batch sizes, and of each row (number of the context, number of the batch size, place).
    """
    cells: dict[KernelContext, dict[int, list[int]]] = {}
    for i in places:
        cells.setdefault(rows.contexts[i], {}).setdefault(rows.batch_sizes[i], []).append(i)
    blocks: dict[tuple[int, ...], list[KernelContext]] = {}
    for context, by_size in cells.items():
        blocks.setdefault(tuple(sorted(by_size)), []).append(context)
    for sizes, contexts in blocks.items():
        grid = [
            (number, at, i)
            for number, context in enumerate(contexts)
            for at, size in enumerate(sizes)
            for i in cells[context][size]
        ]
        yield contexts, list(sizes), grid


def _in_order(frame: pd.DataFrame) -> pd.DataFrame:
    """Sort the rows, since the last digits of a fit depend on the order of sums."""
    columns = [name for name in _ORDER if name in frame]
    return frame.sort_values(columns, kind="stable", ignore_index=True)


_SMALL_MS = 0.3  # added to each family's time: negligible families must not add to the distance
_APART_BY_TIME, _APART_BY_SIZE = 2.0, 1.0  # length scales, in ln of time and of size

Anchors = tuple[pd.DataFrame, ArrayLike]


class Anchored(Roofline):
    """Roofline x exp(posterior mean of a Gaussian process over the residuals of anchors and training rows).

    `predict` takes ``anchors=(X, y)``: measurements of the predicted CNN on any GPU, among the training rows or not.
    Unlike `roofline` it keeps its training rows' residuals, so it serves evaluation and notebooks and is not shipped.

    Attributes
    ----------
    sites_ : Locations
        Locations of the training rows.
    residual_ : ndarray, shape (n_training_rows,)
        ln(measured / model) there.
    """

    uses_anchors: ClassVar[bool] = True

    def predict(self, X: pd.DataFrame, anchors: Anchors | None = None) -> Floats:
        """Iteration time in ms, shape (n_rows,)."""
        return super().predict(X) * np.exp(self._kriged(X, anchors)[0])

    def predict_interval(
        self, X: pd.DataFrame, anchors: Anchors | None = None, *, coverage: float = 0.9
    ) -> tuple[Floats, Floats]:
        """Ends of the intervals that hold a share `coverage` of the true times, in ms."""
        mean, variance = self._kriged(X, anchors)
        middle = super().predict(X) * np.exp(mean)
        known = self.law_.calibration
        factor = np.array([known.factor_for(str(gpu), coverage) for gpu in X["gpu"]])
        width = factor * np.sqrt(variance)
        return middle * np.exp(-width), middle * np.exp(width)

    def to_json(self) -> dict[str, Any]:
        """The fitted law and the training rows' residuals as plain lists and dicts."""
        self._check_fitted("residual_")
        return {
            "law": super().to_json(),
            "cnns": list(self.law_.calibration.cnns),
            "sites": self.sites_.to_json(),
            "residual": self.residual_.tolist(),
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """A fitted estimator from `to_json`."""
        made = super().from_json(found["law"])
        known = replace(made.law_.calibration, cnns=tuple(found["cnns"]))
        made.law_ = replace(made.law_, calibration=known)
        made.sites_ = Locations.from_json(found["sites"])
        made.residual_ = np.array(found["residual"], dtype=float)
        return made

    def _keep(self, whole: pd.DataFrame, measured: Floats, predicted: Floats) -> None:
        self.sites_ = self._sites(whole)
        self.residual_ = np.log(measured / predicted)

    def _sites(self, X: pd.DataFrame) -> Locations:
        return replace(super()._sites(X), work=_work(X))

    def _kriged(self, X: pd.DataFrame, anchors: Anchors | None) -> tuple[Floats, Floats]:
        self._check_fitted("residual_")
        known, residual = self._with_anchors(anchors)
        asked = self._sites(X)
        mean, variance = np.empty(len(X)), np.empty(len(X))
        calibration = self.law_.calibration
        cells = list(zip(X["gpu"].map(str), X["cnn"].map(str), strict=True))
        alike = np.array([2 * (gpu in calibration.gpus) + (cnn in calibration.cnns) for gpu, cnn in cells])
        for kind in np.unique(alike):  # rows whose residuals have the same variances
            rows = np.flatnonzero(alike == kind)
            variances = calibration.variances_for(*cells[rows[0]])
            mean[rows], variance[rows] = gp_posterior(known, residual, asked.take(rows), variances)
        return mean, variance

    def _with_anchors(self, anchors: Anchors | None) -> tuple[Locations, Floats]:
        if anchors is None or not len(anchors[0]):
            return self.sites_, self.residual_
        frame, y = anchors
        times = times_of(y, len(frame), "iteration_time_ms")
        own = self._sites(frame)
        seen = {*zip(*_keys(self.sites_), strict=True)}
        new = np.flatnonzero([key not in seen for key in zip(*_keys(own), strict=True)])
        if not new.size:
            return self.sites_, self.residual_
        residual = np.log(times / super().predict(frame))[new]
        return _joined(self.sites_, own.take(new)), np.concatenate([self.residual_, residual])


def _work(X: pd.DataFrame) -> Floats:
    """Work of each row, scaled: ln of each family's roofline time, of the batch size and of the image size."""
    items = rows_of(X).items()
    family = np.array([FAMILY_OF[name] for name in KERNEL_CLASSES])[items.class_of]
    ms = [items.sums @ (items.base_ms * (family == name)) for name in FAMILIES]
    size = np.log(X[["batch_size", "image_size"]].to_numpy(dtype=float))
    return np.hstack([np.log(np.stack(ms, axis=1) + _SMALL_MS) / _APART_BY_TIME, size / _APART_BY_SIZE])


def _keys(sites: Locations) -> tuple[list[object], ...]:
    return (
        [g.name for g in sites.gpus],
        list(sites.cnns),
        list(sites.image_sizes),
        list(sites.batch_sizes),
        list(sites.modes),
    )


def _joined(a: Locations, b: Locations) -> Locations:
    return Locations(
        [*a.gpus, *b.gpus],
        [*a.cnns, *b.cnns],
        [*a.image_sizes, *b.image_sizes],
        [*a.batch_sizes, *b.batch_sizes],
        [*a.modes, *b.modes],
        None if a.work is None or b.work is None else np.concatenate([a.work, b.work]),
    )
