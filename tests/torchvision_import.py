"""Imports torchvision, also beside a PyTorch build for which torchvision's compiled operators do not load."""

import importlib
import sys
from types import ModuleType

_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "roi_align(Tensor input, Tensor rois, float spatial_scale, int pooled_height, int pooled_width,"
    " int sampling_ratio, bool aligned) -> Tensor",
)
_kept: list[object] = []  # a torch library ends with its last reference


def import_torchvision() -> ModuleType:
    """`torchvision.models`; operators are declared only where torchvision has none of its own.

    To declare them beside torchvision's own aborts the process. Those declared have no kernels: steps that run them are
    recorded, not run.
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
    models = importlib.import_module("torchvision.models")
    for name in ("torchvision.extension", "torchvision.ops.roi_align"):
        if name in sys.modules:
            sys.modules[name]._has_ops = lambda: True
            torch.library.register_autograd(
                "torchvision::roi_align", _backward, setup_context=_shape, lib=library
            )
    return models


def _shape(ctx, inputs, output):
    ctx.shape = inputs[0].shape


def _backward(ctx, gradient):
    return gradient.new_empty(ctx.shape), *(None,) * 6
