"""A price file is checked as it is read, and the cheapest machine is found."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from case_tables import each_row

import epochcast
from predictor.catalogue.offers import Offer, Prices, load_offers, own_usd_per_hour
from predictor.catalogue.providers import chosen_offers
from predictor.errors import EpochcastError, SchemaError, UnknownGpuError

HEADER = "provider,instance,gpu,gpu_count,usd_per_hour"
FULL = HEADER + ",spot_usd_per_hour,retrieved_on,historic"
WriteOffers = Callable[..., Path]


@pytest.fixture
def write_offers(tmp_path: Path) -> WriteOffers:
    def write(*lines: str) -> Path:
        path = tmp_path / "offers.csv"
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return write


@pytest.fixture
def three_offers() -> Prices:
    one = Offer("here", "one", "Tesla T4", 1, 0.50)
    four = Offer("here", "four", "Tesla T4", 4, 1.60, spot_usd_per_hour=0.40)
    return Prices((one, four, Offer("there", "old", "Tesla T4", 1, 0.10, historic=True)))


def test_a_users_own_file_needs_five_columns_only(write_offers):
    offers = load_offers(write_offers(HEADER, "mine,desk,RTX 3090,1,0.35"))
    assert offers == (Offer("mine", "desk", "GeForce RTX 3090", 1.0, 0.35),)


def test_the_machines_of_a_gpu_are_ranked_by_price_and_history_is_left_out(three_offers):
    assert [offer.instance for offer in three_offers.of_each()["Tesla T4"]] == ["one", "four"]


def test_a_machine_with_too_few_gpus_or_without_a_spot_price_is_passed_over(three_offers):
    for options in ({"n_gpus": 2}, {"spot": True}):
        assert [offer.instance for offer in three_offers.of_each(**options)["Tesla T4"]] == ["four"]
    assert Prices([Offer("here", "share", "NVIDIA L4", 0.25, 0.2)]).of_each() == {}


@each_row
def test_a_row_that_cannot_be_is_refused_with_its_line(write_offers, row, message):
    with pytest.raises(SchemaError, match=message):
        load_offers(write_offers(FULL, row))


@each_row
def test_a_file_that_is_no_price_file_is_refused(content, message, tmp_path):
    path = tmp_path / "prices.csv"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises((SchemaError, UnknownGpuError), match=message):
        load_offers(path)


def test_a_gzipped_file_is_read_and_a_cut_one_refused(write_offers, tmp_path):
    plain, zipped = write_offers(HEADER, "a,b,T4,1,1"), tmp_path / "offers.csv.gz"
    zipped.write_bytes(gzip.compress(plain.read_bytes()))
    assert load_offers(zipped) == load_offers(plain)
    zipped.write_bytes(zipped.read_bytes()[:-9])
    with pytest.raises(SchemaError, match="is no CSV file in UTF-8"):
        load_offers(zipped)


def test_marketplaces_stand_in_where_no_cloud_rents_the_gpu_today():
    old = Offer("gone", "old", "Tesla P4", 1, 0.7, historic=True)
    cloud = Offer("aws", "g4dn.xlarge", "Tesla T4", 1, 0.5)
    hosts = [Offer("vast", "hosts", gpu, 1, 0.1, marketplace=True) for gpu in ("Tesla T4", "Tesla P4")]
    assert Prices([old, cloud, *hosts]).without_marketplaces == (old, cloud, hosts[1])


def test_a_machine_of_ones_own_costs_its_price_over_its_hours_and_electricity():
    machine, electricity = own_usd_per_hour(7 * 365.25, 7, 7, watts=500, usd_per_kwh=0.4)
    assert (machine, electricity) == (pytest.approx(1.0), pytest.approx(0.2))


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
