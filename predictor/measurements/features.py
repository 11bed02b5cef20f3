"""The feature table: measurements joined with the specifications of their GPUs and the structure of their CNNs.

One function builds it for fits, evaluations and predictions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from predictor.catalogue.devices import find_gpu, is_cpu, peak_tflop_per_s
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.proxies import PROXY_TIME_PREFIX, proxy_counts, proxy_name, proxy_time_columns
from predictor.errors import SchemaError, UnknownCnnError, nearest
from predictor.operator_types import LAYER_TYPES, OPERATOR_TYPES
from predictor.operators.work import PASSES, layer_bytes, layer_flops

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "FEATURES",
    "FOUNDING_SPECIFICATIONS",
    "GPU_COLUMNS",
    "PROXY_TIME_PREFIX",
    "feature_table",
    "proxy_counts",
    "proxy_name",
]

LayerTableOf = Callable[[str, int], LayerTable | None]

GPU_COLUMNS = (
    "name",
    "architecture",
    "generation",
    "compute_capability",
    "sm_count",
    "cuda_cores",
    "base_clock_ghz",
    "boost_clock_ghz",
    "peak_fp32_tflop_per_s",
    "peak_tf32_tflop_per_s",
    "peak_fp16_tensor_tflop_per_s",
    "peak_bf16_tensor_tflop_per_s",
    "memory_gib",
    "memory_type",
    "memory_bandwidth_gb_per_s",
    "l2_mib",
)
"""Fields of `Gpu` that the table carries, each as `gpu_<field>`; NaN where no vendor gives the value."""

FOUNDING_SPECIFICATIONS = (
    "compute_capability",
    "boost_clock_ghz",
    "cuda_cores",
    "peak_fp32_tflop_per_s",
    "l2_mib",
)
"""Specifications of a GPU that the founding study's approach 1 uses."""

_TEXT = ("name", "architecture", "generation", "memory_type")
_REQUIRED = ("gpu", "cnn", "image_size", "batch_size")
_ALL_CONVOLUTIONS = tuple(name for name, entry in OPERATOR_TYPES.items() if entry.is_convolution)


def _count(table: LayerTable, type_: str) -> float:
    return float(sum(layer.type == type_ for layer in table))


def _flops(table: LayerTable, passes: Iterable[str], types: tuple[str, ...] | None = None) -> float:
    layers = [layer for layer in table if types is None or layer.type in types]
    return float(sum(layer_flops(layer, pass_, 1) for layer in layers for pass_ in passes))


def _bytes(table: LayerTable, passes: Iterable[str]) -> float:
    # What one more image adds: weights are read once, however many images there are.
    return float(sum(_image_bytes(layer, pass_) for layer in table for pass_ in passes))


def _image_bytes(layer: Layer, pass_: str) -> float:
    return layer_bytes(layer, pass_, 2) - layer_bytes(layer, pass_, 1)


FEATURES: dict[str, Callable[[LayerTable], float]] = {
    "n_parameters": lambda table: float(table.parameters),
    "forward_flops_per_image": partial(_flops, passes=("forward",)),
    "training_flops_per_image": partial(_flops, passes=PASSES),
    "conv_forward_flops_per_image": partial(_flops, passes=("forward",), types=_ALL_CONVOLUTIONS),
    "conv_training_flops_per_image": partial(_flops, passes=PASSES, types=_ALL_CONVOLUTIONS),
    "forward_bytes_per_image": partial(_bytes, passes=("forward",)),
    "training_bytes_per_image": partial(_bytes, passes=PASSES),
    "n_layers": lambda table: float(len(table)),
    **{f"n_{name}": partial(_count, type_=name) for name in LAYER_TYPES},
}
"""Structure columns: name -> what to compute from a CNN's layer table.

FLOPs count a multiply-add as 2; bytes are those read and written in fp32 for one more image in the batch."""


