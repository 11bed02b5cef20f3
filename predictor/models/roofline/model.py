"""The estimators `Roofline` and `Anchored`: kernels and specifications, corrected by measured iterations."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from predictor.catalogue.devices import default_precision, find_gpu
from predictor.cnns.layer_table import LayerTable
from predictor.errors import SchemaError
from predictor.models.base import FeatureTablePredictor, Floats, times_of
from predictor.models.forecast import COVERAGE, Anchor
from predictor.models.intervals import Calibration, Predicted, Refit, Shares, calibrate, sites_of
from predictor.models.roofline.fit import Measured, Objective, Strengths
from predictor.models.roofline.law import RooflineLaw
from predictor.models.roofline.rows import Rows, pass_rows_of, rows_of, single_passes, whole_iterations
from predictor.models.roofline.terms import KernelContext
from predictor.operators.kernels import kernels_of

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
            sites_of(whole),
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


Anchors = tuple[pd.DataFrame, ArrayLike]


class Anchored(Roofline):
    """`roofline` corrected by runs of the CNN: what answers a question with anchors.

    `predict` takes ``anchors=(X, y)``: runs on any GPU. Those of a row's CNN and image size in its mode correct it; a
    row without any gets the law's own time.
    """

    uses_anchors: ClassVar[bool] = True
    needs_anchors: ClassVar[bool] = True

    def predict(self, X: pd.DataFrame, anchors: Anchors | None = None) -> Floats:
        """Iteration time in ms, shape (n_rows,)."""
        return self._corrected(X, anchors, COVERAGE)[0]

    def predict_interval(
        self, X: pd.DataFrame, anchors: Anchors | None = None, *, coverage: float = COVERAGE
    ) -> tuple[Floats, Floats]:
        """Ends of the intervals that hold a share `coverage` of the true times, in ms."""
        middle, width = self._corrected(X, anchors, coverage)
        return middle * np.exp(-width), middle * np.exp(width)

    def _corrected(self, X: pd.DataFrame, anchors: Anchors | None, coverage: float) -> tuple[Floats, Floats]:
        """Times in ms, and half widths of the intervals of their ln."""
        middle, shares = self._answered(X)
        gpus = [find_gpu(name) for name in X["gpu"]]
        width = self.law_.calibration.half_widths(gpus, shares, coverage)
        runs = {} if anchors is None or anchors[0].empty else _runs(*anchors)
        tables, sizes = X["layer_table"].tolist(), X["batch_size"].to_numpy(dtype=float)
        for series, places in _series(X).items():
            own = [run for run in runs.get(series.cnn, ()) if _is_in_mode_of(run.context, series.context)]
            if not own:
                continue
            table, gpu = tables[places[0]], series.context.gpu
            mean, width[places], far = self.law_.calibration.anchored(
                table,
                gpu,
                sizes[places],
                [run.anchor for run in own],
                self._residuals(table, series, own),
                coverage,
            )
            width[places] *= math.prod(reason.widens for reason in far)
            middle[places] *= np.exp(mean)
        return middle, width

    def _residuals(self, table: LayerTable, series: _Series, runs: Sequence[_Run]) -> Floats:
        """ln(measured / predicted) of runs, with the host of the rows asked about, as of a question."""
        contexts = list(dict.fromkeys(run.context for run in runs))
        sizes = list(dict.fromkeys(run.anchor.batch_size for run in runs))
        found = self.law_.times(
            kernels_of(table), contexts, sizes, series.machine, copies=series.copies, waits=series.waits
        ).iteration_ms
        predicted = [found[contexts.index(run.context), sizes.index(run.anchor.batch_size)] for run in runs]
        return np.log(np.divide([run.anchor.iteration_time_ms for run in runs], predicted))


class _Run(NamedTuple):
    context: KernelContext
    anchor: Anchor


class _Series(NamedTuple):
    """Rows that differ in batch size alone."""

    cnn: tuple[str, int]
    context: KernelContext
    machine: str
    copies: bool
    waits: bool


def _cnns(X: pd.DataFrame) -> list[tuple[str, int]]:
    return [(str(cnn), int(size)) for cnn, size in zip(X["cnn"], X["image_size"], strict=True)]


def _series(X: pd.DataFrame) -> dict[_Series, list[int]]:
    """Places of the rows of each series."""
    rows = rows_of(X)
    found: dict[_Series, list[int]] = {}
    columns = (_cnns(X), rows.contexts, rows.machines, rows.copies.tolist(), rows.waits.tolist())
    for place, values in enumerate(zip(*columns, strict=True)):
        found.setdefault(_Series(*values), []).append(place)
    return found


def _runs(X: pd.DataFrame, y: ArrayLike) -> dict[tuple[str, int], list[_Run]]:
    """Runs by their CNN and image size."""
    rows = rows_of(X)
    found: dict[tuple[str, int], list[_Run]] = {}
    columns = (_cnns(X), rows.contexts, rows.batch_sizes, times_of(y, len(X), "iteration_time_ms"))
    for cnn, context, size, time_ms in zip(*columns, strict=True):
        anchor = Anchor(context.gpu.name, size, float(time_ms), cnn[1], context.precision, of_table=True)
        found.setdefault(cnn, []).append(_Run(context, anchor))
    return found


def _is_in_mode_of(run: KernelContext, asked: KernelContext) -> bool:
    """Whether a run belongs to a question: in the precision asked for, or both in the default of their GPU."""
    if run.precision == asked.precision:
        return replace(run, gpu=asked.gpu) == asked
    both = (run, asked)
    alike = replace(run, gpu=asked.gpu, precision=asked.precision, fp32_products=asked.fp32_products)
    default = (each.precision == default_precision(each.gpu, each.framework) for each in both)
    return alike == asked and all(default)
