"""Splits the time of an iteration, predicted or measured, by operator class, by bound, by pass and by layer."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from operator import attrgetter
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.answers.answer import SCOPE_COLUMNS, scope_of
from predictor.answers.bounds import (
    GPU_BOUNDS,
    OVERHEAD,
    PASSES_OF_STEP,
    PartEffect,
    Switch,
    bounding_ms,
    bounds_of,
    jumps_of,
    passes_ms,
    switches_of_algorithms,
    switches_of_library,
)
from predictor.answers.changes import habits_of, other_modes
from predictor.answers.forms import FormCost, dear_forms
from predictor.answers.grid import WORDS, forecasts_of, split_traffic, with_shares
from predictor.answers.notes import Reason, Spoken, as_answered, number, reason_of
from predictor.answers.question import Question
from predictor.answers.resolved import Device, ResolvedQuestion
from predictor.arrays import Array
from predictor.catalogue.devices import device_of, is_cpu, rates_of, short_name
from predictor.catalogue.modes import COMPILED, Mode, products_in_fp32
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import resolve_cnn
from predictor.errors import DataError, EpochcastError, OutOfRangeError, SchemaError
from predictor.measurements.table import disturbed_rows, noise_by_batch_size
from predictor.models.forecast import TIMES
from predictor.models.join import host_half_width
from predictor.models.layer_times.files import library_mode
from predictor.models.layer_times.law import CLASSES, layer_sums
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.times import NEAR, RUNGS, DeviceMode
from predictor.operators.kernels import operator_classes_of
from predictor.operators.memory import peak_memories_gib
from predictor.operators.work import device_rates
from predictor.table_files import STANDARD, SUFFIXES, open_table

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.forecast import Anchor, IterationForecast

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
class Payment:
    """What a habit costs an iteration: without it, it takes `saves_ms` less at each batch size.

    `name` is ``deterministic``, ``detect_anomaly``, ``waits`` or ``loop``, `effect` what it does, `remedy` what to
    write instead.
    """

    name: str
    effect: str
    remedy: str
    saves_ms: Numbers


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Explanation(Spoken):
    """Split of one CNN's iteration time on one GPU in one mode; numbers over `batch_sizes`, in ms.

    `classes`, time by class of operators, adds up to `gpu_time_ms`, and so does `bound_ms`, which splits it by what
    bounds the operators (empty if unknown). A method that does not tell the GPU's time from the host's has NaN there,
    and `classes` holds the summands of its iteration time, of which some may be below zero. `rung_ms` splits the
    classes' time by what it rests on: measured on this GPU, carried over from another card of its chip or a like mode,
    interpolated, extrapolated, specifications. It is empty where whole iterations were measured, or predicted whole.
    `pass_ms` splits them by pass of the training step (`predictor.answers.bounds.PASSES_OF_STEP`); it is empty where
    `rung_ms` is. `parts` holds what frozen and recomputed parts save, if there are any.
    `terms` has the coefficients and features of a method that is a regression. `pays_for` has habits of the step and
    what each costs; `forms` the layers whose form costs most beside their best one at the largest batch size.
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
    rung_ms: dict[str, dict[str, Numbers]] = field(default_factory=dict)
    pass_ms: dict[str, dict[str, Numbers]] = field(default_factory=dict)
    parts: tuple[PartEffect, ...] = ()
    small_batch_law: SmallBatchLaw | None = None
    switches: tuple[Switch, ...] = ()
    other_modes: tuple[OtherMode, ...] = ()
    host: str
    method: str
    trained_on: str
    extrapolates: tuple[tuple[Reason, ...], ...]
    terms: tuple[ExplainedTerm, ...] = ()
    pays_for: tuple[Payment, ...] = ()
    forms: tuple[FormCost, ...] = ()

    @property
    def sentence(self) -> str:
        """Time and bound of an iteration at the largest batch size."""
        size, time_ms = self.batch_sizes[-1], number(self.iteration_time_ms[-1])
        where = f"{self.cnn} on {short_name(self.gpu)} at batch {size:,}"
        return f"{where}: {time_ms} ms an iteration, bound by {self.bound[-1]}."

    def lines(self) -> list[str]:
        """GPU time by class of operators at the largest batch size, the longest first."""
        classes = sorted(self.classes.items(), key=lambda item: -item[1][-1])
        return [f"{name}: {number(ms[-1])} ms" for name, ms in classes]


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
    k_s = None if k_s_of is None else float(k_s_of(float(times[0])))
    return SmallBatchLaw(k_s, float(times[0]), int(sizes[0]), int(sizes[last]), bound[0])


