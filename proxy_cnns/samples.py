"""A sample of operators in every mode: one mode whole, of the others what carries its times over to them.

The time of an operator in another mode is that in TF32 times a ratio, which follows its type, its size and how its
channels are aligned. So TF32 gets most of the time, and each other mode a sample, nested in what TF32 measures: its
shapes are the first ones of a list whose every first part is spread over all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from predictor.catalogue.modes import Mode
from predictor.operator_types import OPERATOR_TYPES
from proxy_cnns.configuration import Subject

__all__ = ["SAMPLED_MODES", "Block", "sampled_blocks"]


@dataclass(frozen=True, slots=True)
class Block:
    """Subjects that are measured in one mode at one batch size."""

    mode: Mode
    batch_size: int
    subjects: tuple[Subject, ...]


@dataclass(frozen=True, slots=True)
class _Share:
    """Part of the list that a mode gets, of each shape at its first or second batch size.

    `products` of convolutions and dense layers, `others` of all else, as shares of those in the list; `slow` is the
    number of grouped convolutions where each costs 0.1 to 1.9 s at its first call: in channels-last and in fp16.
    """

    mode: Mode
    products: float
    others: float
    slow: int | None = None
    second: bool = False


_TF32 = Mode(precision="tf32")
_TF32_LAST = Mode(precision="tf32", memory_format="channels_last")
_BF16 = Mode(precision="amp_bf16")
_BF16_LAST = Mode(precision="amp_bf16", memory_format="channels_last")
_FP16 = Mode(precision="amp_fp16")
_FP16_LAST = Mode(precision="amp_fp16", memory_format="channels_last")
_FP32 = Mode(precision="fp32")

SAMPLED_MODES = (_TF32, _BF16_LAST, _BF16, _FP16, _FP32, _TF32_LAST, _FP16_LAST)
"""Modes of the sample, the one that others are carried over from first."""

_BATCH_SIZES = (64, 16, 128, 4, 512, 32)
"""Each shape is measured at two of them, three places apart: with as many rows, trees that learned from two batch sizes
of each shape missed the zoo's CNNs by 7 % at batch size 8, from all shapes at 64 and half of them at 16 by 10 %."""

_SHARES = (
    _Share(_TF32, 1.0, 0.7),
    _Share(_BF16_LAST, 0.4, 0.25, 16),
    _Share(_BF16, 0.3, 0.2),
    _Share(_FP32, 0.16, 0.02),
    _Share(_FP16, 0.12, 0.06, 8),
    _Share(_TF32_LAST, 0.22, 0.12, 8),
    _Share(_TF32, 0.6, 0.4, second=True),
    _Share(_BF16_LAST, 0.28, 0.16, 10, second=True),
    _Share(_BF16, 0.24, 0.14, second=True),
    _Share(_TF32_LAST, 0.12, 0.08, 4, second=True),
    _Share(_FP16, 0.06, 0.04, 4, second=True),
    _Share(_FP32, 0.1, 0.0, second=True),
    _Share(_FP16_LAST, 0.06, 0.03, 2),
    _Share(_TF32, 1.0, 0.7, second=True),
    _Share(_BF16_LAST, 0.4, 0.25, 16, second=True),
    _Share(_BF16, 0.3, 0.2, second=True),
)
"""What is measured, in this order: an early end leaves every mode coarse rather than a mode missing."""


def sampled_blocks(subjects: Sequence[Subject]) -> tuple[Block, ...]:
    """The sample, in the order to measure it in.

    Parameters
    ----------
    subjects : sequence of Subject
        Operators, in an order in which every first part is spread over the whole.
    """
    slow = [each for each in subjects if _is_grouped(each)]
    products = [each for each in subjects if _is_product(each) and not _is_grouped(each)]
    others = [each for each in subjects if not _is_product(each)]
    order = {subject: place for kind in (products, others, slow) for place, subject in enumerate(kind)}
    measured: set[tuple[Mode, int, Subject]] = set()
    blocks = []
    for share in _SHARES:
        part = _part(share, products, others, slow)
        for place, batch_size in enumerate(_BATCH_SIZES):
            first = (place - len(_BATCH_SIZES) // 2 * share.second) % len(_BATCH_SIZES)
            asked = (each for each in part if order[each] % len(_BATCH_SIZES) == first)
            new = tuple(each for each in asked if (share.mode, batch_size, each) not in measured)
            measured.update((share.mode, batch_size, each) for each in new)
            blocks.append(Block(share.mode, batch_size, new))
    return tuple(blocks)


def _part(
    share: _Share, products: Sequence[Subject], others: Sequence[Subject], slow: Sequence[Subject]
) -> list[Subject]:
    n_slow = round(share.products * len(slow)) if share.slow is None else share.slow
    parts = ((products, share.products * len(products)), (others, share.others * len(others)), (slow, n_slow))
    return [subject for some, n in parts for subject in some[: round(n)]]


def _is_product(subject: Subject) -> bool:
    return subject.operator is not None and OPERATOR_TYPES[subject.operator.type].product is not None


def _is_grouped(subject: Subject) -> bool:
    operator = subject.operator
    return (
        operator is not None and OPERATOR_TYPES[operator.type].is_convolution and (operator.groups or 1) > 1
    )
