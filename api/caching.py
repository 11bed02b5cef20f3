"""Answers that clients may keep: packed once, with an ETag, and a few bytes for whoever has the answer already."""

import gzip
import hashlib
import re
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from cachetools import LRUCache
from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from starlette.datastructures import Headers

__all__ = ["File", "KeptRoute", "accepts_gzip", "file_response"]

_CACHING = "public, max-age=60"
_LEAST_PACKED = 1000  # bytes: packing less is not worth it
_PACKED_ANSWERS = 200
_NEVER = re.compile(r"q=0(\.0*)?")
_ETAG = re.compile(r'(?:W/)?"([^"]*)"')


@dataclass(frozen=True, slots=True)
class File:
    """Content with its packed form, if that is worth it, and its headers."""

    content: bytes
    packed: bytes | None
    media_type: str
    etag: str
    caching: str

    @classmethod
    def of(cls, content: bytes, media_type: str, caching: str) -> "File":
        """Pack content; its ETag is weak, since packed and unpacked content have the same."""
        etag = f'W/"{hashlib.sha256(content).hexdigest()[:16]}"'
        packed = gzip.compress(content, mtime=0) if len(content) >= _LEAST_PACKED else None
        return cls(content, packed, media_type, etag, caching)


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
                files[content] = await run_in_threadpool(File.of, content, "application/json", _CACHING)
            return file_response(request, files[content])

        return handled


def file_response(request: Request, file: File, policy: str = "") -> Response:
    """The file as this client takes it, with a Content-Security-Policy if one is given; 304 if it has it already."""
    headers = {"Cache-Control": file.caching, "ETag": file.etag, "Vary": "Accept-Encoding"}
    headers |= {"Content-Security-Policy": policy} if policy else {}
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
