"""`POST /v1/explanations`: what the time of an iteration is made of, what bounds it, what another mode would give."""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response

from api.answers import ExplanationAnswer
from api.caching import in_json
from api.openapi import question_body
from api.parsing import answered, fitted
from api.questions import MAX_EXPLAINED_GPUS, SEARCHED, ExplanationQuestion, check_work, core_question
from predictor.answers.explain import explain
from predictor.answers.question import Question
from predictor.answers.scope import SCOPE_COLUMNS, scope_of
from predictor.catalogue.devices import precisions_of
from predictor.catalogue.modes import MEMORY_FORMATS
from predictor.catalogue.offers import Offer
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.models.served import Model

__all__ = ["answer_to", "router"]

router = APIRouter(prefix="/v1/explanations", tags=["predictions"])

_REPEATS = 2  # of each time: for the small-batch law and where algorithms switch


@router.post(
    "",
    operation_id="create_explanation",
    summary="Explain what the time is made of",
    response_model=ExplanationAnswer,
    openapi_extra={"requestBody": question_body(ExplanationQuestion)},
)
async def explanations(request: Request) -> Response:
    """What an iteration of one CNN in one mode is made of, on each GPU, at every batch size.

    Time by class of operators, what bounds the iteration, the law of small batches, where measured algorithms switch,
    and every other precision and memory format that the GPU has. Times are those of `/v1/predictions`.
    """
    return await answered(request, ExplanationQuestion, answer_to)


def answer_to(posted: ExplanationQuestion, table: LayerTable, model: Model, offers: Sequence[Offer]) -> bytes:
    """The answer in JSON."""
    question = core_question(posted, table, posted.gpus, None, model, offers)
    _check_work(question, table, model)  # before measurements are fitted
    question = core_question(posted, table, posted.gpus, fitted(posted, model), model, offers)
    gpu_explanations, scope = explain(question)
    covers = [
        scope_of(
            question,
            model,
            {name: [getattr(explanation, name)] for name in SCOPE_COLUMNS},
        )
        for explanation in gpu_explanations
    ]
    content = {
        "covers": covers,
        "covers_together": scope,
        "explanations": gpu_explanations,
    }
    return in_json(content)


def _check_work(question: Question, table: LayerTable, model: Model) -> None:
    """Refuse what would work too long: every mode of each GPU is answered."""
    gpus = [gpu for gpu, _ in question.devices()]
    if len(gpus) > MAX_EXPLAINED_GPUS:
        raise OutOfRangeError(
            f"{len(gpus)} GPUs are too many: at most {MAX_EXPLAINED_GPUS} are explained at once. Name some."
        )
    modes = max((len(precisions_of(gpu)) * len(MEMORY_FORMATS) for gpu in gpus), default=1)
    check_work(table, model, len(gpus), modes, len(question.batch_sizes or SEARCHED), repeats=_REPEATS)
