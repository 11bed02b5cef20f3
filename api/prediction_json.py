"""Answers of predictions as JSON, written in two parts: what any epoch leaves as it is, once, and the rest each time.

Most questions about a CNN differ in the samples of an epoch alone, and writing numbers costs more than
computing them; so the text of all other fields is kept with the forecasts.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from predictor.answers.grid_answer import EPOCH_FIELDS, GridAnswer
from pydantic_core import to_json

from api.answers import TEXT_COLUMNS
from predictor.answers.predict import PredictionRow

__all__ = ["Prepared", "columns_of_rows", "prepared"]

_FIELDS = tuple(field.name for field in fields(PredictionRow))
_FIXED = tuple(name for name in _FIELDS if name not in EPOCH_FIELDS)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """Answers with the text of the fields that no epoch changes: one text for each row, or one for all columns."""

    answers: Sequence[GridAnswer]
    form: str
    fixed: list[bytes]

    @property
    def n_rows(self) -> int:
        """Rows of all answers."""
        return sum(answer.fits.size for answer in self.answers)

    @property
    def n_bytes(self) -> int:
        """What keeping this takes, about."""
        return 2 * sum(map(len, self.fixed)) + 500 * len(self.fixed) + 200 * self.n_rows

    def text(self, samples: int | None, validation_samples: int) -> bytes:
        """The rows or columns as members of a JSON object, without its braces."""
        parts = [answer.epochs(samples, validation_samples) for answer in self.answers]
        changing = {name: [value for part in parts for value in part[name]] for name in EPOCH_FIELDS}
        if self.form == "columns":
            return b'"n_rows":%d,"columns":{%b,%b}' % (self.n_rows, self.fixed[0], _members(changing))
        rows = [
            dict(zip(EPOCH_FIELDS, values, strict=True)) for values in zip(*changing.values(), strict=True)
        ]
        each = _members(rows)[1:-1].split(b"},{")  # numbers and null alone, no text that could hold a brace
        return b'"rows":[{%b}]' % b"},{".join(map(b",".join, zip(self.fixed, each, strict=True)))


def prepared(answers: Sequence[GridAnswer], form: str) -> Prepared:
    """Write what no epoch changes."""
    columns = {name: _column(name, answers, coded=form == "columns") for name in _FIXED}
    if form == "columns":
        return Prepared(answers, form, [_members(columns)])
    rows = [dict(zip(_FIXED, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return Prepared(answers, form, [_members(row) for row in rows])


def columns_of_rows(rows: Sequence[PredictionRow]) -> dict[str, Any]:
    """Columns of answers that are rows already."""
    columns: dict[str, Any] = {}
    for name in _FIELDS:
        values = [getattr(row, name) for row in rows]
        columns[name] = _coded(values) if name in TEXT_COLUMNS else values
    return {"n_rows": len(rows), "columns": columns}


def _members(value: Any) -> bytes:
    return to_json(value, inf_nan_mode="constants")[1:-1]


def _column(name: str, answers: Sequence[GridAnswer], *, coded: bool) -> Any:
    values = [value for answer in answers for value in _cells(name, answer)]
    return _coded(values) if coded and name in TEXT_COLUMNS else values


def _cells(name: str, answer: GridAnswer) -> list[Any]:
    """One field of every row."""
    n_gpus, n_sizes = len(answer.by_gpu["gpu"]), len(answer.by_size["batch_size"])
    if name in answer.by_cell:
        return answer.by_cell[name]
    if name in answer.by_size:
        return answer.by_size[name] * n_gpus
    if name in answer.by_gpu:
        return [value for value in answer.by_gpu[name] for _ in range(n_sizes)]
    if name == "extrapolates":
        return [answer.reasons[code] for code in answer.why]
    return [answer.shared[name]] * (n_gpus * n_sizes)


def _coded(values: list[Any]) -> dict[str, list[Any]]:
    known = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return {"values": list(known), "codes": [known[value] for value in values]}
