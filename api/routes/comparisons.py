"""`POST /v1/comparisons`: which GPU to rent, ranked, with the Pareto front of time and cost.

Included by the application; calls the core's `compare`, whose answers these are, field by field.
"""

from dataclasses import asdict
from functools import partial

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from api.answers import ComparisonAnswer
from api.kept_answers import NO_OPTIONS, kept_or_answered
from api.measured import measured
from api.openapi import question_body
from api.schemas import ComparisonQuestion
from predictor.answers.compare import compare
from predictor.answers.scope import coverage_of
from predictor.catalogue.offers import Offer
from predictor.cnns.layer_table import LayerTable
from predictor.models.served import Model

__all__ = ["router"]

router = APIRouter(prefix="/v1/comparisons", tags=["predictions"])


@router.post(
    "",
    summary="Compare what can be rented",
    response_model=ComparisonAnswer,
    openapi_extra={"requestBody": question_body(ComparisonQuestion)},
)
async def comparisons(request: Request) -> Response:
    """Time and cost of training one CNN on every GPU for rent, best first.

    Each GPU keeps its best batch size. Budget and deadline mark rows, they drop none; what does not fit in memory comes
    last. `pareto` marks what nothing else beats in both time and cost.
    """
    answer = partial(_answer, offers=request.app.state.offers)
    return await kept_or_answered(request, "comparison", ComparisonQuestion, answer)


def _answer(
    question: ComparisonQuestion, table: LayerTable, model: Model, offers: tuple[Offer, ...]
) -> bytes:
    options = question.model_dump(exclude=NO_OPTIONS)
    rows = compare(
        table,
        question.batch_sizes,
        question.gpus,
        **options,
        anchors=[each.model_dump(exclude_none=True) for each in question.anchors],
        measurements=measured(question.measurements, model),
        offers=offers,
        model=model,
    )
    covers = coverage_of(rows[0].host, model=model, trained_on=[row.trained_on for row in rows], **options)
    return to_json({"covers": covers, "rows": [asdict(row) for row in rows]}, inf_nan_mode="constants")
