"""The estimators `Roofline` and `Anchored`: kernels and specifications, corrected by measured iterations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import ELEMENT_BYTES, Gpu, default_precision, find_gpu, is_cpu
from predictor.catalogue.hosts import HostSpeed, usual_host
from predictor.catalogue.modes import Mode
from predictor.errors import SchemaError
from predictor.models.base import Anchors, Case, KnownHost, Predictor, table_of, times_of
from predictor.models.extrapolation import Ranges, ranges_of, reasons, with_frozen_parts
from predictor.models.forecast import COVERAGE, GpuTimeSplit, widening
from predictor.models.forecasts import Forecasts
from predictor.models.hosts import COUNTED, known_host
from predictor.models.intervals import Calibration, Predicted, calibrate, sites_of
from predictor.models.join import join_host, sharpness_of
from predictor.models.residuals import Runs, check_not_absurd, far_anchors, prior_variance
from predictor.models.roofline.law import CarriedTypes, IterationTimes, RooflineLaw
from predictor.models.roofline.terms import (
    Contexts,
    KernelContext,
    contexts_of,
    contexts_together,
    kernels_of_case,
    training_kernels,
)

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.roofline.fit import Objective
    from predictor.models.roofline.rows import Rows

_ORDER = ("gpu", "cnn", "image_size", "batch_size", "precision", "pass", "iteration_time_ms")
_BOTH_PASSES = "forward_backward"
_KINDS = ("gpu", "precision", "memory_format", "type")
_HALF_BYTES = 2
_PASS_WEIGHT, _FORWARD_WEIGHT, _TYPE_WEIGHT = 0.0025, 0.1, 0.03
"""Weights in the fit: of a layer's pass, of a CNN's forward pass, of a type's operators on a GPU in a mode; else 1."""
_FULL_WEIGHT = 30
"""Rows of one source on one GPU that count in full; more of them count n^-1/2 each, for their errors are shared."""


