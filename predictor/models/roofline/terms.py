"""The terms of the law: which coefficients apply to a kernel on a GPU, in a mode."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import LAUNCH_MS, Gpu, Rates, design_of, find_gpu, generations, rates_of
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.models.base import Case, table_of
from predictor.models.forecast import Anchor
from predictor.models.join import sharpness_of
from predictor.models.roofline.features import FAMILIES, FAMILY_OF, FEATURES_OF_FAMILY
from predictor.operators.kernels import KERNEL_CLASSES, Kernels, forward_kernels_of, kernels_of
from predictor.operators.operators import trained_tensors
from predictor.operators.optimizers import loop_ms, passes_over_measured, update_of

Term = tuple[str, str, str]
"""Kernels (a class, or a family of classes), feature, and the condition ``kind:label`` under which it applies."""

_LEVEL = ("one",)
_OF_FAMILIES: Mapping[str, tuple[str, ...]] = dict.fromkeys(FAMILIES, _LEVEL)
TermTable = Mapping[str, Mapping[str, tuple[str, ...]]]
"""Kind of condition -> kernels -> features whose coefficients it changes; the empty kind applies always."""

LAW: TermTable = {
    "": {
        **dict.fromkeys(KERNEL_CLASSES, _LEVEL),
        **{
            family: tuple(f for f in FEATURES_OF_FAMILY[family] if f not in ("one", "tensor_gain"))
            for family in FAMILIES
        },
    },
    "xla": _OF_FAMILIES,
    "framework": _OF_FAMILIES,
    "forward": _OF_FAMILIES,
    "since": {"conv": _LEVEL, "element": _LEVEL},
    "generation": {"conv": _LEVEL, "element": _LEVEL},
    "lanes": {"conv": _LEVEL},
}
"""The law's terms in fp32, as they apply to every GPU: one efficiency of a kernel, which its modes share."""

_CONV_ON_TENSOR_CORES = (
    *("one", "is_3x3", "is_1x1", "in_channels_below_32", "in_channels_below_128"),
    *("below_160_tiles", "compute_bound", "is_grouped", "is_stem", "tensor_gain"),
)
GAIN: TermTable = {
    "tensor": {"conv": _CONV_ON_TENSOR_CORES, "product": ("tensor_gain",)},
    "amp": {
        "conv": ("one", "is_1x1", "is_3x3", "is_grouped", "in_channels_below_128"),
        "depthwise": _LEVEL,
        "element": _LEVEL,
    },
    "amp_framework": {"conv": _LEVEL, "element": _LEVEL},
    "channels_last": _OF_FAMILIES,
}
"""Terms of a mode's gain over fp32; `gained` keeps it at or above 0, so that no mode is slower."""

EVERY_FEATURE = {name: FEATURES_OF_FAMILY[family] for name, family in FAMILY_OF.items()}
BY_GPU: TermTable = {"gpu": EVERY_FEATURE}
GAIN_BY_GPU: TermTable = {"gpu_mode": EVERY_FEATURE}
"""Terms of known GPUs' deviations from the law (`deviations.py`): in fp32, shared by a GPU's other modes, and in a
mode's gain over fp32."""

# Experiments found a depthwise convolution's time proportional to the square root of the peak, between a bandwidth and
# an issue bound. One CNN on one GPU cannot determine the exponent.
_EXPECTED = {("depthwise", "issue_bound", ""): 0.5}
_USUAL_FRAMEWORK, _FORWARD = "pytorch", "forward"
_LANES_PER_ISSUE = 8.6  # compute capability
_FIRST = "maxwell"  # older generations have levels of their own, later ones steps from the one before


@dataclass(frozen=True, slots=True)
class KernelContext:
    """GPU and mode of a kernel time; single layers have no `framework`, and `forward` is a single pass.

    `fp32_products` is as of `Mode`.
    """

    gpu: Gpu
    precision: str
    framework: str
    memory_format: str = "nchw"
    xla: bool = False
    forward: bool = False
    fp32_products: bool = False

    @classmethod
    def of(cls, case: Case, anchor: Anchor | None = None) -> KernelContext:
        """GPU and mode of a case's kernels; with `anchor`, its GPU and precision instead."""
        gpu, mode = case.gpu, case.mode
        if anchor is not None:
            gpu, mode = find_gpu(anchor.gpu), replace(mode, precision=anchor.precision or mode.precision)
        return contexts_of((gpu,), mode, case.measuring.passes)[0]


class Contexts(tuple[KernelContext, ...]):
    """Contexts that are asked for together, and what follows from nothing else, an entry each.

    It equals only itself: what is kept for a list of GPUs is found without a look at each of them.
    """

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        return self is other

    @cached_property
    def rates(self) -> Rates:
        """Peak rates."""
        rates = [rates_of(context.gpu, context.precision, context.fp32_products) for context in self]
        return Rates(*np.array(list(map(_RATES, rates)), dtype=float).T)

    @cached_property
    def autocasts(self) -> NDArray[np.bool_]:
        """Whether PyTorch's autocast runs the kernels."""
        return np.array([of.framework == "pytorch" and of.precision.startswith("amp_") for of in self])

    @cached_property
    def is_faster(self) -> NDArray[np.bool_]:
        """Whether the precision gains over fp32."""
        return np.array(list(map(is_faster, self)))

    @cached_property
    def sharpness(self) -> Array:
        """Exponent of the norm that joins GPU and host time in the framework."""
        return np.array([sharpness_of(context.framework) for context in self])


