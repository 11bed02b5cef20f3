"""Links that join GPUs of a machine, and machines: how fast they add up gradients; checked when read."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise

from predictor.catalogue.devices import Gpu, has_peer_access
from predictor.catalogue.offers import Offer
from predictor.checks import yes_or_no
from predictor.errors import SchemaError, nearest
from predictor.files import data_file

JOINS = ("gpu", "node")
"""What a link joins: GPUs of one machine, or machines."""

BASES = ("measured", "published", "cited", "derived")
"""Where a bandwidth is from: our own tables, an address, common reports without an address, arithmetic."""


@dataclass(frozen=True, slots=True)
class Link:
    """One kind of link.

    `bus_bandwidth_gb_per_s` maps the number of GPUs (of `joins` ``node``: of machines) to the bus bandwidth of an
    all-reduce of a large message, 10^9 bytes/s; `basis` to where that figure is from, one of `BASES`. `overlaps`: sums
    go on while the backward pass computes.
    """

    name: str
    joins: str
    bus_bandwidth_gb_per_s: Mapping[int, float] = field(hash=False)
    basis: Mapping[int, str] = field(hash=False)
    latency_us: float
    overlaps: bool = True

    def bandwidth_gb_per_s(self, n: int) -> float:
        """Bus bandwidth in GB/s among `n` of what the link `joins`: linear in log n, constant outside the known n."""
        bandwidths = sorted(self.bus_bandwidth_gb_per_s.items())
        for (low, slow), (high, fast) in pairwise(bandwidths):
            if low <= n <= high:
                return slow + (fast - slow) * math.log(n / low) / math.log(high / low)
        return bandwidths[0][1] if n < bandwidths[0][0] else bandwidths[-1][1]

    def all_reduce_ms(self, n_bytes: float, n: int, joined: int, messages: int = 1) -> float:
        """Time in ms in which `n` GPUs sum `n_bytes` of every one, sent in `messages`.

        The link joins `joined` GPUs or machines.

        A ring sends 2 (n - 1) / n of the bytes over each link (Patarasuk and Yuan, J. Parallel Distrib. Comput. 69,
        2009), which is how bus bandwidth is defined.
        """
        wire_ms = 2 * (n - 1) / n * n_bytes / (1e6 * self.bandwidth_gb_per_s(joined))
        return wire_ms + messages * self.latency_us / 1000

    def is_measured(self, joined: int) -> bool:
        """Whether this project measured all-reduces among `joined` GPUs or machines."""
        return self.basis.get(joined) == "measured"


def all_links() -> tuple[Link, ...]:
    """Every link of ``links.csv``."""
    return tuple(_links().values())


def find_link(name: str, joins: str | None = None) -> Link:
    """Link by its name.

    SchemaError if there is none, or it does not join what `joins` says.
    """
    links = {key: link for key, link in _links().items() if joins in (None, link.joins)}
    word = name.strip().casefold()
    if word not in links:
        between = {"gpu": " between GPUs of one machine", "node": " between machines", None: ""}[joins]
        raise SchemaError(
            f"no link{between} is called {name!r}. Nearest: {nearest(word, links)}; known: {', '.join(links)}."
            + (f" {word} joins machines: pass nodes, too." if joins == "gpu" and word in _links() else "")
        ).about("link")
    return links[word]


def usual_link(gpu: Gpu, offers: Iterable[Offer]) -> Link:
    """Link between GPUs of this kind: that of most offers with several of them, else its NVLink or PCI Express.

    SXM modules have NVLink; cards without peer access exchange through the host's memory. SchemaError if neither is
    known.
    """
    offered = Counter(offer.link for offer in offers if offer.gpu == gpu.name and offer.link)
    if offered:
        return find_link(offered.most_common(1)[0][0], "gpu")
    name = f"pcie{gpu.pcie_generation}" + ("" if has_peer_access(gpu) else "_host")
    if "SXM" in gpu.name and gpu.nvlink_generation:
        name = f"nvlink{gpu.nvlink_generation}"
    if name in _links():
        return find_link(name)
    names = ", ".join(link.name for link in all_links() if link.joins == "gpu")
    raise SchemaError(f"it is not known what joins several {gpu.name}. Pass link, one of {names}.").about(
        "link"
    )


@lru_cache(maxsize=1)
def _links() -> dict[str, Link]:
    rows_by_link: dict[str, list[dict[str, str]]] = {}
    with data_file("links.csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            rows_by_link.setdefault(row["link"], []).append(row)
    return {
        name: Link(
            name,
            rows[0]["joins"],
            {int(row["n_joined"]): float(row["bus_bandwidth_gb_per_s"]) for row in rows},
            {int(row["n_joined"]): row["basis"] for row in rows},
            max(float(row["latency_us"]) for row in rows),
            all(yes_or_no("overlaps", row["overlaps"]) for row in rows),
        )
        for name, rows in rows_by_link.items()
    }