def feature_table(measurements: pd.DataFrame, layer_table_of: LayerTableOf | None = None) -> pd.DataFrame:
    """Measurements with the specifications of their GPUs and the structure of their CNNs.

    Parameters
    ----------
    measurements : DataFrame of n rows
        Columns `gpu, cnn, image_size, batch_size` and whatever else a measurement table has. To predict, give
        rows without times.
    layer_table_of : callable (cnn, image_size) -> LayerTable or None
        Where layer tables come from; the zoo by default. A CNN that it does not know (None, UnknownCnnError
        or KeyError) gets NaN in the structure columns.

    Returns
    -------
    DataFrame of n rows, of the same index and order
        The columns given, then `gpu_*` (GPU_COLUMNS), `peak_tflop_per_s` at the row's precision, the columns
        of FEATURES, `proxy_epoch_time_s_*` where the table has rows of kind `proxy`, and `layer_table`
        (LayerTable or None). Specifications of a CPU (`cpu:<model>`) are NaN.

    Raises
    ------
    SchemaError
        If a required column or value is missing, or if a column would be overwritten.
    UnknownGpuError
        If a GPU is not in the catalogue.
    OutOfRangeError
        If an image is smaller than its CNN allows.
    """
    import pandas as pd

    _check_columns(measurements)
    parts = (
        measurements,
        _gpu_columns(measurements),
        _structure_columns(measurements, layer_table_of or _zoo_table),
        proxy_time_columns(measurements),
    )
    return pd.concat(parts, axis=1)


def _check_columns(measurements: pd.DataFrame) -> None:
    if measurements.empty:
        raise SchemaError("the measurement table has no rows. Pass at least one.")
    for column in _REQUIRED:
        if column not in measurements:
            like = nearest(column, map(str, measurements.columns))
            raise SchemaError(f"the measurement table has no column {column!r}. Nearest: {like}.")
        missing = measurements[column].isna()
        if missing.any():
            raise SchemaError(
                f"column {column!r} is empty in {missing.sum()} rows, the first is {missing.idxmax()}. "
                "Fill it in."
            )
    made = {*(f"gpu_{field}" for field in GPU_COLUMNS), *FEATURES, "peak_tflop_per_s", "layer_table"}
    taken = sorted(made & set(measurements.columns))
    if taken:
        raise SchemaError(
            f"columns {', '.join(taken)} are made by the feature table; pass only measurements."
        )


def _gpu_columns(measurements: pd.DataFrame) -> pd.DataFrame:
    precisions = measurements["precision"] if "precision" in measurements else [None] * len(measurements)
    keys = list(zip(measurements["gpu"], precisions, strict=True))
    return _rows_by_key(keys, lambda key: _gpu_row(*key), measurements.index)


def _gpu_row(name: str, precision: object) -> dict[str, object]:
    if is_cpu(name):
        unknown = dict.fromkeys((f"gpu_{field}" for field in GPU_COLUMNS), float("nan"))
        return {**unknown, "gpu_name": name, "peak_tflop_per_s": float("nan")}
    gpu = find_gpu(name)
    row = {f"gpu_{field}": _or_nan(getattr(gpu, field), field) for field in GPU_COLUMNS}
    return {**row, "peak_tflop_per_s": peak_tflop_per_s(gpu, str(precision))}


def _or_nan(value: Any, field: str) -> object:
    if field in _TEXT:
        return value
    return float("nan") if value is None else float(value)


def _structure_columns(measurements: pd.DataFrame, layer_table_of: LayerTableOf) -> pd.DataFrame:
    keys = list(zip(measurements["cnn"], measurements["image_size"].astype(int), strict=True))
    return _rows_by_key(keys, lambda key: _structure_row(layer_table_of, *key), measurements.index)


def _structure_row(layer_table_of: LayerTableOf, cnn: str, image_size: int) -> dict[str, object]:
    try:
        table = layer_table_of(cnn, image_size)
    except (UnknownCnnError, KeyError):  # predictors that need its structure refuse the CNN by name
        table = None
    if table is None:
        return {**dict.fromkeys(FEATURES, float("nan")), "layer_table": None}
    return {**{name: feature(table) for name, feature in FEATURES.items()}, "layer_table": table}


def _zoo_table(cnn: str, image_size: int) -> LayerTable | None:
    from predictor.cnns.zoo import zoo_cnn

    return zoo_cnn(cnn, image_size)


def _rows_by_key(
    keys: list[tuple[Any, ...]], row_of: Callable[[tuple[Any, ...]], dict[str, object]], index: pd.Index[Any]
) -> pd.DataFrame:
    # Thousands of measurements name tens of GPUs and CNNs: each row is computed once, then repeated.
    import pandas as pd

    place: dict[Hashable, int] = {key: i for i, key in enumerate(dict.fromkeys(keys))}
    distinct = pd.DataFrame([row_of(key) for key in dict.fromkeys(keys)])
    return distinct.iloc[[place[key] for key in keys]].set_axis(index, axis=0)
