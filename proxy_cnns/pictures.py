"""Images to load: those of a folder, or JPEGs made here that are as large as ImageNet's."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from predictor.errors import BackendUnavailableError, SchemaError

SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm")
"""Of the files of a folder that are images."""

_WIDTH, _HEIGHT, _QUALITY = 500, 375, 90
_OCTAVES = (64, 32, 16, 8, 4, 2, 1)  # pixels of a patch of noise
_ROUGHNESS = (
    0.22  # of the noise: at this, an image is about as large as ImageNet's (105 KB; ImageNet's mean is 115)
)


def images_of(folder: Path, most: int) -> list[Path]:
    """At most `most` images of a folder and the folders in it, spread over all of them.

    SchemaError if it is not a folder, or holds no image.
    """
    if not folder.is_dir():
        raise SchemaError(
            f"{folder} is not a folder. Pass a folder of images, or none: images are then made."
        )
    files = sorted(_image_files(folder))
    if not files:
        raise SchemaError(
            f"{folder} holds no image ({', '.join(SUFFIXES)}). Pass a folder of images, or none: images are then made."
        )
    return [files[i * len(files) // min(most, len(files))] for i in range(min(most, len(files)))]


def write_images(folder: Path, n: int, seed: int = 0) -> list[Path]:
    """Write `n` JPEGs of 500 x 375 pixels and quality 90 of noise that is as rough as photographs."""
    image = pillow()
    random = np.random.default_rng(seed)
    paths = [folder / f"{i:05}.jpg" for i in range(n)]
    for path in paths:
        image.fromarray(_noise(random)).save(path, "JPEG", quality=_QUALITY)
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


def _image_files(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder, followlinks=True):
        yield from (Path(parent, name) for name in names if name.casefold().endswith(SUFFIXES))


def _noise(random: np.random.Generator) -> Any:
    """Sum of patches of noise of several sizes; shape (375, 500, 3), 8 bits."""
    pixels = np.zeros((_HEIGHT, _WIDTH, 3))
    for patch in _OCTAVES:
        rows, columns = -(-_HEIGHT // patch), -(-_WIDTH // patch)
        of_octave = random.normal(size=(rows, columns, 3)) * patch**_ROUGHNESS
        pixels += of_octave.repeat(patch, axis=0).repeat(patch, axis=1)[:_HEIGHT, :_WIDTH]
    scaled = 120 + 50 * (pixels - pixels.mean()) / pixels.std()
    return scaled.clip(0, 255).astype(np.uint8)
