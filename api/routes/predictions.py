"""`POST /v1/predictions`: how long an epoch takes, what it costs, whether it fits, for many GPUs and batch sizes.

Included by the application; calls the core's `predict`, whose answers these are, field by field.
"""

from dataclasses import asdict
from itertools import product
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from api.answers import TEXT_COLUMNS, PredictionAnswer
from api.measured import measured
from api.openapi import question_body
from api.questions import read_question
from api.schemas import PredictionQuestion
from api.workers import run_apart
from predictor.coverage import coverage_of
from predictor.errors import OutOfRangeError
from predictor.gpus import all_gpus, find_gpu, precisions_of
from predictor.layers import LayerTable
from predictor.model import Model
from predictor.offers import Offer
from predictor.predict import predict
from predictor.prediction_rows import PredictionRow

if TYPE_CHECKING:
    from predictor.own_measurements import OwnMeasurements

__all__ = ["answer", "check_rows", "router"]

router = APIRouter(prefix="/v1/predictions", tags=["predictions"])

_SHARED = (
    "samples",
    "data_set",
    "validation_samples",
    "framework",
    "autotune",
    "capture",
    "optimizer",
    "method",
    "host",
    "spot",
)


@router.post(
    "",
    summary="Predict time, cost and memory",
    response_model=PredictionAnswer,
    openapi_extra={"requestBody": question_body(PredictionQuestion)},
)
async def predictions(request: Request) -> Response:
    """Time of an iteration and an epoch, cost and memory of one CNN on every GPU at every batch size.

    The CNN is a name of the zoo, a layer table, or an ONNX file (base64, or as a file in a form). Every combination of
    GPU, batch size, precision and memory format is a row; a GPU that lacks one of several precisions is left out there.
    """
    question, table = await read_question(request, PredictionQuestion)
    state = request.app.state
    check_rows(question, state.settings.max_rows)
    content = await run_apart(request, _answer, question, table, state.served.current, state.offers)
    return Response(content, media_type="application/json")


def _answer(
    question: PredictionQuestion, table: LayerTable, model: Model, offers: tuple[Offer, ...]
) -> bytes:
    content = answer(question, table, measured(question.measurements, model), model, offers)
    return to_json(content, inf_nan_mode="constants")


def answer(
    question: PredictionQuestion,
    table: LayerTable,
    own: "OwnMeasurements | None",
    model: Model,
    offers: tuple[Offer, ...],
) -> dict[str, Any]:
    """Answer a question, from someone's own measurements where there are any."""
    shared = question.model_dump(include=set(_SHARED))
    anchors = [each.model_dump(exclude_none=True) for each in question.anchors]
    rows: list[PredictionRow] = []
    covers, left_out = [], []
    for precision, memory_format in product(
        dict.fromkeys(question.precisions), dict.fromkeys(question.memory_formats)
    ):
        gpus, lacking = _gpus(question, precision)
        left_out += lacking
        mode: dict[str, Any] = {"precision": precision, "memory_format": memory_format}
        found = predict(
            table, gpus, question.batch_sizes, **shared, **mode, anchors=anchors, measurements=own,
            offers=offers, model=model,
        )  # fmt: skip
        rows += found
        trained_on = [row.trained_on for row in found]
        covers.append(coverage_of(found[0].host, model=model, trained_on=trained_on, **shared, **mode))
    content: dict[str, Any] = {"covers": covers, "left_out": list({str(e): e for e in left_out}.values())}
    return content | ({"rows": [asdict(row) for row in rows]} if question.form == "rows" else _columns(rows))


def check_rows(question: PredictionQuestion, most: int) -> None:
    """Refuse more rows than are answered at once; OutOfRangeError."""
    n_gpus = len(all_gpus()) if _all(question) else len(question.gpus)
    asked = (
        n_gpus * len(question.batch_sizes) * len(set(question.precisions)) * len(set(question.memory_formats))
    )
    if asked > most:
        raise OutOfRangeError(
            f"{asked:,} rows are asked for; at most {most:,} are answered at once. Ask in several parts."
        )


def _gpus(question: PredictionQuestion, precision: str) -> tuple[object, list[dict[str, str]]]:
    """GPUs asked for; of several precisions, those that a GPU lacks are left out, provided that it has one."""
    if _all(question) or len(set(question.precisions)) == 1:
        return question.gpus, []
    found = {gpu.name: gpu for gpu in map(find_gpu, question.gpus)}
    for gpu in found.values():
        if not {*precisions_of(gpu)} & {*question.precisions}:
            raise OutOfRangeError(
                f"{gpu.name} has none of {', '.join(question.precisions)}. It has: {', '.join(precisions_of(gpu))}."
            )
    lacking = [gpu for gpu in found.values() if precision not in precisions_of(gpu)]
    why = "the GPU has: {}"
    return [gpu for gpu in found.values() if gpu not in lacking], [
        {"gpu": gpu.name, "precision": precision, "why": why.format(", ".join(precisions_of(gpu)))}
        for gpu in lacking
    ]


def _all(question: PredictionQuestion) -> bool:
    return any(name.strip().casefold() == "all" for name in question.gpus)


def _columns(rows: list[PredictionRow]) -> dict[str, Any]:
    columns: dict[str, Any] = {}
    for name in PredictionRow.__slots__:
        values = [getattr(row, name) for row in rows]
        columns[name] = _coded(values) if name in TEXT_COLUMNS else values
    return {"n_rows": len(rows), "columns": columns}


def _coded(values: list[Any]) -> dict[str, list[Any]]:
    known = {value: code for code, value in enumerate(dict.fromkeys(values))}
    return {"values": list(known), "codes": [known[value] for value in values]}
