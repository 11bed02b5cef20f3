"""Offers are chosen by provider and place, and a rental is billed as its provider says."""

import numpy as np
import pytest
from case_tables import each_row

import epochcast
from predictor.catalogue.offers import Offer, Prices, load_offers
from predictor.catalogue.providers import chosen_offers
from predictor.errors import EpochcastError


@each_row
def test_offers_are_chosen_by_provider_and_place(providers, regions, left):
    chosen = chosen_offers(load_offers(), providers, regions)
    assert {f"{offer.provider} {offer.region}" for offer in chosen if not offer.historic} == {*left}


@each_row
def test_a_name_without_offers_is_refused_with_those_that_have_some(providers, regions, words):
    with pytest.raises(EpochcastError, match=words):
        chosen_offers(load_offers(), providers, regions)


def test_a_region_on_a_known_grid_is_where_the_grid_is_whatever_its_name():
    at = {
        name: Offer("aws", "g", "Tesla T4", 1, 1.0, region=name)
        for name in ("eu-west-2", "eu-central-1", "eu-x1")
    }
    london, berlin, unknown = at.values()
    assert chosen_offers(Prices(at.values()), None, "eu") == (berlin, unknown)
    assert chosen_offers(Prices(at.values()), None, "europe,eu-west") == (london, berlin)


@each_row
def test_a_training_of_seconds_costs_what_its_provider_bills_at_least(provider, billed_s):
    row = epochcast.compare("lenet5", data_set="mnist", provider=provider, budget_usd=0.01).iloc[0]
    shortest_s = row["total_cost_usd"] / row["usd_per_hour"] * 3600
    assert shortest_s == pytest.approx(billed_s or row["total_time_h"] * 3600)
    assert (row["chance"] == 0.0) == (row["total_cost_usd"] > 0.01)


def test_a_provider_that_bills_by_the_minute_bills_whole_ones():
    rows = epochcast.compare("resnet18", data_set="cifar10", provider="lambda", epochs=5)
    minutes = rows["total_cost_usd"] / rows["usd_per_hour"] * 60
    assert minutes.to_numpy() == pytest.approx(np.ceil(60 * rows["total_time_h"].to_numpy()))
