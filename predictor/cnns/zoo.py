"""The zoo: the CNNs of `datasets/zoo.json`, and the look-up of their layer tables by name and image size."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from operator import index
from typing import Any

from predictor.cnns.builder import NetBuilder
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError, UnknownCnnError, nearest
from predictor.files import data_file


@dataclass(frozen=True, slots=True)
class ZooCnn:
    """How to write one CNN's layer table. Image sizes in pixels (square images); `maximum` None: no limit.

    `family`: module of `predictor.cnns.families` and function, which takes `arguments`. The minimum leaves at least one
    pixel at every layer; batch norm on a single pixel also needs mini-batches of two images or more.
    """

    family: str
    usual_image_size: int
    minimum_image_size: int
    arguments: dict[str, Any] = field(default_factory=dict)
    in_channels: int = 3
    maximum_image_size: int | None = None

    def build(self, net: NetBuilder) -> None:
        """Write the rows of the CNN."""
        module, _, function = self.family.partition(".")
        getattr(import_module(f"predictor.cnns.families.{module}"), function)(net, **self.arguments)


ZOO = {name: ZooCnn(**entry) for name, entry in json.loads(data_file("zoo.json").read_text("utf-8")).items()}


def zoo_names() -> list[str]:
    """Names of all CNNs of the zoo, sorted."""
    return sorted(ZOO)


def zoo_cnn(name: str, image_size: int | None = None) -> LayerTable:
    """Layer table of a CNN of the zoo; cached.

    `name`: one of `zoo_names`. `image_size`: height and width of the images, pixels; the CNN's usual one by default.
    For `dcgan_generator` the size of the images that it makes. UnknownCnnError if the zoo has no CNN of this name;
    OutOfRangeError if the image size is not a whole number, or smaller (larger) than the architecture allows.

    >>> table = zoo_cnn("resnet50")
    >>> table.parameters
    25557032
    >>> table.layers[0].out_height
    112
    """
    try:
        spec = ZOO[name]
    except (KeyError, TypeError):
        raise UnknownCnnError(
            f"no CNN of the zoo is called {name!r}. Nearest: {nearest(str(name), ZOO)}. "
            f"`epochcast cnn list` shows all {len(ZOO)}."
        ) from None
    size = spec.usual_image_size if image_size is None else _checked_size(name, spec, image_size)
    return _table(name, size)


def _checked_size(name: str, spec: ZooCnn, image_size: int) -> int:
    usual = f"its usual image size is {spec.usual_image_size}"
    try:
        size = index(image_size)
    except TypeError:
        raise OutOfRangeError(
            f"image_size {image_size!r} is not a whole number of pixels. "
            f"Pass one, such as {spec.usual_image_size}."
        ) from None
    if isinstance(image_size, bool) or size < spec.minimum_image_size:
        raise OutOfRangeError(
            f"image_size {image_size} is below {spec.minimum_image_size}, the least that {name} allows. "
            f"Pass {spec.minimum_image_size} or more; {usual}."
        )
    if spec.maximum_image_size is not None and size > spec.maximum_image_size:
        raise OutOfRangeError(
            f"image_size {size} is above {spec.maximum_image_size}, the most that {name} allows. "
            f"Pass {spec.minimum_image_size}..{spec.maximum_image_size}; {usual}."
        )
    return size


@lru_cache(maxsize=256)
def _table(name: str, image_size: int) -> LayerTable:
    spec = ZOO[name]
    net = NetBuilder(name, image_size, spec.in_channels, source="zoo")
    spec.build(net)
    return net.table()
