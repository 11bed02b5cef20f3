"""Questions whose answer is computed by one call of the core: comparisons, explanations, checks, changes, plans."""

from collections.abc import Callable
from dataclasses import asdict, replace
from inspect import getdoc
from typing import Any

from fastapi import APIRouter, Request, Response

from api.answers import CheckAnswer, ComparisonAnswer, DifferenceAnswer, ExplanationAnswer, MemoryPlanAnswer
from api.caching import in_json
from api.openapi import question_body
from api.parsing import Answering, Q, answered, with_measurements
from api.questions import (
    MAX_EXPLAINED_GPUS,
    CheckQuestion,
    ComparisonQuestion,
    DifferenceQuestion,
    ExplanationQuestion,
    MemoryPlanQuestion,
    check_work,
    core_question,
    plan_of,
)
from predictor.answers.answer import SCOPE_COLUMNS, scope_of
from predictor.answers.check import TIMES, Speed, check
from predictor.answers.compare import compare
from predictor.answers.diff import diff
from predictor.answers.explain import explain
from predictor.answers.fit_memory import fit_memory
from predictor.answers.grid import usual_batch_size
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion, load_model
from predictor.catalogue.devices import precisions_of
from predictor.catalogue.modes import MEMORY_FORMATS
from predictor.errors import OutOfRangeError

router = APIRouter(prefix="/v1", tags=["predictions"])

ANSWERING: dict[str, tuple[Any, Answering[Any]]] = {}
"""By operation, the question that it takes and the function that answers."""

_EXPLAINED_TWICE = 2  # each time: for the small-batch law and where algorithms switch
_CAUSES = 20  # answers of a check: the question's own, and one for each suspected cause
_PLANS = 20  # ways that are compared on a GPU, as a rule
_MOST_LAYERS = 1_000  # of all GPUs of a plan: each way to recompute blocks is looked at layer by layer


def _route(
    path: str, kind: type[Q], answer_model: Any, operation: str, summary: str
) -> Callable[[Answering[Q]], Answering[Q]]:
    """Answer questions of a kind, posted to a path, by the function below, whose docstring describes the operation."""

    def add(answer: Answering[Q]) -> Answering[Q]:
        async def post(request: Request) -> Response:
            return await answered(request, kind, answer)

        ANSWERING[operation] = kind, answer
        router.add_api_route(
            path, post, methods=["POST"], operation_id=operation, summary=summary, description=getdoc(answer),
            response_model=answer_model, openapi_extra={"requestBody": question_body(kind)},
        )  # fmt: skip
        return answer

    return add


@_route(
    "/comparisons", ComparisonQuestion, ComparisonAnswer, "create_comparison", "Compare what can be rented"
)
def _comparison(posted: ComparisonQuestion, question: Question) -> bytes:
    """Time and cost of training one CNN on every GPU for rent, best first.

    Without batch sizes GPUs are compared at one that fits on most; of several, every GPU keeps its best. Rows that miss
    budget or deadline follow those that hold both; what does not fit in memory comes last. `pareto` marks what nothing
    else beats in both time and cost. `verdict` says in a sentence and as data what to rent.
    """
    resolved = ResolvedQuestion.of(question)
    gpus = len(resolved.devices if posted.gpus else {offer.gpu for offer in resolved.prices})
    check_work(resolved, gpus, repeats=2)  # its mode and the fastest; before measurements are fitted
    question = with_measurements(question, posted)
    check_work(ResolvedQuestion(question), gpus, repeats=2)  # and with their runs
    comparison = compare(question, plan_of(posted))
    about = {"verdict": comparison.verdict, "covers": comparison.scope, "left_out": resolved.left_out}
    return in_json(about | {"rows": comparison.rows})


