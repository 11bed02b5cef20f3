"""Baidu's DeepBench: three passes of 94 convolutions through bare cuDNN."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predictor.measurements.published.convolutions import forward_algorithms, operator_columns
from predictor.measurements.published.data_set import DataSet, Provenance

if TYPE_CHECKING:
    import pandas as pd

_PASSES = {
    "forward_time_ms": "forward",
    "backward_input_time_ms": "backward_input",
    "backward_weight_time_ms": "backward_weight",
}
_SHAPE = (
    "in_height", "in_width", "in_channels", "out_channels", "kernel_height", "kernel_width", "pad_height",
    "pad_width", "stride_vertical", "stride_horizontal",
)  # fmt: skip
_RENAMED = {
    "pad_height": "padding_height",
    "pad_width": "padding_width",
    "stride_vertical": "stride_height",
    "stride_horizontal": "stride_width",
}
# DeepBench's "mixed": fp16 numbers, products summed in fp32 on Tensor Cores, which is what our amp_fp16 runs.
_PRECISIONS = {"mixed": "amp_fp16"}


def _by_pass(table: pd.DataFrame) -> pd.DataFrame:
    """One row per pass; a pass without a time has none."""
    import pandas as pd

    long = pd.concat([table.assign(part=name, time_ms=table[column]) for column, name in _PASSES.items()])
    return long[long["time_ms"].notna()].sort_index(kind="stable")


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    algorithms = forward_algorithms(rows["forward_algorithm"])
    return {
        "pass": rows["part"],
        "precision": rows["precision"].replace(_PRECISIONS),
        "iteration_time_ms": rows["time_ms"],
        "conv_algorithms": algorithms.where(rows["part"] == "forward"),
        **operator_columns("deepbench", _shapes(rows)),
    }


def _shapes(rows: pd.DataFrame) -> pd.DataFrame:
    shapes = rows.rename(columns=_RENAMED)
    for side in ("height", "width"):
        padded = shapes[f"in_{side}"] + 2 * shapes[f"padding_{side}"] - shapes[f"kernel_{side}"]
        shapes[f"out_{side}"] = padded // shapes[f"stride_{side}"] + 1
    window = shapes["kernel_height"] * shapes["kernel_width"]
    return shapes.assign(parameters=window * shapes["in_channels"] * shapes["out_channels"])


def _oddities(table: pd.DataFrame) -> list[str]:
    repeated = int(table.duplicated(["gpu", "framework", "precision", "batch_size", *_SHAPE]).sum())
    return [
        f"{int(table['backward_input_time_ms'].isna().sum())} rows have no backward_input time (the first "
        "layer of a network needs none): no measurement is made of it",
        f"{int((table['forward_algorithm'] == 'LICIT_PRECOMP_GEMM').sum())} algorithms are called "
        "LICIT_PRECOMP_GEMM, a cut-off IMPLICIT_PRECOMP_GEMM; kept as they are",
        f"{repeated} rows repeat the configuration of an earlier row (run-to-run noise)",
        "precision 'mixed' (fp16 numbers, fp32 sums on Tensor Cores) is called amp_fp16",
    ]


DATA_SET = DataSet(
    name="deepbench",
    table="deepbench_conv_training.csv.gz",
    holds={"kind": "operator", "memory_format": "nchw"},
    times=("forward_time_ms", "backward_weight_time_ms"),
    optional_times=("backward_input_time_ms",),
    renamed={},
    needed=(*_SHAPE, "forward_algorithm"),
    arranged=_by_pass,
    computed=_columns,
    oddities=_oddities,
    provenance=Provenance(
        project="DeepBench",
        repository="https://github.com/baidu-research/DeepBench",
        licence="Apache-2.0",
        citation="S. Narang, G. Diamos, An update to DeepBench with a focus on deep learning inference, 2017",
        measured="forward, backward-data and backward-filter of 94 convolutions through cuDNN with the "
        "forward algorithm, on M40, TITAN X (Maxwell, Pascal), TITAN Xp, GTX 1080 Ti, P100, T4 and V100",
    ),
)
