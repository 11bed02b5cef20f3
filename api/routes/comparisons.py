"""`POST /v1/comparisons`: which GPU to rent, ranked, with the Pareto front of time and cost.

Included by the application; calls the core's `compare`, whose answers these are, field by field.
"""

from dataclasses import asdict

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from api.answering import Answering
from api.answers import ComparisonAnswer
from api.measured import measured
from api.openapi import question_body
from api.questions import body_of, question_of
from api.schemas import ComparisonQuestion
from api.workers import run_apart
from predictor.compare import compare
from predictor.coverage import coverage_of
from predictor.layers import LayerTable
from predictor.model import Model
from predictor.offers import Offer

__all__ = ["router"]

router = APIRouter(prefix="/v1/comparisons", tags=["predictions"])

_APART = ("cnn", "layer_table", "onnx", "image_size", "gpus", "batch_sizes", "anchors", "measurements")


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
    state = request.app.state
    answering: Answering = state.answering.of(state.served.current)
    state.answering = answering
    body = await body_of(request)
    asked = ("comparison", body.content)
    known = answering.answers.find(asked) if body.is_json else None
    if known is None:
        question, table = await question_of(body, ComparisonQuestion)
        known = await run_apart(request, _answer, question, table, answering.model, state.offers)
        if body.is_json:
            answering.answers.keep(asked, known, len(body.content) + len(known))
    return Response(known, media_type="application/json")


def _answer(
    question: ComparisonQuestion, table: LayerTable, model: Model, offers: tuple[Offer, ...]
) -> bytes:
    options = question.model_dump(exclude=set(_APART))
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
