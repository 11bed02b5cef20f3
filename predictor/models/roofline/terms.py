"""Which coefficients apply to a kernel on a GPU in a mode, and the times they give; numpy alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, Rates, design_of, rates_of
from predictor.models.roofline.features import (
    FAMILY_OF,
    FEATURES_OF_FAMILY,
    kernel_base_ms,
    kernel_features,
)
from predictor.operators.kernels import KERNEL_CLASSES, Kernels

__all__ = [
    "Coefficients",
    "IterationParts",
    "KernelContext",
    "Term",
    "expected_of",
    "iteration_parts",
    "join_host",
    "tags_of",
    "terms_of",
    "terms_under_tag",
]

Term = tuple[str, str, str]

_CONV_BY_GPU = (
    "one",
    "is_3x3",
    "is_1x1",
    "below_160_tiles",
    "is_3x3_wide",
    "in_channels_below_32",
    "compute_bound",
)
_CONV_BY_TENSOR = (
    "one",
    "is_3x3",
    "is_1x1",
    "is_large_kernel",
    "is_stem",
    "is_grouped",
    "in_channels_below_32",
    "in_channels_below_128",
    "below_160_tiles",
    "compute_bound",
)
# Which features may differ under a tag, by family of kernels; a family not named has only its level ("one").
_VARIES: dict[str, dict[str, tuple[str, ...]]] = {
    "gpu": {"conv": _CONV_BY_GPU, "element": ("one", "launch_bound")},
    "tensor": {"conv": _CONV_BY_TENSOR},
}
# Tags whose level is shared by all kernel classes of a family: the data cannot separate the classes.
_SHARED_BY_FAMILY = ("kepler", "generation", "xla", "channels_last")


# Prior of the exponent: in experiments on PROFET's GPUs a depthwise convolution's time was proportional to the square
# root of the peak, between a bandwidth and an issue bound. One CNN on one GPU cannot determine the exponent.
_EXPECTED = {"issue_bound": 0.5}


@dataclass(frozen=True, slots=True)
class KernelContext:
    """GPU, mode and data source of a kernel time.

    `origin` is the source of single layers timed alone, whose instrument differs from a training loop's; their
    `framework` is empty. Each origin and each framework has a tag.
    """

    gpu: Gpu
    precision: str
    framework: str
    memory_format: str = "nchw"
    xla: bool = False
    origin: str = ""


def tags_of(situation: KernelContext) -> list[str]:
    """Tags under which coefficients may differ from the general ones."""
    tags = [
        f"gpu:{design_of(situation.gpu)}",
        f"generation:{situation.gpu.generation}",
    ]
    if (
        situation.gpu.generation == "kepler"
    ):  # too different from the rest to influence the general coefficients
        tags.append("kepler:yes")
    if situation.framework:
        tags.append(f"framework:{situation.framework}")
    if rates_of(situation.gpu, situation.precision).tensor:
        tags.append("tensor:yes")
    if situation.memory_format == "channels_last":
        tags.append("channels_last:yes")
    if situation.xla:
        tags.append("xla:yes")
    if situation.origin:
        tags.append(f"origin:{situation.origin}")
    return tags


def expected_of(term: Term) -> float:
    """Prior mean of a term's coefficient."""
    return 0.0 if term[2] else _EXPECTED.get(term[1], 0.0)


def terms_of(name: str, feature: str, tags: Sequence[str]) -> list[Term]:
    """Terms whose coefficients sum to the effective coefficient of a feature, for a kernel class under tags."""
    return [(name, feature, ""), *(t for tag in tags for t in terms_under_tag(name, feature, tag))]


def terms_under_tag(name: str, feature: str, tag: str) -> Iterator[Term]:
    """The term, if any, by which a feature of a kernel class may differ under a tag."""
    kind = tag.split(":")[0]
    family = FAMILY_OF[name]
    if feature not in _VARIES.get(kind, {}).get(family, ("one",)):
        return
    yield (f"family:{family}" if kind in _SHARED_BY_FAMILY else name), feature, tag


Array = NDArray[np.float64]


