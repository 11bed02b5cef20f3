"""Baidu's DeepBench: three passes of 94 convolutions through bare cuDNN.

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

_PASSES = {
    "forward_time_ms": "forward",
    "backward_input_time_ms": "backward_input",
    "backward_weight_time_ms": "backward_weight",
}
_COLUMNS = (
    "gpu", "framework", "precision", "batch_size", "in_height", "in_width", "in_channels", "out_channels",
    "kernel_height", "kernel_width", "pad_height", "pad_width", "stride_vertical", "stride_horizontal",
    "forward_algorithm", *_PASSES,
)  # fmt: skip
_ALWAYS, _NOT_ALWAYS = ("forward_time_ms", "backward_weight_time_ms"), ("backward_input_time_ms",)
# DeepBench's "mixed": fp16 numbers, products summed in fp32 on Tensor Cores, which is what our amp_fp16 runs.
_PRECISIONS = {"mixed": "amp_fp16"}


def read(path: Path) -> tuple[pd.DataFrame, ImportReport]:
    """One operator per row and pass; a pass without a time has no row, and is counted in the report."""
    import pandas as pd

    report = ImportReport("deepbench")
    table = reject(read_published(path, _COLUMNS), _ALWAYS, report, optional=_NOT_ALWAYS)
    long = pd.concat([table.assign(part=name, time_ms=table[column]) for column, name in _PASSES.items()])
    long = long[long["time_ms"].notna()].sort_index(kind="stable")
    algorithms = {
        name: json.dumps({"conv": {"forward": name}}) for name in long["forward_algorithm"].unique()
    }
    report.oddities += _oddities(table)
    return finish(
        {
            "source": "deepbench",
            "framework": long["framework"],
            "gpu": long["gpu"],
            "kind": "operator",
            "batch_size": long["batch_size"],
            "pass": long["part"],
            "precision": long["precision"].replace(_PRECISIONS),
            "memory_format": "nchw",
            "n_gpus": 1,
            "iteration_time_ms": long["time_ms"],
            "conv_algorithms": long["forward_algorithm"].map(algorithms).where(long["part"] == "forward"),
            **operator_columns("deepbench", _shapes(long)),
        },
        report,
    )


def _oddities(table: pd.DataFrame) -> list[str]:
    repeated = int(
        table.duplicated([name for name in _COLUMNS if name not in (*_PASSES, "forward_algorithm")]).sum()
    )
    return [
        f"{int(table['backward_input_time_ms'].isna().sum())} rows have no backward_input time (the first "
        "layer of a network needs none): no measurement is made of it",
        f"{int((table['forward_algorithm'] == 'LICIT_PRECOMP_GEMM').sum())} algorithms are called "
        "LICIT_PRECOMP_GEMM, a cut-off IMPLICIT_PRECOMP_GEMM; kept as they are",
        f"{repeated} rows repeat the configuration of an earlier row (run-to-run noise)",
        "precision 'mixed' (fp16 numbers, fp32 sums on Tensor Cores) is called amp_fp16",
    ]


def _shapes(table: pd.DataFrame) -> pd.DataFrame:
    renamed = table.rename(
        columns={
            "pad_height": "padding_height",
            "pad_width": "padding_width",
            "stride_vertical": "stride_height",
            "stride_horizontal": "stride_width",
        }
    )
    for side in ("height", "width"):
        padded = renamed[f"in_{side}"] + 2 * renamed[f"padding_{side}"] - renamed[f"kernel_{side}"]
        renamed[f"out_{side}"] = padded // renamed[f"stride_{side}"] + 1
    weights = (
        renamed["kernel_height"] * renamed["kernel_width"] * renamed["in_channels"] * renamed["out_channels"]
    )
    return renamed.assign(parameters=weights)


IMPORTER = Importer(
    table="deepbench_conv_training.csv.gz",
    read=read,
    provenance=Provenance(
        project="DeepBench",
        repository="https://github.com/baidu-research/DeepBench",
        licence="Apache-2.0",
        citation="S. Narang, G. Diamos, An update to DeepBench with a focus on deep learning inference, 2017",
        measured="forward, backward-data and backward-filter of 94 convolutions through cuDNN with the "
        "forward algorithm, on M40, TITAN X (Maxwell, Pascal), TITAN Xp, GTX 1080 Ti, P100, T4 and V100",
    ),
)
