"""Measure an input pipeline: reading, decoding and augmenting on one core, and images a second by worker processes.

Worker processes are those of PyTorch's DataLoader where PyTorch is installed, which hand over batches as in training,
else a pool of processes, which only count.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import cycle, islice, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from predictor.errors import SchemaError
from predictor.measurements.inputs import InputMeasurement, WorkerRate
from proxy_cnns.device import host_name, usable_cpus
from proxy_cnns.pipelines import Pipeline, dali_batches, decode, images_of, pillow, pipeline_of, write_images

Clock = Callable[[], float]

MADE_IMAGES = 200
"""Images that are made where no folder is given."""

_MOST_IMAGES = 2000
_TIMED = 64  # images whose stages are timed
_BATCH = 32
_WARM_BATCHES = 2  # of each worker
_COPIES = 20
_COPIED_BYTES = 64 * 3 * 224 * 224 * 4


def measure_input(
    folder: Path | None = None,
    image_size: int = 224,
    workers: Sequence[int] = (),
    loader: str | None = None,
    seconds: float = 3.0,
    clock: Clock = time.perf_counter,
    cpu_clock: Clock = time.process_time,
    stored: str = "jpeg",
) -> InputMeasurement:
    """Measure this machine's input pipeline, `seconds` for each number of workers.

    `folder`: of images; without it 200 JPEGs of 500 x 375 pixels are made for the time of the measurement.
    `image_size`: side of the square that a CNN gets, in pixels. `workers`: numbers of worker processes; by default
    `usual_workers`. `loader`: ``torchvision``, ``pillow`` or ``dali`` (workers are then its threads, and 0 is left
    out); by default the first that can be imported of the first two. `stored`: ``array``: the images lie decoded in
    memory, `image_size` pixels wide, as CIFAR-10's do.

    SchemaError if the folder holds no image, no loader is called so, it loads no arrays, or 1 worker is not among
    `workers`; BackendUnavailableError if Pillow or the loader is missing.
    """
    numbers = sorted({*(workers or usual_workers())})
    if 1 not in numbers or numbers[0] < 0:
        raise SchemaError(
            f"workers {numbers}: 1 must be among them, which others are compared with; none below 0."
        )
    with ExitStack() as stack:
        if folder is None:
            paths = write_images(Path(stack.enter_context(tempfile.TemporaryDirectory())), MADE_IMAGES)
        else:
            paths = images_of(folder, _MOST_IMAGES)
        images: list[Any] = paths
        if stored == "array":
            if loader == "dali":
                raise SchemaError("arrays are not loaded by dali here. Pass --loader torchvision or pillow.")
            size = (image_size, image_size)
            images = [np.asarray(decode(path.read_bytes()).resize(size)) for path in paths[:MADE_IMAGES]]
        if loader == "dali":
            stages: tuple[float | None, ...] = (None, None, None)
            rates = [
                WorkerRate(n, rate_of(dali_batches(paths, image_size, n, _BATCH), seconds, clock))
                for n in numbers
                if n > 0
            ]
        else:
            pipeline = pipeline_of(loader, image_size, stored)
            stages = _stages_us(pipeline, images, cpu_clock)
            rates = []
            for n in numbers:
                with ExitStack() as pool:
                    batches = _batches(pipeline, images, n, pool)
                    warm = _WARM_BATCHES * max(1, n)
                    rates.append(WorkerRate(n, rate_of(batches, seconds, clock, warm)))
        sizes = []
        for path in paths[:_TIMED]:
            with pillow().open(path) as image:
                sizes.append(math.prod(image.size) / 1e6)
        bytes_of = [image.stat().st_size if isinstance(image, Path) else image.nbytes for image in images]
        return InputMeasurement(
            host=host_name(),
            vcpus=usable_cpus(),
            loader=loader or pipeline.name,
            image_size=image_size,
            images=len(images),
            mean_mb=statistics.fmean(bytes_of) / 1e6,
            mean_megapixels=image_size**2 / 1e6 if stored == "array" else statistics.fmean(sizes),
            stored=stored,
            rates=tuple(rates),
            folder=None if folder is None else str(folder),
            read_us=stages[0],
            decode_us=stages[1],
            augment_us=stages[2],
            copy_gb_per_s=copy_gb_per_s(),
            measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        )


def usual_workers() -> tuple[int, ...]:
    """No worker, one, half as many as there are hardware threads, and as many."""
    cpus = usable_cpus()
    return tuple(sorted({0, 1, max(1, cpus // 2), cpus}))


def rate_of(batches: Iterable[int], seconds: float, clock: Clock, warm: int = _WARM_BATCHES) -> float:
    """Images per second of an endless series of batches, `warm` of them before the clock starts.

    `batches`: images of each batch. `seconds`: count at least as long, and at least one batch.
    """
    iterator = iter(batches)
    for _ in range(warm):
        next(iterator)
    start, images = clock(), 0
    for batch in iterator:
        images += batch
        if clock() - start >= seconds:
            break
    return float(f"{images / (clock() - start):.6g}")


def copy_gb_per_s() -> float | None:
    """Rate of copies from pinned memory to the GPU, in 10^9 bytes/s; None without PyTorch or a GPU."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    pinned = torch.empty(_COPIED_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty_like(pinned, device="cuda")
    target.copy_(pinned, non_blocking=True)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(_COPIES):
        target.copy_(pinned, non_blocking=True)
    end.record()
    end.synchronize()
    return float(f"{_COPIES * _COPIED_BYTES / start.elapsed_time(end) / 1e6:.4g}")


