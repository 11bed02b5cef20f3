"""Reasons for caution: each way in which a prediction extrapolates beyond the training data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, design_of, find_gpu, rates_of
from predictor.catalogue.modes import TIMED_BY_PASSES, Mode
from predictor.cnns.layer_table import SECOND_DERIVATIVES, LayerTable, TableWarning
from predictor.models.forecast import IterationForecast, Kind, Reason
from predictor.operator_types import OPERATOR_TYPES, VIEW_TYPES
from predictor.operators.kernels import KERNEL_CLASSES, Kernels, kernels_of
from predictor.operators.work import share_of_types

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.roofline.law import CarriedTypes
    from predictor.models.roofline.rows import Rows
    from predictor.models.roofline.terms import Contexts

MODE_FIELDS = ("framework", "precision", "memory_format", "xla", "autotune", "capture", "optimizer")
"""Fields of a mode, in the order of `Ranges.modes`."""

_WIDENS_OF_FRAMEWORK = 1.25 * 3.0
"""Interval factor for a framework absent from the training data: Chainer took 1.2 (V100) to 7 (H200) times the
predicted time."""

_IN_THE_SPREAD = 1.0
"""Interval factor of a GPU never measured: the interval itself has parts for new GPUs and generations."""

OF_TYPES = 1.36
"""90 % half width of ln(measured / predicted) where all time is in operators of types that neither a CNN of the fit nor
a library has: that of classes of kernels without rows."""

_FORWARD_SHARE = 0.3
"""Least time of a CNN with frozen parts over its time trained whole: 11.8 of 39.3 ms on an H200 where eight 3 x 3
convolutions are frozen."""

_REFERENCE = ("NVIDIA H200", "amp_bf16", 32.0)
"""GPU, precision and batch size of the roofline times whose share in types never measured widens intervals."""

_SHAPES = ("in_channels", "out_channels", "positions", "kernel_height", "kernel_width", "groups")
_DECISIVE: tuple[Kind, ...] = ("precision", "memory_format", "xla", "autotune", "optimizer")
_TOGETHER = ("precision", "memory_format", "xla")  # these select kernels jointly


_JOINED = ("gpu_modes", "modes")


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Ranges of the training data.

    `gpu_modes` lists (gpu, framework, precision), and `modes` the measured `MODE_FIELDS` as words; values missing
    from a table count as a `Mode`'s defaults. `layer_types` lists the types of layers; `shapes` holds the least and
    greatest value of each convolution column, `batch_size` those of the batch size.
    """

    gpus: tuple[str, ...]
    generations: tuple[str, ...]
    gpu_modes: tuple[tuple[str, ...], ...]
    modes: tuple[tuple[str, ...], ...]
    layer_types: tuple[str, ...]
    shapes: dict[str, tuple[float, float]]
    batch_size: tuple[int, int]

    def as_json(self) -> dict[str, Any]:
        """The fields as plain lists and dicts; the words of a mode are joined by "|"."""
        return asdict(self) | {name: ["|".join(words) for words in getattr(self, name)] for name in _JOINED}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Ranges:
        """Read `as_json`."""
        low, high = stored["batch_size"]
        split = {name: tuple(tuple(words.split("|")) for words in stored[name]) for name in _JOINED}
        return cls(
            tuple(stored["gpus"]),
            tuple(stored["generations"]),
            split["gpu_modes"],
            split["modes"],
            tuple(stored["layer_types"]),
            {name: (float(a), float(b)) for name, (a, b) in stored["shapes"].items()},
            (int(low), int(high)),
        )


def ranges_of(iterations: pd.DataFrame, rows: Rows) -> Ranges:
    """Ranges of rows of whole CNNs; `rows` is `rows_of(whole)`."""
    distinct = {id(kernels): kernels for kernels in rows.kernels}.values()
    convs = [(kernels, _conv(kernels)) for kernels in distinct]
    shapes = {name: np.concatenate([kernels[name][conv] for kernels, conv in convs]) for name in _SHAPES}
    tables = {id(table): table for table in iterations["layer_table"]}.values()
    defaults = [str(getattr(Mode(), name)) for name in MODE_FIELDS]
    words = iterations.reindex(columns=MODE_FIELDS).drop_duplicates().to_dict("records")
    modes = {
        tuple(
            word if value is None or value != value else str(value)
            for value, word in zip(row.values(), defaults, strict=True)
        )
        for row in words
    }
    return Ranges(
        gpus=tuple(sorted({s.gpu.name for s in rows.contexts})),
        generations=tuple(sorted({s.gpu.generation for s in rows.contexts})),
        gpu_modes=tuple(sorted({(s.gpu.name, s.framework, s.precision) for s in rows.contexts})),
        modes=tuple(sorted(modes)),
        layer_types=tuple(sorted({layer.type for table in tables for layer in table})),
        shapes={name: (float(values.min()), float(values.max())) for name, values in shapes.items()},
        batch_size=(min(rows.batch_sizes), max(rows.batch_sizes)),
    )


