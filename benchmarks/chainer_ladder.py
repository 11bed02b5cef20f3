"""The ladder of the Chainer talk, climbed again: ResNet-50 at batch 32, one step of tuning after the other.

Run it as `python benchmarks/chainer_ladder.py --out FILE`, `--dry-run-on-cpu` for a trial without a GPU. Synthetic
images lie in memory as bytes; each is cropped, flipped and scaled by the CPU as in Chainer's ImageNet example, so
that the loader counts, as it did in the talk. Beside each step stand the talk's iterations/s on a V100. What the
talk leaves unsaid is assumed: half precision is `mixed16`, and steps keep what the steps before them brought.
"""

import argparse
import csv
import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import asdict, dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine

from predictor.catalogue.modes import Mode
from predictor.cnns.chainer_compat import install
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import BackendUnavailableError, EpochcastError
from proxy_cnns.backends.chainer.cudnn.functions import CudnnConvolutions, enable
from proxy_cnns.backends.chainer.cudnn.library import open_cudnn
from proxy_cnns.backends.chainer.cudnn.plans import CudnnPlans, CupyMemory
from proxy_cnns.backends.chainer.device import CupyDevice, refusing
from proxy_cnns.backends.chainer.modes import configured, multiply_as_tf32
from proxy_cnns.backends.chainer.network import network
from proxy_cnns.backends.chainer.training import make_optimizer

_N_CLASSES = 1000
_MARGIN = 32  # pixels by which stored images are larger than a crop


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the ladder; `talk` is the talk's iterations/s on a V100, None where it gives none."""

    name: str
    talk: float | None
    precision: str = "fp32"
    cudnn: bool = True
    autotune: bool = True
    preprocessing: str = "float32"
    processes: int = 1
    capture: str = "eager"
    times_batch: int = 1
    workspace_mib: int = 8


MANY = 16
HALF = "amp_fp16"
STEPS = (
    Step("no cuDNN", 4.18, cudnn=False, autotune=False),
    Step("cuDNN", 8.32, autotune=False),
    Step("autotune", 8.93),
    Step("fp16", 5.07, HALF, preprocessing="float16"),
    Step("fp32 preprocessing", 7.69, HALF),
    Step("MultiprocessIterator", 11.89, HALF, processes=MANY),
    Step("MultiprocessIterator, fp32", 10.70, processes=MANY),
    Step("static graph", 15.54, HALF, processes=MANY, capture="static_graph"),
    Step("fp32, batch x 4", 2.908, processes=MANY, capture="static_graph", times_batch=4),
    Step("fp16, batch x 8", 2.798, HALF, processes=MANY, capture="static_graph", times_batch=8),
    Step(
        "fp16, batch x 8, workspace 512 MiB",
        None,
        HALF,
        processes=MANY,
        capture="static_graph",
        times_batch=8,
        workspace_mib=512,
    ),
    # Steps that a V100 did not have.
    Step("TF32", None, "tf32", processes=MANY, capture="static_graph"),
    Step("TF32, batch x 4", None, "tf32", processes=MANY, capture="static_graph", times_batch=4),
)


@dataclass(slots=True)
class Images:
    """A data set in memory, prepared as Chainer's ImageNet example does: crop, flip, mean, scale."""

    images: Any
    labels: Any
    size: int
    dtype: Any
    computed_in: Any

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        top, left = (random.randrange(_MARGIN) for _ in range(2))  # noqa: S311 - no secret
        image = self.images[index].astype(self.computed_in)
        image = image[:, top : top + self.size, left : left + self.size]
        if random.randrange(2):  # noqa: S311
            image = image[:, :, ::-1]
        image -= self.computed_in.type(128)
        image *= self.computed_in.type(1 / 255)
        return image.astype(self.dtype, copy=False), self.labels[index]


class Rows:
    """Rows of one ladder, written to FILE.csv and, with what they were measured on, to FILE.json after each.

    Parameters
    ----------
    path : Path
        Without or with the suffix .csv.
    about : dict
        The environment.
    """

    def __init__(self, path: Path, about: dict[str, Any]) -> None:
        self.rows: list[dict[str, Any]] = []
        self._path = path.with_suffix(".csv")
        self._about = about
        self._path.parent.mkdir(parents=True, exist_ok=True)

    def add(self, row: dict[str, Any]) -> None:
        """Keep a row, write all, and print it."""
        self.rows.append(row)
        names = list(dict.fromkeys(name for each in self.rows for name in each))
        with self._path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, names)
            writer.writeheader()
            writer.writerows(self.rows)
        text = json.dumps({"environment": self._about, "rows": self.rows}, indent=1, default=str)
        self._path.with_suffix(".json").write_text(text + "\n", encoding="utf-8")
        print(
            "  ".join(f"{name} {value}" for name, value in row.items() if value not in (None, "")), flush=True
        )


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    install()
    gpu = None if options.device == "cpu" else CupyDevice(int(options.device.partition(":")[2] or 0))
    plans = _plans() if gpu else None
    end, rows = time.perf_counter() + options.budget, Rows(options.out, _about(gpu, plans))
    for step in STEPS:
        if options.step and step.name not in options.step:
            continue
        row = _described(step, options)
        if end - time.perf_counter() < options.seconds:
            rows.add(row | {"error": "the budget is over"})
            continue
        try:
            rows.add(row | _measured(step, options, gpu, plans))
        except (EpochcastError, OSError) as error:
            rows.add(row | {"error": f"{type(error).__name__}: {error}"[:300]})
    return 0


