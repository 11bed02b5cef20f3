"""`POST /v1/predictions`: how long an epoch takes, what it costs, whether it fits, for many GPUs and batch sizes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response

from api.answers import TEXT_COLUMNS, PredictionAnswer, coded
from api.caching import in_json
from api.openapi import question_body
from api.parsing import answered, with_measurements
from api.questions import PredictionQuestion, check_work
from predictor.answers.answer import COLUMNS, Answer, answer
from predictor.answers.question import Question
from predictor.answers.resolved import LeftOut, ResolvedQuestion, gpus_of, left_out_of
from predictor.errors import OutOfRangeError

router = APIRouter(prefix="/v1/predictions", tags=["predictions"])


_SEARCHED = ("common", "fastest", "largest")  # rows of a GPU if no batch size is given


@router.post(
    "",
    operation_id="create_prediction",
    summary="Predict time, cost and memory",
    response_model=PredictionAnswer,
    openapi_extra={"requestBody": question_body(PredictionQuestion)},
)
async def predictions(request: Request) -> Response:
    """Time of an iteration and an epoch, cost and memory of one CNN on every GPU at every batch size.

    The CNN is a name of the zoo, or a layer table. Every combination of precision, memory format, GPU and batch size is
    a row; a GPU that lacks a precision that another one has is left out there.
    """
    answer = partial(answer_to, max_rows=request.app.state.settings.max_rows)
    return await answered(request, PredictionQuestion, answer)


def answer_to(posted: PredictionQuestion, question: Question, max_rows: int) -> bytes:
    """The answer in JSON, of at most this number of rows."""
    return in_json(predicted(posted, with_measurements(question, posted), max_rows))


def predicted(posted: PredictionQuestion, question: Question, max_rows: int) -> dict[str, Any]:
    """The answer to a core question in every precision and memory format that was asked.

    OutOfRangeError if these are more than `max_rows` rows, or no GPU has any of the precisions.
    """
    parts, left_out = _parts(posted, question)
    gpus = sum(len(ResolvedQuestion.of(part).devices) for part in parts)
    rows = len(question.batch_sizes or _SEARCHED) * gpus
    if rows > max_rows:
        raise OutOfRangeError(
            f"{rows:,} rows are asked for; at most {max_rows:,} are answered at once. Ask in several parts."
        )
    check_work(question, gpus / len(parts), len(parts), rows=rows)
    answers = [answer(part) for part in parts]
    content = _rows(answers) if posted.form == "rows" else _columns(answers)
    return {"covers": [part.scope for part in answers], "left_out": left_out, **content}


def _parts(posted: PredictionQuestion, question: Question) -> tuple[list[Question], list[LeftOut]]:
    """A question for each precision, provided that a GPU has it, and memory format; and the GPUs that lack one."""
    precisions = [*dict.fromkeys(posted.precisions)] if posted.precisions else [question.precision]
    formats = [*dict.fromkeys(posted.memory_formats)] if posted.memory_formats else [question.memory_format]
    left_out = [each for precision in precisions for each in left_out_of(question.gpus, precision)]
    parts: list[Question] = []
    refused: OutOfRangeError | None = None
    for precision in precisions:
        try:
            gpus_of(question.gpus, precision, question.capture)
        except OutOfRangeError as error:
            refused = error
            continue
        parts += [replace(question, precision=precision, memory_format=each) for each in formats]
    if refused is not None and not parts:
        raise refused
    return parts, left_out


def _rows(answers: Sequence[Answer]) -> dict[str, Any]:
    return {"rows": [row for part in answers for row in part.records()]}


def _columns(answers: Sequence[Answer]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        name: [value for part in answers for value in part.columns[name]] for name in COLUMNS
    }
    columns |= {name: coded(columns[name]) for name in TEXT_COLUMNS}
    return {"n_rows": sum(map(len, answers)), "columns": columns}
