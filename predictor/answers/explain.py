"""Splits the time of an iteration by operator class, by bound, and by layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.answers.asked import Asked, Device
from predictor.answers.bounds import (
    GPU_BOUNDS,
    OVERHEAD,
    PASSES_OF_STEP,
    PartEffect,
    Switch,
    bounding_ms,
    bounds_of,
    passes_ms,
    switches_of_library,
)
from predictor.answers.grid import TIMES, WORDS, forecasts_of
from predictor.answers.notes import Reason, as_answered
from predictor.answers.question import Question
from predictor.answers.scope import SCOPE_COLUMNS, scope_of, split_traffic, with_shares
from predictor.catalogue.devices import Gpu, is_cpu, precisions_of, rates_of
from predictor.catalogue.modes import FLOAT32_MATMUL_PRECISIONS, MEMORY_FORMATS, Mode, chainer_lacks
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.join import join_shares
from predictor.models.layer_times.files import library_mode
from predictor.models.layer_times.times import RUNGS
from predictor.operators.kernels import operator_classes_of
from predictor.operators.memory import peak_memories_gib
from predictor.operators.work import device_rates

if TYPE_CHECKING:
    from predictor.answers.question import Question
    from predictor.models.forecast import Anchor, IterationForecast

Array = NDArray[np.float64]
Numbers = tuple[float, ...]

LAW_TOLERANCE = 0.10
"""Relative deviation from the first iteration time up to which the small-batch law holds."""

MEASURED_METHOD = "measured"
"""The `method` of explanations of measured iterations."""

OF_A_MODE = ("precision", "memory_format", "framework", "autotune", "capture", "optimizer")
"""Fields that an explanation has of its mode."""

_ABOUT = ("cnn", "image_size", "gpu", OF_A_MODE[0], "float32_matmul_precision", *OF_A_MODE[1:])


@dataclass(frozen=True, slots=True)
class SmallBatchLaw:
    """An epoch takes `k_s` / batch size, because an iteration takes `iteration_time_ms` whatever the batch.

    Holds within `LAW_TOLERANCE` from one batch size to another. `k_s`, seconds x images, is the time of an epoch at
    batch size 1 by the law; None without samples per epoch. `because` names what bounds the iteration at the first
    batch size, and `extrapolates` is True if that batch size lies beyond the measured ones.
    """

    k_s: float | None
    iteration_time_ms: float
    from_batch_size: int
    up_to_batch_size: int
    because: str
    extrapolates: bool = False


@dataclass(frozen=True, slots=True)
class OtherMode:
    """Times in another precision, memory format or `float32_matmul_precision`, at each batch size.

    Relative to the question's mode: `factor` is the ratio of iteration times, `low` to `high` its 90 % interval (NaN if
    both were measured), `gpu_factor` the ratio of GPU times. NaN: not measured. `extrapolates` lists the reasons for
    caution that the question's mode does not have. `float32_matmul_precision` is None where it does nothing.
    """

    precision: str
    float32_matmul_precision: str | None
    memory_format: str
    factor: Numbers
    low: Numbers
    high: Numbers
    gpu_factor: Numbers
    method: str
    extrapolates: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class ExplainedTerm:
    """A term of a regression: `feature` and its part of the iteration time, `ms`, at each batch size.

    `ms` is `coefficient` x `feature`, or what that adds to a sum of squares.
    """

    name: str
    coefficient: float
    feature: Numbers
    ms: Numbers


@dataclass(frozen=True, slots=True)
class Explanation:
    """Split of one CNN's iteration time on one GPU in one mode; numbers over `batch_sizes`, in ms.

    `classes`, time by class of operators, adds up to `gpu_time_ms`, and so does `bound_ms`, which splits it by what
    bounds the operators (empty if unknown). A method that does not tell the GPU's time from the host's has NaN there,
    and `classes` holds the summands of its iteration time, of which some may be below zero. `rung_ms` splits the
    classes' time by what it rests on: measured on this GPU, carried over from another card of its chip or a like mode,
    interpolated, extrapolated, specifications. It is empty where whole iterations were measured, or predicted whole.
    `pass_ms` splits them by pass of the training step (`predictor.answers.bounds.PASSES_OF_STEP`); it is empty where
    `rung_ms` is. `parts` holds what frozen and recomputed parts save, if there are any.
    `terms` has the coefficients and features of a method that is a regression.
    `host_time_ms` and `gpu_time_ms` overlap; `bound` names what an iteration waits for. NaN: not measured. `method` is
    ``measured`` where a measurement table is explained.
    """

    cnn: str
    image_size: int
    gpu: str
    precision: str
    float32_matmul_precision: str | None
    memory_format: str
    framework: str
    autotune: bool
    capture: str
    optimizer: str
    batch_sizes: tuple[int, ...]
    iteration_time_ms: Numbers
    low_ms: Numbers
    high_ms: Numbers
    gpu_time_ms: Numbers
    gpu_low_ms: Numbers
    gpu_high_ms: Numbers
    host_time_ms: Numbers
    classes: dict[str, Numbers]
    bound: tuple[str, ...]
    bound_ms: dict[str, Numbers]
    rung_ms: dict[str, dict[str, Numbers]]
    pass_ms: dict[str, dict[str, Numbers]]
    parts: tuple[PartEffect, ...]
    small_batch_law: SmallBatchLaw | None
    switches: tuple[Switch, ...]
    other_modes: tuple[OtherMode, ...]
    host: str
    method: str
    trained_on: str
    extrapolates: tuple[tuple[Reason, ...], ...]
    terms: tuple[ExplainedTerm, ...] = ()


def small_batch_law(
    batch_sizes: Sequence[int] | Array,
    iteration_time_ms: Sequence[float] | Array,
    bound: Sequence[str],
    k_s_of: Callable[[float], float] | None = None,
) -> SmallBatchLaw | None:
    """Fit the law t = K / batch to iteration times at ascending batch sizes; None if it breaks below twice the first.

    `k_s_of`: from the iteration's time in ms to the law's constant in s.
    """
    times, sizes = np.asarray(iteration_time_ms, dtype=float), np.asarray(batch_sizes)
    if not times.size:
        return None
    broken = np.flatnonzero(np.abs(times / times[0] - 1.0) > LAW_TOLERANCE)
    last = int(broken[0]) - 1 if broken.size else times.size - 1
    if sizes[last] < 2 * sizes[0]:
        return None
    first_ms = float(times[0])
    return SmallBatchLaw(
        None if k_s_of is None else float(k_s_of(first_ms)),
        first_ms,
        int(sizes[0]),
        int(sizes[last]),
        bound[0],
    )


def explanation_rows(explanation: Explanation) -> list[dict[str, Any]]:
    """A row for each batch size; classes are columns such as ``convolution_ms``, bounds such as ``launch_bound_ms``."""
    about = {name: getattr(explanation, name) for name in _ABOUT}
    return [
        about
        | {"batch_size": size, "bound": explanation.bound[i]}
        | {name: getattr(explanation, name)[i] for name in TIMES}
        | {f"{name}_ms": ms[i] for name, ms in explanation.classes.items()}
        | {f"{name}_bound_ms": ms[i] for name, ms in explanation.bound_ms.items()}
        | {
            f"{name}_pass_ms": sum(ms[i] for ms in of_class.values())
            for name, of_class in explanation.pass_ms.items()
        }
        | {name: getattr(explanation, name) for name in WORDS}
        | {"extrapolates": explanation.extrapolates[i]}
        for i, size in enumerate(explanation.batch_sizes)
    ]


def row_columns(explanations: Sequence[Explanation]) -> list[str]:
    """Columns of the rows of several explanations, whose classes may differ."""
    classes = dict.fromkeys(name for each in explanations for name in each.classes)
    return [
        *_ABOUT,
        "batch_size",
        "bound",
        *TIMES,
        *(f"{name}_ms" for name in classes),
        *(f"{name}_bound_ms" for name in GPU_BOUNDS),
        *(f"{name}_pass_ms" for name in PASSES_OF_STEP),
        *WORDS,
        "extrapolates",
    ]


_LAW_BATCHES = np.unique(np.round(2 ** np.arange(0, 12.01, 0.125))).astype(int)


def explain(question: Question) -> tuple[list[Explanation], str]:
    """Explain the iteration time of every CNN and GPU; with a paragraph on what the times include and exclude.

    In the order of the question's CNNs, then its GPUs; the times are those of `predictor.answers.answer.answer`.
    Samples are needed for the constant of the small-batch law. Errors as of any question: nothing is answered then.
    """
    asked = Asked.of(question, "explain")
    model, found = asked.known.model, []
    for table in asked.tables:
        anchors = asked.anchors(table, asked.training)
        for device in asked.devices:
            subject = _Subject(asked, table, device, question.batch_sizes, anchors, question.method)
            found.append(_explained(subject))
    about = {name: [getattr(each, name) for each in found] for name in SCOPE_COLUMNS}
    return found, scope_of(asked, model, about)


@dataclass(frozen=True, slots=True, eq=False)
class _Subject:
    """What is explained: one CNN on one device at some batch sizes."""

    asked: Asked
    table: LayerTable
    device: Device
    sizes: Sequence[int] | Array
    anchors: tuple[Anchor, ...]
    method: str

    @property
    def gpu(self) -> Gpu:
        """The GPU."""
        return self.device[0]

    @property
    def mode(self) -> Mode:
        """Its mode."""
        return self.device[1]

    def forecast(self) -> IterationForecast:
        """The model's forecast."""
        return forecasts_of(self.asked, self.table, [self.device], self.sizes, self.anchors, self.method)[0]

    def k_s(self, iteration_time_ms: float) -> float:
        """Constant of the small-batch law, seconds x images."""
        samples = float(self.asked.samples or 0)
        return float(self.asked.known.model.epoch_time_s([samples], [iteration_time_ms], self.mode)[0])


