"""`POST /v1/comparisons`: which GPU to rent, ranked, with the Pareto front of time and cost."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from api.answers import ComparisonAnswer
from api.caching import in_json
from api.openapi import question_body
from api.parsing import answered, fitted
from api.questions import SEARCHED, ComparisonQuestion, check_work, core_question, plan_of
from predictor.answers.compare import compare
from predictor.catalogue.offers import Offer
from predictor.cnns.layer_table import LayerTable
from predictor.models.served import Model

__all__ = ["answer_to", "router"]

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

    Without batch sizes GPUs are compared at one that fits on most; of several, each keeps its best. Rows that miss
    budget or deadline follow those that hold both; what does not fit in memory comes last. `pareto` marks what nothing
    else beats in both time and cost. `verdict` says in a sentence and as data what to rent.
    """
    return await answered(request, ComparisonQuestion, answer_to)


def answer_to(posted: ComparisonQuestion, table: LayerTable, model: Model, offers: Sequence[Offer]) -> bytes:
    """The answer in JSON."""
    question = core_question(posted, table, posted.gpus, None, model, offers)
    gpus = len(question.devices()) if posted.gpus else len({offer.gpu for offer in offers})
    sizes = len(question.batch_sizes or SEARCHED)
    check_work(
        table, model, gpus, 1, sizes, repeats=2
    )  # in its mode and the fastest; before measurements are fitted
    question = core_question(posted, table, posted.gpus, fitted(posted, model), model, offers)
    comparison = compare(question, plan_of(posted))
    content = {
        "verdict": comparison.verdict,
        "covers": comparison.scope,
        "rows": comparison.rows,
    }
    return in_json(content)
