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
from predictor.answers.answer import COLUMNS, answer_to
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion, gpus_of, left_out_of
from predictor.errors import OutOfRangeError

router = APIRouter(prefix="/v1/predictions", tags=["predictions"])


_SEARCHED = ("common", "near the fastest", "fastest", "largest")  # rows of a GPU if no batch size is given


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
    answer = partial(answer_in_json, max_rows=request.app.state.settings.max_rows)
    return await answered(request, PredictionQuestion, answer)


def answer_in_json(posted: PredictionQuestion, question: Question, max_rows: int) -> bytes:
    """The answer in JSON, of at most this number of rows."""
    return in_json(predicted(posted, with_measurements(question, posted), max_rows))


def predicted(posted: PredictionQuestion, question: Question, max_rows: int) -> dict[str, Any]:
    """The answer in every precision and memory format that was asked: the fields of `PredictionAnswer`.

    OutOfRangeError if these are more than `max_rows` rows or too much work, or no GPU has any of the precisions.
    """
    precisions = [*dict.fromkeys(posted.precisions or (question.precision,))]
    questions = _by_mode(posted, question, precisions)
    gpus = sum(len(mode_question.devices) for mode_question in questions)
    n_rows = len(question.batch_sizes or _SEARCHED) * gpus * len(question.side_by_side)
    if n_rows > max_rows:
        raise OutOfRangeError(
            f"{n_rows:,} rows are asked for; at most {max_rows:,} are answered at once. Ask in several parts."
        )
    check_work(questions[0], gpus / len(questions), len(questions), rows=n_rows)
    answers = list(map(answer_to, questions))
    about = {
        "covers": [mode_answer.scope for mode_answer in answers],
        "left_out": [gpu for precision in precisions for gpu in left_out_of(question.gpus, precision)],
    }
    if posted.form == "rows":
        return about | {"rows": [row for mode_answer in answers for row in mode_answer.records()]}
    columns: dict[str, Any] = {
        name: [value for mode_answer in answers for value in mode_answer.columns[name]] for name in COLUMNS
    }
    columns |= {name: coded(columns[name]) for name in TEXT_COLUMNS}
    return about | {"n_rows": sum(map(len, answers)), "columns": columns}


def _by_mode(
    posted: PredictionQuestion, question: Question, precisions: Sequence[str | None]
) -> list[ResolvedQuestion]:
    """A question for each precision that a GPU has, and each memory format; OutOfRangeError if there is none."""
    formats = [*dict.fromkeys(posted.memory_formats or (question.memory_format,))]
    questions: list[ResolvedQuestion] = []
    refusal: OutOfRangeError | None = None
    for precision in precisions:
        try:
            gpus_of(question.gpus, precision, question.capture)
        except OutOfRangeError as error:
            refusal = error
            continue
        for layout in formats:
            is_own = (precision, layout) == (question.precision, question.memory_format)
            own = question if is_own else replace(question, precision=precision, memory_format=layout)
            questions.append(ResolvedQuestion.of(own, "predict"))
    if refusal is not None and not questions:
        raise refusal
    return questions
