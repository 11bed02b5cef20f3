"""The feature table of fits, evaluations and predictions: measurements, and beside each the layers of its CNN."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from predictor.catalogue.devices import device_of
from predictor.cnns.layer_table import LayerTable
from predictor.errors import SchemaError, UnknownCnnError, nearest

if TYPE_CHECKING:
    import pandas as pd

LayerTableOf = Callable[[str, int], LayerTable | None]

_REQUIRED = ("gpu", "cnn", "image_size", "batch_size")


def feature_table(measurements: pd.DataFrame, layer_table_of: LayerTableOf | None = None) -> pd.DataFrame:
    """Measurements with the structure of their CNNs.

    Parameters
    ----------
    measurements : DataFrame of n rows
        Columns `gpu, cnn, image_size, batch_size` and whatever else a measurement table has. To predict, give
        rows without times.
    layer_table_of : callable (cnn, image_size) -> LayerTable or None
        Where layer tables come from; the zoo by default. It may not know a CNN: None, UnknownCnnError or KeyError.

    Returns
    -------
    DataFrame of n rows, of the same index and order
        The columns given, then `layer_table` (LayerTable; None of a CNN that is not known).

    Raises
    ------
    SchemaError
        If a required column or value is missing, or there is a column `layer_table`.
    UnknownGpuError
        If a GPU is not in the catalogue.
    OutOfRangeError
        If an image is smaller than its CNN allows.
    """
    import pandas as pd

    _check_columns(measurements)
    for name in measurements["gpu"].unique():
        device_of(name)
    keys = list(zip(measurements["cnn"], measurements["image_size"].astype(int), strict=True))
    # Thousands of measurements name tens of CNNs: each is looked up once.
    tables = {key: _table(layer_table_of or _zoo_table, *key) for key in dict.fromkeys(keys)}
    column = pd.Series([tables[key] for key in keys], measurements.index, dtype=object)
    return measurements.assign(layer_table=column)


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


def _table(layer_table_of: LayerTableOf, cnn: str, image_size: int) -> LayerTable | None:
    try:
        return layer_table_of(cnn, image_size)
    except (UnknownCnnError, KeyError):  # predictors that need its structure refuse the CNN by name
        return None


def _zoo_table(cnn: str, image_size: int) -> LayerTable | None:
    from predictor.cnns.zoo import zoo_cnn

    return zoo_cnn(cnn, image_size)
