"""The skeleton of a backend: how a configuration is built, run once, timed and closed, in any framework.

A framework's package adds its programs, its device and its switches. No framework is imported here.
"""

from __future__ import annotations

import platform
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.errors import (
    BackendUnavailableError,
    DeviceOutOfMemoryError,
    EpochcastError,
    ProfilingError,
    SchemaError,
)
from predictor.operators.operators import Operator
from proxy_cnns.backends.layers import CPU_CACHE_BYTES
from proxy_cnns.configuration import ANY_GPU, Configuration, Launches, Subject
from proxy_cnns.device import cpu_model
from proxy_cnns.user_cnns import make_model

LEARNING_RATE = 1e-6
"""So small that training on random labels does not diverge; the kernels are those of any learning rate."""

MOMENTUM = {"momentum": 0.9, "sgd": 0.0}
"""Momentum by optimizer; 0: plain SGD."""

USER_CHANNELS = 3
"""Channels of the images that a user's own CNN reads."""

_LEFT_MIB = 8.0
_OUT_OF_MEMORY = (
    "out of memory", "out_of_memory", "alloc_failed", "cudaerrormemoryallocation", "can't allocate memory",
    "not enough memory",
)  # fmt: skip
_LEAST_CAPABILITY = {"fp32": (0, 0), "tf32": (8, 0), "fp16": (5, 3), "amp_fp16": (5, 3), "amp_bf16": (8, 0)}
"""The compute capability from which a GPU has each precision."""


@dataclass(frozen=True, slots=True)
class Program:
    """The functions of a prepared configuration: its `parts` in order are one iteration, of `copies` of an operator.

    `enqueues` is the iteration without ever waiting for the device, which is what can be captured, where it differs
    (for fp16 in PyTorch, whose scaler reads a flag back); `first` an iteration that compiles, `compile_s` its seconds,
    and `release` drops what it compiled.
    """

    parts: tuple[Callable[[], None], ...]
    copies: int = 1
    enqueues: Callable[[], None] | None = None
    first: Callable[[], None] | None = None
    compile_s: Callable[[], float | None] = lambda: None
    release: Callable[[], None] = lambda: None

    def iterate(self) -> None:
        """Run one iteration as it is trained."""
        for run_part in self.parts:
            run_part()

    def enqueue(self) -> None:
        """Enqueue one iteration without waiting for the device."""
        (self.enqueues or self.iterate)()


