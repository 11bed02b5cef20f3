"""Several trainings on one GPU: errors of the law on CNNs that are not in its fit: `python benchmarks/packed.py`.

``packed_h100_h200.csv``: the mean iteration of each kind of training of a case, processes without MPS on one H100,
PyTorch 2.11, runs 4 and 5 on one H200, with the `vcpus` that they might use and the loader `workers` of each.
`alone_ms` is the same loop with the GPU to itself, on one vCPU where fewer than 16 were allowed in run 3; in run 4
without its loader, in run 5 with it, and the mean of several times among the others. `gpu_ms`: its kernels one after
another, of run 5 with 1 us of pause behind each; run 1 has the GPU time of eight such trainings, over 8 x 1.1.
`loading_ms` is the work on the images of an iteration, of `workers` or, without, what it adds to the loop itself; 0
where they lie on the GPU, and in run 3.
"""

import csv
import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import NamedTuple

import numpy as np

from predictor.answers.loading import MEASURED_SPREAD
from predictor.models.packed import ENTRY, turns_of_each
from predictor.models.ratios import Ratios, ratios_of

TABLE = Path(__file__).with_name("packed_h100_h200.csv")


class Kind(NamedTuple):
    """`equal_ones` of the `trainings` of a case, and the times of one in ms."""

    run: int
    cnn: str
    equal_ones: int
    trainings: int
    vcpus: int
    workers: int
    alone_ms: float
    gpu_ms: float
    loading_ms: float
    iteration_time_ms: float

    @property
    def work_ms(self) -> float:
        """Work of all hosts and loaders of an iteration on each vCPU."""
        return self.trainings / self.vcpus * (self.alone_ms + self.loading_ms * (self.workers > 0))


def read_cases() -> list[list[Kind]]:
    """Trainings that ran together, kind by kind."""
    cases: dict[str, list[Kind]] = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            kind = Kind(*(to_type(row[name]) for name, to_type in Kind.__annotations__.items()))
            cases.setdefault(row["case"], []).append(kind)
    return list(cases.values())


def times_ms(
    case: list[Kind], switches: float, host: float, slower: float = 1.0, loading: float = 1.0
) -> list[float]:
    """Iterations of unlike trainings: as their hosts or loaders allow, or as the GPU takes turns.

    `slower`, `loading`: factors of the times of hosts and loaders.
    """
    own_ms = []
    for kind in (kind._replace(loading_ms=loading * kind.loading_ms) for kind in case):
        host_ms = slower * max(kind.alone_ms, host * kind.work_ms)
        loader_ms = kind.loading_ms / max(1, kind.workers)
        own_ms.append(max(host_ms, loader_ms) if kind.workers else host_ms + loader_ms)
    needs = np.array([switches * kind.gpu_ms for kind in case]) / own_ms
    turns = turns_of_each(np.repeat(needs, [kind.equal_ones for kind in case]))
    return [max(ms, turns * switches * kind.gpu_ms) for ms, kind in zip(own_ms, case, strict=True)]


def fitted(cases: list[list[Kind]]) -> dict[str, float]:
    """`switches`: median of equal trainings that need more than the GPU has; `host`: mean of those that lack vCPUs."""
    switches, slower = [], []
    for kind in (case[0] for case in cases if len(case) == 1):
        gpu_ms, ms = kind.equal_ones * kind.gpu_ms, kind.iteration_time_ms
        if gpu_ms > 1.2 * max(kind.alone_ms, kind.work_ms) and not kind.loading_ms:
            switches.append(ms / gpu_ms)
        if gpu_ms < 0.9 * kind.work_ms > 0.9 * kind.alone_ms:
            slower.append(math.log(ms / kind.work_ms))
    return {"switches": median(switches), "host": math.exp(fmean(slower))}


def shipped_ratios() -> Ratios:
    """The entry of ``ratios.json``: the fit of all CNNs, and spreads as stated."""
    fit = fitted(read_cases()).items()
    return replace(ratios_of(ENTRY), numbers={name: round(value, 2) for name, value in fit})


def left_out() -> list[tuple[Kind, float, bool]]:
    """Each kind, the error of its iteration in %, and whether its interval holds it, by the fit without its CNN."""
    cases, rows, ratios = read_cases(), [], ratios_of(ENTRY)
    spreads = ratios.spread, ratios.host_spread, math.log(MEASURED_SPREAD)
    factors = [np.exp(ends) for ends in product(*((0, -spread, spread) for spread in spreads))]
    for cnn in dict.fromkeys(kind.cnn for case in cases for kind in case):
        fit = fitted([case for case in cases if cnn not in {kind.cnn for kind in case}])
        for case in cases:
            times = [times_ms(case, fit["switches"] * turn, fit["host"], *more) for turn, *more in factors]
            for kind, *case_ms in zip(case, *times, strict=True):
                ms = kind.iteration_time_ms
                if kind.cnn == cnn:
                    rows.append((kind, 100 * (case_ms[0] / ms - 1), min(case_ms) <= ms <= max(case_ms)))
    return rows


def main() -> None:
    """Print the errors of CNNs that are left out of the fit: by CNN, by run, and by what was varied."""
    groups: dict[str, list[tuple[float, bool]]] = {}
    for kind, *judgement in left_out():
        varied = [f"{getattr(kind, name)} {name}" for name in ("trainings", "vcpus", "workers")]
        varied += ["work above the vCPUs"] * (kind.work_ms > kind.alone_ms)
        varied += ["unlike"] * (kind.equal_ones < kind.trainings) + ["with loading"] * (kind.loading_ms > 0)
        for group in ("all", f"run {kind.run}", kind.cnn, *varied):
            groups.setdefault(group, []).append(judgement)
    for group, rows in sorted(groups.items()):
        errors, is_inside = zip(*rows, strict=True)
        off, held = sorted(map(abs, errors)), f"{sum(is_inside)} of {len(rows)} inside"
        print(f"{group:33} {fmean(off):4.1f} %, median {median(off):4.1f}, most {off[-1]:2.0f}; {held}")


if __name__ == "__main__":
    main()