def _described(step: Step, options: argparse.Namespace) -> dict[str, Any]:
    columns = asdict(step)
    row = {"step": columns.pop("name"), **columns, "batch_size": options.batch_size * step.times_batch}
    row["processes"] = min(step.processes, options.processes)
    row["v100_iterations_per_s"] = row.pop("talk")
    del row["times_batch"]
    return row


def _measured(
    step: Step, options: argparse.Namespace, gpu: CupyDevice | None, plans: CudnnPlans | None
) -> dict[str, Any]:
    """Iterations/s of one step, loading included."""
    import chainer

    if gpu is not None:
        gpu.tidy()
        multiply_as_tf32(step.precision == "tf32")
        if step.cudnn and plans is None:
            raise BackendUnavailableError("cuDNN is not installed.")
    if plans is not None:
        plans.forget()
        plans.allow_tf32 = step.precision == "tf32"
        plans.set_max_workspace_size(step.workspace_mib * 2**20)
    mode = Mode("chainer", step.precision, autotune=step.autotune, capture=step.capture)
    use = chainer.using_config("use_cudnn", "auto" if step.cudnn else "never")
    with refusing(step.name), configured(mode), use, _updater(step, options, mode) as updater:
        with redirect_stdout(StringIO()):  # a static graph prints that it is being built
            for _ in range(options.warm_up):
                updater.update()
        return _timed(updater, options, gpu)


def _timed(updater: Any, options: argparse.Namespace, gpu: CupyDevice | None) -> dict[str, Any]:
    wait = gpu.synchronise if gpu else lambda: None
    wait()
    start, n = time.perf_counter(), 0
    while time.perf_counter() - start < options.seconds or n < 3:
        updater.update()
        n += 1
    wait()
    seconds = time.perf_counter() - start
    found = {
        "iterations_per_s": n / seconds,
        "images_per_s": n * updater.get_iterator("main").batch_size / seconds,
    }
    return {name: float(f"{value:.4g}") for name, value in found.items()} | {"n_iterations": n}


@contextmanager
def _updater(step: Step, options: argparse.Namespace, mode: Mode) -> Iterator[Any]:
    """Lend Chainer's own updater over a network, its optimizer and a loader."""
    import chainer

    iterator = _iterator(step, options)
    try:
        table = zoo_cnn("resnet50", options.image_size)
        model = chainer.links.Classifier(network(table, static=step.capture == "static_graph"))
        model.compute_accuracy = False
        device = chainer.get_device(
            "@numpy" if options.device == "cpu" else f"@cupy:{options.device[5:] or 0}"
        )
        model.to_device(device)
        device.use()
        yield chainer.training.updaters.StandardUpdater(iterator, make_optimizer(model, mode), device=device)
    finally:
        iterator.finalize()


def _iterator(step: Step, options: argparse.Namespace) -> Any:
    import chainer

    batch_size, side = options.batch_size * step.times_batch, options.image_size + _MARGIN
    draw = np.random.default_rng(0)
    n = max(options.images, batch_size)
    data = Images(
        draw.integers(0, 256, (n, 3, side, side), np.uint8),
        draw.integers(0, _N_CLASSES, n).astype(np.int32),
        options.image_size,
        np.dtype("float16" if step.precision == HALF else "float32"),
        np.dtype(step.preprocessing),
    )
    processes = min(step.processes, options.processes)
    if processes == 1:
        return chainer.iterators.SerialIterator(data, batch_size)
    return chainer.iterators.MultiprocessIterator(data, batch_size, n_processes=processes, n_prefetch=4)


def _plans() -> CudnnPlans | None:
    try:
        plans = CudnnPlans(open_cudnn(), CupyMemory())
    except BackendUnavailableError as error:
        print(error, file=sys.stderr)
        return None
    enable(CudnnConvolutions(plans))
    return plans


def _about(gpu: CupyDevice | None, plans: CudnnPlans | None) -> dict[str, Any]:
    import chainer

    return {
        "machine": machine(),
        "gpu": gpu.name if gpu else None,
        "chainer": chainer.__version__,
        "cudnn": plans.cudnn.release if plans else None,
    }


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("chainer_ladder.csv"), help="CSV; JSON beside it")
    parser.add_argument("--budget", type=float, default=600, help="seconds for the whole ladder")
    parser.add_argument("--seconds", type=float, default=15, help="timed seconds of one step")
    parser.add_argument("--warm-up", type=int, default=5, help="iterations before the timed ones")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--images", type=int, default=2048, help="images in memory")
    parser.add_argument("--processes", type=int, default=MANY, help="most processes that load images")
    parser.add_argument("--device", default="cuda:0", help="cuda:N or cpu")
    parser.add_argument("--step", action="append", help="only the step of this name; may be repeated")
    parser.add_argument("--dry-run-on-cpu", action="store_true", help="tiny images and batches, no GPU")
    options = parser.parse_args(arguments)
    if options.dry_run_on_cpu:
        tiny = {"device": "cpu", "batch_size": 2, "image_size": 32, "images": 16, "processes": 2}
        vars(options).update(tiny, seconds=0.5, warm_up=1)
    return options


if __name__ == "__main__":
    sys.exit(main())