class Roofline(Predictor):
    """Sum of kernels, each its roofline time x exp(features . coefficients), joined with the host's time.

    `calibrate`: whether to calibrate intervals, which refits the law ten times, from nothing, without groups of rows.
    `random_state`: random seed of the groups of CNNs and chips that calibration leaves out. `ranges_`: of the training
    rows; what lies beyond is answered with a reason, and some with a wider interval. `trained_on_`: the training rows
    in words. `n_without_structure_`: training rows left out because their CNN has no layer table.
    """

    columns: ClassVar[tuple[str, ...]] = (*Predictor.columns, "precision")
    uses_operators: ClassVar[bool] = True

    def __init__(self, calibrate: bool = True, random_state: int = 0) -> None:
        self.calibrate = calibrate
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> Roofline:
        """Fit on a feature table; y is `iteration_time_ms` of every row (of single layers too)."""
        from predictor.models.roofline.rows import single_passes, whole_iterations

        frame = self._checked(X, self.columns)
        frame = frame.assign(iteration_time_ms=times_of(y, len(frame), "iteration_time_ms"))
        # The last digits of a fit depend on the order of sums.
        order = [name for name in _ORDER if name in frame]
        frame = frame.sort_values(order, kind="stable", ignore_index=True)
        iterations, passes = whole_iterations(frame), single_passes(frame)
        has_layers = iterations["layer_table"].notna()
        self.n_without_structure_ = int((~has_layers).sum())
        if not has_layers.any():
            raise SchemaError("Roofline needs rows of whole CNNs whose layers are known; got none.")
        iterations = iterations[has_layers]
        objective = self._objective(iterations, passes)
        fed, calibration = _fed(objective.iterations.rows), self._calibrated(objective, iterations)
        self.law_ = objective.fitted_law(objective.solve(), fed, calibration)
        self.ranges_ = ranges_of(iterations, objective.iterations.rows)
        n_cnns, n_gpus = (iterations[name].nunique() for name in ("cnn", "gpu"))
        self.trained_on_ = f"{len(iterations)} iterations of {n_cnns} CNNs on {n_gpus} GPUs"
        return self

    @classmethod
    def of(cls, law: RooflineLaw, ranges: Ranges, trained_on: str) -> Self:
        """A fitted estimator of what another one learned."""
        made = cls()
        made.law_, made.ranges_, made.trained_on_ = law, ranges, trained_on
        return made

    def with_law(self, law: RooflineLaw) -> Self:
        """A fitted estimator with this law, the ranges and the words of training data of this one."""
        return self.of(law, self.ranges_, self.trained_on_)

    def predict_interval(self, X: pd.DataFrame, anchors: Anchors | None = None) -> tuple[Array, Array]:
        """Interval ends as of `Predictor`; OutOfRangeError if the intervals were not calibrated."""
        self._check_fitted("law_")
        self.law_.calibration.check()
        return super().predict_interval(X, anchors)

    def forecasts(self, cases: Sequence[Case]) -> Forecasts:
        """As of `Predictor`; cases of one mode that share their `anchors` are answered by one broadcast."""
        self._check_fitted("law_")
        alike: dict[tuple[Mode, int], list[int]] = {}
        for place, case in enumerate(cases):
            alike.setdefault((case.mode, id(case.anchors)), []).append(place)
        return Forecasts.joined(
            (own, self.forecasts_on(tuple(cases[place].gpu for place in own), cases[own[0]]))
            for own in alike.values()
        )

    def forecasts_on(
        self, gpus: tuple[Gpu, ...], case: Case, carried: CarriedTypes | None = None
    ) -> Forecasts:
        """Answers to the question of a case on each of these GPUs by one broadcast over GPUs, kernels and batch sizes.

        `carried`: times of operator types that the law was not fitted to, on each GPU. The interval's ends are NaN if
        they were not calibrated.
        """
        law, table, batches, mode = self.law_, table_of(case), case.batch_sizes, case.mode
        contexts, n = contexts_of(gpus, mode, case.measuring.passes), len(gpus)
        hosts, host_place = self._hosts_of(case, contexts)
        times = self._law_times(case, contexts, (hosts, host_place), batches, carried)
        is_new_host = not hosts and case.measuring.machine not in law.host_offset
        is_known = law.knows(contexts)
        both = np.full((n, 2, batches.size), np.nan)
        if law.calibration.variances:
            is_half = [ELEMENT_BYTES[mode.precision] == _HALF_BYTES] * n
            shares = times.shares(is_new_host=is_new_host)
            both = law.calibration.half_widths(gpus, is_known, shares, COVERAGE, is_half)
        host_spreads = np.array([host.spread for host in hosts])[host_place] if hosts else np.zeros(n)
        host_widths, widths = np.hypot(both[:, 0], host_spreads[:, None]), both[:, 1].copy()
        kernels = training_kernels(table, mode)
        distinct, why_place = reasons(self.ranges_, table, contexts, mode, batches, kernels, carried)
        why = [distinct[place] for place in why_place.tolist()]
        wider = np.array(list(map(widening, distinct)))[why_place].transpose(1, 0, 2)
        squares: Array | float = sum(reason.spread**2 for reason in why[0][0])  # the CNN's: alike on all GPUs
        if carried is not None:
            squares = squares + carried.squares / times.device_ms**2
        of_types = np.sqrt(squares) / widths
        mean = np.zeros(widths.shape)
        if case.anchors:
            residuals = {known: self._residuals(case, known) for known in set(is_known.tolist())}
            runs = {known: Runs(table, case.anchors, residuals[known]) for known in residuals}
            for i, (gpu, known) in enumerate(zip(gpus, is_known.tolist(), strict=True)):
                mean[i], width = law.calibration.anchored(gpu, batches, runs[known], COVERAGE)
                prior = prior_variance(law.calibration.variances_for(gpu.name))
                far = far_anchors(case.anchors, residuals[known], prior)
                widths[i] = host_widths[i] = width
                wider[:, i] *= math.prod(reason.widens for reason in far)
                why[i] = tuple((*at_size, *far) for at_size in why[i]) if far else why[i]
        corrected = np.exp(mean)  # the correction of the iteration applies to its GPU and host time alike
        middle, busy, host_ms, feed_ms = (
            ms * corrected for ms in (times.iteration_ms, times.device_ms, times.host_ms, times.feed_ms)
        )
        signs = np.array([-1.0, 1.0])[:, None, None]
        of_gpu = busy * np.exp(signs * widths * np.hypot(wider, of_types))
        of_host = host_ms * np.exp(signs * host_widths * wider)
        sharpness = sharpness_of(mode.framework)
        low, high = join_host(of_gpu, of_host, sharpness) + feed_ms
        host_name = f"average {mode.framework} host of the training data"
        if case.measuring.machine is not None and not is_new_host:
            host_name = case.measuring.machine.split(": ", 1)[-1]
        names = [hosts[place].name for place in host_place.tolist()] if hosts else [host_name] * n
        if is_new_host:
            host_spreads[:] = law.calibration.host_half_width(COVERAGE)

        def split(i: int) -> GpuTimeSplit:
            return {name: ms[i] * corrected[i] for name, ms in times.class_ms.items()}, {}

        method, spreads = "roofline", host_spreads.tolist()
        if case.anchors:
            method, spreads = "anchored", [0.0] * n
        answers = Forecasts(
            np.array([middle, low, high, busy, *of_gpu, host_ms]),
            [
                (method, self.trained_on_, why[i], names[i], partial(split, i), spreads[i], None, sharpness)
                for i in range(n)
            ],
        )
        if not table.warnings:
            return answers
        return answers.changed(lambda _, answer: with_frozen_parts(answer, table))

    def host_ms(self, case: Case) -> float:
        """Host time in ms of one iteration of a case."""
        contexts = contexts_of((case.gpu,), case.mode, case.measuring.passes)
        times = self._law_times(case, contexts, self._hosts_of(case, contexts), np.ones(1))
        return float(times.host_ms[0, 0])

    def to_json(self) -> dict[str, Any]:
        """Law, ranges and words of training data as plain lists and dicts."""
        self._check_fitted("law_")
        learned = {"roofline": self.law_.to_json(), "ranges": self.ranges_.as_json()}
        return learned | {"trained_on": self.trained_on_}

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> Self:
        """A fitted estimator from `to_json`."""
        law, ranges = RooflineLaw.from_json(stored["roofline"]), Ranges.from_json(stored["ranges"])
        return cls.of(law, ranges, str(stored["trained_on"]))

    def _law_times(
        self,
        case: Case,
        contexts: Contexts,
        hosts_of: tuple[list[KnownHost], NDArray[np.intp]],
        batch_sizes: Sequence[int] | Array,
        carried: CarriedTypes | None = None,
    ) -> IterationTimes:
        """Times of the case's CNN in these contexts, on their `_hosts_of`, at these batch sizes and fed as it is."""
        measuring, (hosts, place) = case.measuring, hosts_of
        return self.law_.times(
            kernels_of_case(case),
            contexts,
            batch_sizes,
            measuring.machine,
            copies=measuring.copies,
            waits=measuring.waits,
            captured=case.mode.capture != "eager",
            host_ms=np.array([host.host_ms for host in hosts])[place] if hosts else None,
            carried=carried,
        )

    def _hosts_of(self, case: Case, contexts: Contexts) -> tuple[list[KnownHost], NDArray[np.intp]]:
        """Distinct hosts of contexts in a case, and the place of each one's among them.

        None where the law has the machine, or the middle of all stands for it.
        """
        host, everywhere = case.measuring.host, np.zeros(len(contexts), dtype=np.intp)
        if host is not None:
            return [host], everywhere
        if case.measuring.machine in self.law_.host_offset or case.mode.framework != COUNTED:
            return [], everywhere
        speeds, place = _usual_hosts(contexts)
        return [known_host(speed, table_of(case), case.mode) for speed in speeds], place

    def _residuals(self, case: Case, is_known: bool) -> Array:
        """ln(measured / predicted) of the case's anchors, with the case's host, as of a question.

        A GPU without terms of its own (`is_known`) is answered by the law, so that its anchors elsewhere correct the
        law.
        """
        estimator = self if is_known else self.with_law(self.law_.of_any_gpu)
        runs = [KernelContext.of(case, anchor) for anchor in case.anchors]
        contexts = contexts_together(tuple(dict.fromkeys(runs)))
        sizes = list(dict.fromkeys(anchor.batch_size for anchor in case.anchors))
        times = estimator._law_times(case, contexts, self._hosts_of(case, contexts), sizes).iteration_ms
        predicted = [
            times[contexts.index(run), sizes.index(anchor.batch_size)]
            for run, anchor in zip(runs, case.anchors, strict=True)
        ]
        residuals: Array = np.log(np.divide([anchor.iteration_time_ms for anchor in case.anchors], predicted))
        check_not_absurd(case.anchors, residuals)
        return residuals

    def _objective(self, iterations: pd.DataFrame, passes: pd.DataFrame) -> Objective:
        from predictor.measurements.groups import cnns_of
        from predictor.models.roofline.fit import Measured, Objective
        from predictor.models.roofline.rows import pass_rows_of, rows_of

        times = iterations["iteration_time_ms"].to_numpy(dtype=float)
        gpu_times = np.full(len(iterations), np.nan)
        if "gpu_time_ms" in iterations:
            gpu_times = iterations["gpu_time_ms"].to_numpy(dtype=float)
        cnns = cnns_of(iterations).tolist()
        measured = Measured(rows_of(iterations), times, gpu_times, _weights(iterations), cnns)
        if passes.empty:
            return Objective(measured)
        alone = passes["iteration_time_ms"].to_numpy(dtype=float)
        of_layers = (passes["kind"] == "operator").to_numpy()
        weight = np.where(of_layers, _PASS_WEIGHT, _FORWARD_WEIGHT * _weights(passes))
        is_both = (passes["pass"] == _BOTH_PASSES).to_numpy()
        if is_both.any():  # operators of all types weigh the same, however many were measured
            weight[is_both] = _TYPE_WEIGHT / _sizes(passes[is_both], _KINDS)
        single = Measured(pass_rows_of(passes), alone, np.full(len(passes), np.nan), weight, [])
        return Objective(measured, single)

    def _calibrated(self, objective: Objective, iterations: pd.DataFrame) -> Calibration:
        if not self.calibrate:
            return Calibration(gpus=tuple(sorted({find_gpu(name).name for name in iterations["gpu"]})))
        rows, of_passes = (
            objective.iterations.rows,
            objective.passes.rows.contexts if objective.passes else [],
        )
        chips = np.array([context.gpu.chip for context in rows.contexts])
        pass_chips = np.array([context.gpu.chip for context in of_passes])

        def refit(group: NDArray[np.intp]) -> Predicted:
            """A fit from nothing without some rows, and without single layers of chips that only these have."""
            gone = np.zeros(chips.size, dtype=bool)
            gone[group] = True
            unseen = sorted(set(chips[gone]) - set(chips[~gone]))
            passes_gone = np.isin(pass_chips, unseen) if pass_chips.size else None
            return objective.predicted(objective.solve(gone, passes_gone), gone, passes_gone)

        times = objective.iterations.time_ms
        return calibrate(sites_of(iterations), rows.machines, times, refit, self.random_state)


