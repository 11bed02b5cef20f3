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
from proxy_cnns.backends.chainer.cudnn.library import Descriptor
from proxy_cnns.backends.chainer.cudnn.plans import SCALARS, Arrays, Convolution, CudnnPlans

_LAYOUT_NCHW = 0
_POOLING = ("pooling.max_pooling_nd", "pooling.average_pooling_nd", "pooling.average_pooling_2d")
_CONVOLUTIONS = ("connection.convolution_2d", "connection.deconvolution_2d")
_ASKING = (*_CONVOLUTIONS, "normalization.batch_normalization", *_POOLING)
"""Modules of Chainer's functions that find cuDNN."""


class CudnnFunctions:
    """What Chainer takes for the module ``cupy.cudnn``: names and signatures are those that Chainer calls."""

    def __init__(self, plans: CudnnPlans) -> None:
        self.plans, self._memory = plans, plans.memory
        self.get_max_workspace_size = plans.get_max_workspace_size
        self.set_max_workspace_size = plans.set_max_workspace_size

    def convolution_forward(self, x: Any, W: Any, b: Any, y: Any, *window: Any, **how: Any) -> None:
        """Convolve `x` with `W`, add the bias `b` unless it is None, and write into `y`."""
        self._convolve("forward", (x, W, y), (x, W, y), *window, **how)
        if b is not None:
            self.plans.add_bias(b, y)

    def convolution_backward_data(self, W: Any, x: Any, b: Any, y: Any, *window: Any, **how: Any) -> None:
        """Write into `y` the gradient of a convolution's input; `x` is the gradient of its output."""
        self._convolve("backward_data", (y, W, x), (W, x, y), *window, **how)
        if b is not None:
            self.plans.add_bias(b, y)

    def convolution_backward_filter(self, x: Any, gy: Any, gW: Any, *window: Any, **how: Any) -> None:
        """Write into `gW` the gradient of a convolution's weights."""
        self._convolve("backward_filter", (x, gW, gy), (x, gy, gW), *window, **how)

    def _convolve(self, direction: str, operands: Arrays, arrays: Arrays, *window: Any, **how: Any) -> None:
        """Run one pass of input, weights and output; `window` is padding, stride, dilation and groups."""
        layouts = (how.get("d_layout", _LAYOUT_NCHW), how.get("w_layout", _LAYOUT_NCHW))
        if any(layouts):
            raise SchemaError(f"memory layouts {layouts}: Chainer's convolutions are measured only in NCHW.")
        *sides, groups = window
        x, w, y = (tuple(map(int, operand.shape)) for operand in operands)
        padding, stride, dilation = ((int(height), int(width)) for height, width in sides)
        kind = arrays[2].dtype.name
        convolution = Convolution(direction, x, w, y, padding, stride, dilation, int(groups), kind)
        allowed = {
            "deterministic": bool(how.get("deterministic")),
            "tensor_core": how["tensor_core"] != "never",
        }
        self.plans.run(convolution, arrays, autotune=bool(how["auto_tune"]), **allowed)

    def batch_normalization_forward_training_ex(
        self, x: Any, gamma: Any, beta: Any, *more: Any, d_layout: int = 0
    ) -> tuple[None, Any, Any, Any]:
        """Normalise a batch, and move the running statistics, in place, towards it.

        `more`: running mean and variance, mean and inverse standard deviation to write into, epsilon, decay, whether
        `x` are maps, mode, and whether Chainer debugs. Gives no reserved space, the output, and what the gradient
        needs: the mean and the inverse standard deviation of each channel, in float32 where `x` is float16.
        SchemaError if there are statistics to write into, which Chainer never gives, or the layout is not NCHW;
        ProfilingError if cuDNN fails.
        """
        running_mean, running_var, mean, inv_std, eps, decay, is_for_conv2d, mode, _ = more
        _check_layout(d_layout, "batch norm")
        if mean is not None or inv_std is not None:
            raise SchemaError("batch norm with statistics to write into: Chainer's own function gives none.")
        maps, empty = self._maps(x, is_for_conv2d), self._memory.empty
        y = empty(maps.shape, x.dtype.name)
        saved = [empty(gamma.shape, _kind_of_parameters(x)) for _ in range(2)]
        scale, bias, *used = self._typed(x, gamma, beta, running_mean, running_var)
        statistics = scale, bias, 1.0 - float(decay), *used, float(eps), *saved
        self._normalise("ForwardTraining", (maps, y), statistics, mode)
        for statistic, typed in zip((running_mean, running_var), used, strict=True):
            if typed is not statistic:
                statistic[...] = typed
        return None, y.reshape(x.shape), *saved

    def batch_normalization_backward(
        self, x: Any, gamma: Any, gy: Any, *more: Any, d_layout: int = 0, **_: Any
    ) -> tuple[Any, Any, Any]:
        """Gradients of the input (of its type), of gamma and of beta (of float32 where `x` is float16).

        `more`: mean, inverse standard deviation, epsilon, whether `x` are maps, mode, and whether Chainer debugs.
        """
        *saved, eps, is_for_conv2d, mode, _debug = more
        _check_layout(d_layout, "batch norm")
        maps, empty = self._maps(x, is_for_conv2d), self._memory.empty
        gradient = self._maps(gy.astype(x.dtype, copy=False), is_for_conv2d)
        gx = empty(maps.shape, x.dtype.name)
        ggamma, gbeta = (empty(gamma.shape, _kind_of_parameters(x)) for _ in range(2))
        scale, mean, inv_std = self._typed(x, gamma, *saved)
        self._normalise(
            "Backward", (maps, gradient, gx), (scale, ggamma, gbeta, float(eps), mean, inv_std), mode
        )
        return gx.reshape(x.shape), ggamma, gbeta

    def batch_normalization_forward_inference(self, x: Any, *more: Any) -> Any:
        """Normalise; `more`: gamma, beta, mean, variance, epsilon, whether `x` are maps, and mode."""
        *parameters, eps, is_for_conv2d, mode = more
        maps = self._maps(x, is_for_conv2d)
        y = self._memory.empty(maps.shape, x.dtype.name)
        self._normalise("ForwardInference", (maps, y), (*self._typed(x, *parameters), float(eps)), mode)
        return y.reshape(x.shape)

    def _maps(self, x: Any, is_for_conv2d: bool) -> Any:
        """Lay `x` out as (batch, channels, height, width): vectors are maps of a single pixel."""
        x = self._memory.contiguous(x)
        return x if is_for_conv2d else x.reshape(-1, x.shape[-1], 1, 1)

    def _typed(self, x: Any, *parameters: Any) -> list[Any]:
        """Give parameters in the type that cuDNN wants them in: themselves if they have it."""
        kind, contiguous = _kind_of_parameters(x), self._memory.contiguous
        return [contiguous(parameter.astype(kind, copy=False)) for parameter in parameters]

    def _normalise(self, name: str, maps: Sequence[Any], parameters: Sequence[Any], mode: int) -> None:
        """Run a pass on `maps` of one shape; `parameters` are arrays, and numbers that are handed over themselves."""
        plans, at = self.plans, self._memory.address
        shape, dtype = tuple(map(int, maps[0].shape)), maps[0].dtype.name

        def make() -> tuple[Descriptor, ...]:
            described = plans.cudnn.tensor(shape, dtype)
            return described, plans.cudnn.batch_norm(described, int(mode))

        described, derived = plans.kept(("batch norm", shape, dtype, mode), make)
        scalars = SCALARS[dtype] * (len(maps) - 1)  # for the maps, and for their parameters' gradients
        self._call(
            f"cudnnBatchNormalization{name}",
            *(int(mode), *scalars),
            *(argument for array in maps for argument in (described.pointer, at(array))),
            *(derived.pointer, *(value if isinstance(value, float) else at(value) for value in parameters)),
        )

    def pooling_forward(self, x: Any, y: Any, *window: Any) -> None:
        """Pool `x` into `y`, whose size says whether windows may end beyond the padding (``cover_all``).

        `window`: kernel, stride, padding and mode.
        """
        at, x = self._memory.address, self._memory.contiguous(x)
        pooling, inputs, outputs = self._described(x, y, *window)
        unit, zero = SCALARS[x.dtype.name]
        self._call("cudnnPoolingForward", pooling, unit, inputs, at(x), zero, outputs, at(y))

    def pooling_backward(self, x: Any, y: Any, gy: Any, *window: Any) -> Any:
        """Gradient of the input `x` of a pooling that gave `y`."""
        memory, at = self._memory, self._memory.address
        x, y, gy = (memory.contiguous(array) for array in (x, y, gy.astype(x.dtype, copy=False)))
        gx = memory.empty(x.shape, x.dtype.name)
        pooling, inputs, outputs = self._described(x, y, *window)
        unit, zero = SCALARS[x.dtype.name]
        operands = (outputs, at(y), outputs, at(gy), inputs, at(x))
        self._call("cudnnPoolingBackward", pooling, unit, *operands, zero, inputs, at(gx))
        return gx

    def _call(self, name: str, *arguments: Any) -> None:
        self.plans.cudnn.call(name, self.plans.handle(), *arguments)

    def _described(
        self, x: Any, y: Any, kernel: Sequence[int], stride: Sequence[int], padding: Sequence[int], mode: int
    ) -> list[Any]:
        """Pointers to the descriptors of the pooling, its input and its output."""
        shapes = [tuple(map(int, array.shape)) for array in (x, y)]
        key = ("pool", *shapes, x.dtype.name, *map(tuple, (kernel, padding, stride)), mode)

        def make() -> tuple[Descriptor, ...]:
            cudnn = self.plans.cudnn
            tensors = (cudnn.tensor(shape, x.dtype.name) for shape in shapes)
            return cudnn.pooling(int(mode), kernel, padding, stride), *tensors

        return [descriptor.pointer for descriptor in self.plans.kept(key, make)]


