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
from typing import Any, Protocol

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


class CatalogueItem(Protocol):
    """What is read of gpuhunt's `CatalogItem`; memory in GB, the price in US$ per hour."""

    provider: str
    instance_name: str
    location: str
    price: float
    cpu: int | None
    memory: float | None
    gpu_count: int
    gpu_name: str | None
    gpu_memory: float | None
    spot: bool
    disk_size: float | None


@dataclass(frozen=True, slots=True)
class OfferUpdate:
    """Offers, and how many items were skipped for each reason, most first."""

    offers: tuple[Offer, ...]
    skipped: dict[str, int]


def updated_offers(providers: Sequence[str] = (), today: date | None = None) -> OfferUpdate:
    """Today's offers of gpuhunt's catalogue, and the shipped ones of providers that it lacks.

    Providers have gpuhunt's names, such as ``lambdalabs``; all that answer without credentials are asked by default.
    Prices are dated `today`. BackendUnavailableError if gpuhunt is not installed; OutOfRangeError if it does not know a
    provider, or has no offer of a known GPU; ServiceError if its catalogue cannot be read, as without a network.
    """
    items = _catalogue_items(providers)
    found = live_offers(items, today or date.today())
    if not found.offers:
        raise OutOfRangeError(
            f"gpuhunt's catalogue has {len(items)} items and no offer of a known GPU. Leave --provider out."
        )
    read = {offer.provider for offer in found.offers}
    kept = [offer for offer in load_offers() if offer.provider not in read and not offer.historic]
    return replace(found, offers=(*found.offers, *kept))


def live_offers(items: Iterable[CatalogueItem], today: date) -> OfferUpdate:
    """Turn items of a catalogue into offers: the cheapest place of each instance, with its spot price beside it.

    Of a marketplace, whose every host is an instance, the host of the median price stands for all with as many GPUs.
    The form of a GPU (SXM or PCI Express) is taken from the instance's name, or from the shipped offer of that
    instance; an item that says neither is skipped, and so is one whose GPU or memory is not in gpus.csv.
    """
    known = {(offer.provider, offer.instance): offer.gpu for offer in load_offers()}
    skipped: Counter[str] = Counter()
    found: dict[tuple[str, str, str, int], dict[bool, list[CatalogueItem]]] = {}
    for item in items:
        gpu = _gpu_of(item, known)
        if isinstance(gpu, str):
            skipped[gpu] += 1
            continue
        prices = found.setdefault((_provider(item), _instance(item, gpu), gpu.name, item.gpu_count), {})
        prices.setdefault(item.spot, []).append(item)
    spot_only = [key for key, prices in found.items() if False not in prices]
    if spot_only:
        skipped["spot prices without one on demand"] += len(spot_only)
    offers = [
        _offer(instance, gpu, {spot: _usual(items) for spot, items in prices.items()}, today)
        for (_, instance, gpu, _), prices in found.items()
        if False in prices
    ]
    return OfferUpdate(
        tuple(sorted(offers, key=lambda offer: (offer.provider, offer.instance))), dict(skipped.most_common())
    )


def _gpu_of(item: CatalogueItem, known: dict[tuple[str, str], str]) -> Gpu | str:
    """The GPU of an item, or why it has none that is known here."""
    if not item.gpu_count or not item.gpu_name or item.price <= 0:
        return "without a GPU or a price"
    shipped = known.get((_provider(item), item.instance_name))
    if shipped is not None:
        return find_gpu(shipped)
    form = _FORM.search(item.instance_name)
    forms = ([f"{item.gpu_name} {form[0]}"] if form else []) + [item.gpu_name]
    names = [f"{each} {item.gpu_memory or 0:g}GB" for each in forms] + forms
    for name in (item.instance_name, *names):
        try:
            gpu = find_gpu(name)
        except UnknownGpuError:
            continue
        if item.gpu_memory is None or abs(gpu.memory_gib / item.gpu_memory - 1) <= _MEMORY_TOLERANCE:
            return gpu
    return f"{item.gpu_name} of {item.gpu_memory or 0:g} GB"


def _instance(item: CatalogueItem, gpu: Gpu) -> str:
    if _provider(item) not in _MARKETPLACES:
        return item.instance_name
    return f"{item.gpu_count}x {short_name(gpu.name)} (marketplace)"


def _usual(items: list[CatalogueItem]) -> CatalogueItem:
    """The cheapest item of a cloud; that of the median price, the lower of two, of a marketplace."""
    by_price = sorted(items, key=lambda item: item.price)
    return by_price[(len(by_price) - 1) // 2 if _provider(items[0]) in _MARKETPLACES else 0]


def _offer(instance: str, gpu: str, prices: dict[bool, CatalogueItem], today: date) -> Offer:
    item, spot = prices[False], prices.get(True)
    return Offer(
        provider=_provider(item),
        instance=instance,
        gpu=gpu,
        gpu_count=item.gpu_count,
        usd_per_hour=item.price,
        vcpus=item.cpu or None,
        memory_gib=item.memory or None,
        disk_gb=item.disk_size or None,
        link=_link(gpu) if item.gpu_count > 1 else "",
        spot_usd_per_hour=spot.price if spot and 0 < spot.price <= item.price else None,
        region=item.location,
        source_url=SOURCE,
        retrieved_on=today,
        marketplace=_provider(item) in _MARKETPLACES,
    )


def _link(gpu: str) -> str:
    """What joins several of these GPUs as a rule; empty where that is not known."""
    try:
        return usual_link(find_gpu(gpu), load_offers()).name
    except SchemaError:
        return ""


def _provider(item: CatalogueItem) -> str:
    return _OUR_NAMES.get(item.provider, item.provider)


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
