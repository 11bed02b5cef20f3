"""Chainer's batch norm and pooling on cuDNN 9, through the legacy functions that CuPy used to call for them.

`CONSTANTS` stands for the numbers of ``cupy.cuda.cudnn`` that Chainer reads there (NVIDIA's cudnn_ops.h).
"""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from predictor.errors import SchemaError
from proxy_cnns.backends.chainer_cudnn_library import Descriptor
from proxy_cnns.backends.chainer_cudnn_plans import SCALARS, CudnnPlans

__all__ = ["CONSTANTS", "CudnnBatchNorm", "CudnnPooling"]

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
    """Batch norm as Chainer's function calls it.

    Parameters
    ----------
    plans : CudnnPlans
    """

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

        Returns
        -------
        tuple
            No reserved space, the output, and what the gradient needs: the mean and the inverse standard deviation of
            each channel, in float32 where `x` is float16.

        Raises
        ------
        SchemaError
            If `mean` or `inv_std` are given, which Chainer never does, or the layout is not NCHW.
        ProfilingError
            If cuDNN fails.
        """
        _check_layout(d_layout)
        if mean is not None or inv_std is not None:
            raise SchemaError("batch norm with statistics to write into: Chainer's own function gives none.")
        memory, maps = self._plans.memory, self._maps(x, is_for_conv2d)
        kind, at = _kind_of_parameters(x), memory.address
        y = memory.empty(maps.shape, x.dtype.name)
        saved = [memory.empty(gamma.shape, kind) for _ in range(2)]
        scale, bias = (self._typed(each, kind) for each in (gamma, beta))
        running = [(each, self._typed(each, kind)) for each in (running_mean, running_var)]
        described, derived = self._described(maps, cudnn_mode)
        self._plans.cudnn.call(
            "cudnnBatchNormalizationForwardTraining",
            *(self._plans.handle(), int(cudnn_mode), *SCALARS[x.dtype.name]),
            *(described.pointer, at(maps), described.pointer, at(y)),
            *(derived.pointer, at(scale), at(bias), 1.0 - float(decay)),
            *(at(running[0][1]), at(running[1][1]), float(eps), at(saved[0]), at(saved[1])),
        )
        for given, used in running:
            if used is not given:
                given[...] = used
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
        scale, mean, inv_std = (self._typed(each, kind) for each in (gamma, mean, inv_std))
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
        parameters = [self._typed(each, kind) for each in (gamma, beta, mean, var)]
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
    """Maximum and average pooling of maps (or volumes) as Chainer's functions call it.

    Parameters
    ----------
    plans : CudnnPlans
    """

    def __init__(self, plans: CudnnPlans) -> None:
        self._plans = plans

    def pooling_forward(
        self, x: Any, y: Any, ksize: Sequence[int], stride: Sequence[int], pad: Sequence[int], mode: int
    ) -> None:
        """Pool `x` into `y`, whose size says whether windows may end beyond the padding (``cover_all``)."""
        memory = self._plans.memory
        x = memory.contiguous(x)
        pooling, inputs, outputs = self._described(x, y, (ksize, pad, stride), mode)
        one, zero = SCALARS[x.dtype.name]
        self._plans.cudnn.call(
            "cudnnPoolingForward",
            *(self._plans.handle(), pooling, one, inputs, memory.address(x)),
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
        x, y, gy = (memory.contiguous(each) for each in (x, y, gy.astype(x.dtype, copy=False)))
        gx = memory.empty(x.shape, x.dtype.name)
        pooling, inputs, outputs = self._described(x, y, (ksize, pad, stride), mode)
        one, zero = SCALARS[x.dtype.name]
        self._plans.cudnn.call(
            "cudnnPoolingBackward",
            *(self._plans.handle(), pooling, one, outputs, memory.address(y), outputs, memory.address(gy)),
            *(inputs, memory.address(x), zero, inputs, memory.address(gx)),
        )
        return gx

    def _described(self, x: Any, y: Any, window: tuple[Sequence[int], ...], mode: int) -> list[Any]:
        """Pointers to the descriptors of the pooling (of window, padding, stride), its input and its output."""
        shapes = tuple(tuple(map(int, each.shape)) for each in (x, y))
        sizes = tuple(tuple(map(int, each)) for each in window)

        def make() -> tuple[Descriptor, ...]:
            cudnn = self._plans.cudnn
            tensors = (cudnn.tensor(shape, x.dtype.name) for shape in shapes)
            return cudnn.pooling(int(mode), *sizes), *tensors

        return [each.pointer for each in self._plans.kept(("pool", shapes, x.dtype.name, sizes, mode), make)]


def _kind_of_parameters(x: Any) -> str:
    """Type of batch norm's parameters and statistics in cuDNN, by that of the maps."""
    return "float64" if x.dtype.name == "float64" else "float32"


def _check_layout(layout: int) -> None:
    if layout:
        raise SchemaError(f"memory layout {layout}: Chainer's batch norm is measured in NCHW alone.")
