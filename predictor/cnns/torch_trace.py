"""Follows PyTorch while a training step runs without a GPU, without memory and without numbers.

Every operator is intercepted at dispatch, forward and backward, as it will run: on fake tensors, which have a device
and autocast, or on the *meta* device, which computes only shapes and is faster. An operator of the backward pass knows
the autograd node that ran it, and so the operator whose gradient it computes.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import partial, wraps
from types import ModuleType
from typing import Any
from weakref import WeakSet

from predictor.catalogue.modes import Habits
from predictor.cnns.recorder import RECURRENT, RULES, tensors_of
from predictor.cnns.torch_kept import BOXES_PER_IMAGE, COMPARED, DECIDED, Kept, has_masks
from predictor.cnns.torch_recurrent import packed_refusal, run_recurrent
from predictor.cnns.torch_updates import Rehearsal, Update, following_optimizers
from predictor.cnns.untouched import Note
from predictor.errors import BackendUnavailableError, SchemaError

CONVOLUTIONS = ("convolution", "convolution_overrideable", "cudnn_convolution", "mkldnn_convolution")
"""Names of convolutions at dispatch, by what PyTorch was built with."""

_NOT_FINITE = {"isnan", "isinf", "isneginf", "isposinf"}
_SAME_TRUTH = {
    "all", "any", "amax", "max", "_is_any_true", "_is_all_true", "_to_copy", "view", "squeeze", "detach",
}  # fmt: skip
_BOTH, _EITHER = {"logical_and", "bitwise_and", "mul"}, {"logical_or", "bitwise_or"}
_TRUTHS_OF_TRUTHS = {*_SAME_TRUTH, *_BOTH, *_EITHER, "logical_not", "bitwise_not", "eq", "gt", "sum"}

_LARGE = 1_000.0
"""A bound that a loss or norm usually stays below, in a guard that lets no larger one pass."""

_ORDERS = {"ge", "gt", "le", "lt"}

_ASSIGNS = "linear_sum_assignment"
"""Function of scipy that pairs each prediction with one target."""

_DRAWN_IN_PLACE = ("bernoulli_", "normal_", "random_", "uniform_")

_MOST_NUMBERS = 5_000
"""Numbers that a step may read; one that reads more loops until a number is small, which it never becomes."""

_COMPILED = "_TorchDynamoContext.__call__.<locals>"
"""Begins the name of the function that `torch.compile` makes."""

_MOST_COMPUTED = 4_096
"""Numbers of a tensor that are computed from constants, such as boxes of the targets, to know what a step does."""

_Replacement = tuple[Any, str, Callable[..., Any]]
"""A class or module, the name of one of its functions, and what runs in its place."""


@dataclass(slots=True)
class Event:
    """An operator that ran.

    `made` are the sequence numbers of the autograd nodes made for it, `node` that of the node that ran it in the
    backward pass, or None. `part_of` is the composite operator whose part it is. `checkpoint` is the number, from 1, of
    the part of the forward pass that gradient checkpointing will run again, 0 for none; `recomputed`: this is the run
    again; `compiled`: a function that `torch.compile` made runs it; `of_optimizer`: an optimizer runs it; `in_float32`:
    a GPU computes it in float32 in every mode. `shapes` are those of its tensors as it ran, by their ids.
    """

    operator: str
    arguments: dict[str, Any]
    result: Any
    made: range
    path: tuple[tuple[str, bool], ...]
    shapes: dict[int, tuple[int, ...]]
    is_view: bool = False
    node: int | None = None
    part_of: str | None = None
    checkpoint: int = 0
    compiled: bool = False
    recomputed: bool = False
    of_optimizer: bool = False
    in_float32: bool = False


@dataclass(slots=True)
class Trace:
    """What a step ran; `n_forward` of the events are those of the callable without what follows it.

    `waits` are the numbers of events before which the host waits for numbers of the GPU; `has_stand_ins`: numbers that
    are not there decide how much is kept (`Kept`).
    `own_updates`: how often the step writes parameters itself after a backward pass, without an optimizer of PyTorch.
    `freed` holds how many events ran before the gradient of a parameter, by its id, was set to None; `saved` how many
    ran before autograd kept a storage for the backward pass, the storage, and the node that keeps it.
    `has_data_parallel`: `torch.nn.DataParallel` runs.
    `assumed` names the operators of what is true while losses and gradients are finite, by which the step decides;
    `assumptions` say what else is taken to run otherwise than here; `habits` are the switches that were on.
    """

    events: list[Event]
    updates: list[Update]
    n_forward: int
    waits: list[int]
    has_stand_ins: bool
    freed: dict[int, int]
    saved: list[tuple[int, int, int]]
    own_updates: int = 0
    has_data_parallel: bool = False
    assumed: frozenset[str] = frozenset()
    assumptions: tuple[str, ...] = ()
    habits: Habits = Habits()  # noqa: RUF009 - a tuple


def storage_of(tensor: Any) -> int:
    """Number of the memory that a tensor and its views share."""
    return int(tensor.untyped_storage()._cdata)


def import_torch() -> Any:
    """PyTorch; BackendUnavailableError with how to install it."""
    try:
        import torch
    except ImportError as error:
        raise BackendUnavailableError("PyTorch is not installed: pip install 'epochcast[torch]'") from error
    return torch


def traced(
    run: Callable[[], object],
    then: Callable[[Any], object] | None = None,
    path: list[tuple[str, bool]] | None = None,
    *,
    on_meta: bool = False,
    note: Note | None = None,
    boxes_per_image: int = BOXES_PER_IMAGE,
) -> Trace:
    """Operators that a callable runs.

    `then`: takes its result, and runs more. `path`: modules that are running; after an error, those that were.
    `on_meta`: the callable's tensors are on the *meta* device; else they are real or fake, on any device. `note`:
    called with every module, parameter and optimizer before it changes. The path is then kept here, for any module;
    else whoever calls keeps it. `boxes_per_image`: objects in an image, where numbers decide what is kept. Runs within
    `untouched`, one at a time: functions and hooks of PyTorch, which all threads share, are replaced.
    """
    torch = import_torch()
    path = [] if path is None else path
    mode = _intercepting(torch, path, on_meta, note or (lambda _: None), boxes_per_image)
    updates: list[Update] = []
    freed: dict[int, int] = {}
    handles = _follow_modules(torch, mode, note) if note else []
    optimizers = following_optimizers(updates, mode, note) if note else nullcontext()
    ours = [*_freeing(torch, mode.events, freed), *_loading(torch)] if note else []
    saved: list[tuple[int, int, int]] = []

    def keep(tensor: Any) -> Any:
        node = int(torch.autograd._get_sequence_nr()) - 1
        saved.append((len(mode.events), storage_of(tensor), node))
        return tensor

    keeping = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    try:
        with (
            _uncompiled(torch),
            mode.twins,
            mode,
            _around(torch, mode, on_meta),
            _replaced(mode, ours),
            optimizers,
            keeping,
        ):
            result = run()
            n_forward = len(mode.events)
            if then is not None:
                then(result)
    finally:
        for handle in handles:
            handle.remove()
    is_deterministic = torch.are_deterministic_algorithms_enabled()
    fills = is_deterministic and torch.utils.deterministic.fill_uninitialized_memory
    return Trace(
        mode.events, updates, n_forward, mode.waits, mode.kept.is_used, freed, saved, mode.own_updates,
        mode.has_data_parallel, frozenset(mode.assumed), tuple(sorted(mode.assumptions)),
        Habits(fills, mode.detects_anomaly),
    )  # fmt: skip


@contextmanager
def _uncompiled(torch: Any) -> Iterator[None]:
    """Run what `torch.compile` made operator by operator."""
    has_compiled = "torch._dynamo" in sys.modules
    with (
        warnings.catch_warnings(),
        torch.compiler.set_stance("force_eager") if has_compiled else nullcontext(),
    ):
        warnings.filterwarnings("ignore", "Using `torch.compile.* global hooks")
        yield


def _follow_modules(torch: Any, mode: Any, note: Note) -> list[Any]:
    """Keep the path of the running module, whose name the rows get; several root modules get different names."""
    names: dict[int, str] = {}
    roots: list[str] = []

    def enter(module: Any, _args: Any) -> None:
        if not mode.is_on():
            return
        note(module)
        if id(module) not in names:
            root = getattr(module, "_orig_mod", module)  # of a compiled one
            prefix = type(root).__name__
            prefix += f"_{len(roots)}" if prefix in roots else ""
            roots.append(prefix)
            names.update({id(inner): f"{prefix}.{at}".rstrip(".") for at, inner in root.named_modules()})
            names[id(module)] = prefix
        mode.path.append((names[id(module)], not any(True for _ in module.children())))

    def leave(*_: Any) -> None:
        if mode.is_on():
            mode.path.pop()

    modules = torch.nn.modules.module
    return [modules.register_module_forward_pre_hook(enter), modules.register_module_forward_hook(leave)]


def _composites(torch: Any) -> dict[Any, tuple[str, tuple[str, ...]]]:
    """Operators that PyTorch takes apart before dispatch but that are one row: their names and arguments."""
    functional, of_layer = torch.nn.functional, ("input", "weight", "bias")
    products = torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__
    attention = functional.scaled_dot_product_attention
    return {
        functional.linear: ("linear", of_layer),
        **dict.fromkeys(products, ("matmul", ("input", "other"))),
        torch.instance_norm: ("instance_norm", of_layer),
        torch.channel_shuffle: ("channel_shuffle", ("input", "groups")),
        attention: (attention.__name__, ("query", "key", "value")),
    }


def _batch_norm_like(source: Any, *_: Any) -> tuple[Any, ...]:
    channels = source.shape[1]
    return import_torch().empty_like(source), source.new_empty(channels), source.new_empty(channels)


def _ctc_loss(scores: Any, targets: Any, *_: Any) -> tuple[Any, Any]:
    """Losses of texts, and the sums over all alignments, which the backward pass reads."""
    positions, texts, _ = scores.shape
    longest = targets.shape[1] if targets.ndim > 1 else targets.shape[0] // texts
    return scores.new_empty(texts), scores.new_empty(texts, positions, 2 * longest + 1)


_SHAPED: dict[str, Callable[..., tuple[Any, ...]]] = {
    "native_batch_norm": _batch_norm_like,
    "native_batch_norm_backward": lambda _gradient, source, *_: _batch_norm_like(source),
    "roi_align": lambda maps, boxes, _, height, width, *__: maps.new_empty(
        (boxes.shape[0], maps.shape[1], height, width)
    ),
    "_roi_align_backward": lambda gradient, _boxes, _scale, _height, _width, *sides: gradient.new_empty(
        sides[:4]
    ),
    "_ctc_loss": _ctc_loss,
    "_ctc_loss_backward": lambda _gradient, scores, *_: import_torch().empty_like(scores),
}
"""Results of operators that PyTorch takes apart into many without numbers, half of the time of reading a ResNet, or
whose numbers decide their shape."""


def _drawn(func: Any, shape: Any, dtype: Any, *args: Any, **kwargs: Any) -> Any:
    """What an operator that draws in place draws."""
    return func(import_torch().empty(shape, dtype=dtype), *args, **kwargs)


def _frames() -> Iterator[Any]:
    """Frames that are running, the innermost first."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        yield frame
        frame = frame.f_back


