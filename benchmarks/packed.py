"""Several trainings on one GPU: errors of the law on rows that are not in its fit: `python benchmarks/packed.py`.

``packed_h100.csv``: the mean iteration of each kind of training of a case, processes without MPS on one H100, PyTorch
2.11, run 4 on one H200, with the `vcpus` that they might use and the loader `workers` of each. `alone_ms` is the same
loop with the GPU to itself, on one vCPU where fewer than 16 were allowed in run 3, in run 4 without its loader;
`gpu_ms` its kernels one after another: run 1 has the GPU time of eight such trainings, over 8 x 1.1. `loading_ms` is
the work on the images of an iteration, of `workers` or, without, of the loop itself; 0 where they lie on the GPU, and
in run 3. The law is fitted on runs 1 and 2; runs 3 and 4 were measured afterwards.
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

TABLE = Path(__file__).with_name("packed_h100.csv")


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


def read_cases(*runs: int) -> list[list[Kind]]:
    """Trainings of these runs that ran together, kind by kind."""
    cases: dict[str, list[Kind]] = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            kind = Kind(*(to_type(row[name]) for name, to_type in Kind.__annotations__.items()))
            cases.setdefault(row["case"], []).append(kind)
    return [case for case in cases.values() if case[0].run in runs]


def times_ms(case: list[Kind], switches: float, host: float, loading: float = 1.0) -> list[float]:
    """Iterations of unlike trainings: as their hosts or loaders allow, or as the GPU takes turns."""
    own_ms = []
    for kind in case:
        loading_ms, work_ms = loading * kind.loading_ms, kind.alone_ms
        work_ms += loading_ms * (kind.workers > 0)
        host_ms = host * max(kind.alone_ms, kind.trainings / kind.vcpus * work_ms)
        own_ms.append(max(host_ms, loading_ms / kind.workers) if kind.workers else host_ms + loading_ms)
    needs = np.array([switches * kind.gpu_ms for kind in case]) / own_ms
    turns = turns_of_each(np.repeat(needs, [kind.equal_ones for kind in case]))
    return [max(ms, turns * switches * kind.gpu_ms) for kind, ms in zip(case, own_ms, strict=True)]


def fitted(cases: list[list[Kind]]) -> dict[str, float]:
    """`switches`: median of equal trainings that need more than the GPU has; `host`: mean of those that need less."""
    equal = [case[0] for case in cases if len(case) == 1]
    times = [(kind.equal_ones * kind.gpu_ms, kind.alone_ms, kind.iteration_time_ms) for kind in equal]
    switches = [ms / gpu_ms for gpu_ms, alone_ms, ms in times if gpu_ms > 1.2 * alone_ms]
    slower = [math.log(ms / alone_ms) for gpu_ms, alone_ms, ms in times if gpu_ms < 0.9 * alone_ms]
    return {"switches": median(switches), "host": math.exp(fmean(slower))}


def shipped_ratios() -> Ratios:
    """The entry of ``ratios.json``: the fit of all CNNs, and spreads as stated."""
    fit = fitted(read_cases(1, 2)).items()
    return replace(ratios_of(ENTRY), numbers={name: round(value, 2) for name, value in fit})


def judged(cases: list[list[Kind]], ratios: Ratios) -> list[tuple[Kind, float, bool]]:
    """Each kind, the error of its iteration in %, and whether its interval, that of all factors, holds it."""
    spreads = ratios.spread, ratios.host_spread, math.log(MEASURED_SPREAD)
    factors = list(product(*((0, -spread, spread) for spread in spreads)))
    switches, host, rows = ratios["switches"], ratios["host"], []
    for case in cases:
        times = (
            times_ms(case, switches * math.exp(turn), host * math.exp(slow), math.exp(loading))
            for turn, slow, loading in factors
        )
        for kind, *case_ms in zip(case, *times, strict=True):
            ms = kind.iteration_time_ms
            rows.append((kind, 100 * (case_ms[0] / ms - 1), min(case_ms) <= ms <= max(case_ms)))
    return rows


def left_out() -> list[tuple[Kind, float, bool]]:
    """The kinds of runs 1 and 2 as of `judged`, by the fit of the cases without their CNN."""
    cases, rows = read_cases(1, 2), []
    for cnn in dict.fromkeys(kind.cnn for case in cases for kind in case):
        fit = fitted([case for case in cases if cnn not in {kind.cnn for kind in case}])
        rows += [row for row in judged(cases, replace(ratios_of(ENTRY), numbers=fit)) if row[0].cnn == cnn]
    return rows


def main() -> None:
    """Print the errors of runs 1 and 2 by CNN, each left out of the fit, and of runs 3 and 4 by what was varied."""
    groups: dict[str, list[tuple[float, bool]]] = {}
    for kind, *judgement in left_out():
        for group in (kind.cnn, "runs 1 and 2"):
            groups.setdefault(group, []).append(judgement)
    for kind, *judgement in judged(read_cases(3, 4), ratios_of(ENTRY)):
        run = f"run {kind.run}"
        varied = [f"{getattr(kind, name)} {name}" for name in ("trainings", "vcpus", "workers")]
        varied += ["fewer vCPUs than trainings"] * (kind.vcpus < kind.trainings)
        varied += ["unlike"] * (kind.equal_ones < kind.trainings)
        for group in (run, *(f"{run}, {condition}" for condition in varied)):
            groups.setdefault(group, []).append(judgement)
    for group, rows in groups.items():
        errors, is_inside = zip(*rows, strict=True)
        off, held = sorted(map(abs, errors)), f"{sum(is_inside)} of {len(rows)} inside"
        print(f"{group:33} {fmean(off):4.1f} %, median {median(off):4.1f}, most {off[-1]:2.0f}; {held}")


if __name__ == "__main__":
    main()
