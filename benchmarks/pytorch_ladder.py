"""PyTorch's own ladder for the ResNet-50 of `chainer_ladder.py`: precision, layout, autotuning, graph capture.

Run it as `python benchmarks/pytorch_ladder.py --out FILE`, `--dry-run-on-cpu` for a trial without a GPU. Images lie
on the GPU, so that steps show what the framework does, not the loader.
"""

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ladder import Budget, Rows
from machine import machine

from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import EpochcastError
from proxy_cnns.backends import Prepared, load_backend
from proxy_cnns.configuration import Configuration, Subject

_WALL_TIMES = 5


@dataclass(frozen=True, slots=True)
class Step:
    """One step: a mode, and by how much the batch grows."""

    name: str
    mode: Mode
    times_batch: int = 1


_BF16, _LAST = "amp_bf16", "channels_last"
STEPS = (
    Step("fp32", Mode(precision="fp32")),
    Step("TF32", Mode(precision="tf32")),
    Step("AMP bf16", Mode(precision=_BF16)),
    Step("AMP fp16", Mode(precision="amp_fp16")),
    Step("AMP bf16, channels-last", Mode(precision=_BF16, memory_format=_LAST)),
    Step("AMP bf16, channels-last, autotune", Mode(precision=_BF16, memory_format=_LAST, autotune=True)),
    Step("AMP bf16, channels-last, autotune, batch x 4", Mode("pytorch", _BF16, _LAST, autotune=True), 4),
    Step("AMP bf16, channels-last, autotune, batch x 8", Mode("pytorch", _BF16, _LAST, autotune=True), 8),
    Step("TF32, autotune", Mode(precision="tf32", autotune=True)),
    Step("TF32, channels-last, autotune", Mode(precision="tf32", memory_format=_LAST, autotune=True)),
)
"""Each is timed eagerly and, on a GPU, as a captured graph."""


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    backend = load_backend("pytorch", options.device)
    budget = Budget(options.budget)
    rows = Rows(options.out, {"machine": machine(), **backend.environment()})
    table = zoo_cnn("resnet50", options.image_size)
    subject = Subject("target", "resnet50", options.image_size, table=table)
    for step in STEPS:
        batch_size = options.batch_size * step.times_batch
        row = {"step": step.name, "batch_size": batch_size}
        if budget.left_s < options.seconds:
            rows.add(row | {"error": "the budget is over"})
            continue
        try:
            prepared = backend.prepare(Configuration(subject, step.mode, batch_size))
        except EpochcastError as error:
            rows.add(row | {"error": f"{type(error).__name__}: {error}"[:300]})
            continue
        try:
            rows.add(row | _measured(prepared, options.seconds, batch_size))
        except EpochcastError as error:
            rows.add(row | {"error": f"{type(error).__name__}: {error}"[:300]})
        finally:
            prepared.close()
    return 0


def _measured(prepared: Prepared, seconds: float, batch_size: int) -> dict[str, Any]:
    """Eager iterations/s, those of graph replays, and peak memory."""
    prepared.run(2)
    first_s = _wall_s(prepared, 1)
    n = max(1, round(seconds / 2 / _WALL_TIMES / first_s))
    eager_s = median(_wall_s(prepared, n) for _ in range(_WALL_TIMES))
    peak, reason = prepared.peak_memory_mib(), prepared.capture()
    prepared.gpu_times_ms(1)  # the first replay uploads the graph
    gpu_ms = prepared.gpu_times_ms(max(5, n))
    graph_s = median(gpu_ms) / 1000 if gpu_ms else None
    return {
        "eager_iterations_per_s": _rounded(1 / eager_s),
        "eager_images_per_s": _rounded(batch_size / eager_s),
        "graph_iterations_per_s": _rounded(1 / graph_s) if graph_s else None,
        "graph_images_per_s": _rounded(batch_size / graph_s) if graph_s else None,
        "peak_memory_mib": _rounded(peak) if peak else None,
        "notes": reason or "",
    }


def _wall_s(prepared: Prepared, n: int) -> float:
    prepared.synchronise()
    start = time.perf_counter()
    prepared.run(n)
    prepared.synchronise()
    return (time.perf_counter() - start) / n


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("pytorch_ladder.csv"), help="CSV; JSON beside it")
    parser.add_argument("--budget", type=float, default=300, help="seconds for the whole ladder")
    parser.add_argument("--seconds", type=float, default=5, help="timed seconds of one step")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--device", default="cuda:0", help="cuda:N or cpu")
    parser.add_argument("--dry-run-on-cpu", action="store_true", help="tiny images and batches, no GPU")
    options = parser.parse_args(arguments)
    if options.dry_run_on_cpu:
        vars(options).update(device="cpu", batch_size=2, image_size=32, seconds=0.5)
    return options


if __name__ == "__main__":
    sys.exit(main())
