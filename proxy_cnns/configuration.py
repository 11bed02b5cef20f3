"""What is measured, before any framework, and the protocol of a framework that is measured.

A subject runs in a mode at a batch size; a backend builds this configuration, and a prepared one runs and is timed.
Each framework has a package that implements it.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.operators.operators import Operator


def mode_of(words: str) -> Mode:
    """Mode in PyTorch of a preset's words, ``PRECISION`` or ``PRECISION/MEMORY_FORMAT``: ``amp_bf16/channels_last``."""
    precision, _, memory_format = words.partition("/")
    return Mode(precision=precision, memory_format=memory_format or "nchw")


MEASURE_WHOLE = "Measure the CNN whole: --preset targets:FILE.py:make_model."
"""The next step where a layer cannot be built from a layer table."""


class Builder(NamedTuple):
    """A function of the user's own file that takes no arguments and returns a CNN."""

    path: Path
    function: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A proxy CNN, an operator, a target CNN or an all-reduce; one of `table`, `operator`, `builder`, `message_bytes`.

    `kind` is ``proxy``, ``operator``, ``target`` or ``all_reduce``. `image_size` is in pixels; of an operator, the
    height of its input; of an all-reduce 1.
    """

    kind: str
    name: str
    image_size: int
    table: LayerTable | None = None
    operator: Operator | None = None
    builder: Builder | None = None
    message_bytes: int | None = None

    @property
    def is_whole_cnn(self) -> bool:
        """Whether it is a CNN, of which an iteration trains all layers."""
        return self.operator is None and self.message_bytes is None


@dataclass(frozen=True, slots=True)
class Replicas:
    """Copies of a CNN, one on each of `n_gpus` GPUs, that add up their gradients in buckets of `bucket_mib` MiB.

    `bucket_view`: gradients are views of the buckets (PyTorch's ``gradient_as_bucket_view``). `sync_batch_norm`: batch
    norms take the statistics of all GPUs' images.
    """

    n_gpus: int = 1
    bucket_mib: float = 25.0
    bucket_view: bool = False
    sync_batch_norm: bool = False


ALONE = Replicas()
"""One GPU, which shares its gradients with no other."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A subject in one mode at one batch size. Measuring it gives one row of the table.

    `batch_size` is that of one GPU; the row holds the mini-batch of all of them.
    """

    subject: Subject
    mode: Mode
    batch_size: int
    replicas: Replicas = ALONE

    @property
    def global_batch_size(self) -> int:
        """Images of one iteration on all GPUs."""
        return self.batch_size * self.replicas.n_gpus

    @property
    def words(self) -> str:
        """Name for messages."""
        words = f"{self.subject.name} at batch size {self.batch_size} in {self.mode.precision}"
        words += ", compiled" * (self.mode.capture == "compile")
        return words if self.replicas == ALONE else f"{words} on each of {self.replicas.n_gpus} GPUs"


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
