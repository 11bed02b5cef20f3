"""Forecasts iterations from measured operators, corrected by measurements of the CNN itself if given."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from predictor.arrays import Array
from predictor.catalogue.devices import is_cpu
from predictor.catalogue.modes import TIMED_BY_PASSES, Mode
from predictor.cnns.layer_table import BY_LAW, LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.base import Case, check_image_size, table_of
from predictor.models.extrapolation import of_table, with_frozen_parts
from predictor.models.forecast import COVERAGE, Anchor, GpuTimeSplit, IterationForecast, Reason, widening
from predictor.models.join import join_host, sharpness_of
from predictor.models.layer_times.law import OperatorTotals
from predictor.models.layer_times.library import CarriedOver, OperatorLibrary
from predictor.models.layer_times.model import LayerModel
from predictor.models.layer_times.times import FARAWAY, UNKNOWN
from predictor.models.ratios import ratios_of
from predictor.models.residuals import Runs, check_not_absurd, far_anchors, is_of

_BY_LAW = 0.4
"""90 % half width of ln time by the law of second derivatives: 29 convolutions on an H100 lie within 0.38 of it."""

_Sums = Callable[[Case], OperatorTotals]
_Z = NormalDist().inv_cdf(0.5 + COVERAGE / 2)
_OPTIMIZER = "momentum"  # what optimizer operators are measured with
_SERIES, _NOISE = {"cnn_image": 0.55, "series": 0.35}, 0.10
"""Share of each part in the residual variance within one series. From one batch size to the next times are at least as
noisy as the law is rough."""

_STRANGE = 0.5
"""Share of the time in operators unlike any measured, above which specifications answer if there are too few for trees.

With the operators of one CNN, 13 to 76 of them, other CNNs were missed by 30 % both by these and by specifications,
whose interval is half as wide. Where there are trees, they miss less whatever the share."""


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """Times in ms, and 90 % half widths of their ln below and above: of the iteration, and of the GPU's time."""

    gpu_ms: Array
    host_ms: Array
    total_ms: Array
    below: Array
    above: Array
    gpu_below: Array
    gpu_above: Array


def too_little_measured(model: LayerModel, totals: OperatorTotals) -> Reason | None:
    """The reason to use specifications although operators were measured on the GPU; None if layer-times applies.

    The largest share over batch sizes decides for all of them: one curve never mixes two methods.
    """
    library = model.library.source if isinstance(model.library, CarriedOver) else model.library
    has_trees = not isinstance(library, OperatorLibrary) or library.forests or library.base is not None
    if has_trees:
        return None
    shares = totals.shares
    strange = float(np.max(shares[FARAWAY] + shares[UNKNOWN]))
    if strange <= _STRANGE:
        return None
    text = f"layer-times not used: {100 * strange:.0f} % of this CNN's time is in operators unlike any measured on "
    return Reason("layers", text + "this GPU; specifications, whose interval is narrower, are used instead")


def forecast_by_layers(
    model: LayerModel,
    case: Case,
    sums: _Sums,
    totals: OperatorTotals,
    host: str | None = None,
    host_ms: float | None = None,
    host_spread: float | None = None,
) -> IterationForecast:
    """Time of one training iteration at each batch size, from the operators of one library.

    `case`: its anchors that were measured on its GPU correct the forecast; others are ignored. `totals`: of its
    operators; `sums` gives those of another case, such as its anchors' batch sizes. `host`, `host_ms`: a host other
    than the library's, and its time to enqueue an iteration, in ms. `host_spread`: 90 % half width of the ln of the
    host's speed, beside what its time differs from CNN to CNN; by default what a machine's differs from day to day, or
    from another of its kind. OutOfRangeError if an eager iteration is asked for and its host time was not measured, or
    an anchor has another image size.
    """
    table, gpu, mode, batches = table_of(case), case.gpu, case.mode, case.batch_sizes
    host_spread = ratios_of("host").host_spread if host_spread is None else host_spread
    why = _reasons(model, totals, table, mode)
    wider = np.array(widening(why, "gpu", "edges")[1])
    by_law: Array | float = 0.0
    alone = _by_law(table)
    if alone is not None:  # its layers stand for times of few measured steps
        share: Array = model.law.gpu_ms(sums(replace(case, table=alone))) / model.law.gpu_ms(totals)
        by_law = _BY_LAW * share
    parts = _parts(model, totals, mode, host_ms, host_spread, wider, by_law)
    own = [anchor for anchor in case.anchors if is_of(anchor, gpu)]
    mean = np.zeros(batches.size)
    below, above, gpu_below, gpu_above = parts.below, parts.above, parts.gpu_below, parts.gpu_above
    if own:
        residual, least = _residual(model, case, sums, own, host_ms), model.law.roughness**2
        check_not_absurd(own, residual)
        # Each batch size by its own variance, so that no answer depends on what else is asked.
        expected = ((below + above) / 2.0 / _Z) ** 2
        variance = np.maximum(expected, np.mean(residual**2))  # the forecast has to meet the anchors
        noise = np.maximum(_NOISE * variance, least)
        mean, left = Runs(table, own, residual, gpu).correction(gpu, batches, _SERIES, variance, noise)
        below = above = gpu_below = gpu_above = _Z * np.sqrt(left)
        prior = sum(_SERIES.values()) * expected + np.maximum(_NOISE * expected, least)
        far = [far_anchors(own, residual, variance) for variance in prior.tolist()]
        why = tuple((*at_size, *more) for at_size, more in zip(why, far, strict=True))
    corrected = np.exp(mean)  # the correction of the iteration applies to its GPU and host time alike
    middle, busy = parts.total_ms * corrected, parts.gpu_ms * corrected

    def split() -> GpuTimeSplit:
        by_rung = {"all": model.law.class_ms(totals)} | model.law.rung_ms(totals)
        scaled = {
            rung: {name: ms * corrected for name, ms in class_ms.items()}
            for rung, class_ms in by_rung.items()
        }
        return scaled.pop("all"), scaled

    answer = IterationForecast(
        middle,
        busy,
        parts.host_ms * corrected,
        middle * np.exp(-below),
        middle * np.exp(above),
        busy * np.exp(-gpu_below),
        busy * np.exp(gpu_above),
        "layer-times, anchored" if own else "layer-times",
        f"{model.library.origin}; {model.law.trained_on}",
        why,
        host or model.library.host or "the host on which the operators were measured",
        split,
        host_spread,
        sharpness=sharpness_of(mode.framework),
    )
    return with_frozen_parts(answer, table)