def reasons(
    ranges: Ranges,
    table: LayerTable,
    contexts: Contexts,
    mode: Mode,
    batch_sizes: NDArray[np.float64],
    kernels: Kernels,
    carried: CarriedTypes | None = None,
) -> tuple[list[tuple[tuple[Reason, ...], ...]], NDArray[np.intp]]:
    """Distinct reasons for caution, at each batch size, and the place of each GPU's among them.

    `kernels`: those of the CNN's training iteration.
    """
    low, high = ranges.batch_size
    text = f"measured from {low} to {high}"
    # fewer images take no longer than those measured
    smaller, larger = Reason("batch", text, towards=("low",)), Reason("batch", text)
    sizes = (batch_sizes / table.parts).tolist()
    outside = [(smaller,) * (n < low) + (larger,) * (n > high) for n in sizes]
    of_cnn = (*_of_cnn(ranges, table, kernels, carried.types if carried else ()), *of_table(table))
    if carried:
        of_cnn = (carried.reason, *of_cnn)
    of_devices, place = _of_devices(ranges, contexts, mode)
    by_device = []
    for of_device in of_devices:
        by_size = {beyond: (*of_device, *of_cnn, *beyond) for beyond in dict.fromkeys(outside)}
        by_device.append(tuple([by_size[beyond] for beyond in outside]))
    return by_device, place


@lru_cache(maxsize=512)
def of_table(table: LayerTable) -> tuple[Reason, ...]:
    """Reasons for caution that follow from the CNN's layer table, whatever the method."""
    table_reasons = [of_warning(warning) for warning in table.warnings]
    if table.has_unknown_edges:
        table_reasons.append(
            Reason("edges", "layers do not say which they read; memory and gradients are those of a chain")
        )
    if any(layer.name.startswith(SECOND_DERIVATIVES) for layer in table):
        text = "second derivatives follow a law of 25 convolutions on an H100, 22 % off on average and 77 at most"
        table_reasons.append(Reason("second_derivatives", text))
    return tuple(table_reasons)


def of_warning(warning: TableWarning) -> Reason:
    """Reason for caution of a warning that the CNN's reader gave."""
    if warning.kind == "frozen":
        return Reason("frozen", f"{warning}; the interval reaches down to what a forward pass takes", 1.0)
    return Reason(warning.kind, str(warning))


def with_frozen_parts(forecast: IterationForecast, table: LayerTable) -> IterationForecast:
    """The forecast, with intervals that reach down to the time of the CNN with all but its last layer frozen.

    A forecast corrected by runs of the CNN keeps its intervals: the runs were made with the parts frozen.
    """
    if "anchored" in forecast.method or all(warning.kind != "frozen" for warning in table.warnings):
        return forecast
    low_ms, gpu_low_ms = _FORWARD_SHARE * forecast.low_ms, _FORWARD_SHARE * forecast.gpu_low_ms
    return replace(forecast, low_ms=low_ms, gpu_low_ms=gpu_low_ms)


@lru_cache(maxsize=256)
def _of_devices(
    ranges: Ranges, contexts: Contexts, mode: Mode
) -> tuple[list[tuple[Reason, ...]], NDArray[np.intp]]:
    """Distinct reasons that follow from GPU and mode, and the place of each GPU's; cached for one CNN after another."""
    designs, places, numbers = _measured_designs(ranges.gpus), [], dict[tuple[Reason, ...], int]()
    everywhere, precision_known, capture = _of_any_gpu(ranges.modes, mode)
    for gpu in (context.gpu for context in contexts):
        twins = designs.get(design_of(gpu), ())  # with the same chip and rates, the GPU itself included
        on_gpu = _on_gpu(ranges, gpu, mode, twins) if precision_known and twins else ()
        text = f"never measured, nor any of its generation ({gpu.generation})"
        if twins:
            text = f"never measured, but {twins[0]} with the same chip was"
        elif gpu.generation in ranges.generations:
            text = "never measured, estimated from its specifications"
        of_gpu = () if gpu.name in ranges.gpus else (Reason("gpu", text, _IN_THE_SPREAD),)
        places.append(numbers.setdefault((*of_gpu, *everywhere, *on_gpu, *capture), len(numbers)))
    return list(numbers), np.array(places)


