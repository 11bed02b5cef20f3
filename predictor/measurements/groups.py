"""Groups of rows that a fit is left without, whole: one CNN under all its names, one chip under all its cards; flags.

Flags are read without the list of columns, so that answers need no file for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import device_of
from predictor.catalogue.modes import COMPILED
from predictor.operator_types import OPERATOR_TYPES

if TYPE_CHECKING:
    import pandas as pd

    from predictor.cnns.layer_table import LayerTable

_SHAPE = (
    "type", "in_channels", "in_height", "in_width", "out_channels", "out_height", "out_width",
    "kernel_height", "kernel_width", "stride_height", "stride_width", "groups",
)  # fmt: skip


def is_set(frame: pd.DataFrame, name: str) -> NDArray[np.bool_]:
    """Whether a flag of a checked table is true, shape (n_rows,); false if unknown or if the table lacks it."""
    if name not in frame:
        return np.zeros(len(frame), dtype=bool)
    return frame[name].isin([True]).to_numpy(dtype=bool)


def is_compiled(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether each row of a checked table was measured with ``torch.compile``, shape (n_rows,)."""
    if "capture" not in frame:
        return np.zeros(len(frame), dtype=bool)
    return frame["capture"].isin(COMPILED).to_numpy(dtype=bool)


def chips_of(rows: pd.DataFrame) -> NDArray[np.str_]:
    """The chip of every row's GPU, the name of a CPU: cards with one chip tell about each other.

    UnknownGpuError if the catalogue lacks a GPU.
    """
    chip_of = {str(name): device_of(str(name)).chip for name in rows["gpu"].unique()}
    return np.array([chip_of[str(name)] for name in rows["gpu"]], dtype=np.str_)


def cnns_of(features: pd.DataFrame) -> NDArray[np.str_]:
    """The CNN of every row of a feature table, by the first of its names.

    Two names are of one CNN where convolutions, products and norms are equal at an image size that both have. Sources
    write paddings, pools and flattening in different ways, so these are not compared.
    """
    names = features["cnn"].to_numpy().astype(str)
    if "layer_table" not in features:
        return names
    with_table = features["layer_table"].notna().to_numpy()
    first_of: dict[object, str] = {}
    label = {name: name for name in np.unique(names)}

    def root(name: str) -> str:
        while label[name] != name:
            name = label[name]
        return name

    tables = {(names[i], id(features["layer_table"].iloc[i])): i for i in np.flatnonzero(with_table)}
    for (name, _), i in tables.items():
        same = root(first_of.setdefault(_contents(features["layer_table"].iloc[i]), name))
        first, second = sorted((root(name), same))
        label[second] = first
    return np.array([root(name) for name in names], dtype=np.str_)


def _contents(table: LayerTable) -> tuple[object, ...]:
    """What tells a CNN at an image size from others, whatever the order of its layers."""
    trained = (layer for layer in table if OPERATOR_TYPES[layer.type].weights)
    layers = (tuple(getattr(layer, name) or 0 for name in _SHAPE) for layer in trained)
    return table.image_size, *sorted(layers, key=str)
