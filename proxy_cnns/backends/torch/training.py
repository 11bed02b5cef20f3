"""One training iteration of a whole CNN in PyTorch, built from its layer table or by the user's own function.

It trains with softmax cross-entropy on random labels, SGD with momentum, gradients set to None, random
images that lie on the device.
"""

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from predictor.cnns.torch_module import refuse_lazy
from predictor.errors import SchemaError
from proxy_cnns.backends.base import LEARNING_RATE, MOMENTUM, USER_CHANNELS, Program, user_cnn
from proxy_cnns.backends.graph import image_shape
from proxy_cnns.backends.torch.layers import network
from proxy_cnns.backends.torch.modes import autocast, gradient_scaler, tensor_layout
from proxy_cnns.configuration import Configuration


def training_program(
    configuration: Configuration, device: str, distribute: Callable[[Any], Any] = lambda model: model
) -> Program:
    """Build a CNN and what trains it; nothing runs yet. `distribute` wraps it to train with others.

    SchemaError if the layer table or the user's module cannot be run.
    """
    import torch

    model, shape = _model(configuration, device)
    layout = tensor_layout(configuration.mode)
    model = model.train().to(memory_format=layout)
    images = torch.randn(configuration.batch_size, *shape, device=device).contiguous(memory_format=layout)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise SchemaError(
            f"{configuration.subject.name!r} has no trainable parameter: there is nothing to train."
        )
    optimizer = torch.optim.SGD(parameters, lr=LEARNING_RATE, momentum=MOMENTUM[configuration.mode.optimizer])
    scaler = gradient_scaler(configuration.mode, device)
    context = autocast(configuration.mode, device.partition(":")[0])
    compiles = configuration.mode.capture == "compile"
    trained = compiled(model) if compiles else distribute(model)
    labels: list[Any] = []  # as many as the output has logits: known after the first forward pass

    def forward_and_backward() -> None:
        optimizer.zero_grad(set_to_none=True)
        with context:
            loss = _loss(trained(images), labels)
        (loss if scaler is None else scaler.scale(loss)).backward()

    def iterate() -> None:
        forward_and_backward()
        if scaler is None:
            optimizer.step()
        else:
            scaler.step(optimizer)
            scaler.update()

    def enqueue() -> None:
        forward_and_backward()
        scaler.unscale_(optimizer)
        optimizer.step()
        scaler.update()

    enqueues = None if scaler is None else enqueue
    if compiles:
        seconds: list[float] = []
        first = partial(_compile, iterate, seconds)
        return Program((iterate,), 1, enqueues, first, lambda: next(iter(seconds), None), forget_compiled)
    return Program((iterate,), 1, enqueues)


def compiled(model: Any) -> Any:
    """The model as ``torch.compile`` trains it, forward and backward, only for the sizes of its first call.

    Every configuration is compiled from scratch, so that its seconds are its own.
    """
    import torch

    forget_compiled()
    return torch.compile(model, dynamic=False)


def forget_compiled() -> None:
    """Drop all compiled code: many CNNs in one process would exceed PyTorch's limit of compilations."""
    import torch._dynamo

    torch._dynamo.reset()


def _compile(iterate: Callable[[], None], seconds: list[float]) -> None:
    """Run the first iteration, which finds nothing compiled on disk, and append its time to `seconds`."""
    from torch._inductor.utils import fresh_cache

    start = time.perf_counter()
    with fresh_cache():
        iterate()
    seconds.append(time.perf_counter() - start)


def _model(configuration: Configuration, device: str) -> tuple[Any, tuple[int, int, int]]:
    import torch

    subject = configuration.subject
    if subject.table is not None:
        return network(subject.table, device), image_shape(subject.table)
    model = user_cnn(subject, torch.nn.Module, "PyTorch", "torch.nn.Module")
    refuse_lazy(model, subject.name, USER_CHANNELS, subject.image_size)
    return model.to(device), (USER_CHANNELS, subject.image_size, subject.image_size)


def _loss(output: Any, labels: list[Any]) -> Any:
    """Sum of the cross-entropies of all outputs, such as auxiliary classifiers; labels are drawn at first use."""
    import torch

    outputs = [tensor.flatten(1) for tensor in _tensors(output)]
    if not outputs:
        raise SchemaError(f"the CNN's output is a {type(output).__name__} without a tensor of logits.")
    for logits in outputs[len(labels) :]:
        labels.append(torch.randint(logits.shape[1], (logits.shape[0],), device=logits.device))
    losses = [torch.nn.functional.cross_entropy(*pair) for pair in zip(outputs, labels, strict=True)]
    return losses[0] if len(losses) == 1 else sum(losses)


def _tensors(output: Any) -> Iterator[Any]:
    if hasattr(output, "flatten") and hasattr(output, "requires_grad"):
        yield output
    elif isinstance(output, dict | tuple | list):
        values = output.values() if isinstance(output, dict) else output
        yield from (tensor for value in values for tensor in _tensors(value))
