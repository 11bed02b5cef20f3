"""A few small configurations."""

from collections.abc import Iterable

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import proxy_table
from predictor.operators.operators import Operator, operators_of
from proxy_cnns.configuration import Configuration, Subject
from proxy_cnns.operator_shapes import conv, linear

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
