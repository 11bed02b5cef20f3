"""Images of a folder, or made here, and how one becomes a CNN's input, as in PyTorch's ImageNet example.

A random crop of 8 to 100 % of the image is resized, flipped half of the time and normalised. A small image that is
stored as an array is cropped from itself with 4 pixels around it, as CIFAR-10's usually are.
"""

from __future__ import annotations

import io
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from predictor.errors import BackendUnavailableError, DataError, SchemaError, nearest

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
