"""Columns of text whose cells repeat: each word once, and a code per row; and the distinct combinations of several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_Indices = NDArray[np.int64]

_SPARSE = 4
"""Codes are counted in a table of at most this multiple of the rows, else sorted."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of `words[codes]`.

    Parameters
    ----------
    words : list of str
    codes : ndarray of int, shape (n_rows,)
    """

    words: list[str]
    codes: NDArray[np.integer[Any]]

    @classmethod
    def of(cls, cells: Sequence[str]) -> Coded:
        """Code cells as they stand."""
        number: dict[str, int] = {}
        codes = [number.setdefault(cell, len(number)) for cell in cells]
        return cls(list(number), np.array(codes, dtype=np.int64))

    @classmethod
    def blank(cls, n_rows: int) -> Coded:
        """A column of empty cells."""
        return cls([""], np.zeros(n_rows, dtype=np.int64))


def distinct(columns: Sequence[Coded]) -> tuple[_Indices, _Indices]:
    """The combination of cells that each row has, and the codes of each combination, in ascending order.

    Returns
    -------
    which : ndarray of int, shape (n_rows,)
    codes : ndarray of int, shape (n_columns, n_combinations)
        Sorted by the first column, then by the second, and so on.

    Examples
    --------
    >>> which, codes = distinct([Coded.of(["b", "a", "b"]), Coded.of(["1", "1", "1"])])
    >>> which.tolist(), codes.tolist()
    ([0, 1, 0], [[0, 1], [0, 0]])
    """
    which = np.zeros(len(columns[0].codes), dtype=np.int64)
    codes = np.zeros((0, min(1, len(which))), dtype=np.int64)
    for column in columns:
        n = max(1, len(column.words))
        if n == 1:
            codes = np.vstack([codes, np.zeros_like(codes, shape=(1, codes.shape[1]))])
            continue
        found, which = _ranked(which * n + column.codes, codes.shape[1] * n)
        codes = np.vstack([codes[:, found // n], found % n])
    return which, codes


def unrepeated(columns: Mapping[str, Coded]) -> tuple[_Indices, dict[str, Coded]]:
    """Each distinct row once, in as few bytes as its codes need, and which of them every row is."""
    which, codes = distinct(list(columns.values()))
    rows = zip(columns.items(), codes, strict=True)
    return which, {
        name: Coded(column.words, some.astype(np.min_scalar_type(len(column.words))))
        for (name, column), some in rows
    }


def _ranked(keys: _Indices, end: int) -> tuple[_Indices, _Indices]:
    """Distinct keys below `end`, ascending, and the place of each key among them."""
    if end > _SPARSE * len(keys):
        return np.unique(keys, return_inverse=True)
    seen = np.zeros(end, dtype=bool)
    seen[keys] = True
    found = np.flatnonzero(seen)
    place = np.empty(end, dtype=np.int64)
    place[found] = np.arange(len(found))
    return found, place[keys]
