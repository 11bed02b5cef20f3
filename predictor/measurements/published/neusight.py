"""NeuSight: forward passes of single 3x3 convolutions, with the kernel that ran.

Called by predictor.measurements.published; calls common and operators.
"""

from __future__ import annotations

import json
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
    "stride", "padding", "forward_time_ms", "kernel_name",
)  # fmt: skip


def read(path: Path) -> tuple[pd.DataFrame, ImportReport]:
    """One operator per row, forward only; the kernel's name is its convolution algorithm."""
    report = ImportReport("neusight")
    table = reject(read_published(path, _COLUMNS), ("forward_time_ms",), report)
    versions = table["framework"].str.partition("-")
    algorithms = {name: json.dumps({"conv": {"forward": name}}) for name in table["kernel_name"].unique()}
    report.oddities += [
        f"{table['kernel_name'].nunique()} different kernels; none is a TF32 kernel, so fp32 is strict on "
        "Ampere, too"
        if not table["kernel_name"].str.contains("tf32|1688|tensorop").any()
        else "some kernels are TF32 kernels though precision says fp32",
        "whether the convolutions have a bias is not stated: parameters are unknown",
    ]
    return finish(
        {
            "source": "neusight",
            "framework": versions[0],
            "framework_version": versions[2],
            "gpu": table["gpu"],
            "kind": "operator",
            "batch_size": table["batch_size"],
            "pass": "forward",
            "precision": table["precision"],
            "n_gpus": 1,
            "iteration_time_ms": table["forward_time_ms"],
            "conv_algorithms": table["kernel_name"].map(algorithms),
            **operator_columns("neusight", _shapes(table)),
        },
        report,
    )


def _shapes(table: pd.DataFrame) -> pd.DataFrame:
    size, kernel, stride, padding = (table[name] for name in ("in_size", "kernel_size", "stride", "padding"))
    out = (size + 2 * padding - kernel) // stride + 1
    return table[["in_channels", "out_channels"]].assign(
        in_height=size,
        in_width=size,
        out_height=out,
        out_width=out,
        kernel_height=kernel,
        kernel_width=kernel,
        stride_height=stride,
        stride_width=stride,
        padding_height=padding,
        padding_width=padding,
    )


IMPORTER = Importer(
    table="neusight_conv_forward.csv.gz",
    read=read,
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
