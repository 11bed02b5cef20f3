"""Real epochs: forecast by `epochcast.compare` first, then trained whole on GPUs; `figures.py` judges both.

    python benchmarks/real_epochs.py forecast --cases resnet50_pytorch_1x128_amp --out FORECAST.csv
    python benchmarks/real_epochs.py pictures --folder PICTURES
    python benchmarks/real_epochs.py train --gpus 0 --cases resnet50_pytorch_1x128_amp --folder PICTURES --out FILE.csv
    python benchmarks/real_epochs.py train --opening FORECAST.csv --host host.json --input input.json --cases ...

A case is a CNN of the zoo or of timm, GPUs x the batch size of each, and a mode. Each is trained in processes of its
own, one for each GPU, ended after `--limit` seconds; its row is on disk before
the next begins, and a second run goes on with what is left. `train --dry-run` takes every case once on a CPU, tiny.
With `--opening` each case is forecast by the machine's files, then by three seconds of its own step in its loader;
then one whole epoch is trained, whose workers begin anew. Pictures of other data sets than ImageNet lie in folders of
their names beside it. Nothing waits for the GPU between iterations but once, after the first.
"""

import argparse
import csv
import multiprocessing
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache, partial
from multiprocessing.connection import Connection, wait
from pathlib import Path
from shutil import copyfile
from typing import Any

import numpy as np
from machine import machine
from ratios_fit import measured_cnn

from predictor.answers.loading import ENDS, STARTS
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.torch_module import from_torch
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import DataError, SchemaError
from proxy_cnns.pictures import pillow, write_images
from proxy_cnns.pipelines import Pipeline, usual_pipeline

_SAMPLES = 50_000
_VALIDATED = 10_000
_DISTINCT_ARRAYS = 5000
_CLASSES = {"pictures": 1000, "arrays": 10}
_LEARNING_RATE = 0.01
_ALONE_IMAGES = 2500
_ALONE_LEAST, _ENQUEUED = 10, 5
_WARM_UP_S, _OPENED_S = 1.5, 3.0  # of an opening; both in whole rounds of its workers
_DISTINCT_PICTURES = 2000
_SIDES = {"food101": (512, 461), "imagenet_160": (213, 160)}  # of pictures of other sizes than ImageNet's
_GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
_VCPUS = 16  # of each GPU of the machine


@dataclass(frozen=True, slots=True)
class Task:
    """What a CNN is trained on: a data set that its images are like, and the workers of each GPU."""

    data_set: str
    image_size: int
    workers: int
    from_files: bool = False
    samples: int = _SAMPLES


TASKS = {
    "resnet50": Task("imagenet", 224, 16, from_files=True),
    "vgg_cifar": Task("cifar10", 32, 8),
    "mobilenet_v2": Task("imagenet", 224, 16, from_files=True, samples=20_000),
    "resnet18_cifar": Task("cifar10", 32, 8),
    "resnet34": Task("imagenet", 224, 16, from_files=True, samples=80_000),
    "resnet18": Task("imagenet", 224, 6, from_files=True, samples=36_000),
    "resnet9": Task("cifar10", 32, 2, samples=300_000),
    "vgg11_bn": Task("stl10", 96, 3, samples=180_000),
    "resnext50_32x4d": Task("imagenet", 224, 16, from_files=True, samples=50_000),
    "vgg16": Task("imagenet", 224, 16, from_files=True, samples=50_000),
    "regnet_x_400mf": Task("imagenet_160", 128, 4, from_files=True, samples=90_000),
    "mobilenet_v3_small": Task("food101", 224, 12, from_files=True, samples=55_000),
    "resnet20_cifar": Task("cifar100", 32, 4, samples=480_000),
    "densenet121": Task("imagenet", 224, 16, from_files=True, samples=36_000),
    "inception_v3": Task("imagenet", 299, 16, from_files=True, samples=30_000),
    "shufflenet_v2_x1_0": Task("stl10", 96, 6, samples=58_000),
}
_USUAL_TASK = Task("stl10", 96, 8, samples=10_000)
"""Of every other CNN."""

