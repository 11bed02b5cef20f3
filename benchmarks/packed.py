"""Several trainings on one GPU: error of the law with each CNN left out of its fit: `python benchmarks/packed.py`.

``packed_h100.csv``: the mean iteration of each kind of training of a case, processes without MPS on one H100 with 16
vCPUs, PyTorch 2.11; `alone_ms` is the same loop with the GPU to itself, `gpu_ms` its kernels one after another; rows
of 2026-11-28 have the GPU time of eight such trainings, over 8 x 1.1.
"""

import csv
import math
from dataclasses import replace
from pathlib import Path
from statistics import fmean, median

from predictor.models.packed import ENTRY
from predictor.models.ratios import Ratios, ratios_of

TABLE = Path(__file__).with_name("packed_h100.csv")
Case = list[tuple[str, int, float, float, float]]
"""CNN, number of equal trainings, ms by itself, ms of GPU time, and ms measured."""


def read_cases() -> list[Case]:
    """Trainings that ran together, kind by kind."""
    cases: dict[str, Case] = {}
    with TABLE.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            ms = (float(row[name]) for name in ("alone_ms", "gpu_ms", "iteration_time_ms"))
            cases.setdefault(row["case"], []).append((row["cnn"], int(row["equal_ones"]), *ms))  # type: ignore[arg-type]
    return list(cases.values())


def times_ms(case: Case, switches: float, host: float) -> list[float]:
    """Iterations of unlike trainings: equal shares of the GPU's time; what one does not need, the others share."""
    needs = [switches * gpu / (host * alone) for _, _, alone, gpu, _ in case]
    left, waiting, share = 1.0, sum(count for _, count, *_ in case), 0.0
    for need, (_, count, *_) in sorted(zip(needs, case, strict=True)):
        share = left / waiting
        if need > share:
            break
        left, waiting = left - count * need, max(1, waiting - count)
    own = zip(needs, case, strict=True)
    return [host * alone if need <= share else switches * gpu / share for need, (_, _, alone, gpu, _) in own]


def fitted(cases: list[Case]) -> dict[str, float]:
    """`switches`: median of equal trainings that need more than the GPU has; `host`: mean of those that need less."""
    equal = [row for case in cases for row in case if len(case) == 1]
    switches = [ms / (count * gpu) for _, count, alone, gpu, ms in equal if count * gpu > 1.2 * alone]
    slower = [math.log(ms / alone) for _, count, alone, gpu, ms in equal if count * gpu < 0.9 * alone]
    return {"switches": median(switches), "host": math.exp(fmean(slower))}


def shipped_ratios() -> Ratios:
    """The entry of ``ratios.json``: the fit of all CNNs, and spreads as stated."""
    fit = {name: round(value, 2) for name, value in fitted(read_cases()).items()}
    return replace(ratios_of(ENTRY), numbers=fit)


def main() -> None:
    """Print the errors of each CNN by the fit of cases without it."""
    cases, ratios = read_cases(), ratios_of(ENTRY)
    errors: list[float] = []
    n_inside = 0
    for cnn in dict.fromkeys(name for case in cases for name, *_ in case):
        fit = fitted([case for case in cases if cnn not in {name for name, *_ in case}])
        factors = [(math.exp(end * ratios.spread), math.exp(end * ratios.host_spread)) for end in (0, -1, 1)]
        own, inside = [], 0
        for case in cases:
            ends = (times_ms(case, fit["switches"] * turns, fit["host"] * host) for turns, host in factors)
            for (name, *_, ms), time_ms, low_ms, high_ms in zip(case, *ends, strict=True):
                if name == cnn:
                    own.append(100 * (time_ms / ms - 1))
                    inside += low_ms <= ms <= high_ms
        mean, worst = fmean(map(abs, own)), max(own, key=abs)
        print(f"{cnn:22} {mean:5.1f} % off, worst {worst:+3.0f} %, {inside} of {len(own)} inside")
        errors, n_inside = errors + own, n_inside + inside
    mean, middle = fmean(map(abs, errors)), median(map(abs, errors))
    print(f"{len(errors)} kinds of trainings: {mean:.1f} % off, median {middle:.1f} %, {n_inside} inside")


if __name__ == "__main__":
    main()
