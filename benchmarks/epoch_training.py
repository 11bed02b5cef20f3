"""The training of `real_epochs.py`: whole epochs as a user's script trains them, and what they are made of.

Every process here is one GPU's. Nothing waits for the GPU between iterations but once, after the first.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from machine import machine

from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn, zoo_names
from proxy_cnns.pipelines import Pipeline, usual_pipeline

_DISTINCT_ARRAYS = 5000
_CLASSES = {"pictures": 1000, "arrays": 10}
_LEARNING_RATE = 0.01
_VALIDATED = 10_000
_ALONE_IMAGES = 2500
_ALONE_LEAST, _ENQUEUED = 10, 5
_WARM_UP_S, _OPENED_S = 1.5, 3.0  # of an opening; both in whole rounds of its workers


@dataclass(frozen=True, slots=True)
class Job:
    """What one process trains; `gpu` counts those that the case sees, None: a CPU; `folder` has JPEGs, None: arrays."""

    cnn: str
    mode: Mode
    image_size: int
    local_batch_size: int
    workers: int
    samples: int
    epochs: int
    validates: bool
    gpu: int | None
    rank: int
    n_gpus: int
    folder: Path | None
    meeting_file: Path
    opened: Callable[[float], None] | None = None
    """Is told the ms of an iteration in its loader before the one epoch that is then trained."""


def train(job: Job) -> dict[str, Any]:
    """Train, and say what was measured; times in seconds or as their names say."""
    return _train_pytorch(job) | {"machine": machine()}


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
        pipeline = usual_pipeline(job.image_size)
        return Pictures(samples, sorted(job.folder.rglob("*.jpg")), pipeline)
    return Arrays(samples, job.image_size, usual_pipeline(job.image_size, "array").augment)


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
    n = max(_ALONE_LEAST, min(_ALONE_IMAGES, job.samples) // job.local_batch_size)
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


def _train_pytorch(job: Job) -> dict[str, Any]:
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
    switch_precision(job.mode)
    layout, context = tensor_layout(job.mode), autocast(job.mode, device.type)
    model = module_of(job.cnn, job.image_size).train().to(device, memory_format=layout)
    with tempfile.TemporaryDirectory() as cache, _together(job, model) as distributed:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache  # empty, as on a machine that was just rented
        compiles = job.mode.capture == "compile"
        trained = torch.compile(distributed, dynamic=False) if compiles else distributed
        optimizer = torch.optim.SGD(trained.parameters(), lr=_LEARNING_RATE, momentum=momentum_of(job.mode))

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
            sampler = DistributedSampler(data) if job.n_gpus > 1 else None
            return DataLoader(
                data, job.local_batch_size, shuffled and sampler is None, sampler, num_workers=job.workers,
                pin_memory=job.gpu is not None, persistent_workers=persistent and job.workers > 0,
            )  # fmt: skip

        def epoch(batches: Any) -> dict[str, Any]:
            start = time.perf_counter()
            times = _epoch(iter(batches), len(batches), step, wait, mark, seconds_between)
            return times | {"whole_s": time.perf_counter() - start}

        if job.opened is not None:
            opening = iter(loader(job.samples, True, persistent=False))
            found = {"opening_ms": _opening_ms(opening, max(1, job.workers), step, wait)}
            resident = on_device(next(opening))
            del opening
            job.opened(found["opening_ms"])
            found |= _of_later("anew", epoch(loader(job.samples, True, persistent=False)))
            return found | _alone(lambda: step(resident), wait, job) | _machine_of(device)
        training = loader(job.samples, True)
        found = epoch(training)
        for which in _LATER[: job.epochs - 1]:
            found |= _of_later(which, epoch(training))
        resident = on_device(next(iter(training)))
        found |= _alone(lambda: step(resident), wait, job)
        del training
        if job.epochs > len(_LATER):
            found |= _of_later("anew", epoch(loader(job.samples, True, persistent=False)))
        if job.validates and job.n_gpus == 1:
            validated = loader(min(_VALIDATED, job.samples), False)
            found |= _validation(model.eval(), validated, on_device, context, wait)
    return found | _machine_of(device)


def _machine_of(device: Any) -> dict[str, str]:
    import torch

    gpu = "cpu" if device.type == "cpu" else torch.cuda.get_device_name(device)
    return {"gpu": gpu, "version": f"torch {torch.__version__}"}


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
    if job.n_gpus == 1:
        yield model
        return
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    backend = "gloo" if job.gpu is None else "nccl"
    dist.init_process_group(
        backend, init_method=f"file://{job.meeting_file}", rank=job.rank, world_size=job.n_gpus
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
