"""Every shipped offer can be rented (or says that it is history), names a known GPU, and is dated."""

from collections import Counter
from datetime import date

import pytest

from predictor.catalogue.devices import all_gpus
from predictor.catalogue.offers import Offer, load_offers

FOUNDING_PRICES = {
    "NC6": 0.90,
    "NC12": 1.80,
    "NC24": 3.60,
    "NC24r": 3.96,
    "NV6": 1.24,
    "NV12": 2.48,
    "NV24": 4.97,
    "K80 x0.5": 0.99,
    "K80 x1": 1.69,
    "K80 x2 (a)": 3.33,
    "K80 x2 (b)": 3.79,
    "K80 x4": 7.61,
    "P100 x1": 2.00,
    "P100 x2": 4.45,
    "P100 x4": 9.85,
    "P4 x1": 0.71,
    "T4 x1": 0.95,
    "V100 x1": 2.03,
}


@pytest.fixture(scope="module")
def offers() -> tuple[Offer, ...]:
    return load_offers()


def test_every_offer_names_a_known_gpu(offers):
    assert {offer.gpu for offer in offers} <= {gpu.name for gpu in all_gpus()}


def test_no_spot_price_is_above_its_on_demand_price(offers):
    assert all(offer.spot_usd_per_hour <= offer.usd_per_hour for offer in offers if offer.spot_usd_per_hour)


def test_every_offer_of_today_is_dated_and_sourced(offers):
    today = [offer for offer in offers if not offer.historic]
    assert {offer.retrieved_on for offer in today} == {
        date(2026, 6, 11),  # gcp
        date(2026, 6, 18),  # azure
        date(2026, 7, 20),  # aws
        date(2026, 8, 19),  # runpod
        date(2026, 8, 24),  # lium
        date(2026, 9, 20),  # lambda, coreweave, paperspace, akash, tensordock
        date(2026, 10, 7),  # runpod, nebius
        date(2026, 10, 19),  # vast
        date(2026, 10, 24),  # jarvislabs
        date(2026, 10, 29),  # verda, vast
        date(2026, 11, 9),  # runpod
    }
    assert all(offer.source_url.startswith("https://") and offer.region for offer in today)


def test_clouds_say_the_vcpus_by_which_loading_is_judged(offers):
    of_clouds = [offer for offer in offers if not (offer.historic or offer.marketplace)]
    unsaid = {offer.instance for offer in of_clouds if offer.vcpus is None}
    assert unsaid == {"P6000", "P5000", "RTX5000", "RTX4000"}  # of paperspace


def test_offers_of_today_are_of_49_gpus_and_14_providers(offers):
    today = [offer for offer in offers if not offer.historic]
    assert (len({offer.gpu for offer in today}), len({offer.provider for offer in today})) == (49, 14)


def test_a_marketplace_says_so_in_the_name_of_its_offers(offers):
    said = ("marketplace", "Community Cloud")
    assert {o.instance for o in offers if o.marketplace} == {
        o.instance for o in offers if any(word in o.instance for word in said)
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
    assert {o.instance: o.usd_per_hour for o in offers if o.historic} == FOUNDING_PRICES


@pytest.mark.parametrize(
    ("instance", "gpu", "gpu_count"),
    [
        ("p2.16xlarge", "Tesla K80", 16),
        ("g3s.xlarge", "Tesla M60", 1),
        ("g3.16xlarge", "Tesla M60", 4),
        ("p3.2xlarge", "Tesla V100-SXM2-16GB", 1),
        ("p3dn.24xlarge", "Tesla V100-SXM2-32GB", 8),
        ("g4dn.metal", "Tesla T4", 8),
        ("g5.xlarge", "NVIDIA A10G", 1),
        ("g6e.xlarge", "NVIDIA L40S", 1),
        ("p4d.24xlarge", "NVIDIA A100-SXM4-40GB", 8),
        ("p4de.24xlarge", "NVIDIA A100-SXM4-80GB", 8),
        ("Standard_NC6s_v3", "Tesla V100-PCIE-16GB", 1),
        ("Standard_NC24ads_A100_v4", "NVIDIA A100 80GB PCIe", 1),
        ("Standard_NC40ads_H100_v5", "NVIDIA H100 NVL", 1),
        ("Standard_ND96asr_v4", "NVIDIA A100-SXM4-40GB", 8),
        ("Standard_NV48s_v3", "Tesla M60", 4),
        ("a2-ultragpu-1g", "NVIDIA A100-SXM4-80GB", 1),
        ("8x A100 SXM 40 GB", "NVIDIA A100-SXM4-40GB", 8),
        ("1x GH200", "NVIDIA GH200 480GB", 1),
        ("8x HGX B200", "NVIDIA B200", 8),
        ("1x H200 (Secure Cloud)", "NVIDIA H200", 1),
        ("1x RTX 4090 (marketplace from)", "GeForce RTX 4090", 1),
        ("RTX5000", "Quadro RTX 5000", 1),
        ("2x A40 (Secure Cloud)", "NVIDIA A40", 2),
        ("8x H100 SXM", "NVIDIA H100 80GB HBM3", 8),
        ("NC24r", "Tesla K80", 4),
        ("K80 x0.5", "Tesla K80", 1),
    ],
)
def test_the_instance_tells_the_exact_gpu_and_its_chips(offers, instance, gpu, gpu_count):
    assert {(o.gpu, o.gpu_count) for o in offers if o.instance == instance} == {(gpu, gpu_count)}


def test_a_machine_that_shares_a_gpu_counts_less_than_one(offers):
    shares = {o.instance: o.gpu_count for o in offers if o.gpu_count < 1}
    assert shares["g6f.large"] == 0.125
    assert shares["Standard_NV6ads_A10_v5"] == pytest.approx(1 / 6, rel=1e-4)