def enable(functions: CudnnFunctions) -> None:
    """Let Chainer's 2-D convolutions, batch norm and pooling run here; call it again to exchange `functions`.

    Chainer's other functions keep finding no cuDNN, so that they do not ask for what is not here.
    """
    import chainer
    from chainer.backends import cuda
    from chainer.functions.normalization import batch_normalization
    from chainer.functions.pooling import pooling_2d, pooling_nd

    cuda.cudnn = functions
    cuda.get_max_workspace_size = functions.get_max_workspace_size
    cuda.set_max_workspace_size = functions.set_max_workspace_size
    cuda.check_cuda_available._already_warned = True  # that there is no cuDNN
    cuda._get_cudnn_tensor_layout_x = cuda._get_cudnn_tensor_layout_w = _layout
    with_cudnn = _Overlaid(chainer, should_use_cudnn=_should_use_cudnn)
    for name in _ASKING:
        module = import_module(f"chainer.functions.{name}")
        vars(module).update(chainer=with_cudnn, _cudnn_version=functions.plans.cudnn.version)
    # batch norm and pooling read functions and numbers in CuPy's modules
    batch_normalization.cudnn, batch_normalization.libcudnn = functions, CONSTANTS
    pooling_2d.cudnn = pooling_nd.cudnn = functions
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


def _layout(layout: Any) -> int:
    if layout is not None:
        raise SchemaError(f"memory layout {layout}: Chainer's convolutions are measured only in NCHW.")
    return _LAYOUT_NCHW


_MODES = {
    "BATCHNORM": ("PER_ACTIVATION", "SPATIAL", "SPATIAL_PERSISTENT"),
    "POOLING": ("MAX", "AVERAGE_COUNT_INCLUDE_PADDING", "AVERAGE_COUNT_EXCLUDE_PADDING", "MAX_DETERMINISTIC"),
}
CONSTANTS = SimpleNamespace(
    CUDNN_BN_MIN_EPSILON=0.0,
    **{f"CUDNN_{of}_{name}": number for of, names in _MODES.items() for number, name in enumerate(names)},
)
"""cuDNN 9's numbers under the names that Chainer reads."""


def _kind_of_parameters(x: Any) -> str:
    """Type of batch norm's parameters and statistics in cuDNN, by that of the maps."""
    return "float64" if x.dtype.name == "float64" else "float32"


def _check_layout(layout: Any, function: str) -> None:
    if layout:
        raise SchemaError(f"memory layout {layout}: Chainer's {function} is measured only in NCHW.")
