"""Training sets by name: samples of an epoch, image size, and how much they hold on disk and decoded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType

from predictor.catalogue.rows import read_rows
from predictor.errors import OutOfRangeError, SchemaError, nearest
from predictor.files import data_file

STORED = ("jpeg", "array")
"""How images are stored: as JPEGs, which every epoch decodes, or as numbers that fit in memory."""


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The part of a data set that one epoch of training passes over.

    Where `resized` is true the images' sizes vary, and `image_size` is the size that classification recipes resize
    them to; else it is the images' own side. `records` counts all parts of the data set. `disk_gb` is the size of the
    training part as stored, `decoded_gb` that of its pixels at 8 bits, both in 10^9 bytes; `megapixels` is the mean
    size of an image in 10^6 pixels.
    """

    name: str
    samples: int
    image_size: int  # pixels, of a square
    channels: int
    classes: int
    resized: bool
    stored: str
    records: int
    disk_gb: float
    megapixels: float
    decoded_gb: float
    source: str

    @property
    def sample_mb(self) -> float:
        """Mean size of a stored image in 10^6 bytes."""
        return 1000.0 * self.disk_gb / self.samples

    def part(self, samples: int) -> TrainingSet:
        """The data set cut down to `samples` training images of the same mean size.

        OutOfRangeError if `samples` is not between 1 and the data set's own number.

        >>> find_training_set("mnist").part(6_000).disk_gb / find_training_set("mnist").disk_gb
        0.1
        """
        if not 1 <= samples <= self.samples:
            raise OutOfRangeError(
                f"samples {samples:,} lies outside 1..{self.samples:,}, the training images of {self.name}. Pass "
                "fewer, or leave the data set out."
            ).about("samples")
        share = samples / self.samples
        return replace(
            self, samples=samples, disk_gb=share * self.disk_gb, decoded_gb=share * self.decoded_gb
        )


@lru_cache(maxsize=1)
def training_sets() -> Mapping[str, TrainingSet]:
    """Every data set of ``data_sets.csv`` by name, in its order."""
    rows = read_rows(TrainingSet, data_file("data_sets.csv"), name="data_set")
    return MappingProxyType({training_set.name: training_set for training_set in rows})


_OTHER_NAMES = {
    "coco": "mscoco",
    "ilsvrc2012": "imagenet",
    "imagenet1k": "imagenet",
    "imagenette2": "imagenette",
    "imagenette2160": "imagenette160",
    "imagenette2320": "imagenette320",
}


@lru_cache(maxsize=256)
def find_training_set(name: str) -> TrainingSet:
    """Find a known data set by name; case, dashes, spaces and underscores do not matter.

    SchemaError if no known data set has this name; the message lists the nearest, and how to do without.

    >>> find_training_set("CIFAR-100").samples
    50000
    """
    data_sets = training_sets()
    by_key = {other_name.replace("_", ""): data_set for other_name, data_set in data_sets.items()}
    key = "".join(character for character in name.casefold() if character.isalnum())
    training_set = by_key.get(_OTHER_NAMES.get(key, key))
    if training_set is None:
        raise SchemaError(
            f"no known data set is called {name!r}. Nearest: {nearest(name, data_sets)}. "
            f"Known: {', '.join(data_sets)}. For any other, pass its number of samples."
        ).about("data_set")
    return training_set
