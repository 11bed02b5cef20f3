"""CNNs by the text that presets name them with: ``NAME[@IMAGE_SIZE]`` or ``FILE.py:make_model[@IMAGE_SIZE]``.

A user's file is Python code and runs when it is loaded: only the person at this machine names it, never a request.
"""

from __future__ import annotations

import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from predictor.cnns.chainer_compat import HOW_TO_INSTALL
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import has_own_image_size, name_and_size, resolve_cnn
from predictor.errors import BackendUnavailableError, EpochcastError, SchemaError, nearest
from predictor.operators.operators import Operator, alone, operators_of
from proxy_cnns.configuration import Builder, Subject

_PACKAGES = {
    "torch": ("PyTorch", "pip install 'epochcast[torch]'"),
    "torchvision": ("torchvision", "pip install 'epochcast[torch]' torchvision"),
    "chainer": ("Chainer", HOW_TO_INSTALL),
    "keras": ("Keras", "pip install 'epochcast[keras]'"),
}
"""Packages that a user's file may import: name, and how they are installed."""

_MOST_NAMES = 6  # of a file's functions and classes, in a message


def builder_of(text: str) -> Builder | None:
    """Read ``FILE.py:make_model``; None if `text` is not of this form.

    SchemaError if the file does not exist, or no function is named.
    """
    head, colon, function = text.rpartition(":")
    path = head if colon and not function.endswith(".py") else text
    if not path.endswith(".py"):
        return None
    if not Path(path).is_file():
        raise SchemaError(f"{path} is not a file. Give the path of a Python file, as FILE.py:make_model.")
    if path == text:
        names = re.findall(
            r"^(?:class|def)\s+([A-Za-z]\w*)", Path(path).read_text("utf-8", "replace"), re.MULTILINE
        )
        one_of = " or ".join(f"{text}:{name}" for name in names[:_MOST_NAMES] or ["make_model"])
        raise SchemaError(f"{text} names no function. Give the one that makes the CNN: {one_of}.")
    return Builder(Path(path), function)


def make_model(builder: Builder) -> Any:
    """Run the user's function, and return its CNN.

    SchemaError if the file does not run, has no such function, or the function fails or needs arguments.
    BackendUnavailableError if it needs a framework that is not installed; the message names the extra.
    """
    path, name = builder
    make = getattr(_module(Path(path)), name, None)
    if not callable(make):
        functions = [key for key, value in vars(_module(Path(path))).items() if inspect.isfunction(value)]
        raise SchemaError(f"{path} has no function {name!r}. Nearest: {nearest(name, functions)}.")
    if not (inspect.isroutine(make) or inspect.isclass(make) or isinstance(make, partial)):
        raise SchemaError(
            f"{name!r} of {path} is a {type(make).__name__}, not a function. Write one without arguments that makes "
            f"it, and name that: {path}:make_model."
        )
    try:
        return make()
    except EpochcastError:
        raise
    except Exception as error:
        _refuse_missing_framework(path, error)
        raise SchemaError(
            f"{name}() of {path} fails: {type(error).__name__}: {error}. It must return a CNN without arguments."
        ) from error


def user_table(builder: Builder, image_size: int | None = None, usual_size: int | None = None) -> LayerTable:
    """Layer table of the user's CNN, a torch.nn.Module, keras.Model or chainer.Chain, under its `user_name`.

    Without `image_size` its own; a CNN that has none gets `usual_size`, or 224 pixels. A function may return a module
    and its inputs, ``(module, images)`` or ``(module, (images, labels))``, or what `epochcast.record` returns.
    """
    model = make_model(builder)
    if isinstance(model, tuple) and len(model) == 2:
        from predictor.cnns.torch_step import record

        module, inputs = model
        arguments = tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,)
        model = record(module, *arguments, name=user_name(builder))
    if image_size is None and not has_own_image_size(model):
        image_size = usual_size or _USER_IMAGE_SIZE
    return replace(resolve_cnn(model, image_size), cnn=user_name(builder))


def user_name(builder: Builder) -> str:
    """Name of the user's CNN in tables: ``mine.make_model``."""
    return f"{builder.path.stem}.{builder.function}"


def _refuse_missing_framework(path: str | Path, error: BaseException) -> None:
    package = error.name.partition(".")[0] if isinstance(error, ModuleNotFoundError) and error.name else ""
    if package in _PACKAGES:
        name, step = _PACKAGES[package]
        raise BackendUnavailableError(f"{path} needs {name}, which is not installed: {step}") from error


def _module(path: Path) -> Any:
    """Load a file as a module of its own name, once, with its folder open to its imports, and no arguments."""
    path = path.resolve()
    name = f"epochcast_user_{path.stem}_{abs(hash(path)):x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise SchemaError(f"{path} cannot be loaded as a Python file.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    os.environ.setdefault("KERAS_BACKEND", "torch")  # on which a Keras model of the file can be read
    sys.path.insert(0, str(path.parent))
    arguments, sys.argv = sys.argv, [str(path)]  # a parser of the file's shall not read the command's
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        _refuse_missing_framework(path, error)
        raise SchemaError(
            f"{path} does not run without arguments: {type(error).__name__}: {error}. Only what makes the CNN is "
            "needed: put it into a file of its own, without the rest of the script, or install what is missing."
        ) from error
    finally:
        sys.argv = arguments
        sys.path.remove(str(path.parent))
    return module


_USER_IMAGE_SIZE = 224
_PYTHON_FILE = re.compile(r"\.py(:\w*)?(@[^/\\]*)?")


def target_subject(text: str) -> Subject:
    """Whole CNN; a user's own is built when it runs, with images of 224 pixels unless the text says otherwise."""
    cnn, image_size = name_and_size(text)
    builder = builder_of(cnn)
    if builder is not None:
        return Subject("target", user_name(builder), image_size or _USER_IMAGE_SIZE, builder=builder)
    table = named_table(text)
    return Subject("target", table.cnn, table.image_size, table)


def names_a_file(text: str) -> bool:
    """Whether `text` names a user's Python file, ``FILE.py:make_model[@IMAGE_SIZE]``, complete or not."""
    return any(match.end() == len(text) for match in _PYTHON_FILE.finditer(text))


def named_table(text: str, image_size: int | None = None, usual_size: int | None = None) -> LayerTable:
    """Layer table of ``CNN[@IMAGE_SIZE]``: a name of the zoo, a file, or a user's function.

    `image_size`: pixels of a side, where the text has none. `usual_size`: the image size of a user's CNN where neither
    says one. SchemaError if text and `image_size` differ; else as of `resolve_cnn` and `user_table`.
    """
    cnn, own_size = name_and_size(text)
    if own_size and image_size not in (None, own_size):
        raise SchemaError(f"{text!r} and image size {image_size} differ. Give one of them.")
    image_size = own_size or image_size
    builder = builder_of(cnn)
    if builder is not None:
        return user_table(builder, image_size, usual_size)
    return resolve_cnn(cnn, image_size)


def distinct_operators(tables: Sequence[LayerTable]) -> tuple[Operator, ...]:
    """Operators of all these CNNs, each once; one that runs on several maps of an image is measured on one."""
    operators = (replace(alone(operator), repeats=1) for table in tables for operator in operators_of(table))
    return tuple(dict.fromkeys(operators))
