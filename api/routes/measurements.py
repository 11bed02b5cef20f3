"""`/v1/measurements`: upload what `epochcast profile` measured, and find what others uploaded.

An upload is answered when it is committed, and only then; one that is sent again, because its answer was lost, changes
nothing. A request that writes needs an API key, which is looked up each time, so that a revoked one is refused at once.
"""

import csv
import io
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

from fastapi import APIRouter, HTTPException, Path, Query, Request, Response, Security
from fastapi.concurrency import run_in_threadpool
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Engine

from api.bodies import read_body
from api.caching import File, file_response
from api.serving import address_of, in_turn, serving_of
from api.store.keys import ApiKey, find_key
from api.store.measurements import Deletion, Stored, UploadReceipt, delete_upload, find_rows, store_rows
from api.store.uploads import Table, csv_table, is_formula, json_table, rows_of
from api.words import WORDS, Range
from predictor.errors import DataError
from predictor.measurements.schema import COLUMNS
from predictor.measurements.table import canonical_gpu_name

MAX_BODY_BYTES = 16 * 2**20
_ATTRIBUTION = ("id", "upload", "key", "received_at")
_FORMS: dict[str, Callable[[bytes], Table]] = {"text/csv": csv_table, "application/json": json_table}

_EXAMPLES: dict[str, Any] = WORDS["measurements"]
EXAMPLES: dict[str, dict[str, Any]] = _EXAMPLES["answers"]
"""What a new store answers to the example of an upload, then to a search, then to its deletion."""

_Id = Annotated[int, Range(1, 2**63 - 1)]
_Name = Annotated[str, Field(max_length=300, pattern=r"^[^\u0000]*$")]  # PostgreSQL refuses NUL in text

_BEARER = HTTPBearer(
    auto_error=False,
    description="An API key that `epochcast keys add` made: `Authorization: Bearer epochcast_...`",
)

router = APIRouter(prefix="/v1/measurements", tags=["measurements"])


def _store_of(request: Request) -> Engine:
    store: Engine | None = request.app.state.store
    if store is None:
        raise HTTPException(503, "this service runs without a measurement store. Set EPOCHCAST_STORE.")
    return store


async def _uploader(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Security(_BEARER)]
) -> ApiKey:
    """Find the key of a request that writes; HTTPException 401 where there is none, 403 where it was revoked."""
    key = None
    if credentials is not None:
        key = await run_in_threadpool(find_key, _store_of(request), credentials.credentials)
    if key is None:
        problem = "no API key is given" if credentials is None else "this API key is not known"
        raise HTTPException(
            401,
            f"{problem}. Send 'Authorization: Bearer KEY'; the operator of the service makes keys: "
            "`epochcast keys add`.",
            {"WWW-Authenticate": "Bearer"},
        )
    if key.problem is not None:
        raise HTTPException(403, f"the API key of {key.name!r} {key.problem}. The operator makes another.")
    request.state.api_key = key.name
    return key


class Filters(BaseModel):
    """What rows are found by; all must hold."""

    model_config = ConfigDict(extra="forbid")

    gpu: _Name | None = Field(None, description="Any name of the GPU.")
    cnn: _Name | None = None
    kind: _Name | None = Field(None, description="target, proxy or operator.")
    source: _Name | None = None
    framework: _Name | None = None
    host: _Name | None = None
    precision: _Name | None = None
    image_size: Annotated[int, Range(1, 2**31 - 1)] | None = None
    batch_size: Annotated[int, Range(1, 2**31 - 1)] | None = None
    upload: _Id | None = None
    key: _Name | None = Field(None, description="Name of the API key that sent the row first.")
    after: Annotated[int, Range(0, 2**63 - 1)] = Field(0, description="Give rows whose id is above this one.")
    limit: Annotated[int, Range(1, 10_000)] = Field(1000, description="Rows of a page at most.")
    format: Literal["json", "csv"] = "json"

    def given(self) -> dict[str, object]:
        """Filters of the request that are not null, by name; the GPU has its canonical name."""
        chosen = self.model_dump(exclude_none=True, exclude={"after", "limit", "format"})
        return chosen | ({"gpu": canonical_gpu_name(self.gpu)} if self.gpu else {})


