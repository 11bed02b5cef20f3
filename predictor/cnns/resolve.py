"""Resolves zoo names, layer table CSVs, ONNX and Keras files, and CNNs of PyTorch, Keras and Chainer to layer tables.

Each reader is imported when first needed: a question about a zoo CNN loads no framework.
"""

import re
import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from predictor.checks import MAX_IMAGE_SIZE, shown_value
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import is_proxy_name, proxy_table
from predictor.errors import OutOfRangeError, SchemaError, UnknownCnnError, nearest


def resolve_cnn(cnn: Any, image_size: int | None = None) -> LayerTable:
    """Layer table of a CNN, however it is given.

    `cnn`: a name of the zoo, whatever its case and dashes; a proxy's, such as ``16_128_128``; a path ending in
    ``.csv`` (a layer table), ``.onnx`` or ``.keras``; ``timm:NAME``, ``torchvision:NAME`` or ``hf:FOLDER/config.json``
    of an installed library; or the CNN itself. A text may end in @ and the image size: ``resnet18@32``. `image_size`:
    height and width of the images, in pixels. By default the zoo's usual size, or the size that a table, file or Keras
    model was made for; a module or chain needs it. UnknownCnnError if it is neither a name of the zoo nor a CNN;
    OutOfRangeError if the CNN does not allow this image size, or its table is for another; SchemaError if a file or
    module cannot be read; BackendUnavailableError if reading it needs a package that is not installed.

    >>> resolve_cnn("resnet18", image_size=64).image_size
    64
    >>> resolve_cnn("resnet18@32").image_size
    32
    """
    if isinstance(cnn, LayerTable):
        return _of_size(cnn, image_size)
    if isinstance(cnn, str | PathLike):
        name, own_size = name_and_size(fspath(cnn))
        if own_size and image_size not in (None, own_size):
            raise SchemaError(f"{fspath(cnn)!r} and image_size {image_size} differ. Give one of them.").about(
                "image_size"
            )
        return _from_name_or_path(name, own_size or image_size)
    for (framework, base), (module, function) in _OBJECTS.items():
        if _is_of(cnn, framework, base):
            if image_size is None and framework != "keras":
                raise SchemaError(f"image_size is needed: a {framework} {base} does not say it.")
            reader: Callable[..., LayerTable] = getattr(import_module(f"predictor.cnns.{module}"), function)
            return reader(cnn, image_size)
    raise UnknownCnnError(
        f"cnn is {shown_value(cnn)}, which is not a CNN. Give a zoo name (`epochcast cnn list`), a path ending "
        "in .csv, .onnx or .keras, a LayerTable, a torch.nn.Module, a keras.Model or a chainer.Chain."
    )


@lru_cache(maxsize=512)
def name_and_size(text: str) -> tuple[str, int | None]:
    """Split ``CNN[@IMAGE_SIZE]`` into the CNN and its image size in pixels, None where it has none.

    SchemaError if what follows @ is not a number of pixels from 1 to `MAX_IMAGE_SIZE`.

    >>> name_and_size("resnet18@32")
    ('resnet18', 32)
    >>> name_and_size("resnet18")
    ('resnet18', None)
    """
    cnn, at, size = text.strip().rpartition("@")
    if not at or any(mark in size for mark in ("/", "\\", ".")):  # no @, or one in a folder's name
        return text.strip(), None
    if not re.fullmatch("[1-9][0-9]{0,4}", size) or int(size) > MAX_IMAGE_SIZE:
        raise SchemaError(
            f"{text!r}: after @ comes the image size in pixels, 1..{MAX_IMAGE_SIZE}, such as {cnn}@224."
        ).about("cnn")
    return cnn, int(size)


def _is_of(cnn: object, framework: str, base: str) -> bool:
    """Whether `cnn` is an object of this class of a framework, or of one that is made of it."""
    return any(c.__name__ == base and c.__module__.split(".")[0] == framework for c in type(cnn).__mro__)


def is_chainer(cnn: object) -> bool:
    """Whether `cnn` is a Chainer chain, or the layer table of one."""
    return _is_of(cnn, "chainer", "Link") or (isinstance(cnn, LayerTable) and cnn.source == "chainer")


def is_compiled(cnn: object) -> bool:
    """Whether `cnn` is a PyTorch module that `torch.compile` made, or has such a submodule."""
    torch = sys.modules.get("torch")
    modules = cnn.modules() if torch is not None and isinstance(cnn, torch.nn.Module) else ()
    return any(type(m).__name__ == "OptimizedModule" or m._compiled_call_impl is not None for m in modules)


def is_layer_csv(cnn: Any) -> bool:
    """Whether `cnn` is named like a layer table's CSV, which need not exist; SchemaError for a wrong ``@SIZE``."""
    return isinstance(cnn, str | PathLike) and name_and_size(fspath(cnn))[0].casefold().endswith(".csv")


