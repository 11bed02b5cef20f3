"""`POST /v1/differences`: what a change from one CNN to another costs."""

from dataclasses import asdict, replace

from fastapi import APIRouter, Request, Response

from api.answers import DifferenceAnswer
from api.caching import in_json
from api.openapi import question_body
from api.parsing import answered, with_measurements
from api.questions import DifferenceQuestion, check_work, core_question
from predictor.answers.asked import Asked
from predictor.answers.diff import diff
from predictor.answers.own_measurements import load_model
from predictor.answers.question import Question

router = APIRouter(prefix="/v1/differences", tags=["predictions"])

_ANSWERS = 2  # each CNN's rows and its time by class


@router.post(
    "",
    operation_id="create_difference",
    summary="Say what a change of a CNN costs",
    response_model=DifferenceAnswer,
    openapi_extra={"requestBody": question_body(DifferenceQuestion)},
)
async def differences(request: Request) -> Response:
    """Time, memory and cost before and after a change of a CNN, and the layers that differ.

    The interval of the ratio is narrower than those of the times: errors of what both CNNs share cancel.
    """
    return await answered(request, DifferenceQuestion, answer_to)


def answer_to(posted: DifferenceQuestion, question: Question) -> bytes:
    """The answer in JSON."""
    offers = Asked.of(question).prices
    after = core_question(posted.changed, posted.gpus, load_model(question.model), offers)
    for each in (question, after):
        check_work(each, len(Asked.of(each).devices), _ANSWERS)
    before = with_measurements(question, posted)
    found = diff(before, replace(after, measurements=before.measurements))
    return in_json({"differences": [{"sentence": each.sentence, **asdict(each)} for each in found]})
