"""A single operator in PyTorch, forward and backward, as a training iteration of a whole CNN runs it.

How the time is made that of the operator inside a CNN:

- forward of several copies, then backward of all: together they exceed the L2 cache twice, so each finds its
  tensors as cold as a CNN's other layers leave them;
- the gradient that comes in is a tensor of its own, random; the gradients that go out are handed over, not added
  up (`torch.autograd.grad`), as after gradients set to None;
- an operator that runs in place does so on `aten::_unsafe_view` of its input: free, and not a leaf, which autograd
  would refuse. It overwrites the same numbers again and again: they settle (ReLU) or fade (SiLU), which no
  kernel's time depends on;
- an input that arrives in float32 under mixed precision without being the image comes from a layer norm, whose
  maps PyTorch leaves channels-last in memory whatever the mode; so does a layer scale's. A change of layout is
  between such maps, too, and therefore a view that takes no time: all but the first of ConvNeXt's permutes.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from math import ceil
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.operator_types import VOLUME_TYPES
from predictor.operators.operators import Operator
from proxy_cnns.backends.base import LEARNING_RATE, MOMENTUM, Program
from proxy_cnns.backends.layers import functions_of, input_shapes, n_copies, n_optimizer_copies
from proxy_cnns.backends.torch.layers import layer_module, shuffle_channels
from proxy_cnns.backends.torch.modes import autocast, gradient_scaler, narrow_dtype, tensor_layout

_MOST_OPTIMIZER_TENSORS = 2000
_ALIGNMENT = 128  # numbers: as far apart as tensors of their own begin


def operator_program(
    operator: Operator, mode: Mode, batch_size: int, device: str, cache_bytes: int
) -> Program:
    """Build copies of an operator with their inputs and incoming gradients, and run one of them once.

    Together the copies exceed a cache of `cache_bytes` twice. SchemaError if the operator cannot be run.
    """
    import torch

    if operator.type == "optimizer":
        return _optimizer_program(operator, mode, device, cache_bytes)
    dtype = torch.float32 if operator.wide_input else narrow_dtype(mode)
    copies = n_copies(operator, batch_size, dtype.itemsize, cache_bytes)
    functions = _functions(operator, mode, batch_size, device, copies)
    layer_scale = operator.type == "multiply" and operator.parameters > 0
    change_of_layout = operator.type == "permute" and not operator.groups
    of_layer_norm = operator.wide_input and operator.input_gradient
    channels_last = layer_scale or change_of_layout or of_layer_norm
    layout = torch.channels_last if channels_last else tensor_layout(mode)

    def leaf(shape: tuple[int, ...]) -> Any:
        x = torch.randn(shape, dtype=dtype, device=device)
        if len(shape) == 4 and operator.type not in ("linear", "layer_norm", "matmul", "attention"):
            x = x.to(memory_format=layout)  # a map of one position counts as contiguous either way
        elif len(shape) == 5 and layout is torch.channels_last:
            x = x.to(memory_format=torch.channels_last_3d)
        return x.requires_grad_(operator.input_gradient and operator.passes != "forward")

    inputs = [[leaf(shape) for shape in input_shapes(operator, batch_size)] for _ in functions]
    context = autocast(mode, device.partition(":")[0])
    return _program(operator, tuple(zip(functions, inputs, strict=True)), context)


_Calls = tuple[tuple[Callable[..., Any], list[Any]], ...]


@dataclass(frozen=True, slots=True)
class _Pass:
    """Forward and backward of some copies: what is called, and what backward needs and gives."""

    calls: _Calls
    aliases: bool
    context: AbstractContextManager[Any]
    learned: list[Any]
    gradients: list[Any]

    def forward(self) -> list[Any]:
        with self.context:
            if self.aliases:
                return [function(*[_alias(x) for x in inputs]) for function, inputs in self.calls]
            return [function(*inputs) for function, inputs in self.calls]

    def forward_and_backward(self) -> None:
        import torch

        outputs = self.forward()
        if self.learned:
            torch.autograd.grad(outputs, self.learned, self.gradients)

    def forward_alone(self) -> None:
        import torch

        with torch.no_grad():
            self.forward()


def _program(operator: Operator, calls: _Calls, context: AbstractContextManager[Any]) -> Program:
    """Run one copy to learn what gradient comes in, and put all copies together."""
    import torch

    aliases = operator.in_place and operator.input_gradient
    learned: list[list[Any]] = []
    for function, inputs in calls:
        tensors = (*inputs, *getattr(function, "parameters", tuple)())
        learned.append([tensor for tensor in tensors if tensor.requires_grad])
    if operator.passes == "forward":
        every = _Pass(calls, aliases, context, [], [])
        single = _Pass(calls[:1], aliases, context, [], [])
        return Program((every.forward_alone,), len(calls), first=single.forward_alone)
    first = _Pass(calls[:1], aliases, context, learned[0], []).forward()[0].detach()
    gradients = [torch.randn_like(first) if first.ndim else torch.ones_like(first) for _ in calls]
    del first
    every = _Pass(calls, aliases, context, [tensor for tensors in learned for tensor in tensors], gradients)
    single = _Pass(calls[:1], aliases, context, learned[0], gradients[:1])
    return Program((every.forward_and_backward,), len(calls), first=single.forward_and_backward)


def _alias(x: Any) -> Any:
    """Return the same memory as a tensor of its own, neither leaf nor view: may be overwritten, costs nothing."""
    import torch

    return torch.ops.aten._unsafe_view.default(x, x.shape)


def _functions(
    operator: Operator, mode: Mode, batch_size: int, device: str, copies: int
) -> list[Callable[..., Any]]:
    """The function of each copy: a module of its own where there are parameters."""
    import torch

    if operator.type == "loss":
        loss, sizes = torch.nn.functional.cross_entropy, (operator.in_channels or 1, (batch_size,))
        return [partial(loss, target=torch.randint(*sizes, device=device)) for _ in range(copies)]
    shuffle = partial(shuffle_channels, groups=operator.groups or 1)
    plain: dict[str, Callable[..., Any]] = {
        "add": torch.add,
        "multiply": torch.mul,
        "concat": lambda *maps: torch.cat(maps, 1),
        "matmul": torch.matmul,
        "attention": torch.nn.functional.scaled_dot_product_attention,
        # what a layer norm reads: a copy, unless the map lies so already
        "permute": shuffle if operator.groups else lambda x: x.permute(0, 2, 3, 1).contiguous(),
    }

    def layer() -> Any:
        module = layer_module(operator, device, operator.in_place)
        if tensor_layout(mode) is not torch.channels_last:
            return module
        volume = operator.type in VOLUME_TYPES
        return module.to(memory_format=torch.channels_last_3d if volume else torch.channels_last)

    return functions_of(operator, copies, plain, layer)


def _optimizer_program(operator: Operator, mode: Mode, device: str, cache_bytes: int) -> Program:
    """SGD's step over tensors of equal size; under fp16 with the unscaling of gradients and the scaler's update."""
    import torch

    copies = n_optimizer_copies(operator, cache_bytes, _MOST_OPTIMIZER_TENSORS)
    optimizers = [
        torch.optim.SGD(
            _trained_tensors(operator, device), lr=LEARNING_RATE, momentum=MOMENTUM[mode.optimizer]
        )
        for _ in range(copies)
    ]
    scaler = gradient_scaler(mode, device)

    def step() -> None:
        for optimizer in optimizers:
            if scaler is not None:
                scaler.unscale_(optimizer)
            optimizer.step()
        if scaler is not None:
            scaler.update()

    return Program((step,), copies)


def _trained_tensors(operator: Operator, device: str) -> list[Any]:
    """Parameters with gradients, cut from one piece of memory each: a thousand in a millisecond."""
    import torch

    n, size = operator.n_tensors, max(1, operator.parameters // operator.n_tensors)
    apart = ceil(size / _ALIGNMENT) * _ALIGNMENT
    values, gradients = torch.randn(2, n, apart, device=device)[:, :, :size]
    tensors = [value.detach().requires_grad_() for value in values]
    for tensor, gradient in zip(tensors, gradients, strict=True):
        tensor.grad = gradient
    return tensors
