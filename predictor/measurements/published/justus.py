"""Justus et al. 2018: 175,000 random single convolutions on six GPUs, forward only or one training step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predictor.measurements.published.convolutions import operator_columns, square_shapes
from predictor.measurements.published.data_set import DataSet, Provenance

if TYPE_CHECKING:
    import pandas as pd


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    alone = rows["optimizer"] == "none"
    return {
        "pass": alone.map({True: "forward", False: "training"}),
        "optimizer": rows["optimizer"].where(~alone),
        "activation_kind": rows["activation"].where(rows["activation"] != "none"),
        **_shape_columns(rows),
    }


def _shape_columns(rows: pd.DataFrame) -> dict[str, Any]:
    size, kernel, stride = rows["in_size"], rows["kernel_size"], rows["stride"]
    # TensorFlow: ceil(size / stride) when padded to the same size, else ceil((size - kernel + 1) / stride).
    out_size = (-(-size // stride)).where(rows["padding"] != "valid", -(-(size - kernel + 1) // stride))
    weights = kernel**2 * rows["in_channels"] * rows["out_channels"]
    parameters = weights + rows["use_bias"] * rows["out_channels"]
    return operator_columns("justus", square_shapes(rows, out_size).assign(parameters=parameters))


def _oddities(table: pd.DataFrame) -> list[str]:
    unpadded = [value != value for value in _shape_columns(table)["padding_height"]]
    return [
        "a training step (optimizer given) also updates the input image and the target, which are variables "
        "here: longer than the layer's own training",
        f"{sum(unpadded)} of {len(table)} rows pad one side more than the other ('same' padding): padding "
        "unknown, the output size is given",
        f"{int((table['activation'] != 'none').sum())} rows run an activation with the convolution "
        "(activation_kind)",
        "times hold a median, a least and a greatest value, no quartiles",
    ]


DATA_SET = DataSet(
    name="justus",
    table="justus_single_conv.csv.gz",
    holds={"kind": "operator"},
    times=("time_ms_median",),
    renamed={"iteration_time_ms": "time_ms_median"},
    needed=(
        "in_size",
        "in_channels",
        "out_channels",
        "kernel_size",
        "stride",
        "padding",
        "activation",
        "use_bias",
        "optimizer",
    ),
    computed=_columns,
    oddities=_oddities,
    provenance=Provenance(
        project="ml-performance-prediction",
        repository="https://github.com/CDECatapult/ml-performance-prediction",
        licence="see its repository",
        citation="D. Justus, J. Brennan, S. Bonner, A. S. McGough, Predicting the computational cost of deep "
        "learning models, IEEE Big Data 2018, arXiv:1811.11880",
        measured="single convolutions of random shape at batch 1 to 64 on V100, P100, K80, K40, M60 and GTX "
        "1080 Ti, TensorFlow 1.10, fp32, forward or one training step",
    ),
)
