"""From a request to its answer: the body as a checked question, its measurements fitted."""

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

from fastapi import HTTPException, Request, Response
from pydantic import ValidationError
from pydantic_core import from_json, to_json
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from api.bodies import LARGER_TABLES, read_body
from api.caching import accepts_gzip, file_response
from api.problems import InvalidFieldsError
from api.questions import EXAMPLES, MAX_COLUMN_ROWS, CnnQuestion, check_runs, core_question
from api.queues import MaybeQuick
from api.serving import ServingState, in_turn, serving_of
from api.store.uploads import parsed_json, rows_of, table_sent
from predictor.answers.question import Question
from predictor.answers.resolved import OwnMeasurements, load_model
from predictor.catalogue.offers import Offer
from predictor.errors import SchemaError
from predictor.models.served import Model

MAX_JSON_BYTES = 8 * 2**20
"""Of a question in JSON: thousands of layers, or ten thousand measurements."""

_MOST_KEYS = 150_000  # naming a wrong one takes microseconds, a million would stop the service for seconds
_MOST_VALUES = 100_000
_MOST_COMMAS = 800_000  # ten thousand measurements of all columns have 0.6 million
_AFTER_KEYS = (b'":', b" :", b"\t:", b"\n:", b"\r:")  # a timestamp's colon follows a digit, and is none
_MEASUREMENTS = b'"measurements"'  # are fitted first, which takes longer than other questions
_MOST_ERRORS = 100
_FEW_ROWS = 30  # which take 2 to 8 ms of a processor, by CNN and GPUs
_COLUMNS_OR_STORE = (
    f"Measurements, up to {MAX_COLUMN_ROWS:,}, take least room as columns: "
    f'"measurements": {{"gpu": ["NVIDIA L40S", ...], "batch_size": [32, ...], ...}}. {LARGER_TABLES}'
)
Q = TypeVar("Q", bound=CnnQuestion)
Answering = Callable[[Q, Question], bytes]
"""From a checked question, as posted and as the core takes it, to its answer in JSON."""


class Questions(BaseRoute):
    """The routes of questions by their path: FastAPI would match each path twice and wrap what it calls."""

    def __init__(self, routes: Iterable[Any]) -> None:
        self._routes = {route.path: route for route in routes}

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a request posts a question, and its route."""
        route = self._routes.get(scope["path"]) if scope.get("method") == "POST" else None
        return (Match.FULL, {"route": route}) if route else (Match.NONE, {})

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a question."""
        answer = await scope["route"].endpoint(Request(scope, receive, send))
        await answer(scope, receive, send)


async def json_of(request: Request) -> bytes:
    """Read the body of a question, and unpack it if it is gzip; whether it is JSON is for `question_of` to check.

    HTTPException 413 if it is too large, 415 for another Content-Type or packing, 400 for damaged gzip.
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
    """Answer in JSON: the kept answer to the same bytes, else that of `answer`, computed in its turn."""
    serving = serving_of(request)
    body = await json_of(request)
    accepted = request.headers.get("accept", "")
    in_csv = "text/csv" in accepted and "json" not in accepted
    asked = b"%b %d %b" % (request.scope["path"].encode(), in_csv, body)
    snapshot, key = serving.model.snapshot, sha256(asked).digest()
    packed = accepts_gzip(request.headers)
    file = snapshot.kept(key, packed=packed)
    if file is None:
        may_fit = _MEASUREMENTS in body or b"\\u00" in body  # letters may be escaped
        queue = serving.upload_queue if may_fit else serving.model_queue
        compute = partial(_from_body, body, kind, answer, snapshot.model, serving.offers)
        compute = partial(_csv_of, compute) if in_csv else compute
        is_short = len(body) < 1000 and request.scope["path"] == "/v1/predictions"
        alike = _kind_of(body, in_csv, packed) if is_short else None
        call = MaybeQuick(snapshot.answer, key, compute, alike, packed=packed)
        call.is_quick = partial(snapshot.is_quick, alike)
        with snapshot.awaited(key):
            file = await in_turn(request, queue, call)
    file = replace(file, media_type="text/csv; charset=utf-8") if in_csv else file
    return file_response(request, file, {"Vary": "Accept, Accept-Encoding"})


def _kind_of(body: bytes, *form: bool) -> bytes | None:
    """All of a question about few rows but its samples and batch sizes, of which their number; None of others.

    `form`: whether the answer is CSV, and packed.
    """
    with suppress(KeyError, TypeError, ValueError):  # of what will be refused
        question = from_json(body)
        names, n_sizes = ",".join(question["gpus"]).casefold(), len({*question["batch_sizes"]})
        n_modes = math.prod(len(question.get(name) or [None]) for name in ("precisions", "memory_formats"))
        is_small = "all" not in names and (names.count(",") + 1) * n_sizes * n_modes <= _FEW_ROWS
        if is_small and "measurements" not in question:
            return to_json([*form, question | {"batch_sizes": n_sizes, "samples": None}])
    return None


def _csv_of(compute: Callable[[], bytes]) -> bytes:
    """Rows of an answer as CSV; SchemaError if it has none."""
    rows = from_json(compute()).get("rows")
    if rows is None:
        raise SchemaError("this answer has no rows, which text/csv needs. Accept application/json.")
    file = io.StringIO(newline="")
    writer = csv.DictWriter(file, [*rows[0]] if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return file.getvalue().encode()


def _cell(value: Any) -> Any:
    """A value in a cell: lists joined, of what has a text its text."""
    if isinstance(value, dict):
        return value["text"] if "text" in value else to_json(value).decode()
    return "; ".join(str(_cell(entry)) for entry in value) if isinstance(value, list) else value


def _from_body(
    body: bytes, kind: type[Q], answer: Answering[Q], model: Model, offers: Sequence[Offer]
) -> bytes:
    posted = question_of(body, kind)
    return answer(posted, core_question(posted, posted.gpus, model, offers))


def first_example(kind: type[CnnQuestion]) -> bytes:
    """The first example of a question, as it is posted."""
    return to_json(next(iter(EXAMPLES[kind.__name__].values())))


def example_answer(kind: type[Q], answer: Answering[Q], serving: ServingState) -> Any:
    """Answer to the first example of a kind of question."""
    return from_json(_from_body(first_example(kind), kind, answer, serving.model.current, serving.offers))


def with_measurements(question: Question, posted: CnnQuestion) -> Question:
    """The question with its measurements, fitted on top of the model.

    DataError, SchemaError or UnknownGpuError if a row is wrong, which the message names, or they hold nothing to
    predict from.
    """
    if not posted.measurements:
        return question
    frame, _ = rows_of(table_sent(posted.measurements))
    check_runs(frame)
    return replace(question, measurements=OwnMeasurements.of(frame, load_model(question.model)))


def question_of(body: bytes, kind: type[Q]) -> Q:
    """Question of this kind from a body; SchemaError if the body is too large, no JSON or no such question."""
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