class FrameworkBackend:
    """A framework on the CPU or on one GPU; see `proxy_cnns.configuration.Backend`.

    On a GPU one configuration is prepared at a time: close one before the next. `_gpu` is None on a CPU. `check_mode`
    refuses a mode that cannot be measured (SchemaError), `switch` sets the framework's global switches, and a
    configuration is built and run in the context `running`, which makes its failures our errors.
    """

    framework: str
    prepared: type[PreparedProgram]
    check_mode: Callable[[Mode, tuple[int, int] | None], None]
    switch: Callable[[Mode], None]
    running: Callable[[Configuration], AbstractContextManager[Any]]
    _libraries: Callable[[], dict[str, object]]
    training_program: Callable[[Configuration, str], Program]
    operator_program: Callable[[Operator, Mode, int, str, int], Program]
    _device: str
    _gpu: Any

    def environment(self) -> dict[str, object]:
        """Versions of the libraries, how they run, and the device's name."""
        about: dict[str, object] = {"python": platform.python_version(), "cpu": cpu_model()}
        about = self._libraries() | about
        if self._gpu is None:
            return about | {"gpu": f"cpu:{cpu_model()}"}
        capability = "{}.{}".format(*self._gpu.capability)
        sizes = {"compute_capability": capability, "l2_mib": self._gpu.cache_bytes / 2**20}
        about |= self._gpu.versions()
        return about | sizes

    def prepare(self, configuration: Configuration) -> PreparedProgram:
        """Build a configuration and run it once.

        A whole CNN is built in empty memory, so that the peak is its own. An operator that lacks memory is built once
        more after all unused memory is given back: it was cached, or fragmented. DeviceOutOfMemoryError if it does not
        fit; SchemaError if the framework cannot build or run it, or the device lacks the mode; ProfilingError if
        PyTorch fails to run it, or an earlier configuration still holds memory.
        """
        program: Program | None
        gpu, peak_mib = self._gpu, None
        self.check_mode(configuration.mode, None if gpu is None else gpu.capability)
        self.switch(configuration.mode)
        if gpu is None:
            program = self._started(configuration)
        elif configuration.subject.is_whole_cnn:
            gpu.tidy()
            before_mib = self._empty_mib(configuration)
            program = self._started(configuration)
            with self.running(configuration):
                peak_mib = gpu.peak_mib(program.iterate) - before_mib
        else:
            gpu.tidy_if_needed()
            try:
                program = self._started(configuration)
            except DeviceOutOfMemoryError:
                program = None
            if program is None:  # outside the handler, whose error holds what the first try made
                program = self._started(configuration)
        return self.prepared(self, configuration, program, peak_mib)

    def launches(self) -> Launches:
        """Cost of kernels without work; unknown on a CPU, which has no queue."""
        launches: Launches = Launches() if self._gpu is None else self._gpu.launches()
        return launches

    def _program(self, configuration: Configuration) -> Program:
        operator, cache_bytes = configuration.subject.operator, CPU_CACHE_BYTES
        if operator is None:
            return self.training_program(configuration, self._device)
        if self._gpu is not None:
            cache_bytes = self._gpu.cache_bytes
        size = configuration.batch_size
        return self.operator_program(operator, configuration.mode, size, self._device, cache_bytes)

    def _empty_mib(self, configuration: Configuration) -> float:
        """Memory in use before a whole CNN is built: none, else its peak could not be read."""
        left_mib = self._gpu.used_mib()
        if left_mib > _LEFT_MIB:
            raise ProfilingError(
                f"{left_mib:.0f} MiB are still occupied by an earlier configuration, so the peak memory of "
                f"{configuration.words} cannot be read. Close every configuration before the next."
            )
        return 0.0

    def _started(self, configuration: Configuration) -> Program:
        """Make a program and run it once."""
        try:
            with self.running(configuration):
                program = self._program(configuration)
                (program.first or program.iterate)()
                if self._gpu is not None:
                    self._gpu.synchronise()
        except DeviceOutOfMemoryError:
            if self._gpu is not None:
                self._gpu.tidy()
            raise
        return program


class PreparedProgram:
    """A program on a device; see `proxy_cnns.configuration.Prepared`.

    `program`: has run once on the GPU of `backend`, or its CPU. `peak_mib`: as measured before anything was captured.
    """

    def __init__(
        self, backend: Any, configuration: Configuration, program: Program, peak_mib: float | None = None
    ) -> None:
        self.copies = program.copies
        self._program: Program | None = program
        self._gpu, self._what = backend._gpu, configuration.words
        self._whole = configuration.subject.is_whole_cnn  # its memory is given back when it is closed
        self._running: Callable[[], AbstractContextManager[Any]] = partial(backend.running, configuration)
        self._peak_mib = peak_mib

    def run(self, n: int) -> None:
        """Enqueue `n` iterations as they are trained."""
        with self._ready() as program:
            for _ in range(n):
                program.iterate()

    def synchronise(self) -> None:
        """Wait for the device."""
        if self._gpu is not None:
            with self._running():
                self._gpu.synchronise()

    def host_time_ms(self, n: int) -> float:
        """Time to enqueue one iteration, each of `n` on an empty queue; on a CPU, to run it."""
        total_s = 0.0
        for _ in range(n):
            self.synchronise()
            with self._ready() as program:
                start = time.perf_counter()
                program.enqueue()
                total_s += time.perf_counter() - start
        self.synchronise()
        return 1000 * total_s / n / self.copies

    def peak_memory_mib(self) -> float | None:
        """Most memory in use in an iteration of a whole CNN."""
        return self._peak_mib

    def compile_s(self) -> float | None:
        """Seconds of the first iteration of a compiled CNN; None for any other program."""
        return self._open.compile_s()

    def close(self) -> None:
        """Free everything; a whole CNN's memory is returned at once, operators' is reused."""
        if self._program is None:
            return
        self._program.release()
        self._program = None
        self._forget()
        if self._gpu is not None and self._whole:
            self._gpu.tidy()

    def _forget(self) -> None:
        """Drop graphs or plans that a framework keeps beside the program."""

    @property
    def _open(self) -> Program:
        if self._program is None:
            raise ProfilingError(f"{self._what} is closed: prepare it again.")
        return self._program

    @contextmanager
    def _ready(self) -> Iterator[Program]:
        """Lend the program, in the context in which it runs."""
        program = self._open
        with self._running():
            yield program


