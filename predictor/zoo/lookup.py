"""From a name to a layer table, refusing what does not exist.

Called through `predictor.zoo`; calls the registry, the builder and the error tree.
"""

from functools import lru_cache
from operator import index

from predictor.errors import OutOfRangeError, UnknownCnnError, nearest
from predictor.layers import LayerTable
from predictor.zoo.builder import NetBuilder
from predictor.zoo.registry import ZOO, ZooCnn

__all__ = ["minimum_image_size", "usual_image_size", "zoo_cnn", "zoo_names"]


def zoo_names() -> list[str]:
    """Names of all CNNs of the zoo, sorted."""
    return sorted(ZOO)


def zoo_cnn(name: str, image_size: int | None = None) -> LayerTable:
    """Layer table of a CNN of the zoo; asking twice returns the same object.

    Parameters
    ----------
    name : str
        One of `zoo_names`.
    image_size : int, optional
        Height and width of the images, pixels; the CNN's usual one by default. For `dcgan_generator` the
        size of the images that it makes.

    Raises
    ------
    UnknownCnnError
        If the zoo has no CNN of this name.
    OutOfRangeError
        If the image size is not a whole number, or smaller (larger) than the architecture allows.

    Examples
    --------
    >>> table = zoo_cnn("resnet50")
    >>> table.parameters
    25557032
    >>> table.layers[0].out_height
    112
    """
    spec = _spec(name)
    size = spec.usual_image_size if image_size is None else _checked_size(name, spec, image_size)
    return _table(name, size)


def usual_image_size(name: str) -> int:
    """Image size at which the CNN is usually trained or was published, pixels; UnknownCnnError if unknown."""
    return _spec(name).usual_image_size


def minimum_image_size(name: str) -> int:
    """Smallest image size that the architecture allows, pixels; UnknownCnnError if unknown."""
    return _spec(name).minimum_image_size


def _spec(name: str) -> ZooCnn:
    try:
        return ZOO[name]
    except (KeyError, TypeError):
        raise UnknownCnnError(
            f"no CNN of the zoo is called {name!r}. Nearest: {nearest(str(name), ZOO)}. "
            f"`epochcast cnn list` shows all {len(ZOO)}."
        ) from None


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
