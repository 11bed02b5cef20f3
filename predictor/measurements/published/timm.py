"""PyTorch Image Models: training throughput of hundreds of CNNs and transformers on one GPU."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from predictor.cnns.layer_table import Layer, LayerTable
from predictor.measurements.published.data_set import (
    DataSet,
    Provenance,
    layer_tables_of,
    zoo_layers,
)

if TYPE_CHECKING:
    import pandas as pd

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


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    return {"cnn": "timm/" + rows["cnn"], "notes": "parameters_m=" + rows["parameters_m"].astype(str)}


def _oddities(table: pd.DataFrame) -> list[str]:
    ratio = table["batch_size"] / table["samples_per_s"] * 1e3 / table["iteration_time_ms"]
    return [
        f"batch size / samples_per_s exceeds iteration_time_ms by {ratio.median() - 1:.1%} (median), at most "
        f"{ratio.max() - 1:.1%}: throughput includes time between steps; iteration_time_ms is taken",
        "the batch size shrank until it fitted, so it differs by model and memory format",
        f"{table['cnn'].nunique()} architectures, many of them transformers, without layer table",
    ]


def timm_layers(cnn: str, image_size: int) -> LayerTable | None:
    """The zoo's layer table without dropout: timm's benchmark trains with all its rates at 0."""
    table = zoo_layers(TIMM_CNNS[cnn], image_size) if cnn in TIMM_CNNS else None
    return None if table is None else _without(table, ("dropout", "stochastic_depth"))


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


_TABLE = "timm_training_rtx3090.csv.gz"
DATA_SET = DataSet(
    name="timm",
    table=_TABLE,
    # timm's benchmark.py: cuDNN tries its algorithms, ten warm-ups, SGD with momentum, images made on the GPU.
    holds={
        "kind": "target",
        "pass": "training",
        "optimizer": "momentum",
        "copies_input": False,
        "autotune": True,
        "n_warmup": 10,
    },
    times=("iteration_time_ms",),
    renamed={name: name for name in ("memory_format", "image_size", "iteration_time_ms")},
    needed=("cnn", "samples_per_s", "parameters_m"),
    computed=_columns,
    oddities=_oddities,
    layer_tables=layer_tables_of(_TABLE, "timm", timm_layers),
    provenance=Provenance(
        project="PyTorch Image Models (timm)",
        repository="https://github.com/huggingface/pytorch-image-models",
        licence="Apache-2.0",
        citation="R. Wightman, PyTorch Image Models, doi:10.5281/zenodo.4414861",
        measured="training throughput of about 840 CNNs and transformers on a GeForce RTX 3090, PyTorch "
        "1.12, automatic mixed precision, NCHW and channels-last",
    ),
)
