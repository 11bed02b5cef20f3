"""Chainer on cuDNN 9: the functions that Chainer used to call in CuPy, which dropped them.

Convolutions, batch norm and pooling run on cuDNN. Everything else in Chainer (activations, dropout, softmax, sums)
runs on CuPy's own kernels, as without cuDNN.

Chainer's own switches keep their meaning: `chainer.config.use_cudnn` ("never": im2col and GEMM),
`chainer.config.autotune` (False: the heuristic, True: every algorithm is tried once for each shape),
`chainer.config.cudnn_deterministic`, `chainer.config.use_cudnn_tensor_core` ("never": plain arithmetic) and
`chainer.backends.cuda.set_max_workspace_size`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any

from predictor.errors import SchemaError
from proxy_cnns.backends.chainer.cudnn.choice import Convolution
from proxy_cnns.backends.chainer.cudnn.library import Descriptor
from proxy_cnns.backends.chainer.cudnn.plans import SCALARS, CudnnPlans

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
    """What Chainer takes for the module ``cupy.cudnn``: names and signatures are those that Chainer calls."""

    def __init__(self, plans: CudnnPlans) -> None:
        self.plans = plans
        self.get_max_workspace_size = plans.get_max_workspace_size
        self.set_max_workspace_size = plans.set_max_workspace_size

    def convolution_forward(self, x: Any, W: Any, b: Any, y: Any, *window: Any, **how: Any) -> None:
        """Convolve `x` with `W`, add the bias `b` unless it is None, and write into `y`."""
        self._run("forward", (x.shape, W.shape, y.shape), (x, W, y), window, **how)
        if b is not None:
            self.plans.add_bias(b, y)

    def convolution_backward_data(self, W: Any, x: Any, b: Any, y: Any, *window: Any, **how: Any) -> None:
        """Write into `y` the gradient of a convolution's input; `x` is the gradient of its output."""
        self._run("backward_data", (y.shape, W.shape, x.shape), (W, x, y), window, **how)
        if b is not None:
            self.plans.add_bias(b, y)

    def convolution_backward_filter(self, x: Any, gy: Any, gW: Any, *window: Any, **how: Any) -> None:
        """Write into `gW` the gradient of a convolution's weights."""
        self._run("backward_filter", (x.shape, gW.shape, gy.shape), (x, gy, gW), window, **how)

    def _run(
        self,
        direction: str,
        shapes: tuple[Any, Any, Any],
        arrays: tuple[Any, Any, Any],
        window: tuple[Any, ...],
        *,
        auto_tune: bool,
        tensor_core: str,
        deterministic: bool = False,
        d_layout: int = _LAYOUT_NCHW,
        w_layout: int = _LAYOUT_NCHW,
    ) -> None:
        """Run one pass; `shapes` are those of input, weights and output, `window` padding, stride, dilation, groups."""
        if d_layout or w_layout:
            raise SchemaError(
                f"memory layouts {(d_layout, w_layout)}: Chainer's convolutions are measured only in NCHW."
            )
        pad, stride, dilation, groups = window
        x, w, y = (tuple(map(int, shape)) for shape in shapes)
        sizes = (_pair(pad), _pair(stride), _pair(dilation))
        convolution = Convolution(direction, x, w, y, *sizes, int(groups), arrays[2].dtype.name)
        how = {"autotune": bool(auto_tune), "deterministic": bool(deterministic)}
        self.plans.run(convolution, arrays, **how, tensor_core=tensor_core != "never")


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

    use_cudnn = chainer.config.use_cudnn
    return bool(use_cudnn == "always" or (use_cudnn == "auto" and level == ">=auto"))


def _pair(numbers: Sequence[int]) -> tuple[int, int]:
    height, width = numbers
    return int(height), int(width)


def _layout(layout: Any) -> int:
    if layout is not None:
        raise SchemaError(f"memory layout {layout}: Chainer's convolutions are measured only in NCHW.")
    return _LAYOUT_NCHW


CONSTANTS = SimpleNamespace(
    CUDNN_BATCHNORM_PER_ACTIVATION=0,
    CUDNN_BATCHNORM_SPATIAL=1,
    CUDNN_BATCHNORM_SPATIAL_PERSISTENT=2,
    CUDNN_BN_MIN_EPSILON=0.0,
    CUDNN_POOLING_MAX=0,
    CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING=1,
    CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING=2,
    CUDNN_POOLING_MAX_DETERMINISTIC=3,
)
"""cuDNN 9's numbers under the names that Chainer reads."""


