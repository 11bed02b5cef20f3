"""The situations that kernels run in, and the terms by which the model's coefficients differ between them.

Called by `design` (fitting) and `coefficients` (serving), so that both add up the same terms; calls rates. A *term*
is one coefficient, ``(class, feature, tag)``: the feature's law for that class of kernels, or, with a tag such as
``gpu:TU104, 40 SMs, 1.59 GHz`` or ``framework:pytorch``, how much it differs there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from predictor.gpus import Gpu, design_of
from predictor.roofline.features import FAMILY_OF
from predictor.roofline.rates import rates_of

__all__ = ["Situation", "Term", "expected_of", "tags_of", "terms_of", "terms_under_tag"]

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
# Tags whose level is shared by all kernel classes of a family, for want of data to tell them apart.
_SHARED_BY_FAMILY = ("kepler", "generation", "xla", "channels_last")


# A depthwise convolution's time went with the square root of the peak in experiments on PROFET's GPUs: halfway between
# what bandwidth and what the issue of instructions would allow. One CNN on one GPU cannot tell such a law.
_EXPECTED = {"issue_bound": 0.5}


@dataclass(frozen=True, slots=True)
class Situation:
    """All that decides the kernels' times besides the CNN and the batch size.

    `origin` is the source of single layers timed alone, whose instrument differs from a training loop's; their
    `framework` is empty. Both are told apart by tags of their own.
    """

    gpu: Gpu
    precision: str
    framework: str
    memory_format: str = "nchw"
    xla: bool = False
    origin: str = ""


def tags_of(situation: Situation) -> list[str]:
    """Tags under which coefficients may differ from the general law."""
    tags = [
        f"gpu:{design_of(situation.gpu)}",
        f"generation:{situation.gpu.generation}",
    ]
    if situation.gpu.generation == "kepler":  # so unlike all others that it must not pull the general law
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
    """The value that a fit draws a term's coefficient to, where the measurements do not tell it."""
    return 0.0 if term[2] else _EXPECTED.get(term[1], 0.0)


def terms_of(name: str, feature: str, tags: Sequence[str]) -> list[Term]:
    """Term whose coefficients add up to the effective one of a feature, for a class of kernels under tags."""
    return [(name, feature, ""), *(t for tag in tags for t in terms_under_tag(name, feature, tag))]


def terms_under_tag(name: str, feature: str, tag: str) -> Iterator[Term]:
    """The term, if any, by which a feature of a kernel class may differ under a tag."""
    kind = tag.split(":")[0]
    family = FAMILY_OF[name]
    if feature not in _VARIES.get(kind, {}).get(family, ("one",)):
        return
    yield (f"family:{family}" if kind in _SHARED_BY_FAMILY else name), feature, tag
