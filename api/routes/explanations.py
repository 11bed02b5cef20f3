"""`POST /v1/explanations`: what the time of an iteration is made of, what bounds it, what another mode would give."""

from fastapi import APIRouter, Request, Response

from api.answers import ExplanationAnswer
from api.caching import in_json
from api.openapi import question_body
from api.parsing import answered, with_measurements
from api.questions import MAX_EXPLAINED_GPUS, ExplanationQuestion, check_work
from predictor.answers.asked import Asked
from predictor.answers.explain import explain
from predictor.answers.question import Question
from predictor.answers.scope import SCOPE_COLUMNS, scope_of
from predictor.catalogue.devices import precisions_of
from predictor.catalogue.modes import MEMORY_FORMATS
from predictor.errors import OutOfRangeError

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


def answer_to(posted: ExplanationQuestion, question: Question) -> bytes:
    """The answer in JSON."""
    _check_work(question)  # before measurements are fitted
    question = with_measurements(question, posted)
    _check_work(question)
    gpu_explanations, scope = explain(question)
    asked = Asked.of(question)
    covers = [
        scope_of(
            asked,
            asked.known.model,
            {name: [getattr(explanation, name)] for name in SCOPE_COLUMNS},
        )
        for explanation in gpu_explanations
    ]
    content = {
        "covers": covers,
        "covers_together": scope,
        "left_out": asked.left_out,
        "explanations": gpu_explanations,
    }
    return in_json(content)


def _check_work(question: Question) -> None:
    """Refuse what would work too long: every mode of each GPU is answered."""
    gpus = [gpu for gpu, _ in Asked.of(question).devices]
    if len(gpus) > MAX_EXPLAINED_GPUS:
        raise OutOfRangeError(
            f"{len(gpus)} GPUs are too many: at most {MAX_EXPLAINED_GPUS} are explained at once. Name some."
        )
    modes = max((len(precisions_of(gpu)) * len(MEMORY_FORMATS) for gpu in gpus), default=1)
    check_work(question, len(gpus), modes, repeats=_REPEATS)
