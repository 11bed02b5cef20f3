"""`POST /v1/cnns`: a CNN of one's own as the layer table that every question takes, with its sums. Nothing is stored.

A client with an ONNX file sends it here once, and then its layers with each question.
"""

import base64
import binascii
import re
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel, Field
from pydantic_core import to_json

from api.bodies import read_body
from api.forms import form_parts
from api.layer_tables import LayerTableIn, as_sent
from api.onnx_process import read_onnx
from api.openapi import question_body
from api.parsing import MAX_JSON_BYTES, own_table, validated
from api.questions import MAX_ONNX_BYTES, OwnCnn
from api.serving import client_of, serving_of
from predictor.cnns.layer_table import LayerTable
from predictor.errors import SchemaError
from predictor.operators.work import cnn_flops

__all__ = ["MAX_FORM_BYTES", "router"]

MAX_FORM_BYTES = MAX_ONNX_BYTES + 2**20
"""Of a form with an ONNX file and an image size."""

_FORMS = {"application/json": MAX_JSON_BYTES, "multipart/form-data": MAX_FORM_BYTES}
_FIELDS = ("question", "onnx")

router = APIRouter(prefix="/v1/cnns", tags=["catalogue"])


class ReadCnn(BaseModel):
    """A CNN as it was read: its sums, and `layer_table`, which other questions take instead of the file."""

    cnn: str
    image_size: int
    parameters: int
    forward_flops_per_image: float
    training_flops_per_image: float
    layer_table: LayerTableIn = Field(
        description="Rows in the order in which they run; what is unknown is left out."
    )


@router.post(
    "",
    summary="Read a CNN of your own",
    response_model=ReadCnn,
    openapi_extra={"requestBody": question_body(OwnCnn, with_file=True)},
)
async def read(request: Request) -> Response:
    """The layers of an ONNX file, or of a layer table, checked, with parameters and operations.

    A multiply-add counts as two operations; training is the forward pass and both backward passes. Nothing is stored.
    """
    form = request.headers.get("content-type", "").split(";")[0].strip().casefold()
    if form not in _FORMS:
        raise HTTPException(415, f"Content-Type is {form[:80]!r}. Valid: {', '.join(_FORMS)}.")
    serving, client = serving_of(request), client_of(request)
    queue = serving.model_queue if form == "application/json" else serving.onnx_queue
    queue.check(client)  # before a file of 16 MiB is read
    content = await read_body(request, _FORMS[form], "Send the file without its weights, or its layer table.")
    if form == "application/json":
        found = await serving.model_queue.run(client, _from_json, content)
    else:
        found = await serving.model_queue.run(client, _from_form, content, request.headers["content-type"])
    if not isinstance(found, bytes):
        table = await serving.onnx_queue.run(client, read_onnx, *found)
        found = await serving.model_queue.run(client, _answer, table)
    return Response(found, media_type="application/json")


_File = tuple[bytes, str, int | None]


def _from_json(content: bytes) -> bytes | _File:
    """The answer about layers, or the file to be read."""
    asked = validated(content, OwnCnn)
    if (asked.layer_table is None) == (asked.onnx is None):
        raise SchemaError("Give one CNN: as layer_table or as onnx.")
    if asked.layer_table is not None:
        return _answer(own_table(asked.layer_table, asked.image_size))
    try:
        file = base64.b64decode(asked.onnx or "", validate=True)
    except (binascii.Error, ValueError):
        raise SchemaError("onnx is not base64. Encode the file, or send it as multipart/form-data.") from None
    return _sized(file), "upload", asked.image_size


def _from_form(content: bytes, content_type: str) -> bytes | _File:
    parts = {part.name: part for part in form_parts(content, content_type, _FIELDS)}
    file, question = parts.get("onnx"), parts.get("question")
    asked = validated(question.content if question else b"{}", OwnCnn)
    if file is not None and file.file_name is None:
        raise SchemaError("the form's onnx is no file.")
    if question is not None and question.file_name is not None:
        raise SchemaError("the form's question is no text.")
    if file is None or asked.layer_table is not None or asked.onnx is not None:
        raise SchemaError("Give one CNN: the form's field onnx, a file.")
    return _sized(file.content), _plain(file.file_name or ""), asked.image_size


def _sized(file: bytes) -> bytes:
    if len(file) > MAX_ONNX_BYTES:
        raise HTTPException(
            413, f"the ONNX file is larger than {MAX_ONNX_BYTES:,} bytes. Send its layer table."
        )
    return file


def _plain(name: str) -> str:
    """A file's name without folders, its ending and what is neither letter nor digit."""
    stem = re.split(r"[/\\]", name)[-1].removesuffix(".onnx")
    return re.sub(r"[^\w.-]+", "_", stem, flags=re.ASCII).strip("._-")[:80] or "upload"


def _answer(table: LayerTable) -> bytes:
    content: dict[str, Any] = {
        "cnn": table.cnn,
        "image_size": table.image_size,
        "parameters": table.parameters,
        "forward_flops_per_image": cnn_flops(table, 1, ("forward",)),
        "training_flops_per_image": cnn_flops(table, 1),
        "layer_table": as_sent(table),
    }
    return to_json(content, inf_nan_mode="null")
