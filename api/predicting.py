"""From a checked question to its answer in JSON: from kept forecasts, from the model, or from measurements sent along.

Called by the prediction route, `made_answer` in a thread; calls the core. However it is made, an answer has the numbers
of `predictor.predict.predict`.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from pydantic_core import to_json

from api.answering import Answering
from api.measured import measured
from api.prediction_json import columns_of, columns_of_rows, rows_of
from api.schemas import PredictionQuestion
from predictor.coverage import coverage_of
from predictor.errors import OutOfRangeError
from predictor.forecast_memo import ForecastMemo, Grid
from predictor.gpus import Gpu, precisions_of
from predictor.grid_answer import grid_answer
from predictor.inputs import batch_sizes_of
from predictor.layers import LayerTable
from predictor.modes import Mode
from predictor.predict import predict, validation_of
from predictor.prediction_rows import PredictionRow
from predictor.questions import gpus_of, samples_of

if TYPE_CHECKING:
    from predictor.own_measurements import OwnMeasurements

__all__ = ["Part", "kept_answer", "made_answer", "measured_answer", "parts_of"]


_EPOCHS = ("samples", "data_set", "validation_samples")


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The part of a question that is about one mode."""

    mode: Mode
    gpus: Sequence[Gpu]
    left_out: Sequence[dict[str, str]]


def parts_of(question: PredictionQuestion, max_rows: int) -> list[Part]:
    """Take a question apart by precision and memory format.

    Raises
    ------
    OutOfRangeError
        If it asks for more than `max_rows` rows, or a GPU has none of the precisions.
    SchemaError, UnknownGpuError
        If a GPU is unknown, or the batch sizes, samples or validation samples make no sense.
    """
    parts = [
        Part(
            Mode(
                question.framework,
                precision,
                memory_format,
                question.autotune,
                question.capture,
                question.optimizer,
            ),
            *_gpus(question, precision),
        )
        for precision, memory_format in product(
            dict.fromkeys(question.precisions), dict.fromkeys(question.memory_formats)
        )
    ]
    rows = len(set(question.batch_sizes)) * sum(len(part.gpus) for part in parts)
    if rows > max_rows:
        raise OutOfRangeError(
            f"{rows:,} rows are asked for; at most {max_rows:,} are answered at once. Ask in several parts."
        )
    return [part for part in parts if part.gpus]


def kept_answer(
    question: PredictionQuestion, table: LayerTable, parts: Sequence[Part], answering: Answering
) -> bytes | None:
    """The answer, where all forecasts that it needs are kept; else None. Takes no longer than writing it."""
    if question.anchors or question.measurements or table.source != "zoo":
        return None
    sizes = batch_sizes_of(question.batch_sizes)
    grids = [
        answering.memo.find(table, part.gpus, sizes, part.mode, question.method, question.host)
        for part in parts
    ]
    known = [grid for grid in grids if grid is not None]
    return _from_grids(question, table, parts, known, answering) if len(known) == len(parts) else None


def made_answer(
    question: PredictionQuestion, table: LayerTable, parts: Sequence[Part], answering: Answering
) -> bytes:
    """The answer by the model; errors as of `predictor.predict.predict`."""
    if question.anchors or question.measurements:
        own = measured(question.measurements, answering.model)
        return to_json(measured_answer(question, table, parts, own, answering), inf_nan_mode="constants")
    shared = table.source == "zoo"  # nobody else asks about a table that was sent: nothing of it is kept
    memo = answering.memo if shared else ForecastMemo(answering.model)
    sizes = batch_sizes_of(question.batch_sizes)
    grids = [memo.grid(table, part.gpus, sizes, part.mode, question.method, question.host) for part in parts]
    return _from_grids(question, table, parts, grids, answering)


