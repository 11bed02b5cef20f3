"""Measure an input pipeline: reading, decoding and augmenting on one core, and images a second by worker processes.

Images of a folder, or made here, become a CNN's input as in PyTorch's ImageNet example: a random crop of 8 to 100 % of
the image is resized, flipped half of the time and normalised. A small image that is stored as an array is cropped from
itself with 4 pixels around it, as CIFAR-10's usually are.

Worker processes are those of PyTorch's DataLoader where PyTorch is installed, which hand over batches as in training,
else a pool of processes, which only count.
"""

from __future__ import annotations

import io
import math
import os
import random
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
from functools import partial
from itertools import cycle, islice, repeat
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from predictor.errors import BackendUnavailableError, DataError, SchemaError, nearest
from predictor.measurements.inputs import InputMeasurement, WorkerRate
from proxy_cnns.device import host_name, usable_cpus

MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
_AREA, _RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
_TRIES = 10
_MARGIN = 4  # pixels around an array, in which its crop lies

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm")
"""Endings of the names of image files."""
_FOLDER_OR_NONE = "Pass a folder of images, or none: images are then made."

_WIDTH, _HEIGHT, _QUALITY = 500, 375, 90
_OCTAVES = (64, 32, 16, 8, 4, 2, 1)  # pixels of a patch of noise
_ROUGHNESS = 0.22  # of the noise: an image is then about as large as ImageNet's (105 KB; their mean is 115)


