"""From a request to its answer: the body as a checked question, its CNN as a layer table, its measurements fitted."""

import base64
import binascii
import re
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from fastapi import HTTPException, Request, Response
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser

from api.bodies import LARGER_TABLES, read_body
from api.layer_tables import inline_table
from api.onnx_process import read_onnx
from api.problems import InvalidFieldsError
from api.questions import (
    MAX_ONNX_BYTES,
    CalibrationQuestion,
    ComparisonQuestion,
    ExplanationQuestion,
    OwnCnn,
    PredictionQuestion,
)
from api.serving import serving_of
from api.store.uploads import MAX_ROWS, parsed_json, rows_of, table_sent
from predictor.answers.knowledge import OwnMeasurements
from predictor.answers.question import Question
from predictor.catalogue.offers import Offer
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import resolve_cnn
from predictor.cnns.zoo import ZOO
from predictor.errors import SchemaError, UnknownCnnError, nearest
from predictor.models.served import Model

__all__ = [
    "MAX_COLUMNS_BYTES",
    "MAX_FORM_BYTES",
    "MAX_JSON_BYTES",
    "Body",
    "answered",
    "body_of",
    "fitted",
    "question_of",
]

MAX_JSON_BYTES = 8 * 2**20
"""Of a question in JSON: ten thousand layers, thousands of measurements, or an ONNX file of 6 MB in base64."""

MAX_COLUMNS_BYTES = 16 * 2**20
"""Of a question in JSON that brings measurements column by column: twenty thousand."""

MAX_FORM_BYTES = MAX_ONNX_BYTES + MAX_JSON_BYTES
"""Of a form with a question and an ONNX file."""

_MOST_VALUES = 100_000
_MOST_COMMAS = 1_500_000  # twenty thousand measurements of all columns have 1.2 million
_AFTER_KEYS = (b'":', b" :", b"\t:", b"\n:", b"\r:")  # a timestamp's colon follows a digit, and is none
_BY_COLUMNS = re.compile(rb'"measurements"\s{0,9}:\s{0,9}\{')
_MOST_ERRORS = 100
_FORMS = {"application/json": MAX_COLUMNS_BYTES, "multipart/form-data": MAX_FORM_BYTES}
_COLUMNS_OR_STORE = (
    f"Measurements, up to {MAX_ROWS:,}, take least room as columns: "
    f'"measurements": {{"gpu": ["NVIDIA L40S", ...], "batch_size": [32, ...], ...}}. {LARGER_TABLES}'
)
_Asked = PredictionQuestion | ComparisonQuestion | ExplanationQuestion
_Any = _Asked | OwnCnn
Q = TypeVar("Q", PredictionQuestion, ComparisonQuestion, CalibrationQuestion, ExplanationQuestion, OwnCnn)


class _InMemory(MultiPartParser):
    spool_max_size = MAX_FORM_BYTES + 1


@dataclass(frozen=True, slots=True)
class Body:
    """A body as sent, a form if it is not JSON."""

    content: bytes
    is_json: bool
    request: Request


async def body_of(request: Request) -> Body:
    """Read the body of a question; HTTPException 413, 415 or 400 where it is too large, of another type or damaged."""
    form = request.headers.get("content-type", "").split(";")[0].strip().casefold()
    if form not in _FORMS:
        raise HTTPException(415, f"Content-Type is {form[:80]!r}. Valid: {', '.join(_FORMS)}.")
    content = await read_body(request, _FORMS[form])
    is_json = form == "application/json"
    if is_json and len(content) > MAX_JSON_BYTES and not _BY_COLUMNS.search(content):
        raise HTTPException(
            413,
            f"the body is larger than {MAX_JSON_BYTES:,} bytes. Ask in several parts. {_COLUMNS_OR_STORE}",
        )
    return Body(content, is_json, request)


async def answered(
    request: Request, kind: type[Q], answer: Callable[[Q, LayerTable, Model, Sequence[Offer]], bytes]
) -> Response:
    """Answer in JSON: a kept answer to the same bytes, else what `answer` computes, in its turn in a thread."""
    serving = serving_of(request)
    body = await body_of(request)
    key, model = serving.key_of(request.url.path, body.content), serving.model.current
    content = serving.answers.get(key) if body.is_json else None
    if content is None:
        serving.model_queue.check()  # before the question is taken apart
        question, table = await question_of(body, kind)
        content = await serving.model_queue.run(answer, question, table, model, serving.offers)
        if body.is_json:
            serving.keep(key, content)
    return Response(content, media_type="application/json")


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


