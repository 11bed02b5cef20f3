"""What enqueuing costs on a machine: measured by `epochcast host`, kept as JSON, compared with other machines.

A host's speed is the time it takes to enqueue training iterations of a few small CNNs. These have little work for a
GPU, so the same CNNs in the same mode on two machines differ only by the hosts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, log
from pathlib import Path

from predictor.catalogue.hosts import REFERENCE_CNN
from predictor.catalogue.modes import FRAMEWORKS, MEMORY_FORMATS, PRECISIONS
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.machine_file import MachineFile
from predictor.table_files import SUFFIXES

HOST_FORMAT_VERSION = 1
"""Version of the JSON file of `epochcast host`."""

HOST_CNNS = (REFERENCE_CNN, ("lenet5", 28))
"""CNNs of the zoo and image sizes that `epochcast host` enqueues, at `HOST_BATCH_SIZE`."""

HOST_BATCH_SIZE = 8
"""Mini-batch size of `HOST_CNNS`; enqueuing takes as long at any other."""

DISPATCHED = ("2_8_8", 2)
"""Proxy CNN whose iteration a CPU spends in the framework rather than in its 32 numbers an image."""

WATCHED = "epochcast.watch"
"""Source of rows whose `host_cnn_ms` follows from their own iteration."""


@dataclass(frozen=True, slots=True)
class HostTime:
    """Time to enqueue one training iteration of a small CNN, in ms; on a CPU (`device` ``cpu``), to run it.

    `spread` is the half width of the 95 % interval of the median, as a fraction; None where it is unknown.
    """

    framework: str
    device: str
    precision: str
    memory_format: str
    cnn: str
    image_size: int
    host_time_ms: float
    spread: float | None = None

    def __post_init__(self) -> None:
        choices = {"framework": FRAMEWORKS, "device": ("cpu", "gpu"), "precision": PRECISIONS}
        for name, words in (choices | {"memory_format": MEMORY_FORMATS}).items():
            if getattr(self, name) not in words:
                raise SchemaError(f"{name} {getattr(self, name)!r} is not known; known: {', '.join(words)}.")
        if not isinstance(self.host_time_ms, int | float) or not 0 < self.host_time_ms < float("inf"):
            raise SchemaError(
                f"host_time_ms {self.host_time_ms!r} of {self.cnn} is not a finite number above 0, in ms."
            )

    @property
    def subject(self) -> tuple[str, int]:
        """CNN and image size."""
        return self.cnn, self.image_size


@dataclass(frozen=True, slots=True)
class HostMeasurement:
    """One machine's enqueue times, by framework and mode.

    `host` and `gpu` are named as in measurement tables. `kernel_us` is the time to enqueue one kernel without work and
    `graph_kernel_us` that between two of them in a replayed graph, in microseconds; None where there is no GPU, or
    the framework has no graphs.
    """

    host: str
    times: tuple[HostTime, ...]
    gpu: str | None = None
    kernel_us: float | None = None
    graph_kernel_us: float | None = None
    framework_versions: Mapping[str, str] | None = None
    measured_at: str | None = None

    def times_of(self, framework: str, device: str = "gpu") -> list[HostTime]:
        """Times of one framework on one kind of device."""
        return [time for time in self.times if (time.framework, time.device) == (framework, device)]

    def reference_ms(self, framework: str, autocast: float) -> float:
        """Time in ms to enqueue the reference iteration without autocast: geometric mean of all modes.

        `autocast`: factor by which autocast lengthens it. OutOfRangeError if this machine was not measured with the
        framework and a GPU.
        """
        times = [time for time in self.times_of(framework) if time.subject == REFERENCE_CNN]
        if not times:
            raise OutOfRangeError(
                f"the host {self.host!r} was not measured with {framework} and a GPU. "
                f"Measure it with `epochcast host --framework {framework} --out host.json`."
            ).about("host")
        factors = [autocast if time.precision.startswith("amp") else 1.0 for time in times]
        logs = [log(time.host_time_ms / factor) for time, factor in zip(times, factors, strict=True)]
        return exp(sum(logs) / len(logs))


def is_host_file(name: str) -> bool:
    """Whether a host's name ends as a file of `epochcast host` or a table does; the file need not exist."""
    return name.casefold().endswith((".json", *SUFFIXES))


def read_host(path: Path) -> HostMeasurement:
    """Read the JSON file that `epochcast host` wrote, or what a profile or `epochcast.watch` noted in its table.

    SchemaError if it is no such file, of another version, or a time is not a number above 0; the message names the
    file.
    """
    return _of_table(path) if path.name.casefold().endswith(SUFFIXES) else _FILE.read(path)


def _of_table(path: Path) -> HostMeasurement:
    from predictor.measurements.table import read_measurements

    rows = read_measurements(path).dropna(subset=["host_cnn_ms"])
    if rows.empty:
        raise SchemaError(
            f"{path} does not tell how fast its host is: a watched iteration does where the host decides it, a profile "
            "on a GPU. Measure it with `epochcast host --out host.json` and pass that file as --host."
        ).about("host")
    if rows["host"].nunique() != 1:
        raise SchemaError(
            f"{path} notes the enqueue times of {rows['host'].nunique()} hosts, and --host is one. Pass the file of "
            "`epochcast host`, or a table of one machine."
        ).about("host")
    times = []
    for mode, mode_ms in rows.groupby(["framework", "precision", "memory_format"])["host_cnn_ms"]:
        framework, precision, memory_format = map(str, mode)
        ms, between = float(mode_ms.median()), log(mode_ms.max() / mode_ms.min()) / 2
        times.append(HostTime(framework, "gpu", precision, memory_format, *REFERENCE_CNN, ms, between))
    return HostMeasurement(str(rows["host"].iloc[0]), tuple(times))


_FILE = MachineFile(HostMeasurement, "times", HostTime, "epochcast host", "host.json", HOST_FORMAT_VERSION)
write_host = _FILE.write
"""Write the JSON file that `read_host` reads."""
