"""A mode in Chainer's terms: which precisions a device has, and Chainer's configuration while something runs.

- ``fp32``: float32 throughout, without TF32.
- ``tf32``: float32 tensors, multiplied as TF32 by cuBLAS and cuDNN (compute capability 8.0 and later).
- ``amp_fp16``: Chainer's `mixed16`: convolutions, linear layers and all maps in float16, batch norm's statistics and
  parameters in float32, and each float16 parameter updated through a float32 copy (`use_fp32_update`); the loss
  is not scaled. Unlike PyTorch's mixed precision, weights are kept in float16: no cast precedes a convolution.
- ``fp16``: Chainer's `float16`: parameters and their updates in float16, too.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from predictor.catalogue.modes import CHAINER, Mode, chainer_lacks
from predictor.errors import SchemaError
from proxy_cnns.backends.base import check_mode_of, precisions_on


def check_mode(mode: Mode, capability: tuple[int, int] | None) -> None:
    """Refuse a mode that cannot be measured on a GPU of this compute capability; None: on a CPU.

    SchemaError with what can be measured instead.
    """
    precisions = precisions_on(CHAINER["precision"], ("fp32",), capability)
    check_mode_of("Chainer", mode, precisions, capability)
    name = chainer_lacks(mode)
    if name is not None:
        choices = " or ".join(CHAINER[name])
        raise SchemaError(f"Chainer does not have {name} {getattr(mode, name)!r}: choose {choices}.")
    if mode.framework != "chainer" or mode.xla:
        raise SchemaError(f"framework {mode.framework!r}, xla {mode.xla}: this is Chainer, without XLA.")


@contextmanager
def configured(mode: Mode) -> Iterator[None]:
    """Set Chainer's configuration of this thread while something is built or run."""
    import chainer

    dtype = chainer.mixed16 if mode.precision == "amp_fp16" else numpy_dtype(mode)
    values = {"dtype": dtype, "autotune": mode.autotune, "train": True}
    with ExitStack() as stack:
        for name, value in values.items():
            stack.enter_context(chainer.using_config(name, value))
        yield


def numpy_dtype(mode: Mode) -> Any:
    """Type of the maps between layers."""
    import numpy

    return numpy.dtype("float16" if mode.precision in ("fp16", "amp_fp16") else "float32")


def multiply_as_tf32(allowed: bool) -> None:
    """Let CuPy's matrix products of float32 (linear layers; convolutions without cuDNN) run as TF32, or not."""
    from cupy._core import _routines_linalg, set_compute_type

    compute_type = "COMPUTE_TYPE_TF32" if allowed else "COMPUTE_TYPE_DEFAULT"
    set_compute_type("f", getattr(_routines_linalg, compute_type))
