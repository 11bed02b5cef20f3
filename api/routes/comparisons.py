"""`POST /v1/comparisons`: which GPU to rent, ranked, with the Pareto front of time and cost."""

from fastapi import APIRouter, Request, Response

from api.answers import ComparisonAnswer
from api.caching import in_json
from api.openapi import question_body
from api.parsing import answered, with_measurements
from api.questions import ComparisonQuestion, check_work, plan_of
from predictor.answers.asked import Asked
from predictor.answers.compare import compare
from predictor.answers.question import Question

router = APIRouter(prefix="/v1/comparisons", tags=["predictions"])


@router.post(
    "",
    operation_id="create_comparison",
    summary="Compare what can be rented",
    response_model=ComparisonAnswer,
    openapi_extra={"requestBody": question_body(ComparisonQuestion)},
)
async def comparisons(request: Request) -> Response:
    """Time and cost of training one CNN on every GPU for rent, best first.

    Without batch sizes GPUs are compared at one that fits on most; of several, every GPU keeps its best. Rows that miss
    budget or deadline follow those that hold both; what does not fit in memory comes last. `pareto` marks what nothing
    else beats in both time and cost. `verdict` says in a sentence and as data what to rent.
    """
    return await answered(request, ComparisonQuestion, answer_to)


def answer_to(posted: ComparisonQuestion, question: Question) -> bytes:
    """The answer in JSON."""
    asked = Asked.of(question)
    gpus = len(asked.devices if posted.gpus else {offer.gpu for offer in asked.prices})
    check_work(question, gpus, repeats=2)  # its mode and the fastest; before measurements are fitted
    question = with_measurements(question, posted)
    check_work(question, gpus, repeats=2)  # and with their runs
    comparison = compare(question, plan_of(posted))
    content = {
        "verdict": comparison.verdict,
        "covers": comparison.scope,
        "left_out": asked.left_out,
        "rows": comparison.rows,
    }
    return in_json(content)
