"""A price file is checked as it is read, and the cheapest machine is found."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from case_tables import each_row

from predictor.catalogue.offers import Offer, Prices, load_offers, own_usd_per_hour
from predictor.errors import SchemaError, UnknownGpuError

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