def _intercepting(torch: Any, path: list[tuple[str, bool]], on_meta: bool, note: Note, boxes: int) -> Any:
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.utils._python_dispatch import (
        TorchDispatchMode,
        _disable_current_modes,
        _get_current_dispatch_mode_stack,
    )
    from torch.utils._pytree import tree_flatten, tree_unflatten

    checkpoint_file, engine_file = torch.utils.checkpoint.__file__, torch.autograd.graph.__file__

    def has_numbers(tensor: Any) -> bool:
        return not isinstance(tensor, FakeTensor) and tensor.device.type != "meta"

    class Fake(FakeTensorMode):
        def __deepcopy__(self, _memo: object) -> Any:  # of a tensor, which holds its mode
            return self

    class Intercept(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.fake = Fake()
            self.twins = nullcontext() if on_meta else self.fake
            self.events: list[Event] = []
            self.path = path
            self.part_of: str | None = None
            self._twin_of: dict[int, tuple[Any, Any]] = {}
            self._next = int(torch.autograd._get_sequence_nr())
            self.updating = 0  # optimizers that are running, one within another
            self.rehearsal: Rehearsal | None = None  # of an update that runs once more
            self._numbers_read = 0
            self.waits: list[int] = []
            self.detects_anomaly = False
            self.own_updates, self._went_back = 0, False
            self.has_data_parallel = False
            self.in_float32 = False  # in any mode: the parts of an attention
            self.assumed: set[str] = set()  # operators whose truths are taken as usual
            self.assumptions: set[str] = set()
            self._parameters: dict[int, Any] = {}  # by their storage
            self.kept = Kept(torch, boxes, self._maker, self._true_elements)
            self._flags: set[int] = set()  # of GradScaler: whether a gradient is infinite
            self._made_by: dict[int, Any] = {}
            self._written: dict[int, int | None] = {}  # storage -> tensor of numbers known all the same
            # Calls of checkpointing with their frames, so that ids are unique.
            self._calls: dict[int, tuple[Any, int]] = {}

        def is_on(self) -> bool:
            """Whether the calling thread is followed: the step's own, or autograd's for its backward pass."""
            return any(active is self for active in _get_current_dispatch_mode_stack())

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            space, _, name = func._schema.name.partition("::")
            if space in ("prim", "profiler"):
                return func(*args, **kwargs)
            operator = name[:-1] if name.endswith("_") else name
            if operator == "_local_scalar_dense":
                return self._value(args[0])
            node = torch._C._current_autograd_node()
            if operator == "_safe_softmax":  # in its parts, as a GPU runs them
                with self:
                    shares = torch._softmax(*args[:2], False)
                    return torch.where(args[0] == float("-inf"), 0.0, shares)
            if operator not in RULES and node is None:
                with self:
                    parts = func.decompose(*args, **kwargs)
                if parts is not NotImplemented:
                    return parts
            result = self._run(func, operator, args, kwargs)
            if self.rehearsal is not None:
                self.rehearsal.add(func, args, kwargs, result)
                return result
            self.kept.note(operator, args, result)
            if operator in CONVOLUTIONS and self.kept.images is None:
                self.kept.images = int(args[0].shape[0])
            following = int(torch.autograd._get_sequence_nr())
            made, self._next = range(min(self._next, following), following), max(self._next, following)
            arguments = {argument.name: argument.default_value for argument in func._schema.arguments}
            arguments |= dict(zip(arguments, args, strict=False)) | kwargs
            tensors, results = tensors_of(arguments.values()), tensors_of(result)
            if operator == "_amp_foreach_non_finite_check_and_unscale":
                self._flags.add(id(arguments["found_inf"]))
            for tensor in tensors:
                if isinstance(tensor, torch.nn.Parameter):
                    note(tensor)
                    for same_memory in (tensor, self._twin(tensor)):
                        self._parameters[storage_of(same_memory)] = tensor
            self._went_back = self._went_back or node is not None
            if func._schema.is_mutable and node is None and self._went_back and not self.updating:
                written = (self._parameters.get(storage_of(tensor)) for tensor in tensors_of(args[:1]))
                if any(parameter is not None and parameter.grad is not None for parameter in written):
                    self.own_updates, self._went_back = self.own_updates + 1, False
            recomputed = node is not None and self._is_recomputed()
            self._add(
                operator,
                arguments,
                result,
                made,
                is_view=func.is_view,
                node=None if node is None or recomputed else int(node._sequence_nr()),
                part_of=self.part_of,
                recomputed=recomputed,
                of_optimizer=self.updating > 0,
                **(self._callers() if node is None else {}),
            )
            if func._schema.is_mutable and not results:  # such as a function on lists
                for tensor in tensors_of(args[:1]):
                    self._written[tensor.untyped_storage()._cdata] = None
            for number, tensor in enumerate(results):
                self._made_by[id(tensor)] = func, args, kwargs, operator, number
                if func._schema.is_mutable:
                    del self._made_by[id(tensor)]
                if name in _DRAWN_IN_PLACE:
                    drawn = partial(_drawn, func, tensor.shape, tensor.dtype)
                    self._made_by[id(tensor)] = drawn, args[1:], kwargs, operator, number
                if func._schema.is_mutable:
                    known_id = id(tensor) if name in _DRAWN_IN_PLACE else None
                    self._written[tensor.untyped_storage()._cdata] = known_id
            return result

        def _add(
            self, operator: str, arguments: dict[str, Any], result: Any, made: range, **more: Any
        ) -> None:
            tensors = (*tensors_of(arguments.values()), *tensors_of(result))
            shapes = {id(tensor): tuple(tensor.shape) for tensor in tensors}
            more |= {"in_float32": self.in_float32}
            self.events.append(Event(operator, arguments, result, made, tuple(self.path), shapes, **more))

        def composite(self, name: str, names: tuple[str, ...], run: Callable[[], Any], args: Any) -> Any:
            """Run an operator of several parts, and note it as one."""
            if self.part_of is not None or torch._C._current_autograd_node() is not None:
                return run()
            start, self.part_of = self._next, name
            try:
                result = run()
            finally:
                self.part_of = None
            arguments = dict(zip(names, args, strict=False))
            self._add(name, arguments, result, range(start, self._next), **self._callers())
            return result

        def data_of(self, tensor: Any) -> Any:
            """`tensor.data`, which PyTorch makes without an operator."""
            result = tensor.data
            if torch._C._current_autograd_node() is None:
                self._add("detach", {"self": tensor}, result, range(self._next, self._next), is_view=True)
            return result

        def set_data(self, tensor: Any, value: Any) -> None:
            """Assign `tensor.data`; without numbers, other data of the same shape and type is the same."""
            if (tensor.shape, tensor.dtype) == (value.shape, value.dtype):
                return
            if has_numbers(tensor) and not has_numbers(value):
                with _disable_current_modes():
                    value = torch.empty(value.shape, dtype=value.dtype, device=value.device)
            self._twin_of.pop(id(tensor), None)
            tensor.data = value

        def _callers(self) -> dict[str, Any]:
            """Number of the outermost call of checkpointing that is running, 0 for none; whether code is compiled.

            `checkpoint_sequential` makes one for each of its segments but the last, which it runs as it is.
            """
            call, compiled = None, False
            for frame in _frames():
                code = frame.f_code
                if code.co_filename == checkpoint_file and "checkpoint_sequential" not in code.co_qualname:
                    call = frame
                compiled = compiled or code.co_qualname.startswith(_COMPILED)
            calls, new = self._calls, (call, len(self._calls) + 1)
            return {"checkpoint": calls.setdefault(id(call), new)[1] if call else 0, "compiled": compiled}

        def _is_recomputed(self) -> bool:
            """Whether checkpointing runs a part of the forward pass again, not the backward pass of that part."""
            files: Iterator[str] = (frame.f_code.co_filename for frame in _frames())
            engines = (name for name in files if name in (checkpoint_file, engine_file))
            return bool(next(engines, None) == checkpoint_file)

        def _run(self, func: Any, operator: str, args: Any, kwargs: Any) -> Any:
            """Run on twins of tensors with numbers, which are never written: results are theirs, or the originals."""
            flat, spec = tree_flatten((args, kwargs))
            tensors = [value for value in flat if isinstance(value, torch.Tensor)]
            if on_meta and all(map(has_numbers, tensors)):  # constants that a forward pass makes
                return func(*args, **kwargs)
            twins = [self._twin(value) if isinstance(value, torch.Tensor) else value for value in flat]
            args, kwargs = tree_unflatten(twins, spec)
            if operator in DECIDED or (operator == "index" and has_masks(args[1])):
                self.waits.append(len(self.events))  # the host waits for numbers that decide a shape
                if operator == "index":
                    result = func(args[0], self.kept.indices_for(args[1]))
                else:
                    result = self.kept.stand_in(operator, (*args, *kwargs.values()))
            else:
                result = _SHAPED[operator](*args) if operator in _SHAPED else func(*args, **kwargs)
            if not func._schema.is_mutable:
                return result
            originals = {id(twin): value for value, twin in zip(flat, twins, strict=True)}
            flat, spec = tree_flatten(result)
            return tree_unflatten([originals.get(id(value), value) for value in flat], spec)

        def _maker(self, tensor: Any) -> tuple[str, Any] | None:
            if id(tensor) not in self._made_by:
                return None
            _, args, _, operator, _ = self._made_by[id(tensor)]
            return operator, args

        def _twin(self, tensor: Any) -> Any:
            if not has_numbers(tensor) or (on_meta and tensor.ndim == 0):
                return tensor
            if id(tensor) not in self._twin_of:
                twin = torch.empty_like(tensor, device="meta") if on_meta else self.fake.from_tensor(tensor)
                self._twin_of[id(tensor)] = tensor, twin
            return self._twin_of[id(tensor)][1]

        def _value(self, tensor: Any) -> Any:
            if id(tensor) in self._flags:
                self.waits.append(len(self.events))
                return 0.0
            with suppress(LookupError), _disable_current_modes():
                return self._number(tensor).item()
            self.detects_anomaly |= torch.is_anomaly_enabled()  # perhaps in a part of the step alone
            if not self.updating:  # an optimizer's own numbers are the host's
                self.waits.append(len(self.events))
            if tensor.dtype == torch.bool:
                return self._truth(tensor)
            self._numbers_read += not self.updating  # an optimizer reads a number of each parameter, and ends
            if self._numbers_read > _MOST_NUMBERS:
                raise SchemaError(
                    f"the step reads more than {_MOST_NUMBERS:,} numbers of its tensors, as a loop does that ends by "
                    "them: they have none here, so it never ends. Replace `while ...:` by `for _ in range(n):`, n "
                    "being how often it usually runs."
                )
            if tensor.is_floating_point():
                return 0.5 if self.updating else 1.0  # NAdam divides by 1 less what it keeps
            return self.kept.number(tensor)

        def _number(self, tensor: Any) -> Any:
            """The tensor itself, where it follows from constants, buffers and random numbers; else LookupError."""
            if self._written.get(tensor.untyped_storage()._cdata, id(tensor)) != id(tensor):
                raise LookupError  # written since, perhaps by another view of it
            if has_numbers(tensor):
                return tensor
            if tensor.numel() > _MOST_COMPUTED:
                raise LookupError
            func, args, kwargs, operator, number = self._made_by[id(tensor)]
            if operator.endswith("batch_norm"):
                raise LookupError  # which writes what it is lent, its running statistics
            flat, spec = tree_flatten((args, kwargs))
            numbers = [self._number(value) if isinstance(value, torch.Tensor) else value for value in flat]
            args, kwargs = tree_unflatten(numbers, spec)
            return tensors_of(func(*args, **kwargs))[number]

        def _true_elements(self, tensor: Any, summed: bool) -> int | None:
            if tensor.numel() <= _MOST_COMPUTED:
                with suppress(LookupError), _disable_current_modes():
                    numbers = self._number(tensor)
                    return int(numbers.sum() if summed else torch.count_nonzero(numbers))
            return None

        def _truth(self, tensor: Any) -> bool:
            """Answer whether numbers are finite; what else a step decides by numbers is not known."""
            usual = self._usual(tensor)
            if usual is not None:
                self.assumed.update(self._operators_of_truth(tensor))
                return bool(usual)
            counted = self.kept.compares(tensor)
            if counted is not None:
                return counted
            made = self._maker(tensor)
            if made and made[0] == "all":
                compared, operands = self._maker(made[1][0]) or ("", ())
                if compared in _ORDERS and len(tensors_of(operands)) > 1:
                    return True  # what a step checks, such as the order of the corners of boxes
            raise SchemaError(
                "what runs is decided by numbers of its tensors, which have none here: "
                f"{', '.join(sorted(self._operators_of_truth(tensor))) or 'a tensor of yours'}. Replace `while ...:` "
                "by `for _ in range(n):`, n being how often it usually runs, and `if ...:` by what usually runs, "
                "or give a layer table CSV."
            )

        def _operators_of_truth(self, tensor: Any) -> set[str]:
            """Names of the operators that a truth follows from."""
            operator, args = self._maker(tensor) or ("", ())
            before = tensors_of(args) if operator in _TRUTHS_OF_TRUTHS else []
            return ({operator} - {""}).union(*map(self._operators_of_truth, before))

        def _usual(self, value: Any) -> float | None:
            """Number of a truth, or of truths, while losses, norms and gradients are finite; None if another decides.

            A single number differs from any that it is compared with, and is below bounds of a thousand and more.
            """
            if not isinstance(value, torch.Tensor):
                return float(value)
            made: tuple[str, Any] = self._maker(value) or ("", ())
            operator, args = made
            if operator in _NOT_FINITE:
                return 0.0
            if operator in COMPARED:
                return self._usual_comparison(operator, *args[:2])
            if operator in ("logical_not", "bitwise_not"):
                usual = self._usual(args[0])
                return None if usual is None else float(not usual)
            if operator == "sum":
                usual = self._usual(args[0])
                return None if usual is None else usual * float(args[0].numel())
            if operator in _SAME_TRUTH:
                return self._usual(args[0])
            if operator in _BOTH | _EITHER:
                operands = [self._usual(operand) for operand in args[:2]]
                decides = float(operator in _EITHER)
                return decides if decides in operands else None if None in operands else 1.0 - decides
            return None

        def _usual_comparison(self, operator: str, first: Any, second: Any) -> float | None:
            compare = COMPARED[operator]
            if first is second:
                return float(compare(1, 1))
            usual = self._usual(first), self._usual(second)
            if usual[0] is not None and usual[1] is not None:
                return float(compare(*usual))
            if not isinstance(second, torch.Tensor) and first.is_floating_point():
                is_single = first.numel() == 1
                if abs(second) == float("inf") or (is_single and abs(second) >= _LARGE):
                    return float(compare(1.0, second))
                if is_single and operator in ("eq", "ne"):
                    return float(operator == "ne")
            return 0.0 if operator == "ne" else None

    return Intercept()


@contextmanager
def _around(torch: Any, mode: Any, on_meta: bool) -> Iterator[None]:
    """Note composite operators whole; leave tensors where they are, wherever a step sends them: no GPU is needed.

    A module of `DistributedDataParallel` or `DataParallel` runs as on one GPU: questions say how many there are.
    Autocast of a GPU is that of the processor, whose rules are much the same, where there is no GPU; so is that of the
    device of a meta tensor, which a module may ask for.
    """
    import numpy
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.optim import optimizer as optimizers
    from torch.overrides import TorchFunctionMode

    composites, functional = _composites(torch), torch.nn.functional
    get_data, set_data = torch.Tensor.data.__get__, torch.Tensor.data.__set__
    autocast, scaler, has_gpu = torch.autocast.__init__, torch.amp.GradScaler.step, torch.cuda.is_available()
    moves = (torch.Tensor.to, torch.Tensor.pin_memory)

    def scaled(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        """Unscale the gradients of 16 bits, which a scaler for a GPU leaves out where there is no GPU."""
        is_off = self._device == "cuda" and not (self.is_enabled() or has_gpu)
        results = (tensor for event in mode.events for tensor in tensors_of(event.result))
        if is_off and any(tensor.dtype == torch.float16 for tensor in results):
            parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
            gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
            is_infinite, factor = torch.zeros(1), torch.ones(1)
            torch._amp_foreach_non_finite_check_and_unscale_(gradients, is_infinite, factor)
            is_infinite.item()
        return scaler(self, optimizer, *args, **kwargs)

    def on_processor_device(value: Any) -> Any:
        is_device = isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda"))
        return "cpu" if is_device else value

    class Around(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs, name = kwargs or {}, getattr(func, "__name__", "")
            if not mode.is_on():  # a data loader
                return func(*args, **kwargs)
            if name in RECURRENT and not kwargs:  # before it runs position by position
                return run_recurrent(torch, name, args, mode.composite)
            if name == "_pack_padded_sequence":
                raise packed_refusal()
            if name == "rms_norm":  # one kernel on a GPU, as of a layer norm without a shift
                return torch.layer_norm(*args[:2], args[2] if len(args) > 2 else kwargs.get("weight"))
            if name == "ctc_loss":  # it reads the texts where their lengths are lists
                args = *args[:2], *map(torch.as_tensor, args[2:4]), *args[4:]
            if func == get_data:
                return mode.data_of(args[0])
            if name == "__deepcopy__" and not hasattr(args[0], "fake_mode") and args[0].is_leaf:
                tensor, copies = args  # whose memory PyTorch copies without an operator
                copies[id(tensor)] = tensor.detach().clone().requires_grad_(tensor.requires_grad)
                return copies[id(tensor)]
            if func == set_data:
                return mode.set_data(*args)
            if name in ("numpy", "__format__") and hasattr(args[0], "fake_mode") and args[0].ndim == 0:
                number = args[0].item()  # a loss that is logged
                return numpy.array(number) if name == "numpy" else format(number, *args[1:])
            if not on_meta and not has_gpu:
                if func is torch.Tensor.cuda:
                    return args[0]
                kwargs = {name: on_processor_device(value) for name, value in kwargs.items()}
                args = tuple(map(on_processor_device, args)) if func in moves else args
            return whole(func, *args, **kwargs)

    def whole(func: Any, *args: Any, **kwargs: Any) -> Any:
        if func not in composites:
            return func(*args, **kwargs)
        name, names = composites[func]
        operands = (*args, *(kwargs.get(name) for name in names[len(args) :]))
        if name == "scaled_dot_product_attention" and any(
            operand.stride(-1) != 1 for operand in operands[:3]
        ):
            mode.in_float32 = True
            try:
                with sdpa_kernel(SDPBackend.MATH):  # no fused kernel of a GPU reads such a layout
                    return func(*args, **kwargs)
            finally:
                mode.in_float32 = False
        return mode.composite(name, names, lambda: func(*args, **kwargs), operands)

    def assigned(function: Any, costs: Any, *args: Any, **kwargs: Any) -> Any:
        """As many pairs as there are; the host waits for the costs of tensors."""
        if not isinstance(costs, torch.Tensor):
            return function(costs, *args, **kwargs)
        mode.waits.append(len(mode.events))
        mode.kept.is_used = True
        return numpy.arange(min(costs.shape)), numpy.arange(min(costs.shape))

    def on_processor(self: Any, device_type: str, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
        missing = device_type == "meta" or (device_type == "cuda" and not has_gpu)
        if dtype is None and not has_gpu and kwargs.get("enabled", True):
            # Of a GPU, also where the device is chosen as the step runs.
            dtype = torch.get_autocast_dtype("cuda")
            if device_type != "cuda":
                mode.assumptions.add(
                    f"autocast names no type of numbers, and takes {str(dtype).removeprefix('torch.')}, as on a GPU"
                )
        autocast(self, "cpu" if missing else device_type, dtype, *args, **kwargs)

    def of_replicas(self: Any, *args: Any, **kwargs: Any) -> Any:
        mode.has_data_parallel = True
        return self.module(*args, **kwargs)

    parallel: Any = torch.nn.parallel
    boxes: Any = sys.modules.get("torchvision.ops.boxes")
    # Functions written in Python call these without this mode.
    inner = ((functional, "linear"), (functional, "scaled_dot_product_attention"), (torch, "instance_norm"))
    assigns = (  # scipy.optimize and who imported it from there
        module
        for module in [*sys.modules.values()]
        if isinstance(module, ModuleType) and callable(vars(module).get(_ASSIGNS))
    )
    ours: list[_Replacement] = [
        (torch.autocast, "__init__", on_processor),
        (torch.amp.GradScaler, "step", scaled),
        (
            parallel.DistributedDataParallel,
            "forward",
            lambda self, *args, **kwargs: self.module(*args, **kwargs),
        ),
        (parallel.DataParallel, "forward", of_replicas),
        # Gradients are joined, and parameters updated, in lists on a GPU only.
        (torch.nn.utils.clip_grad, "_has_foreach_support", lambda *_, **__: True),
        (optimizers, "_get_foreach_kernels_supported_devices", lambda: ["cuda", "cpu"]),
        *((module, name, partial(whole, getattr(module, name))) for module, name in inner),
        *((module, _ASSIGNS, partial(assigned, vars(module)[_ASSIGNS])) for module in assigns),
    ]
    if not has_gpu:
        ours.append((torch.cuda, "synchronize", lambda *_, **__: None))
    if boxes is not None:  # which suppresses boxes class by class on a processor, at once on a GPU
        ours.append((boxes, "_batched_nms_vanilla", boxes._batched_nms_coordinate_trick))
    with _replaced(mode, ours), Around():
        yield


@contextmanager
def _replaced(mode: Any, ours: Sequence[_Replacement]) -> Iterator[None]:
    """Replace functions of classes and modules where the mode follows the thread that calls them."""
    usual = [(owner, name, getattr(owner, name)) for owner, name, _ in ours]

    def either(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        return wraps(theirs)(lambda *args, **kwargs: (ours if mode.is_on() else theirs)(*args, **kwargs))

    try:
        for (owner, name, theirs), (_, _, function) in zip(usual, ours, strict=True):
            setattr(owner, name, either(theirs, function))
        yield
    finally:
        for owner, name, theirs in usual:
            setattr(owner, name, theirs)


def _loading(torch: Any) -> list[_Replacement]:
    """Load real batches, of iterators that the step makes; what it is lent it would advance, and is refused."""
    from torch.utils._python_dispatch import _disable_current_modes

    made: WeakSet[Any] = WeakSet()
    loading = torch.utils.data.dataloader
    base = loading._BaseDataLoaderIter
    kinds = (base, loading._SingleProcessDataLoaderIter, loading._MultiProcessingDataLoaderIter)

    def beginning(begin: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
        made.add(self)
        with _disable_current_modes():
            begin(self, *args, **kwargs)

    def loaded(load: Callable[[Any], Any], self: Any) -> Any:
        if self not in made:
            raise SchemaError(
                f"the step takes a batch from an iterator over a DataLoader of {type(self._dataset).__name__} that was "
                "made before it, and would take it away from your training. Take the batch outside the step, such as "
                "by `batch = next(iter(loader))`, and record(step, batch)."
            )
        with _disable_current_modes():
            return load(self)

    return [
        *((kind, "__init__", partial(beginning, kind.__init__)) for kind in kinds),
        (base, "__next__", partial(loaded, base.__next__)),
        # Workers that persist go on with what they were made for.
        (torch.utils.data.DataLoader, "__iter__", lambda self: self._get_iterator()),
    ]


def _freeing(torch: Any, events: list[Event], freed: dict[int, int]) -> list[_Replacement]:
    """Note when `zero_grad` first sets the gradient of each parameter to None: by then this many events ran."""

    def zeroed(zero_grad: Callable[..., None], self: Any, set_to_none: bool = True) -> None:
        groups = [{"params": self.parameters()}] if hasattr(self, "parameters") else self.param_groups
        for parameter in (p for group in groups for p in group["params"] if set_to_none):
            freed.setdefault(id(parameter), len(events))
        zero_grad(self, set_to_none)

    classes = (torch.optim.Optimizer, torch.nn.Module)
    return [(class_, "zero_grad", partial(zeroed, class_.zero_grad)) for class_ in classes]