def explanation_rows(explanation: Explanation) -> list[dict[str, Any]]:
    """A row for each batch size; classes are columns such as ``convolution_ms``, bounds such as ``launch_bound_ms``."""
    about, passes = {name: getattr(explanation, name) for name in _ABOUT}, explanation.pass_ms
    return [
        about
        | {"batch_size": size, "bound": explanation.bound[i]}
        | {name: getattr(explanation, name)[i] for name in TIMES}
        | {f"{name}_ms": ms[i] for name, ms in explanation.classes.items()}
        | {f"{name}_bound_ms": ms[i] for name, ms in explanation.bound_ms.items()}
        | {f"{name}_pass_ms": sum(ms[i] for ms in by_class.values()) for name, by_class in passes.items()}
        | {name: getattr(explanation, name) for name in WORDS}
        | {"extrapolates": explanation.extrapolates[i]}
        for i, size in enumerate(explanation.batch_sizes)
    ]


def row_columns(explanations: Sequence[Explanation]) -> list[str]:
    """Columns of the rows of several explanations, whose classes may differ."""
    classes = dict.fromkeys(name for explanation in explanations for name in explanation.classes)
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
    resolved = ResolvedQuestion.of(question, "explain")
    sizes, method = question.batch_sizes, question.method
    explanations = [
        _explained(_Subject(resolved, table, device, sizes, anchors, method))
        for table in resolved.tables
        for anchors in [resolved.anchors(table, resolved.training)]
        for device in resolved.devices
    ]
    columns = {name: [getattr(explanation, name) for explanation in explanations] for name in SCOPE_COLUMNS}
    return explanations, scope_of(resolved, resolved.known.model, columns)


@dataclass(frozen=True, slots=True, eq=False)
class _Subject:
    """What is explained: one CNN on one device at some batch sizes, by a method and with anchors."""

    resolved: ResolvedQuestion
    table: LayerTable
    device: Device
    sizes: Sequence[int] | Array
    anchors: tuple[Anchor, ...]
    method: str

    def forecast(self) -> IterationForecast:
        """The model's forecast."""
        sizes, anchors, method = self.sizes, self.anchors, self.method
        [forecast] = forecasts_of(self.resolved, self.table, [self.device], sizes, anchors, method)
        return forecast

    def without_anchors(self) -> _Subject:
        """The subject by one method, and without anchors, which were measured as the training is asked."""
        return replace(self, anchors=(), method="auto" if self.method == "anchored" else self.method)

    def by_bound(self, forecast: IterationForecast) -> dict[str, Array]:
        """GPU time by what bounds it."""
        gpu, mode = self.device
        sizes = np.asarray(self.sizes, dtype=float)
        return bounding_ms(self.table, gpu, mode.precision, sizes, _classes(forecast), mode.fp32_products)


