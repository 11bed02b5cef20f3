"""Speeds of other people's hosts from their published trainings: `python benchmarks/hosts.py FILE...`.

Each FILE has the columns of `claims_2.csv`. A machine's time of the reference iteration is the one that its eager
iterations on one GPU fit best, with the GPU's time as the model answers it: what ``datasets/hosts.csv`` holds. Then the
law of what is enqueued is fitted on our own tables and judged on CNNs left out, their machines are answered by it, also
beside what a file of the same run says, and each CPU is left out and answered by its clock.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from ratios_fit import measured_cnn
from scipy.optimize import nnls

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.hosts import HostSpeed, all_hosts
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import UnknownCnnError
from predictor.models.base import Case, Measuring
from predictor.models.fit import own_measurements
from predictor.models.hosts import autocast_host, host_ms
from predictor.models.join import join_host
from predictor.models.served import Model

_TRIED_MS = np.exp(np.linspace(math.log(1), math.log(50), 200))
_WITHOUT_STEP = ("matrixsp",)  # forward and backward alone
_LARGEST_BATCH = 64
_ROUNDS = 10
_RUN = ["gpu", "host", "precision", "memory_format", "hour"]


def main(paths: Sequence[str]) -> int:
    """Print the three tables."""
    for path in paths:
        print(published_hosts(pd.read_csv(path)).to_string(index=False, float_format="{:.1f}".format), "\n")
    rows = _own_rows()
    print(enqueued_law(rows), "\n")
    print(own_machines(rows), "\n")
    print(by_clock().to_string(index=False, float_format="{:.1f}".format))
    return 0


def published_hosts(claims: pd.DataFrame) -> pd.DataFrame:
    """A row for each machine: ms of the reference iteration, and how far its iterations are off by it."""
    rows = claims[(claims["framework"] == "pytorch") & (claims["loading"] == "no") & (claims["gpus"] == 1)]
    rows = rows[(rows["compiled"] != "yes") & (rows["confidence"] != "low") & rows["host"].notna()]
    rows = rows[rows["measured"] == "iteration_ms"]
    model, found = Model.load(), []
    for (group, host), own in rows.groupby(["group", "host"]):
        times = [_times(model, row, group) for row in own.itertuples()]
        known = np.array([each for each in times if each is not None])
        if known.size:
            busy, unit_ms, measured = known.T
            joined = np.array([join_host(busy, speed * unit_ms) for speed in _TRIED_MS])
            wrong = np.abs(np.log(joined / measured)).mean(axis=1)
            best = int(np.argmin(wrong))
            decides = int((_TRIED_MS[best] * unit_ms > busy).sum())
            found.append((group, host[:40], len(known), decides, _TRIED_MS[best], 100 * wrong[best]))
    columns = ["group", "host", "rows", "host decides", "reference ms", "off by %"]
    return pd.DataFrame(found, columns=columns)


def _times(model, row, group) -> tuple[float, float, float] | None:  # type: ignore[no-untyped-def]
    """GPU time, host time of a host of 1 ms, and the iteration as measured."""
    size = int(row.image_size)
    try:
        table = zoo_cnn(row.cnn, size)
    except UnknownCnnError:
        return None
    mode, batch = Mode("pytorch", row.precision), np.array([float(row.batch_per_gpu)])
    measuring = Measuring(passes="forward_backward" if group in _WITHOUT_STEP else "training")
    answer = model.roofline.forecasts(
        [Case(row.cnn, size, table, find_gpu(row.gpu), mode, batch, (), measuring)]
    )[0]
    return float(answer.gpu_time_ms[0]), host_ms(table, mode, HostSpeed("", 1.0, 0.0)), float(row.value)


def _own_rows() -> pd.DataFrame:
    """Host times of our eager CNNs on one GPU, each the median of its batch sizes; a run is an hour in a mode."""
    rows = own_measurements(("targets", "cnns", "compiled"))
    rows = rows[(rows["framework"] == "pytorch") & (rows["kind"] == "target") & rows["host_time_ms"].notna()]
    rows = rows[(rows["capture"].fillna("eager") == "eager") & (rows["batch_size"] <= _LARGEST_BATCH)]
    rows = rows[(rows["n_gpus"].fillna(1) == 1) & ~rows["gpu"].str.startswith("cpu")]
    rows = rows.assign(hour=rows["measured_at"].astype(str).str.slice(0, 13))
    key = [*_RUN, "cnn", "image_size"]
    return rows.groupby(key, dropna=False)[["host_time_ms", "host_cnn_ms"]].median().reset_index()


def own_machines(rows: pd.DataFrame) -> str:
    """Time of the reference iteration on our machines, median of runs, and the law of a file's from runs of both."""
    of_1_ms, modes = HostSpeed("", 1.0, 0.0), [Mode("pytorch", precision) for precision in rows["precision"]]
    per_ms = [
        host_ms(measured_cnn(row.cnn, int(row.image_size))[0], mode, of_1_ms)
        for row, mode in zip(rows.itertuples(), modes, strict=True)
    ]
    rows = rows.assign(reference_ms=rows["host_time_ms"] / per_ms)
    runs = rows.groupby(_RUN, dropna=False)[["reference_ms", "host_cnn_ms"]].median().reset_index()
    machines = runs.groupby(["gpu", "host"])["reference_ms"].agg(["size", "median"]).reset_index()
    both = runs.dropna(subset="host_cnn_ms")
    amp = [autocast_host(Mode("pytorch", precision)) for precision in both["precision"]]
    trust, ln_ms = np.polyfit(np.log(both["host_cnn_ms"] / amp), np.log(both["reference_ms"]), 1)
    said = machines.to_string(index=False, float_format="{:.1f}".format)
    return f"{said}\n{len(both)} runs: file_ms {math.exp(ln_ms):.2f}, file_trust {trust:.2f}"


