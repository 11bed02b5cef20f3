"""A single operator in Chainer, forward and backward, as a training iteration of a whole CNN runs it.

Forward of several copies, then backward of all: together they exceed the L2 cache twice, so each finds its
tensors as cold as a CNN's other layers leave them. Incoming gradients are random tensors of their own; outgoing
ones are handed over, not added up (`chainer.grad`). Chainer runs nothing in place and keeps every map in one
type, so an operator's `in_place` and `wide_input` change nothing here.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.operators.operators import Operator
from proxy_cnns.backends.base import Program
from proxy_cnns.backends.chainer.layers import layer_function, shuffle_channels
from proxy_cnns.backends.chainer.modes import numpy_dtype
from proxy_cnns.backends.chainer.training import make_optimizer
from proxy_cnns.backends.layers import functions_of, input_shapes, n_copies, n_optimizer_copies

_MOST_OPTIMIZER_TENSORS = 1000


def operator_program(
    operator: Operator, mode: Mode, batch_size: int, device: str, cache_bytes: int
) -> Program:
    """Build copies of an operator with their inputs and incoming gradients. Call it within `modes.configured`.

    Together the copies exceed a cache of `cache_bytes` twice. `device` is Chainer's name: ``@numpy`` or ``@cupy:0``.
    SchemaError if Chainer cannot run the operator.
    """
    import chainer

    target = chainer.get_device(device)
    target.use()
    if operator.type == "optimizer":
        return _optimizer_program(operator, mode, target, cache_bytes)
    shapes, dtype = input_shapes(operator, batch_size), numpy_dtype(mode)
    copies = n_copies(operator, batch_size, dtype.itemsize, cache_bytes)
    functions = _functions(operator, batch_size, target, copies)
    learns = operator.input_gradient and operator.passes != "forward"

    def variable(shape: tuple[int, ...]) -> Any:
        return chainer.Variable(target.xp.random.rand(*shape).astype(dtype), requires_grad=learns)

    inputs = [[variable(shape) for shape in shapes] for _ in functions]
    passes = _Passes(functions, inputs, target.xp)
    if operator.passes == "forward":
        return Program((passes.forward_alone,), copies)
    return Program((passes.forward, passes.backward), copies)


class _Passes:
    """Forward of all copies, then backward of all; the gradients that come in are drawn after the first forward."""

    def __init__(self, functions: list[Callable[..., Any]], inputs: list[list[Any]], xp: Any) -> None:
        self._calls = list(zip(functions, inputs, strict=True))
        self._xp = xp
        self._outputs: list[Any] = []
        self._gradients: list[Any] = []
        self._learned = [
            variable
            for function, variables in self._calls
            for variable in (*variables, *getattr(function, "params", tuple)())
            if variable.requires_grad
        ]

    def forward(self) -> None:
        import chainer

        self._outputs, xp = [function(*variables) for function, variables in self._calls], self._xp
        if not self._gradients:
            for output in self._outputs:
                values = xp.asarray(xp.random.rand(*output.shape)).astype(output.dtype)
                self._gradients.append(chainer.Variable(values))

    def backward(self) -> None:
        import chainer

        outputs, self._outputs = self._outputs, []
        if self._learned:
            chainer.grad(outputs, self._learned, self._gradients)

    def forward_alone(self) -> None:
        import chainer

        with chainer.no_backprop_mode():
            for function, variables in self._calls:
                function(*variables)


def _functions(operator: Operator, batch_size: int, target: Any, copies: int) -> list[Callable[..., Any]]:
    """The function of each copy: a link of its own where there are parameters."""
    import chainer.functions as F  # noqa: N812

    plain: dict[str, Callable[..., Any]] = {
        "add": lambda x, y: x + y,
        "multiply": lambda factors, x: factors * x,
        "matmul": F.matmul,
        "concat": lambda *parts: F.concat(parts, axis=1),
        "permute": lambda x: F.reshape(F.transpose(x, (0, 2, 3, 1)), (-1,)),  # of another order: a copy
    }
    if operator.groups:
        plain["permute"] = partial(shuffle_channels, groups=operator.groups)
    if operator.type == "loss":
        labels = target.xp.random.randint(0, operator.in_channels or 1, size=batch_size)
        plain["loss"] = partial(F.softmax_cross_entropy, t=labels.astype(target.xp.int32))

    def layer() -> Callable[..., Any]:
        on_maps = (operator.in_height, operator.in_width) != (1, 1)
        function = layer_function(operator, positionwise=on_maps)
        if hasattr(function, "to_device"):
            function.to_device(target)
        return function

    return functions_of(operator, copies, plain, layer)


def _optimizer_program(operator: Operator, mode: Mode, target: Any, cache_bytes: int) -> Program:
    """SGD's step over tensors of equal size, one kernel each, as Chainer updates."""
    copies = n_optimizer_copies(operator, cache_bytes, _MOST_OPTIMIZER_TENSORS)
    optimizers = [make_optimizer(_tensors(operator, mode, target), mode) for _ in range(copies)]

    def step() -> None:
        for optimizer in optimizers:
            optimizer.update()

    return Program((step,), copies)


def _tensors(operator: Operator, mode: Mode, target: Any) -> Any:
    """Make a link that has parameters with gradients, and nothing to run."""
    import chainer

    size = max(1, operator.parameters // operator.n_tensors)
    link = chainer.Link()
    with link.init_scope():
        for i in range(operator.n_tensors):
            values = target.xp.random.rand(size).astype(numpy_dtype(mode))
            setattr(link, f"tensor{i}", chainer.Parameter(values))
    for parameter in link.params():
        parameter.grad = target.xp.ones_like(parameter.array)
    return link
