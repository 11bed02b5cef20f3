"""Forms with a file (multipart/form-data), taken apart as a whole: their size is bounded before."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import BytesHeaderParser

from fastapi import HTTPException

from predictor.errors import SchemaError

__all__ = ["Part", "form_parts"]

_MOST_HEADER_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Part:
    """A field of a form; `file_name` is None where it is no file."""

    name: str
    file_name: str | None
    content: bytes


def form_parts(body: bytes, content_type: str, fields: Sequence[str]) -> list[Part]:
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


def _parts(body: bytes, delimiter: bytes, most: int) -> Iterator[Part]:
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
        yield Part(name, headers.get_filename(), content)


def _damaged(why: str) -> HTTPException:
    return HTTPException(400, f"the form is damaged: {why}. Send the file as its field onnx.")