def has_own_image_size(cnn: Any) -> bool:
    """Whether a CNN is of one image size: a layer table, a file, a proxy, a name with @, or a Keras model's own."""
    if isinstance(cnn, str) and (name_and_size(cnn)[1] or is_proxy_name(cnn.strip())):
        return True
    if isinstance(cnn, LayerTable) or str(cnn).casefold().endswith((".csv", ".onnx", ".keras")):
        return True
    if not any(class_.__module__.startswith("keras.") for class_ in type(cnn).__mro__):
        return False
    from predictor.cnns.keras_model import image_size_of_keras

    return image_size_of_keras(cnn) is not None


def _of_size(table: LayerTable, image_size: int | None) -> LayerTable:
    if image_size not in (None, table.image_size):
        raise OutOfRangeError(
            f"image_size {image_size}: the layer table of {table.cnn} is for {table.image_size} pixels. "
            f"Leave image_size out, or give a table made at {image_size}."
        ).about("image_size")
    return table


def _from_name_or_path(name: str, image_size: int | None) -> LayerTable:
    from predictor.cnns.zoo import ZOO

    if name in ZOO:
        return _of_zoo(name, image_size)
    ending = Path(name).suffix.casefold()
    if is_layer_csv(name):
        from predictor.cnns.layer_csv import read_layer_table_csv

        return _of_size(read_layer_table_csv(name), image_size)
    if ending == ".onnx":
        from predictor.cnns.onnx_file import from_onnx

        return from_onnx(name, image_size)
    if ending == ".keras":
        from predictor.cnns.keras_model import from_keras_file

        return from_keras_file(name, image_size)
    if name.partition(":")[0] in ("timm", "torchvision", "hf"):
        from predictor.cnns.library_names import from_library

        return from_library(name, image_size)
    if ".py" in (ending, ending.partition(":")[0]):
        raise UnknownCnnError(
            f"{name!r} is Python code, which only the epochcast commands run. Give the torch.nn.Module, "
            "keras.Model or chainer.Chain that it makes, or its layer table."
        )
    if is_proxy_name(name):
        return _of_size(proxy_table(name), image_size)
    return _of_zoo(name, image_size)


@lru_cache(maxsize=512)
def _of_zoo(name: str, image_size: int | None) -> LayerTable:
    from predictor.cnns.zoo import zoo_cnn

    return zoo_cnn(_zoo_name(name), image_size)


def other_form_in_words(cnn: object, image_size: int | None) -> str:
    """Which form of a zoo CNN there is for images as small as CIFAR's, where the form for large ones is asked for.

    >>> other_form_in_words("ResNet-18", 32)
    'resnet18 is the form for images of 224 px; the form for small ones, which takes longer, is resnet18_cifar.'
    >>> other_form_in_words("resnet18", 224)
    ''
    """
    from predictor.cnns.zoo import ZOO

    name, own_size = name_and_size(cnn) if isinstance(cnn, str) else ("", None)
    image_size = own_size or image_size
    if not name or image_size is None or image_size > _SMALL_IMAGE:
        return ""
    names = _zoo_names_by_bare_name().get(_bare(name), [])
    small_form = f"{names[0]}_cifar" if len(names) == 1 else ""
    if small_form not in ZOO:
        return ""
    return (
        f"{names[0]} is the form for images of {ZOO[names[0]].usual_image_size} px; the form for small ones, which "
        f"takes longer, is {small_form}."
    )


_SMALL_IMAGE = 64  # pixels


@lru_cache(maxsize=1)
def _zoo_names_by_bare_name() -> dict[str, list[str]]:
    """Names of the zoo by their letters and digits; some share these."""
    from predictor.cnns.zoo import ZOO

    names: dict[str, list[str]] = {}
    for name in ZOO:
        names.setdefault(_bare(name), []).append(name)
    return names


def _zoo_name(name: str) -> str:
    """The zoo's name for a CNN, whatever the case and the dashes: ``ResNet-50`` is ``resnet50``."""
    from predictor.cnns.zoo import zoo_names

    names = zoo_names()
    alike = [name] if name in names else sorted(_zoo_names_by_bare_name().get(_bare(name), ()))
    if len(alike) == 1:
        return alike[0]
    if alike:
        raise UnknownCnnError(f"{name!r} fits several CNNs. Say which: {', '.join(map(repr, alike))}.")
    raise UnknownCnnError(
        f"no CNN is called {name!r}. Nearest: {nearest(name, names)}. `epochcast cnn list` shows "
        f"all {len(names)}; a path must end in .csv (a layer table), .onnx or .keras, a proxy is named 16_128_128."
    )


def _bare(name: str) -> str:
    """Letters and digits of a name, in lower case."""
    return re.sub("[^a-z0-9]", "", name.casefold())


_OBJECTS = {
    # First: on its PyTorch backend a Keras model is a module, too.
    ("keras", "Layer"): ("keras_model", "from_keras"),
    ("torch", "Module"): ("torch_module", "from_torch"),
    ("chainer", "Link"): ("chainer_chain", "from_chainer"),
}
"""Module of `predictor.cnns` and function that read a CNN of this framework and base class."""