def _explained(subject: _Subject) -> Explanation:
    table, (gpu, mode), sizes = subject.table, subject.device, subject.resolved.question.batch_sizes
    forecast = subject.forecast()
    for ms, size in zip(forecast.iteration_time_ms, sizes, strict=True):
        if not (np.isfinite(ms) and ms > 0):
            raise OutOfRangeError(
                f"the model gives {ms} ms for {table.cnn} on {gpu.name} at batch_size {size}, which is not a time. "
                "Try a batch size nearer to 64, or another method."
            )
    class_ms = class_times_ms(forecast, table, subject.device, sizes)
    by_bound = {} if forecast.is_whole else subject.by_bound(forecast)
    times: dict[str, Any] = {name: _plain(getattr(forecast, name)) for name in TIMES}
    explanation = Explanation(
        cnn=table.cnn,
        image_size=table.image_size,
        gpu=gpu.name,
        float32_matmul_precision=mode.matmul_setting,
        **{name: getattr(mode, name) for name in OF_A_MODE},
        batch_sizes=tuple(sizes),
        **times,
        classes=_plain_by_name(class_ms),
        bound=bounds_of(forecast.gpu_time_ms, forecast.host_time_ms, by_bound),
        bound_ms=_plain_by_name(by_bound),
        extrapolates=tuple(map(as_answered, with_shares(forecast.extrapolates, table, gpu, mode, sizes))),
        terms=tuple(
            ExplainedTerm(name, term.coefficient, _plain(term.feature), _plain(forecast.class_ms[name]))
            for name, term in ({} if forecast.terms is None else forecast.terms()).items()
        ),
        **{name: getattr(forecast, name) for name in WORDS},
    )
    if forecast.is_whole:
        return explanation
    models = subject.resolved.known.model.layers
    rung_ms = forecast.rung_ms or {RUNGS[-1]: forecast.class_ms}  # from specifications there is one rung

    def saved_ms(changed_table: LayerTable, device: Device) -> float:
        own, changed = _alike(subject, replace(subject, table=changed_table, device=device))
        return float((forecast.gpu_time_ms * (1.0 - changed.gpu_time_ms / own.gpu_time_ms))[-1])

    return replace(
        explanation,
        rung_ms={rung: _plain_by_name(operator_classes_of(by_class)) for rung, by_class in rung_ms.items()},
        pass_ms=_passes(subject, class_ms),
        parts=_parts(subject, forecast),
        small_batch_law=_law(subject),
        pays_for=tuple(_payments(subject, forecast)),
        forms=dear_forms(models, table, subject.device, sizes[-1], float(forecast.gpu_time_ms[-1]), saved_ms),
        switches=_switches(subject),
        other_modes=tuple(_other_mode(subject, changed) for changed in other_modes(gpu, mode)),
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
    class_ms = operator_classes_of(forecast.class_ms)
    left = forecast.gpu_time_ms - sum(class_ms.values(), np.zeros(forecast.gpu_time_ms.size))
    return class_ms | ({OVERHEAD: left} if (left > 1e-6 * forecast.gpu_time_ms).any() else {})


def _passes(subject: _Subject, class_ms: Mapping[str, Array]) -> dict[str, dict[str, Numbers]]:
    (gpu, mode), sizes = subject.device, np.asarray(subject.sizes, dtype=float)
    is_host, precision = is_cpu(gpu.name), mode.precision
    rates = device_rates(gpu.name, precision) if is_host else rates_of(gpu, precision, mode.fp32_products)
    by_pass = passes_ms(subject.table, rates, sizes, class_ms)
    return {name: _plain_by_name(by_class) for name, by_class in by_pass.items()}


def _parts(subject: _Subject, forecast: IterationForecast) -> tuple[PartEffect, ...]:
    """What frozen and recomputed parts save."""
    table, subject = subject.table, subject.without_anchors()
    sizes, mode, effects = subject.resolved.question.batch_sizes, subject.device[1], []
    plain_tables = {"frozen": table.without_freezing(), "recomputed": table.without_recomputing()}
    for name, plain_table in plain_tables.items():
        if plain_table is table:
            continue
        tables = (table, plain_table)
        own_ms, plain_ms = (replace(subject, table=cnn).forecast().iteration_time_ms for cnn in tables)
        own_gib, plain_gib = (np.array(peak_memories_gib(cnn, sizes, mode)) for cnn in tables)
        saves_ms = forecast.iteration_time_ms * (plain_ms / own_ms - 1.0)
        effects.append(PartEffect(name, _plain(saves_ms), _plain(plain_gib - own_gib)))
    return tuple(effects)


def _payments(subject: _Subject, forecast: IterationForecast) -> Iterator[Payment]:
    """What the training's habits cost, each against the same question without it."""
    position, subject = subject.resolved.tables.index(subject.table), subject.without_anchors()
    for change in habits_of(subject.resolved.question, subject.table):
        resolved = ResolvedQuestion.of(change.question)
        without = replace(subject, resolved=resolved, table=resolved.tables[position]).forecast()
        share = without.iteration_time_ms / subject.forecast().iteration_time_ms
        saves_ms = forecast.iteration_time_ms * (1.0 - share)
        if saves_ms.max() > 0:
            yield Payment(change.name, change.what, change.remedy, _plain(saves_ms))


def _law(subject: _Subject) -> SmallBatchLaw | None:
    """The small-batch law from batch size 1 to the largest measured one, independent of the question's batch sizes."""
    samples, model = subject.resolved.samples, subject.resolved.known.model

    def k_s(iteration_time_ms: float) -> float:
        return float(model.epoch_time_s([float(samples or 0)], [iteration_time_ms], subject.device[1])[0])

    sizes = _LAW_BATCHES * subject.table.parts  # at least an image in each part
    subject = replace(subject, sizes=sizes)
    forecast = subject.forecast()
    beyond = np.array(["batch" in {reason.kind for reason in reasons} for reasons in forecast.extrapolates])
    within = slice(0, sizes.size - int(np.argmin(beyond[::-1])))
    bound = bounds_of(forecast.gpu_time_ms, forecast.host_time_ms, subject.by_bound(forecast))
    times_ms = forecast.iteration_time_ms[within]
    law = small_batch_law(sizes[within], times_ms, bound, None if samples is None else k_s)
    return None if law is None else replace(law, extrapolates=bool(beyond[0]))


def _switches(subject: _Subject) -> tuple[Switch, ...]:
    """Switches of the operators measured on this GPU in this mode; empty without any, and of compiled CNNs."""
    gpu, mode = subject.device
    if mode.is_compiled:
        return ()
    library = subject.resolved.known.model.layers.measured_library(library_mode(gpu, mode))
    if library is None:
        return ()
    forecast = replace(subject, sizes=library.batch_sizes, anchors=(), method="auto").forecast()
    by_size = dict(zip(library.batch_sizes.tolist(), forecast.gpu_time_ms.tolist(), strict=True))
    return switches_of_library(library, subject.table, by_size, mode.fp32_products)


def _other_mode(subject: _Subject, mode: Mode) -> OtherMode:
    """Compare by one method, whose shared errors cancel, and without anchors, which belong to one mode."""
    own, changed = _alike(subject, replace(subject, device=(subject.device[0], mode)))
    factor = changed.iteration_time_ms / own.iteration_time_ms
    width = _half_width_of_ratio(own, changed)
    more_reasons = dict.fromkeys(
        reason
        for reasons, own_reasons in zip(changed.extrapolates, own.extrapolates, strict=True)
        for reason in reasons
        if reason
        not in own_reasons  # a batch size is beyond the measured ones in both, whatever operators they name
        and not (reason.kind == "batch" and any(own_reason.kind == "batch" for own_reason in own_reasons))
    )
    low, high = _plain(factor * np.exp(-width)), _plain(factor * np.exp(width))
    factors = _plain(factor), low, high, _plain(changed.gpu_time_ms / own.gpu_time_ms)
    words = mode.precision, mode.matmul_setting, mode.memory_format
    return OtherMode(*words, *factors, changed.method, as_answered(more_reasons))


def _alike(subject: _Subject, changed: _Subject) -> tuple[IterationForecast, IterationForecast]:
    """Forecasts of both without anchors, by the same method: layer-times if both were measured."""
    methods = ("roofline",) if subject.method in ("roofline", "anchored") else ("auto", "roofline")
    for method in methods:
        try:
            own, other = (replace(by, method=method, anchors=()).forecast() for by in (subject, changed))
        except OutOfRangeError:  # layers without host times: the roofline may answer
            if method == methods[-1]:
                raise
            continue
        if own.method == other.method:
            break
    return own, other


def _half_width_of_ratio(own: IterationForecast, changed: IterationForecast) -> Array:
    """Half width of the ln of two times' ratio on one machine, whose host's speed errs alike in both."""
    spread = np.minimum(own.host_spread, changed.host_spread)
    variance, shared = np.zeros(own.gpu_time_ms.size), 2.0 * np.ones(own.gpu_time_ms.size)
    for forecast in (own, changed):
        variance = variance + (np.log(forecast.high_ms / forecast.low_ms) / 2.0) ** 2
        shared = shared * host_half_width(forecast, spread)
    return np.asarray(np.sqrt(np.maximum(variance - shared, 0.0)))


def _plain(values: Array) -> Numbers:
    """Values as a tuple of Python's numbers."""
    return tuple(values.tolist())


def _plain_by_name(values: Mapping[str, Array]) -> dict[str, Numbers]:
    return {name: _plain(numbers) for name, numbers in values.items()}


_SERIES = ("gpu", "framework", "cnn", "image_size", "autotune", "capture", "optimizer", "host")
_MODE = ("precision", "memory_format", "float32_matmul_precision")
_MEASURED_TIMES = ("iteration_time_ms", "gpu_time_ms", "host_time_ms")
_LEAST_MEASURED = 0.9  # of the operators' time: below it, classes are left out
_NEGLIGIBLE = 0.005


def is_measurement_table(subject: object) -> bool:
    """Whether this is the path of a measurement table: a table with times, any gzipped CSV, or ``-``.

    DataError if it is the path of a CSV or Parquet file that does not exist or is none.
    """
    if not isinstance(subject, str | PathLike):
        return False
    path = Path(fspath(subject))
    if str(path) == STANDARD or path.name.casefold().endswith(".csv.gz"):
        return True
    if path.suffix.casefold() not in SUFFIXES:
        return False
    if not path.is_file():
        raise DataError(f"there is no file {path}. Give a measurement table, a layer table or a CNN's name.")
    with open_table(path) as table:
        return "iteration_time_ms" in table.header


def explain_measurements(
    tables: object, cnns: Sequence[str] = (), samples: int | None = None, **only: Any
) -> list[Explanation]:
    """Explain the measured iterations of each CNN, device and mode of measurement tables.

    `tables`: measurement tables, taken together: operators may be in another file than CNNs. `cnns`: only these CNNs;
    all by default. `samples`: of an epoch, for the law's constant; by default the table's samples_per_epoch. `**only`:
    columns with the values wanted, such as ``precision="tf32"`` or ``batch_size=[16, 64]``; None means all. In the
    order of CNN, image size, device and mode; `method` is ``measured``. Where a batch size was measured repeatedly, the
    median counts. `classes` are the times of the table's operators, scaled to sum to the GPU time. DataError,
    SchemaError or UnknownGpuError if a table cannot be read, or holds no whole CNN as trained that fits.
    """
    import pandas as pd

    from predictor.measurements.table import check_measurements, read_measurements

    sources: list[Any] = list(tables) if isinstance(tables, list | tuple) else [tables]
    frames = [
        read_measurements(file) if isinstance(file, str | PathLike) else check_measurements(file, "the table")
        for file in sources
    ]
    frame = frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)
    operators = frame[frame["kind"] == "operator"]
    libraries = {}
    if not operators.empty:
        from predictor.models.layer_times.estimator import libraries_of

        libraries = libraries_of(frame)
    rows = _chosen(_whole_cnns(frame), cnns, only)
    series = (group for _, group in rows.groupby([*_SERIES, *_MODE], dropna=False))
    explanations = [_measured(group, libraries, samples, operators) for group in series]
    explanations.sort(key=attrgetter("cnn", "image_size", "gpu", "precision"))
    return [replace(own, other_modes=_measured_modes(own, explanations)) for own in explanations]


