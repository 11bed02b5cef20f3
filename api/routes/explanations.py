"""`POST /v1/explanations`: what the time of an iteration is made of, what bounds it, what another mode would give.

Included by the application; calls the core's `explain`, whose answers these are, field by field.
"""

from dataclasses import asdict

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from api.answers import ExplanationAnswer
from api.kept_answers import NO_OPTIONS, kept_or_answered
from api.measured import measured
from api.openapi import question_body
from api.schemas import MAX_EXPLAINED_GPUS, ExplanationQuestion
from predictor.answers.explain import explain
from predictor.answers.question import gpus_of
from predictor.answers.scope import coverage_of
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.served import Model

__all__ = ["router"]

router = APIRouter(prefix="/v1/explanations", tags=["predictions"])

_MOST_WORK = 400_000
"""Layers x GPUs x batch sizes: some seconds of work, since every mode of the GPU is answered."""


@router.post(
    "",
    summary="Explain what the time is made of",
    response_model=ExplanationAnswer,
    openapi_extra={"requestBody": question_body(ExplanationQuestion)},
)
async def explanations(request: Request) -> Response:
    """What an iteration of one CNN in one mode is made of, on each GPU, at every batch size.

    Time by class of operators, what bounds the iteration, the law of small batches, where measured algorithms switch,
    and every other precision and memory format that the GPU has. Times are those of `/v1/predictions`.
    """
    return await kept_or_answered(request, "explanation", ExplanationQuestion, _answer)


def _answer(question: ExplanationQuestion, table: LayerTable, model: Model) -> bytes:
    gpus = gpus_of(question.gpus, question.precision)
    if len(gpus) > MAX_EXPLAINED_GPUS:
        raise OutOfRangeError(
            f"{len(gpus)} GPUs are asked about; at most {MAX_EXPLAINED_GPUS} are explained at once. Name some."
        )
    sizes = set(question.batch_sizes)
    work = len(table) * len(gpus) * len(sizes)
    if work > _MOST_WORK:
        raise OutOfRangeError(
            f"{len(table):,} layers x {len(gpus)} GPUs x {len(sizes)} batch sizes are {work:,}; at most {_MOST_WORK:,} "
            "are explained at once. Ask in several parts."
        )
    options = question.model_dump(exclude=NO_OPTIONS)
    found = explain(
        table,
        gpus,
        question.batch_sizes,
        **options,
        anchors=[each.model_dump(exclude_none=True) for each in question.anchors],
        measurements=measured(question.measurements, model),
        model=model,
    )
    covers = [coverage_of(each.host, model=model, trained_on=[each.trained_on], **options) for each in found]
    together = coverage_of(
        found[0].host, model=model, trained_on=[each.trained_on for each in found], **options
    )
    content = {
        "covers": covers,
        "covers_together": together,
        "explanations": [asdict(each) for each in found],
    }
    return to_json(content, inf_nan_mode="constants")
