"""The protocol of a framework that is measured: a backend builds a configuration, a prepared one runs and is timed.

Each framework has a package that implements it. Nothing here imports a framework.
"""

from dataclasses import dataclass
from typing import Protocol

from proxy_cnns.configuration import Configuration

ANY_GPU = (99, 0)
"""A compute capability above those of all GPUs: a mode that it lacks, no GPU has."""


@dataclass(frozen=True, slots=True)
class Launches:
    """Cost of kernels without work, in microseconds: to enqueue one, and of one in a replayed graph.

    None where the device has no queue, or the framework no graphs.
    """

    host_us: float | None = None
    graph_us: float | None = None


class Prepared(Protocol):
    """One built configuration on its device. Times are in ms, of one iteration, of an operator of one copy of it.

    `copies` says how many copies of an operator one iteration of `run` holds; 1 for a whole CNN.
    """

    copies: int

    def run(self, n: int) -> None:
        """Enqueue `n` iterations as they are trained (of an operator, of all its copies), without waiting."""

    def synchronise(self) -> None:
        """Wait until everything enqueued is done."""

    def capture(self) -> str | None:
        """Prepare what `gpu_times_ms` times; None if it is a captured graph, else the reason why it is none."""

    def gpu_times_ms(self, n: int) -> list[float] | None:  # noqa: ARG002
        """`n` times of one iteration on the GPU, without idle time and warm; None where that is impossible."""
        return None

    def host_time_ms(self, n: int) -> float:
        """Time to enqueue one iteration on an empty queue, mean of `n`."""

    def peak_memory_mib(self) -> float | None:
        """Peak memory of an iteration, without memory that earlier configurations hold; None if unknown."""

    def compile_s(self) -> float | None:
        """Time in s of the first iteration, which compiled the CNN; None where nothing is compiled."""
        return None

    def conv_algorithms(self) -> str | None:
        """JSON of the convolution algorithms chosen, by layer; None if they are unknown."""
        return None

    def close(self) -> None:
        """Free everything on the device, after an error as well."""


class Backend(Protocol):
    """One framework on one device."""

    framework: str

    def __init__(self, device: str) -> None:
        """Open ``cpu`` or ``cuda:N``.

        BackendUnavailableError if the framework is not installed (the message names the extra), or there is no such
        device.
        """

    def environment(self) -> dict[str, object]:
        """Describe framework, libraries and device.

        Keys that become columns: ``framework_version``, ``gpu`` (the driver's name for it, or
        ``cpu:<model>``), ``cudnn``. The rest goes into the table's sidecar as it is.
        """

    def prepare(self, configuration: Configuration) -> Prepared:
        """Build a configuration and run it once.

        DeviceOutOfMemoryError if it does not fit; SchemaError if the framework cannot build or run it in this mode.
        """

    def launches(self) -> Launches:
        """Measure, in some milliseconds, what kernels without work cost now."""