class CudnnBatchNorm:
    """Batch norm as Chainer's function calls it."""

    def __init__(self, plans: CudnnPlans) -> None:
        self._plans = plans

    def batch_normalization_forward_training_ex(
        self,
        x: Any,
        gamma: Any,
        beta: Any,
        running_mean: Any,
        running_var: Any,
        mean: Any,
        inv_std: Any,
        eps: float,
        decay: float,
        is_for_conv2d: bool,
        cudnn_mode: int,
        debug: bool,  # noqa: ARG002 - CuPy's signature
        *,
        d_layout: int = 0,
    ) -> tuple[None, Any, Any, Any]:
        """Normalise a batch, and move the running statistics, in place, towards it.

        Gives no reserved space, the output, and what the gradient needs: the mean and the inverse standard deviation of
        each channel, in float32 where `x` is float16. SchemaError if `mean` or `inv_std` are given, which Chainer never
        does, or the layout is not NCHW; ProfilingError if cuDNN fails.
        """
        _check_layout(d_layout)
        if mean is not None or inv_std is not None:
            raise SchemaError("batch norm with statistics to write into: Chainer's own function gives none.")
        memory, maps = self._plans.memory, self._maps(x, is_for_conv2d)
        kind, at = _kind_of_parameters(x), memory.address
        y = memory.empty(maps.shape, x.dtype.name)
        saved = [memory.empty(gamma.shape, kind) for _ in range(2)]
        scale, bias = (self._typed(parameter, kind) for parameter in (gamma, beta))
        running = [(statistic, self._typed(statistic, kind)) for statistic in (running_mean, running_var)]
        described, derived = self._described(maps, cudnn_mode)
        self._plans.cudnn.call(
            "cudnnBatchNormalizationForwardTraining",
            *(self._plans.handle(), int(cudnn_mode), *SCALARS[x.dtype.name]),
            *(described.pointer, at(maps), described.pointer, at(y)),
            *(derived.pointer, at(scale), at(bias), 1.0 - float(decay)),
            *(at(running[0][1]), at(running[1][1]), float(eps), at(saved[0]), at(saved[1])),
        )
        for statistic, used in running:
            if used is not statistic:
                statistic[...] = used
        return None, y.reshape(x.shape), saved[0], saved[1]

    def batch_normalization_backward(
        self,
        x: Any,
        gamma: Any,
        gy: Any,
        mean: Any,
        inv_std: Any,
        eps: float,
        is_for_conv2d: bool,
        cudnn_mode: int,
        debug: bool,  # noqa: ARG002 - CuPy's signature
        *,
        d_layout: int = 0,
        reserve_space: Any = None,  # noqa: ARG002 - CuPy's signature
    ) -> tuple[Any, Any, Any]:
        """Gradients of the input (of its type), of gamma and of beta (of float32 where `x` is float16)."""
        _check_layout(d_layout)
        memory, maps = self._plans.memory, self._maps(x, is_for_conv2d)
        kind, at = _kind_of_parameters(x), memory.address
        gradient = self._maps(gy.astype(x.dtype, copy=False), is_for_conv2d)
        gx = memory.empty(maps.shape, x.dtype.name)
        ggamma, gbeta = (memory.empty(gamma.shape, kind) for _ in range(2))
        scale, mean, inv_std = (self._typed(vector, kind) for vector in (gamma, mean, inv_std))
        described, derived = self._described(maps, cudnn_mode)
        self._plans.cudnn.call(
            "cudnnBatchNormalizationBackward",
            *(self._plans.handle(), int(cudnn_mode), *SCALARS[x.dtype.name] * 2),
            *(described.pointer, at(maps), described.pointer, at(gradient), described.pointer, at(gx)),
            *(derived.pointer, at(scale), at(ggamma), at(gbeta), float(eps), at(mean), at(inv_std)),
        )
        return gx.reshape(x.shape), ggamma, gbeta

    def batch_normalization_forward_inference(
        self,
        x: Any,
        gamma: Any,
        beta: Any,
        mean: Any,
        var: Any,
        eps: float,
        is_for_conv2d: bool,
        cudnn_mode: int,
    ) -> Any:
        """Normalise with statistics that are given."""
        memory, maps = self._plans.memory, self._maps(x, is_for_conv2d)
        kind, at = _kind_of_parameters(x), memory.address
        y = memory.empty(maps.shape, x.dtype.name)
        parameters = [self._typed(vector, kind) for vector in (gamma, beta, mean, var)]
        described, derived = self._described(maps, cudnn_mode)
        self._plans.cudnn.call(
            "cudnnBatchNormalizationForwardInference",
            *(self._plans.handle(), int(cudnn_mode), *SCALARS[x.dtype.name]),
            *(described.pointer, at(maps), described.pointer, at(y)),
            *(derived.pointer, *map(at, parameters), float(eps)),
        )
        return y.reshape(x.shape)

    def _maps(self, x: Any, is_for_conv2d: bool) -> Any:
        """Lay `x` out as (batch, channels, height, width): vectors are maps of a single pixel."""
        x = self._plans.memory.contiguous(x)
        return x if is_for_conv2d else x.reshape(-1, x.shape[-1], 1, 1)

    def _typed(self, parameters: Any, kind: str) -> Any:
        """Give parameters in the type that cuDNN wants them in: themselves if they have it."""
        return self._plans.memory.contiguous(parameters.astype(kind, copy=False))

    def _described(self, maps: Any, mode: int) -> tuple[Descriptor, ...]:
        """Describe the maps, and the parameters that go with them."""
        shape, dtype = tuple(map(int, maps.shape)), maps.dtype.name

        def make() -> tuple[Descriptor, ...]:
            described = self._plans.cudnn.tensor(shape, dtype)
            return described, self._plans.cudnn.batch_norm(described, int(mode))

        return self._plans.kept(("batch norm", shape, dtype, mode), make)