def _explained(subject: _Subject) -> Explanation:
    forecast, table, gpu, mode, sizes = (
        subject.forecast(), subject.table, subject.gpu, subject.mode, subject.asked.question.batch_sizes,
    )  # fmt: skip
    _check(forecast, table, gpu, sizes)
    whole = forecast.is_whole
    class_ms = class_times_ms(forecast, table, subject.device, sizes)
    by_bound = {} if whole else _by_bound(subject, forecast)
    times: dict[str, Any] = {name: plain_numbers(getattr(forecast, name)) for name in TIMES}
    return Explanation(
        cnn=table.cnn,
        image_size=table.image_size,
        gpu=gpu.name,
        float32_matmul_precision=mode.matmul_setting,
        **{name: getattr(mode, name) for name in OF_A_MODE},
        batch_sizes=tuple(sizes),
        **times,
        classes={name: plain_numbers(ms) for name, ms in class_ms.items()},
        bound=bounds_of(forecast.gpu_time_ms, forecast.host_time_ms, by_bound),
        bound_ms={name: plain_numbers(ms) for name, ms in by_bound.items()},
        rung_ms={} if whole else _rungs(forecast),
        pass_ms={} if whole else _passes(subject, class_ms),
        parts=() if whole else _parts(subject, forecast),
        small_batch_law=None if whole else _law(subject),
        switches=() if whole else _switches(subject),
        other_modes=() if whole else _other_modes(subject),
        extrapolates=tuple(map(as_answered, with_shares(forecast.extrapolates, table, gpu, mode, sizes))),
        terms=_terms(forecast),
        **{name: getattr(forecast, name) for name in WORDS},
    )


