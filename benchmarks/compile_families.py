"""CNNs of other families under torch.compile: forecast, then measured beside eager iterations, then side by side.

    python benchmarks/compile_families.py forecast
    python benchmarks/compile_families.py measure --out h100_pytorch_other_families.csv.gz --time-limit 480
    python benchmarks/compile_families.py report --measured FILE.csv.gz

Several processes compile beside each other on one GPU, and take turns at measuring: one lock is held from before an
eager CNN is built, or after a compiled one was compiled, to the end of its timing. So `compile_s` is that of a machine
that compiles as many at once, with `--threads` compiler processes each, and counts as an upper bound.
"""

import argparse
import csv
import fcntl
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from proxy_cnns.backends.torch.backend import TorchBackend
from proxy_cnns.backends.torch.prepared import TorchPrepared
from proxy_cnns.configuration import Configuration
from proxy_cnns.device import Monitor
from proxy_cnns.profiler import LIMITS
from proxy_cnns.user_cnns import named_table, target_subject

_HERE = Path(__file__).parent
_CNNS = _HERE / "other_families.csv"
_FORECAST = _HERE / "other_families_forecast.csv"
_GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
_MODES = (Mode("pytorch", "tf32"), Mode("pytorch", "amp_bf16", "channels_last"))
_BATCH_SIZES = (64, 16, 256)
_LOCK = Path(tempfile.gettempdir()) / "compile_families.lock"
_LATE = ("densenet121", "hrnet_w18_small")
"""CNNs that compile longest: measured last, so that they keep no other waiting."""


def main() -> int:
    options = _options()
    return int(options.step(options) or 0)


def cnns() -> list[dict[str, str]]:
    """Rows of `other_families.csv`."""
    with _CNNS.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def text_of(row: dict[str, str]) -> str:
    """A CNN as presets name it."""
    return f"{_HERE / 'other_families.py'}:{row['cnn']}@{row['image_size']}"


# ---------------------------------------------------------------------------------------------------------- forecast


def _forecast(options: argparse.Namespace) -> None:
    """Ask the served model for every CNN, mode and batch size, eager and compiled."""
    from predictor.models.compiled import compile_seconds
    from predictor.models.served import Model

    model, rows = Model.load(), []
    for cnn in cnns():
        table = named_table(text_of(cnn))
        for gpu in _GPUS:
            for mode in (
                replace(mode, capture=capture) for mode in _MODES for capture in ("eager", "compile")
            ):
                found = model.forecast(table, find_gpu(gpu), mode, list(_BATCH_SIZES))
                for i, batch_size in enumerate(_BATCH_SIZES):
                    times = {name: float(f"{float(getattr(found, name)[i]):.5g}") for name in _TIMES}
                    rows.append(
                        cnn
                        | {"gpu": gpu, "precision": mode.precision, "memory_format": mode.memory_format}
                        | {"capture": mode.capture, "batch_size": batch_size, **times}
                        | {
                            "compile_s": round(compile_seconds(table), 1)
                            if mode.capture == "compile"
                            else None
                        }
                        | {
                            "extrapolates": " ".join(
                                dict.fromkeys(each.kind for each in found.extrapolates[i])
                            )
                        }
                        | {"forecast_at": datetime.now(UTC).isoformat(timespec="minutes")}
                    )
    with options.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} forecasts in {options.out}")


_TIMES = (
    "iteration_time_ms", "low_ms", "high_ms", "gpu_time_ms", "gpu_low_ms", "gpu_high_ms", "host_time_ms",
)  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- measure


def _measure(options: argparse.Namespace) -> None:
    """Measure compiled CNNs at the first batch size, then eager ones, then compiled ones at the other batch sizes."""
    from proxy_cnns.jobs import Request
    from proxy_cnns.runs import profile

    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(options.threads)
    quick = replace(LIMITS["target"], warmup_s=0.3, wall_s=0.4, gpu_s=0.4, host_s=0.2)
    request = Request(
        "other families",
        tuple(_configurations(options.cnn, options.batch_size)),
        "pytorch",
        (options.device,) * options.processes,
        options.out,
        options.time_limit,
        allow_noise=True,
        limits=LIMITS | {"target": quick},
        backend="compile_families:InTurns",
    )
    found = profile(
        request, lambda progress: print(progress.now, f"{progress.seconds_left:.0f} s", flush=True)
    )
    print(found)


