"""`POST /v1/predictions`: how long an epoch takes, what it costs, whether it fits, for many GPUs and batch sizes."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

from fastapi import APIRouter, Request, Response

from api.answers import TEXT_COLUMNS, PredictionAnswer, coded
from api.caching import in_json
from api.openapi import question_body
from api.parsing import answered, with_measurements
from api.questions import PredictionQuestion, check_work
from predictor.answers.answer import COLUMNS, Answer, answer
from predictor.answers.asked import Asked, gpus_of
from predictor.answers.question import Question
from predictor.catalogue.devices import Gpu, precisions_of
from predictor.checks import as_list
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
    a row; a GPU that lacks one of several precisions is left out there.
    """
    answer = partial(answer_to, max_rows=request.app.state.settings.max_rows)
    return await answered(request, PredictionQuestion, answer)


def answer_to(posted: PredictionQuestion, question: Question, max_rows: int) -> bytes:
    """The answer in JSON, of at most this number of rows."""
    return in_json(predicted(posted, with_measurements(question, posted), max_rows))


def predicted(posted: PredictionQuestion, question: Question, max_rows: int) -> dict[str, Any]:
    """The answer to a core question in every precision and memory format that was asked.

    Raises
    ------
    OutOfRangeError
        If these are more than `max_rows` rows, or a GPU has none of the precisions.
    EpochcastError
        As of `predictor.answers.answer.answer`.
    """
    parts, left_out = _parts(posted, question)
    gpus = sum(len(Asked.of(part).devices) for part in parts)
    rows = len(question.batch_sizes or _SEARCHED) * gpus
    if rows > max_rows:
        raise OutOfRangeError(
            f"{rows:,} rows are asked for; at most {max_rows:,} are answered at once. Ask in several parts."
        )
    check_work(question, gpus / len(parts), len(parts), rows=rows)
    answers = [answer(part) for part in parts]
    content = _rows(answers) if posted.form == "rows" else _columns(answers)
    return {"covers": [part.scope for part in answers], "left_out": left_out, **content}


def _parts(posted: PredictionQuestion, question: Question) -> tuple[list[Question], list[dict[str, str]]]:
    """A question for each precision and memory format, and the GPUs that lack one of several precisions."""
    if posted.precisions is None and posted.memory_formats is None:
        return [question], []
    several = [*dict.fromkeys(posted.precisions)] if posted.precisions else [question.precision]
    formats = [*dict.fromkeys(posted.memory_formats)] if posted.memory_formats else [question.memory_format]
    chosen, left_out = _gpus([str(gpu) for gpu in as_list(question.gpus)], several, question.capture)
    parts = [
        replace(question, gpus=chosen[precision], precision=precision, memory_format=memory_format)
        for precision, memory_format in product(several, formats)
        if chosen[precision]
    ]
    return parts, left_out


def _gpus(
    names: list[str], precisions: Sequence[str | None], capture: str
) -> tuple[dict[str | None, list[Gpu]], list[dict[str, str]]]:
    """The GPUs of each precision; of several, those that a GPU lacks are left out, provided that it has one."""
    if len(precisions) == 1 or any(name.strip().casefold() == "all" for name in names):
        return {precision: gpus_of(names, precision, capture) for precision in precisions}, []
    gpus = gpus_of(names)
    for gpu in gpus:
        if not {*precisions_of(gpu)} & {*precisions}:
            raise OutOfRangeError(
                f"{gpu.name} has none of {', '.join(map(str, precisions))}. It has: {', '.join(precisions_of(gpu))}."
            )
    left_out = [
        {"gpu": gpu.name, "precision": str(precision), "why": f"the GPU has {', '.join(precisions_of(gpu))}"}
        for precision, gpu in product(precisions, gpus)
        if precision not in precisions_of(gpu)
    ]
    return {
        precision: [gpu for gpu in gpus if precision in precisions_of(gpu)] for precision in precisions
    }, left_out


def _rows(answers: Sequence[Answer]) -> dict[str, Any]:
    return {"rows": [row for part in answers for row in part.records()]}


def _columns(answers: Sequence[Answer]) -> dict[str, Any]:
    columns: dict[str, Any] = {
        name: [value for part in answers for value in part.columns[name]] for name in COLUMNS
    }
    columns |= {name: coded(columns[name]) for name in TEXT_COLUMNS}
    return {"n_rows": sum(map(len, answers)), "columns": columns}
