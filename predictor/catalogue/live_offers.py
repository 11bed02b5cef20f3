"""Today's prices of many providers, read by gpuhunt (the ``offers`` extra), as offers of known GPUs."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias

from predictor.catalogue.devices import Gpu, find_gpu, short_name
from predictor.catalogue.links import usual_link
from predictor.catalogue.offers import Offer, load_offers
from predictor.errors import (
    BackendUnavailableError,
    OutOfRangeError,
    SchemaError,
    ServiceError,
    UnknownGpuError,
)

SOURCE = "https://github.com/dstackai/gpuhunt"
_CATALOGUE_FOLDER = "GPUHUNT_CATALOG_DIR"  # gpuhunt's own: recorded catalogues instead of the network
_OUR_NAMES = {"lambdalabs": "lambda", "vastai": "vast"}
_MARKETPLACES = ("vast", "lium")
_FORM = re.compile(r"sxm|pcie|nvl", re.IGNORECASE)
_MEMORY_TOLERANCE = 0.1


CatalogueItem: TypeAlias = Any
"""gpuhunt's `CatalogItem`: an instance at a place, its price in US$ per hour, its host and GPUs; memory in GB."""


@dataclass(frozen=True, slots=True)
class OfferUpdate:
    """Offers, and how many items were skipped for each reason, most first."""

    offers: tuple[Offer, ...]
    skipped: dict[str, int]


def updated_offers(providers: Sequence[str] = (), today: date | None = None) -> OfferUpdate:
    """Today's offers of gpuhunt's catalogue, and the shipped ones of providers that it lacks.

    Providers have gpuhunt's names, such as ``lambdalabs``; all that answer without credentials are asked by default.
    Prices are dated `today`. BackendUnavailableError if gpuhunt is not installed; OutOfRangeError if it does not know a
    provider, or if the providers have no offer of a known GPU; ServiceError if the catalogue is out of reach.
    """
    catalogue = _catalogue_items(providers)
    update = live_offers(catalogue, today or date.today())
    if not update.offers:
        raise OutOfRangeError(
            f"gpuhunt's catalogue has {len(catalogue)} items and no offer of a known GPU. Leave --provider out."
        )
    read = {offer.provider for offer in update.offers}
    kept = [offer for offer in load_offers() if offer.provider not in read and not offer.historic]
    return replace(update, offers=(*update.offers, *kept))


def live_offers(catalogue: Iterable[CatalogueItem], today: date) -> OfferUpdate:
    """Turn items of a catalogue into offers: the cheapest place of each instance, with its spot price beside it.

    Of a marketplace, whose every host is an instance, the host of the median price stands for all with as many GPUs.
    The form of a GPU (SXM or PCI Express) is taken from the instance's name, or from the shipped offer of that
    instance; an item that says neither is skipped, and so is one whose GPU or memory is not in gpus.csv.
    """
    shipped_gpus = {(offer.provider, offer.instance): offer.gpu for offer in load_offers()}
    skipped: Counter[str] = Counter()
    prices_by_instance: dict[tuple[str, str, str, int], dict[bool, list[CatalogueItem]]] = {}
    for listing in catalogue:
        gpu = _gpu_of(listing, shipped_gpus)
        if isinstance(gpu, str):
            skipped[gpu] += 1
            continue
        provider, instance = _provider(listing), listing.instance_name
        if provider in _MARKETPLACES:
            instance = f"{listing.gpu_count}x {short_name(gpu.name)} (marketplace)"
        prices = prices_by_instance.setdefault((provider, instance, gpu.name, listing.gpu_count), {})
        prices.setdefault(listing.spot, []).append(listing)
    spot_only = [key for key, prices in prices_by_instance.items() if False not in prices]
    if spot_only:
        skipped["spot prices without one on demand"] += len(spot_only)
    offers = [
        _offer(instance, gpu, {spot: _usual(listings) for spot, listings in prices.items()}, today)
        for (_, instance, gpu, _), prices in prices_by_instance.items()
        if False in prices
    ]
    return OfferUpdate(
        tuple(sorted(offers, key=lambda offer: (offer.provider, offer.instance))), dict(skipped.most_common())
    )


