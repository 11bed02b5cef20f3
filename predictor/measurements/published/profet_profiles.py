"""PROFET's operator profiles: where the milliseconds of a step go, operator by operator.

Called by predictor.measurements.published; calls common and measurements.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.files import published_data_root
from predictor.measurements.published.common import published_file, read_published
from predictor.measurements.table import canonical_gpu_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["KERNEL_TIME_PREFIX", "PROFET_PROFILES", "import_operator_profiles", "published_kernel_times"]

PROFET_PROFILES = "profet_op_profile.csv.gz"
_KEYS = ["gpu", "cnn", "image_size", "batch_size"]

KERNEL_TIME_PREFIX = "kernel_time_ms_"
"""Columns of a feature table that hold a profiler's time of all kernels of a class, in ms per iteration."""

# TensorFlow's operators by the class of kernels (predictor.operators.kernels) whose time they are.
_CLASS_OF_OPERATOR = {
    "Conv2D": "conv_forward",
    "_FusedConv2D": "conv_forward",
    "Conv2DBackpropInput": "conv_backward_input",
    "Conv2DBackpropFilter": "conv_backward_weight",
    "DepthwiseConv2dNative": "depthwise_forward",
    "DepthwiseConv2dNativeBackpropInput": "depthwise_backward_input",
    "DepthwiseConv2dNativeBackpropFilter": "depthwise_backward_weight",
    "MatMul": "matmul",
    "BiasAdd": "bias",
    "BiasAddGrad": "bias",
    "FusedBatchNormV3": "batch_norm",
    "FusedBatchNormGradV3": "batch_norm",
    "Relu": "activation",
    "ReluGrad": "activation",
    "Relu6": "activation",
    "Relu6Grad": "activation",
    "MaxPool": "max_pool",
    "MaxPoolGrad": "max_pool",
    "AddV2": "add",
    "AddN": "fan_out",
    "ConcatV2": "concat",
    "Slice": "concat",
    "ResourceApplyGradientDescent": "optimizer",
}


def import_operator_profiles(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Milliseconds per step by operator type, device and host.

    Parameters
    ----------
    path : path
        The published table, or the folder that holds it.

    Returns
    -------
    DataFrame
        gpu, cnn (`profet/...`), image_size, batch_size, operator (TensorFlow's name; IDLE is waiting),
        device_time_ms, host_time_ms; an operator that ran on neither has no row, and a side on which the
        profiler never saw it is missing.
    """
    table = read_published(
        published_file(Path(path), PROFET_PROFILES), (*_KEYS, "step_ms", "device_total_ms")
    )
    device, host = _long(table, "Device_"), _long(table, "Host_")
    long = device.merge(host, on=[*_KEYS, "operator"], how="outer", sort=True)
    times = long[["device_time_ms", "host_time_ms"]]
    long = long[(times.fillna(0.0) > 0).any(axis="columns")].reset_index(drop=True)
    long["gpu"] = long["gpu"].map({name: canonical_gpu_name(name) for name in long["gpu"].unique()})
    long["cnn"] = "profet/" + long["cnn"]
    return long


def published_kernel_times(folder: str | os.PathLike[str] | None = None) -> pd.DataFrame:
    """Device time by class of kernels: one row per `gpu, cnn, image_size, batch_size`, one column per class.

    Columns are named `kernel_time_ms_<class>`; operators that belong to no class (softmax, casts, idling) are left
    out, and a class that the profile does not have is NaN.
    """
    import pandas as pd

    profiles = import_operator_profiles(published_data_root(folder))
    classed = profiles.assign(kernel_class=profiles["operator"].map(_CLASS_OF_OPERATOR)).dropna(
        subset="kernel_class"
    )
    summed = pd.pivot_table(classed, "device_time_ms", _KEYS, "kernel_class", aggfunc="sum")
    return summed.add_prefix(KERNEL_TIME_PREFIX).rename_axis(columns=None).reset_index()


def _long(table: pd.DataFrame, prefix: str) -> pd.DataFrame:
    columns = {name: name.removeprefix(prefix) for name in table.columns if name.startswith(prefix)}
    wide = table[[*_KEYS, *columns]].rename(columns=columns)
    return wide.melt(id_vars=_KEYS, var_name="operator", value_name=f"{prefix.lower()}time_ms")
