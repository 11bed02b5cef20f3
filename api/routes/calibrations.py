"""`/v1/calibrations`: answers from measurements of a GPU that the served model does not know, such as a quick profile.

The rows come with the question, and then nothing is stored and no key needed, or from the store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from fastapi import APIRouter, Request, Response
from pydantic_core import from_json
from sqlalchemy import Engine

from api.answers import CalibrationAnswer
from api.caching import File, file_response, in_json
from api.openapi import question_body
from api.parsing import first_example, json_of, question_of
from api.questions import CalibrationQuestion, StoredRows, check_runs, core_question
from api.routes.predictions import predicted
from api.serving import ServingState, Snapshot, address_of, in_turn, serving_of
from api.store.measurements import find_rows, frame_of
from api.store.uploads import MAX_ROWS, rows_of, table_sent
from predictor.answers.resolved import OwnMeasurements
from predictor.errors import DataError, SchemaError
from predictor.measurements.table import canonical_gpu_name

if TYPE_CHECKING:
    import pandas as pd

router = APIRouter(prefix="/v1/calibrations", tags=["measurements"])


@dataclass(frozen=True, slots=True)
class _Measurements:
    """The measurements to answer from, under a name that is the same for the same rows."""

    frame: pd.DataFrame
    name: str
    keys: dict[str, int]


@router.post(
    "",
    operation_id="create_calibration",
    summary="Predict from your own measurements",
    response_model=CalibrationAnswer,
    openapi_extra={"requestBody": question_body(CalibrationQuestion)},
)
async def calibrate(request: Request) -> Response:
    """Predict any CNN from measured operators (`epochcast profile --preset quick`), at once.

    A question as for `/v1/predictions` with up to 10,000 rows of `measurements`, or with `stored`, which finds them in
    the store. The prediction sums the measured operators of the question's GPU and mode; measurements of the CNN
    itself correct it.
    """
    queue = serving_of(request).upload_queue
    queue.check(address_of(request.client))  # before 16 MiB are read
    file = await in_turn(request, queue, _answer, await json_of(request), request.app.state)
    return file_response(request, file)


def example(state: Any) -> Any:
    """Answer, as parsed JSON, of the service's `state` to the first example of a calibration question."""
    return from_json(_answer(first_example(CalibrationQuestion), state).content)


def _answer(body: bytes, state: Any) -> File:
    posted = question_of(body, CalibrationQuestion)
    serving: ServingState = state.serving
    snapshot = serving.model.snapshot
    measurements = _stored(posted.stored, state.store) if posted.stored else _sent(posted.measurements)
    gpus = posted.gpus or sorted(set(measurements.frame["gpu"]))
    question = core_question(posted, gpus, snapshot.model, serving.offers)
    question = replace(question, measurements=_fitted(measurements, snapshot))
    kinds = Counter(measurements.frame["kind"].fillna("target"))
    measured = {"operators": kinds["operator"], "targets": kinds["target"], "keys": measurements.keys}
    content = predicted(posted, question, state.settings.max_rows) | {"measured": measured}
    return File(in_json(content)).with_gzip()


def _fitted(measurements: _Measurements, snapshot: Snapshot) -> OwnMeasurements:
    """The measurements fitted on top of the served model, once for all questions about the same rows."""
    fitted = snapshot.fits.get(measurements.name)
    if fitted is None:
        check_runs(measurements.frame)
        fitted = snapshot.fits[measurements.name] = OwnMeasurements.of(measurements.frame, snapshot.model)
    return fitted


def _sent(rows: list[dict[str, Any]] | dict[str, list[Any]]) -> _Measurements:
    frame, checked = rows_of(table_sent(rows))
    return _Measurements(frame, _name(sorted(row.sha256 for row in checked)), {})


def _stored(stored: StoredRows, store: Engine | None) -> _Measurements:
    if store is None:
        raise DataError(
            "this service runs without a measurement store. Send the measurements with the question."
        )
    filters = stored.model_dump(exclude_none=True) | {"gpu": canonical_gpu_name(stored.gpu)}
    page = find_rows(store, filters, limit=MAX_ROWS)
    if page.more:
        raise SchemaError(
            f"more than {len(page.rows):,} stored rows are of this kind. Name a host, source, key or upload."
        )
    if not page.rows:
        raise DataError(
            f"no measurement of {filters['gpu']} is stored that fits. `GET /v1/measurements` shows what is."
        )
    keys = dict(Counter(row.key for row in page.rows))
    return _Measurements(frame_of(page.rows), _name([row.content for row in page.rows]), keys)


def _name(parts: Sequence[str]) -> str:
    return sha256("\n".join(parts).encode()).hexdigest()
