"""Requests to a service with the standard library: JSON or CSV out, JSON in, repeated where that helps.

Redirects are not followed, so that a key goes to the address that was given and to no other.
"""

import gzip
import http.client
import json
import os
import time
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from predictor.errors import SchemaError, ServiceError

__all__ = ["KEY_VARIABLE", "Answer", "Service"]

KEY_VARIABLE = "EPOCHCAST_API_KEY"
_COMES_BACK = (429, 502, 503, 504)
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Answer:
    """Status and body of an answer; `found` is the body's JSON, None if it is none."""

    status: int
    found: Any
    retry_after_s: float | None = None


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


class Service:
    """A service at an address.

    Parameters
    ----------
    url : str
        Such as ``https://epochcast.example``; http and https.
    key : str, optional
        API key; `$EPOCHCAST_API_KEY` if not given.
    timeout_s : float
        For each answer.
    attempts : int
        How often a request is sent while the service is overloaded or away.
    """

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 60.0, attempts: int = 5) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SchemaError(f"{url!r} is no address of a service. Example: https://epochcast.example:8000")
        self.url = url.rstrip("/")
        self._key = _plain_key(key or os.environ.get(KEY_VARIABLE) or "")
        self._timeout_s, self._attempts = timeout_s, attempts
        self._opener = build_opener(_NoRedirects)

    @property
    def has_key(self) -> bool:
        """Whether requests carry an API key."""
        return bool(self._key)

    def get(self, path: str) -> Answer:
        """Ask for what lies at a path."""
        return self._repeated(Request(self.url + path, headers=self._headers()))  # noqa: S310 - http(s), see above

    def post(self, path: str, body: bytes, content_type: str) -> Answer:
        """Send a body, gzipped, and get the answer."""
        headers = self._headers() | {"Content-Type": content_type, "Content-Encoding": "gzip"}
        packed = gzip.compress(body, 5)
        return self._repeated(Request(self.url + path, packed, headers, method="POST"))  # noqa: S310

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "Accept-Encoding": "gzip", "User-Agent": "epochcast"}
        return headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {})

    def _repeated(self, request: Request) -> Answer:
        """Send until answered otherwise than "come back later"; every request here may be sent twice."""
        wait_s = 0.5
        for left in reversed(range(self._attempts)):
            try:
                answer = self._once(request)
            except (URLError, http.client.HTTPException, OSError) as error:
                if not left:
                    reason = getattr(error, "reason", error)
                    raise ServiceError(
                        f"{self.url} does not answer: {reason}. Is the service running, and the address right?"
                    ) from error
                answer = Answer(0, None)
            if left == 0 or answer.status not in (0, *_COMES_BACK):
                return answer
            time.sleep(min(max(answer.retry_after_s or 0.0, wait_s), _LONGEST_WAIT_S))
            wait_s *= 2
        raise AssertionError("not reached: the last attempt returns or raises")

    def _once(self, request: Request) -> Answer:
        try:
            with self._opener.open(request, timeout=self._timeout_s) as response:
                return Answer(response.status, _json(response.read(), response.headers))
        except HTTPError as error:
            with error:
                return Answer(error.code, _json(error.read(), error.headers), _seconds(error.headers))


def _plain_key(key: str) -> str:
    """The key without white space around it, as files and shells leave it; errors never quote it."""
    bare = key.strip()
    if not all("!" <= each <= "~" for each in bare):
        raise SchemaError(
            f"the API key holds a character that no key has (position {_first_odd(bare)} of {len(bare)}). Copy it "
            f"again, into {KEY_VARIABLE}; `epochcast keys add` makes keys of letters, digits, - and _."
        )
    return bare


def _first_odd(key: str) -> int:
    return next(i for i, each in enumerate(key, start=1) if not "!" <= each <= "~")


def _json(body: bytes, headers: Any) -> Any:
    if headers.get("Content-Encoding") == "gzip":
        body = gzip.decompress(body)
    try:
        return json.loads(body)
    except ValueError:
        return None


def _seconds(headers: Any) -> float | None:
    given = str(headers.get("Retry-After", ""))
    return float(given) if given.isdecimal() else None
