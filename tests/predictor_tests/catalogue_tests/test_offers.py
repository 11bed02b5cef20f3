"""A price file is checked as it is read, and the cheapest machine is found."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("a,b,T4,1,-1", r"line 2: usd_per_hour '-1' is not a number of at least 0"),
        ("a,b,T4,1,inf", r"line 2: usd_per_hour 'inf'"),
        ("a,b,T4,1,nan", r"line 2: usd_per_hour 'nan'"),
        ("a,b,T4,1,cheap", r"line 2: usd_per_hour 'cheap'"),
        ("a,b,T4,1,", r"line 2: usd_per_hour is empty"),
        ("a,b,T4,0,1", r"line 2: gpu_count '0' is not a number above 0"),
        (
            "a,b,T4,2.5,1",
            r"line 2: gpu_count 2\.5 is neither a share of one GPU, below 1, nor a whole number",
        ),
        ("a,b,T4,1e300,1", r"line 2: gpu_count '1e300' is not a number above 0, and at most 1,024"),
        ("a,b,T4,1,1e300", r"line 2: usd_per_hour '1e300' is not a number of at least 0, and at most"),
        ("a,b,T4,1,1,,,,9", r"line 2 has more cells than columns"),
        ("a,b,,1,1", r"line 2: gpu is empty"),
        (",b,T4,1,1", r"line 2: provider is empty"),
        ("a,b,T4,1,1,2,2026-01-01", r"line 2: spot_usd_per_hour 2 is above usd_per_hour 1"),
        ("a,b,T4,1,1,,", r"line 2: retrieved_on is empty\. Date the price, or mark it historic"),
        ("a,b,T4,1,1,,yesterday", r"line 2: retrieved_on 'yesterday' is not a date"),
        ("a,b,T4,1,1,,2026-01-01,perhaps", r"line 2: historic 'perhaps' is neither true nor false"),
    ],
)
def test_a_row_that_cannot_be_is_refused_with_its_line(write_offers, row, message):
    with pytest.raises(SchemaError, match=message):
        load_offers(write_offers(FULL, row))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (f"{HEADER}\na,b,T4,1,1\na,b,H2O0,1,1\n", "line 3: .*no GPU is called"),
        (f"{HEADER}\na,b,T4,1,1\na,b,V100,1,1\n", "line 3: .*fits several GPUs"),
        ("provider,instance,gpu\na,b,T4\n", "lacks the columns gpu_count, usd_per_hour"),
        ("", "is empty"),
        (f"{HEADER}\n", "holds no offer"),
        (None, "there is no price file"),
        (b"\xff\xd8\xff\xe0\x00\x10", "is no CSV file in UTF-8"),
    ],
)
def test_a_file_that_is_no_price_file_is_refused(content, message, tmp_path):
    path = tmp_path / "prices.csv"
    if content is not None:
        path.write_bytes(content.encode() if isinstance(content, str) else content)
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