def _terms(forecast: IterationForecast) -> tuple[ExplainedTerm, ...]:
    terms = {} if forecast.terms is None else forecast.terms()
    parts = forecast.class_ms if terms else {}
    return tuple(
        ExplainedTerm(name, term.coefficient, plain_numbers(term.feature), plain_numbers(parts[name]))
        for name, term in terms.items()
    )


def _check(forecast: IterationForecast, table: LayerTable, gpu: Gpu, sizes: list[int]) -> None:
    """Refuse times that are not finite and above zero."""
    for ms, size in zip(forecast.iteration_time_ms, sizes, strict=True):
        if not (np.isfinite(ms) and ms > 0):
            raise OutOfRangeError(
                f"the model gives {ms} ms for {table.cnn} on {gpu.name} at batch_size {size}, which is not a time. "
                "Try a batch size nearer to 64, or another method."
            )


def class_times_ms(
    forecast: IterationForecast, table: LayerTable, device: Device, local_batch_sizes: Sequence[int]
) -> dict[str, Array]:
    """GPU time of an iteration on one GPU by class of operators, ms, over batch sizes.

    Of a method that predicts an iteration whole these are the summands of its time.
    """
    if forecast.is_whole:
        return dict(forecast.class_ms)
    return split_traffic(_classes(forecast), table, *device, local_batch_sizes)


