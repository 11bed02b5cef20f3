"""Prototype: reads one training step, as a user's loop does it, without a GPU and without memory.

The step runs on fake tensors. Every operator is intercepted at dispatch, forward and backward as they run. An operator
of the backward pass is matched with that of the forward pass by the sequence number of its autograd node, so that
frozen, recomputed and repeated parts need not be said: what does not run is not counted.

Not done: answers from a `RecordedStep` (times of passes apart, memory, gradients' sums, kernels of the loss, of updates
beside the optimizer's and of gradients' gradients), a second run that tells which dimensions grow with the mini-batch,
steps whose tensors lie on a GPU, `torch.compile` and `DistributedDataParallel` inside the step.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from predictor.cnns.layer_table import Layer, LayerTable, TableWarning
from predictor.cnns.recorder import Recorder, recurrent_refusal, tensors_of
from predictor.errors import EpochcastError, SchemaError
from predictor.operator_types import OPERATOR_TYPES

if TYPE_CHECKING:
    import torch

__all__ = ["OptimizerStep", "RecordedLayer", "RecordedStep", "record"]

_CONVOLUTIONS = ("convolution", "convolution_overrideable", "cudnn_convolution", "mkldnn_convolution")
_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_MASKED = ("convolution_backward", "native_batch_norm_backward", "cudnn_batch_norm_backward")
_MASKED_NORMS = ("native_layer_norm_backward", "native_group_norm_backward")
_VIEWS_ALIASES = ("t", "view", "_unsafe_view", "transpose", "permute", "expand", "detach", "alias", "squeeze")
_ATTENTIONS = (
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
_RECURRENT = ("_cudnn_rnn", "mkldnn_rnn_layer", "_thnn_fused_lstm_cell", "_thnn_fused_gru_cell")
_TRUTHS = {
    "isnan": False,
    "isinf": False,
    "isfinite": True,
    "is_same_size": True,
    "ne": False,
    "isneginf": False,
}
_OF_TRUTHS = (
    "all",
    "any",
    "logical_not",
    "logical_or",
    "logical_and",
    "bitwise_or",
    "eq",
    "mul",
    "sum",
    "gt",
)
_LOSSES = ("nll_loss_forward", "nll_loss2d_forward")


@dataclass(slots=True)
class RecordedLayer:
    """A row of a layer table, and how often its passes ran in one step."""

    layer: Layer
    forwards: int = 1
    input_gradients: int = 0
    weight_gradients: int = 0
    recomputed: bool = False


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """One update: the optimizer's class, and the tensors and numbers that it updates."""

    name: str
    n_tensors: int
    parameters: int


@dataclass(slots=True)
class RecordedStep:
    """What one training step runs. `values_read` counts tensors whose numbers Python asked for (``.item()``)."""

    batch_size: int
    rows: list[RecordedLayer]
    optimizers: list[OptimizerStep]
    values_read: int
    warnings: tuple[TableWarning, ...]
    unmatched: Counter[str] = field(default_factory=Counter)
    updates: Counter[str] = field(default_factory=Counter)
    gradient_sums: int = 0
    precisions: Counter[str] = field(default_factory=Counter)
    memory_formats: Counter[str] = field(default_factory=Counter)

    def layer_table(self, cnn: str, image_size: int) -> LayerTable:
        """Rows as a layer table, which holds neither what is frozen nor what is recomputed."""
        return LayerTable(cnn, image_size, tuple(each.layer for each in self.rows), "torch", self.warnings)


def record(step: Callable[[], object], batch_size: int | None = None) -> RecordedStep:
    """Operators of a training step.

    Parameters
    ----------
    step : callable
        Does one iteration: forward, loss, backward, optimizer. Parameters, buffers and the state of optimizers are
        left as they were, gradients as after `zero_grad`; what it assigns otherwise is a fake tensor afterwards.
    batch_size : int, optional
        Images of the step; by default the first dimension of the first tensor of images that a layer reads.

    Raises
    ------
    SchemaError
        If the step fails on fake tensors, such as where shapes depend on numbers, or runs no layer.
    """
    import torch
    from torch.nn.modules import module as modules

    mode = _mode(torch)
    handles = [
        modules.register_module_forward_pre_hook(mode.enter),
        modules.register_module_forward_hook(mode.leave, always_call=True),
    ]
    with _kept_state() as optimizers:
        try:
            with (
                mode.fake,
                mode,
                _on_processor(torch),
                _autocast_on_processor(torch),
            ):
                step()
        except EpochcastError:
            raise
        except Exception as error:  # the user's own code may raise anything
            raise SchemaError(f"the step does not run without numbers: {_first_line(error)}.") from error
        finally:
            mode.restore()
            for handle in handles:
                handle.remove()
    found = _Reader(mode.events, batch_size).read(optimizers, mode.values_read)
    found.precisions, found.memory_formats = mode.precisions, mode.memory_formats
    return found


