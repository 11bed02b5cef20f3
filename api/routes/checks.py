"""`POST /v1/checks`: whether the speed of a training is normal, and what explains it best if not."""

from fastapi import APIRouter, Request, Response

from api.answers import CheckAnswer
from api.caching import in_json
from api.openapi import question_body
from api.parsing import answered, with_measurements
from api.questions import CheckQuestion, check_work
from predictor.answers.check import TIMES, Speed, check
from predictor.answers.question import Question

router = APIRouter(prefix="/v1/checks", tags=["predictions"])

_ANSWERS = 20  # the question's own, and one for each suspected cause


@router.post(
    "",
    operation_id="create_check",
    summary="Check the speed of a training",
    response_model=CheckAnswer,
    openapi_extra={"requestBody": question_body(CheckQuestion)},
)
async def checks(request: Request) -> Response:
    """Whether a training is as fast as it should be, and what explains it best if not.

    Causes are ranked by their probability, with the time of an iteration and what mending saves.
    """
    return await answered(request, CheckQuestion, answer_to)


def answer_to(posted: CheckQuestion, question: Question) -> bytes:
    """The answer in JSON."""
    check_work(question, 1, _ANSWERS)
    speed = Speed(**{name: getattr(posted, name) for name in (*TIMES, "waiting_share")})
    checkup = check(with_measurements(question, posted), speed, posted.epochs)
    return in_json({"sentence": checkup.sentence, "checkup": checkup})
