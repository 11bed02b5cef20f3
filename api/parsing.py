"""From a request to its answer: the body as a checked question, its CNN as a layer table, its measurements fitted."""

from collections.abc import Callable, Sequence
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from fastapi import HTTPException, Request, Response
from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from api.bodies import LARGER_TABLES, read_body
from api.caching import accepts_gzip, file_response
from api.layer_tables import inline_table
from api.problems import InvalidFieldsError
from api.questions import (
    MAX_COLUMN_ROWS,
    CalibrationQuestion,
    ComparisonQuestion,
    ExplanationQuestion,
    PredictionQuestion,
)
from api.serving import ServingState, client_of, serving_of
from api.store.uploads import parsed_json, rows_of, table_sent
from predictor.answers.knowledge import OwnMeasurements
from predictor.answers.question import Question
from predictor.catalogue.offers import Offer
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import resolve_cnn
from predictor.cnns.zoo import ZOO
from predictor.errors import SchemaError, UnknownCnnError, nearest
from predictor.models.served import Model

__all__ = [
    "MAX_JSON_BYTES",
    "Answering",
    "Q",
    "answered",
    "example_answer",
    "examples_of",
    "fitted",
    "json_of",
    "question_of",
]

MAX_JSON_BYTES = 8 * 2**20
"""Of a question in JSON: thousands of layers, or ten thousand measurements."""

_MOST_KEYS = 150_000  # naming a wrong one takes microseconds, a million would stop the service for seconds
_MOST_VALUES = 100_000
_MOST_COMMAS = 800_000  # ten thousand measurements of all columns have 0.6 million
_AFTER_KEYS = (b'":', b" :", b"\t:", b"\n:", b"\r:")  # a timestamp's colon follows a digit, and is none
_MEASUREMENTS = b'"measurements"'  # are fitted first, which takes longer than other questions
_MOST_ERRORS = 100
_COLUMNS_OR_STORE = (
    f"Measurements, up to {MAX_COLUMN_ROWS:,}, take least room as columns: "
    f'"measurements": {{"gpu": ["NVIDIA L40S", ...], "batch_size": [32, ...], ...}}. {LARGER_TABLES}'
)
_Asked = PredictionQuestion | ComparisonQuestion | ExplanationQuestion
Q = TypeVar("Q", PredictionQuestion, ComparisonQuestion, CalibrationQuestion, ExplanationQuestion)
Answering = Callable[[Q, LayerTable, Model, Sequence[Offer]], bytes]
"""From a checked question to its answer in JSON."""


async def json_of(request: Request) -> bytes:
    """Read the JSON body of a question.

    Raises
    ------
    HTTPException
        413, 415 or 400 where it is too large, of another type or damaged.
    """
    form = request.headers.get("content-type", "").split(";")[0].strip().casefold()
    if form != "application/json":
        raise HTTPException(
            415,
            f"Content-Type is {form[:80]!r}. Valid: application/json. `POST /v1/cnns` takes an ONNX file and gives its "
            "layer_table, which questions take.",
        )
    return await read_body(request, MAX_JSON_BYTES, f"Ask in several parts. {_COLUMNS_OR_STORE}")


async def answered(request: Request, kind: type[Q], answer: Answering[Q]) -> Response:
    """Answer in JSON: a kept answer to the same bytes, else what `answer` computes, in its turn in a thread."""
    serving = serving_of(request)
    body = await json_of(request)
    snapshot, key = serving.model.snapshot, sha256(request.url.path.encode() + b" " + body).digest()
    packed = accepts_gzip(request.headers)
    file = snapshot.kept(key, packed=packed)
    if file is None:
        queue = serving.upload_queue if _MEASUREMENTS in body else serving.model_queue
        compute = partial(_from_body, body, kind, answer, snapshot.model, serving.offers)
        with snapshot.awaited(key):
            file = await queue.run(client_of(request), snapshot.answer, key, compute, packed=packed)
    return file_response(request, file)


def _from_body(
    body: bytes,
    kind: type[Q],
    answer: Answering[Q],
    model: Model,
    offers: Sequence[Offer],
) -> bytes:
    question, table = question_of(body, kind)
    return answer(question, table, model, offers)


def examples_of(kind: type[BaseModel]) -> list[Any]:
    """The examples of a model, as its schema shows them."""
    extra: Any = kind.model_config.get("json_schema_extra", {})
    examples: list[Any] = extra.get("examples", [])
    return examples


def example_answer(kind: type[Q], answer: Answering[Q], serving: ServingState) -> Any:
    """What the first example of a question is answered with."""
    body = to_json(examples_of(kind)[0])
    return from_json(_from_body(body, kind, answer, serving.model.current, serving.offers))


def fitted(question: _Asked, model: Model) -> OwnMeasurements | None:
    """The measurements of a question, fitted on top of the model; None if it has none.

    Raises
    ------
    DataError, SchemaError, UnknownGpuError
        If a row is wrong, which the message names, or they hold nothing to predict from.
    """
    if not question.measurements:
        return None
    frame, _ = rows_of(table_sent(question.measurements))
    return OwnMeasurements.of(frame, model)


def question_of(body: bytes, kind: type[Q]) -> tuple[Q, LayerTable]:
    """The question and its CNN; EpochcastError where one of them makes no sense."""
    question = _validated(body, kind)
    return question, _table(question)


def _validated(body: bytes, kind: type[Q]) -> Q:
    """A body in JSON as a model; SchemaError where it is too much, no JSON or not of this kind."""
    keys, lists = sum(map(body.count, _AFTER_KEYS)), body.count(b"[") + body.count(b"{")
    most_keys = getattr(kind, "most_keys", _MOST_KEYS)
    if keys > most_keys or lists > _MOST_VALUES or body.count(b",") > _MOST_COMMAS:
        raise SchemaError(
            f"the question holds more than {most_keys:,} keys, {_MOST_VALUES:,} lists and objects or "
            f"{_MOST_COMMAS:,} values. "
            f"Ask in several parts. {_COLUMNS_OR_STORE}"
        )
    try:
        return kind.model_validate(parsed_json(body, "the question"))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False)
        raise InvalidFieldsError.of(errors[:_MOST_ERRORS], len(errors), kind) from None


def _table(question: _Asked) -> LayerTable:
    """The CNN of a question: named, or as layers."""
    if (question.cnn is None) == (question.layer_table is None):
        raise SchemaError("Give one CNN: as cnn (a name) or as layer_table.")
    if question.layer_table is not None:
        return resolve_cnn(inline_table(question.layer_table), question.image_size)
    return _zoo_table(str(question.cnn), question)


def _zoo_table(name: str, question: _Asked) -> LayerTable:
    """A CNN of the zoo; a name is never a path, which the core's `resolve_cnn` would take."""
    if name not in ZOO:
        raise UnknownCnnError(
            f"no CNN is called {name!r}. Nearest: {nearest(name, ZOO)}. `GET /v1/cnns` lists all; send any "
            "other as layer_table."
        )
    sized = Question(name, (), 1, image_size=question.image_size, data_set=question.data_set)
    return sized.layer_tables()[0]
