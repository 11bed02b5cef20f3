"""What enqueuing costs on a machine: measured by `epochcast host`, kept as JSON, compared with other machines.

A host's speed is the time it takes to enqueue training iterations of a few small CNNs. These have little work for a
GPU, so the same CNNs in the same mode on two machines differ by the hosts alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, fields
from math import exp, isfinite, log, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.catalogue.modes import FRAMEWORKS, MEMORY_FORMATS, PRECISIONS, Mode
from predictor.errors import OutOfRangeError, SchemaError
from predictor.files import data_root, replace_file

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "DISPATCHED",
    "HOST_BATCH_SIZE",
    "HOST_CNNS",
    "HOST_FORMAT_VERSION",
    "REFERENCE_CNN",
    "HostFactor",
    "HostMeasurement",
    "HostTime",
    "host_factor",
    "host_of_rows",
    "read_host",
    "shipped_hosts",
    "write_host",
]

HOST_FORMAT_VERSION = 1
"""Version of the JSON file of `epochcast host`."""

REFERENCE_CNN = ("resnet18", 32)
"""CNN and image size whose enqueue time every measuring run notes in its rows, as `host_cnn_ms`."""

HOST_CNNS = (REFERENCE_CNN, ("lenet5", 28))
"""CNNs of the zoo and image sizes that `epochcast host` enqueues, at `HOST_BATCH_SIZE`."""

HOST_BATCH_SIZE = 8
"""Mini-batch size of `HOST_CNNS`; enqueuing takes as long at any other."""

DISPATCHED = ("2_8_8", 2)
"""Proxy CNN whose iteration a CPU spends in the framework rather than in its 32 numbers an image."""

_TRUST = 0.8
_LARGEST_BATCH = 64
"""Rows above it are not compared: their GPU falls behind, and a full queue makes the host wait."""


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
        known = {"framework": FRAMEWORKS, "device": ("cpu", "gpu"), "precision": PRECISIONS}
        for name, words in (known | {"memory_format": MEMORY_FORMATS}).items():
            if getattr(self, name) not in words:
                raise SchemaError(f"{name} {getattr(self, name)!r} is not known; known: {', '.join(words)}.")
        if not isinstance(self.host_time_ms, int | float) or not 0 < self.host_time_ms < float("inf"):
            raise SchemaError(
                f"host_time_ms {self.host_time_ms!r} of {self.cnn} is no finite number above 0, in ms."
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
        return [each for each in self.times if (each.framework, each.device) == (framework, device)]

    def slowness(self, mode: Mode, predicted_ms: Callable[[str, int], float]) -> float:
        """How many times longer this machine takes to enqueue an iteration than another one.

        Parameters
        ----------
        mode : Mode
        predicted_ms : callable
            Host time of a CNN of the zoo at an image size on the other machine, in ms.

        Raises
        ------
        OutOfRangeError
            If this machine was not measured with the framework and a GPU.

        Notes
        -----
        Mean over its small CNNs of ln(measured / predicted), those of the mode if there are any, shrunk to four fifths:
        hosts differ by a factor of 1.9 (one standard deviation), and small CNNs tell it within 1.35.
        """
        known = self.times_of(mode.framework)
        if not known:
            raise OutOfRangeError(
                f"the host {self.host!r} was not measured with {mode.framework} and a GPU. "
                f"Measure it with `epochcast host --framework {mode.framework} --out host.json`."
            )
        asked = (mode.precision, mode.memory_format)
        own = [each for each in known if (each.precision, each.memory_format) == asked] or known
        ratios = [log(each.host_time_ms / predicted_ms(*each.subject)) for each in own]
        return exp(_TRUST * sum(ratios) / len(ratios))


@dataclass(frozen=True, slots=True)
class HostFactor:
    """How many times longer enqueuing takes on one machine than on another.

    `ln_spread` is the standard deviation of ln of the ratios behind it (of modes and CNNs), 0 for a single one;
    `basis` says what was compared: ``mode`` (the asked mode), ``framework`` (its other modes) or ``cpu`` (iterations
    on the CPU, where one of the machines was measured without a GPU).
    """

    factor: float
    ln_spread: float
    n: int
    basis: str


def host_factor(
    here: HostMeasurement, there: HostMeasurement, framework: str, precision: str, memory_format: str
) -> HostFactor:
    """Ratio of the enqueue times of two machines, `here` over `there`: multiply host times of `there` by it.

    Parameters
    ----------
    here : HostMeasurement
        The machine that is asked about.
    there : HostMeasurement
        The machine whose host times are known.
    framework, precision, memory_format : str
        Mode of the question.

    Returns
    -------
    HostFactor
        The geometric mean over CNNs that both have: in the asked mode; else in the framework's other modes; else on
        the CPU.

    Raises
    ------
    OutOfRangeError
        If the two have no CNN in common in this framework.
    """
    on_gpu = _ratios(here, there, framework, "gpu")
    own = [ratio for (mode, _), ratio in on_gpu.items() if mode == (precision, memory_format)]
    on_cpu = list(_ratios(here, there, framework, "cpu").values())
    for basis, ratios in (("mode", own), ("framework", list(on_gpu.values())), ("cpu", on_cpu)):
        if ratios:
            mean = sum(map(log, ratios)) / len(ratios)
            spread = sqrt(sum((log(each) - mean) ** 2 for each in ratios) / max(1, len(ratios) - 1))
            return HostFactor(exp(mean), spread, len(ratios), basis)
    raise OutOfRangeError(
        f"the measurements of hosts {here.host!r} and {there.host!r} have no {framework} iteration in common. "
        f"Measure the host again: epochcast host --framework {framework} --out host.json"
    )


def _ratios(
    here: HostMeasurement, there: HostMeasurement, framework: str, device: str
) -> dict[tuple[tuple[str, str], tuple[str, int]], float]:
    """Ratios by mode and CNN."""
    known = {_key(each): each.host_time_ms for each in there.times_of(framework, device)}
    own = {_key(each): each.host_time_ms for each in here.times_of(framework, device)}
    return {key: own[key] / known[key] for key in own if key in known}


def _key(time: HostTime) -> tuple[tuple[str, str], tuple[str, int]]:
    return (time.precision, time.memory_format), time.subject


def host_of_rows(table: pd.DataFrame, host: str) -> HostMeasurement:
    """The enqueue times of a machine by the whole CNNs of a measurement table that were timed there.

    Parameters
    ----------
    table : DataFrame
        A checked measurement table.
    host : str
        Name in its column `host`.

    Returns
    -------
    HostMeasurement
        Medians of `host_time_ms` over eager iterations of `HOST_CNNS` of at most 64 images, by mode, and of the
        column `host_cnn_ms`.

    Raises
    ------
    OutOfRangeError
        If there are none.
    """
    rows = table[(table["host"] == host) & (table["device_kind"].fillna("gpu") != "cpu")]
    found: dict[tuple[str, str, str, str, str, int], list[float]] = {}
    for row in rows.to_dict("records"):
        mode = (str(row["framework"]), "gpu", str(row["precision"]), str(row["memory_format"] or "nchw"))
        cnn, image_size = str(row["cnn"]), int(row["image_size"])
        if _shows_host(row) and (cnn, image_size) in HOST_CNNS:
            found.setdefault((*mode, cnn, image_size), []).append(row["host_time_ms"])
        if isfinite(row.get("host_cnn_ms") or float("nan")):
            found.setdefault((*mode, *REFERENCE_CNN), []).append(row["host_cnn_ms"])
    if not found:
        raise OutOfRangeError(
            f"the table has no eager iteration of {', '.join(cnn for cnn, _ in HOST_CNNS)} on host {host!r}."
        )
    times = tuple(HostTime(*key, _median(values)) for key, values in sorted(found.items()))
    return HostMeasurement(host, times)


def _shows_host(row: Mapping[Any, Any]) -> bool:
    eager = (row.get("capture") or "eager") == "eager" and row.get("kind") == "target"
    known = isfinite(row.get("host_time_ms") or float("nan"))
    return bool(eager and known and int(row["batch_size"]) <= _LARGEST_BATCH)


def _median(values: Iterable[float]) -> float:
    ordered = sorted(values)
    return (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2


def read_host(path: Path) -> HostMeasurement:
    """Read the JSON file that `epochcast host` wrote.

    Raises
    ------
    SchemaError
        If it is no such file, of another version, or a time is no number above 0; the message names the file.
    """
    try:
        given = json.loads(path.read_text())
        version = given.pop("format_version")
        if version != HOST_FORMAT_VERSION:
            raise SchemaError(f"format_version is {version!r}; this release reads {HOST_FORMAT_VERSION}.")
        times = tuple(HostTime(**each) for each in given.pop("times"))
        known = {name: given.get(name) for name in _ABOUT}
        return HostMeasurement(**known, times=times)
    except (OSError, SchemaError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise SchemaError(
            f"{path} is no file of `epochcast host`: {error}. Write one: epochcast host --out host.json"
        ) from error


_ABOUT = [each.name for each in fields(HostMeasurement) if each.name != "times"]


def shipped_hosts() -> dict[str, HostMeasurement]:
    """Machines that come with epochcast, by the name of their file in `datasets/hosts`."""
    return {path.stem: read_host(path) for path in sorted((data_root() / "hosts").glob("*.json"))}


def write_host(measured: HostMeasurement, path: Path) -> None:
    """Write the JSON file that `read_host` reads."""
    about = {name: getattr(measured, name) for name in _ABOUT}
    known = {name: value for name, value in about.items() if value is not None}
    document = {
        "format_version": HOST_FORMAT_VERSION,
        **known,
        "times": [asdict(each) for each in measured.times],
    }
    replace_file(path, (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode())
