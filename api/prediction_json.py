"""Answers of predictions as JSON: rows, or columns with words coded.

Called by the prediction route; calls the core's row type for the names of the fields. `rows_of` and `columns_of` take
what `predict` and `grid_answer` give alike.
"""

from collections.abc import Sequence
from dataclasses import fields
from itertools import chain, repeat
from typing import Any

from api.answers import TEXT_COLUMNS
from predictor.grid_answer import GridAnswer
from predictor.prediction_rows import PredictionRow

__all__ = ["columns_of", "columns_of_rows", "rows_of"]

_FIELDS = tuple(field.name for field in fields(PredictionRow))


def rows_of(answers: Sequence[GridAnswer]) -> list[dict[str, Any]]:
    """A dict for each row, in the fields' order."""
    return [row for answer in answers for row in _rows(answer)]


def columns_of(answers: Sequence[GridAnswer]) -> dict[str, Any]:
    """Every field as a list, or as words and codes."""
    columns = {name: _column(name, answers) for name in _FIELDS}
    return {"n_rows": sum(answer.n_gpus * answer.n_sizes for answer in answers), "columns": columns}


def columns_of_rows(rows: Sequence[PredictionRow]) -> dict[str, Any]:
    """The same, from rows."""
    columns: dict[str, Any] = {}
    for name in _FIELDS:
        values = [getattr(row, name) for row in rows]
        columns[name] = _coded(values) if name in TEXT_COLUMNS else values
    return {"n_rows": len(rows), "columns": columns}


def _rows(answer: GridAnswer) -> list[dict[str, Any]]:
    shared = [repeat(answer.shared[name]) if name in answer.shared else None for name in _FIELDS]
    columns = [each or _cells(name, answer) for name, each in zip(_FIELDS, shared, strict=True)]
    return [dict(zip(_FIELDS, values, strict=True)) for values in zip(*columns, strict=False)]


def _cells(name: str, answer: GridAnswer) -> list[Any]:
    """One field of every row."""
    if name in answer.by_cell:
        return answer.by_cell[name]
    if name in answer.by_size:
        return answer.by_size[name] * answer.n_gpus
    if name in answer.by_gpu:
        return [value for value in answer.by_gpu[name] for _ in range(answer.n_sizes)]
    if name == "extrapolates":
        return [answer.reasons[code] for code in answer.why]
    return [answer.shared[name]] * (answer.n_gpus * answer.n_sizes)


def _column(name: str, answers: Sequence[GridAnswer]) -> Any:
    if name not in TEXT_COLUMNS:
        first = _cells(name, answers[0])
        return (
            first if len(answers) == 1 else list(chain(first, *(_cells(name, each) for each in answers[1:])))
        )
    known: dict[Any, int] = {}
    codes: list[int] = []
    for answer in answers:
        codes += _codes(name, answer, known)
    return {"values": list(known), "codes": codes}


def _codes(name: str, answer: GridAnswer, known: dict[Any, int]) -> list[int]:
    """Codes of one answer's rows; new words join `known`."""
    if name in answer.shared:
        return [known.setdefault(answer.shared[name], len(known))] * (answer.n_gpus * answer.n_sizes)
    if name in answer.by_gpu:
        of_gpu = [known.setdefault(word, len(known)) for word in answer.by_gpu[name]]
        return [code for code in of_gpu for _ in range(answer.n_sizes)]
    code_of = {why: known.setdefault(answer.reasons[why], len(known)) for why in dict.fromkeys(answer.why)}
    return [code_of[why] for why in answer.why]


def _coded(values: list[Any]) -> dict[str, list[Any]]:
    known = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return {"values": list(known), "codes": [known[value] for value in values]}
