"""One configuration built with Chainer: runs and is timed."""

from collections.abc import Callable
from typing import Any

from predictor.errors import NoisyMeasurementError
from proxy_cnns.backends.base import PreparedProgram
from proxy_cnns.backends.chainer.cudnn.choice import algorithms_json
from proxy_cnns.backends.chainer.cudnn.plans import CudnnPlans
from proxy_cnns.backends.chainer.device import CupyDevice

_SAMPLE_MS = 0.3  # events are read to half a microsecond
_MOST_ROUNDS = 20
_FEWEST_WAIT_MS = 0.2
_WAITS = (1.5, 3.0, 6.0, 12.0)  # times the enqueue time
_MOST_ATTEMPTS = 30
_NO_GRAPH = "Chainer cannot be captured as a CUDA graph"


class ChainerPrepared(PreparedProgram):
    """A program that is queued behind a waiting kernel to be timed.

    The backend's plans hold only the choices of this configuration; None: convolutions without cuDNN.
    """

    def __init__(self, backend: Any, *arguments: Any) -> None:
        super().__init__(backend, *arguments)
        self._plans: CudnnPlans | None = backend._plans
        self._rounds = 1
        self._wait_ms: float | None = None

    def capture(self) -> str | None:
        """Find and keep how long the GPU waits for the host to be ahead; gives the reason for no graph, always."""
        if self._gpu is None:
            return "a CPU has no CUDA graphs"
        host_ms = self.host_time_ms(3) * self.copies
        first = self._queued_ms(self._gpu, 1, max(_FEWEST_WAIT_MS, 3 * host_ms)) or host_ms
        # as many iterations in one sample as make it long against an event's resolution, or else one
        most = max(1, min(_MOST_ROUNDS, round(_SAMPLE_MS / max(first, 1e-3))))
        for rounds in dict.fromkeys((most, 1)):
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

    def conv_algorithms(self) -> str | None:
        """JSON of the algorithms that cuDNN runs each convolution with; None without cuDNN."""
        return None if self._plans is None else algorithms_json(self._plans.choices())

    def _forget(self) -> None:
        if self._plans is not None:
            self._plans.forget()

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
