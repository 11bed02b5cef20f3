"""Content as it is sent: packed once, in a thread, with an ETag where clients keep it: who has it already gets 304."""

import gzip
import hashlib
import re
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, replace
from typing import Any

from cachetools import LRUCache
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.datastructures import Headers

__all__ = ["File", "KeptRoute", "accepts_gzip", "file_response"]

_CACHING = "public, max-age=60"
_LEAST_PACKED = 1000  # bytes: packing less is not worth it
_LEVEL = 4  # a third of the time of the default level, and a few percent larger
_PACKED_ANSWERS = 200
_NEVER = re.compile(r"q=0(\.0*)?")
_ETAG = re.compile(r'(?:W/)?"([^"]*)"')


@dataclass(frozen=True, slots=True)
class File:
    """Content and its media type; `packed` is its gzip, `etag` is empty where clients keep nothing."""

    content: bytes
    media_type: str = "application/json"
    packed: bytes | None = None
    etag: str = ""
    caching: str = ""

    @property
    def is_packed(self) -> bool:
        """Whether nothing is left to pack."""
        return self.packed is not None or len(self.content) < _LEAST_PACKED

    def with_gzip(self) -> "File":
        """The same, packed if that is worth it; call it in a thread."""
        return self if self.is_packed else replace(self, packed=gzip.compress(self.content, _LEVEL, mtime=0))

    @classmethod
    def kept(cls, content: bytes, media_type: str, caching: str) -> "File":
        """Content that clients keep, packed; its ETag is weak, since it names packed and unpacked content."""
        etag = f'W/"{hashlib.sha256(content).hexdigest()[:16]}"'
        return cls(content, media_type, etag=etag, caching=caching).with_gzip()


class KeptRoute(APIRoute):
    """A route of the catalogue: its answers are packed in a thread, once, and clients keep them for a minute."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The route's handler, with an ETag of what it answers."""
        handler = super().get_route_handler()
        files: LRUCache[bytes, File] = LRUCache(_PACKED_ANSWERS)

        async def handled(request: Request) -> Response:
            answer = await handler(request)
            if answer.status_code != 200 or request.method != "GET":
                return answer
            content = bytes(answer.body)
            if content not in files:
                files[content] = await run_in_threadpool(File.kept, content, "application/json", _CACHING)
            return file_response(request, files[content])

        return handled


def file_response(request: Request, file: File, more: Mapping[str, str] | None = None) -> Response:
    """The file as this client takes it, with more headers if any are given; 304 if it has it already."""
    headers = {"Vary": "Accept-Encoding", **(more or {})}
    if file.etag:
        headers |= {"Cache-Control": file.caching, "ETag": file.etag}
        if _has_already(request.headers, file.etag):
            return Response(status_code=304, headers=headers)
    if file.packed is None or not accepts_gzip(request.headers):
        return Response(file.content, media_type=file.media_type, headers=headers)
    headers["Content-Encoding"] = "gzip"
    return Response(file.packed, media_type=file.media_type, headers=headers)


def _has_already(headers: Headers, etag: str) -> bool:
    """Whether a client has what `etag` names (RFC 9110, 13.1.2: ETags compare weakly; `*` is any)."""
    known = headers.get("if-none-match", "")
    return known.strip() == "*" or _ETAG.findall(etag)[0] in _ETAG.findall(known)


def accepts_gzip(headers: Headers) -> bool:
    """Whether a client takes gzip: by its name, else by `*`, with a quality above 0 (RFC 9110, 12.5.3)."""
    quality = {}
    for coding in headers.get("accept-encoding", "").lower().split(","):
        name, _, weight = coding.partition(";")
        quality[name.strip()] = not _NEVER.fullmatch(weight.replace(" ", ""))
    return quality.get("gzip", quality.get("*", False))
