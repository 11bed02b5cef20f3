"""Live prices: which offers a catalogue gives, what is skipped and counted, and files that are read back."""

from collections import Counter
from dataclasses import dataclass
from datetime import date

import pytest
from case_tables import each_row

from predictor.catalogue.live_offers import SOURCE, live_offers, updated_offers
from predictor.catalogue.offers import load_offers, write_offers
from predictor.errors import OutOfRangeError, ServiceError

gpuhunt = pytest.importorskip("gpuhunt", reason="epochcast[offers] is not installed")

TODAY = date(2026, 11, 22)
HEADER = (
    "instance_name,location,price,cpu,memory,gpu_count,gpu_name,gpu_memory,spot,disk_size,gpu_vendor,flags,"
    "cpu_arch,provider_data\n"
)
LAMBDA = """gpu_1x_h100_sxm5,us-west-1,4.29,26,225,1,H100,80,False,2816,nvidia,,x86,{}
gpu_8x_a100_80gb_sxm4,us-east-1,22.32,240,1800,8,A100,80,False,19968,nvidia,,x86,{}
gpu_8x_v100,us-east-1,6.32,88,448,8,V100,16,False,5939,nvidia,,x86,{}
cpu_4x_general,us-east-1,0.2,4,16,0,,,False,512,,,x86,{}
"""
RUNPOD = """NVIDIA A100-SXM4-80GB,EU-CZ-1,1.59,16,125,1,A100,80,False,,nvidia,,x86,{}
NVIDIA A100-SXM4-80GB,US-GA-1,1.49,16,125,1,A100,80,False,,nvidia,,x86,{}
NVIDIA A100-SXM4-80GB,US-GA-1,0.79,16,125,1,A100,80,True,,nvidia,,x86,{}
AMD Instinct MI300X OAM,EU-RO-1,2.49,24,283,1,MI300X,192,False,,amd,,x86,{}
NVIDIA RTX A4500,EU-RO-1,0.1,12,62,1,A4500,20,True,,nvidia,,x86,{}
NVIDIA H200,US-CA-2,4.59,24,276,1,H200,24,False,,nvidia,,x86,{}
"""


@dataclass
class Item:
    provider: str = "runpod"
    instance_name: str = "NVIDIA L40S"
    location: str = "US-KS-2"
    price: float = 1.0
    cpu: int | None = 8
    memory: float | None = 64.0
    gpu_count: int = 1
    gpu_name: str | None = "L40S"
    gpu_memory: float | None = 48.0
    spot: bool = False
    disk_size: float | None = None


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    folder = tmp_path / "catalogues"
    folder.mkdir()
    (folder / "lambdalabs.csv").write_text(HEADER + LAMBDA)
    (folder / "runpod.csv").write_text(HEADER + RUNPOD)
    monkeypatch.setenv("GPUHUNT_CATALOG_DIR", str(folder))
    return folder


def test_a_recorded_catalogue_becomes_offers_with_their_gpus_counts_links_and_dates(recorded):
    offers = [offer for offer in updated_offers(today=TODAY).offers if offer.source_url == SOURCE]
    assert [(o.provider, o.gpu, o.gpu_count, o.usd_per_hour, o.link) for o in offers] == [
        ("lambda", "NVIDIA H100 80GB HBM3", 1, 4.29, ""),
        ("lambda", "NVIDIA A100-SXM4-80GB", 8, 22.32, "nvlink3"),
        ("runpod", "NVIDIA A100-SXM4-80GB", 1, 1.49, ""),
    ]
    assert {offer.retrieved_on for offer in offers} == {TODAY}
    assert (offers[0].vcpus, offers[0].memory_gib, offers[0].disk_gb) == (26, 225, 2816)


def test_of_an_instance_the_cheapest_place_is_kept_with_its_spot_price(recorded):
    [offer] = [listed for listed in updated_offers(["runpod"], TODAY).offers if listed.source_url == SOURCE]
    assert (offer.region, offer.usd_per_hour, offer.spot_usd_per_hour) == ("US-GA-1", 1.49, 0.79)


def test_what_is_skipped_is_counted_by_its_reason(recorded):
    skipped = updated_offers(today=TODAY).skipped
    assert skipped == {
        "V100 of 16 GB": 1,  # SXM2 or PCI Express: not said
        "MI300X of 192 GB": 1,
        "H200 of 24 GB": 1,  # a share of one
        "spot prices without one on demand": 1,
    }


def test_an_item_without_a_gpu_or_a_price_is_counted_too():
    update = live_offers([Item(gpu_count=0), Item(gpu_name=None), Item(price=0.0)], TODAY)
    assert (update.offers, update.skipped) == ((), {"without a GPU or a price": 3})


def test_an_instance_that_is_shipped_has_its_shipped_gpu_and_other_providers_stay_as_shipped(recorded):
    listing = Item("aws", "p4d.24xlarge", gpu_name="A100", gpu_memory=40.0, gpu_count=8)
    [offer] = live_offers([listing], TODAY).offers
    assert offer.gpu == "NVIDIA A100-SXM4-40GB"
    counts = Counter(offer.provider for offer in updated_offers(today=TODAY).offers)
    shipped = Counter(offer.provider for offer in load_offers() if not offer.historic)
    for name in ("aws", "azure", "coreweave"):
        assert counts[name] == shipped[name]


def test_the_host_of_the_median_price_stands_for_all_of_a_marketplace():
    hosts = [Item("vastai", str(price), price=price, cpu=int(10 * price)) for price in (0.9, 0.2, 0.4)]
    [offer] = live_offers(hosts, TODAY).offers
    assert (offer.instance, offer.marketplace) == ("1x L40S (marketplace)", True)
    assert (offer.usd_per_hour, offer.vcpus) == (0.4, 4)


def test_a_written_price_file_is_read_back_as_it_was(tmp_path):
    shipped = load_offers()
    write_offers(shipped, tmp_path / "prices.csv")
    assert load_offers(tmp_path / "prices.csv") == shipped


@each_row
def test_an_unknown_provider_and_a_catalogue_without_a_known_gpu_are_refused(providers, words, recorded):
    (recorded / "runpod.csv").write_text(HEADER)
    with pytest.raises(OutOfRangeError, match=words):
        updated_offers(providers)


def test_a_catalogue_out_of_reach_is_a_service_that_does_not_answer(monkeypatch):
    def unreachable():
        raise gpuhunt.GPUHuntError("Failed to load catalogs of all providers")

    monkeypatch.delenv("GPUHUNT_CATALOG_DIR", raising=False)
    monkeypatch.setattr(gpuhunt, "default_catalog", unreachable)
    with pytest.raises(ServiceError, match="needs a network"):
        updated_offers()
