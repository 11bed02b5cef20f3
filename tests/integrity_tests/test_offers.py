"""Every shipped offer can be rented (or says that it is history), names a known GPU, and is dated."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from predictor.answers.loading import VCPUS_OF_A_GPU, VCPUS_SPREAD
from predictor.catalogue.devices import all_gpus
from predictor.catalogue.offers import Offer, load_offers
from predictor.catalogue.providers import all_providers

KNOWN = json.loads(Path(__file__).with_name("known_offers.json").read_text("utf-8"))
"""Prices that are history by instance; instances with their GPU and how many; days of prices with their providers."""


@pytest.fixture(scope="module")
def offers() -> tuple[Offer, ...]:
    return load_offers()


def test_every_offer_names_a_known_gpu(offers):
    assert {offer.gpu for offer in offers} <= {gpu.name for gpu in all_gpus()}


def test_no_spot_price_is_above_its_on_demand_price(offers):
    assert all(offer.spot_usd_per_hour <= offer.usd_per_hour for offer in offers if offer.spot_usd_per_hour)


def test_every_offer_of_today_is_dated_and_sourced(offers):
    today = [offer for offer in offers if not offer.historic]
    assert {str(offer.retrieved_on) for offer in today} == {*KNOWN["dates"]}
    assert all(offer.source_url.startswith("https://") and offer.region for offer in today)


def test_clouds_say_the_vcpus_by_which_loading_is_judged(offers):
    of_clouds = [offer for offer in offers if not (offer.historic or offer.marketplace)]
    unsaid = {offer.instance for offer in of_clouds if offer.vcpus is None}
    assert unsaid == {"P6000", "P5000", "RTX5000", "RTX4000"}  # of paperspace


def test_nine_of_ten_offers_have_the_vcpus_that_are_taken_where_an_offer_does_not_say(offers):
    known = [offer for offer in offers if offer.vcpus and offer.gpu_count >= 1 and not offer.historic]
    shares = np.array([offer.vcpus / offer.gpu_count for offer in known]) / VCPUS_OF_A_GPU
    assert np.median(shares) == 1.0
    assert 0.87 < np.mean(np.abs(np.log(shares)) <= np.log(VCPUS_SPREAD)) < 0.95


def test_offers_of_today_are_of_49_gpus_and_14_providers(offers):
    today = [offer for offer in offers if not offer.historic]
    assert (len({offer.gpu for offer in today}), len({offer.provider for offer in today})) == (49, 14)


def test_every_provider_of_an_offer_is_known_and_what_is_known_of_its_bills_has_a_source(offers):
    assert {*all_providers()} == {offer.provider for offer in offers}
    stated = [row for row in all_providers().values() if row.least_billed_s is not None]
    assert all(
        row.source_url.startswith("https://") and row.billed_by_s <= row.least_billed_s for row in stated
    )


def test_a_marketplace_says_so_in_the_name_of_its_offers(offers):
    marks = ("marketplace", "Community Cloud")
    assert {o.instance for o in offers if o.marketplace} == {
        o.instance for o in offers if any(word in o.instance for word in marks)
    }


def test_an_instance_has_one_price_per_region(offers):
    keys = Counter((o.provider, o.instance, o.region, o.historic) for o in offers)
    assert [key for key, count in keys.items() if count > 1] == []


def test_an_instance_holds_the_same_gpus_in_every_region(offers):
    held: dict[tuple[str, str], set[tuple[str, float]]] = {}
    for offer in offers:
        held.setdefault((offer.provider, offer.instance), set()).add((offer.gpu, offer.gpu_count))
    assert [key for key, gpus in held.items() if len(gpus) > 1] == []


def test_the_founding_prices_are_kept_as_history(offers):
    assert {o.instance: o.usd_per_hour for o in offers if o.historic} == KNOWN["founding prices"]


@pytest.mark.parametrize(("instance", "gpu", "gpu_count"), KNOWN["instances"])
def test_the_instance_tells_the_exact_gpu_and_its_chips(offers, instance, gpu, gpu_count):
    assert {(o.gpu, o.gpu_count) for o in offers if o.instance == instance} == {(gpu, gpu_count)}


def test_a_machine_that_shares_a_gpu_counts_less_than_one(offers):
    shares = {o.instance: o.gpu_count for o in offers if o.gpu_count < 1}
    assert shares["g6f.large"] == 0.125
    assert shares["Standard_NV6ads_A10_v5"] == pytest.approx(1 / 6, rel=1e-4)