@lru_cache(maxsize=256)
def _usual_hosts(contexts: Contexts) -> tuple[list[HostSpeed], NDArray[np.intp]]:
    """Distinct hosts of GPUs where none is named, and the place of each GPU's among them."""
    speeds = [usual_host(context.gpu) for context in contexts]
    distinct = list(dict.fromkeys(speeds))
    return distinct, np.array([distinct.index(speed) for speed in speeds])


def _weights(frame: pd.DataFrame) -> Array:
    """Weight of each row: (n / 30)^-1/2, at most 1, for n rows of one source on one GPU."""
    columns = [name for name in ("source", "gpu") if name in frame]
    return np.minimum(1.0, np.sqrt(_FULL_WEIGHT / _sizes(frame, columns)))


def _sizes(frame: pd.DataFrame, columns: Sequence[str]) -> Array:
    """Rows that are alike in these columns, for each row."""
    return frame.groupby(list(columns), dropna=False)["gpu"].transform("size").to_numpy(dtype=float)


def _fed(rows: Rows) -> tuple[str, ...]:
    """Frameworks most of whose measured iterations copy their images."""
    copies: dict[str, list[bool]] = {}
    for context, copied, waits in zip(rows.contexts, rows.copies, rows.waits, strict=True):
        copies.setdefault(context.framework, []).append(bool(copied and not waits))
    return tuple(sorted(name for name in copies if 2 * sum(copies[name]) > len(copies[name])))


class Anchored(Roofline):
    """`roofline` corrected by runs of the CNN: what answers a question with anchors.

    `predict` takes ``anchors=(X, y)``: runs on any GPU. Those of a row's CNN and image size in its mode correct it; a
    row without any gets the law's own time.
    """

    uses_anchors: ClassVar[bool] = True
    needs_anchors: ClassVar[bool] = True

    def _is_run_of(self, run: Case, case: Case) -> bool:
        """Whether a run is in the case's mode: in its precision, or both in the default of their GPU."""
        if is_cpu(run.gpu.name):
            return False
        in_mode = replace(run, gpu=case.gpu, mode=replace(run.mode, precision=case.mode.precision))
        precisions = [(of.mode.precision, default_precision(of.gpu, of.mode.framework)) for of in (run, case)]
        is_alike = run.mode.precision == case.mode.precision or all(own == usual for own, usual in precisions)
        return is_alike and KernelContext.of(in_mode) == KernelContext.of(case)
