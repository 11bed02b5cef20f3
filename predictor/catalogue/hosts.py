"""Machines around GPUs: how long their CPUs take to enqueue an iteration, measured or by clock; checked when read.

The reference is one training iteration of ResNet-18 at 32 pixels, eager, in PyTorch and fp32 or TF32 (`REFERENCE_CNN`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from statistics import median

from predictor.catalogue.devices import Gpu, all_gpus, generations
from predictor.catalogue.offers import Offer, load_offers
from predictor.catalogue.rows import read_rows
from predictor.errors import DataError, OutOfRangeError, SchemaError, nearest
from predictor.files import data_file

REFERENCE_CNN = ("resnet18", 32)
"""CNN and image size whose enqueue time tells a host's speed; every measuring run notes it as `host_cnn_ms`."""

KINDS = ("server", "desktop")

_YEARLY = 1.06  # instructions per clock, from one year's core designs to the next's
_FIRST_YEAR = 2014
_OURS = "own"  # instances of this provider are machines that we measured, by their GPU

_MEASURED, _BY_CLOCK, _OF_OFFERS, _OF_OTHERS = 0.3, 0.4, 0.5, 0.7
"""90 % half widths of ln of a host's speed: of a CPU measured, by its clock, of a GPU with known offers, and without.

Machines of one CPU differ by a quarter from day to day (a rented H200: 5.1 to 7.7 ms)."""


@dataclass(frozen=True, slots=True)
class HostSpeed:
    """Time of the reference iteration on a host, in ms; `spread` is the 90 % half width of its ln."""

    name: str
    reference_ms: float
    spread: float


@dataclass(frozen=True, slots=True)
class Host:
    """A CPU, with the instances that have it as ``provider/instance`` patterns.

    `measured_ms` is its time of the reference iteration, `measured` whose; `max_ghz` the clock of one busy core,
    `core_year` that of the core's design. None where unknown.
    """

    name: str
    kind: str
    max_ghz: float | None
    core_year: int | None
    instances: tuple[str, ...]
    measured_ms: float | None
    measured: str
    basis: str
    source_url: str
    retrieved_on: str

    @property
    def performance(self) -> float | None:
        """Clock in GHz x what core designs gained since 2014; None where the clock or the year is unknown."""
        if self.max_ghz is None or self.core_year is None:
            return None
        return self.max_ghz * _YEARLY ** (self.core_year - _FIRST_YEAR)

    def has(self, offer: Offer) -> bool:
        """Whether an offer's machine has this CPU."""
        name = f"{offer.provider}/{offer.instance}"
        return any(fnmatchcase(name, pattern) for pattern in self.instances)

    def speed(self, others: Iterable[Host] | None = None) -> HostSpeed:
        """Its speed: as measured, else by its clock beside `others` (by default all) that were measured.

        Time = c / `performance`, c the geometric mean of time x performance of measured CPUs; NaN where `performance`
        is unknown. DataError if no other CPU has both a time and a performance.
        """
        if self.measured_ms is not None:
            return HostSpeed(self.name, self.measured_ms, _MEASURED)
        peers = all_hosts() if others is None else others
        measured = [host for host in peers if host.measured_ms and host.performance]
        if not measured:
            raise DataError(
                f"no CPU beside {self.name} has a measured time and a known clock and year. Pass others that have, or "
                "leave them out for those of hosts.csv."
            )
        logs = [math.log(host.measured_ms * host.performance) for host in measured]  # type: ignore[operator]
        reference_ms = math.exp(sum(logs) / len(logs)) / (self.performance or math.nan)
        return HostSpeed(self.name, reference_ms, _BY_CLOCK)


def find_host(name: str) -> HostSpeed | None:
    """Speed of the host of a name: a CPU (``EPYC 7R32``) or an instance (``aws/g5.2xlarge``); None if none has it."""
    key = name.strip().casefold()
    for host in all_hosts():
        whole_name = host.name.casefold()
        if key in (whole_name, whole_name.partition(" ")[2]):  # with its maker, and without
            return host.speed()
    for offer in load_offers():
        if key in (offer.instance.casefold(), f"{offer.provider}/{offer.instance}".casefold()):
            rented = host_of(offer)
            if rented is not None:
                return replace(rented.speed(), name=f"{rented.name} ({offer.instance})")
    return None


