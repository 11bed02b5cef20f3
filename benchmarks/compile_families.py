"""CNNs of other families under torch.compile: forecast, then measured beside eager iterations, then side by side.

    python benchmarks/compile_families.py forecast
    python benchmarks/compile_families.py measure --out FILE.csv.gz --cnn repvgg_a0:tf32 repvgg_a0:amp_bf16
    python benchmarks/compile_families.py report --measured FILE.csv.gz ...
    python benchmarks/compile_families.py refit --measured FILE.csv.gz ...

The CNNs of a round compile beside each other, each in a process of its own; when all have, they are timed one after
the other. So `compile_s` is that of a machine that compiles as many at once, with `--threads` compiler processes for
each, an upper bound.
"""

import argparse
import csv
import fcntl
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from predictor.catalogue.devices import ELEMENT_BYTES, find_gpu
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
_ROUND = "COMPILE_FAMILIES_ROUND"
"""Names the folder in which the processes of a round say that they have compiled."""


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
    """Measure a round: CNNs under torch.compile, each in a process of its own, and the same run eagerly."""
    from proxy_cnns.jobs import Request
    from proxy_cnns.runs import profile

    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = str(options.threads)
    chosen = list(_configurations(options.cnn, options.batch_size))
    n = len(chosen) // 2
    quick = replace(LIMITS["target"], warmup_s=0.3, wall_s=0.4, gpu_s=0.4, host_s=0.2)
    request = Request(
        "other families",
        tuple(chosen),
        "pytorch",
        tuple(f"cuda:{options.gpus[i % len(options.gpus)]}" for i in range(n)),
        options.out,
        options.time_limit,
        allow_noise=True,
        limits=LIMITS | {"target": quick},
        backend="compile_families:InTurns",
    )
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_ROUND] = folder
        (Path(folder) / "round").write_text(f"{n} {time.time() + options.compile_limit}")
        found = profile(request, lambda progress: print(progress, flush=True))
    print(found)


def _configurations(words: Iterable[str], batch_size: int) -> Iterator[Configuration]:
    """Compiled CNNs, then the same run eagerly; `words` are such as ``repvgg_a0:tf32``."""
    rows = {row["cnn"]: row for row in cnns()}
    modes = {mode.precision: mode for mode in _MODES}
    for capture in ("compile", "eager"):
        for cnn, _, precision in (each.partition(":") for each in words):
            mode = replace(modes[precision], capture=capture)
            yield Configuration(target_subject(text_of(rows[cnn])), mode, batch_size)


def _is_own(*_: Any) -> bool:
    """No process on the GPU is foreign: the others wait for their turn."""
    return False


class InTurns(TorchBackend):
    """PyTorch on a GPU that other processes use: timed when all of a round have compiled, one after the other."""

    def __init__(self, device: str) -> None:
        super().__init__(device)
        self._lock = _LOCK.with_suffix(f".lock{os.environ.get('CUDA_VISIBLE_DEVICES', '')}").open("w")
        Monitor._foreign = _is_own  # type: ignore[method-assign]

    def prepare(self, configuration: Configuration) -> TorchPrepared:
        """As PyTorch's own, then the lock, which closing releases."""
        import torch

        if configuration.subject.builder is None:  # the reference CNN of the host
            return super().prepare(configuration)
        if configuration.mode.capture == "compile":
            prepared = super().prepare(configuration)
            torch.cuda.empty_cache()
            _wait_for_round(configuration)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        else:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            prepared = super().prepare(configuration)
        close = prepared.close

        def release() -> None:
            close()
            fcntl.flock(self._lock, fcntl.LOCK_UN)

        prepared.close = release  # type: ignore[method-assign]
        return prepared


def _wait_for_round(configuration: Configuration) -> None:
    """Wait until as many CNNs are compiled as a round has, or its time is over."""
    folder, mode = Path(os.environ[_ROUND]), configuration.mode
    (folder / f"{configuration.subject.name}_{mode.precision}_{configuration.batch_size}").touch()
    n, seconds = map(float, (folder / "round").read_text().split())
    while len(list(folder.iterdir())) - 1 < n and time.time() < seconds:
        time.sleep(0.2)


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
    for name_ms, low, high in (
        ("gpu_time_ms", "gpu_low_ms", "gpu_high_ms"),
        ("iteration_time_ms", "low_ms", "high_ms"),
    ):
        wrong = rows[f"{name_ms}_forecast"] / rows[name_ms] - 1
        inside = rows[name_ms].between(rows[low], rows[high])
        line += f"{100 * np.mean(abs(wrong)):8.1f} % {100 * np.mean(wrong):+6.1f} % {inside.sum():4}"
    print(line)


# ------------------------------------------------------------------------------------------------------------- refit

_OLD = ("ConvNeXt", "ResNet", "MobileNet", "VGG", "EfficientNet", "SqueezeNet")
_PRODUCTS = (
    "convolution",
    "depthwise",
    "linear",
    "conv_forward",
    "conv_backward_input",
    "conv_backward_weight",
)
_BY_BYTES = ("layer_norm", "pooling", "avg_pool", "max_pool")
_SIZED = ("group_norm", "layer_norm", "instance_norm", "max_pool", "avg_pool")