class CudnnPooling:
    """Maximum and average pooling of maps (or volumes) as Chainer's functions call it."""

    def __init__(self, plans: CudnnPlans) -> None:
        self._plans = plans

    def pooling_forward(
        self, x: Any, y: Any, ksize: Sequence[int], stride: Sequence[int], pad: Sequence[int], mode: int
    ) -> None:
        """Pool `x` into `y`, whose size says whether windows may end beyond the padding (``cover_all``)."""
        memory = self._plans.memory
        x = memory.contiguous(x)
        pooling, inputs, outputs = self._described(x, y, (ksize, pad, stride), mode)
        unit, zero = SCALARS[x.dtype.name]
        self._plans.cudnn.call(
            "cudnnPoolingForward",
            *(self._plans.handle(), pooling, unit, inputs, memory.address(x)),
            *(zero, outputs, memory.address(y)),
        )

    def pooling_backward(
        self,
        x: Any,
        y: Any,
        gy: Any,
        ksize: Sequence[int],
        stride: Sequence[int],
        pad: Sequence[int],
        mode: int,
    ) -> Any:
        """Gradient of the input `x` of a pooling that gave `y`."""
        memory = self._plans.memory
        x, y, gy = (memory.contiguous(array) for array in (x, y, gy.astype(x.dtype, copy=False)))
        gx = memory.empty(x.shape, x.dtype.name)
        pooling, inputs, outputs = self._described(x, y, (ksize, pad, stride), mode)
        unit, zero = SCALARS[x.dtype.name]
        self._plans.cudnn.call(
            "cudnnPoolingBackward",
            *(self._plans.handle(), pooling, unit, outputs, memory.address(y), outputs, memory.address(gy)),
            *(inputs, memory.address(x), zero, inputs, memory.address(gx)),
        )
        return gx

    def _described(self, x: Any, y: Any, window: tuple[Sequence[int], ...], mode: int) -> list[Any]:
        """Pointers to the descriptors of the pooling (of window, padding, stride), its input and its output."""
        shapes = tuple(tuple(map(int, array.shape)) for array in (x, y))
        sizes = tuple(tuple(map(int, numbers)) for numbers in window)

        def make() -> tuple[Descriptor, ...]:
            cudnn = self._plans.cudnn
            tensors = (cudnn.tensor(shape, x.dtype.name) for shape in shapes)
            return cudnn.pooling(int(mode), *sizes), *tensors

        return [
            descriptor.pointer
            for descriptor in self._plans.kept(("pool", shapes, x.dtype.name, sizes, mode), make)
        ]


def _kind_of_parameters(x: Any) -> str:
    """Type of batch norm's parameters and statistics in cuDNN, by that of the maps."""
    return "float64" if x.dtype.name == "float64" else "float32"


def _check_layout(layout: int) -> None:
    if layout:
        raise SchemaError(f"memory layout {layout}: Chainer's batch norm is measured only in NCHW.")
