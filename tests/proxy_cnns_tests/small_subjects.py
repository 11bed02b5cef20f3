"""A few small configurations."""

from collections.abc import Iterable
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import proxy_table
from predictor.operators.operators import Operator, operators_of
from proxy_cnns.configuration import Configuration, Subject
from proxy_cnns.designs import conv, conv_3d, linear

OPERATORS = tuple(
    Subject("operator", each.name, each.in_height or 1, operator=each)
    for each in (conv(3, 32, 8, (3, 3), first=True), conv(8, 16, 8, (1, 1)), linear(8, 10))
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
    found: dict[tuple[object, ...], Operator] = {}
    for operator in sorted((each for table in tables for each in operators_of(table)), key=_elements):
        window = (
            operator.kernel_height,
            operator.stride_height,
            operator.padding_height,
            operator.in_height == 1,
        )
        grouped = (operator.groups or 1) > 1
        flags = (operator.in_place, operator.wide_input, operator.input_gradient, operator.parameters > 0)
        found.setdefault((operator.type, operator.kind, operator.passes, grouped, *window, *flags), operator)
    return found.values()


def _elements(operator: Operator) -> int:
    return (operator.in_channels or 0) * (operator.in_height or 1) ** 2


def _from_to(type_: str, of: tuple[int, int, int], to: tuple[int, int, int], **more: Any) -> Operator:
    """An operator from one shape (channels, height, width) to another."""
    sides = {"in": of, "out": to}
    parts = ("channels", "height", "width")
    shape = {f"{side}_{part}": n for side, ns in sides.items() for part, n in zip(parts, ns, strict=True)}
    return Operator(type_, **shape, **more)


RARE = {
    "group_norm": _from_to("group_norm", (64, 8, 8), (64, 8, 8), parameters=128),
    "instance_norm": _from_to("instance_norm", (6, 8, 8), (6, 8, 8), parameters=12),
    "prelu": _from_to("prelu", (8, 4, 4), (8, 4, 4), parameters=8),
    "upsample": _from_to("upsample", (8, 4, 4), (8, 8, 8)),
    "clamp": _from_to("clamp", (8, 4, 4), (8, 4, 4)),
    "roll": _from_to("roll", (8, 4, 4), (8, 4, 4)),
    "mean": _from_to("mean", (8, 4, 4), (1, 4, 4)),
    "matmul": _from_to("matmul", (2 * 6, 5, 1), (2 * 7, 5, 1), groups=2),
    "attention": _from_to("attention", (2 * 6, 5, 1), (2 * 6, 5, 1), groups=2, kernel_height=5),
    "conv3d": conv_3d(3, (4, 6, 5), 6, (3, 3, 1), (1, 2, 1)),
    "conv_transpose3d": conv_3d(4, (2, 3, 4), 6, (1, 2, 4), (1, 2, 2), transposed=True),
    "lstm": _from_to("lstm", (6, 5, 1), (2 * 4, 5, 1), groups=2, parameters=2 * 4 * 4 * (6 + 4 + 2)),
    "gru": _from_to("gru", (6, 5, 1), (4, 5, 1), groups=1, parameters=3 * 4 * (6 + 4 + 2)),
    "conv1d": _from_to(
        "conv2d",
        (4, 1, 9),
        (6, 1, 9),
        groups=1,
        parameters=72,
        kernel_height=1,
        kernel_width=3,
        stride_height=1,
        stride_width=1,
        padding_width=1,
    ),
}
"""Operators that few CNNs have."""

RARE_OUTPUTS = {
    "group_norm": (2, 64, 8, 8),
    "instance_norm": (2, 6, 8, 8),
    "prelu": (2, 8, 4, 4),
    "upsample": (2, 8, 8, 8),
    "clamp": (2, 8, 4, 4),
    "roll": (2, 8, 4, 4),
    "mean": (2, 1, 4, 4),
    "matmul": (2, 2, 5, 7),
    "attention": (2, 2, 5, 6),
    "conv3d": (2, 6, 4, 3, 5),
    "conv_transpose3d": (2, 6, 2, 6, 8),
    "lstm": (2, 5, 8),
    "gru": (2, 5, 4),
    "conv1d": (2, 6, 1, 9),
}
"""Shape of the output of each, for two images."""