def enqueued_law(own: pd.DataFrame) -> str:
    """Numbers of the law of what is enqueued, and its error on CNNs left out, each run of a mode at its own speed."""
    own = own.assign(layers=[len(measured_cnn(row.cnn, int(row.image_size))[0]) for row in own.itertuples()])
    run = own.groupby(_RUN, dropna=False).ngroup().to_numpy()
    log_ms, layers, cnn = (
        np.log(own["host_time_ms"].to_numpy()),
        own["layers"].to_numpy(float),
        own["cnn"].to_numpy(),
    )
    fixed = _fixed_layers(log_ms, layers, run)
    wrong = np.full(len(own), np.nan)
    for name in np.unique(cnn):
        known = cnn != name
        without = _fixed_layers(log_ms[known], layers[known], run[known])
        ln = np.log(layers + without)
        for each in np.unique(run[~known]):
            others = known & (run == each)
            if others.any():
                place = ~known & (run == each)
                wrong[place] = (ln + np.median((log_ms - ln)[others]) - log_ms)[place]
    off = 100 * np.nanmean(np.abs(np.expm1(wrong)))
    return (
        f"fixed_layers {fixed:.1f}; {np.isfinite(wrong).sum()} host times of CNNs left out: {off:.1f} % off"
    )


def _fixed_layers(log_ms: np.ndarray, layers: np.ndarray, run: np.ndarray) -> float:
    """Layers that an iteration counts beside its own, by least absolute relative errors, reweighted."""
    fixed = 10.0
    for _ in range(_ROUNDS):
        ln = np.log(layers + fixed)
        speed = np.exp([np.median((log_ms - ln)[run == each]) for each in run])
        design = np.column_stack([np.ones_like(layers), layers]) * (speed / np.exp(log_ms))[:, None]
        weight = 1.0 / np.sqrt(np.maximum(np.abs(np.exp(ln) * speed / np.exp(log_ms) - 1.0), 0.05))
        (constant, slope), _ = nnls(design * weight[:, None], weight)
        fixed = float(constant / slope)
    return fixed


def by_clock() -> pd.DataFrame:
    """Measured CPUs, each beside what its clock says with the others measured."""
    known = [host for host in all_hosts() if host.measured_ms and host.performance]
    rows = [
        (
            host.name,
            host.measured_ms,
            replace(host, measured_ms=None).speed([o for o in known if o is not host]).reference_ms,
        )
        for host in known
    ]
    return pd.DataFrame(rows, columns=["host", "measured ms", "by its clock ms"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
