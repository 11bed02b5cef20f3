"""Who rents machines out: offers by provider and place, and how a rental is billed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from predictor.catalogue.grids import all_grids, grid_of
from predictor.catalogue.offers import Offer, Prices
from predictor.catalogue.rows import read_rows
from predictor.errors import OutOfRangeError, SchemaError, nearest
from predictor.files import data_file


@dataclass(frozen=True, slots=True)
class Provider:
    """How a provider bills, as it publishes it; None where that is not known.

    A rental is billed for at least `least_billed_s` seconds, in steps of `billed_by_s`. `egress_usd_per_gb` is what the
    first paid gigabyte (10^9 bytes) to the internet costs. `aliases`: further names, lower case, apart by semicolons.
    """

    provider: str
    least_billed_s: float | None
    billed_by_s: float | None
    egress_usd_per_gb: float | None
    source_url: str
    aliases: str = ""


@lru_cache(maxsize=1)
def all_providers() -> dict[str, Provider]:
    """Every provider of ``providers.csv`` by its name."""
    return {row.provider: row for row in read_rows(Provider, data_file("providers.csv"))}


def billing_h(provider: str) -> tuple[float, float]:
    """Hours of a provider's shortest bill, and by which bills grow; 0, as price x time, if unknown or by the second."""
    row = all_providers().get(provider)
    least_s, by_s = (row.least_billed_s or 0.0, row.billed_by_s or 0.0) if row else (0.0, 0.0)
    return least_s / 3600.0, by_s / 3600.0 if by_s > 1 else 0.0


@lru_cache(maxsize=32)
def chosen_offers(
    offers: Prices, providers: str | None, regions: str | None, called: Callable[[str], str] = str
) -> Prices:
    """Offers of these providers at these places: lists such as ``aws,gcp`` or ``!vast``, None for all.

    A place is a region as the provider names it, or its beginning (``us-east``), ``any``, of offers that name none, or
    an area of ``grids.csv``, such as ``eu``. SchemaError, with the nearest names, for a name that no offer has;
    OutOfRangeError if no offer of today is left. `called` names the options in messages.
    """
    areas = {area for grid in all_grids() for area in grid.areas}
    chosen: list[Offer] = list(offers)
    for option, text in (("provider", providers), ("offer_region", regions)):
        if text is None:
            continue
        by_place = option == "offer_region"
        names_of = {
            offer: _place_names(offer, areas) if by_place else {offer.provider.casefold()} for offer in offers
        }
        words = [name.strip().casefold() for name in text.split(",")]
        excluded = {_meant(word[1:].strip()) for word in words if word.startswith("!")}
        included = {_meant(word) for word in words if not word.startswith("!")}
        names_on_offer = set().union(*names_of.values(), areas if by_place else ())
        for word in sorted((included | excluded) - names_on_offer):
            listed = "" if by_place else f" All: {', '.join(sorted(names_on_offer))}."
            raise SchemaError(
                f"{called(option)} {word!r} has no offer. Nearest: {nearest(word, names_on_offer)}.{listed}"
            ).about(option)
        before, chosen = chosen, []
        for offer in before:
            names = names_of[offer]
            if not excluded & names and (not included or included & names):
                chosen.append(offer)
        if all(offer.historic for offer in chosen):
            places = sorted({offer.region or "any" for offer in before if not offer.historic})
            of = f" of {called('provider')} {providers}" if providers and by_place else ""
            raise OutOfRangeError(
                f"{called(option)} {text}: no offer of today is there. Those{of} lie in {', '.join(places)}."
            ).about(option)
    return Prices(chosen)


def _meant(word: str) -> str:
    """The provider of a further name, such as ``google cloud``; any other word as it is."""
    rows = all_providers().values()
    return next((row.provider for row in rows if word and word in row.aliases.split(";")), word)


def _place_names(offer: Offer, areas: set[str]) -> set[str]:
    """Names of an offer's place; a region on a known grid lies in the grid's areas, whatever it is called."""
    words = (offer.region or "any").casefold().split("-")
    names, grid = {"-".join(words[:end]) for end in range(1, len(words) + 1)}, grid_of(offer)
    return names if grid is None else names - areas | set(grid.areas)
