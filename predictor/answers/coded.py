"""Columns as codes of the distinct values that they hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int64]

_SPARSE = 4
"""Codes are counted in a table of at most this multiple of the rows, else sorted."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of `words[codes]`, texts or other values that many rows share; `codes` has shape (n_rows,)."""

    words: list[Any]
    codes: NDArray[np.integer[Any]]

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[Any]:
        return map(self.words.__getitem__, self.codes.tolist())

    def __getitem__(self, rows: Indices) -> Coded:
        return Coded(self.words, self.codes[rows])

    @classmethod
    def of(cls, cells: Sequence[str]) -> Coded:
        """Code cells as they stand."""
        number = {word: i for i, word in enumerate(dict.fromkeys(cells))}
        return cls(list(number), np.fromiter(map(number.__getitem__, cells), np.int64, len(cells)))

    @classmethod
    def of_objects(cls, columns: Sequence[Sequence[Any]]) -> Coded:
        """Code columns that share objects, or are one object themselves, as one, each after the other."""
        shared = {id(column): column for column in columns}
        words = {id(word): word for column in shared.values() for word in column}
        number = dict(zip(words, range(len(words)), strict=True))
        codes = {key: [number[id(word)] for word in column] for key, column in shared.items()}
        joined = chain.from_iterable(codes[id(column)] for column in columns)
        return cls(list(words.values()), np.fromiter(joined, np.int64))

    @classmethod
    def blank(cls, n_rows: int) -> Coded:
        """A column of empty cells."""
        return cls([""], np.zeros(n_rows, dtype=np.int64))


def distinct(columns: Sequence[Coded]) -> tuple[Indices, Indices]:
    """The combination of cells that each row has, and the codes of every combination, (n_columns, n_combinations).

    Combinations are sorted by the first column, then by the second, and so on.

    >>> which, codes = distinct([Coded.of(["b", "a", "b"]), Coded.of(["1", "1", "1"])])
    >>> which.tolist(), codes.tolist()
    ([0, 1, 0], [[0, 1], [0, 0]])
    """
    row_combination = np.zeros(len(columns[0].codes), dtype=np.int64)
    codes = np.zeros((0, min(1, len(row_combination))), dtype=np.int64)
    for column in columns:
        n = max(1, len(column.words))
        if n == 1:
            codes = np.vstack([codes, np.zeros_like(codes, shape=(1, codes.shape[1]))])
            continue
        keys, row_combination = _ranked(row_combination * n + column.codes, codes.shape[1] * n)
        codes = np.vstack([codes[:, keys // n], keys % n])
    return row_combination, codes


def unrepeated(columns: Mapping[str, Coded]) -> tuple[Indices, dict[str, Coded]]:
    """Each distinct row once, in as few bytes as its codes need, and which of them every row is."""
    question_of_row, codes = distinct(list(columns.values()))
    return question_of_row, {
        name: Coded(column.words, own_codes.astype(np.min_scalar_type(len(column.words))))
        for (name, column), own_codes in zip(columns.items(), codes, strict=True)
    }


def _ranked(keys: Indices, end: int) -> tuple[Indices, Indices]:
    """Distinct keys below `end`, ascending, and the place of each key among them."""
    if end > _SPARSE * len(keys):
        return np.unique(keys, return_inverse=True)
    occurs = np.zeros(end, dtype=bool)
    occurs[keys] = True
    distinct_keys = np.flatnonzero(occurs)
    rank = np.empty(end, dtype=np.int64)
    rank[distinct_keys] = np.arange(len(distinct_keys))
    return distinct_keys, rank[keys]