_MODES = {
    "tf32": Mode("pytorch", "tf32"),
    "amp": Mode("pytorch", "amp_bf16", "channels_last"),
    "tf32compiled": Mode("pytorch", "tf32", capture="compile"),
    "ampcompiled": Mode("pytorch", "amp_bf16", "channels_last", capture="compile"),
}
_CHAINER_MODES = {"tf32": Mode("chainer", "tf32"), "amp": Mode("chainer", "amp_fp16")}
"""Chainer has neither bf16 nor channels-last; its epochs were trained by an earlier version of this program."""


_NAME = re.compile(
    rf"(?P<cnn>.+)_(?P<framework>pytorch|chainer)_(?P<n_gpus>\d+)x(?P<local_batch_size>\d+)_(?P<mode>{'|'.join(_MODES)})"
)


@dataclass(frozen=True, slots=True)
class Case:
    """A CNN trained for an epoch; the batch size is that of each GPU."""

    name: str
    cnn: str
    n_gpus: int
    local_batch_size: int
    mode: Mode

    @classmethod
    def named(cls, name: str) -> "Case":
        """The case of a name such as ``resnet50_pytorch_2x128_amp``."""
        parts = _NAME.fullmatch(name)
        if parts is None:
            raise SchemaError(
                f"{name!r} is no case; one is resnet50_pytorch_2x128_amp, modes are {', '.join(_MODES)}."
            )
        modes = _CHAINER_MODES if parts["framework"] == "chainer" else _MODES
        return cls(
            name, parts["cnn"], int(parts["n_gpus"]), int(parts["local_batch_size"]), modes[parts["mode"]]
        )

    @property
    def epochs(self) -> int:
        """Later ones have no start; the last of three has new workers."""
        return 3 if self.mode.capture == "eager" else 2

    @property
    def task(self) -> Task:
        """What it is trained on."""
        return TASKS.get(self.cnn, _USUAL_TASK)


@dataclass(frozen=True, slots=True)
class Job:
    """What one process trains: the GPU of its rank, None: a CPU, on the JPEGs of a folder, None: arrays."""

    case: Case
    task: Task
    validates: bool
    gpu: int | None
    rank: int
    folder: Path | None
    meeting_file: Path
    opened: Callable[[float], None] | None = None
    """Is told the ms of an iteration in its loader before the one epoch that is then trained."""


_MEASURED = (
    "case", "gpu", "gpus", "iterations", "epoch_s", "whole_s", "second_epoch_s", "second_whole_s", "second_wait_s",
    "second_middle_ms", "third_epoch_s", "third_whole_s", "third_wait_s", "third_middle_ms", "anew_epoch_s",
    "anew_whole_s", "anew_wait_s", "anew_middle_ms", "first_iteration_s", "first_wait_s", "middle_ms", "waited_s",
    "alone_ms", "enqueue_ms", "opening_ms", "validation_s", "second_validation_s", "loader_images_per_s", "case_s",
    "load", "version", "machine", "started_at", "error",
)  # fmt: skip


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    return int(options.step(options) or 0)


# ---------------------------------------------------------------------------------------------------------- forecast


def _forecast(options: argparse.Namespace) -> None:
    """Ask `epochcast.compare` for every case on both GPUs, by the files given or none."""
    for gpu in _GPUS:
        for case in _cases(options.cases):
            _append(options.out, forecast_of(case, gpu, options.host))