def _whole_cnns(frame: pd.DataFrame) -> pd.DataFrame:
    trained = (frame["pass"].fillna("training") == "training") & (frame["n_gpus"].fillna(1) == 1)
    rows = frame[(frame["kind"].fillna("target") != "operator") & trained & ~frame["xla"].fillna(False)]
    if rows.empty:
        raise DataError(
            "the table holds no whole CNN as trained on one GPU. Ask about a CNN and pass the table as "
            "measurements: `epochcast explain resnet50 --gpu GPU --measurements FILE`."
        )
    usual = Mode()
    names = ("framework", *_MODE, "autotune", "capture", "optimizer")
    rows = rows.assign(**{name: rows[name].fillna(getattr(usual, name)) for name in names})
    return rows.assign(autotune=rows["autotune"].astype(bool), host=rows["host"].fillna(""))


def _chosen(rows: pd.DataFrame, cnns: Sequence[str], only: dict[str, Any]) -> pd.DataFrame:
    """The rows of these CNNs with these values; SchemaError if a value is in none."""
    filters = {name: value for name, value in only.items() if value is not None}
    filters |= {"cnn": list(cnns)} if cnns else {}
    for name, value in filters.items():
        values = list(value) if isinstance(value, list | tuple | set) else [value]
        measured = rows[name].unique().tolist()
        missing = [value for value in values if value not in measured]
        if missing:
            has = ", ".join(str(value) for value in sorted(measured, key=str)[:40])
            raise SchemaError(
                f"the table has no {name} {missing[0]!r} with the rest that was asked for. It has: {has}."
            )
        rows = rows[rows[name].isin(values)]
    return rows


