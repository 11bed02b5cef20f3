"""Training sets by name, with the samples of an epoch and the image size."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from predictor.errors import SchemaError, nearest

__all__ = ["TRAINING_SETS", "TrainingSet", "find_training_set"]


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """The part of a data set that one epoch of training passes over.

    Where `resized` is true the images' sizes vary, and `image_size` is the size that classification recipes resize
    them to; else it is the images' own side.
    """

    name: str
    samples: int
    image_size: int  # pixels, of a square
    channels: int
    classes: int
    resized: bool
    source: str


_ALL = (
    TrainingSet(
        "mnist", 60_000, 28, 1, 10, False, "LeCun, Cortes, Burges: The MNIST database; training part"
    ),
    TrainingSet(
        "fashion_mnist", 60_000, 28, 1, 10, False, "Xiao et al. 2017, arXiv:1708.07747; training part"
    ),
    TrainingSet("cifar10", 50_000, 32, 3, 10, False, "Krizhevsky 2009; training part"),
    TrainingSet("cifar100", 50_000, 32, 3, 100, False, "Krizhevsky 2009; training part"),
    TrainingSet("svhn", 73_257, 32, 3, 10, False, "Netzer et al. 2011; training part without the extra one"),
    TrainingSet(
        "stl10", 5_000, 96, 3, 10, False, "Coates et al. 2011; labelled training part, not the unlabelled"
    ),
    TrainingSet("tiny_imagenet", 100_000, 64, 3, 200, False, "Stanford CS231n; training part"),
    TrainingSet("food101", 75_750, 224, 3, 101, True, "Bossard et al. 2014; training part"),
    TrainingSet(
        "caltech101",
        8_677,
        224,
        3,
        101,
        True,
        "Li et al. 2004; all images of the 101 categories: it has no training part of its own, and the 467 "
        "images of the background class, which make it 9,144, are left out as torchvision does",
    ),
    TrainingSet("mscoco", 118_287, 224, 3, 80, True, "Lin et al. 2014, arXiv:1405.0312; train2017"),
    TrainingSet(
        "imagenet", 1_281_167, 224, 3, 1000, True, "Russakovsky et al. 2015; ILSVRC 2012 training part"
    ),
)

TRAINING_SETS: Mapping[str, TrainingSet] = MappingProxyType({known.name: known for known in _ALL})
_BY_KEY = {name.replace("_", ""): known for name, known in TRAINING_SETS.items()}
_OTHER_NAMES = {"coco": "mscoco", "imagenet1k": "imagenet", "ilsvrc2012": "imagenet"}


def find_training_set(name: str) -> TrainingSet:
    """Find a known data set by name; case, dashes, spaces and underscores do not matter.

    Raises
    ------
    SchemaError
        If no known data set has this name; the message lists the nearest, and how to do without.

    Examples
    --------
    >>> find_training_set("CIFAR-100").samples
    50000
    """
    key = "".join(character for character in name.casefold() if character.isalnum())
    found = _BY_KEY.get(_OTHER_NAMES.get(key, key))
    if found is None:
        raise SchemaError(
            f"no known data set is called {name!r}. Nearest: {nearest(name, TRAINING_SETS)}. "
            f"Known: {', '.join(TRAINING_SETS)}. For any other, pass its number of samples."
        )
    return found