def _classes(forecast: IterationForecast) -> dict[str, Array]:
    """GPU time by class of operators; what is left over is overhead."""
    found = operator_classes_of(forecast.class_ms)
    left = forecast.gpu_time_ms - sum(found.values(), np.zeros(forecast.gpu_time_ms.size))
    return found | ({OVERHEAD: left} if (left > 1e-6 * forecast.gpu_time_ms).any() else {})


def _rungs(forecast: IterationForecast) -> dict[str, dict[str, Numbers]]:
    """GPU time of each class by rung; a forecast from specifications has one rung."""
    by_rung = forecast.rung_ms or {RUNGS[-1]: forecast.class_ms}
    return {
        rung: {name: plain_numbers(ms) for name, ms in operator_classes_of(of_class).items()}
        for rung, of_class in by_rung.items()
    }


def _passes(subject: _Subject, class_ms: Mapping[str, Array]) -> dict[str, dict[str, Numbers]]:
    gpu, mode = subject.device
    rates = (
        device_rates(gpu.name, mode.precision)
        if is_cpu(gpu.name)
        else rates_of(gpu, mode.precision, mode.fp32_products)
    )
    by_pass = passes_ms(subject.table, rates, np.asarray(subject.sizes, dtype=float), class_ms)
    return {
        name: {of: plain_numbers(ms) for of, ms in of_class.items()} for name, of_class in by_pass.items()
    }


def _parts(subject: _Subject, forecast: IterationForecast) -> tuple[PartEffect, ...]:
    """What frozen and recomputed parts save, by one method and without anchors, which were measured with them."""
    method = "auto" if subject.method == "anchored" else subject.method
    table, known = subject.table, replace(subject, anchors=(), method=method)
    found = []
    for part, without in (("frozen", table.without_freezing()), ("recomputed", table.without_recomputing())):
        if without is table:
            continue
        here, there = (replace(known, table=each).forecast() for each in (table, without))
        factor = there.iteration_time_ms / here.iteration_time_ms
        sizes = subject.asked.question.batch_sizes
        own, other = (np.array(peak_memories_gib(each, sizes, subject.mode)) for each in (table, without))
        found.append(
            PartEffect(
                part, plain_numbers(forecast.iteration_time_ms * (factor - 1.0)), plain_numbers(other - own)
            )
        )
    return tuple(found)


def _by_bound(subject: _Subject, forecast: IterationForecast) -> dict[str, Array]:
    gpu, mode = subject.device
    sizes = np.asarray(subject.sizes, dtype=float)
    return bounding_ms(subject.table, gpu, mode.precision, sizes, _classes(forecast), mode.fp32_products)


def _law(subject: _Subject) -> SmallBatchLaw | None:
    """The small-batch law from batch size 1 to the largest measured one, independent of the question's batch sizes."""
    sizes = _LAW_BATCHES * subject.table.parts  # at least an image in each part
    subject = replace(subject, sizes=sizes)
    forecast = subject.forecast()
    by_bound = _by_bound(subject, forecast)
    beyond = np.array([any(why.kind == "batch" for why in each) for each in forecast.extrapolates])
    within = slice(0, sizes.size - int(np.argmin(beyond[::-1])))
    found = small_batch_law(
        sizes[within],
        forecast.iteration_time_ms[within],
        bounds_of(forecast.gpu_time_ms, forecast.host_time_ms, by_bound),
        None if subject.asked.samples is None else subject.k_s,
    )
    return None if found is None else replace(found, extrapolates=bool(beyond[0]))