@lru_cache(maxsize=256)
def contexts_together(contexts: tuple[KernelContext, ...]) -> Contexts:
    """These contexts as one list, the same whenever they are asked for together."""
    return Contexts(contexts)


@lru_cache(maxsize=256)
def contexts_of(gpus: tuple[Gpu, ...], mode: Mode, passes: str = "training") -> Contexts:
    """Contexts of GPUs in one mode; `passes` is as of `Measuring`."""
    of_mode = mode.precision, mode.framework, mode.memory_format, mode.xla, passes == _FORWARD
    return Contexts(KernelContext(gpu, *of_mode, mode.fp32_products) for gpu in gpus)


def kernels_of_case(case: Case) -> Kernels:
    """Kernels of the passes that a case measures; OutOfRangeError if the layers of its CNN are unknown."""
    passes, table = case.measuring.passes, table_of(case)
    if passes == _FORWARD:
        return forward_kernels_of(table)
    return training_kernels(table, case.mode) if passes == "training" else kernels_of(table, update=0.0)


@lru_cache(maxsize=256)
def training_kernels(table: LayerTable, mode: Mode) -> Kernels:
    """Kernels of a training iteration."""
    update = update_of(table, mode)
    launches = loop_ms(update, trained_tensors(table)) / LAUNCH_MS
    return kernels_of(table, update=passes_over_measured(update, mode.framework), launches=launches)


def known_as(context: KernelContext) -> tuple[str, str] | None:
    """Kind and label of the deviations of a context's GPU, None where none are fitted: forward passes, and XLA.

    Half precision throughout shares those of AMP, for nothing says that it is slower.
    """
    if context.xla or context.forward or not context.framework:
        return None
    label = f"{design_of(context.gpu)}, {context.framework}"
    if not is_faster(context):
        return "gpu", label
    precision = "amp_fp16" if context.precision == "fp16" else context.precision
    return "gpu_mode", f"{label} {precision} {context.memory_format}"


def conditions_of(context: KernelContext) -> list[tuple[str, str]]:
    """Kind and label of every condition that holds in a context; the first, without either, holds in all.

    An SM has as many fp32 lanes as it issues instructions for in a clock from compute capability 8.6 on (128), so that
    each instruction of another kind takes from its peak; from Volta to 8.0 it has half as many (64), and Maxwell and
    Pascal issue twice (CUDA C++ Programming Guide, compute capabilities).
    """
    tensor = rates_of(context.gpu, context.precision).tensor
    generation, order = context.gpu.generation, generations()
    steps = order[order.index(_FIRST) + 1 : order.index(generation) + 1]
    conditions = [("", ""), *(("since", step) for step in steps)]
    deviation = known_as(context)
    if deviation is not None:
        conditions += dict.fromkeys([("gpu", f"{design_of(context.gpu)}, {context.framework}"), deviation])
    if order.index(generation) < order.index(_FIRST):
        conditions.append(("generation", generation))
    if context.gpu.compute_capability >= _LANES_PER_ISSUE:
        conditions.append(("lanes", "as issued"))
    if tensor:
        conditions.append(("tensor", "yes"))
    if context.precision.startswith("amp_") or context.precision == "fp16":
        conditions += [("amp", "yes"), ("amp_framework", context.framework)]
    if context.forward:
        conditions.append(("forward", "yes"))
    if context.xla:
        conditions.append(("xla", "yes"))
    if context.memory_format == "channels_last" and tensor:
        conditions.append(("channels_last", "yes"))
    if context.framework not in ("", _USUAL_FRAMEWORK):
        conditions.append(("framework", context.framework))
    return conditions


def is_faster(context: KernelContext) -> bool:
    """Whether a context's precision gains over fp32: by tensor cores, or by narrower elements."""
    rates = rates_of(context.gpu, context.precision)
    return rates.tensor or rates.element_bytes < rates_of(context.gpu, "fp32").element_bytes


_RATES = attrgetter(*(field.name for field in fields(Rates)))


def mapped_rates(rates: Rates, change: Callable[[Any], Any]) -> Rates:
    """Rates whose every field is what `change` makes of it."""
    return Rates(*map(change, _RATES(rates)))


def terms_under(table: TermTable, name: str, kind: str) -> Iterator[tuple[str, str]]:
    """Kernels and features of a kernel class's terms under one kind of condition."""
    for kernels in (name, FAMILY_OF[name]):
        for feature in table.get(kind, {}).get(kernels, ()):
            yield kernels, feature


def expected_of(term: Term) -> float:
    """Prior mean of a coefficient."""
    return _EXPECTED.get(term, 0.0)


def ridge_of(term: Term) -> float:
    """Strength of the pull to the prior mean: weak on levels of classes and of far generations."""
    _, feature, condition = term
    if feature == "chip_size":
        return 0.1
    free = condition.startswith("generation:") or (not condition and feature == "one")
    return 0.01 if free else 0.5


_SHARPNESS = 8.0


def gained(gain: Array, xp: Any = np) -> Any:
    """Ln of what a mode gains over fp32, at least 0, by the gain z that roofline and terms give.

    ln(1 + e^(8 z)) / 8: z where it is large, 0 where it is far below 0.
    """
    return xp.maximum(gain, 0.0) + xp.log1p(xp.exp(-_SHARPNESS * xp.abs(gain))) / _SHARPNESS


def gained_slope(gain: Array) -> Array:
    """Slope of `gained`."""
    return np.asarray(1 / (1 + np.exp(-_SHARPNESS * gain)))
