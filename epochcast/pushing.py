"""Uploads of measurement tables to a service: in parts, gzipped, repeated while the service is overloaded or away.

Redirects are not followed, so that an API key goes to the address that was given and to no other.
"""

import gzip
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from predictor.errors import BackendUnavailableError, SchemaError, ServiceError

if TYPE_CHECKING:
    import httpx

KEY_VARIABLE = "EPOCHCAST_API_KEY"
_COMES_BACK = (429, 502, 503, 504)
_LONGEST_WAIT_S = 60.0
_ROWS_OF_AN_UPLOAD = 2_000


@dataclass(frozen=True, slots=True)
class UploadReceipt:
    """What became of the rows of a table: `stored` were new; `ids` are all rows' numbers, in the table's order."""

    stored: int
    duplicates: int
    ids: list[int]


class Service:
    """A service at an http or https address; a request is sent `attempts` times while it is overloaded or away.

    The API key is `key`, else `$EPOCHCAST_API_KEY`; no message and no log shows it. SchemaError if `url` is not an
    address, or the key holds a character that no key has; BackendUnavailableError if httpx is not installed.
    """

    def __init__(self, url: str, key: str | None = None, timeout_s: float = 60.0, attempts: int = 5) -> None:
        try:
            parts = urlsplit(url)
            usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:  # a port that is no number, or above 65535
            usable = False
        if not usable:
            message = f"{url!r} is not the address of a service. Example: https://epochcast.example:8000"
            raise SchemaError(message)
        self.url = url.rstrip("/")
        # Without the white space that files and shells leave around it; the error never quotes it.
        self.key = (key or os.environ.get(KEY_VARIABLE) or "").strip()
        wrong = next((i for i, letter in enumerate(self.key, start=1) if not "!" <= letter <= "~"), None)
        if wrong is not None:
            raise SchemaError(
                f"the API key holds a character that no key has (position {wrong} of {len(self.key)}). Copy it again "
                f"into {KEY_VARIABLE}; `epochcast keys add` makes keys of letters, digits, - and _."
            )
        self._attempts = attempts
        headers = {"Accept": "application/json", "User-Agent": "epochcast"}
        headers |= {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            import httpx
        except ModuleNotFoundError:
            message = "httpx is not installed, which asking a service needs: pip install 'epochcast[client]'."
            raise BackendUnavailableError(message) from None
        self._http = httpx.Client(headers=headers, timeout=timeout_s, follow_redirects=False)

    def get(self, path: str) -> "httpx.Response":
        """Response to a GET of a path, a refusal too; ServiceError only if nothing answers."""
        return self._repeated("GET", path)

    def post(self, path: str, body: bytes, content_type: str) -> "httpx.Response":
        """Response to a POST of a body, sent gzipped, a refusal too; ServiceError only if nothing answers."""
        headers = {"Content-Type": content_type, "Content-Encoding": "gzip"}
        return self._repeated("POST", path, content=gzip.compress(body, 5), headers=headers)

    def _repeated(self, method: str, path: str, **sent: Any) -> "httpx.Response":
        """Send until the response is not "come back later"; every request here may be sent twice."""
        import httpx

        wait_s = 0.5
        for left in reversed(range(self._attempts)):
            try:
                response = self._http.request(method, self.url + path, **sent)
                if not left or response.status_code not in _COMES_BACK:
                    return response
                retry_after = response.headers.get("Retry-After", "")
                least_s = float(retry_after) if retry_after.isdecimal() else 0.0
            except httpx.RequestError as error:
                if not left:
                    raise ServiceError(
                        f"{self.url} does not answer: {str(error) or type(error).__name__}. Is the service running, "
                        "and the address right?"
                    ) from error
                least_s = 0.0
            time.sleep(min(max(least_s, wait_s), _LONGEST_WAIT_S))
            wait_s *= 2
        raise AssertionError("not reached: the last attempt returns or raises")


def upload(path: Path, url: str, key: str | None = None) -> UploadReceipt:
    """Store a measurement table, .csv, .csv.gz or .parquet, at a service, with the API key, else `$EPOCHCAST_API_KEY`.

    Each row is stored once, so that an upload that broke off can be repeated. Columns that the measurement schema lacks
    are not sent. DataError, SchemaError or UnknownGpuError if the table is not valid; nothing is sent then.
    ServiceError if the service refuses, as it does without a key, or does not answer; what it acknowledged before is
    stored. Other errors as of `Service`.
    """
    from predictor.measurements.schema import COLUMNS
    from predictor.measurements.table import read_measurements

    service, stored, duplicates, ids = Service(url, key), 0, 0, list[int]()
    frame = read_measurements(path)
    rows = frame[[entry.name for entry in COLUMNS]].dropna(axis="columns", how="all")
    counts = [entry.name for entry in COLUMNS if entry.form == "count" and entry.name in rows]
    rows = rows.astype(dict.fromkeys(counts, "Int64"))
    for start in range(0, len(rows), _ROWS_OF_AN_UPLOAD):
        csv_rows = rows.iloc[start : start + _ROWS_OF_AN_UPLOAD].to_csv(index=False).encode()
        reply = service.post("/v1/measurements", csv_rows, "text/csv")
        if reply.status_code != 201:
            raise ServiceError(
                f"{service.url} refuses the upload after {len(ids):,} rows: {_reason(reply)} "
                "The rows before are stored; upload the table again when this is solved."
            )
        receipt = reply.json()
        stored += int(receipt["stored"])
        duplicates += int(receipt["duplicates"])
        ids += receipt["ids"]
    return UploadReceipt(stored, duplicates, ids)


def check_upload(url: str, key: str | None = None) -> None:
    """Find out before minutes of measuring whether the table could be uploaded.

    SchemaError if `url` is not an address, or there is no key; ServiceError if no service answers there.
    """
    service = Service(url, key, attempts=2)
    if not service.key:
        raise SchemaError(
            f"there is no API key to upload with. Set {KEY_VARIABLE}; the owner of the service makes keys with "
            "`epochcast keys add`."
        )
    reply = service.get("/healthz")
    if reply.status_code != 200:
        message = f"{service.url} answers with HTTP status {reply.status_code}: is it an epochcast service?"
        raise ServiceError(message)


def _reason(reply: "httpx.Response") -> str:
    with suppress(ValueError):  # of no JSON
        if isinstance(content := reply.json(), dict):
            return str(content.get("detail") or content.get("title") or content)
    return f"it answers with HTTP status {reply.status_code}."
