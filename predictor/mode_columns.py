"""The columns that say how a measured CNN was trained, read as words that compare safely.

A table read from CSV has `1.0` where another has `1`, and nothing where a third does not have the column at
all; comparing series needs one spelling. Called by proxies and by predictors; calls modes.
"""

from __future__ import annotations

from dataclasses import fields
from numbers import Real
from typing import TYPE_CHECKING, Any

from predictor.modes import Mode

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["MODE_COLUMNS", "UNKNOWN", "mode_words"]

MODE_COLUMNS = (*(field.name for field in fields(Mode)), "pass", "n_gpus")
"""Two measurements that differ in one of these are not of one series."""

UNKNOWN = "unknown"


def mode_words(table: pd.DataFrame, columns: tuple[str, ...] = MODE_COLUMNS) -> pd.DataFrame:
    """Those columns of a measurement table as words; `unknown` where a value or a whole column is missing.

    Parameters
    ----------
    table : DataFrame of n rows
    columns : tuple of str

    Returns
    -------
    DataFrame of shape (n, len(columns)), of the same index
        Numbers without trailing zeros (``1.0`` and ``1`` are both ``1``), truth values as ``True`` and
        ``False``.
    """
    import pandas as pd

    words = {column: _words(table[column]) if column in table else UNKNOWN for column in columns}
    return pd.DataFrame(words, index=table.index, columns=list(columns), dtype=object)


def _words(values: pd.Series[Any]) -> Any:
    import numpy as np
    import pandas as pd

    codes, distinct = pd.factorize(values)
    spellings = np.array([*(_word(value) for value in distinct), UNKNOWN], dtype=object)
    return spellings[codes]  # a missing value has code -1


def _word(value: object) -> str:
    if isinstance(value, Real) and type(value).__name__ not in ("bool", "bool_"):
        return f"{float(value):g}"
    return str(value).strip() or UNKNOWN
