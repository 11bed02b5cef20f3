"""What is answered, as documents: rows or columns, with what they cover and what was left out.

Fields of rows are those of the core's row types.
"""

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from api.words import described
from predictor.answers.answer import PredictionRow
from predictor.answers.check import Checkup
from predictor.answers.diff import Difference
from predictor.answers.explain import Explanation
from predictor.answers.fit_memory import MemoryPlan
from predictor.answers.ranking import ComparisonRow
from predictor.answers.resolved import LeftOut
from predictor.answers.verdict import Verdict

_LEFT_OUT = Field(description="GPUs that were named and lack a precision, where another one has it.")


_END = re.compile(r"(^|_)(low|high)_")
_ENDS = Field(
    description="Null: unknown, as of a model whose intervals were not calibrated, or without bound."
)


def _document(kind: type, types: Mapping[str, Any], first: Mapping[str, Any] | None = None) -> Any:
    """A dataclass of the core as a model of its JSON: the fields `first`, then its own, some of other `types`."""
    hints = {**(first or {}), **get_type_hints(kind), **types}
    declared: dict[str, Any] = {name: (hint, ...) for name, hint in hints.items()}
    return create_model(kind.__name__, __doc__=(kind.__doc__ or "").replace("NaN", "Null"), **declared)


def _row(kind: type) -> Any:
    """A row of the core, with null for an end of an interval that is unknown or unbounded."""
    hints = get_type_hints(kind).items()
    return _document(kind, {name: Annotated[hint | None, _ENDS] for name, hint in hints if _END.search(name)})


_UNSPLIT = ("gpu_time_ms", "low_ms", "high_ms", "gpu_low_ms", "gpu_high_ms", "host_time_ms")
PredictionRowOut, ComparisonRowOut = _row(PredictionRow), _row(ComparisonRow)
ExplanationOut = _document(Explanation, dict.fromkeys(_UNSPLIT, tuple[float | None, ...]))
_SIDES = [name for name, hint in get_type_hints(Difference).items() if hint is PredictionRow]
DifferenceOut = _document(Difference, dict.fromkeys(_SIDES, PredictionRowOut), {"sentence": str})
MemoryPlanOut = _document(MemoryPlan, {"row": ComparisonRowOut})


class _Answer(BaseModel):
    covers: list[str] = described("_Answer.covers")
    left_out: list[LeftOut] = _LEFT_OUT


class RowAnswer(_Answer):
    """A row for each precision, memory format, GPU and batch size, in this order."""

    rows: list[PredictionRowOut]  # type: ignore[valid-type]


class Coded(BaseModel):
    """A column of words: row i has `values[codes[i]]`."""

    values: list[Any]
    codes: list[int]


def _column(hint: Any) -> Any:
    kinds = [kind for kind in (get_args(hint) or (hint,)) if kind is not NoneType]
    return Coded if kinds[0] is str or is_dataclass(kinds[0]) else list[hint]


_HINTS = {name: field.annotation for name, field in PredictionRowOut.model_fields.items()}

TEXT_COLUMNS = tuple(field.name for field in fields(PredictionRow) if _column(_HINTS[field.name]) is Coded)
"""Columns that are answered as words and codes."""


def coded(values: list[Any]) -> dict[str, list[Any]]:
    """A column of words as its distinct values and a code per row."""
    code_of = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return {"values": list(code_of), "codes": [code_of[value] for value in values]}


_COLUMNS: dict[str, Any] = {field.name: (_column(_HINTS[field.name]), ...) for field in fields(PredictionRow)}

Columns = create_model("Columns", __doc__="Every field of a row as a column; words are coded.", **_COLUMNS)


class ColumnAnswer(_Answer):
    """The same as rows, column by column."""

    n_rows: int
    columns: Columns  # type: ignore[valid-type]


class ComparisonAnswer(BaseModel):
    """Ways to train, best first, and which to take."""

    model_config = ConfigDict(arbitrary_types_allowed=False)

    verdict: Verdict
    covers: str
    left_out: list[LeftOut] = _LEFT_OUT
    rows: list[ComparisonRowOut]  # type: ignore[valid-type]


class CheckAnswer(BaseModel):
    """Whether a speed is normal, in one sentence and as data."""

    sentence: str
    checkup: Checkup


class DifferenceAnswer(BaseModel):
    """What a change costs, for each GPU and batch size."""

    differences: list[DifferenceOut]  # type: ignore[valid-type]


class MemoryPlanAnswer(BaseModel):
    """The plan that ranks first, in one sentence and as data."""

    sentence: str
    lines: list[str] = Field(description="The best plan without each of its concessions, a sentence each.")
    best: MemoryPlanOut  # type: ignore[valid-type]
    without: dict[str, MemoryPlanOut | None] = described("MemoryPlanAnswer.without")  # type: ignore[valid-type]


class ExplanationAnswer(BaseModel):
    """What the time is made of, for each GPU."""

    covers: list[str] = Field(description="What the times hold and what they leave out, for each GPU.")
    covers_together: str = described("ExplanationAnswer.covers_together")
    left_out: list[LeftOut] = _LEFT_OUT
    explanations: list[ExplanationOut]  # type: ignore[valid-type]


class Measured(BaseModel):
    """The measurements that an answer is from."""

    operators: int = Field(description="Rows of single layers.")
    targets: int = Field(description="Rows of whole CNNs.")
    keys: dict[str, int] = Field(description="Stored rows used, by the name of the API key that sent them.")


class CalibratedRows(RowAnswer):
    """Rows, and the measurements that they are from."""

    measured: Measured


class CalibratedColumns(ColumnAnswer):
    """Columns, and the measurements that they are from."""

    measured: Measured


CalibrationAnswer = Annotated[
    CalibratedRows | CalibratedColumns, Field(description="Rows, or columns if asked for.")
]
PredictionAnswer = Annotated[RowAnswer | ColumnAnswer, Field(description="Rows, or columns if asked for.")]
