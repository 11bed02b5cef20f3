"""`POST /v1/memory_plans`: the cheapest way to train a CNN in the memory that there is."""

from fastapi import APIRouter, Request, Response

from api.answers import MemoryPlanAnswer
from api.caching import in_json
from api.openapi import question_body
from api.parsing import answered, with_measurements
from api.questions import MemoryPlanQuestion, check_work, plan_of
from predictor.answers.asked import Asked
from predictor.answers.fit_memory import fit_memory
from predictor.answers.question import Question
from predictor.errors import OutOfRangeError

router = APIRouter(prefix="/v1/memory_plans", tags=["predictions"])

_ANSWERS = 20  # ways that are compared on a GPU, as a rule
_MOST_LAYERS = 1_000  # of all GPUs: each way to recompute blocks is looked at layer by layer


@router.post(
    "",
    operation_id="create_memory_plan",
    summary="Make a training fit",
    response_model=MemoryPlanAnswer,
    openapi_extra={"requestBody": question_body(MemoryPlanQuestion)},
)
async def memory_plans(request: Request) -> Response:
    """The cheapest way to train one CNN at its mini-batch in the memory of GPUs, within budget and deadline.

    A plan is a mode, parts of the mini-batch, and blocks that are recomputed; `code` is PyTorch that does it. `without`
    holds the best plan without each of its concessions.
    """
    return await answered(request, MemoryPlanQuestion, answer_to)


def answer_to(posted: MemoryPlanQuestion, question: Question) -> bytes:
    """The answer in JSON."""
    layers, gpus = len(Asked.of(question).tables[0]), len(posted.gpus)
    if layers * gpus > _MOST_LAYERS:
        raise OutOfRangeError(
            f"{layers:,} layers x {gpus} GPUs are too much work for one answer (at most {_MOST_LAYERS:,}). "
            "Ask in several parts: fewer GPUs."
        )
    check_work(question, gpus, repeats=_ANSWERS)
    plans = fit_memory(with_measurements(question, posted), plan_of(posted), posted.memory_gib, posted.allow)
    return in_json(
        {"sentence": plans.sentence, "lines": plans.lines(), "best": plans.best, "without": plans.without}
    )
