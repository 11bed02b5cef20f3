"""Layer tables of the CNNs in published measurements.

PROFET's own tables, tf_cnn_benchmarks' CNNs from their builders, and the zoo's where the architecture is the
same. Called by predictor.measurements.published; calls profet_layers, tf_cnn_benchmarks and the zoo.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError, OutOfRangeError
from predictor.files import published_data_root
from predictor.measurements.published.common import published_file, read_published
from predictor.measurements.published.profet_layers import PROFET_LAYERS, profet_layer_tables
from predictor.measurements.published.tf_cnn_benchmarks import TF_CNNS, tf_cnn

__all__ = ["PYTORCH_CNNS", "TIMM_CNNS", "published_layer_tables"]

# timm's names for architectures of the zoo; a test checks that their parameters agree within 1 %. Variants
# with other stems, activations, antialiasing or TensorFlow padding are other operators and are left out.
TIMM_CNNS = {
    "vgg11": "vgg11",
    "vgg11_bn": "vgg11_bn",
    "vgg13": "vgg13",
    "vgg13_bn": "vgg13_bn",
    "vgg16": "vgg16",
    "vgg16_bn": "vgg16_bn",
    "vgg19": "vgg19",
    "vgg19_bn": "vgg19_bn",
    "resnet18": "resnet18",
    "resnet34": "resnet34",
    "resnet50": "resnet50",
    "resnet101": "resnet101",
    "resnet152": "resnet152",
    "tv_resnet34": "resnet34",
    "tv_resnet50": "resnet50",
    "tv_resnet101": "resnet101",
    "tv_resnet152": "resnet152",
    "gluon_resnet18_v1b": "resnet18",
    "gluon_resnet34_v1b": "resnet34",
    "gluon_resnet50_v1b": "resnet50",
    "gluon_resnet101_v1b": "resnet101",
    "gluon_resnet152_v1b": "resnet152",
    "resnext50_32x4d": "resnext50_32x4d",
    "tv_resnext50_32x4d": "resnext50_32x4d",
    "gluon_resnext50_32x4d": "resnext50_32x4d",
    "resnext101_32x8d": "resnext101_32x8d",
    "ig_resnext101_32x8d": "resnext101_32x8d",
    "resnext101_64x4d": "resnext101_64x4d",
    "gluon_resnext101_64x4d": "resnext101_64x4d",
    "wide_resnet50_2": "wide_resnet50_2",
    "wide_resnet101_2": "wide_resnet101_2",
    "densenet121": "densenet121",
    "tv_densenet121": "densenet121",
    "densenet161": "densenet161",
    "densenet169": "densenet169",
    "densenet201": "densenet201",
    "inception_v3": "inception_v3",
    "gluon_inception_v3": "inception_v3",
    "mobilenetv2_100": "mobilenet_v2",
    "mobilenetv3_large_100": "mobilenet_v3_large",
    "mobilenetv3_small_100": "mobilenet_v3_small",
    "mnasnet_050": "mnasnet0_5",
    "mnasnet_075": "mnasnet0_75",
    "mnasnet_100": "mnasnet1_0",
    "efficientnet_b0": "efficientnet_b0",
    "efficientnet_b1": "efficientnet_b1",
    "efficientnet_b2": "efficientnet_b2",
    "efficientnet_b3": "efficientnet_b3",
    "efficientnet_b4": "efficientnet_b4",
    "efficientnetv2_s": "efficientnet_v2_s",
    "regnetx_008": "regnet_x_800mf",
    "regnetx_016": "regnet_x_1_6gf",
    "regnetx_032": "regnet_x_3_2gf",
    "regnetx_080": "regnet_x_8gf",
    "regnetx_160": "regnet_x_16gf",
    "regnetx_320": "regnet_x_32gf",
    "regnety_004": "regnet_y_400mf",
    "regnety_016": "regnet_y_1_6gf",
    "regnety_032": "regnet_y_3_2gf",
    "regnety_080": "regnet_y_8gf",
    "regnety_160": "regnet_y_16gf",
    "regnety_320": "regnet_y_32gf",
    "convnext_tiny": "convnext_tiny",
    "convnext_small": "convnext_small",
    "convnext_base": "convnext_base",
}

# The PyTorch table has torchvision's names, which are the zoo's, but for NVIDIA's name of ResNet-50.
PYTORCH_CNNS = {"resnet50_v1.5": "resnet50"}

_TABLES = {
    "lambda": "lambda_tf_training.csv.gz",
    "timm": "timm_training_rtx3090.csv.gz",
    "pytorch": "pytorch_training.csv.gz",
}


def published_layer_tables(folder: str | os.PathLike[str] | None = None) -> dict[tuple[str, int], LayerTable]:
    """Collect the layer tables of every published CNN whose structure is known.

    Parameters
    ----------
    folder : path, optional
        The folder of published tables; without it, `$EPOCHCAST_PUBLISHED_DATA`. Tables that are not there are
        left out.

    Returns
    -------
    dict
        By CNN name, as in the measurement table, and image size. A CNN of unknown structure is not in it.

    Raises
    ------
    DataError
        If there is no such folder, or it holds none of the tables.
    """
    root = published_data_root(folder)
    tables: dict[tuple[str, int], LayerTable] = {}
    if _has(root, PROFET_LAYERS):
        tables |= profet_layer_tables(root)
    for prefix, file_name in _TABLES.items():
        if _has(root, file_name):
            tables |= dict(_tables_of(prefix, published_file(root, file_name)))
    if not tables:
        raise DataError(
            f"{root} holds no published table. Expected: {', '.join((PROFET_LAYERS, *_TABLES.values()))}."
        )
    return tables


def _has(root: Path, file_name: str) -> bool:
    return (root / file_name).is_file() or (root / file_name.removesuffix(".gz")).is_file()


def _tables_of(prefix: str, path: Path) -> Iterator[tuple[tuple[str, int], LayerTable]]:
    rows = read_published(path, ("cnn", "image_size"))[["cnn", "image_size"]].drop_duplicates()
    for cnn, image_size in zip(rows["cnn"].tolist(), rows["image_size"].tolist(), strict=True):
        name = f"{prefix}/{PYTORCH_CNNS.get(cnn, cnn) if prefix == 'pytorch' else cnn}"
        table = _BUILDERS[prefix](str(cnn), int(image_size))
        if table is not None:
            yield (name, int(image_size)), replace(table, cnn=name)


def _lambda(cnn: str, image_size: int) -> LayerTable | None:
    return tf_cnn(cnn, image_size) if cnn in TF_CNNS else None


def _timm(cnn: str, image_size: int) -> LayerTable | None:
    """Take the zoo's table without dropout: timm's benchmark trains with all its rates at 0."""
    table = _from_zoo(TIMM_CNNS[cnn], image_size) if cnn in TIMM_CNNS else None
    return None if table is None else _without(table, ("dropout", "stochastic_depth"))


def _pytorch(cnn: str, image_size: int) -> LayerTable | None:
    return _from_zoo(PYTORCH_CNNS.get(cnn, cnn), image_size)


def _from_zoo(name: str, image_size: int) -> LayerTable | None:
    try:
        return zoo_cnn(name, image_size)
    except (LookupError, OutOfRangeError):
        return None


def _without(table: LayerTable, types: tuple[str, ...]) -> LayerTable:
    """Leave out the layers of these types, which have one input each, and read that input instead."""
    stands_for: dict[int, int] = {}
    kept: list[Layer] = []
    for layer in table:
        inputs = None if layer.inputs is None else tuple([stands_for.get(i, i) for i in layer.inputs])
        if layer.type in types and inputs is not None:
            stands_for[layer.index] = inputs[0]
            continue
        stands_for[layer.index] = len(kept)
        kept.append(replace(layer, index=len(kept), inputs=inputs))
    return replace(table, layers=tuple(kept))


_BUILDERS: dict[str, Callable[[str, int], LayerTable | None]] = {
    "lambda": _lambda,
    "timm": _timm,
    "pytorch": _pytorch,
}
