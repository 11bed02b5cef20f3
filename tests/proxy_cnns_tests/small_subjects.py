"""A few small configurations."""

from collections.abc import Iterable
from itertools import chain
from typing import NamedTuple

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import proxy_table
from predictor.operators.operators import Operator, operators_of
from proxy_cnns.configuration import Configuration, Subject
from proxy_cnns.designs import conv, from_to, linear, same_shape

OPERATORS = tuple(
    Subject("operator", operator.name, operator.in_height or 1, operator=operator)
    for operator in (conv(3, 32, 8, (3, 3), first=True), conv(8, 16, 8, (1, 1)), linear(8, 10))
)
TARGETS = tuple(Subject("target", name, 8, proxy_table("8_4_4")) for name in ("first", "second"))
SIZES = (4, 16, 64, 256)
TF32 = (Mode(precision="tf32"),)


def configurations_of(subjects, batch_sizes=SIZES, modes=TF32):
    return tuple(
        Configuration(subject, mode, batch_size)
        for mode in modes
        for batch_size in batch_sizes
        for subject in subjects
    )


def kinds_of_operator(*tables: LayerTable) -> Iterable[Operator]:
    """One operator of each kind that these CNNs have, the smallest: what differs in size alone runs alike."""
    operators: dict[tuple[object, ...], Operator] = {}
    for operator in sorted(chain.from_iterable(map(operators_of, tables)), key=_elements):
        kind = (operator.type, operator.kind, operator.passes, (operator.groups or 1) > 1)
        window = (
            operator.kernel_height,
            operator.stride_height,
            operator.padding_height,
            operator.in_height == 1,
        )
        flags = (operator.in_place, operator.wide_input, operator.input_gradient, operator.parameters > 0)
        operators.setdefault((*kind, *window, *flags), operator)
    return operators.values()


def _elements(operator: Operator) -> int:
    return (operator.in_channels or 0) * (operator.in_height or 1) ** 2


class Rare(NamedTuple):
    """An operator that few CNNs have, the shape of its output for two images, and whether Chainer runs it."""

    operator: Operator
    output: tuple[int, ...]
    in_chainer: bool = True


def _of_line(product: str, **columns: int) -> Operator:
    return from_to(product, (2 * 6, 5, 1), (columns.pop("out", 2 * 6), 5, 1), groups=2, **columns)


_WINDOW = {"kernel_height": 1, "kernel_width": 3, "stride_height": 1, "stride_width": 1, "padding_width": 1}
_LSTM, _GRU = 2 * 4 * 4 * (6 + 4 + 2), 3 * 4 * (6 + 4 + 2)
RARE = {
    "group_norm": Rare(same_shape("group_norm", 64, 8), (2, 64, 8, 8)),
    "instance_norm": Rare(same_shape("instance_norm", 6, 8), (2, 6, 8, 8), False),
    "prelu": Rare(same_shape("prelu", 8, 4, parameters=8), (2, 8, 4, 4)),
    "upsample": Rare(from_to("upsample", (8, 4, 4), (8, 8, 8)), (2, 8, 8, 8)),
    "upsample_nearest": Rare(from_to("upsample_nearest", (8, 4, 4), (8, 8, 8)), (2, 8, 8, 8), False),
    "upsample_bicubic": Rare(from_to("upsample_bicubic", (8, 4, 4), (8, 6, 8)), (2, 8, 6, 8), False),
    "clamp": Rare(same_shape("clamp", 8, 4), (2, 8, 4, 4)),
    "roll": Rare(same_shape("roll", 8, 4), (2, 8, 4, 4), False),
    "mean": Rare(from_to("mean", (8, 4, 4), (1, 4, 4)), (2, 1, 4, 4)),
    "matmul": Rare(_of_line("matmul", out=2 * 7), (2, 2, 5, 7)),
    "attention": Rare(_of_line("attention", kernel_height=5), (2, 2, 5, 6), False),
    "conv3d": Rare(conv(3, (4, 6, 5), 6, (3, 3, 1), (1, 2, 1)), (2, 6, 4, 3, 5)),
    "conv_transpose3d": Rare(conv(4, (2, 3, 4), 6, (1, 2, 4), (1, 2, 2), transposed=True), (2, 6, 2, 6, 8)),
    "lstm": Rare(from_to("lstm", (6, 5, 1), (8, 5, 1), groups=2, parameters=_LSTM), (2, 5, 8), False),
    "gru": Rare(from_to("gru", (6, 5, 1), (4, 5, 1), groups=1, parameters=_GRU), (2, 5, 4), False),
    "conv1d": Rare(from_to("conv2d", (4, 1, 9), (6, 1, 9), groups=1, parameters=72, **_WINDOW), (2, 6, 1, 9)),
}
"""One table for both backends."""
