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
    """Part of the list that a mode gets at a batch size.

    `products` of convolutions and dense layers, `others` of all else, as shares of those in the list; `slow` is the
    number of grouped convolutions where each costs 0.1 to 1.9 s at its first call: in channels-last and in fp16.
    """

    batch_size: int
    products: float
    others: float
    slow: int | None = None


_TF32 = Mode(precision="tf32")
_TF32_LAST = Mode(precision="tf32", memory_format="channels_last")
_BF16 = Mode(precision="amp_bf16")
_BF16_LAST = Mode(precision="amp_bf16", memory_format="channels_last")
_FP16 = Mode(precision="amp_fp16")
_FP16_LAST = Mode(precision="amp_fp16", memory_format="channels_last")
_FP32 = Mode(precision="fp32")

SAMPLED_MODES = (_TF32, _BF16_LAST, _BF16, _FP16, _FP32, _TF32_LAST, _FP16_LAST)
"""Modes of the sample, the one that others are carried over from first."""

_ROUNDS: tuple[tuple[Mode, tuple[_Share, ...]], ...] = (
    (_TF32, (_Share(64, 1.0, 0.6),)),
    (_BF16_LAST, (_Share(64, 0.4, 0.25, 16),)),
    (_BF16, (_Share(64, 0.3, 0.2),)),
    (_FP32, (_Share(64, 0.16, 0.02),)),
    (_FP16, (_Share(64, 0.12, 0.06, 8),)),
    (_TF32_LAST, (_Share(64, 0.22, 0.12, 8),)),
    (_TF32, (_Share(16, 0.4, 0.25),)),
    (_BF16_LAST, (_Share(16, 0.2, 0.12, 8),)),
    (_BF16, (_Share(16, 0.16, 0.1),)),
    (_TF32_LAST, (_Share(16, 0.1, 0.06, 3), _Share(256, 0.08, 0.05, 2))),
    (_FP16, (_Share(16, 0.04, 0.03, 3), _Share(256, 0.04, 0.03, 2))),
    (_FP32, (_Share(16, 0.06, 0.0), _Share(256, 0.06, 0.0))),
    (_TF32, (_Share(256, 0.35, 0.2),)),
    (_BF16_LAST, (_Share(256, 0.15, 0.08, 6),)),
    (_BF16, (_Share(256, 0.12, 0.06),)),
    (_FP16_LAST, (_Share(64, 0.06, 0.03, 2),)),
    (_TF32, (_Share(4, 0.2, 0.1), _Share(128, 0.2, 0.1))),
    (_BF16_LAST, (_Share(4, 0.06, 0.03, 2), _Share(128, 0.06, 0.03, 2))),
    (_BF16, (_Share(4, 0.06, 0.03), _Share(128, 0.06, 0.03))),
    (_TF32, (_Share(16, 0.65, 0.4), _Share(256, 0.5, 0.3))),
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
    order = {subject: place for place, subject in enumerate(subjects)}
    measured: dict[tuple[Mode, int], set[Subject]] = {}
    blocks = []
    for mode, shares in _ROUNDS:
        for share in shares:
            before = measured.setdefault((mode, share.batch_size), set())
            new = set(_part(share, products, others, slow)) - before
            before |= new
            blocks.append(Block(mode, share.batch_size, tuple(sorted(new, key=order.__getitem__))))
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