def _measured(
    rows: pd.DataFrame,
    libraries: Mapping[DeviceMode, OperatorLibrary],
    samples: int | None,
    operators: pd.DataFrame,
) -> Explanation:
    """The explanation of one CNN on one device in one mode, other modes left out."""
    first, by_size = rows.iloc[0], rows.groupby("batch_size")
    times = by_size[list(_MEASURED_TIMES)].median()
    sizes = np.array(times.index, dtype=int)
    wall_ms, gpu_ms, host_ms = (times[name].to_numpy(dtype=float) for name in _MEASURED_TIMES)
    columns = ("cnn", "gpu", "framework", *_MODE, "capture")
    cnn, gpu, framework, precision, memory_format, setting, capture = (str(first[name]) for name in columns)
    mode = DeviceMode(gpu, framework, precision, memory_format, bool(first["autotune"]))
    fp32_products = products_in_fp32(framework, precision, setting)
    try:
        table = None if Path(cnn).suffix else resolve_cnn(cnn, int(first["image_size"]))
    except EpochcastError:  # no CNN of the zoo, or an image size that the zoo refuses
        table = None
    classes, by_bound, about = dict[str, Array](), dict[str, Array](), ""
    reasons: tuple[Reason, ...] = ()
    switches: tuple[Switch, ...] = ()
    library = None if capture in COMPILED else libraries.get(mode)  # of operators that are not fused
    if table is not None and library is not None:
        classes, about, reasons = _measured_classes(table, library, sizes, gpu_ms, fp32_products)
        n_disturbed = disturbed_rows(operators)
        if about and n_disturbed:
            about += f"; {n_disturbed:,} of {len(operators):,} measurements of operators were disturbed by other work"
        alone_ms = layer_sums(library, table, library.batch_sizes, fp32_products).class_ms.sum(axis=0)
        alone_by_size = dict(zip(library.batch_sizes.tolist(), alone_ms.tolist(), strict=True))
        switches = switches_of_library(library, table, alone_by_size, fp32_products)
    if table is not None:
        device = device_of(gpu)
        with suppress(EpochcastError):  # a precision without rates, such as fp32_or_tf32
            own = bounding_ms(table, device, precision, sizes, classes or None, fp32_products)
            total = sum(own.values(), np.zeros(len(sizes)))
            by_bound = {name: ms * gpu_ms / total for name, ms in own.items()}  # a roofline's are scaled
    bound = bounds_of(gpu_ms, host_ms, by_bound, wall_ms)
    noise = noise_by_batch_size(rows)
    epochs = rows["samples_per_epoch"].dropna().unique().tolist()
    n_samples = int(epochs[0]) if samples is None and len(epochs) == 1 else samples
    law_constant = None if n_samples is None else lambda ms: n_samples * ms / 1e3
    unknown: dict[str, Any] = dict.fromkeys(TIMES, (math.nan,) * sizes.size)
    measured = {"iteration_time_ms": wall_ms, "gpu_time_ms": gpu_ms, "host_time_ms": host_ms}
    return Explanation(
        cnn=cnn,
        image_size=int(first["image_size"]),
        **{name: getattr(mode, name) for name in ("gpu", *OF_A_MODE[:4])},
        capture=capture,
        optimizer=str(first["optimizer"]),
        float32_matmul_precision=setting if (framework, precision) == ("pytorch", "tf32") else None,
        batch_sizes=tuple(sizes.tolist()),
        **(unknown | _plain_by_name(measured)),
        classes=_plain_by_name(classes),
        bound=bound,
        bound_ms=_plain_by_name(by_bound),
        small_batch_law=small_batch_law(sizes, wall_ms, bound, law_constant),
        switches=(
            *(switch for _, switch in jumps_of(cnn, sizes.tolist(), gpu_ms.tolist())),
            *switches,
            *switches_of_algorithms(sizes.tolist(), by_size["conv_algorithms"].last().tolist()),
        ),
        host=str(first["host"]) or "a host that the table does not name",
        method=MEASURED_METHOD,
        trained_on=f"{len(rows)} measurements{about}",
        extrapolates=tuple(
            (*reasons, *(reason_of("noise", text) for text in noise.get(size, ()))) for size in sizes.tolist()
        ),
    )


