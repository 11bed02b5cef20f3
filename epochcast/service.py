"""Requests to a service over HTTP: gzipped bodies out, JSON in, repeated while the service is overloaded or away.

Redirects are not followed, so that an API key goes to the address that was given and to no other.
"""

import gzip
import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochcast.addresses import checked_address
from predictor.errors import BackendUnavailableError, SchemaError, ServiceError

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "EPOCHCAST_API_KEY"
_COMES_BACK = (429, 502, 503, 504)
_LONGEST_WAIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """Status and body of a response; `content` is the body's JSON, None if it is not JSON."""

    status: int
    content: Any


class Service:
    """A service at an address.

    Parameters
    ----------
    url : str
        Such as ``https://epochcast.example``; http and https.
    key : str, optional
        API key; `$EPOCHCAST_API_KEY` if not given. No message and no log shows it.
    timeout_s : float
        For each response.
    attempts : int
        How often a request is sent while the service is overloaded or away.

    Raises
    ------
    SchemaError
        If `url` is not an address, or `key` holds a character that no key has.
    BackendUnavailableError
        If httpx is not installed.
    """

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 60.0, attempts: int = 5) -> None:
        self.url = checked_address(url, "a service")
        self._key = _plain_key(key or os.environ.get(KEY_VARIABLE) or "")
        self._attempts = attempts
        headers = {"Accept": "application/json", "User-Agent": "epochcast"}
        headers |= {"Authorization": f"Bearer {self._key}"} if self._key else {}
        self._http = _http_client(headers, timeout_s)

    @property
    def has_key(self) -> bool:
        """Whether requests carry an API key."""
        return bool(self._key)

    def get(self, path: str) -> Reply:
        """Ask for what lies at a path; ServiceError if nothing answers."""
        return self._repeated("GET", path)

    def post(self, path: str, body: bytes, content_type: str) -> Reply:
        """Send a body, gzipped; ServiceError if nothing answers."""
        headers = {"Content-Type": content_type, "Content-Encoding": "gzip"}
        return self._repeated("POST", path, content=gzip.compress(body, 5), headers=headers)

    def _repeated(self, method: str, path: str, **sent: Any) -> Reply:
        """Send until the response is not "come back later"; every request here may be sent twice."""
        import httpx

        wait_s = 0.5
        for left in reversed(range(self._attempts)):
            try:
                response = self._http.request(method, self.url + path, **sent)
                if not left or response.status_code not in _COMES_BACK:
                    return Reply(response.status_code, _json(response))
                asked_s = _seconds(response.headers.get("Retry-After", ""))
            except httpx.RequestError as error:
                if not left:
                    raise ServiceError(
                        f"{self.url} does not answer: {str(error) or type(error).__name__}. Is the service running, "
                        "and the address right?"
                    ) from error
                asked_s = 0.0
            time.sleep(min(max(asked_s, wait_s), _LONGEST_WAIT_S))
            wait_s *= 2
        raise AssertionError("not reached: the last attempt returns or raises")


def _http_client(headers: dict[str, str], timeout_s: float) -> "httpx.Client":
    try:
        import httpx
    except ModuleNotFoundError:
        raise BackendUnavailableError(
            "httpx is not installed, which asking a service needs: pip install 'epochcast[client]'."
        ) from None
    return httpx.Client(headers=headers, timeout=timeout_s, follow_redirects=False)


def _plain_key(key: str) -> str:
    """The key without the white space that files and shells leave around it; the error never quotes it."""
    bare = key.strip()
    wrong = next((i for i, character in enumerate(bare, start=1) if not "!" <= character <= "~"), None)
    if wrong is not None:
        raise SchemaError(
            f"the API key holds a character that no key has (position {wrong} of {len(bare)}). Copy it again into "
            f"{KEY_VARIABLE}; `epochcast keys add` makes keys of letters, digits, - and _."
        )
    return bare


def _json(response: "httpx.Response") -> Any:
    try:
        return response.json()
    except ValueError:
        return None


def _seconds(retry_after: str) -> float:
    return float(retry_after) if retry_after.isdecimal() else 0.0
