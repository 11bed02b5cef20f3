"""Rough estimates of how long a configuration runs on an H200 or a CPU, and how much memory it needs.

They decide what a preset leaves out and how long a plan takes. They are within a factor of two or three of measured
times, and are never written into a measurement table.
"""

from math import prod

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.models.compiled import compile_seconds
from predictor.operators.memory import peak_memory_gib
from predictor.operators.operators import operators_of
from predictor.operators.work import operator_work
from proxy_cnns.configuration import Configuration, Subject

SHORT_MS = (30.0, 300.0)
"""Iterations up to the first are measured before longer ones, and those up to the second before the rest."""

_BYTES_PER_S = 3e12
_FLOP_PER_S = {"fp32": 40e12, "tf32": 120e12, "fp16": 200e12, "amp_fp16": 200e12, "amp_bf16": 200e12}
_GROUPED = 5.0  # factor on bytes: weight gradients of grouped convolutions are slow
_CAST = 1.5  # factor on bytes: mixed precision also reads float32 weights and inputs
_LEAST_MS = 0.01  # launching the kernels of one operator
_CPU_BYTES_PER_S, _CPU_FLOP_PER_S = 1e10, 1e11  # of two to four cores

_LINK_BYTES_PER_S = 3e11
_SETUP_S = {"operator": 0.025, "proxy": 0.3, "target": 2.2, "all_reduce": 0.5}
"""Seconds to build, capture and settle one configuration, by kind."""
_ITERATIONS = {"operator": 10, "proxy": 30, "target": 30, "all_reduce": 30}
"""Iterations of warm-up and repeats together, by kind."""


def estimated_ms(subject: Subject, batch_size: int, mode: Mode, on_cpu: bool = False) -> float:
    """GPU time of one iteration (of an operator: forward and backward) on an H200, or its time on a CPU, in ms.

    A user's own CNN, which is not read before it runs, counts as ResNet-50.
    """
    if subject.message_bytes is not None:
        return max(_LEAST_MS, 1000 * 2 * subject.message_bytes / _LINK_BYTES_PER_S)
    half = _is_half(mode)
    element_bytes = 2 * _CAST if half else 4
    flop_per_s = _CPU_FLOP_PER_S if on_cpu else _FLOP_PER_S[mode.precision]
    bytes_per_s = _CPU_BYTES_PER_S if on_cpu else _BYTES_PER_S
    total = 0.0
    operators = {subject.operator: 1} if subject.operator is not None else operators_of(_table(subject))
    for operator, count in operators.items():
        flops, elements, fixed_elements, fixed_bytes, _, _ = operator_work(operator)
        slow = _GROUPED if (operator.groups or 1) > 1 else 1
        moved = batch_size * elements * slow * element_bytes + 4 * fixed_elements + fixed_bytes
        seconds = max(batch_size * flops / flop_per_s, moved / bytes_per_s)
        total += count * max(_LEAST_MS, 1000 * seconds)
    return total


def estimated_memory_gib(subject: Subject, batch_size: int, mode: Mode) -> float:
    """Device memory of a subject in GiB; an operator's is that of one copy: maps, their gradients, workspace."""
    if subject.operator is None:
        return peak_memory_gib(_table(subject), batch_size, mode)
    element_bytes = 2 if _is_half(mode) else 4
    sides = ("in", "out") if subject.operator.type != "optimizer" else ()
    dimensions = ("channels", "height", "width")  # of one image's maps, read and written
    maps = ((getattr(subject.operator, f"{side}_{name}") or 1 for name in dimensions) for side in sides)
    elements = sum(map(prod, maps))
    return (batch_size * 2 * elements * element_bytes + 16 * subject.operator.parameters) / 2**30 + 0.5


def estimated_seconds(configuration: Configuration) -> float:
    """Time of measuring one configuration on an H200, in s."""
    subject = configuration.subject
    one_ms = estimated_ms(subject, configuration.batch_size, configuration.mode)
    compile_s = compile_seconds(_table(subject)) if configuration.mode.capture == "compile" else 0.0
    return _SETUP_S[subject.kind] + compile_s + _ITERATIONS[subject.kind] * one_ms / 1000


def _is_half(mode: Mode) -> bool:
    return mode.precision.startswith(("amp", "fp16"))


def _table(subject: Subject) -> LayerTable:
    from predictor.cnns.zoo import zoo_cnn

    return subject.table if subject.table is not None else zoo_cnn("resnet50", subject.image_size)