def _measured_classes(
    table: LayerTable, library: OperatorLibrary, sizes: Array, gpu_ms: Array, fp32_products: bool
) -> tuple[dict[str, Array], str, tuple[Reason, ...]]:
    """Time of each class, scaled to the measured GPU time, with its source in words and reasons for caution.

    `gpu_ms` is NaN where not measured. None and no words where too many operators are unlike any measured.
    """
    sums = layer_sums(library, table, np.asarray(sizes, dtype=float), fp32_products)
    near = _largest_share(share for kind, share in sums.shares.items() if kind == NEAR)
    strange = _largest_share(share for kind, share in sums.shares.items() if kind != NEAR)
    if strange > 1.0 - _LEAST_MEASURED:
        text = f"left out, since {100 * strange:.0f} % of the time is of operators unlike any measured"
        return {}, "", (reason_of("classes", text),)
    alone_ms, is_timed = sums.class_ms.sum(axis=0), np.isfinite(gpu_ms)
    scale = np.where(is_timed, gpu_ms / alone_ms, 1.0)
    class_ms = {name: ms * scale for name, ms in zip(CLASSES, sums.class_ms, strict=True) if ms.any()}
    ratio = np.median((alone_ms / gpu_ms)[is_timed]) if is_timed.any() else math.nan
    about = f"; classes from {len(library)} operators, whose own times add up to {ratio:.2f} x the GPU time"
    guessed = f"{100 * (near + strange):.0f} % of the time is of operators near to those measured"
    reasons = (reason_of("classes", guessed),) if near + strange > _NEGLIGIBLE else ()
    return operator_classes_of(class_ms), about, reasons


