"""`POST /v1/cnns`: your own CNN as the layer table that every question takes, with its sums. Nothing is stored.

A client with an ONNX file sends it here once, and then its layers with each question.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser
from typing import Any

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import BaseModel, Field
from pydantic_core import from_json

from api.bodies import read_body
from api.caching import File, file_response, in_json
from api.layer_tables import LayerTableIn
from api.onnx_process import read_onnx
from api.serving import client_of, serving_of
from predictor.checks import MAX_IMAGE_SIZE
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import SchemaError
from predictor.operators.work import cnn_flops

MAX_ONNX_BYTES = 16 * 2**20
MAX_FORM_BYTES = MAX_ONNX_BYTES + 2**20
"""Of a form with an ONNX file and an image size."""

_MOST_HEADER_BYTES = 4096  # of a field of a form
_FORM = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "title": "OwnCnn",
                "required": ["onnx"],
                "additionalProperties": False,
                "properties": {
                    "onnx": {"type": "string", "format": "binary", "description": "An ONNX file."},
                    "image_size": {
                        "type": "integer",
                        "minimum": 1,
                        "maximum": MAX_IMAGE_SIZE,
                        "description": "Pixels of a side, where the file leaves it open.",
                    },
                },
            }
        }
    },
}

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
    serving, client = serving_of(request), client_of(request)
    serving.onnx_queue.check(client)  # before a file of 16 MiB is read
    content = await read_body(request, MAX_FORM_BYTES, "Send the file without its weights, or its layers.")
    file = await serving.model_queue.run(client, _file, content, form)
    table = await serving.onnx_queue.run(client, read_onnx, *file)
    return file_response(request, await serving.model_queue.run(client, _answer, table))


def example() -> Any:
    """What is read in the file of a small CNN."""
    return from_json(_answer(zoo_cnn("lenet5")).content)


def _file(content: bytes, content_type: str) -> tuple[bytes, str, int | None]:
    """The file of a form, its name, and the size of images where it leaves that open."""
    parts = {part.name: part for part in _form_parts(content, content_type, ("onnx", "image_size"))}
    file, size = parts.get("onnx"), parts.get("image_size")
    if file is None or file.file_name is None:
        raise SchemaError("the form has no file. Send it as the field onnx.")
    return _sized(file.content), _plain(file.file_name), _image_size(size.content) if size else None


def _image_size(text: bytes) -> int:
    if text.isdigit() and len(text) < 10 and 1 <= int(text) <= MAX_IMAGE_SIZE:
        return int(text)
    raise SchemaError(
        f"image_size is {text[:80].decode('utf-8', 'replace')!r}. Valid: 1 to {MAX_IMAGE_SIZE:,} pixels."
    ).about("image_size")


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


@dataclass(frozen=True, slots=True)
class _Part:
    """A field of a form; `file_name` is None where it is no file."""

    name: str
    file_name: str | None
    content: bytes


def _form_parts(body: bytes, content_type: str, fields: Sequence[str]) -> list[_Part]:
    """The fields of a form, each at most once.

    Raises
    ------
    HTTPException
        400 if the form is damaged.
    SchemaError
        If it has another field than these, or one twice.
    """
    outer = Message()
    outer["Content-Type"] = content_type
    boundary = outer.get_boundary()
    if not boundary:
        raise _damaged("its Content-Type names no boundary")
    parts = list(_parts(body, b"--" + boundary.encode("utf-8", "surrogateescape"), len(fields)))
    names = [part.name for part in parts]
    for name in names:
        if name not in fields:
            raise SchemaError(f"the form has a field {name[:80]!r}. Valid: {', '.join(fields)}.")
        if names.count(name) > 1:
            raise SchemaError(f"the form has the field {name!r} twice. Send it once.")
    return parts


def _parts(body: bytes, delimiter: bytes, most: int) -> Iterator[_Part]:
    sections = (b"\r\n" + body).split(b"\r\n" + delimiter, most + 2)
    if len(sections) < 2 or not sections[-1].startswith(b"--"):
        raise _damaged(f"it does not end with its boundary, or has more than {most} fields")
    for section in sections[1:-1]:
        head, separator, content = section.partition(b"\r\n\r\n")
        if not separator or len(head) > _MOST_HEADER_BYTES or head.strip(b" \t")[:2] != b"\r\n":
            raise _damaged("a field has no head")
        headers = BytesHeaderParser().parsebytes(head.lstrip(b" \t")[2:])
        name = headers.get_param("name", header="content-disposition")
        if headers.get_content_disposition() != "form-data" or not isinstance(name, str):
            raise _damaged("a field has no name")
        yield _Part(name, headers.get_filename(), content)


def _damaged(why: str) -> HTTPException:
    return HTTPException(400, f"the form is damaged: {why}. Send the file as its field onnx.")
