"""Justus et al. 2018: 175,000 random single convolutions on six GPUs, forward only or one training step.

Called by predictor.measurements.published; calls common and operators.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from predictor.measurements.published.common import (
    Importer,
    ImportReport,
    Provenance,
    finish,
    read_published,
    reject,
)
from predictor.measurements.published.operators import operator_columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["IMPORTER"]

_COLUMNS = (
    "gpu", "framework", "precision", "batch_size", "in_size", "in_channels", "out_channels", "kernel_size",
    "stride", "padding", "activation", "use_bias", "optimizer", "time_ms_median",
)  # fmt: skip


def read(path: Path) -> tuple[pd.DataFrame, ImportReport]:
    """One operator per row, with its shape in the layer table's columns."""
    report = ImportReport("justus")
    table = reject(read_published(path, _COLUMNS), ("time_ms_median",), report)
    versions = table["framework"].str.partition("-")
    alone = table["optimizer"] == "none"
    shapes = operator_columns("justus", _shapes(table))
    unpadded = [value != value for value in shapes["padding_height"]]
    report.oddities += [
        "a training step (optimizer given) also updates the input image and the target, which are variables "
        "here: longer than the layer's own training",
        f"{sum(unpadded)} of {len(table)} rows pad one side more than the other ('same' padding): padding "
        "unknown, the output size is given",
        f"{int((table['activation'] != 'none').sum())} rows run an activation with the convolution "
        "(activation_kind)",
        "times hold a median, a least and a greatest value, no quartiles",
    ]
    return finish(
        {
            "source": "justus",
            "framework": versions[0],
            "framework_version": versions[2],
            "gpu": table["gpu"],
            "kind": "operator",
            "batch_size": table["batch_size"],
            "pass": alone.map({True: "forward", False: "training"}),
            "optimizer": table["optimizer"].where(~alone),
            "precision": table["precision"],
            "n_gpus": 1,
            "iteration_time_ms": table["time_ms_median"],
            "activation_kind": table["activation"].where(table["activation"] != "none"),
            **shapes,
        },
        report,
    )


def _shapes(table: pd.DataFrame) -> pd.DataFrame:
    size, kernel, stride = table["in_size"], table["kernel_size"], table["stride"]
    valid = table["padding"] == "valid"
    # TensorFlow: ceil(size / stride) when padded to the same size, else ceil((size - kernel + 1) / stride).
    out = (-(-size // stride)).where(~valid, -(-(size - kernel + 1) // stride))
    weights = kernel**2 * table["in_channels"] * table["out_channels"]
    return table[["in_channels", "out_channels"]].assign(
        in_height=size,
        in_width=size,
        out_height=out,
        out_width=out,
        kernel_height=kernel,
        kernel_width=kernel,
        stride_height=stride,
        stride_width=stride,
        parameters=weights + table["use_bias"] * table["out_channels"],
    )


IMPORTER = Importer(
    table="justus_single_conv.csv.gz",
    read=read,
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