@lru_cache(maxsize=8)
def _measured_designs(gpus: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """Measured GPUs by chip design."""
    by_design: dict[str, tuple[str, ...]] = {}
    for name in gpus:
        design = design_of(find_gpu(name))
        by_design[design] = (*by_design.get(design, ()), name)
    return by_design


@lru_cache(maxsize=64)
def _of_any_gpu(
    modes: tuple[tuple[str, ...], ...], mode: Mode
) -> tuple[tuple[Reason, ...], bool, tuple[Reason, ...]]:
    """Reasons about settings never measured on any GPU; whether the precision was; reasons about `capture`."""
    measured = [dict(zip(MODE_FIELDS, text, strict=True)) for text in modes]
    with_framework = [words for words in measured if words["framework"] == mode.framework]
    if not with_framework:
        unknown = Reason("framework", f"{mode.framework} was never measured", _WIDENS_OF_FRAMEWORK)
        return (unknown,), False, _of_capture([], mode)
    own_words = {name: str(getattr(mode, name)) for name in MODE_FIELDS}
    lacking = [
        name
        for name in _DECISIVE
        if all(words[name] != own_words[name] for words in with_framework)
        and not (name == "optimizer" and mode.framework == "pytorch" and mode.optimizer in TIMED_BY_PASSES)
    ]
    texts = [{"True": name, "False": f"no {name}"}.get(own_words[name], own_words[name]) for name in lacking]
    lacking_reasons = [
        Reason(name, f"{text} was never measured with {mode.framework}")
        for name, text in zip(lacking, texts, strict=True)
    ]
    if not {*_TOGETHER} & {*lacking} and not any(
        all(words[name] == own_words[name] for name in _TOGETHER) for words in with_framework
    ):
        text = f"{mode.precision} with {mode.memory_format}{' and XLA' * mode.xla}"
        lacking_reasons.append(Reason("mode", f"{mode.framework} was never measured in {text}"))
    return tuple(lacking_reasons), "precision" not in lacking, _of_capture(with_framework, mode)


def _on_gpu(ranges: Ranges, gpu: Gpu, mode: Mode, twins: tuple[str, ...]) -> tuple[Reason, ...]:
    """Reasons about settings measured on other chips only; empty if this chip was never measured."""
    measured_pairs = [
        (framework, precision) for gpu, framework, precision in ranges.gpu_modes if gpu in twins
    ]
    if not measured_pairs or (mode.framework, mode.precision) in measured_pairs:
        return ()
    if all(precision != mode.precision for _, precision in measured_pairs):
        return (Reason("precision", f"{mode.precision} was never measured on {gpu.name}"),)
    if all(framework != mode.framework for framework, _ in measured_pairs):
        return (Reason("framework", f"{mode.framework} was never measured on {gpu.name}"),)
    return (Reason("precision", f"{mode.precision} was never measured with {mode.framework} on {gpu.name}"),)


def _of_capture(with_framework: Sequence[Mapping[str, str]], mode: Mode) -> tuple[Reason, ...]:
    if any(words["capture"] == mode.capture for words in with_framework) or mode.capture == "eager":
        return ()
    return (Reason("capture", f"{mode.capture} was never measured; the host time is taken as zero"),)


@lru_cache(maxsize=512)
def types_never_measured(table: LayerTable, seen: tuple[str, ...]) -> tuple[str, ...]:
    """Types of a CNN's layers, but for views, that are not among those `seen`."""
    return tuple(sorted({layer.type for layer in table} - {*seen, *VIEW_TYPES}))


@lru_cache(maxsize=512)
def _of_cnn(
    ranges: Ranges, table: LayerTable, kernels: Kernels, carried: tuple[str, ...]
) -> tuple[Reason, ...]:
    """Reasons that follow from the CNN, but for its types whose times were carried from where they were measured."""
    cnn_reasons = []
    unknown = types_never_measured(table, (*ranges.layer_types, *carried))
    if unknown:
        gpu, precision, batch_size = _REFERENCE
        rates = rates_of(find_gpu(gpu), precision)
        # Types whose class of kernels has no rows widen by its share already (`Shares.unmeasured`).
        with_rows = [type_ for type_ in unknown if OPERATOR_TYPES[type_].kernel_class != "other"]
        share = float(share_of_types(table, np.array([batch_size]), rates, with_rows)[0])
        spread = OF_TYPES * math.sqrt(share)  # a share that looks small may itself be wrong
        cnn_reasons.append(Reason("operator", f"{', '.join(unknown)} never measured", spread=spread))
    if types_never_measured(table, ranges.layer_types):
        kernels = kernels_of(table, types=ranges.layer_types)
    conv = _conv(kernels)
    outside = [
        f"{name} beyond {low:g} to {high:g}"
        for name, (low, high) in ranges.shapes.items()
        if conv.any() and not low <= kernels[name][conv].min() <= kernels[name][conv].max() <= high
    ]
    if outside:
        cnn_reasons.append(Reason("shape", f"convolutions with {', '.join(outside)} never measured"))
    return tuple(cnn_reasons)


def _conv(kernels: Kernels) -> NDArray[np.bool_]:
    numbers = [i for i, name in enumerate(KERNEL_CLASSES) if name.startswith(("conv_", "depthwise_"))]
    return np.isin(kernels.kernel_class, numbers)
