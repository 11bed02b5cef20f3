"""`/v1/calibrations`: answers from measurements of a GPU that the served model does not know, such as a quick profile.

Included by the application; calls the core's `predict` with these measurements, in a thread behind the gate. The rows
come with the question, and then nothing is stored and no key needed, or from the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from sqlalchemy import Engine

from api.bodies import read_body
from api.calibrated import Calibrations
from api.routes.measurements import MAX_BODY_BYTES, gate_of
from api.served_model import ServedModel
from api.store.intake import rows_of
from api.store.measurements import find_rows, frame_of
from api.store.upload_tables import MAX_ROWS, parsed_json, table_of_rows
from predictor.errors import DataError, SchemaError, UnknownCnnError, nearest
from predictor.inputs import MAX_BATCH_SIZE, MAX_IMAGE_SIZE, MAX_SAMPLES
from predictor.measurements import canonical_gpu_name

if TYPE_CHECKING:
    import pandas as pd

    from predictor.model import Model

__all__ = ["Calibration", "CalibrationQuestion", "router"]

_Word = Annotated[str, Field(max_length=300, pattern=r"^[^\u0000]*$")]

router = APIRouter(prefix="/v1/calibrations", tags=["measurements"])


class StoredRows(BaseModel):
    """Which rows of the store to answer from; all must hold."""

    model_config = ConfigDict(extra="forbid")

    gpu: _Word = Field(description="Any name of the GPU.")
    host: _Word | None = None
    source: _Word | None = None
    key: _Word | None = Field(None, description="Only what came with the API key of this name.")
    upload: int | None = Field(None, ge=1, le=2**63 - 1)


class CalibrationQuestion(BaseModel):
    """What is asked, and of which stored rows where none come with it; otherwise as for a prediction."""

    model_config = ConfigDict(extra="forbid")

    stored: StoredRows | None = Field(None, description="Rows of the store, instead of `rows`.")
    cnn: _Word = Field(description="A CNN of the zoo.")
    gpus: list[_Word] = Field([], max_length=100, description="Those of the rows, if none is given.")
    batch_sizes: list[Annotated[int, Field(ge=1, le=MAX_BATCH_SIZE)]] = Field(min_length=1, max_length=100)
    image_size: int | None = Field(None, ge=1, le=MAX_IMAGE_SIZE)
    samples: int | None = Field(None, ge=1, le=MAX_SAMPLES)
    data_set: _Word | None = None
    validation_samples: int = Field(0, ge=0, le=MAX_SAMPLES)
    precision: _Word = "fp32"
    memory_format: _Word = "nchw"
    framework: _Word = "pytorch"
    autotune: bool = False
    capture: _Word = "eager"
    optimizer: _Word = "momentum"
    host: _Word | None = None
    spot: bool = False


class Calibration(BaseModel):
    """Predictions as `/v1/predictions` gives them, and what measurements they are of."""

    covers: str
    n_operators: int = Field(description="Measured operators among the rows.")
    n_targets: int = Field(description="Measured CNNs among the rows.")
    keys: dict[str, int] = Field(description="Stored rows used, by the name of the API key that sent them.")
    rows: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class _Given:
    """The measurements to answer from."""

    frame: pd.DataFrame
    name: str
    keys: dict[str, int]


@router.post("", response_model=Calibration, summary="Predict from one's own measurements")
async def calibrate(request: Request) -> Calibration:
    """Predict any CNN of the zoo from measured operators (`epochcast profile --preset quick`), at once.

    The body is a question as for `/v1/predictions` with the measurements as `rows` (columns as for
    `/v1/measurements`), or with `stored`, which finds them in the store. Operators of the GPU and mode asked about are
    what the answer adds up; measurements of the CNN itself correct it.
    """
    body = await read_body(request, MAX_BODY_BYTES)
    state = request.app.state
    if not hasattr(state, "calibrations"):
        state.calibrations = Calibrations()
    served: ServedModel = state.served
    return await gate_of(request).run(_answer, body, served.current, state.store, state.calibrations)


def _answer(body: bytes, model: Model, store: Engine | None, calibrations: Calibrations) -> Calibration:
    from predictor.coverage import coverage_of
    from predictor.predict import predict

    found = parsed_json(body)
    rows = found.pop("rows", None) if isinstance(found, dict) else None
    question = _question(found)
    given = _sent(rows, question) if rows is not None else _stored(question.stored, store)
    asked = question.model_dump(exclude={"stored", "cnn", "gpus", "batch_sizes"})
    fitted = calibrations.fit(given.frame, given.name, model)
    gpus = question.gpus or sorted(set(given.frame["gpu"]))
    answers = predict(
        _zoo_name(question.cnn), gpus, question.batch_sizes, **asked, measurements=fitted, model=model
    )
    kinds = Counter(given.frame["kind"].fillna("target"))
    return Calibration(
        covers=coverage_of(answers[0].host, model=model, **asked),
        n_operators=kinds["operator"],
        n_targets=kinds["target"],
        keys=given.keys,
        rows=[asdict(answer) for answer in answers],
    )


def _question(found: Any) -> CalibrationQuestion:
    try:
        return CalibrationQuestion.model_validate(found)
    except ValidationError as error:
        places = [{**each, "loc": ("body", *each["loc"])} for each in error.errors(include_url=False)]
        raise RequestValidationError(places) from None


def _sent(rows: Any, question: CalibrationQuestion) -> _Given:
    if question.stored is not None:
        raise SchemaError("both rows and stored are given. Send one of them.")
    frame, checked = rows_of(table_of_rows(rows))
    return _Given(frame, _name(sorted(row.sha256 for row in checked)), {})


def _stored(asked: StoredRows | None, store: Engine | None) -> _Given:
    if asked is None:
        raise SchemaError(
            "neither rows nor stored is given. Send the rows of a profile, or say which stored ones."
        )
    if store is None:
        raise DataError("this service runs without a measurement store. Send the rows with the question.")
    filters = asked.model_dump(exclude_none=True) | {"gpu": canonical_gpu_name(asked.gpu)}
    page = find_rows(store, filters, limit=MAX_ROWS)
    found = page.rows
    if page.more:
        raise SchemaError(
            f"more than {len(found):,} stored rows are of this kind. Name a host, source, key or upload."
        )
    if not found:
        raise DataError(
            f"no measurement of {filters['gpu']} is stored that fits. `GET /v1/measurements` shows what is."
        )
    return _Given(
        frame_of(found), _name([row.content for row in found]), dict(Counter(row.key for row in found))
    )


def _zoo_name(cnn: str) -> str:
    """Names of the zoo alone: the core would read a path, which is the server's."""
    from predictor.zoo import zoo_names

    if cnn not in zoo_names():
        raise UnknownCnnError(
            f"no CNN is called {cnn!r}. Nearest: {nearest(cnn, zoo_names())}. `GET /v1/cnns` shows all."
        )
    return cnn


def _name(parts: Sequence[str]) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()