def _largest_share(shares: Iterable[Array]) -> float:
    """Largest sum of these shares of the time over the batch sizes; 0 without shares."""
    of_kinds = list(shares)
    return float(max(np.sum(of_kinds, axis=0))) if of_kinds else 0.0


def _measured_modes(own: Explanation, explanations: Sequence[Explanation]) -> tuple[OtherMode, ...]:
    """The same CNN measured in other precisions and memory formats, where batch sizes are common."""
    modes, unknown = [], (math.nan,) * len(own.batch_sizes)
    for changed in explanations:
        is_alike = all(getattr(own, name) == getattr(changed, name) for name in _SERIES)
        is_mode = is_alike and any(getattr(own, name) != getattr(changed, name) for name in _MODE)
        if not is_mode or not set(own.batch_sizes) & set(changed.batch_sizes):
            continue
        factor, gpu_factor = (_ratios(own, changed, name) for name in ("iteration_time_ms", "gpu_time_ms"))
        words = changed.precision, changed.float32_matmul_precision, changed.memory_format
        modes.append(OtherMode(*words, factor, unknown, unknown, gpu_factor, MEASURED_METHOD, ()))
    return tuple(modes)


def _ratios(own: Explanation, changed: Explanation, name: str) -> tuple[float, ...]:
    """A time of another mode over our own at each of our batch sizes, NaN where the other was not measured."""
    other_ms = dict(zip(changed.batch_sizes, getattr(changed, name), strict=True))
    sizes = zip(own.batch_sizes, getattr(own, name), strict=True)
    return tuple(other_ms.get(size, math.nan) / ms for size, ms in sizes)
