"""A few small configurations."""

import json
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import proxy_table
from predictor.operators.operators import Operator, operators_of
from proxy_cnns.configuration import Configuration, Subject
from proxy_cnns.designs import operators_in

OPERATORS = tuple(
    Subject("operator", operator.name, operator.in_height or 1, operator=operator)
    for operator in operators_in(["conv2d 3 plain image: 3@32>8", "conv2d 1 plain: 8@16", "linear: 8@1>10"])
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


_TABLES = json.loads(Path(__file__).with_name("tables.json").read_text("utf-8"))
RARE = {
    line.split()[0].rstrip(":"): Rare(operators_in([line])[0], tuple(output), in_chainer)
    for line, output, in_chainer in _TABLES["rare operators"]
}
"""One table for both backends."""
