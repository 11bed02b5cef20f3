"""Flags of measurement tables, read without the list of columns, so that answers need no file for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from predictor.catalogue.modes import COMPILED

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray


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
