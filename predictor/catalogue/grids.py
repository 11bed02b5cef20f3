"""Electricity grids: grams of CO2 equivalent of a kilowatt-hour by region, dated, with their sources."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from predictor.catalogue.offers import Offer
from predictor.catalogue.rows import read_rows
from predictor.errors import SchemaError, nearest
from predictor.files import data_file


@dataclass(frozen=True, slots=True, eq=False)
class Grid:
    """The electricity of a region, averaged over a year.

    `g_co2e_per_kwh` counts the plants' ``operation``, or their ``life cycle``, too, as `counts` says. `region` is a
    cloud's region or a country's ISO 3166 code, `areas` the parts of the world that it lies in, such as ``eu``, and
    `offers` the places of offers on it, as ``provider/region``.
    """

    region: str
    place: str
    g_co2e_per_kwh: float
    counts: str
    year: int
    areas: tuple[str, ...]
    offers: tuple[str, ...]
    source: str

    def __str__(self) -> str:
        return f"{self.g_co2e_per_kwh:.0f} g/kWh: {self.place} ({self.region}), {self.year}, {self.counts}"


@lru_cache(maxsize=1)
def all_grids() -> tuple[Grid, ...]:
    """Every region of ``grids.csv``."""
    return read_rows(Grid, data_file("grids.csv"))


def find_grid(name: str, called: str = "region") -> Grid:
    """The grid of a region: a cloud's (``us-central1``, ``us-east-1``, ``eastus``), a country's code, or a place.

    SchemaError if none is called so, with the nearest names, or several are, with their regions; messages say that it
    is given as `called`.

    >>> find_grid("us-east-1").place, find_grid("iowa").region
    ('Northern Virginia', 'us-central1')
    """
    key = name.strip().casefold()
    grids = [grid for grid in all_grids() if key in _names(grid)]
    if len(grids) == 1:
        return grids[0]
    if grids:
        regions = ", ".join(grid.region for grid in grids)
        raise SchemaError(f"{called} {name!r} is the place of several: {regions}. Say which.").about("region")
    names = [grid_name for grid in all_grids() for grid_name in _names(grid)]
    raise SchemaError(
        f"{called} {name!r} is not known. Nearest: {nearest(key, names)}; give a cloud's region such as us-central1, "
        "or a country's ISO code such as FRA."
    ).about("region")


def _names(grid: Grid) -> set[str]:
    own = {grid.region, grid.place, *grid.offers, *(offer.partition("/")[2] for offer in grid.offers)}
    return {name.casefold() for name in own}


@lru_cache(maxsize=1)
def _by_place() -> dict[str, Grid]:
    return {offer: grid for grid in all_grids() for offer in grid.offers}


def grid_of(offer: Offer) -> Grid | None:
    """The grid of an offer; None where its place is not known."""
    return _by_place().get(f"{offer.provider}/{offer.region}")
