"""Chainer on cuDNN 9: the functions that Chainer used to call in CuPy, which dropped them.

Batch norm and pooling are those of `chainer_cudnn_maps`. Everything else in Chainer (activations, dropout,
softmax, sums) runs on CuPy's own kernels, as without cuDNN.

Chainer's own switches keep their meaning: `chainer.config.use_cudnn` ("never": im2col and GEMM),
`chainer.config.autotune` (False: the heuristic, True: every algorithm is tried once for each shape),
`chainer.config.cudnn_deterministic`, `chainer.config.use_cudnn_tensor_core` ("never": plain arithmetic) and
`chainer.backends.cuda.set_max_workspace_size`.
"""

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from predictor.errors import SchemaError
from proxy_cnns.backends.chainer_cudnn_choice import Convolution
from proxy_cnns.backends.chainer_cudnn_maps import CONSTANTS, CudnnBatchNorm, CudnnPooling
from proxy_cnns.backends.chainer_cudnn_plans import CudnnPlans

__all__ = ["CudnnConvolutions", "enable"]

_LAYOUT_NCHW = 0
_POOLING = ("pooling.max_pooling_nd", "pooling.average_pooling_nd", "pooling.average_pooling_2d")
_ASKING = (
    "connection.convolution_2d",
    "connection.deconvolution_2d",
    "normalization.batch_normalization",
    *_POOLING,
)
"""Modules of Chainer's functions that find cuDNN."""


class CudnnConvolutions:
    """What Chainer takes for the module ``cupy.cudnn``: names and signatures are those that Chainer calls.

    Parameters
    ----------
    plans : CudnnPlans
    """

    def __init__(self, plans: CudnnPlans) -> None:
        self.plans = plans
        self.get_max_workspace_size = plans.get_max_workspace_size
        self.set_max_workspace_size = plans.set_max_workspace_size

    def convolution_forward(
        self,
        x: Any,
        W: Any,
        b: Any,
        y: Any,
        pad: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        *,
        auto_tune: bool,
        tensor_core: str,
        d_layout: int = _LAYOUT_NCHW,
        w_layout: int = _LAYOUT_NCHW,
    ) -> None:
        """Convolve `x` with `W`, add the bias `b` unless it is None, and write into `y`."""
        _check_layouts(d_layout, w_layout)
        shapes = (x.shape, W.shape, y.shape)
        asked = _asked("forward", shapes, pad, stride, dilation, groups, y)
        self.plans.run(asked, (x, W, y), autotune=bool(auto_tune), tensor_core=tensor_core != "never")
        if b is not None:
            self.plans.add_bias(b, y)

    def convolution_backward_data(
        self,
        W: Any,
        x: Any,
        b: Any,
        y: Any,
        pad: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        *,
        deterministic: bool,
        auto_tune: bool,
        tensor_core: str,
        d_layout: int = _LAYOUT_NCHW,
        w_layout: int = _LAYOUT_NCHW,
    ) -> None:
        """Write into `y` the gradient of a convolution's input; `x` is the gradient of its output."""
        _check_layouts(d_layout, w_layout)
        shapes = (y.shape, W.shape, x.shape)
        asked = _asked("backward_data", shapes, pad, stride, dilation, groups, y)
        how = {"autotune": bool(auto_tune), "deterministic": bool(deterministic)}
        self.plans.run(asked, (W, x, y), **how, tensor_core=tensor_core != "never")
        if b is not None:
            self.plans.add_bias(b, y)

    def convolution_backward_filter(
        self,
        x: Any,
        gy: Any,
        gW: Any,
        pad: Sequence[int],
        stride: Sequence[int],
        dilation: Sequence[int],
        groups: int,
        *,
        deterministic: bool,
        auto_tune: bool,
        tensor_core: str,
        d_layout: int = _LAYOUT_NCHW,
        w_layout: int = _LAYOUT_NCHW,
    ) -> None:
        """Write into `gW` the gradient of a convolution's weights."""
        _check_layouts(d_layout, w_layout)
        shapes = (x.shape, gW.shape, gy.shape)
        asked = _asked("backward_filter", shapes, pad, stride, dilation, groups, gW)
        how = {"autotune": bool(auto_tune), "deterministic": bool(deterministic)}
        self.plans.run(asked, (x, gy, gW), **how, tensor_core=tensor_core != "never")


def enable(convolutions: CudnnConvolutions) -> None:
    """Let Chainer's 2-D convolutions, batch norm and pooling run here; call it again to exchange `convolutions`.

    Chainer's other functions keep finding no cuDNN, so that they do not ask for what is not here.
    """
    import chainer
    from chainer.backends import cuda

    cuda.cudnn = convolutions
    cuda.get_max_workspace_size = convolutions.get_max_workspace_size
    cuda.set_max_workspace_size = convolutions.set_max_workspace_size
    cuda.check_cuda_available._already_warned = True  # that there is no cuDNN
    cuda._get_cudnn_tensor_layout_x = cuda._get_cudnn_tensor_layout_w = _layout
    with_cudnn = _Overlaid(chainer, should_use_cudnn=_should_use_cudnn)
    for name in _ASKING:
        module = import_module(f"chainer.functions.{name}")
        vars(module).update(chainer=with_cudnn, _cudnn_version=convolutions.plans.cudnn.version)
    _enable_maps(convolutions.plans, cuda)


def _enable_maps(plans: CudnnPlans, cuda: ModuleType) -> None:
    """Give Chainer's batch norm and pooling the functions and numbers that they read in CuPy's modules."""
    from chainer.functions.normalization import batch_normalization
    from chainer.functions.pooling import pooling_2d, pooling_nd

    batch_normalization.cudnn, batch_normalization.libcudnn = CudnnBatchNorm(plans), CONSTANTS
    pooling_2d.cudnn = pooling_nd.cudnn = CudnnPooling(plans)
    with_numbers = _Overlaid(cuda, cuda=SimpleNamespace(cudnn=CONSTANTS))
    for name in _POOLING:
        import_module(f"chainer.functions.{name}").cuda = with_numbers  # type: ignore[attr-defined]


class _Overlaid(ModuleType):
    """A module as others of Chainer's see it: its own names, but for some that are given."""

    def __init__(self, below: ModuleType, **names: Any) -> None:
        super().__init__(below.__name__)
        vars(self).update(names, _below=below)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["_below"], name)


def _should_use_cudnn(level: str, lowest_version: int = 0) -> bool:  # noqa: ARG001 - Chainer's signature
    """Answer as Chainer's function of this name does where CuPy has cuDNN."""
    import chainer

    wanted = chainer.config.use_cudnn
    return bool(wanted == "always" or (wanted == "auto" and level == ">=auto"))


def _asked(
    direction: str,
    shapes: tuple[Any, Any, Any],
    pad: Sequence[int],
    stride: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    result: Any,
) -> Convolution:
    x, w, y = (tuple(map(int, shape)) for shape in shapes)
    window = (_pair(pad), _pair(stride), _pair(dilation))
    return Convolution(direction, x, w, y, *window, int(groups), result.dtype.name)


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    height, width = numbers
    return int(height), int(width)


def _layout(layout: Any) -> int:
    if layout is not None:
        raise SchemaError(f"memory layout {layout}: Chainer's convolutions are measured in NCHW alone.")
    return _LAYOUT_NCHW


def _check_layouts(*layouts: int) -> None:
    if any(layouts):
        raise SchemaError(f"memory layouts {layouts}: Chainer's convolutions are measured in NCHW alone.")