def _configurations(names: Iterable[str], batch_sizes: Iterable[int]) -> Iterator[Configuration]:
    """Compiled and eager CNNs, those of the two roles in turn."""
    chosen = [row for row in cnns() if not names or row["cnn"] in names]
    chosen.sort(key=lambda row: row["cnn"] in _LATE)
    subjects = [target_subject(text_of(row)) for row in chosen]
    for batch_size in batch_sizes:
        for capture in ("compile", "eager"):
            for mode in _MODES:
                yield from (
                    Configuration(subject, replace(mode, capture=capture), batch_size) for subject in subjects
                )


def _is_own(*_: Any) -> bool:
    """No process on the GPU is foreign: the others wait for their turn."""
    return False


class InTurns(TorchBackend):
    """PyTorch on a GPU that others use: compiles at any time, runs nothing else but under the lock."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._lock = _LOCK.open("w")
        Monitor._foreign = _is_own  # type: ignore[method-assign]

    def prepare(self, configuration: Configuration) -> TorchPrepared:
        """As PyTorch's own, with the lock, which closing releases."""
        compiles = configuration.mode.capture == "compile"
        if not compiles:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        try:
            prepared = super().prepare(configuration)
        except BaseException:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            raise
        if compiles:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        close = prepared.close

        def release() -> None:
            close()
            fcntl.flock(self._lock, fcntl.LOCK_UN)

        prepared.close = release  # type: ignore[method-assign]
        return prepared


# ------------------------------------------------------------------------------------------------------------ report


def _report(options: argparse.Namespace) -> None:
    """Errors of the committed forecasts, by role and family."""
    import pandas as pd

    from predictor.measurements.table import read_measurements

    measured = pd.concat([read_measurements(path) for path in options.measured], ignore_index=True)
    measured["cnn"] = measured["cnn"].str.rpartition(".")[2]
    keys = ["cnn", "image_size", "gpu", "precision", "memory_format", "capture", "batch_size"]
    both = measured.merge(pd.read_csv(options.forecast), on=keys, suffixes=("", "_forecast"))
    for capture in ("compile", "eager"):
        some = both[both["capture"] == capture]
        print(f"\n{capture}: error of the GPU time, bias, inside; of the iteration, inside")
        for group in ("role", "precision", "batch_size", "family"):
            for name, rows in some.groupby(group):
                _show(str(name), rows)
        _show("all", some)


def _show(name: str, rows: Any) -> None:
    line = f"{name:16}{len(rows):4}"
    for time, low, high in (
        ("gpu_time_ms", "gpu_low_ms", "gpu_high_ms"),
        ("iteration_time_ms", "low_ms", "high_ms"),
    ):
        wrong = rows[f"{time}_forecast"] / rows[time] - 1
        inside = rows[time].between(rows[low], rows[high])
        line += f"{100 * np.mean(abs(wrong)):8.1f} % {100 * np.mean(wrong):+6.1f} % {inside.sum():4}"
    print(line)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    steps = parser.add_subparsers(required=True)
    forecast = steps.add_parser("forecast", help=_forecast.__doc__)
    forecast.add_argument("--out", type=Path, default=_FORECAST)
    measure = steps.add_parser("measure", help=_measure.__doc__)
    measure.add_argument("--out", type=Path, required=True)
    measure.add_argument("--time-limit", type=float, default=480, help="seconds")
    measure.add_argument("--processes", type=int, default=6, help="that compile at once")
    measure.add_argument("--threads", type=int, default=4, help="compiler processes of each")
    measure.add_argument("--device", default="cuda:0")
    measure.add_argument("--cnn", action="append", default=[], help="of other_families.csv; may be repeated")
    measure.add_argument("--batch-size", type=int, nargs="+", default=list(_BATCH_SIZES))
    report = steps.add_parser("report", help=_report.__doc__)
    report.add_argument("--measured", type=Path, nargs="+", required=True)
    report.add_argument("--forecast", type=Path, default=_FORECAST)
    for each, step in ((forecast, _forecast), (measure, _measure), (report, _report)):
        each.set_defaults(step=step)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