def gpu_index(device: str, framework: str) -> int | None:
    """Number of the GPU of ``cuda:N`` (``cuda`` is 0); None for ``cpu``.

    BackendUnavailableError if `device` is neither.
    """
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or not (index or "0").isdecimal():
        raise BackendUnavailableError(f"device {device!r} is not known to {framework}: give cpu or cuda:0.")
    return int(index or 0) if kind == "cuda" else None


def device_words(capability: tuple[int, int] | None) -> str:
    """Name in messages of a device by its compute capability; None is a CPU."""
    if capability is None:
        return "a CPU"
    if capability == ANY_GPU:
        return "any GPU"
    return f"a GPU of compute capability {capability[0]}.{capability[1]}"


Capability = tuple[int, int] | None
"""Compute capability of a GPU; None is a CPU."""


def precisions_on(on_gpu: Sequence[str], on_cpu: Sequence[str], capability: Capability) -> tuple[str, ...]:
    """Precisions that a framework has on a device of this compute capability."""
    if capability is None:
        return tuple(on_cpu)
    return tuple(precision for precision in on_gpu if capability >= _LEAST_CAPABILITY[precision])


def check_mode_of(name: str, mode: Mode, precisions: Sequence[str], capability: Capability) -> None:
    """Refuse a precision other than these that the framework called `name` has on a device, or an optimizer.

    SchemaError with what can be measured instead.
    """
    if mode.precision not in precisions:
        raise SchemaError(
            f"precision {mode.precision!r} is not measured with {name} on {device_words(capability)}: choose "
            f"{', '.join(precisions)}."
        )
    if mode.optimizer not in MOMENTUM:
        raise SchemaError(f"optimizer {mode.optimizer!r} is not measured: choose {' or '.join(MOMENTUM)}.")


@contextmanager
def refusing_failures(
    framework: str, name: str, refusal: type[EpochcastError], failures: tuple[type[Exception], ...]
) -> Iterator[None]:
    """Turn what a framework raises into our errors, and free what the failed calls held.

    `framework`, `name`: names for the message. `refusal`: error for a failure that is no lack of memory. `failures`:
    exceptions that the framework raises; others pass. DeviceOutOfMemoryError if memory was lacking: the error says so,
    in the words of cuDNN, cuBLAS, CUDA or the framework.
    """
    refused: Exception | None = None
    try:
        yield
    except Exception as error:
        ours = isinstance(error, EpochcastError)
        if isinstance(error, MemoryError) or any(words in str(error).casefold() for words in _OUT_OF_MEMORY):
            refused = DeviceOutOfMemoryError(f"{name} does not fit in memory. Choose a smaller batch size.")
        elif ours or not isinstance(error, failures):
            raise
        else:
            text = " ".join(str(error).split())[:300] or "no message"
            refused = refusal(f"{framework} cannot run {name}: {type(error).__name__}: {text}")
        traceback.clear_frames(error.__traceback__)
    if refused is not None:
        raise refused


def user_cnn(subject: Subject, of_type: type, framework: str, type_name: str) -> Any:
    """CNN of a user's own function; SchemaError if it is not of the framework's type; errors as `make_model`."""
    if subject.builder is None:
        raise SchemaError(
            f"{subject.name!r} of kind {subject.kind!r} has neither a layer table nor a builder."
        )
    model = make_model(subject.builder)
    if not isinstance(model, of_type):
        raise SchemaError(
            f"{subject.builder.function}() of {subject.builder.path} gives a {type(model).__name__}, "
            f"no {type_name}: to measure it with {framework}, return one."
        )
    return model