@_route(
    "/explanations", ExplanationQuestion, ExplanationAnswer,
    "create_explanation", "Explain what the time is made of",
)  # fmt: skip
def _explanation(posted: ExplanationQuestion, question: Question) -> bytes:
    """What an iteration of one CNN in one mode is made of, on each GPU, at every batch size.

    Time by class of operators, what bounds the iteration, the law of small batches, where measured algorithms switch,
    and every other precision and memory format that the GPU has. Times are those of `/v1/predictions`.
    """
    _check_explained(question)  # before measurements are fitted
    question = with_measurements(question, posted)
    _check_explained(question)
    explanations, scope = explain(question)
    resolved = ResolvedQuestion.of(question)
    about = [{name: [getattr(explanation, name)] for name in SCOPE_COLUMNS} for explanation in explanations]
    content = {
        "covers": [scope_of(resolved, resolved.known.model, columns) for columns in about],
        "covers_together": scope,
        "left_out": resolved.left_out,
        "explanations": explanations,
    }
    return in_json(content)


def _check_explained(question: Question) -> None:
    """Refuse an explanation of too many GPUs or too much work, OutOfRangeError; each mode of each GPU counts."""
    resolved = ResolvedQuestion(question)
    gpus = [gpu for gpu, _ in resolved.devices]
    if len(gpus) > MAX_EXPLAINED_GPUS:
        raise OutOfRangeError(
            f"{len(gpus)} GPUs are too many: at most {MAX_EXPLAINED_GPUS} are explained at once. Name some."
        )
    modes = max((len(precisions_of(gpu)) * len(MEMORY_FORMATS) for gpu in gpus), default=1)
    check_work(resolved, len(gpus), modes, repeats=_EXPLAINED_TWICE)


@_route("/checks", CheckQuestion, CheckAnswer, "create_check", "Check the speed of a training")
def _check(posted: CheckQuestion, question: Question) -> bytes:
    """Whether a training is as fast as it should be, and what explains it best if not.

    Causes are ranked by their probability, with the time of an iteration and what mending saves.
    """
    sizes = question.batch_sizes or [usual_batch_size(question)]
    check_work(ResolvedQuestion(replace(question, batch_sizes=sizes)), 1, _CAUSES)
    speed = Speed(**{name: getattr(posted, name) for name in (*TIMES, "waiting_share")})
    checkup = check(with_measurements(question, posted), speed, posted.epochs)
    return in_json({"sentence": checkup.sentence, "checkup": checkup})


@_route(
    "/differences", DifferenceQuestion, DifferenceAnswer,
    "create_difference", "Say what a change of a CNN costs",
)  # fmt: skip
def _difference(posted: DifferenceQuestion, question: Question) -> bytes:
    """Time, memory and cost before and after a change of a CNN, and the layers that differ.

    The interval of the ratio is narrower than those of the times: errors of what both CNNs share cancel.
    """
    offers = ResolvedQuestion.of(question).prices
    after = core_question(posted.changed, posted.gpus, load_model(question.model), offers)
    for side in map(ResolvedQuestion, (question, after)):
        check_work(side, len(side.devices), 2)  # its rows and its time by class
    before = with_measurements(question, posted)
    differences = diff(before, replace(after, measurements=before.measurements))
    return in_json({"differences": [{"sentence": row.sentence, **asdict(row)} for row in differences]})


@_route("/memory_plans", MemoryPlanQuestion, MemoryPlanAnswer, "create_memory_plan", "Make a training fit")
def _memory_plan(posted: MemoryPlanQuestion, question: Question) -> bytes:
    """The cheapest way to train one CNN at its mini-batch in the memory of GPUs, within budget and deadline.

    A plan is a mode, parts of the mini-batch, and blocks that are recomputed; `code` is PyTorch that does it. `without`
    holds the best plan without each of its concessions.
    """
    resolved, gpus = ResolvedQuestion(question), len(posted.gpus)
    layers = len(resolved.tables[0])
    if layers * gpus > _MOST_LAYERS:
        raise OutOfRangeError(
            f"{layers:,} layers x {gpus} GPUs are too much work for one answer (at most {_MOST_LAYERS:,}). "
            "Ask in several parts: fewer GPUs."
        )
    check_work(resolved, gpus, repeats=_PLANS)
    plans = fit_memory(with_measurements(question, posted), plan_of(posted), posted.memory_gib, posted.allow)
    content = {"sentence": plans.sentence, "lines": plans.lines()}
    return in_json(content | {"best": plans.best, "without": plans.without})