def _refit(options: argparse.Namespace) -> None:
    """Fit three numbers on these tables and those of the shipped law, each family judged by a fit without it.

    GPU time = a x eager products + b x eager elementwise work and batch norms + c x the time that the bytes of other
    norms and pools take at the GPU's bandwidth + loss and optimizer.
    """
    import pandas as pd
    from scipy.optimize import nnls

    from predictor.measurements.table import read_measurements
    from predictor.models.ratios_fit import own_tables
    from predictor.models.served import Model

    measured = pd.concat(
        [own_tables("compiled"), *map(read_measurements, options.measured)], ignore_index=True
    )
    rows = measured[(measured["capture"] == "compile") & measured["gpu_time_ms"].notna()].to_dict("records")
    model = Model.load()
    parts = np.array([_parts(row, model) for row in rows])
    families, known = [_family(row) for row in rows], np.array([_is_known(row) for row in rows])
    gpu_ms = np.array([row["gpu_time_ms"] for row in rows])
    stays_ms, scaled = parts[:, 3], parts[:, :3] / gpu_ms[:, None]
    aims, wrong = 1 - stays_ms / gpu_ms, np.empty(len(rows))
    for family in dict.fromkeys(families):
        own = np.array([each == family for each in families])
        wrong[own] = scaled[own] @ nnls(scaled[~own], aims[~own])[0] - aims[own]
        print(
            f"{family:14}{own.sum():3}{100 * np.mean(abs(wrong[own])):7.1f} %{100 * np.mean(wrong[own]):+7.1f} %"
        )
    print("fitted on all:", nnls(scaled, aims)[0].round(3))
    for name, chosen in (("all", known | True), ("other families", ~known), ("of the shipped law", known)):
        print(f"{name:20}{chosen.sum():3}{100 * np.mean(abs(wrong[chosen])):7.1f} %")


def _is_known(row: Mapping[str, Any]) -> bool:
    return not str(row["cnn"]).startswith("other_families.")


def _family(row: Mapping[str, Any]) -> str:
    name = str(row["cnn"]).rpartition(".")[2]
    if _is_known(row):
        return next(each for each in _OLD if name.startswith(each.lower()))
    return next(each["family"] for each in cnns() if each["cnn"] == name)


def _parts(row: Mapping[str, Any], model: Any) -> tuple[float, float, float, float]:
    """Eager ms of products and of elementwise work, ms of the bytes of norms and pools, ms of loss and optimizer."""
    from predictor.cnns.zoo import zoo_cnn
    from predictor.models.compiled import UNCHANGED, eager_mode
    from predictor.operators.operators import operators_of
    from predictor.operators.work import moved_bytes

    name, size = str(row["cnn"]), int(row["image_size"])
    file = _HERE / "other_families.py"
    table = zoo_cnn(name, size) if _is_known(row) else named_table(f"{file}:{name.rpartition('.')[2]}@{size}")
    gpu, precision = find_gpu(str(row["gpu"])), str(row["precision"])
    layout, setting = str(row["memory_format"]), str(row["float32_matmul_precision"] or "highest")
    mode = Mode("pytorch", precision, layout, capture="compile", float32_matmul_precision=setting)
    batch_size = int(row["batch_size"])
    eager = model.forecast(table, gpu, eager_mode(table, mode), [batch_size])
    products, by_bytes, stays = (
        sum(float(ms[0]) for kind, ms in eager.class_ms.items() if kind in kinds)
        for kinds in (_PRODUCTS, _BY_BYTES, UNCHANGED)
    )
    counted = {each: n for each, n in operators_of(table).items() if each.type in _SIZED}
    moved = moved_bytes(list(counted), np.array([batch_size]), ELEMENT_BYTES[precision])[:, 0]
    bytes_ms = float(moved @ np.array(list(counted.values()))) / (gpu.memory_bandwidth_gb_per_s * 1e6)
    return products, float(eager.gpu_time_ms[0]) - products - by_bytes - stays, bytes_ms, stays


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    steps = parser.add_subparsers(required=True)
    forecast = steps.add_parser("forecast", help=_forecast.__doc__)
    forecast.add_argument("--out", type=Path, default=_FORECAST)
    measure = steps.add_parser("measure", help=_measure.__doc__)
    measure.add_argument("--out", type=Path, required=True)
    measure.add_argument("--time-limit", type=float, default=480, help="seconds")
    measure.add_argument(
        "--compile-limit", type=float, default=300, help="seconds until timing begins at last"
    )
    measure.add_argument("--threads", type=int, default=3, help="compiler processes of each CNN")
    measure.add_argument("--gpus", type=int, nargs="+", default=[0], help="that share the CNNs")
    measure.add_argument("--cnn", nargs="+", required=True, help="and mode, such as repvgg_a0:tf32")
    measure.add_argument("--batch-size", type=int, default=64)
    report = steps.add_parser("report", help=_report.__doc__)
    report.add_argument("--measured", type=Path, nargs="+", required=True)
    report.add_argument("--forecast", type=Path, default=_FORECAST)
    refit = steps.add_parser("refit", help="fit three numbers, each family judged by a fit without it")
    refit.add_argument("--measured", type=Path, nargs="+", required=True)
    for each, step in ((forecast, _forecast), (measure, _measure), (report, _report), (refit, _refit)):
        each.set_defaults(step=step)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
