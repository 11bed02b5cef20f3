"""Uploads a measurement table to a service, in parts, however large it is and however often it is sent.

What was sent already is stored once, so that a push that broke off is simply repeated.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING

from epochcast.transport import KEY_VARIABLE, Answer, Service
from predictor.errors import SchemaError, ServiceError

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PushReceipt", "check_service", "push", "push_frame"]

_ROWS = 2_000


@dataclass(frozen=True, slots=True)
class PushReceipt:
    """What became of the rows of a table: `stored` were new; `ids` are all rows' numbers, in the table's order."""

    stored: int
    duplicates: int
    ids: list[int]


def check_service(url: str, key: str | None = None) -> None:
    """Find out before minutes of measuring whether their result could be sent.

    Raises
    ------
    SchemaError
        If `url` is no address, or there is no key.
    ServiceError
        If no service answers there.
    """
    service = Service(url, key, attempts=2)
    if not service.has_key:
        raise SchemaError(
            f"there is no API key to upload with. Set {KEY_VARIABLE}; whoever runs the service makes keys: "
            "`epochcast keys add`."
        )
    answer = service.get("/healthz")
    if answer.status != 200:
        raise ServiceError(
            f"{service.url} answers with HTTP status {answer.status}: is it an epochcast service?"
        )


def push(path: str | PathLike[str], url: str, key: str | None = None) -> PushReceipt:
    """Upload a measurement table (CSV, plain or gzipped).

    Parameters
    ----------
    path : path
        Columns that the measurement schema does not have stay behind.
    url : str
        Address of the service.
    key : str, optional
        API key; `$EPOCHCAST_API_KEY` if not given.

    Raises
    ------
    DataError, SchemaError, UnknownGpuError
        If the table is none, naming its line; nothing is sent then.
    ServiceError
        If the service refuses or does not answer; what was acknowledged before is stored.
    """
    from predictor.measurements.table import read_measurements

    return push_frame(read_measurements(path), Service(url, key))


def push_frame(frame: "pd.DataFrame", service: Service) -> PushReceipt:
    """Upload a checked measurement table."""
    stored, duplicates, ids = 0, 0, list[int]()
    for part in _parts(frame):
        answer = service.post("/v1/measurements", part, "text/csv")
        if answer.status != 201:
            raise ServiceError(
                f"{service.url} refuses the upload after {len(ids):,} rows: {_reason(answer)} "
                "What it acknowledged is stored; push again when that is mended."
            )
        stored += int(answer.found["stored"])
        duplicates += int(answer.found["duplicates"])
        ids += answer.found["ids"]
    return PushReceipt(stored, duplicates, ids)


def _parts(frame: "pd.DataFrame") -> Iterator[bytes]:
    from predictor.measurements.schema import COLUMNS

    known = frame[[entry.name for entry in COLUMNS]].dropna(axis="columns", how="all")
    whole = [entry.name for entry in COLUMNS if entry.form == "count" and entry.name in known]
    known = known.astype(dict.fromkeys(whole, "Int64"))
    for start in range(0, len(known), _ROWS):
        yield known.iloc[start : start + _ROWS].to_csv(index=False).encode()


def _reason(answer: Answer) -> str:
    if isinstance(answer.found, dict):
        return str(answer.found.get("detail") or answer.found.get("title") or answer.found)
    return f"it answers with HTTP status {answer.status}."
