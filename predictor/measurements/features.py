"""The feature table of fits, evaluations and predictions: measurements, and beside each the layers of its CNN.

`described` makes of it a table that one can open: specifications, shapes and counts in columns of numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from predictor.catalogue.devices import Gpu, device_of, peak_tflop_per_s
from predictor.catalogue.rows import read_rows
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import FOUNDING_PROXIES, is_proxy_name, proxy_table
from predictor.errors import SchemaError, UnknownCnnError, nearest
from predictor.files import data_file
from predictor.measurements.schema import Column

if TYPE_CHECKING:
    import pandas as pd

LayerTableOf = Callable[[str, int], LayerTable | None]

_REQUIRED = ("gpu", "cnn", "image_size", "batch_size")

MEASURED_COLUMNS = (
    "source", "framework", "framework_version", "gpu", "host", "kind", "cnn", "image_size", "batch_size",
    "samples_per_epoch", "optimizer", "precision", "memory_format", "autotune", "workspace_mib", "capture",
    "iteration_time_ms", "gpu_time_ms", "host_time_ms", "host_cnn_ms", "epoch_time_s", "peak_memory_mib",
    "conv_algorithms", "measured_at",
)  # fmt: skip
"""Columns of measurement tables that `described` keeps."""

DESCRIBING_COLUMNS = (
    *read_rows(Column, data_file("feature_columns.csv")),
    *(Column(f"n_{name}", "count", f"layers that count as the proxy {name}") for name in FOUNDING_PROXIES),
)
"""Columns that `described` adds: empty for what is unknown, such as a processor's peak rate."""

_DESCRIBING = [column.name for column in DESCRIBING_COLUMNS]


def feature_table(measurements: pd.DataFrame, layer_table_of: LayerTableOf | None = None) -> pd.DataFrame:
    """Measurements with the structure of their CNNs.

    `measurements`: columns `gpu, cnn, image_size, batch_size` and whatever else a measurement table has. To predict,
    give rows without times. `layer_table_of`: where layer tables come from; by default the zoo, and proxies by their
    names. It may not know a CNN: None, UnknownCnnError or KeyError. Gives the columns given, then `layer_table`
    (LayerTable; None of a CNN that is not known). SchemaError if a required column or value is missing, or there is a
    column `layer_table`; UnknownGpuError if a GPU is not in the catalogue; OutOfRangeError if an image is smaller than
    its CNN allows.
    """
    import pandas as pd

    _check_columns(measurements)
    for name in measurements["gpu"].unique():
        device_of(name)
    keys = list(zip(measurements["cnn"], measurements["image_size"].astype(int), strict=True))
    # Thousands of measurements name tens of CNNs: each is looked up once.
    tables = {key: _table(layer_table_of, *key) for key in dict.fromkeys(keys)}
    column = pd.Series([tables[key] for key in keys], measurements.index, dtype=object)
    return measurements.assign(layer_table=column)


def described(features: pd.DataFrame) -> pd.DataFrame:
    """Whole iterations with their GPU, mode and CNN as words and numbers, a row each.

    `features`: a feature table of proxies and CNNs. Gives those of `MEASURED_COLUMNS` that it has,
    and `DESCRIBING_COLUMNS`.
    """
    import pandas as pd

    precision = features["precision"] if "precision" in features else pd.Series("fp32", features.index)
    keys, tables = list(zip(features["gpu"], precision, strict=True)), features["layer_table"].tolist()
    devices = {key: _specifications_of(*key) for key in dict.fromkeys(keys)}
    own = {id(table): table for table in tables}
    cnns = {number: {} if table is None else _structure_of(table) for number, table in own.items()}
    rows = [devices[key] | cnns[id(table)] for key, table in zip(keys, tables, strict=True)]
    kept = features[[name for name in MEASURED_COLUMNS if name in features]]
    return kept.join(pd.DataFrame(rows, features.index, columns=_DESCRIBING))


def _specifications_of(name: str, precision: str) -> dict[str, float]:
    gpu = device_of(name)
    if not isinstance(gpu, Gpu) or gpu.name.startswith("cpu:"):
        return {}
    of_sheet = {name: float(getattr(gpu, name)) for name in _DESCRIBING if hasattr(gpu, name)}
    return of_sheet | {"peak_tflop_per_s": peak_tflop_per_s(gpu, precision)}


def _structure_of(table: LayerTable) -> dict[str, float]:
    from predictor.operators.nearest_proxy import moved_bytes_per_image, proxy_work
    from predictor.operators.work import cnn_flops

    structure: dict[str, float] = {
        "layers": len(table),
        "parameters": sum(layer.parameters or 0 for layer in table),
        "gflop_per_image": cnn_flops(table, 1) / 1e9,
        "moved_gb_per_image": moved_bytes_per_image(table),
        **{f"n_{name}": 0 for name in FOUNDING_PROXIES},
        **{f"n_{name}": work.n_layers for name, work in proxy_work(table, FOUNDING_PROXIES).items()},
    }
    if not is_proxy_name(table.cnn):
        return structure
    convolution = next(layer for layer in table if layer.type == "conv2d")
    return {
        name: getattr(convolution, name) for name in _DESCRIBING if hasattr(convolution, name)
    } | structure


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
    if "layer_table" in measurements:
        raise SchemaError("the column layer_table is made by the feature table; pass only measurements.")


def _table(layer_table_of: LayerTableOf | None, cnn: str, image_size: int) -> LayerTable | None:
    from predictor.cnns.zoo import zoo_cnn

    try:
        if layer_table_of is not None:
            return layer_table_of(cnn, image_size)
        return proxy_table(cnn) if is_proxy_name(cnn) else zoo_cnn(cnn, image_size)
    except (UnknownCnnError, KeyError):  # predictors that need its structure refuse the CNN by name
        return None
