"""NeuSight: forward passes of single 3x3 convolutions, with the kernel that ran."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from predictor.measurements.published.convolutions import forward_algorithms, operator_columns, square_shapes
from predictor.measurements.published.data_set import DataSet, Provenance, Rows

if TYPE_CHECKING:
    import pandas as pd


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    padding = rows["padding"]
    out_size = (rows["in_size"] + 2 * padding - rows["kernel_size"]) // rows["stride"] + 1
    shapes = square_shapes(rows, out_size).assign(padding_height=padding, padding_width=padding)
    algorithms = forward_algorithms(rows["kernel_name"])
    return {"conv_algorithms": algorithms, **operator_columns("neusight", shapes)}


def _oddities(table: pd.DataFrame) -> list[str]:
    kernels = table["kernel_name"]
    return [
        f"{kernels.nunique()} different kernels; none is a TF32 kernel, so fp32 is strict on Ampere, too"
        if not kernels.str.contains("tf32|1688|tensorop").any()
        else "some kernels are TF32 kernels though precision says fp32",
        "whether the convolutions have a bias is not stated: parameters are unknown",
    ]


def _from_upstream(files: Mapping[str, str]) -> Rows:
    """Rows of upstream's train/collect/conv, a file per GPU, latencies in ms to six digits; what failed has no row."""
    for text in files.values():
        for row in csv.DictReader(text.splitlines()):
            if row["Latency"]:
                yield _row(row)


def _row(row: Mapping[str, str]) -> dict[str, str]:
    return {
        "gpu": row["Device"],
        "framework": "pytorch-" + row["Torch Version"].removeprefix("p"),
        "precision": "fp32",
        "batch_size": row["B"],
        "in_size": row["Input_Size"],
        "in_channels": row["Input_Channel"],
        "out_channels": row["Output_Channel"],
        "kernel_size": row["Kernel_Szie"],
        "stride": row["Stride"],
        "padding": row["Padding"],
        "forward_time_ms": f"{float(row['Latency']):.6g}",
        "kernel_name": row["Kernel Name"],
    }


DATA_SET = DataSet(
    name="neusight",
    table="neusight_conv_forward.csv.gz",
    holds={"kind": "operator", "pass": "forward"},
    times=("forward_time_ms",),
    renamed={"iteration_time_ms": "forward_time_ms"},
    needed=("in_size", "in_channels", "out_channels", "kernel_size", "stride", "padding", "kernel_name"),
    computed=_columns,
    oddities=_oddities,
    from_upstream=_from_upstream,
    provenance=Provenance(
        project="NeuSight",
        repository="https://github.com/sitar-lab/NeuSight",
        licence="see its repository",
        citation="S. Lee, A. Phanishayee, D. Mahajan, Forecasting GPU performance for deep learning training "
        "and inference, ASPLOS 2025, arXiv:2407.13853",
        measured="forward passes of single 3x3 convolutions and the kernel chosen, on P4, P100, V100, T4 and "
        "A100, PyTorch 2.1, fp32",
    ),
)
