"""A few small configurations."""

from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import proxy_table
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
