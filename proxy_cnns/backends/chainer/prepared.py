"""One configuration built with Chainer: runs and is timed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from predictor.catalogue.modes import Mode
from predictor.errors import NoisyMeasurementError, ProfilingError
from proxy_cnns.backends.chainer.cudnn.choice import algorithms_json
from proxy_cnns.backends.chainer.cudnn.plans import CudnnPlans
from proxy_cnns.backends.chainer.device import CupyDevice, refusing
from proxy_cnns.backends.chainer.modes import configured
from proxy_cnns.backends.chainer.training import Program
from proxy_cnns.backends.common import mean_host_ms

__all__ = ["ChainerPrepared"]

_SAMPLE_MS = 0.3  # events are read to half a microsecond
_MOST_ROUNDS = 20
_FEWEST_WAIT_MS = 0.2
_WAITS = (1.5, 3.0, 6.0, 12.0)  # times the enqueue time
_MOST_ATTEMPTS = 30
_NO_GRAPH = "Chainer cannot be captured as a CUDA graph"


class ChainerPrepared:
    """A program on a device; see `proxy_cnns.backends.protocol.Prepared`.

    Parameters
    ----------
    program : Program
        Has run once.
    mode : Mode
    gpu : CupyDevice or None
        None: the CPU.
    plans : CudnnPlans or None
        Holds the choices of this configuration alone; None: convolutions without cuDNN.
    what : str
        Name for messages.
    whole : bool
        Whether it is a whole CNN, whose memory is given back when it is closed.
    peak_memory_mib : float or None
    """

    def __init__(
        self,
        program: Program,
        mode: Mode,
        gpu: CupyDevice | None,
        plans: CudnnPlans | None,
        what: str,
        whole: bool,
        peak_memory_mib: float | None,
    ) -> None:
        self.copies = program.copies
        self._program: Program | None = program
        self._mode = mode
        self._gpu = gpu
        self._plans = plans
        self._what = what
        self._whole = whole
        self._peak_memory_mib = peak_memory_mib
        self._rounds = 1
        self._wait_ms: float | None = None

    def run(self, n: int) -> None:
        """Enqueue `n` iterations."""
        with self._ready() as program:
            for _ in range(n):
                program.iterate()

    def synchronise(self) -> None:
        """Wait for the device."""
        if self._gpu is not None:
            with refusing(self._what):
                self._gpu.synchronise()

    def capture(self) -> str | None:
        """Find how long the GPU must wait for the host to be ahead; the reason why there is no graph."""
        if self._gpu is None:
            return "a CPU has no CUDA graphs"
        host_ms = self.host_time_ms(3) * self.copies
        for rounds in self._rounds_to_try(self._gpu, host_ms):
            for factor in _WAITS:
                wait_ms = max(_FEWEST_WAIT_MS, factor * host_ms * rounds)
                if self._queued_ms(self._gpu, rounds, wait_ms) is not None:
                    self._rounds, self._wait_ms = rounds, wait_ms
                    return f"{_NO_GRAPH}: timed while queued behind a waiting kernel"
        return f"{_NO_GRAPH}, and an iteration has more kernels than can be queued ahead of the GPU"

    def gpu_times_ms(self, n: int) -> list[float] | None:
        """Times of one iteration that the host enqueued ahead of the GPU."""
        if self._gpu is None or self._wait_ms is None:
            return None
        return [self._gpu_time_ms(self._gpu, self._wait_ms) for _ in range(n)]

    def host_time_ms(self, n: int) -> float:
        """Time to enqueue one iteration, each on an empty queue; on a CPU, to run it."""
        return mean_host_ms(self.synchronise, self._ready_to_enqueue, n) / self.copies

    def peak_memory_mib(self) -> float | None:
        """Most memory that arrays and workspace occupied in an iteration of a whole CNN."""
        return self._peak_memory_mib

    def compile_s(self) -> float | None:
        """Chainer compiles nothing."""
        return None

    def conv_algorithms(self) -> str | None:
        """JSON of the algorithms that cuDNN runs each convolution with; None without cuDNN."""
        return None if self._plans is None else algorithms_json(self._plans.choices())

    def close(self) -> None:
        """Free everything; a whole CNN's memory is returned at once, operators' is reused."""
        if self._program is None:
            return
        self._program = None
        if self._plans is not None:
            self._plans.forget()
        if self._gpu is not None and self._whole:
            self._gpu.tidy()

    @contextmanager
    def _ready(self) -> Iterator[Program]:
        """Lend the program, with Chainer configured for it."""
        if self._program is None:
            raise ProfilingError(f"{self._what} is closed: prepare it again.")
        with refusing(self._what), configured(self._mode):
            yield self._program

    @contextmanager
    def _ready_to_enqueue(self) -> Iterator[Callable[[], None]]:
        with self._ready() as program:
            yield program.iterate

    def _rounds_to_try(self, gpu: CupyDevice, host_ms: float) -> list[int]:
        """Iterations in one sample: as many as make it long against an event's resolution, or else one."""
        first = self._queued_ms(gpu, 1, max(_FEWEST_WAIT_MS, 3 * host_ms)) or host_ms
        wanted = max(1, min(_MOST_ROUNDS, round(_SAMPLE_MS / max(first, 1e-3))))
        return [wanted, 1] if wanted > 1 else [1]

    def _queued_ms(self, gpu: CupyDevice, rounds: int, wait_ms: float) -> float | None:
        self.synchronise()
        with self._ready() as program:
            parts: list[Callable[[], None]] = [*program.parts] * rounds
            return gpu.queued_time_ms(parts, wait_ms)

    def _gpu_time_ms(self, gpu: CupyDevice, wait_ms: float) -> float:
        """One sample; repeated where something held the host up, with ever longer waits."""
        for attempt in range(_MOST_ATTEMPTS):
            total = self._queued_ms(gpu, self._rounds, wait_ms * (1 + attempt / 5))
            if total is not None:
                return total / self._rounds / self.copies
        raise NoisyMeasurementError(
            f"the host fell behind the GPU {_MOST_ATTEMPTS} times while {self._what} was enqueued, though it was ahead "
            "before: something else keeps its processors busy. Repeat when nothing else runs."
        )
