"""Cloud offers of GPUs with their prices per hour, checked when read; only the standard library, so it loads fast."""

import csv
import gzip
import io
import math
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import date
from functools import cached_property, lru_cache
from logging import getLogger
from os import PathLike
from pathlib import Path
from typing import Any

from predictor.catalogue.devices import find_gpu
from predictor.checks import LARGEST, yes_or_no
from predictor.errors import SchemaError, UnknownGpuError
from predictor.files import data_file, replace_file

_MORE = "more cells than columns"
_MOST_GPUS = 1024  # of a machine
_WEEKS_PER_YEAR = 365.25 / 7


@dataclass(frozen=True, slots=True)
class Offer:
    """One kind of rented machine at one place; the price is that of the whole machine.

    `gpu` is the GPU's canonical name; `gpu_count` counts chips, as the catalogue does (a K80 card is two),
    and is a fraction where the machine has a share of one. `link`, a name of ``links.csv``, joins several GPUs. The
    hosts of a `marketplace` have many owners and differ. None or "" where the source does not say.
    """

    provider: str
    instance: str
    gpu: str
    gpu_count: float
    usd_per_hour: float
    vcpus: float | None = None
    memory_gib: float | None = None
    disk_gb: float | None = None
    link: str = ""
    network: str = ""
    spot_usd_per_hour: float | None = None
    region: str = ""
    source_url: str = ""
    retrieved_on: date | None = None
    historic: bool = False
    marketplace: bool = False


REQUIRED_COLUMNS = tuple(field.name for field in fields(Offer) if field.default is MISSING)
"""Columns of every price file; the other fields of `Offer` may be columns, too."""


class Prices(tuple[Offer, ...]):
    """Offers that were checked, as a key of caches each for itself: what follows from them is computed once."""

    __hash__ = object.__hash__

    @cached_property
    def without_marketplaces(self) -> "Prices":
        """The offers of clouds, and of marketplaces where no cloud rents the GPU today."""
        of_clouds = {offer.gpu for offer in self if not (offer.marketplace or offer.historic)}
        return Prices([offer for offer in self if not offer.marketplace or offer.gpu not in of_clouds])

    @lru_cache(maxsize=32)  # noqa: B019 - a process has few price files
    def of_each(self, n_gpus: int = 1, *, spot: bool = False) -> dict[str, tuple[Offer, ...]]:
        """Today's offers of each GPU that has some with at least `n_gpus`, by its canonical name, cheapest first.

        With `spot` only those with a spot price, ranked by it.
        """
        offers_by_gpu: dict[str, list[Offer]] = {}
        for offer in self:
            if offer.gpu_count >= n_gpus and not offer.historic and hourly_usd(offer, spot) < math.inf:
                offers_by_gpu.setdefault(offer.gpu, []).append(offer)
        return {
            gpu: tuple(sorted(own, key=lambda offer: hourly_usd(offer, spot)))
            for gpu, own in offers_by_gpu.items()
        }


def load_offers(path: str | PathLike[str] | None = None) -> Prices:
    """Read a price file, in its order, and check every row; the shipped `offers.csv` if none is named.

    It is a CSV file, gzipped if its name ends in .gz, with the columns `REQUIRED_COLUMNS` and any other fields of
    `Offer` (US$ per hour of the whole machine, GiB, GB). One that has a `retrieved_on` column must date every row that
    is not historic. SchemaError if the file is empty or no UTF-8 CSV, lacks columns, or a row has a price, count, date
    or flag that cannot be, UnknownGpuError if its GPU is unknown or its name fits several; the message has the line.
    """
    file_path = data_file("offers.csv") if path is None else Path(path)
    if path is not None and not file_path.is_file():
        raise SchemaError(
            f"there is no price file {file_path}. Pass --offers FILE, or none for the shipped offers."
        )
    return _load(file_path, file_path.stat().st_mtime_ns)


@lru_cache(maxsize=4)
def _load(file_path: Path, _modified_ns: int) -> Prices:
    columns, rows = _read(file_path)
    missing = [column for column in REQUIRED_COLUMNS if column not in columns]
    if missing:
        raise SchemaError(
            f"{file_path} lacks the columns {', '.join(missing)}. "
            f"A price file needs {', '.join(REQUIRED_COLUMNS)}."
        )
    if not rows:
        raise SchemaError(f"{file_path} holds no offer, only its header.")
    getLogger("epochcast.offers").info("%s: %d offers", file_path, len(rows))
    dated = "retrieved_on" in columns
    return Prices(_offer(row, f"{file_path}, line {line}", dated) for line, row in rows)


