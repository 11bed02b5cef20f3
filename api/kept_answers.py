"""Answers kept by the bytes of their questions; a new one is computed in a thread, one at a time."""

from collections.abc import Callable
from typing import TypeVar

from fastapi import Request, Response

from api.answering import Answering
from api.questions import body_of, question_of
from api.schemas import ComparisonQuestion, ExplanationQuestion
from api.workers import answer_gate, run_apart
from predictor.cnns.layer_table import LayerTable
from predictor.models.served import Model

__all__ = ["NO_OPTIONS", "kept_or_answered"]

Q = TypeVar("Q", ComparisonQuestion, ExplanationQuestion)

NO_OPTIONS = {"cnn", "layer_table", "onnx", "image_size", "gpus", "batch_sizes", "anchors", "measurements"}
"""Fields of a question that are no options of the core by the same name."""


async def kept_or_answered(
    request: Request, word: str, kind: type[Q], answer: Callable[[Q, LayerTable, Model], bytes]
) -> Response:
    """Give the answer of an earlier request of the same bytes, else the one that `answer` works out.

    Answers belong to the model that is served; `word` keeps those of one route apart from another's.
    """
    state = request.app.state
    answering: Answering = state.answering.of(state.served.current)
    state.answering = answering
    body = await body_of(request)
    asked = (word, body.content)
    known = answering.answers.find(asked) if body.is_json else None
    if known is None:
        answer_gate(request).check()  # before the question is taken apart
        question, table = await question_of(body, kind)
        known = await run_apart(request, answer, question, table, answering.model)
        if body.is_json:
            answering.answers.keep(asked, known, len(body.content) + len(known))
    return Response(known, media_type="application/json")