def _stages_us(
    pipeline: Pipeline, stored: Sequence[Any], cpu_clock: Clock
) -> tuple[float | None, float | None, float]:
    """CPU microseconds to read, decode and augment an image: medians, in one process and one thread."""
    timed_images = stored[:_TIMED]
    pipeline.load(timed_images[0])  # imports what it needs
    with _one_thread():
        if not isinstance(timed_images[0], Path):
            return None, None, _timed(pipeline.augment, timed_images, cpu_clock)[1]
        contents, read = _timed(Path.read_bytes, timed_images, cpu_clock)
        images, decoded = _timed(decode, contents, cpu_clock)
        _, augmented = _timed(pipeline.augment, images, cpu_clock)
    return read, decoded, augmented


@contextmanager
def _one_thread() -> Iterator[None]:
    """Have PyTorch, where it is loaded, compute in one thread, as in a worker: CPU time counts waiting threads, too."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _timed(step: Callable[[Any], Any], inputs: Iterable[Any], cpu_clock: Clock) -> tuple[list[Any], float]:
    """Outputs of a step, and its median time in microseconds."""
    outputs, times = [], []
    for value in inputs:
        start = cpu_clock()
        outputs.append(step(value))
        times.append(1e6 * (cpu_clock() - start))
    return outputs, float(f"{statistics.median(times):.5g}")


def _batches(pipeline: Pipeline, stored: Sequence[Any], workers: int, stack: ExitStack) -> Iterator[int]:
    """Images of each batch: by this process, by PyTorch's workers where it is installed, else by a pool's."""
    if workers == 0:
        endless = cycle(stored)
        return (_loaded(pipeline, list(islice(endless, _BATCH))) for _ in repeat(None))
    try:
        from torch.utils.data import DataLoader
    except ImportError:
        pool = stack.enter_context(ProcessPoolExecutor(workers, get_context("spawn")))
        return _pool_batches(pool, pipeline, stored, workers)
    images = _Images(pipeline, list(stored))
    loader = DataLoader(images, _BATCH, num_workers=workers, persistent_workers=True)
    return (len(batch) for batch in loader)


@dataclass(frozen=True, slots=True)
class _Images:
    """A data set without an end, as PyTorch's DataLoader reads it."""

    pipeline: Pipeline
    stored: list[Any]

    def __len__(self) -> int:
        return 10**9

    def __getitem__(self, i: int) -> Any:
        return self.pipeline.load(self.stored[i % len(self.stored)])


def _pool_batches(
    pool: ProcessPoolExecutor, pipeline: Pipeline, stored: Sequence[Any], workers: int
) -> Iterator[int]:
    """Batches of a pool that always has two for each worker to do."""
    endless = cycle(stored)
    ahead: deque[Future[int]] = deque()
    while True:
        while len(ahead) < 2 * workers:
            ahead.append(pool.submit(_loaded, pipeline, list(islice(endless, _BATCH))))
        yield ahead.popleft().result()


def _loaded(pipeline: Pipeline, stored: Sequence[Any]) -> int:
    for image in stored:
        pipeline.load(image)
    return len(stored)
