"""`POST /v1/predictions`: how long an epoch takes, what it costs, whether it fits, for many GPUs and batch sizes.

Included by the application; calls the core's `predict`, or, where nobody brought measurements, its columns from kept
forecasts. Both give the same numbers, field by field.
"""

from collections.abc import Sequence

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from api.answering import Answering, packed
from api.answers import PredictionAnswer
from api.measured import measured
from api.openapi import question_body
from api.predicting import Part, key_of, known_forecast, made_forecast, measured_answer, parts_of
from api.questions import body_of, question_of
from api.schemas import PredictionQuestion
from api.workers import answer_gate, run_apart
from predictor.cnns.layer_table import LayerTable

__all__ = ["router"]

router = APIRouter(prefix="/v1/predictions", tags=["predictions"])

_GZIP = b"\x1f\x8b"  # no JSON begins so


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
    asked = (body.content, "gzip" in accepted)
    known = answering.answers.find(asked) if body.is_json else None
    if known is not None:
        return _response(known)
    question, table = await question_of(body, PredictionQuestion)
    answer = packed(await _answer(request, question, table, answering), accepted)
    if body.is_json:
        answering.answers.keep(asked, answer, len(body.content) + len(answer))
    return _response(answer)


async def _answer(
    request: Request, question: PredictionQuestion, table: LayerTable, answering: Answering
) -> bytes:
    key, max_rows = key_of(question, table), request.app.state.settings.max_rows
    forecast = answering.prepared.find(key) if key is not None else None
    if forecast is None:
        answer_gate(
            request
        ).check()  # where the model is asked too much, other epochs of what is known are still answered
        parts = parts_of(question, max_rows)
        if question.anchors or question.measurements:
            return await run_apart(request, _measured, question, table, parts, answering)
        forecast = known_forecast(question, table, parts, answering) if key is not None else None
        if forecast is None:
            forecast = await run_apart(request, made_forecast, question, table, parts, answering)
        if key is not None:
            answering.prepared.keep(key, forecast, forecast.n_bytes)
    return forecast.answer(question, answering)


def _measured(
    question: PredictionQuestion, table: LayerTable, parts: Sequence[Part], answering: Answering
) -> bytes:
    own = measured(question.measurements, answering.model)
    return to_json(measured_answer(question, table, parts, own, answering), inf_nan_mode="constants")


def _response(content: bytes) -> Response:
    headers = {"Content-Encoding": "gzip"} if content.startswith(_GZIP) else None
    return Response(content, media_type="application/json", headers=headers)