def write_offers(offers: Iterable[Offer], path: str | PathLike[str]) -> None:
    """Write a price file that `load_offers` reads."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(column.name for column in fields(Offer))
    for offer in offers:
        cells = (getattr(offer, column.name) for column in fields(Offer))
        writer.writerow(str(cell).lower() if isinstance(cell, bool) else cell for cell in cells)
    replace_file(path, text.getvalue())


def own_usd_per_hour(
    paid_usd: float, years: float, hours_per_week: float, watts: float, usd_per_kwh: float
) -> tuple[float, float]:
    """US$ per hour of use of your own machine: its price spread over its hours, and its electricity.

    It cost `paid_usd`, is used `hours_per_week` for `years`, and draws `watts` while it trains.
    """
    hours = years * _WEEKS_PER_YEAR * hours_per_week
    return paid_usd / hours, watts / 1000.0 * usd_per_kwh


def hourly_usd(offer: Offer, spot: bool = False) -> float:
    """US$ per hour of the whole machine; infinite where it has no spot price."""
    price = offer.spot_usd_per_hour if spot else offer.usd_per_hour
    return math.inf if price is None else price


def _read(path: Path) -> tuple[tuple[str, ...], list[tuple[int, Mapping[str, str | None]]]]:
    """Columns of a CSV file, and its rows with their line numbers."""
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        with opened(path, "rt", newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file, restkey=_MORE)
            columns = tuple(reader.fieldnames or ())
            rows: list[tuple[int, Mapping[str, str | None]]] = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error, gzip.BadGzipFile, EOFError) as error:
        raise SchemaError(f"{path} is no CSV file in UTF-8: {error}.") from error
    if not columns:
        raise SchemaError(f"{path} is empty. A price file needs the columns {', '.join(REQUIRED_COLUMNS)}.")
    return columns, rows


def _offer(row: Mapping[str, str | None], where: str, dated: bool) -> Offer:
    if _MORE in row:
        raise SchemaError(f"{where} has {_MORE}. Quote a cell that holds a comma.")
    values = {field.name: _value(field, (row.get(field.name) or "").strip(), where) for field in _FIELDS}
    try:
        values["gpu"] = find_gpu(values["gpu"]).name
    except UnknownGpuError as error:
        raise UnknownGpuError(f"{where}: {error}") from error
    offer = Offer(**values)
    if offer.spot_usd_per_hour is not None and offer.spot_usd_per_hour > offer.usd_per_hour:
        raise SchemaError(
            f"{where}: spot_usd_per_hour {offer.spot_usd_per_hour:g} is above usd_per_hour {offer.usd_per_hour:g}."
        )
    if offer.gpu_count > 1 and not offer.gpu_count.is_integer():
        raise SchemaError(
            f"{where}: gpu_count {offer.gpu_count:g} is neither a share of one GPU, below 1, nor a whole number."
        )
    if dated and offer.retrieved_on is None and not offer.historic:
        raise SchemaError(f"{where}: retrieved_on is empty. Date the price, or mark it historic.")
    return offer


_FIELDS = fields(Offer)
_NUMBERS, _DATE = (float, float | None), date | None


def _value(field: Field[Any], text: str, where: str) -> Any:
    """A cell as its field's type; SchemaError where it is none, or is empty and needed."""
    if not text and field.default is MISSING:
        raise SchemaError(f"{where}: {field.name} is empty.")
    if not text:
        return field.default
    if field.type in _NUMBERS:
        high, may_be_zero = _MOST_GPUS if field.name == "gpu_count" else LARGEST, field.name == "usd_per_hour"
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not 0 <= value <= high or (value == 0 and not may_be_zero):
            least = "of at least" if may_be_zero else "above"
            raise SchemaError(
                f"{where}: {field.name} {text!r} is not a number {least} 0, and at most {high:,.0f}."
            )
        return value
    if field.type is bool:
        return yes_or_no(f"{where}: {field.name}", text)
    if field.type == _DATE:
        try:
            return date.fromisoformat(text)
        except ValueError:
            raise SchemaError(f"{where}: {field.name} {text!r} is not a date like 2026-07-20.") from None
    return text