def _gpu_of(listing: CatalogueItem, shipped_gpus: dict[tuple[str, str], str]) -> Gpu | str:
    """The GPU of an item, or why it has none that is known here."""
    if not listing.gpu_count or not listing.gpu_name or listing.price <= 0:
        return "without a GPU or a price"
    shipped = shipped_gpus.get((_provider(listing), listing.instance_name))
    if shipped is not None:
        return find_gpu(shipped)
    form = _FORM.search(listing.instance_name)
    forms = ([f"{listing.gpu_name} {form[0]}"] if form else []) + [listing.gpu_name]
    names = [f"{name_of_gpu} {listing.gpu_memory or 0:g}GB" for name_of_gpu in forms] + forms
    for name in (listing.instance_name, *names):
        try:
            gpu = find_gpu(name)
        except UnknownGpuError:
            continue
        if listing.gpu_memory is None or abs(gpu.memory_gib / listing.gpu_memory - 1) <= _MEMORY_TOLERANCE:
            return gpu
    return f"{listing.gpu_name} of {listing.gpu_memory or 0:g} GB"


def _usual(listings: list[CatalogueItem]) -> CatalogueItem:
    """The cheapest item of a cloud; that of the median price, the lower of two, of a marketplace."""
    by_price = sorted(listings, key=lambda listing: listing.price)
    return by_price[(len(by_price) - 1) // 2 if _provider(listings[0]) in _MARKETPLACES else 0]


def _offer(instance: str, gpu: str, prices: dict[bool, CatalogueItem], today: date) -> Offer:
    on_demand, spot = prices[False], prices.get(True)
    return Offer(
        provider=_provider(on_demand),
        instance=instance,
        gpu=gpu,
        gpu_count=on_demand.gpu_count,
        usd_per_hour=on_demand.price,
        vcpus=on_demand.cpu or None,
        memory_gib=on_demand.memory or None,
        disk_gb=on_demand.disk_size or None,
        link=_link(gpu) if on_demand.gpu_count > 1 else "",
        spot_usd_per_hour=spot.price if spot and 0 < spot.price <= on_demand.price else None,
        region=on_demand.location,
        source_url=SOURCE,
        retrieved_on=today,
        marketplace=_provider(on_demand) in _MARKETPLACES,
    )


def _link(gpu: str) -> str:
    """What joins several of these GPUs as a rule; empty where that is not known."""
    try:
        return usual_link(find_gpu(gpu), load_offers()).name
    except SchemaError:
        return ""


def _provider(listing: CatalogueItem) -> str:
    return _OUR_NAMES.get(listing.provider) or str(listing.provider)


def _catalogue_items(providers: Sequence[str]) -> list[CatalogueItem]:
    try:
        import gpuhunt
    except ImportError as error:
        raise BackendUnavailableError("gpuhunt is not installed: pip install 'epochcast[offers]'") from error
    logging.getLogger("gpuhunt").addHandler(logging.NullHandler())  # what it logs comes as an error, too
    recorded = os.environ.get(_CATALOGUE_FOLDER)
    try:
        if recorded is None:
            catalogue: Any = gpuhunt.default_catalog()
            return list(catalogue.query(provider=list(providers) or None, min_gpu_count=1))
        named = list(providers) or sorted(path.stem for path in Path(recorded).glob("*.csv"))
        return list(gpuhunt.Catalog(auto_reload=False).query(provider=named, min_gpu_count=1))
    except ValueError as error:
        raise OutOfRangeError(f"{error}. gpuhunt's providers are in its documentation, {SOURCE}.") from error
    except (OSError, gpuhunt.GPUHuntError) as error:
        raise ServiceError(
            f"gpuhunt's catalogue cannot be read: {error}. It needs a network, or a folder of recorded "
            f"catalogues in ${_CATALOGUE_FOLDER}."
        ) from error
