"""`POST /v1/predictions`: how long an epoch takes, what it costs, whether it fits, for many GPUs and batch sizes.

Included by the application; calls the core's `predict`, or, where nobody brought measurements, its columns from kept
forecasts. Both give the same numbers, field by field.
"""

from fastapi import APIRouter, Request, Response

from api.answering import Answering, packed
from api.answers import PredictionAnswer
from api.openapi import question_body
from api.predicting import kept_answer, made_answer, parts_of
from api.questions import body_of, question_of
from api.schemas import PredictionQuestion
from api.workers import run_apart

__all__ = ["router"]

router = APIRouter(prefix="/v1/predictions", tags=["predictions"])


@router.post(
    "",
    summary="Predict time, cost and memory",
    response_model=PredictionAnswer,
    openapi_extra={"requestBody": question_body(PredictionQuestion)},
)
async def predictions(request: Request) -> Response:
    """Time of an iteration and an epoch, cost and memory of one CNN on every GPU at every batch size.

    The CNN is a name of the zoo, a layer table, or an ONNX file (base64, or as a file in a form). Every combination of
    precision, memory format, GPU and batch size is a row; a GPU that lacks one of several precisions is left out there.
    """
    state = request.app.state
    answering: Answering = state.answering.of(state.served.current)
    state.answering = answering
    body = await body_of(request)
    accepted = request.headers.get("accept-encoding", "")
    asked = body.content if body.is_json else None
    if asked is not None and (found := answering.kept.find(asked, "gzip" in accepted)) is not None:
        return _response(found, found[:2] == b"\x1f\x8b")
    question, table = await question_of(body, PredictionQuestion)
    parts = parts_of(question, state.settings.max_rows)
    content = kept_answer(question, table, parts, answering)
    if content is None:
        content = await run_apart(request, made_answer, question, table, parts, answering)
    answer, is_packed = packed(content, accepted)
    if asked is not None:
        answering.kept.keep(asked, "gzip" in accepted, answer)
    return _response(answer, is_packed)


def _response(content: bytes, is_packed: bool) -> Response:
    headers = {"Vary": "Accept-Encoding"} | ({"Content-Encoding": "gzip"} if is_packed else {})
    return Response(content, media_type="application/json", headers=headers)
