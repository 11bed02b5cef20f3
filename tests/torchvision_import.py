"""Imports torchvision, also beside a PyTorch build for which torchvision's compiled operators do not load."""

import importlib
from types import ModuleType

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_kept: list[object] = []  # a torch library ends with its last reference


def import_torchvision() -> ModuleType:
    """`torchvision.models`; operators are declared only where torchvision has none of its own.

    To declare them beside torchvision's own aborts the process.
    """
    import torch

    try:
        return importlib.import_module("torchvision.models")
    except RuntimeError as error:
        if "operator torchvision::nms does not exist" not in str(error):
            raise
    library = torch.library.Library("torchvision", "DEF")
    for operator in _OPERATORS:
        library.define(operator)
    _kept.append(library)
    return importlib.import_module("torchvision.models")
