"""From a checked question to its answer in JSON: from kept forecasts, from the model, or from measurements sent along.

However it is made, an answer has the numbers of `predictor.answers.predict.predict`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Any

from predictor.answers.forecast_memo import ForecastMemo, Grid
from predictor.answers.grid_answer import grid_answer
from pydantic_core import to_json

from api.answering import Answering
from api.prediction_json import Prepared, columns_of_rows, prepared
from api.schemas import PredictionQuestion
from predictor.answers.predict import PredictionRow, predict, validation_of
from predictor.answers.question import gpus_of, samples_of
from predictor.answers.scope import coverage
from predictor.catalogue.devices import Gpu, precisions_of
from predictor.catalogue.modes import Mode
from predictor.checks import batch_sizes_of
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError

if TYPE_CHECKING:
    from predictor.answers.question import OwnMeasurements

__all__ = [
    "Forecast",
    "Part",
    "key_of",
    "known_forecast",
    "made_forecast",
    "measured_answer",
    "parts_of",
    "warm_up",
]


_WORDS = ("form", "framework", "autotune", "capture", "optimizer", "method", "host", "spot")
_ASKED = ("samples", "data_set", "validation_samples", "method", "host", "spot")


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The part of a question that is about one mode."""

    mode: Mode
    gpus: Sequence[Gpu]
    left_out: Sequence[dict[str, str]]


@dataclass(frozen=True, slots=True, eq=False)
class Forecast:
    """What is known of a question before its epochs: the parts, and their answers."""

    parts: Sequence[Part]
    prepared: Prepared

    @property
    def n_bytes(self) -> int:
        """What keeping this takes, about."""
        return self.prepared.n_bytes + 1000

    def answer(self, question: PredictionQuestion, answering: Answering) -> bytes:
        """The whole answer in JSON; SchemaError where validation samples have no epoch to follow."""
        samples = samples_of(question.samples, question.data_set)
        validation = validation_of(question.validation_samples, samples)
        told = [(each.by_gpu["host"][0], each.by_gpu["trained_on"]) for each in self.prepared.answers]
        content = to_json(_frame(self.parts, _covers(question, self.parts, told, answering)))
        return b"%b,%b}" % (content[:-1], self.prepared.text(samples, validation))


def parts_of(question: PredictionQuestion, max_rows: int) -> list[Part]:
    """Take a question apart by precision and memory format.

    Raises
    ------
    OutOfRangeError
        If it asks for more than `max_rows` rows, or a GPU has none of the precisions.
    SchemaError, UnknownGpuError
        If a GPU is unknown, or the batch sizes make no sense.
    """
    parts = [
        Part(_mode(question, precision, memory_format), *_gpus(question, precision))
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


def key_of(question: PredictionQuestion, table: LayerTable) -> Hashable:
    """All that decides a forecast; None where measurements or a table of the sender's own do."""
    if question.anchors or question.measurements or table.source != "zoo":
        return None
    q = question
    lists = (tuple(q.gpus), tuple(q.batch_sizes), tuple(q.precisions), tuple(q.memory_formats))
    return (table.cnn, table.image_size, *lists, *(getattr(q, name) for name in _WORDS))


def known_forecast(
    question: PredictionQuestion, table: LayerTable, parts: Sequence[Part], answering: Answering
) -> Forecast | None:
    """The forecast, where the model need not be asked; else None."""
    sizes = batch_sizes_of(question.batch_sizes)
    grids = [
        answering.memo.find(table, part.gpus, sizes, part.mode, question.method, question.host)
        for part in parts
    ]
    known = [grid for grid in grids if grid is not None]
    return _forecast(question, table, parts, known, answering) if len(known) == len(parts) else None


def made_forecast(
    question: PredictionQuestion, table: LayerTable, parts: Sequence[Part], answering: Answering
) -> Forecast:
    """The forecast by the model; errors as of `predictor.answers.predict.predict`."""
    shared = table.source == "zoo"  # nobody else asks about a table that was sent: nothing of it is kept
    memo = answering.memo if shared else ForecastMemo(answering.model)
    sizes = batch_sizes_of(question.batch_sizes)
    grids = [memo.grid(table, part.gpus, sizes, part.mode, question.method, question.host) for part in parts]
    return _forecast(question, table, parts, grids, answering)


def warm_up(answering: Answering) -> None:
    """Answer a question before anybody asks, so that the first who does need not wait for modules and catalogues."""
    question = PredictionQuestion.model_validate({"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [32]})
    table = zoo_cnn("resnet50")
    made_forecast(question, table, parts_of(question, 1), answering).answer(question, answering)


def measured_answer(
    question: PredictionQuestion,
    table: LayerTable,
    parts: Sequence[Part],
    own: "OwnMeasurements | None",
    answering: Answering,
) -> dict[str, Any]:
    """The answer, as an object, from someone's own measurements and anchors; errors as of `predict`."""
    anchors = [each.model_dump(exclude_none=True) for each in question.anchors]
    shared = question.model_dump(include=set(_ASKED))
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
    return _frame(parts, _covers(question, parts, told, answering)) | content


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


def _mode(question: PredictionQuestion, precision: str, memory_format: str) -> Mode:
    q = question
    return Mode(q.framework, precision, memory_format, q.autotune, q.capture, q.optimizer)


def _forecast(
    question: PredictionQuestion,
    table: LayerTable,
    parts: Sequence[Part],
    grids: Sequence[Grid],
    answering: Answering,
) -> Forecast:
    sizes, model, finder = batch_sizes_of(question.batch_sizes), answering.model, answering.finder
    answers = [
        grid_answer(grid, table, part.gpus, sizes, part.mode, model, finder, question.spot)
        for part, grid in zip(parts, grids, strict=True)
    ]
    return Forecast(parts, prepared(answers, question.form))


def _words(mode: Mode) -> dict[str, Any]:
    return {name: getattr(mode, name) for name in Mode.__slots__ if name != "xla"}


def _covers(
    question: PredictionQuestion,
    parts: Sequence[Part],
    told: Sequence[tuple[str, Sequence[str]]],
    answering: Answering,
) -> list[str]:
    epochs = question.samples is not None or question.data_set is not None
    return [
        coverage(part.mode, answering.model, host, question.validation_samples, epochs, trained_on)
        for part, (host, trained_on) in zip(parts, told, strict=True)
    ]


def _frame(parts: Sequence[Part], covers: list[str]) -> dict[str, Any]:
    left_out = {(each["gpu"], each["precision"]): each for part in parts for each in part.left_out}
    return {"covers": covers, "left_out": list(left_out.values())}