def measured_answer(
    question: PredictionQuestion,
    table: LayerTable,
    parts: Sequence[Part],
    own: "OwnMeasurements | None",
    answering: Answering,
) -> dict[str, Any]:
    """The answer, as an object, from someone's own measurements and anchors; errors as of `predict`."""
    anchors = [each.model_dump(exclude_none=True) for each in question.anchors]
    shared = question.model_dump(include={*_EPOCHS, "method", "host", "spot"})
    found = [
        predict(
            table, list(part.gpus), question.batch_sizes, **shared, **_words(part.mode), anchors=anchors,
            measurements=own, offers=answering.offers, model=answering.model,
        )
        for part in parts
    ]  # fmt: skip
    told = [(rows[0].host, [row.trained_on for row in rows]) for rows in found]
    rows: list[PredictionRow] = [row for each in found for row in each]
    content = {"rows": [asdict(row) for row in rows]} if question.form == "rows" else columns_of_rows(rows)
    return _content(parts, _covers(question, parts, told, answering), content)


def _gpus(question: PredictionQuestion, precision: str) -> tuple[Sequence[Gpu], list[dict[str, str]]]:
    """GPUs asked for; of several precisions, those that a GPU lacks are left out, provided that it has one."""
    names = tuple(question.gpus)
    if len(set(question.precisions)) == 1 or any(name.strip().casefold() == "all" for name in names):
        return _found(names, precision), []
    chosen = [gpu for name in names for gpu in _found((name,), "fp32")]
    for gpu in chosen:
        if not {*precisions_of(gpu)} & {*question.precisions}:
            raise OutOfRangeError(
                f"{gpu.name} has none of {', '.join(question.precisions)}. It has: {', '.join(precisions_of(gpu))}."
            )
    lacking = [gpu for gpu in chosen if precision not in precisions_of(gpu)]
    having = [gpu.name for gpu in chosen if precision in precisions_of(gpu)]
    return (_found(tuple(having), precision) if having else ()), [
        {"gpu": gpu.name, "precision": precision, "why": f"the GPU has {', '.join(precisions_of(gpu))}"}
        for gpu in lacking
    ]


@lru_cache(maxsize=1024)
def _found(names: tuple[str, ...], precision: str) -> tuple[Gpu, ...]:
    return tuple(gpus_of(names, precision))


def _from_grids(
    question: PredictionQuestion,
    table: LayerTable,
    parts: Sequence[Part],
    grids: Sequence[Grid],
    answering: Answering,
) -> bytes:
    samples = samples_of(question.samples, question.data_set)
    validation = validation_of(question.validation_samples, samples)
    sizes = batch_sizes_of(question.batch_sizes)
    answers = [
        grid_answer(
            grid, table, part.gpus, sizes, part.mode, answering.model, answering.finder, samples, validation,
            question.spot,
        )
        for part, grid in zip(parts, grids, strict=True)
    ]  # fmt: skip
    told = [(answer.by_gpu["host"][0], answer.by_gpu["trained_on"]) for answer in answers]
    covers = _covers(question, parts, told, answering)
    content = {"rows": rows_of(answers)} if question.form == "rows" else columns_of(answers)
    return to_json(_content(parts, covers, content), inf_nan_mode="constants")


def _words(mode: Mode) -> dict[str, Any]:
    return {name: value for name, value in asdict(mode).items() if name != "xla"}


def _covers(
    question: PredictionQuestion,
    parts: Sequence[Part],
    told: Sequence[tuple[str, Sequence[str]]],
    answering: Answering,
) -> list[str]:
    asked = question.model_dump(include=set(_EPOCHS))
    return [
        coverage_of(host, answering.model, trained_on, **asked, **_words(part.mode))
        for part, (host, trained_on) in zip(parts, told, strict=True)
    ]


def _content(parts: Sequence[Part], covers: list[str], content: dict[str, Any]) -> dict[str, Any]:
    left_out = {(each["gpu"], each["precision"]): each for part in parts for each in part.left_out}
    return {"covers": covers, "left_out": list(left_out.values()), **content}
