"""Operators as columns of numbers: thousands are read, looked up and compared without making one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cached_property, lru_cache, wraps
from operator import attrgetter
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from predictor.operator_types import OPERATOR_TYPES, OperatorType
from predictor.operators.operators import Operator, Operators

UNKNOWN = -(2**31)
"""In place of None."""

FIELDS = tuple(entry.name for entry in fields(Operator))
_WORDS = ("type", "kind", "passes")
_WORD_ROWS = tuple((FIELDS.index(name), name) for name in _WORDS)
_FLAG_ROWS = tuple(row for row, entry in enumerate(fields(Operator)) if entry.type == "bool")
_VALUES = attrgetter(*FIELDS)

Result = TypeVar("Result")


class OperatorColumns(Sequence[Operator]):
    """Operators as whole numbers, each made when it is first asked for.

    `cells`, shape (n_fields, n_operators), has a row for each of `FIELDS`, with `UNKNOWN` for None, and for text its
    place in the field's `words`. `kept` holds what `kept` functions computed of them.
    """

    def __init__(self, cells: NDArray[np.int64], words: Mapping[str, Sequence[str]]) -> None:
        self.cells, self.words = cells, words
        self._made: dict[int, Operator] = {}
        self.kept: dict[str, Any] = {}

    @classmethod
    def of(cls, operators: Sequence[Operator]) -> OperatorColumns:
        """Columns of these operators; those of a CNN are kept."""
        if isinstance(operators, OperatorColumns):
            return operators
        return _of_cnn(operators) if isinstance(operators, Operators) else _encoded(operators)

    @classmethod
    def from_rows(
        cls, names: Sequence[str], rows: NDArray[np.int64], words: Mapping[str, Sequence[str]]
    ) -> OperatorColumns:
        """Operators of the cells of these fields; a number or flag that they lack has its default."""
        cells = np.empty((len(FIELDS), rows.shape[1]), dtype=np.int64)
        for row, entry in enumerate(fields(Operator)):
            default: Any = UNKNOWN if entry.default is None else entry.default
            cells[row] = rows[names.index(entry.name)] if entry.name in names else default
        return cls(cells, words)

    def __len__(self) -> int:
        return int(self.cells.shape[1])

    def __getitem__(self, place: Any) -> Any:
        if place not in self._made:
            values: list[Any] = [None if cell == UNKNOWN else cell for cell in self.cells[:, place].tolist()]
            for row, name in _WORD_ROWS:
                values[row] = None if values[row] is None else self.words[name][values[row]]
            for row in _FLAG_ROWS:
                values[row] = values[row] == 1
            self._made[place] = Operator(*values)
        return self._made[place]

    def rows(self, places: NDArray[np.intp]) -> OperatorColumns:
        """The operators at these places."""
        return OperatorColumns(self.cells[:, places], self.words)

    def changed(self, places: NDArray[np.intp], **numbers: Any) -> OperatorColumns:
        """The operators, of which those at these places have other numbers."""
        if not places.size:
            return self
        changed = OperatorColumns(self.cells.copy(), self.words)
        for name, values in numbers.items():
            changed.cells[FIELDS.index(name), places] = values
        return changed

    def numbers(self, name: str, unknown: int = 1) -> NDArray[np.int64]:
        """Field of each operator; of a size that is None or 0, `unknown`."""
        cells = self.cells[FIELDS.index(name)]
        return np.where(cells > 0, cells, unknown)

    def flags(self, name: str) -> NDArray[np.bool_]:
        """Field of each operator, one that holds flags."""
        flags: NDArray[np.bool_] = self.cells[FIELDS.index(name)] == 1
        return flags

    def text(self, name: str) -> NDArray[np.object_]:
        """Field of each operator, one that holds text; empty for None."""
        codes = self.cells[FIELDS.index(name)]
        return np.array([*self.words[name], ""], dtype=object)[np.where(codes == UNKNOWN, -1, codes)]

    def of_types(self, is_meant: Callable[[OperatorType], bool]) -> NDArray[np.bool_]:
        """Whether each operator is of a type that is meant."""
        meant = np.array([is_meant(OPERATOR_TYPES[name]) for name in self.words["type"]], dtype=bool)
        return meant[self.cells[FIELDS.index("type")]] if meant.size else np.zeros(len(self), dtype=bool)

    def codes_of(self, operators: OperatorColumns, name: str) -> NDArray[np.int64]:
        """Field of other operators, one that holds text, by the own words; below `UNKNOWN` for none of them."""
        code_of = {word: code for code, word in enumerate(self.words[name])}
        codes = np.array([*(code_of.get(word, UNKNOWN - 1) for word in operators.words[name]), UNKNOWN])
        return np.asarray(codes[operators.cells[FIELDS.index(name)].clip(-1)])

    def places_of(self, operators: Sequence[Operator]) -> NDArray[np.intp]:
        """Place of each of these operators among the own ones, -1 for one that is none of them."""
        columns = OperatorColumns.of(operators)
        cells = columns.cells.copy()
        for row, name in _WORD_ROWS:
            cells[row] = self.codes_of(columns, name)
        return np.array([self._place.get(key, -1) for key in row_keys(cells.T)], dtype=np.intp)

    @cached_property
    def _place(self) -> dict[bytes, int]:
        return {key: place for place, key in enumerate(row_keys(self.cells.T))}


def kept(compute: Callable[[OperatorColumns], Result]) -> Callable[[Sequence[Operator]], Result]:
    """A function of operators whose result is kept with their columns: those of a CNN are asked for again and again."""

    @wraps(compute)
    def of(operators: Sequence[Operator]) -> Result:
        columns = OperatorColumns.of(operators)
        if compute.__name__ not in columns.kept:
            columns.kept[compute.__name__] = compute(columns)
        result: Result = columns.kept[compute.__name__]
        return result

    return of


@lru_cache(maxsize=256)
def _of_cnn(operators: Operators) -> OperatorColumns:
    columns = _encoded(operators)
    columns._made |= enumerate(operators)
    return columns


def _encoded(operators: Sequence[Operator]) -> OperatorColumns:
    columns = dict(zip(FIELDS, zip(*map(_VALUES, operators), strict=True), strict=bool(operators)))
    words = {
        name: [word for word in dict.fromkeys(columns.get(name, ())) if word is not None] for name in _WORDS
    }
    code_of = {name: {word: code for code, word in enumerate(words[name])} for name in _WORDS}
    cells = [
        [UNKNOWN if value is None else code_of[name][value] if name in _WORDS else value for value in values]
        for name, values in columns.items()
    ]
    return OperatorColumns(np.array(cells, dtype=np.int64).reshape(len(FIELDS), -1), words)


def row_keys(rows: NDArray[Any]) -> list[bytes]:
    """Each row as bytes, which are equal where rows are."""
    flat = np.ascontiguousarray(rows)
    keys: list[bytes] = flat.view(f"V{flat.itemsize * flat.shape[1]}").ravel().tolist()
    return keys
