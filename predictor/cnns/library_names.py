"""CNNs of installed libraries by name: ``timm:resnet26d``, ``torchvision:resnet50``, ``hf:FOLDER/config.json``.

They are built without weights, and nothing is fetched. Only the person at this machine names them, never a request.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from predictor.cnns.layer_table import LayerTable
from predictor.errors import BackendUnavailableError, EpochcastError, SchemaError, UnknownCnnError, nearest

_USUAL_SIZE = 224


def from_library(name: str, image_size: int | None = None) -> LayerTable:
    """Layer table of a library's CNN.

    `name`: library, colon, and the library's own name; after ``hf:`` the path of a configuration or its folder.
    `image_size`: by default the one that the library says, else 224 pixels. BackendUnavailableError if the library or
    PyTorch is not installed; UnknownCnnError if the library has no such CNN; SchemaError if it cannot be built or read,
    as of `predictor.cnns.torch_module.from_torch`.
    """
    from predictor.cnns.torch_module import from_torch
    from predictor.cnns.torch_refusals import first_line
    from predictor.cnns.torch_trace import import_torch

    torch = import_torch()
    package, _, own_name = name.partition(":")
    build = LIBRARIES[package]
    try:
        module, size, channels = build(own_name, torch)
    except EpochcastError:
        raise
    except ImportError as error:
        raise BackendUnavailableError(
            f"{name} needs {error.name or package}, which is not installed: pip install {error.name or package}"
        ) from error
    except Exception as error:  # the library's own
        raise SchemaError(f"{name} cannot be built: {type(error).__name__}: {first_line(error)}.") from error
    return from_torch(module, image_size or size, name, channels)


Built = tuple[Any, int, int]
"""A module, its usual image size and its channels."""


def _timm(name: str, torch: Any) -> Built:
    timm = importlib.import_module("timm")
    _check(name, "timm", timm.list_models() if not timm.is_model(name) else [name])
    channels, *_, side = timm.get_pretrained_cfg(name).input_size
    return _without_numbers(torch, lambda: timm.create_model(name, pretrained=False)), side, channels


def _torchvision(name: str, torch: Any) -> Built:
    models = importlib.import_module("torchvision.models")
    _check(name, "torchvision", models.list_models())
    options: dict[str, Any] = {"weights": None}
    if "weights_backbone" in inspect.signature(models.get_model_builder(name)).parameters:
        options["weights_backbone"] = None
    side = 299 if name == "inception_v3" else _USUAL_SIZE
    return _without_numbers(torch, lambda: models.get_model(name, **options)), side, 3


def _hugging_face(path: str, torch: Any) -> Built:
    transformers = importlib.import_module("transformers")
    folder = Path(path).expanduser()
    folder = folder.parent if folder.name == "config.json" else folder
    if not (folder / "config.json").is_file():
        raise SchemaError(
            f"hf:{path}: there is no {folder / 'config.json'}. Give the path of a configuration on this machine; "
            "nothing is fetched."
        )
    config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    side = getattr(config, "image_size", None) or _USUAL_SIZE
    make = transformers.AutoModelForImageClassification.from_config
    module = _without_numbers(torch, lambda: make(config, trust_remote_code=False))
    return module, side if isinstance(side, int) else side[0], getattr(config, "num_channels", 3)


LIBRARIES = {"timm": _timm, "torchvision": _torchvision, "hf": _hugging_face}
"""What builds a CNN, by the word before the colon."""


def _check(name: str, library: str, names: list[str]) -> None:
    if name not in names:
        raise UnknownCnnError(f"{library} has no CNN {name!r}. Nearest: {nearest(name, names)}.")


def _without_numbers(torch: Any, make: Callable[[], Any]) -> Any:
    """The module on the *meta* device; with numbers where its code computes with them as it is made."""
    try:
        with torch.device("meta"):
            return make()
    except (RuntimeError, NotImplementedError):
        return make()
