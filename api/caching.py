"""Content as it is sent: packed once, with an ETag where clients keep it: who has it already gets 304."""

import gzip
import hashlib
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

import orjson
from cachetools import LRUCache
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.datastructures import Headers

KEPT_ANSWER_BYTES = 64 * 2**20
"""What kept answers may take, unless the operator says otherwise."""

_CACHING = "public, max-age=60"
_LEAST_PACKED = 1000  # bytes: packing less is not worth it
_LEVEL = 4  # of answers: a third of the time of the default level, and a few percent larger
_KEPT_LEVEL = 9  # of what is packed once and kept
_KEPT_BYTES = 8 * 2**20  # of each route of the catalogue
_KEPT_WITH = 300  # bytes of an answer's key and place
_NEVER = re.compile(r"q=0(\.0*)?")
_ETAG = re.compile(r'(?:W/)?"([^"]*)"')


def in_json(content: object) -> bytes:
    """An answer in JSON; a number that is not finite becomes null.

    `content`: plain values, dataclasses, and lists, tuples and dicts of these.
    """
    written = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY)
    return bytes(memoryview(written))  # orjson's own bytes hold up to four times their length while they live


@dataclass(frozen=True, slots=True)
class File:
    """Content and its media type; `packed` is its gzip, `etag` is empty where clients keep nothing."""

    content: bytes
    media_type: str = "application/json"
    packed: bytes | None = None
    etag: str = ""
    caching: str = ""

    @property
    def kept_size(self) -> int:
        """Bytes of a kept answer, with its key and the bookkeeping."""
        return len(self.content) + len(self.packed or b"") + _KEPT_WITH

    @property
    def is_packed(self) -> bool:
        """Whether nothing is left to pack."""
        return self.packed is not None or len(self.content) < _LEAST_PACKED

    def with_gzip(self, level: int = _LEVEL) -> "File":
        """The file with its gzip, where packing is worth it; call it in a thread if it may be long."""
        return self if self.is_packed else replace(self, packed=gzip.compress(self.content, level, mtime=0))

    @classmethod
    def kept(cls, content: bytes, media_type: str, caching: str) -> "File":
        """A file that clients keep, with its gzip and a weak ETag, which names packed and unpacked content."""
        etag = f'W/"{hashlib.sha256(content).hexdigest()[:16]}"'
        return cls(content, media_type, etag=etag, caching=caching).with_gzip(_KEPT_LEVEL)


class KeptRoute(APIRoute):
    """A route of the catalogue: its answers are packed in a thread, once, and clients keep them for a minute."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, whose answers get an ETag and gzip."""
        handler = super().get_route_handler()
        files: LRUCache[bytes, File] = LRUCache(_KEPT_BYTES, attrgetter("kept_size"))

        async def handled(request: Request) -> Response:
            answer = await handler(request)
            if answer.status_code != 200 or request.method != "GET":
                return answer
            content = bytes(answer.body)
            file = files.get(content)
            if file is None:
                file = await run_in_threadpool(File.kept, content, "application/json", _CACHING)
                if file.kept_size <= _KEPT_BYTES:
                    files[content] = file
            return file_response(request, file)

        return handled


def file_response(request: Request, file: File, more: Mapping[str, str] | None = None) -> Response:
    """Answer with a file, packed if the client takes gzip, and `more` headers; 304 if the client has the file."""
    headers = {"Vary": "Accept-Encoding", **(more or {})}
    if file.etag:
        headers |= {"Cache-Control": file.caching, "ETag": file.etag}
        etags = request.headers.get("if-none-match", "")  # compared weakly (RFC 9110, 13.1.2); `*` is any
        if etags.strip() == "*" or _ETAG.findall(file.etag)[0] in _ETAG.findall(etags):
            return Response(status_code=304, headers=headers)
    if file.packed is None or not accepts_gzip(request.headers):
        return Response(file.content, media_type=file.media_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(file.packed, media_type=file.media_type, headers=headers)


def accepts_gzip(headers: Headers) -> bool:
    """Whether a client takes gzip: by its name, else by `*`, with a quality above 0 (RFC 9110, 12.5.3)."""
    quality = {}
    for coding in headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = coding.partition(";")
        quality[name.strip()] = not _NEVER.fullmatch(weight.replace(" ", ""))
    return quality.get("gzip", quality.get("*", False))