@router.post(
    "",
    status_code=201,
    summary="Upload measurements",
    operation_id="create_measurements",
    openapi_extra={
        "parameters": [_EXAMPLES["encoding"]],
        "requestBody": {"required": True, "content": _EXAMPLES["bodies"]},
    },
)
async def upload(request: Request, key: Annotated[ApiKey, Security(_uploader)]) -> UploadReceipt:
    """Store rows of the measurement table, CSV or JSON, gzipped if you like; all of them or none.

    A row that is there already is not stored again, also if another key sent it. Answered when committed.
    """
    form = request.headers.get("content-type", "").split(";")[0].strip().casefold()
    if form not in _FORMS:
        raise HTTPException(415, f"Content-Type is {form[:80]!r}. Valid: {', '.join(_FORMS)}.")
    queue, client = serving_of(request).upload_queue, address_of(request.client)
    queue.check(client)  # before 16 MiB are read
    body = await read_body(request, MAX_BODY_BYTES)
    return await queue.run(client, _store, _store_of(request), _FORMS[form], body, key.id)


@router.get(
    "",
    summary="Find measurements",
    operation_id="list_measurements",
    responses={200: {"content": _EXAMPLES["found"]}},
    response_class=Response,
)
async def find(request: Request, filters: Annotated[Filters, Query()]) -> Response:
    """Rows by what they are, oldest first, each with its id, its upload and the name of the key that sent it.

    A page that is full ends with the address of the next: `next` in JSON, the header `Link` in both forms.
    """
    queue = serving_of(request).download_queue
    store = _store_of(request)
    page = await in_turn(request, queue, find_rows, store, filters.given(), filters.after, filters.limit)
    following = None
    if page.more:
        following = f"{request.url.path}?{urlencode({**request.query_params, 'after': page.rows[-1].id})}"
    write = _as_csv if filters.format == "csv" else _as_json
    file = await in_turn(request, queue, write, page.rows, following)
    return file_response(request, file, {"Link": f'<{following}>; rel="next"'} if following else None)


@router.delete("/uploads/{upload}", summary="Delete an upload", operation_id="delete_upload")
async def delete(
    request: Request,
    upload: Annotated[_Id, Path(examples=[1])],
    key: Annotated[ApiKey, Security(_uploader)],
) -> Deletion:
    """Delete an upload of this key, with the rows that only it brought; others pass to the next upload that has them.

    Calibrations use them no longer from then on; a model that was fitted on them keeps what it learnt.
    """
    queue, client = serving_of(request).upload_queue, address_of(request.client)
    try:
        return await queue.run(client, delete_upload, _store_of(request), upload, key.id)
    except DataError as error:
        raise HTTPException(404, str(error)) from None


def _store(store: Engine, form: Callable[[bytes], Table], body: bytes, key_id: int) -> UploadReceipt:
    return store_rows(store, rows_of(form(body))[1], key_id)


def _as_json(rows: Sequence[Stored], following: str | None) -> File:
    written = ",\n".join(json.dumps(_attribution(row))[:-1] + "," + row.content[1:] for row in rows)
    return File(f'{{"rows": [{written}], "next": {json.dumps(following)}}}'.encode()).with_gzip()


def _as_csv(rows: Sequence[Stored], _following: str | None) -> File:
    file = io.StringIO()
    writer = csv.DictWriter(file, [*_ATTRIBUTION, *(entry.name for entry in COLUMNS)], lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(_attribution(row) | {name: _cell(value) for name, value in row.row().items()})
    return File(file.getvalue().encode(), "text/csv; charset=utf-8").with_gzip()


def _attribution(row: Stored) -> dict[str, Any]:
    return {name: getattr(row, name) for name in _ATTRIBUTION}


def _cell(value: object) -> object:
    if isinstance(value, str) and is_formula(value):
        return f"'{value}"  # as text
    return str(value).lower() if isinstance(value, bool) else value