def _switches(subject: _Subject) -> tuple[Switch, ...]:
    """Switches of the operators measured on this GPU in this mode; empty without any, and of compiled CNNs."""
    gpu, mode = subject.device
    if mode.is_compiled:
        return ()
    known = subject.asked.known.model.layers.measured_library(library_mode(gpu, mode))
    if known is None:
        return ()
    busy = replace(subject, sizes=known.batch_sizes, anchors=(), method="auto").forecast().gpu_time_ms
    gpu_time_ms = dict(zip(known.batch_sizes.tolist(), busy.tolist(), strict=True))
    return switches_of_library(known, subject.table, gpu_time_ms, mode.fp32_products)


def _other_modes(subject: _Subject) -> tuple[OtherMode, ...]:
    gpu, mode = subject.device
    if is_cpu(gpu.name):
        return ()
    here = (mode.precision, mode.memory_format)
    others = [
        replace(mode, precision=precision, memory_format=memory_format)
        for precision, memory_format in product(precisions_of(gpu), MEMORY_FORMATS)
        if (precision, memory_format) != here
    ]
    if mode.matmul_setting is not None:
        settings = (each for each in FLOAT32_MATMUL_PRECISIONS if each != mode.matmul_setting)
        others = [*(replace(mode, float32_matmul_precision=each) for each in settings), *others]
    return tuple(
        _other_mode(subject, other)
        for other in others
        if mode.framework != "chainer" or chainer_lacks(other) is None
    )


def _other_mode(subject: _Subject, mode: Mode) -> OtherMode:
    """Compare by one method, whose shared errors cancel, and without anchors, which belong to one mode."""
    here, there = _alike(replace(subject, anchors=()), mode)
    factor = there.iteration_time_ms / here.iteration_time_ms
    width = _half_width_of_ratio(here, there)
    return OtherMode(
        mode.precision,
        mode.matmul_setting,
        mode.memory_format,
        plain_numbers(factor),
        plain_numbers(factor * np.exp(-width)),
        plain_numbers(factor * np.exp(width)),
        plain_numbers(there.gpu_time_ms / here.gpu_time_ms),
        there.method,
        _more_reasons(there, here),
    )


def _alike(subject: _Subject, mode: Mode) -> tuple[IterationForecast, IterationForecast]:
    """Forecasts in the question's mode and in another, by the same method: layer-times if both were measured."""
    methods = ("roofline",) if subject.method in ("roofline", "anchored") else ("auto", "roofline")
    for method in methods:
        one = replace(subject, method=method)
        try:
            here, there = one.forecast(), replace(one, device=(subject.gpu, mode)).forecast()
        except OutOfRangeError:  # layers without host times: the roofline may answer
            if method == methods[-1]:
                raise
            continue
        if here.method == there.method:
            break
    return here, there


def _more_reasons(there: IterationForecast, here: IterationForecast) -> tuple[Reason, ...]:
    """Reasons for caution of the one forecast, at any batch size, that the other does not have.

    A batch size is beyond the measured ones in both, whichever operators the two name.
    """
    pairs = zip(there.extrapolates, here.extrapolates, strict=True)
    more = (
        why
        for one, other in pairs
        for why in one
        if why not in other and not (why.kind == "batch" and any(known.kind == "batch" for known in other))
    )
    return as_answered(dict.fromkeys(more))


def _half_width_of_ratio(here: IterationForecast, there: IterationForecast) -> Array:
    """Of the ln of two times on one machine, whose host's speed errs alike in both."""
    squares, waits = [], []
    for each in (here, there):
        squares.append((np.log(each.high_ms / each.low_ms) / 2.0) ** 2)
        waits.append(join_shares(each.gpu_time_ms, each.host_time_ms, each.sharpness)[1])
    shared = waits[0] * waits[1] * min(here.host_spread, there.host_spread) ** 2
    width: Array = np.sqrt(np.maximum(sum(squares) - 2.0 * shared, 0.0))
    return width


def plain_numbers(values: Array) -> Numbers:
    """As a tuple."""
    return tuple(values.tolist())