async def question_of(body: Body, kind: type[Q]) -> tuple[Q, LayerTable]:
    """The question and its CNN.

    Raises
    ------
    HTTPException
        400 where a form is damaged, 413 where its file is too large.
    EpochcastError
        Where the question or its CNN makes no sense.
    """
    if body.is_json:
        question, file, name = _validated(body.content, kind), None, "upload"
    else:
        question, file, name = await _from_form(body, kind)
    return question, await _table(body.request, question, file, name)


def _validated(body: bytes, kind: type[Q]) -> Q:
    keys, lists = sum(map(body.count, _AFTER_KEYS)), body.count(b"[") + body.count(b"{")
    if keys > kind.most_keys or lists > _MOST_VALUES or body.count(b",") > _MOST_COMMAS:
        raise SchemaError(
            f"the question holds more than {kind.most_keys:,} keys, {_MOST_VALUES:,} lists and objects or "
            f"{_MOST_COMMAS:,} values. "
            f"Ask in several parts. {_COLUMNS_OR_STORE}"
        )
    try:
        return kind.model_validate(parsed_json(body, "the question"))
    except ValidationError as error:
        found = error.errors(include_url=False, include_context=False)
        raise InvalidFieldsError.of(found[:_MOST_ERRORS], len(found), kind) from None


async def _from_form(body: Body, kind: type[Q]) -> tuple[Q, bytes | None, str]:
    serving_of(body.request).onnx_queue.check()  # before 24 MiB are taken apart

    async def whole() -> AsyncGenerator[bytes, None]:
        yield body.content

    parser = _InMemory(body.request.headers, whole(), max_files=1, max_fields=1, max_part_size=MAX_FORM_BYTES)
    try:
        form = await parser.parse()
    except (MultiPartException, KeyError, UnicodeError, ValueError) as error:
        raise HTTPException(400, f"the form is damaged ({error}). Send question and onnx.") from None
    file = _field(form, "onnx", UploadFile)
    text = _field(form, "question", str)
    if text is None and kind.form_without_question:
        text = "{}"
    if text is None:
        raise SchemaError(
            "the form has no question. Send it as JSON in the field question, the file as onnx."
        )
    question = _validated(text.encode("utf-8", "surrogatepass"), kind)
    if file is None:
        return question, None, "upload"
    return question, await file.read(), file.filename or "upload"


F = TypeVar("F", str, UploadFile)


def _field(form: FormData, name: str, kind: type[F]) -> F | None:
    for known in form:
        if known not in ("question", "onnx"):
            raise SchemaError(f"the form has a field {known[:80]!r}. Valid: question (JSON), onnx (a file).")
    value = form.get(name)
    if value is not None and not isinstance(value, kind):
        raise SchemaError(f"the form's {name} is no {'file' if kind is UploadFile else 'text'}.")
    return value


async def _table(request: Request, question: _Any, file: bytes | None, name: str) -> LayerTable:
    """The CNN of a question: named, as layers, or in an ONNX file."""
    cnn = None if isinstance(question, OwnCnn) else question.cnn
    onnx = file if file is not None else question.onnx
    if sum(value is not None for value in (cnn, question.layer_table, onnx)) != 1:
        own = "as layer_table or as onnx"
        ways = own if isinstance(question, OwnCnn) else f"as cnn (a name), {own}"
        raise SchemaError(f"Give one CNN: {ways}.")
    if cnn is not None and not isinstance(question, OwnCnn):
        return _zoo_table(cnn, question)
    if question.layer_table is not None:
        return resolve_cnn(inline_table(question.layer_table), question.image_size)
    content = file if file is not None else _decoded(question.onnx or "")
    if len(content) > MAX_ONNX_BYTES:
        raise HTTPException(
            413, f"the ONNX file is larger than {MAX_ONNX_BYTES:,} bytes. Send its layer table."
        )
    return await serving_of(request).onnx_queue.run(read_onnx, content, _plain(name), question.image_size)


def _zoo_table(name: str, question: _Asked) -> LayerTable:
    """A CNN of the zoo; a name is never a path, which the core's `resolve_cnn` would take."""
    if name not in ZOO:
        raise UnknownCnnError(
            f"no CNN is called {name!r}. Nearest: {nearest(name, ZOO)}. `GET /v1/cnns` lists all; send any "
            "other as layer_table or onnx."
        )
    sized = Question(name, (), 1, image_size=question.image_size, data_set=question.data_set)
    return sized.layer_tables()[0]


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise SchemaError("onnx is not base64. Encode the file, or send it as multipart/form-data.") from None


def _plain(name: str) -> str:
    """A file's name without folders, its ending and what is neither letter nor digit."""
    stem = re.split(r"[/\\]", name)[-1].removesuffix(".onnx")
    return re.sub(r"[^\w.-]+", "_", stem, flags=re.ASCII).strip("._-")[:80] or "upload"