def _first_line(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [""])[0].rstrip(".")
    return f"{type(error).__name__}: {text}"


@dataclass(slots=True)
class _Event:
    """An operator that ran; `node` is the sequence number of the backward pass's node that ran it, or None."""

    operator: str
    arguments: dict[str, Any]
    result: Any
    is_view: bool
    made: int | None  # sequence number of the node that autograd made for it
    node: int | None
    recomputed: bool
    shapes: dict[int, tuple[int, ...]]
    path: tuple[tuple[str, bool], ...]


def _batch_norm_like(source: Any, *_: Any) -> tuple[Any, ...]:
    return (
        source.new_empty(source.shape),
        source.new_empty(source.shape[1]),
        source.new_empty(source.shape[1]),
    )


def _batch_norm_gradients_like(_gradient: Any, source: Any, *_: Any) -> tuple[Any, ...]:
    return _batch_norm_like(source)


_SHAPED: dict[str, Callable[..., Any]] = {
    "native_batch_norm": _batch_norm_like,
    "native_batch_norm_backward": _batch_norm_gradients_like,
}
"""Results of operators that fake tensors would take apart into many: half of the time of reading a ResNet."""


def _mode(torch: Any) -> Any:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

    checkpoint_file, engine_file = torch.utils.checkpoint.__file__, torch.autograd.graph.__file__

    class Intercept(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.fake = FakeTensorMode()
            self._twins: dict[int, tuple[Any, Any]] = {}
            self.events: list[_Event] = []
            self.precisions: Counter[str] = Counter()
            self.memory_formats: Counter[str] = Counter()
            self.values_read = 0
            self.gradients: dict[int, tuple[Any, Any]] = {}
            self._highest = torch.autograd._get_sequence_nr() - 1
            self._flags: set[int] = set()  # of GradScaler: whether a gradient is infinite
            self._made_by: dict[int, Any] = {}
            self.path: list[tuple[str, bool]] = []
            self._names: dict[int, str] = {}
            self._roots: list[str] = []

        def enter(self, module: Any, _args: Any) -> None:
            if isinstance(module, torch.nn.RNNBase):
                name = self._names.get(id(module), "")
                raise SchemaError(f"module {name!r}: {recurrent_refusal(type(module).__name__)}")
            if id(module) not in self._names:
                prefix = type(module).__name__
                prefix += f"_{len(self._roots)}" if prefix in self._roots else ""
                self._roots.append(prefix)
                self._names |= {
                    id(child): f"{prefix}.{path}".rstrip(".") for path, child in module.named_modules()
                }
            self.path.append((self._names[id(module)], not any(True for _ in module.children())))

        def leave(self, *_: Any) -> None:
            self.path.pop()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            space, _, name = func._schema.name.partition("::")
            if space in ("prim", "profiler"):
                return func(*args, **kwargs)
            operator = name[:-1] if name.endswith("_") else name
            if operator == "_local_scalar_dense":
                return self._value(args[0])
            node = torch._C._current_autograd_node()
            result = self._run(func, operator, args, kwargs)
            number = torch.autograd._get_sequence_nr() - 1
            made = number if number > self._highest else None
            self._highest = max(self._highest, number)
            arguments = {each.name: each.default_value for each in func._schema.arguments}
            arguments |= dict(zip(arguments, args, strict=False)) | kwargs
            if operator in _CONVOLUTIONS and node is None:
                source = arguments["input"]
                self.precisions[str(source.dtype).removeprefix("torch.")] += 1
                last = source.is_contiguous(memory_format=torch.channels_last) and not source.is_contiguous()
                self.memory_formats["channels_last" if last else "nchw"] += 1
            if operator == "_amp_foreach_non_finite_check_and_unscale":
                self._flags.add(id(arguments["found_inf"]))
            for tensor in tensors_of(arguments.values()):
                if isinstance(tensor, torch.nn.Parameter) and id(tensor) not in self.gradients:
                    self.gradients[id(tensor)] = (tensor, _real(tensor.grad))
            recomputed = node is not None and self._is_recomputed()
            shapes = {id(t): tuple(t.shape) for t in (*tensors_of(arguments.values()), *tensors_of(result))}
            of = None if node is None or recomputed else node._sequence_nr()
            self.events.append(
                _Event(
                    operator, arguments, result, func.is_view, made, of, recomputed, shapes, tuple(self.path)
                )
            )
            for place, tensor in enumerate(tensors_of(result)):
                self._made_by[id(tensor)] = func, args, kwargs, operator, place
                if func._schema.is_mutable:
                    del self._made_by[id(tensor)]
            return result

        def _is_recomputed(self) -> bool:
            """Whether checkpointing runs a part of the forward pass again, not the backward pass of that part."""
            files = (file for file in _files_running() if file in (checkpoint_file, engine_file))
            return bool(next(files, None) == checkpoint_file)

        def _run(self, func: Any, operator: str, args: Any, kwargs: Any) -> Any:
            """Run on fake twins of real tensors, which are never written: the results are theirs, or the originals."""
            flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
            faked = [self._faked(each) if isinstance(each, torch.Tensor) else each for each in flat]
            args, kwargs = torch.utils._pytree.tree_unflatten(faked, spec)
            result = _SHAPED[operator](*args) if operator in _SHAPED else func(*args, **kwargs)
            if not func._schema.is_mutable:
                return result
            originals = {id(twin): each for each, twin in zip(flat, faked, strict=True)}
            flat, spec = torch.utils._pytree.tree_flatten(result)
            return torch.utils._pytree.tree_unflatten([originals.get(id(each), each) for each in flat], spec)

        def _faked(self, tensor: Any) -> Any:
            if type(tensor).__name__ == "FakeTensor":
                return tensor
            if id(tensor) not in self._twins:
                self._twins[id(tensor)] = tensor, self.fake.from_tensor(tensor)
            return self._twins[id(tensor)][1]

        def _value(self, tensor: Any) -> Any:
            if id(tensor) in self._flags:
                return 0.0
            try:
                with _disable_current_modes():
                    return self._number(tensor).item()
            except LookupError:
                self.values_read += 1
            if tensor.dtype == torch.bool:
                return self._truth(tensor)
            return 1.0 if tensor.is_floating_point() else 1

        def _number(self, tensor: Any) -> Any:
            """The tensor itself, where it follows from constants, buffers and random numbers; else LookupError."""
            if type(tensor).__name__ != "FakeTensor":
                return tensor
            if tensor.numel() > 1:
                raise LookupError
            func, args, kwargs, _, place = self._made_by[id(tensor)]
            flat, spec = torch.utils._pytree.tree_flatten((args, kwargs))
            known = [self._number(each) if isinstance(each, torch.Tensor) else each for each in flat]
            args, kwargs = torch.utils._pytree.tree_unflatten(known, spec)
            return tensors_of(func(*args, **kwargs))[place]

        def _truth(self, tensor: Any) -> bool:
            """Answer whether numbers are finite; what else a step decides by numbers is not known."""
            operators, left = set(), [tensor]
            while left:
                _, args, _, operator, _ = self._made_by.get(id(left.pop()), (None, (), {}, "", 0))
                if operator in _TRUTHS:
                    return _TRUTHS[operator]
                operators.add(operator)
                left += tensors_of(args) if operator in _OF_TRUTHS else []
            raise SchemaError(
                "the step decides by numbers of its tensors, which have none here: "
                f"{', '.join(sorted(operators - {''})) or 'a tensor of yours'}. Record a step for each way that it can "
                "take, with the decision left out."
            )

        def restore(self) -> None:
            for parameter, gradient in self.gradients.values():
                parameter.grad = gradient

    return Intercept()


def _on_processor(torch: Any) -> Any:
    """Build the mode that leaves every tensor on the processor, wherever the step sends it: no GPU is needed."""
    from torch.overrides import TorchFunctionMode

    def here(value: Any) -> Any:
        is_device = isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda"))
        return "cpu" if is_device else value

    class OnProcessor(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.Tensor.cuda:
                return args[0]
            kwargs = {name: here(value) for name, value in (kwargs or {}).items()}
            if func in (torch.Tensor.to, torch.Tensor.pin_memory):
                args = tuple(map(here, args))
            return func(*args, **kwargs)

    return OnProcessor()


@contextmanager
def _autocast_on_processor(torch: Any) -> Iterator[None]:
    """Let autocast of a GPU be that of the processor, whose rules are much the same, where there is no GPU."""
    usual = torch.autocast.__init__

    def on_processor(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        usual(self, "cpu" if device_type == "cuda" else device_type, *args, **kwargs)

    torch.autocast.__init__ = on_processor
    try:
        yield
    finally:
        torch.autocast.__init__ = usual


def _real(gradient: Any) -> Any:
    return None if type(gradient).__name__ == "FakeTensor" else gradient


def _files_running() -> Iterator[str]:
    frame = sys._getframe(1)
    while frame is not None:
        yield frame.f_code.co_filename
        frame = frame.f_back  # type: ignore[assignment]


@contextmanager
def _kept_state() -> Iterator[list[OptimizerStep]]:
    """Collect the steps of optimizers, and put back the state that they had before."""
    steps: list[OptimizerStep] = []
    states: dict[int, tuple[Any, dict[Any, Any]]] = {}

    def before(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if id(optimizer) not in states:
            states[id(optimizer)] = optimizer, {key: dict(value) for key, value in optimizer.state.items()}
        trained = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        steps.append(OptimizerStep(type(optimizer).__name__, len(trained), sum(p.numel() for p in trained)))

    from torch.optim.optimizer import register_optimizer_step_pre_hook

    handle = register_optimizer_step_pre_hook(before)
    try:
        yield steps
    finally:
        handle.remove()
        for optimizer, state in states.values():
            optimizer.state.clear()
            optimizer.state.update(state)


def _saves_for_backward(event: _Event, following: _Event) -> bool:
    """Whether a copy is what autograd keeps of a tensor that the next operator overwrites: a part of that operator."""
    if event.operator != "clone" or following.node is not None:
        return False
    return following.result is event.arguments["self"]


class _Reader:
    """Turns events into rows, by the rules that read modules."""

    def __init__(self, events: list[_Event], batch_size: int | None) -> None:
        self.events = events
        self.rows: list[RecordedLayer] = []
        self.by_node: dict[int, int] = {}  # sequence number of a node -> the row whose gradient it computes
        self.batch_size = batch_size or self._first_batch()
        self.recorder = Recorder(self.batch_size)
        self.gradient_sums = 0
        self.unmatched: Counter[str] = Counter()
        self.updates: Counter[str] = Counter()
        self.produced = {id(t) for event in events for t in tensors_of(event.result)}
        self.weights: set[int] = set()

    def read(self, optimizers: list[OptimizerStep], values_read: int) -> RecordedStep:
        for event, following in zip(self.events, [*self.events[1:], None], strict=True):
            self._declare(event)
            if following is not None and _saves_for_backward(event, following):
                self._forward(replace(following, made=event.made and event.made - 1))
                following.operator = ""
            elif event.node is None and event.operator:
                self._forward(event)
            elif event.operator:
                self._backward(event)
        if not self.rows:
            raise SchemaError("the step runs no layer.")
        rows = [row for row in self.rows if row is not None]
        return RecordedStep(
            self.batch_size,
            rows,
            optimizers,
            values_read,
            tuple(self.recorder.warnings()),
            self.unmatched,
            self.updates,
            self.gradient_sums,
        )

    def _first_batch(self) -> int:
        for event in self.events:
            if event.operator in _CONVOLUTIONS:
                return int(event.shapes[id(event.arguments["input"])][0])
        for event in self.events:
            if event.operator in _PRODUCTS:
                return int(event.shapes[id(tensors_of(event.arguments.values())[-2])][0])
        raise SchemaError("the step runs no convolution and no linear layer: pass batch_size.")

    def _declare(self, event: _Event) -> None:
        """Tell parameters and images, which no operator of the step has made, from one another."""
        operator, recorder = event.operator, self.recorder
        tensors = tensors_of(event.arguments.values())
        for tensor in tensors:
            if type(tensor).__name__ == "Parameter" and id(tensor) not in self.weights:
                self.weights.add(id(tensor))
                recorder.parameter(tensor)
        source = self._source(operator, event.arguments, tensors)
        if source is not None and not recorder.is_map(source):
            recorder.image(source)
        for tensor in tensors:
            if id(tensor) in self.produced or id(tensor) in self.weights or recorder.is_map(tensor):
                continue
            shape = event.shapes[id(tensor)]
            if len(shape) >= 3 and tensor.is_floating_point() and shape[0] % self.batch_size == 0:
                recorder.image(tensor)

    def _source(self, operator: str, arguments: dict[str, Any], tensors: list[Any]) -> Any:
        """What a layer with weights reads, which is a map even if it is noise or trained itself."""
        if operator in _CONVOLUTIONS:
            return arguments["input"]
        if operator in ("mm", "addmm") and self.recorder.is_weights(tensors[-1]):
            return None if self.recorder.is_weights(tensors[-2]) else tensors[-2]
        return None

    def _forward(self, event: _Event) -> None:
        recorder, operator = self.recorder, event.operator
        recorder.path[:] = event.path
        if operator in _RECURRENT:
            raise recurrent_refusal(operator.strip("_"))
        tensors = tensors_of(event.arguments.values())
        if operator in _PRODUCTS and recorder.is_map(tensors[-2]) and recorder.is_weights(tensors[-1]):
            operator = "linear"
        if operator in _ATTENTIONS:
            operator = "scaled_dot_product_attention"
        if operator in _CONVOLUTIONS:
            operator = "convolution"
        if operator in _LOSSES:
            self._drop_softmax()
            return
        if tensors and id(tensors[0]) in self.weights and not any(map(recorder.is_map, tensors)):
            self.updates[operator] += 1
        before = len(recorder.rows)
        is_cast = operator == "_to_copy"  # of autocast: a part of the operators that read it
        recorder.record(operator, event.arguments, event.result, event.is_view or is_cast)
        for row in recorder.rows[before:]:
            self.rows.append(RecordedLayer(row, recomputed=event.recomputed))
        if event.made is not None and len(recorder.rows) > before:
            self.by_node[event.made] = len(self.rows) - 1

    def _drop_softmax(self) -> None:
        """The softmax of a loss is a part of it."""
        if self.rows and self.rows[-1].layer.kind == "softmax":
            self.rows[-1].forwards = 0

    def _backward(self, event: _Event) -> None:
        operator = event.operator
        if operator in _VIEWS_ALIASES:
            owned = self.recorder._owners.get(id(tensors_of(event.arguments.values())[0]))
            for tensor in tensors_of(event.result):
                if owned:
                    self.recorder._keep(tensor)
                    self.recorder._owners[id(tensor)] = dict(owned)
        row = self.by_node.get(event.node if event.node is not None else -1)
        if (
            event.made is not None and row is not None
        ):  # the gradient of a gradient, where a graph of it is kept
            self.by_node[event.made] = row
        if row is None:
            self.unmatched[operator] += 1
            return
        found = self.rows[row]
        if operator in _MASKED or operator in _MASKED_NORMS:
            mask = event.arguments["output_mask"]
            found.input_gradients += bool(mask[0])
            found.weight_gradients += bool(mask[1])
        elif operator in _CONVOLUTIONS:
            found.forwards += 1
        elif operator in _PRODUCTS:
            tensors = tensors_of(event.arguments.values())[-2:]
            if any(self.recorder.is_weights(tensor) for tensor in tensors):
                found.input_gradients += 1
            else:
                found.weight_gradients += 1
        elif operator == "add":
            self.gradient_sums += 1  # of a tensor that is read twice
        elif not event.is_view and operator not in _VIEWS_ALIASES and not self._is_masked(found):
            found.input_gradients = 1

    def _is_masked(self, row: RecordedLayer) -> bool:
        """Whether the operators of the backward pass say which gradients they compute."""
        entry = OPERATOR_TYPES[row.layer.type]
        return entry.product is not None or entry.weights is not None
