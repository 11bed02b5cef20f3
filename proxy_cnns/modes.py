"""Which modes a framework can be measured in: checked before a device is opened, so a dry run refuses them, too.

Modes that depend on the GPU, such as TF32 on one before Ampere, are refused when the run opens it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib import import_module

from predictor.catalogue.devices import find_gpu, precisions_of
from predictor.catalogue.modes import Mode
from predictor.errors import SchemaError, UnknownGpuError
from predictor.measurements.table import canonical_gpu_name
from proxy_cnns.backends import check_framework
from proxy_cnns.configuration import ANY_GPU, Configuration
from proxy_cnns.device import gpu_names

CPU_PRECISIONS = ("fp32",)

_CHECKS = {"pytorch": "proxy_cnns.backends.torch.modes", "chainer": "proxy_cnns.backends.chainer.modes"}


def measurable_modes(
    modes: Sequence[Mode], device: str, *, precision_asked: bool = True, format_asked: bool = True
) -> list[Mode]:
    """Modes that the framework has on a device.

    A mode that it lacks is left out if its precision or memory format is a preset's default, unless none is left.
    `modes`: all of one framework. `device`: ``cpu``, or any other name for a GPU. `precision_asked`, `format_asked`:
    whether the precision and the memory format come from options, not from a preset. SchemaError if there is no such
    framework, or it lacks a precision or memory format of the options. The message says what it has.
    """
    kept: list[Mode] = []
    refused: list[SchemaError] = []
    for mode in modes:
        plain = replace(mode, memory_format="nchw")
        precision_lacks = _refusal(plain, device)
        error = precision_lacks or _refusal(mode, device)
        if error is None:
            kept.append(mode)
        elif precision_asked if precision_lacks else format_asked:
            raise error
        else:
            refused.append(error)
    if refused and not kept:
        raise refused[0]
    return kept


def modes_of_gpu(modes: Sequence[Mode]) -> list[Mode]:
    """Modes of a preset that this machine's GPUs have; all of them where no GPU of the catalogue is visible.

    Where TF32 is lacking, fp32 takes its place.
    """
    try:
        gpus = [find_gpu(canonical_gpu_name(name)) for name in dict.fromkeys(gpu_names() or ())]
    except UnknownGpuError:
        gpus = []
    if not gpus:
        return list(modes)
    precisions = set.intersection(*(set(precisions_of(gpu)) for gpu in gpus))
    if "tf32" not in precisions:
        modes = [replace(mode, precision="fp32") if mode.precision == "tf32" else mode for mode in modes]
    return list(dict.fromkeys(mode for mode in modes if mode.precision in precisions))


def refuse_captured_operators(configurations: Sequence[Configuration]) -> None:
    """Refuse operators with a capture that only whole CNNs have.

    SchemaError if an operator is to be compiled or run as a static graph; the message says what to measure instead.
    """
    operators = (config for config in configurations if config.subject.kind == "operator")
    captures = {configuration.mode.capture for configuration in operators}
    if "static_graph" in captures:
        raise SchemaError("a single operator has no static graph: measure operators with --capture eager.")
    if "compile" in captures:
        raise SchemaError(
            "a single operator is not compiled, since compiling joins operators: measure operators with --capture "
            "eager, whole CNNs with --preset targets:NAME --capture compile."
        )


def _refusal(mode: Mode, device: str) -> SchemaError | None:
    check_framework(mode.framework)
    try:
        if device == "cpu":
            if mode.precision not in CPU_PRECISIONS:
                words = ", ".join(CPU_PRECISIONS)
                raise SchemaError(
                    f"{mode.precision} is not measured on a CPU. Measured there: {words}; pass --precision."
                )
            if mode.capture == "graph":
                raise SchemaError("capture 'graph': a CPU has no graphs. Pass --capture eager.")
        if mode.framework in _CHECKS:
            check: Callable[..., None] = import_module(_CHECKS[mode.framework]).check_mode
            check(mode, None if device == "cpu" else ANY_GPU)
    except SchemaError as error:
        return error
    return None