def images_of(folder: Path, most: int) -> list[Path]:
    """At most `most` images of a folder and the folders in it, spread over all of them.

    SchemaError if it is not a folder, or holds no image.
    """
    if not folder.is_dir():
        raise SchemaError(f"{folder} is not a folder. {_FOLDER_OR_NONE}")
    paths = (Path(parent, name) for parent, _, names in os.walk(folder, followlinks=True) for name in names)
    files = sorted(path for path in paths if path.name.casefold().endswith(SUFFIXES))
    if not files:
        raise SchemaError(f"{folder} holds no image ({', '.join(SUFFIXES)}). {_FOLDER_OR_NONE}")
    return [files[i * len(files) // min(most, len(files))] for i in range(min(most, len(files)))]


def write_images(folder: Path, n: int) -> list[Path]:
    """Write `n` JPEGs of 500 x 375 pixels and quality 90 of noise that is as rough as photographs."""
    image, noise = pillow(), np.random.default_rng(0)
    paths = [folder / f"{i:05}.jpg" for i in range(n)]
    for path in paths:
        image.fromarray(_noise(noise)).save(path, "JPEG", quality=_QUALITY)
    return paths


def pillow() -> Any:
    """The module ``PIL.Image``; BackendUnavailableError if Pillow is not installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise BackendUnavailableError(
            "Pillow is not installed: pip install 'epochcast[input]', then repeat."
        ) from error
    return Image


def _noise(generator: np.random.Generator) -> Any:
    """Sum of patches of noise of several sizes; shape (375, 500, 3), 8 bits."""
    pixels = np.zeros((_HEIGHT, _WIDTH, 3))
    for patch in _OCTAVES:
        rows, columns = -(-_HEIGHT // patch), -(-_WIDTH // patch)
        of_octave = generator.normal(size=(rows, columns, 3)) * patch**_ROUGHNESS
        pixels += of_octave.repeat(patch, axis=0).repeat(patch, axis=1)[:_HEIGHT, :_WIDTH]
    scaled = 120 + 50 * (pixels - pixels.mean()) / pixels.std()
    return scaled.clip(0, 255).astype(np.uint8)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A loader's name, the size of its images in pixels, and what it does to a decoded image or an array."""

    name: str
    image_size: int
    augment: Callable[[Any], Any]

    def load(self, stored: Path | Any) -> Any:
        """The CNN's input from a file, or from an array."""
        return self.augment(decode(stored.read_bytes()) if isinstance(stored, Path) else stored)


def decode(content: bytes) -> Any:
    """Decode an image with Pillow, in RGB; DataError if it is none, or damaged."""
    try:
        return pillow().open(io.BytesIO(content)).convert("RGB")
    except OSError as error:
        raise DataError(
            f"an image of {len(content):,} bytes cannot be decoded ({error}). Take damaged files out of the folder."
        ) from error


def pipeline_of(name: str | None, image_size: int, stored: str = "jpeg") -> Pipeline:
    """The pipeline of this name, of images that are stored as ``jpeg`` or as ``array``.

    None: torchvision's transforms where they can be imported, else the same steps with Pillow and numpy. SchemaError if
    none is called so; BackendUnavailableError if what it needs is not installed.
    """
    if name is None:
        try:
            return pipeline_of("torchvision", image_size, stored)
        except BackendUnavailableError:
            return pipeline_of("pillow", image_size, stored)
    if name not in PIPELINES:
        names = ", ".join(("dali", *PIPELINES))
        raise SchemaError(
            f"no loader is called {name!r}. Nearest: {nearest(name, PIPELINES)}; known: {names}."
        )
    pillow()
    return Pipeline(name, image_size, PIPELINES[name](image_size, stored))


def dali_batches(paths: list[Path], image_size: int, threads: int, batch_size: int) -> Iterator[int]:
    """Number of images of each mini-batch that DALI loads on the CPU with `threads` threads, without an end.

    Run with DALI 2.4 on a CPU; decoding on the GPU is not measured. BackendUnavailableError if DALI is not installed.
    """
    try:
        from nvidia.dali import fn, pipeline_def, types
    except ImportError as error:
        raise BackendUnavailableError(
            "DALI is not installed: pip install nvidia-dali-cuda130 (or -cuda120), then repeat; or leave --loader out."
        ) from error
    files = [str(path) for path in paths]

    @pipeline_def(batch_size=batch_size, num_threads=threads, device_id=None)  # type: ignore[untyped-decorator]
    def pipeline() -> Any:
        encoded, _ = fn.readers.file(files=files, labels=[0] * len(files), random_shuffle=True)
        images = fn.decoders.image_random_crop(
            encoded, device="cpu", random_area=list(_AREA), random_aspect_ratio=list(_RATIO)
        )
        images = fn.resize(images, resize_x=image_size, resize_y=image_size)
        return fn.crop_mirror_normalize(
            images,
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * value for value in MEAN],
            std=[255 * value for value in DEVIATION],
            mirror=fn.random.coin_flip(),
        )

    built = pipeline()
    built.build()
    while True:
        built.run()
        yield batch_size


def _torchvision(image_size: int, stored: str) -> Callable[[Any], Any]:
    try:
        from torchvision import transforms
    except (ImportError, RuntimeError) as error:  # RuntimeError: a torchvision of another build of PyTorch
        raise BackendUnavailableError(
            f"torchvision cannot be imported ({error}). Install torch and torchvision of one build, or pass --loader "
            "pillow."
        ) from error
    steps = [transforms.RandomResizedCrop(image_size)]
    if stored == "array":
        steps = [pillow().fromarray, transforms.RandomCrop(image_size, padding=_MARGIN)]
    steps += [transforms.RandomHorizontalFlip(), transforms.ToTensor(), transforms.Normalize(MEAN, DEVIATION)]
    composed: Callable[[Any], Any] = transforms.Compose(steps)
    return composed


def _by_pillow_and_numpy(image_size: int, stored: str, image: Any) -> Any:
    """The steps of torchvision's transforms without torchvision."""
    if stored == "array":
        padded = np.pad(image, ((_MARGIN, _MARGIN), (_MARGIN, _MARGIN), (0, 0)))
        top, left = (random.randrange(2 * _MARGIN + 1) for _ in range(2))  # noqa: S311 - no secret
        cropped = padded[top : top + image_size, left : left + image_size]
    else:
        size = (image_size, image_size)
        cropped = image.resize(size, pillow().Resampling.BILINEAR, _random_box(*image.size))
    pixels = np.asarray(cropped, dtype=np.float32) / 255.0
    if random.random() < 0.5:  # noqa: S311 - augmentation, not a secret
        pixels = pixels[:, ::-1]
    mean, deviation = (np.array(channels, dtype=np.float32) for channels in (MEAN, DEVIATION))
    return np.ascontiguousarray(((pixels - mean) / deviation).transpose(2, 0, 1))


def _random_box(width: int, height: int) -> tuple[float, float, float, float]:
    """Left, upper, right and lower edge of a random crop; of the whole image after ten crops that do not fit."""
    for _ in range(_TRIES):
        area = width * height * random.uniform(*_AREA)  # noqa: S311
        ratio = np.exp(random.uniform(*np.log(_RATIO)))  # noqa: S311
        wide, high = (area * ratio) ** 0.5, (area / ratio) ** 0.5
        if wide <= width and high <= height:
            left, upper = random.uniform(0, width - wide), random.uniform(0, height - high)  # noqa: S311
            return left, upper, left + wide, upper + high
    return 0, 0, width, height


PIPELINES: dict[str, Callable[[int, str], Callable[[Any], Any]]] = {
    "torchvision": _torchvision,
    "pillow": lambda image_size, stored: partial(_by_pillow_and_numpy, image_size, stored),
}
"""Loaders that work image by image, by name: what each makes of an image size and of how images are stored."""


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
