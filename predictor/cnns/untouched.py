"""Puts back everything that a recorded step changes, and refuses that it writes files.

A step runs here on tensors without numbers, and may assign them to parameters, buffers, attributes, variables around it
and the state of optimizers and schedulers. What is reachable from the step (closures, globals that its code names,
attributes, containers) is noted before it runs and put back afterwards, each object in its place.
"""

from __future__ import annotations

import io
import os
import random
import sys
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, partial
from gc import get_referents
from pathlib import Path
from types import CellType, CodeType, FrameType, FunctionType, GeneratorType, MemberDescriptorType, ModuleType
from typing import Any

from predictor.errors import SchemaError

_PLAIN = (int, float, complex, str, bytes, bool, type(None))
_LEFT_ALONE = (CodeType, FrameType, GeneratorType, ModuleType)
_OF_OTHER_THREADS = {
    "_thread", "asyncio", "concurrent", "logging", "multiprocessing", "queue", "socket", "threading",
}  # fmt: skip
"""Modules whose objects other threads and processes change meanwhile."""

_LARGE_ARRAY_BYTES = 64 * 2**20
"""A larger array, such as a data set, is not copied: it cannot be written meanwhile."""

_TENSOR_FIELDS = ("grad", "requires_grad", "_backward_hooks", "_post_accumulate_grad_hooks")
_FILE_EVENTS = {"os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.symlink", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_MISSING = object()

_ONE_AT_A_TIME = threading.RLock()
"""Held while a step is recorded: functions of PyTorch are replaced and random generators restarted meanwhile."""

Note = Callable[[object], None]
"""Notes an object and all that is reachable from it, unless it is noted already."""


@contextmanager
def untouched(*roots: object) -> Iterator[Note]:
    """Put back what is reachable from `roots`, and the random generators, also after an error; write no files.

    Left as the block leaves them: generators, what is printed and logged, and what other threads change. Yields a note
    for what turns out to be used while the block runs. SchemaError if the block writes, renames or removes a file. Of
    several threads one enters at a time.
    """
    with _ONE_AT_A_TIME:
        state = _State()
        state.note(roots)
        try:
            with _no_files():
                yield state.note
        finally:
            state.put_back()


def random_states() -> list[object]:
    """What the random generators of Python, numpy and PyTorch hold, to tell whether something was drawn."""
    import torch

    numpy = sys.modules.get("numpy")
    return [
        random.getstate(),
        None if numpy is None else repr(numpy.random.get_state()),
        torch.get_rng_state().tolist(),
    ]


def seed_all(seed: int) -> None:
    """Restart these generators."""
    import torch

    random.seed(seed)
    torch.manual_seed(seed)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(seed)


class _State:
    """What objects held when they were noted."""

    def __init__(self) -> None:
        import torch

        self._undo: list[Callable[[], object]] = []
        self._seen: dict[int, Any] = {}  # holds the objects, so that ids are unique
        # A data loader's iterator put back would wait for batches that its workers have sent.
        self._left_alone = (*_LEFT_ALONE, torch.utils.data.dataloader._BaseDataLoaderIter)
        self._torch: Any = torch
        self._numpy: Any = sys.modules.get("numpy")
        self._generator(random.getstate, random.setstate)
        self._generator(torch.get_rng_state, torch.set_rng_state)
        self._generator(torch.get_default_dtype, torch.set_default_dtype)
        self._generator(torch.is_grad_enabled, torch.set_grad_enabled)
        self._generator(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode)
        self._field(torch.backends.cudnn, "benchmark")
        self._field(torch.backends.cudnn, "deterministic")
        if torch.cuda.is_initialized():
            self._generator(torch.cuda.get_rng_state_all, torch.cuda.set_rng_state_all)
        if self._numpy is not None:
            self._generator(self._numpy.random.get_state, self._numpy.random.set_state)

    def put_back(self) -> None:
        for undo in self._undo:
            undo()

    def note(self, root: object) -> None:
        left: list[Any] = [root]
        with self._torch._C.DisableTorchFunction():
            while left:
                value = left.pop()
                if type(value) not in _PLAIN and id(value) not in self._seen:
                    self._seen[id(value)] = value
                    left += self._note(value)

    def _note(self, value: Any) -> Iterable[Any]:
        """Note what one object holds; the objects that it refers to."""
        kind = type(value)
        if issubclass(kind, type):
            return self._class(value)
        if issubclass(kind, FunctionType):
            return self._function(value)
        if issubclass(kind, self._left_alone) or _top(kind.__module__) in _OF_OTHER_THREADS:
            return ()
        for base, rule in self._rules():
            if issubclass(kind, base):
                rule(value)
        self._slots(value)
        return () if issubclass(kind, io.IOBase) else (*get_referents(value), _attributes(value))

    def _rules(self) -> Iterator[tuple[Any, Callable[[Any], None]]]:
        yield dict, self._dict
        yield (list, deque, set, bytearray), self._container
        yield CellType, lambda cell: self._field(cell, "cell_contents")
        yield self._torch.Tensor, self._tensor
        yield io.IOBase, self._file
        yield random.Random, lambda value: self._generator(value.getstate, value.setstate)
        yield self._torch.Generator, lambda value: self._generator(value.get_state, value.set_state)
        if self._numpy is not None:
            of = self._numpy.random
            yield self._numpy.ndarray, self._array
            yield of.RandomState, lambda value: self._generator(value.get_state, value.set_state)
            yield of.Generator, lambda value: self._field(value.bit_generator, "state")

    def _generator(self, get: Callable[[], Any], put: Callable[[Any], object]) -> None:
        self._undo.append(partial(put, get()))

    def _field(self, owner: Any, name: str) -> None:
        """Note an attribute; one that is missing is deleted afterwards."""

        def value() -> Any:
            try:
                return getattr(owner, name)
            except (AttributeError, ValueError):  # of an empty cell
                return _MISSING

        def put_back() -> None:
            if value() is not before:
                delattr(owner, name) if before is _MISSING else setattr(owner, name, before)

        before = value()
        self._undo.append(put_back)

    def _slots(self, value: Any) -> None:
        for base in type(value).__mro__:
            for name, member in vars(base).items() if "__slots__" in vars(base) else ():
                if isinstance(member, MemberDescriptorType):
                    self._field(value, name)

    def _dict(self, value: dict[Any, Any]) -> None:
        base = OrderedDict if isinstance(value, OrderedDict) else dict
        before = [*base.items(value)]

        def put_back() -> None:
            now = [*base.items(value)]
            pairs = zip(now, before, strict=True)
            if len(now) == len(before) and all(a is c and b is d for (a, b), (c, d) in pairs):
                return
            base.clear(value)
            for key, kept in before:
                base.__setitem__(value, key, kept)

        self._undo.append(put_back)

    def _container(self, value: Any) -> None:
        base = next(base for base in (list, deque, set, bytearray) if isinstance(value, base))
        before = base(value)

        def put_back() -> None:
            base.clear(value)
            getattr(base, "update" if base is set else "extend")(value, before)

        self._undo.append(put_back)

    def _tensor(self, value: Any) -> None:
        if self._torch.nn.parameter.is_lazy(value):
            raise SchemaError(
                "the step has lazy layers that have not run yet, so their shapes are unknown. Run it once before "
                "recording it."
            )
        if value.is_leaf:
            for name in _TENSOR_FIELDS:
                self._field(value, name)
        if value.layout != self._torch.strided:
            return
        before = value.data
        if not value.is_inference():  # else it has no version
            version = self._torch.autograd._unsafe_preserve_version_counter(value)
            self._undo.append(version.__exit__)

        def put_back() -> None:
            fields = [(t.device, t.dtype, t.layout, t.shape) for t in (value, before)]
            if fields[0] != fields[1] or _memory(value) != _memory(before):
                value.data = before

        self._undo.insert(0, put_back)  # before `grad`, which has to fit

    def _array(self, value: Any) -> None:
        if isinstance(value.base, type(value)):
            self._array(value.base)
        if not value.flags.writeable:
            return
        if value.nbytes > _LARGE_ARRAY_BYTES:
            value.flags.writeable = False
            self._undo.append(partial(setattr, value.flags, "writeable", True))
        else:
            self._undo.append(partial(self._numpy.copyto, value, value.copy()))

    def _file(self, value: Any) -> None:
        """An open file that the step may append to."""
        if value.closed or not value.writable() or not value.seekable():
            return
        value.flush()
        at, end = value.tell(), value.seek(0, io.SEEK_END)
        value.seek(at)

        def put_back() -> None:
            if not value.closed:
                value.truncate(end)
                value.seek(at)

        self._undo.append(put_back)

    # Code

    def _function(self, function: Any) -> Iterable[Any]:
        yield from (function.__closure__, function.__defaults__, function.__kwdefaults__, vars(function))
        if _is_own(function.__module__):
            yield from self._named(function.__globals__, _names(function.__code__), set())

    def _named(self, namespace: dict[str, Any], names: set[str], passed: set[int]) -> Iterator[Any]:
        """What code names of a module's variables, and of those of modules among them.

        No other variable is put back: threads beside the step may set them.
        """
        passed.add(id(namespace))
        before = {name: namespace.get(name, _MISSING) for name in names}

        def put_back() -> None:
            for name, value in before.items():
                now = namespace.get(name, _MISSING)
                if now is value or (value is _MISSING and isinstance(now, ModuleType)):
                    continue  # as it was, or imported
                if value is _MISSING:
                    del namespace[name]
                else:
                    namespace[name] = value

        self._undo.append(put_back)
        for name in names & namespace.keys():
            value = namespace[name]
            if not isinstance(value, ModuleType):
                yield value
            elif _is_own(value.__name__) and id(vars(value)) not in passed:
                yield from self._named(vars(value), names, passed)

    def _class(self, kind: Any) -> Iterable[Any]:
        if not _is_own(kind.__module__):
            return ()
        before = dict(vars(kind))

        def put_back() -> None:
            now = dict(vars(kind))
            for name in now.keys() - before.keys():
                type.__delattr__(kind, name)
            for name in (name for name, value in before.items() if now.get(name, _MISSING) is not value):
                type.__setattr__(kind, name, before[name])

        self._undo.append(put_back)
        return (*before.values(), *kind.__bases__)


def _attributes(value: Any) -> Any:
    try:
        return object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None


def _memory(tensor: Any) -> tuple[int, int, tuple[int, ...]]:
    return tensor.untyped_storage()._cdata, tensor.storage_offset(), tensor.stride()


def _names(code: CodeType) -> set[str]:
    """Names of variables and attributes in code and in the functions written inside it."""
    inner = (constant for constant in code.co_consts if isinstance(constant, CodeType))
    return set(code.co_names).union(*map(_names, inner))


def _top(module: object) -> str:
    return str(module).partition(".")[0]


@cache
def _is_own(module: str | None) -> bool:
    """Whether a module is the user's, not of Python and not of an installed package, whose variables stay."""
    top = _top(module or "builtins")
    file = getattr(sys.modules.get(top), "__file__", None) or ""
    installed = {"site-packages", "dist-packages"} & {*Path(file).parts}
    return top == "__main__" or not (top in sys.stdlib_module_names or installed)


# Files

_recording = threading.local()


@contextmanager
def _no_files() -> Iterator[None]:
    """Refuse that this thread writes files; also by `torch.save`, which opens them in C++."""
    import torch

    _install_hook()
    save, caches_code = torch.save, sys.dont_write_bytecode

    def refused(what: object, f: object, *args: Any, **kwargs: Any) -> None:
        if _is_recording():
            raise _writes(f)
        save(what, f, *args, **kwargs)

    torch.save = refused
    _recording.process, sys.dont_write_bytecode = os.getpid(), True
    try:
        yield
    finally:
        torch.save, sys.dont_write_bytecode = save, caches_code
        _recording.process = None


def _is_recording() -> bool:
    """Whether this thread records, in this process: the workers of a data loader begin as copies of it."""
    return getattr(_recording, "process", None) == os.getpid()


@cache
def _install_hook() -> None:
    sys.addaudithook(_refuse_writing)  # stays, since Python removes none


def _refuse_writing(event: str, args: tuple[Any, ...]) -> None:
    if not _is_recording():
        return
    writes = args[2] & _WRITES and args[0] != os.devnull if event == "open" else event in _FILE_EVENTS
    frame: FrameType | None = sys._getframe(1) if writes else None
    while frame is not None:  # modules that are imported, such as PyTorch's, may look for a place to write
        if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
            return
        frame = frame.f_back
    if writes:
        raise _writes(args[0])


def _writes(file: object) -> SchemaError:
    name = repr(str(file)) if isinstance(file, str | os.PathLike) else "a file"
    return SchemaError(
        f"the step writes {name}, and its tensors have no numbers here. Leave that out of what you record, such as by "
        "recording the function that it calls."
    )