def slowness_of_cpu(name: str | None) -> float:
    """Times as long as a usual server's CPU that a named one takes; 1 for no name, a file, or one not in the table."""
    speed = None if name is None else find_host(name)
    return 1.0 if speed is None else speed.reference_ms / _median_server_ms()


@lru_cache(maxsize=4096)
def host_of(offer: Offer) -> Host | None:
    """The CPU of an offer's machine; None where its provider does not say, or mixes several."""
    return next((host for host in _hosts_by_provider().get(offer.provider, ()) if host.has(offer)), None)


@lru_cache(maxsize=1)
def _hosts_by_provider() -> dict[str, dict[Host, None]]:
    """Hosts with an instance of each provider, in the order of the table."""
    hosts: dict[str, dict[Host, None]] = {}
    for host in all_hosts():
        for pattern in host.instances:
            hosts.setdefault(pattern.partition("/")[0], {})[host] = None
    return hosts


@lru_cache(maxsize=256)
def usual_host(gpu: Gpu) -> HostSpeed:
    """The host of a GPU where none is named: the usual one of its generation, so that no host orders two GPUs.

    The median CPU of the offers of a generation's GPUs, each CPU once, or of the generation before where that is faster
    or this one is not offered with a known CPU.
    """
    offered = any(host_of(offer) for offer in load_offers() if offer.gpu == gpu.name)
    own = any(f"{_OURS}/{gpu.name}" in host.instances for host in all_hosts())
    spread = _OF_OFFERS if offered or own else _OF_OTHERS
    generation = gpu.generation.capitalize()
    return HostSpeed(f"a usual machine of {generation} GPUs", _usual_ms()[gpu.generation], spread)


@lru_cache(maxsize=1)
def _usual_ms() -> dict[str, float]:
    """Time of the reference iteration on the usual host of each generation, oldest first; it never rises."""
    hosts_of: dict[str, set[Host]] = {generation: set() for generation in generations()}
    generation_of = {gpu.name: gpu.generation for gpu in all_gpus()}
    for offer in load_offers():
        if (host := host_of(offer)) is not None:
            hosts_of[generation_of[offer.gpu]].add(host)
    for host in _hosts_by_provider()[_OURS]:
        for instance in host.instances:
            provider, _, gpu_name = instance.partition("/")
            if provider == _OURS:
                hosts_of[generation_of[gpu_name]].add(host)
    usual_ms, fastest_ms = {}, math.inf
    for generation, hosts in hosts_of.items():
        if hosts:
            fastest_ms = min(fastest_ms, median(host.speed().reference_ms for host in hosts))
        usual_ms[generation] = fastest_ms
    return usual_ms


@lru_cache(maxsize=1)
def _median_server_ms() -> float:
    return median(host.speed().reference_ms for host in all_hosts() if host.kind == "server")


def unknown_host(name: str, more: Iterable[str] = ()) -> OutOfRangeError:
    """The error for a host that neither is in the table nor among `more`."""
    instances = (offer.instance for offer in load_offers() if host_of(offer) is not None)
    names = list(dict.fromkeys([*(host.name for host in all_hosts()), *more, *instances]))
    return OutOfRangeError(
        f"host {name!r} is not known. Nearest: {nearest(name, names)}. `epochcast hosts list` shows all. Measure yours "
        "with `epochcast host --out host.json` and pass the file, or leave it out for the usual one."
    ).about("host")


@lru_cache(maxsize=1)
def all_hosts() -> tuple[Host, ...]:
    """Hosts of ``hosts.csv`` in its order.

    SchemaError if a row has neither a measured time nor a clock, or another kind; the message names it.
    """
    hosts = read_rows(Host, data_file("hosts.csv"), name="host", measured_ms="reference_ms")
    for host in hosts:
        if host.kind not in KINDS or (host.measured_ms is None and host.performance is None):
            raise SchemaError(
                f"hosts.csv: {host.name} needs a kind of {', '.join(KINDS)}, and a time or a clock."
            )
    return hosts
