"""What optimizers do in a recorded step: which parameters they update, what they keep, and the memory that they pass.

Each update is run once more, on tensors without numbers, when its optimizer has made its states: PyTorch's own classes
and any other are counted by what they run.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import finalize

from predictor.cnns.recorder import tensors_of
from predictor.cnns.untouched import Note

if TYPE_CHECKING:
    import torch

_WITHOUT_READING = {"copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"}
"""Operators that do not read what they write."""


@dataclass(frozen=True, slots=True)
class Update:
    """One update by an optimizer: its class, and the numbers and tensors that it updates.

    `groups` of parameters have a foreach call each. `bytes` are those of the parameters, `kept` of the states that the
    optimizer has of them, `passed` of what it reads and writes, and `copied` of what it holds beside at most.
    """

    optimizer: str
    has_momentum: bool
    parameters: int
    by: int  # the optimizer's number, from 0
    tensors: int
    groups: int = 1
    bytes: int = 0
    kept: int = 0
    passed: int = 0
    copied: int = 0
    form: str = "loop"


class Rehearsal:
    """Counts what an update reads, writes and holds beside, in bytes, while it runs once more.

    `passed`: bytes read and written by functions of lists in one kernel, of lists, and of one tensor after the other.
    """

    def __init__(self) -> None:
        self.copied = 0
        self._held = 0
        self.passed = {"fused": 0, "foreach": 0, "loop": 0}

    def add(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Count an operator that has run."""
        schema, name = func._schema, func._schema.name.partition("::")[2]
        given = dict(zip((argument.name for argument in schema.arguments), args, strict=False)) | kwargs
        written = [a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write]
        if given.get("grad_scale") is None and "grads" in written:
            written.remove("grads")  # by fused optimizers, which unscale them
        read = {key: value for key, value in given.items() if key not in written[: name in _WITHOUT_READING]}
        own = {id(tensor) for tensor in tensors_of(given.values())}
        made = [tensor for tensor in tensors_of(result) if id(tensor) not in own and not func.is_view]
        fills = not name.startswith(("empty", "new_empty"))
        form = next((form for form in self.passed if name.startswith(f"_{form}_")), "loop")
        if not func.is_view:
            passes = (read.values(), (given[key] for key in written if key in given), made if fills else ())
            self.passed[form] += sum(map(_bytes, passes))
        for tensor in made:
            size = _bytes([tensor])
            self._held += size
            finalize(tensor, self._drop, size)
        self.copied = max(self.copied, self._held)

    def _drop(self, size: int) -> None:
        self._held -= size


def _bytes(tensors: Iterable[Any]) -> int:
    """Bytes of the distinct tensors, without single numbers, such as those that count steps."""
    distinct = {id(tensor): tensor for tensor in tensors_of(tensors) if tensor.ndim}
    return sum(tensor.numel() * tensor.element_size() for tensor in distinct.values())


@contextmanager
def following_optimizers(updates: list[Update], mode: Any, note: Note) -> Iterator[None]:
    """Collect the updates by optimizers, and tell the mode while one runs."""
    from torch.optim import optimizer as hooks

    numbers: dict[int, int] = {}
    running: list[tuple[int, Any]] = []  # updates, one within another, and their closures
    rehearsed: dict[int, dict[str, Any]] = {}  # fields of `Update` by the optimizer's number

    def before(optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> Any:
        if not mode.is_on() or mode.rehearsal is not None:
            return None
        note(optimizer)
        mode.updating += 1
        named_arguments = dict(zip(("closure",), args[1:], strict=False)) | kwargs
        closure, groups = named_arguments.get("closure"), optimizer.param_groups
        learns = [p for group in groups for p in group["params"] if closure or p.grad is not None]
        has_momentum = any(group.get("momentum") for group in groups)
        number = numbers.setdefault(id(optimizer), len(numbers))
        numbers_updated = sum(p.numel() for p in learns if p.requires_grad)
        called = sum(any(closure or p.grad is not None for p in group["params"]) for group in groups)
        running.append((len(updates), closure))
        name = type(optimizer).__name__
        updates.append(Update(name, has_momentum, numbers_updated, number, len(learns), max(1, called)))
        return closure and (args[:1], named_arguments | {"closure": partial(outside, closure)})

    def outside(closure: Callable[[], object]) -> object:
        """Run the forward and backward passes that an optimizer is given to run."""
        mode.updating -= 1
        try:
            return closure()
        finally:
            mode.updating += 1

    def after(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if not mode.is_on() or mode.rehearsal is not None:
            return
        position, closure = running.pop()
        by = updates[position].by
        if by not in rehearsed:
            rehearsed[by] = rehearse(optimizer, closure)
        updates[position] = replace(updates[position], **rehearsed[by])
        mode.updating -= 1

    def rehearse(optimizer: Any, closure: Any) -> dict[str, Any]:
        """Run an update once more, now that the optimizer has its states."""
        mode.rehearsal = rehearsal = Rehearsal()
        step = type(optimizer).step
        try:
            getattr(step, "__wrapped__", step)(optimizer, *([lambda: None] if closure else []))
        finally:
            mode.rehearsal = None
        updated = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        states = [value for p in updated for value in tensors_of(dict(optimizer.state.get(p, {})).values())]
        passed = rehearsal.passed
        counts = {
            "passed": sum(passed.values()),
            "copied": rehearsal.copied,
            "form": max(passed, key=lambda form: passed[form]),
        }
        return counts | {"bytes": _bytes(updated), "kept": _bytes(states)}

    # In dictionaries of their own: optimizers of other threads may be going through those that are there.
    added = {"_global_optimizer_pre_hooks": before, "_global_optimizer_post_hooks": after}
    usual = {name: getattr(hooks, name) for name in added}
    try:
        for name, hook in added.items():
            setattr(hooks, name, OrderedDict({**usual[name], id(hook): hook}))
        yield
    finally:
        for name, theirs in usual.items():
            setattr(hooks, name, theirs)