def forecast_of(
    case: Case,
    gpu: str,
    host_file: Path | None = None,
    input_file: Path | None = None,
    anchor_ms: float | None = None,
) -> dict[str, Any]:
    """An epoch of the task's images: as many iterations more or less than an epoch of the answer's data set has.

    `anchor_ms` is an iteration measured in its loader.
    """
    import epochcast
    from predictor.catalogue.data_sets import find_training_set
    from predictor.catalogue.offers import Offer

    task, batch_size = case.task, case.n_gpus * case.local_batch_size
    machine = Offer("own", "machine", gpu, case.n_gpus, 1.0, vcpus=_VCPUS * case.n_gpus, link=_LINK)
    answers = [
        epochcast.compare(
            table_of(case.cnn),
            gpu,
            batch_size,
            image_size=task.image_size,
            data_set=task.data_set,
            validation_samples=validated,
            framework=case.mode.framework,
            precision=case.mode.precision,
            memory_format=case.mode.memory_format,
            capture=case.mode.capture,
            n_gpus=case.n_gpus,
            workers=task.workers,
            offers=[machine],
            host=None if host_file is None else str(host_file),
            input=None if input_file is None else str(input_file),
            anchors=[] if anchor_ms is None else [_anchor(case, gpu, anchor_ms)],
        ).iloc[0]
        for validated in (0, _VALIDATED)
    ]
    found = answers[0]
    of_answer = -(-find_training_set(task.data_set).samples // batch_size)
    n = -(-task.samples // batch_size)
    seconds = {
        epoch: found[epoch] + (n - of_answer) * found[end] / 1000
        for epoch, end in zip(("epoch_time_s", "epoch_low_s", "epoch_high_s"), ENDS, strict=True)
    }
    times = seconds | {"validation_s": answers[1]["epoch_time_s"] - found["epoch_time_s"]}
    times |= {name: found[name] for name in (*STARTS, *_OF_ITERATION)}
    return {
        "case": case.name,
        "gpu": gpu,
        "host": "not measured" if host_file is None else host_file.name,
        "n_gpus": case.n_gpus,
        "batch_size": batch_size,
        "precision": case.mode.precision,
        "memory_format": case.mode.memory_format,
        "workers_of_each_gpu": task.workers,
        "iterations": n,
        **{name: None if value is None else float(f"{value:.5g}") for name, value in times.items()},
        "bottleneck": found["bottleneck"],
        "method": found["method"],
        "extrapolates": " ".join(reason.kind for reason in found["extrapolates"]),
        "anchor_ms": anchor_ms and float(f"{anchor_ms:.5g}"),
        "forecast_at": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _anchor(case: Case, gpu: str, iteration_ms: float) -> dict[str, Any]:
    size = {"batch_size": case.n_gpus * case.local_batch_size, "image_size": case.task.image_size}
    return {"gpu": gpu, "iteration_time_ms": iteration_ms, "workers": case.task.workers, **size}


@lru_cache
def table_of(cnn: str) -> LayerTable:
    """The layers of a case's CNN at the size of its task: of the zoo, of the measured strangers, else of timm."""
    image_size = TASKS.get(cnn, _USUAL_TASK).image_size
    own = {"own": "own_cnn.make_model", "own_plain": "own_plain_cnn.make_model"}
    name = cnn if cnn in zoo_names() else own.get(cnn, f"other_families.{cnn}")
    try:
        return measured_cnn(name, image_size)[0]
    except DataError:
        return from_torch(module_of(cnn, image_size), image_size)


_LINK = "nvlink4"
_OF_ITERATION = (
    "iteration_time_ms", "low_ms", "high_ms", "training_time_ms", "gpu_time_ms", "host_time_ms", "added_ms",
    "loading_time_ms",
)  # fmt: skip


# ---------------------------------------------------------------------------------------------------------- training


def _pictures(options: argparse.Namespace) -> None:
    """Write JPEGs of ImageNet's mean size: a pool of distinct ones, each under many names and copied whole."""
    start = time.perf_counter()
    distinct = min(_DISTINCT_PICTURES, options.number)
    cpus = os.cpu_count() or 1
    with ProcessPoolExecutor(cpus) as pool:
        pooled = options.folder / "pool"
        parts = [range(first, distinct, 4 * cpus) for first in range(min(4 * cpus, distinct))]
        folders = [pooled / f"{i:04}" for i in range(len(parts))]
        for folder in folders:
            folder.mkdir(parents=True)
        paths = sorted(
            path
            for found in pool.map(write_images, folders, map(len, parts), range(len(parts)))
            for path in found
        )
        copies = [
            (paths[i % distinct], options.folder / f"{i % 1000:04}" / f"{i:06}.jpg")
            for i in range(distinct, options.number)
        ]
        for folder in {target.parent for _, target in copies}:
            folder.mkdir()
        list(pool.map(_copy, copies, chunksize=200))
        for name, size in _SIDES.items():
            (options.folder.parent / name).mkdir(exist_ok=True)
            list(pool.map(partial(_resized, options.folder.parent / name, size), paths, chunksize=50))
    print(f"{options.number} pictures, {distinct} distinct, in {time.perf_counter() - start:.1f} s")


def _resized(folder: Path, size: tuple[int, int], path: Path) -> None:
    pillow().open(path).resize(size).save(
        folder / path.relative_to(path.anchor).as_posix().replace("/", "_"), quality=90
    )


def _copy(pair: tuple[Path, Path]) -> None:
    copyfile(*pair)


def _train(options: argparse.Namespace) -> None:
    """Train the cases that `--gpus` are as many as, and that have no row yet; print each row."""
    end = time.perf_counter() + options.budget
    with suppress(
        ImportError, RuntimeError
    ):  # once, before the processes that train begin as copies of this one
        import timm  # noqa: F401
        import torch.utils.data  # noqa: F401
        import torchvision.models  # noqa: F401
    known = _done(options.out)
    for case in _cases(options.cases):
        if case.name in known or not (options.dry_run or case.n_gpus == len(options.gpus)):
            continue
        left = end - time.perf_counter()
        if left <= 0:
            print(f"the budget is over before {case.name}", flush=True)
            return
        row = _row(case, options, min(left, options.limit))
        _append(options.out, row)
        print("  ".join(f"{name} {value}" for name, value in row.items() if value is not None), flush=True)


def _row(case: Case, options: argparse.Namespace, limit_s: float) -> dict[str, Any]:
    if options.opening and not options.dry_run:
        input_file = options.input if case.task.from_files else options.arrays
        _append(options.opening, forecast_of(case, _gpu_name(options.gpus[0]), options.host, input_file))
    started_at, start = datetime.now(UTC).isoformat(timespec="seconds"), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        found = _trained(list(_jobs(case, options, Path(folder))), options.gpus, limit_s)
    found |= {"case_s": time.perf_counter() - start, "load": os.getloadavg()[0]}
    rounded = {
        name: float(f"{each:.5g}") if isinstance(each, float) else each for name, each in found.items()
    }
    gpus = "cpu" if options.dry_run else ",".join(map(str, options.gpus))
    return {"case": case.name, "gpus": gpus, "started_at": started_at, "error": "", **rounded}


def _jobs(case: Case, options: argparse.Namespace, folder: Path) -> Iterator[Job]:
    opened = partial(_opened, case, options) if options.opening else None
    validates = case.local_batch_size in (128, 500, 512)
    small, pictures = (case, case.task), _folder(case.task, options.folder)
    if options.dry_run:
        small = _tiny(case, 1600 if options.opening else 64)
    for rank in range(case.n_gpus):
        gpu = None if options.dry_run else rank
        yield Job(*small, validates, gpu, rank, pictures, folder / "meeting", opened)


def _folder(task: Task, imagenet: Path) -> Path | None:
    if not task.from_files:
        return None
    return imagenet.parent / task.data_set if task.data_set in _SIDES else imagenet


def _opened(case: Case, options: argparse.Namespace, iteration_ms: float) -> None:
    gpu = _GPUS[0] if options.dry_run else _gpu_name(options.gpus[0])
    input_file = options.input if case.task.from_files else options.arrays
    _append(options.opening, forecast_of(case, gpu, options.host, input_file, iteration_ms))


def _gpu_name(gpu: int) -> str:
    """The driver's name of a GPU, without starting CUDA in the process that the trainings are copies of."""
    query = ("nvidia-smi", f"--id={gpu}", "--query-gpu=name", "--format=csv,noheader")
    return subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()


def _tiny(case: Case, samples: int) -> tuple[Case, Task]:
    """The same case and task as a CPU does them in a few seconds."""
    precision = "amp_bf16" if case.mode.precision == "amp_bf16" else "fp32"
    cnn, size = ("resnet18", 32) if case.cnn == "resnet50" else (case.cnn, min(case.task.image_size, 80))
    tiny = replace(case, cnn=cnn, mode=replace(case.mode, precision=precision), local_batch_size=8)
    return tiny, replace(case.task, image_size=size, workers=1, samples=samples)


def _trained(jobs: Sequence[Job], gpus: Sequence[int], limit_s: float) -> dict[str, Any]:
    """What the first process measured; what went wrong if one failed, or took too long. None is left running."""
    context: Any = multiprocessing.get_context("fork")
    processes, answers = [], []
    for job in jobs:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_in_process, args=(job, gpus, there))
        process.start()
        there.close()
        processes.append(process)
        answers.append(here)
    try:
        return _first_answer(answers, limit_s)
    finally:
        for process in processes:
            process.join(0.5)
            try:
                os.killpg(process.pid, signal.SIGKILL)  # of the session that it began, with its workers
            except ProcessLookupError:
                process.kill()
            process.join()


def _first_answer(answers: Sequence[Connection], limit_s: float) -> dict[str, Any]:
    end, waiting, found = time.perf_counter() + limit_s, list(answers), {}
    while waiting:
        ready = wait(waiting, max(0.0, end - time.perf_counter()))
        if not ready:
            return {"error": f"not done after {limit_s:.0f} s"}
        for answer in ready:
            waiting.remove(answer)
            try:
                said = answer.recv()
            except EOFError:
                return {"error": "a process ended without an answer"}
            if "error" in said or answer is answers[0]:
                found = said
            if "error" in found:
                return found
    return found


def _in_process(job: Job, gpus: Sequence[int], answer: Connection) -> None:
    os.setsid()
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(map(str, gpus))
    try:
        answer.send(train(job))
    except Exception as error:  # noqa: BLE001 - it crosses a process border
        answer.send({"error": f"{type(error).__name__}: {error}"[:500]})


# ------------------------------------------------------------------------------------------------- what a process does


class Arrays:
    """Small images in memory, 8 bits, as a CIFAR-10 data set: each is cropped, flipped and normalised when it is read.

    5,000 distinct images are read again and again, so that any number of them fits in memory.
    """

    def __init__(self, samples: int, image_size: int, augment: Callable[[Any], Any]) -> None:
        draw = np.random.default_rng(0)
        distinct = min(samples, _DISTINCT_ARRAYS)
        self._samples, self._augment = samples, augment
        self._images = draw.integers(0, 256, (distinct, image_size, image_size, 3), np.uint8)

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self._augment(self._images[index % len(self._images)])
        return image, index % _CLASSES["arrays"]


class Pictures:
    """JPEGs of a folder, read, decoded and augmented as `proxy_cnns.pipelines` does."""

    def __init__(self, samples: int, paths: list[Path], pipeline: Pipeline) -> None:
        self._samples, self._paths, self._pipeline = samples, paths, pipeline

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> tuple[Any, int]:
        image = self._pipeline.load(self._paths[index % len(self._paths)])
        return image, index % _CLASSES["pictures"]


def _data(job: Job, samples: int) -> Arrays | Pictures:
    if job.folder is not None:
        pipeline = usual_pipeline(job.task.image_size)
        return Pictures(samples, sorted(job.folder.rglob("*.jpg")), pipeline)
    return Arrays(samples, job.task.image_size, usual_pipeline(job.task.image_size, "array").augment)


def _epoch(
    batches: Iterator[Any],
    n: int,
    step: Callable[[Any], None],
    wait: Callable[[], None],
    mark: Callable[[], Any],
    seconds_between: Callable[[Any, Any], float],
) -> dict[str, Any]:
    """Train on all `n` mini-batches; times from before the first is asked for to the end of the last.

    `first_iteration_s` holds the start of the workers, the wait for the first mini-batch (`first_wait_s`) and what the
    framework does once; `middle_ms` is the mean iteration of the middle half; `waited_s` is what the training process
    waited for later mini-batches.
    """  # fmt: skip
    start = time.perf_counter()
    first_s = first_wait_s = waited_s = 0.0
    marks = []
    for i in range(n):
        asked = time.perf_counter()
        batch = next(batches)
        got = time.perf_counter()
        step(batch)
        if i == 0:
            wait()
            first_s, first_wait_s = time.perf_counter() - start, got - start
        else:
            waited_s += got - asked
        if i in (n // 4, 3 * n // 4):
            marks.append((i, mark()))
    wait()
    epoch_s = time.perf_counter() - start
    (i, early), (j, late) = marks if len(marks) == 2 else (marks[0], marks[0])
    return {
        "iterations": n,
        "epoch_s": epoch_s,
        "first_iteration_s": first_s,
        "first_wait_s": first_wait_s,
        "middle_ms": 1000 * seconds_between(early, late) / (j - i) if j > i else None,
        "waited_s": waited_s,
    }


def _alone(step: Callable[[], None], wait: Callable[[], None], job: Job) -> dict[str, float]:
    """An iteration on a mini-batch that lies on the GPU: its time, and the time to enqueue it while the GPU is idle.

    The workers fill their queues meanwhile, which slows the first of them as it does in training.
    """
    enqueue_ms = enqueued_ms(step, wait, _ENQUEUED)
    n = max(_ALONE_LEAST, min(_ALONE_IMAGES, job.task.samples) // job.case.local_batch_size)
    return {"alone_ms": among_others_ms(step, wait, n), "enqueue_ms": enqueue_ms}


def enqueued_ms(step: Callable[[], None], wait: Callable[[], None], repeats: int) -> float:
    """Time to enqueue an iteration while the GPU is idle, median of some."""
    found = []
    for _ in range(repeats):
        wait()
        start = time.perf_counter()
        step()
        found.append(1000 * (time.perf_counter() - start))
    return statistics.median(found)


def among_others_ms(step: Callable[[], None], wait: Callable[[], None], n: int) -> float:
    """Time of an iteration, mean of `n` between which nothing waits for the GPU."""
    wait()
    start = time.perf_counter()
    for _ in range(n):
        step()
    wait()
    return 1000 * (time.perf_counter() - start) / n


def train(job: Job) -> dict[str, Any]:
    """Train, and say what was measured; times in seconds or as their names say."""
    import torch
    from torch.utils.data import DataLoader, DistributedSampler

    from proxy_cnns.backends.torch.modes import autocast, momentum_of, switch_precision, tensor_layout

    device = torch.device("cpu" if job.gpu is None else f"cuda:{job.gpu}")
    wait: Callable[[], None] = _nothing
    mark: Callable[[], Any] = time.perf_counter
    seconds_between: Callable[[Any, Any], float] = _difference
    if job.gpu is not None:
        torch.cuda.set_device(device)
        wait, mark, seconds_between = torch.cuda.synchronize, _event, _event_seconds
    switch_precision(job.case.mode)
    layout, context = tensor_layout(job.case.mode), autocast(job.case.mode, device.type)
    model = module_of(job.case.cnn, job.task.image_size).train().to(device, memory_format=layout)
    with tempfile.TemporaryDirectory() as cache, _together(job, model) as distributed:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # empty, as on a machine that was just rented
        compiles = job.case.mode.capture == "compile"
        trained = torch.compile(distributed, dynamic=False) if compiles else distributed
        optimizer = torch.optim.SGD(
            trained.parameters(), lr=_LEARNING_RATE, momentum=momentum_of(job.case.mode)
        )

        def on_device(batch: Any) -> tuple[Any, Any]:
            images, labels = (each.to(device, non_blocking=True) for each in batch)
            return images.contiguous(memory_format=layout), labels

        def step(batch: Any) -> None:
            images, labels = on_device(batch)
            optimizer.zero_grad(set_to_none=True)
            with context:
                loss = torch.nn.functional.cross_entropy(trained(images), labels)
            loss.backward()
            optimizer.step()

        def loader(samples: int, shuffled: bool, persistent: bool = True) -> Any:
            data: Any = _data(job, samples)
            sampler = DistributedSampler(data) if job.case.n_gpus > 1 else None
            return DataLoader(
                data, job.case.local_batch_size, shuffled and sampler is None, sampler, num_workers=job.task.workers,
                pin_memory=job.gpu is not None, persistent_workers=persistent and job.task.workers > 0,
            )  # fmt: skip

        def epoch(batches: Any) -> dict[str, Any]:
            start = time.perf_counter()
            times = _epoch(iter(batches), len(batches), step, wait, mark, seconds_between)
            return times | {"whole_s": time.perf_counter() - start}

        if job.opened is not None:
            opening = iter(loader(job.task.samples, True, persistent=False))
            found = {"opening_ms": _opening_ms(opening, max(1, job.task.workers), step, wait)}
            resident = on_device(next(opening))
            del opening
            job.opened(found["opening_ms"])
            found |= _of_later("anew", epoch(loader(job.task.samples, True, persistent=False)))
            return found | _alone(lambda: step(resident), wait, job) | _machine_of(device)
        training = loader(job.task.samples, True)
        found = epoch(training)
        for which in _LATER[: job.case.epochs - 1]:
            found |= _of_later(which, epoch(training))
        resident = on_device(next(iter(training)))
        found |= _alone(lambda: step(resident), wait, job)
        del training
        if job.case.epochs > len(_LATER):
            found |= _of_later("anew", epoch(loader(job.task.samples, True, persistent=False)))
        if job.validates and job.case.n_gpus == 1:
            validated = loader(min(_VALIDATED, job.task.samples), False)
            found |= _validation(model.eval(), validated, on_device, context, wait)
    return found | _machine_of(device)


def _machine_of(device: Any) -> dict[str, str]:
    import torch

    gpu = "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
    return {"gpu": gpu, "version": f"torch {torch.__version__}", "machine": machine()}


def _opening_ms(
    batches: Iterator[Any], workers: int, step: Callable[[Any], None], wait: Callable[[], None]
) -> float:
    """Ms of an iteration in its loader, mean of some seconds, after those whose mini-batches its workers had ready."""
    found_ms = 0.0
    for seconds, least in ((_WARM_UP_S, 2 * workers), (_OPENED_S, workers)):
        wait()
        start, n = time.perf_counter(), 0
        while n < least or n % workers or time.perf_counter() - start < seconds:
            step(next(batches))
            n += 1
        wait()
        found_ms = 1000 * (time.perf_counter() - start) / n
    return found_ms


_LATER = ("second", "third")


def _of_later(which: str, times: dict[str, Any]) -> dict[str, Any]:
    """Columns of a later epoch: its time, the same with its iterator, the wait for the first mini-batch, its middle."""
    names = {"epoch_s": "epoch_s", "whole_s": "whole_s", "wait_s": "first_wait_s", "middle_ms": "middle_ms"}
    return {f"{which}_{name}": times[of] for name, of in names.items()}


def _validation(model: Any, batches: Any, on_device: Any, context: Any, wait: Any) -> dict[str, float]:
    """A forward pass over all images, twice, then the loader alone over the same, its workers at work already."""
    import torch

    passes = []
    for _ in range(2):
        start = time.perf_counter()
        correct: Any = 0
        with torch.no_grad():
            for batch in batches:
                images, labels = on_device(batch)
                with context:
                    correct += (model(images).argmax(1) == labels).sum()
        wait()
        passes.append(time.perf_counter() - start)
    start, images_read = time.perf_counter(), 0
    for images, _ in batches:
        images_read += len(images)
    return {
        "validation_s": passes[0],
        "second_validation_s": passes[1],
        "loader_images_per_s": images_read / (time.perf_counter() - start),
    }


def module_of(cnn: str, image_size: int) -> Any:
    """A CNN as its library builds it: torchvision's ResNet-50, one of the zoo, else timm's with ten classes."""
    if cnn == "resnet50":
        try:
            from torchvision.models import resnet50

            return resnet50()
        except (ImportError, RuntimeError):  # a torchvision of another build of PyTorch
            pass
    if cnn in zoo_names():
        from proxy_cnns.backends.torch.network import network

        return network(zoo_cnn(cnn, image_size), "cpu")
    import timm

    return timm.create_model(cnn, num_classes=_CLASSES["arrays"])


@contextmanager
def _together(job: Job, model: Any) -> Iterator[Any]:
    """Lend the model as it trains with those of the other processes."""
    if job.case.n_gpus == 1:
        yield model
        return
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    backend = "gloo" if job.gpu is None else "nccl"
    dist.init_process_group(
        backend, init_method=f"file://{job.meeting_file}", rank=job.rank, world_size=job.case.n_gpus
    )
    try:
        yield DistributedDataParallel(model, None if job.gpu is None else [job.gpu])
    finally:
        dist.destroy_process_group()


def _event() -> Any:
    import torch

    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def _event_seconds(early: Any, late: Any) -> float:
    return float(early.elapsed_time(late)) / 1000


def _difference(early: float, late: float) -> float:
    return late - early


def _nothing() -> None:
    return


# ---------------------------------------------------------------------------------------------------------- tables


def _done(path: Path) -> set[str]:
    """Cases that have a row without an error."""
    return {row["case"] for row in read(path) if not row["error"]} if path.is_file() else set()


def _append(path: Path, row: dict[str, Any]) -> None:
    is_new = not path.is_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, _MEASURED if "error" in row else list(row), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def read(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def _cases(names: str) -> list[Case]:
    cases = [Case.named(name) for name in names.split(",")]
    if by_chainer := [case.name for case in cases if case.mode.framework == "chainer"]:
        raise SchemaError(f"{by_chainer[0]}: epochs are trained by PyTorch alone.")
    return cases


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    steps = parser.add_subparsers(required=True)
    forecast = steps.add_parser("forecast", help=_forecast.__doc__)
    forecast.add_argument("--out", type=Path, required=True)
    pictures = steps.add_parser("pictures", help=_pictures.__doc__)
    pictures.add_argument("--number", type=int, default=_SAMPLES)
    training = steps.add_parser("train", help=_train.__doc__)
    for each in (pictures, training):
        each.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "pictures")
    for each in (forecast, training):
        each.add_argument("--cases", required=True, help="names, joined by commas, in this order")
        each.add_argument("--host", type=Path, help="file of `epochcast host`")
    training.add_argument("--input", type=Path, help="file of `epochcast profile input`, for JPEGs")
    training.add_argument("--arrays", type=Path, help="file of `epochcast profile input --arrays`")
    training.add_argument("--opening", type=Path, help="CSV file for forecasts made just before each epoch")
    training.add_argument(
        "--gpus",
        type=lambda text: [int(each) for each in text.split(",")],
        default=[0],
        help="such as 0 or 2,3",
    )
    training.add_argument("--out", type=Path, default=Path("real_epochs.csv"))
    training.add_argument("--budget", type=float, default=240, help="seconds, after which no case begins")
    training.add_argument("--limit", type=float, default=120, help="seconds of one case")
    training.add_argument("--dry-run", action="store_true", help="every case, tiny, on a CPU")
    for each, step in ((forecast, _forecast), (pictures, _pictures), (training, _train)):
        each.set_defaults(step=step)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