class Coefficients:
    """The fitted terms as arrays, for many GPUs at once.

    Parameters
    ----------
    terms : mapping of term to coefficient
    """

    def __init__(self, terms: Mapping[Term, float]) -> None:
        self._by_tag: dict[str, Array] = {}
        for (name, feature, tag), value in terms.items():
            row = self._by_tag.setdefault(tag, np.zeros(len(_PLACES)))
            for place in _places_of(name, feature):
                row[place] += value

    def weights(self, situations: Sequence[KernelContext]) -> dict[str, Array]:
        """Weight of each feature of each kernel class, shape (n_situations, n_features)."""
        found = np.zeros((len(situations), len(_PLACES)))
        for row, situation in zip(found, situations, strict=True):
            for tag in ("", *tags_of(situation)):
                if tag in self._by_tag:
                    row += self._by_tag[tag]
        return {name: found[:, columns] for name, columns in _COLUMNS_OF.items()}


_PLACES = {
    (name, feature): place
    for place, (name, feature) in enumerate(
        (name, feature) for name in KERNEL_CLASSES for feature in FEATURES_OF_FAMILY[FAMILY_OF[name]]
    )
}
_COLUMNS_OF = {
    name: [_PLACES[name, feature] for feature in FEATURES_OF_FAMILY[FAMILY_OF[name]]]
    for name in KERNEL_CLASSES
}


def _places_of(name: str, feature: str) -> list[int]:
    """Rows of the kernel classes that a term applies to: its own, or every class of a family."""
    names = [each for each in KERNEL_CLASSES if name in (each, f"family:{FAMILY_OF[each]}")]
    return [_PLACES[each, feature] for each in names if (each, feature) in _PLACES]


@dataclass(frozen=True, slots=True, eq=False)
class IterationParts:
    """GPU times of one CNN, in ms.

    `device_ms` has shape (n_situations, n_batches), `class_ms` gives the same by kernel class; `kernels` is the number
    of kernels that the host enqueues per iteration.
    """

    device_ms: Array
    class_ms: dict[str, Array]
    kernels: float


def iteration_parts(
    coefficients: Coefficients, kernels: Kernels, situations: Sequence[KernelContext], batch_sizes: Array
) -> IterationParts:
    """GPU time of one iteration on several GPUs and in several modes.

    Parameters
    ----------
    coefficients : Coefficients
    kernels : Kernels
    situations : sequence of KernelContext
    batch_sizes : ndarray, shape (n_batches,)
    """
    rates = _rates_of_all(situations)
    weights = coefficients.weights(situations)
    batches = np.asarray(batch_sizes, dtype=float)[None, :]
    class_ms: dict[str, Array] = {}
    for number in np.unique(kernels.kernel_class):
        name = KERNEL_CLASSES[number]
        of_class = kernels.kernel_class == number
        columns = {key: values[of_class][:, None] for key, values in kernels.columns.items()}
        features = kernel_features(name, columns, batches, rates)
        exponent = _weighted(weights[name], [features[each] for each in FEATURES_OF_FAMILY[FAMILY_OF[name]]])
        times = kernel_base_ms(FAMILY_OF[name], columns, batches, rates) * np.exp(exponent)
        class_ms[name] = np.einsum("k,gkb->gb", kernels.count[of_class], times)
    device_ms = sum(class_ms.values(), np.zeros((len(situations), batches.size)))
    return IterationParts(device_ms, class_ms, float(kernels.count.sum()))


def _rates_of_all(situations: Sequence[KernelContext]) -> Rates:
    """Peak rates of all GPUs and modes, each an array of shape (n_situations, 1, 1)."""
    rates = [rates_of(each.gpu, each.precision) for each in situations]
    columns: dict[str, Any] = {
        field.name: np.array([getattr(each, field.name) for each in rates])[:, None, None]
        for field in fields(Rates)
    }
    return Rates(**columns)


def _weighted(weights: Array, features: Sequence[Array]) -> Array:
    """Sum of weight x feature, shape (n_situations, n_kernels, n_batches) or what broadcasts to it."""
    total = np.zeros((len(weights), 1, 1))
    for weight, values in zip(weights.T, features, strict=True):
        if weight.any():
            total = total + weight[:, None, None] * values
    return total


def join_host(device_ms: Array, host_ms: Array) -> Array:
    """Smooth maximum of device and host time: the third root of their cubes' sum."""
    joined: Array = np.cbrt(device_ms**3 + host_ms**3)
    return joined