@lru_cache(maxsize=512)
def _by_law(table: LayerTable) -> LayerTable | None:
    """The CNN with only the layers whose time follows a law of few steps; None without any."""
    rows = [layer for layer in table if layer.name.startswith(BY_LAW)]
    if not rows:
        return None
    return replace(table, layers=tuple(replace(layer, index=i) for i, layer in enumerate(rows)))


def _parts(
    model: LayerModel, sums: OperatorTotals, mode: Mode, host_ms: float | None, host_spread: float,
    wider: Array | float = 1.0, more: Array | float = 0.0,
) -> _Parts:  # fmt: skip
    """Times and half widths; that of the GPU's time is multiplied by `wider`, then `more` is added."""
    busy = model.law.gpu_ms(sums)
    waits_for_none = mode.capture != "eager" or is_cpu(model.library.mode.gpu)
    host = 0.0 if waits_for_none else model.law.host_ms(sums) if host_ms is None else host_ms
    if not math.isfinite(host):
        raise OutOfRangeError(
            f"the host's time to launch the operators of {model.library.mode.gpu} was not measured, so the time of an "
            "eager iteration is unknown. Measure host_time_ms, or pass capture graph."
        )
    sharpness, waited = sharpness_of(mode.framework), np.full(busy.size, host)
    factor = math.exp(math.hypot(model.law.host_spread, host_spread))
    total, at_low, at_high = join_host(busy, np.array([[host], [host / factor], [host * factor]]), sharpness)
    by_gpu = 1.0 - (waited / total) ** sharpness
    gpu_below, gpu_above = (wider * half_width + more for half_width in model.law.half_widths(sums))
    below, above = (
        np.hypot(by_gpu * width, np.log(end_ms / total))
        for width, end_ms in ((gpu_below, at_low), (gpu_above, at_high))
    )
    return _Parts(busy, waited, total, below, above, gpu_below, gpu_above)


def _reasons(
    model: LayerModel, sums: OperatorTotals, table: LayerTable, mode: Mode
) -> tuple[tuple[Reason, ...], ...]:
    common = [model.library.reason] if isinstance(model.library, CarriedOver) else []
    common += of_table(table)
    if mode.optimizer not in (TIMED_BY_PASSES if mode.framework == "pytorch" else (_OPTIMIZER,)):
        common.append(Reason("optimizer", f"operators were measured with {_OPTIMIZER}, not {mode.optimizer}"))
    of_sums = sums.reasons()
    by_id = {id(at_size): (*at_size, *common) for at_size in of_sums}  # batch sizes share their tuples
    return tuple(by_id[id(at_size)] for at_size in of_sums)


def _residual(
    model: LayerModel, case: Case, sums: _Sums, anchors: Sequence[Anchor], host_ms: float | None
) -> Array:
    """ln(measured / predicted) of anchors on the case's GPU."""
    for anchor in anchors:
        check_image_size(anchor, table_of(case))
    batches = np.array([float(anchor.batch_size) for anchor in anchors])
    measured = np.array([anchor.iteration_time_ms for anchor in anchors])
    totals = sums(replace(case, batch_sizes=batches))
    return np.log(measured / _parts(model, totals, case.mode, host_ms, 0.0).total_ms)
