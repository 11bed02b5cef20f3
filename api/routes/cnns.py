"""`POST /v1/cnns`: your own CNN as the layer table that every question takes, with its sums. Nothing is stored.

A client with an ONNX file sends it here once, and then its layers with each question.
"""

import re
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel
from pydantic_core import from_json
from python_multipart import FormParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import File as FormFile
from python_multipart.multipart import parse_options_header

from api.bodies import read_body
from api.caching import File, file_response, in_json
from api.layer_tables import LayerTableIn
from api.onnx_process import read_onnx
from api.serving import address_of, in_turn, serving_of
from api.words import described
from predictor.checks import MAX_IMAGE_SIZE
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import SchemaError
from predictor.operators.work import cnn_flops

MAX_ONNX_BYTES = 16 * 2**20
MAX_FORM_BYTES = MAX_ONNX_BYTES + 2**20
"""Of a form with an ONNX file and an image size."""

_FIELDS = ("onnx", "image_size")
_SIZE = {
    "type": "integer", "minimum": 1, "maximum": MAX_IMAGE_SIZE,
    "description": "Pixels of a side, where the file leaves it open.",
}  # fmt: skip
_OWN_CNN = {
    "type": "object", "title": "OwnCnn", "required": ["onnx"], "additionalProperties": False,
    "properties": {
        "onnx": {"type": "string", "format": "binary", "description": "An ONNX file."},
        "image_size": _SIZE,
    },
}  # fmt: skip
_FORM = {"required": True, "content": {"multipart/form-data": {"schema": _OWN_CNN}}}

router = APIRouter(prefix="/v1/cnns", tags=["catalogue"])


class ReadCnn(BaseModel):
    """A CNN as it was read: its sums, and `layer_table`, which other questions take instead of the file."""

    cnn: str
    image_size: int
    parameters: int
    forward_flops_per_image: float
    training_flops_per_image: float
    layer_table: LayerTableIn = described("ReadCnn.layer_table")


@router.post(
    "",
    summary="Read a CNN of your own",
    operation_id="create_cnn",
    response_model=ReadCnn,
    openapi_extra={"requestBody": _FORM},
)
async def read(request: Request) -> Response:
    """The layers of an ONNX file, checked, with parameters and operations.

    A multiply-add counts as two operations; training is the forward pass and both backward passes. Nothing is stored.
    """
    form = request.headers.get("content-type", "")
    if form.split(";")[0].strip().casefold() != "multipart/form-data":
        raise HTTPException(
            415,
            f"Content-Type is {form[:80]!r}. Valid: multipart/form-data, with the file as its field onnx. Layers "
            "go with the question, as its layer_table.",
        )
    serving = serving_of(request)
    serving.onnx_queue.check(address_of(request.client))  # before a file of 16 MiB is read
    content = await read_body(request, MAX_FORM_BYTES, "Send the file without its weights, or its layers.")
    file = await in_turn(request, serving.model_queue, _file, content, form)
    table = await in_turn(request, serving.onnx_queue, read_onnx, *file)
    return file_response(request, await in_turn(request, serving.model_queue, _answer, table))


def example() -> Any:
    """Answer to a file of a small CNN."""
    return from_json(_answer(zoo_cnn("lenet5")).content)


def _file(content: bytes, content_type: str) -> tuple[bytes, str, int | None]:
    """The file of a form, its name, and the size of images where it leaves that open.

    The name is without folders, its ending and what is neither letter nor digit.
    """
    parts, file_name = _form_parts(content, content_type)
    if file_name is None:
        raise SchemaError("the form has no file. Send it as the field onnx.")
    if len(parts["onnx"]) > MAX_ONNX_BYTES:
        detail = f"the ONNX file is larger than {MAX_ONNX_BYTES:,} bytes. Send its layer table."
        raise HTTPException(413, detail)
    size = parts.get("image_size")
    if size is not None and not (size.isdigit() and len(size) < 10 and 1 <= int(size) <= MAX_IMAGE_SIZE):
        raise SchemaError(
            f"image_size is {size[:80].decode('utf-8', 'replace')!r}. Valid: 1 to {MAX_IMAGE_SIZE:,} pixels."
        ).about("image_size")
    stem = re.split(r"[/\\]", file_name)[-1].removesuffix(".onnx")
    name = re.sub(r"[^\w.-]+", "_", stem, flags=re.ASCII).strip("._-")[:80] or "upload"
    return parts["onnx"], name, None if size is None else int(size)


def _answer(table: LayerTable) -> File:
    content: dict[str, Any] = {
        "cnn": table.cnn,
        "image_size": table.image_size,
        "parameters": table.parameters,
        "forward_flops_per_image": cnn_flops(table, 1, ("forward",)),
        "training_flops_per_image": cnn_flops(table, 1),
        "layer_table": table.document(),
    }
    return File(in_json(content)).with_gzip()


def _form_parts(body: bytes, content_type: str) -> tuple[dict[str, bytes], str | None]:
    """Fields of a form by name, and the name of its ONNX file, None if the field `onnx` is no file.

    HTTPException 400 if the form is damaged or cut off, SchemaError if it has another field than onnx and image_size,
    or one twice.
    """
    parts: dict[str, bytes] = {}
    file_names: list[str] = []
    ends: list[bool] = []

    def add(name: bytes | None, content: bytes) -> None:
        field = (name or b"").decode("utf-8", "replace")
        if field not in _FIELDS:
            raise SchemaError(f"the form has a field {field[:80]!r}. Valid: {', '.join(_FIELDS)}.")
        if field in parts:
            raise SchemaError(f"the form has the field {field!r} twice. Send it once.")
        parts[field] = content

    def add_file(file: FormFile) -> None:
        file.file_object.seek(0)
        add(file.field_name, file.file_object.read())
        if file.field_name == b"onnx":
            file_names.append((file.file_name or b"").decode("utf-8", "replace"))

    boundary = parse_options_header(content_type)[1].get(b"boundary")
    try:
        parser = FormParser(
            "multipart/form-data", lambda field: add(field.field_name, field.value or b""), add_file,
            on_end=lambda: ends.append(True), boundary=boundary,
            config={"MAX_MEMORY_FILE_SIZE": MAX_FORM_BYTES},
        )  # fmt: skip
        parser.write(body)
    except FormParserError as error:
        raise _damaged(str(error)[:200]) from None
    if not ends:
        raise _damaged("it does not end with its boundary")
    return parts, file_names[0] if file_names else None


def _damaged(why: str) -> HTTPException:
    return HTTPException(400, f"the form is damaged: {why}. Send the file as its field onnx.")
