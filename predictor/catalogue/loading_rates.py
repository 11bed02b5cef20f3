"""Rates of reading and decoding images on machines that were not measured, from ``loaders.csv`` and ``sources.csv``."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from predictor.catalogue.rows import read_rows
from predictor.errors import SchemaError
from predictor.files import data_file

LOADERS = ("torchvision", "pillow_simd", "dali")
"""What decodes and augments: names of ``loaders.csv``."""

USUAL_LOADER = "torchvision"
"""Taken where none is named: Pillow and torchvision's transforms, as in PyTorch's own ImageNet example."""

SOURCES = ("folder", "nfs", "lmdb", "hdf5", "memory")
"""Where images are read from: names of ``sources.csv``."""


@dataclass(frozen=True, slots=True)
class Loader:
    """CPU time to decode and augment one image, on one core of a usual cloud CPU, in microseconds.

    Time = `fixed_us` + `us_per_source_megapixel` x megapixels stored + `us_per_megapixel` x megapixels that the CNN
    gets. A vCPU does `vcpu_share` of what a core does while all are busy. The 90 % interval is a factor
    of `spread`. Grey images are neither cropped nor flipped, which takes `crop_us` of `fixed_us`.
    """

    name: str
    stored: str
    fixed_us: float
    us_per_source_megapixel: float
    us_per_megapixel: float
    vcpu_share: float
    spread: float
    crop_us: float = 0.0

    def sample_us(self, megapixels: float, image_size: int, channels: int = 3) -> float:
        """CPU time of one image of `megapixels` stored 10^6 pixels, brought to a side of `image_size` pixels, in us."""
        source = self.us_per_source_megapixel * megapixels
        fixed = self.fixed_us - (self.crop_us if channels == 1 else 0.0)
        return fixed + source + self.us_per_megapixel * image_size**2 / 1e6


@dataclass(frozen=True, slots=True)
class Source:
    """Where images are read from: for each image the CPU time and the wait of a worker; MB/s of a whole machine."""

    name: str
    cpu_us: float
    wait_us: float
    read_mb_per_s: float = math.inf  # nothing is read


def find_loader(name: str, stored: str) -> Loader:
    """CPU times of a loader for images `stored` as ``jpeg`` or ``array``; SchemaError if they are not known."""
    loader = _loaders().get((name, stored))
    if loader is None:
        names = ", ".join(loader for loader, form in _loaders() if form == stored)
        raise SchemaError(
            f"loader {name!r}: its rate for images stored as {stored} is not known. Known: {names}. "
            "Or pass the rate of one worker as loader: 300/worker."
        )
    return loader


def find_source(name: str) -> Source:
    """CPU time, wait and MB/s of a source, one of `SOURCES`; KeyError for another name."""
    return _sources()[name]


@lru_cache(maxsize=1)
def _loaders() -> dict[tuple[str, str], Loader]:
    return {
        (loader.name, loader.stored): loader
        for loader in read_rows(Loader, data_file("loaders.csv"), name="loader")
    }


@lru_cache(maxsize=1)
def _sources() -> dict[str, Source]:
    return {source.name: source for source in read_rows(Source, data_file("sources.csv"), name="source")}
