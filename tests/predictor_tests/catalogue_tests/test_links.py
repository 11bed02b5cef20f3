"""Links: their table, the time of an all-reduce, and what joins the GPUs of an offer."""

import pytest
from case_tables import each_row

from predictor.catalogue.devices import all_gpus, find_gpu
from predictor.catalogue.links import BASES, JOINS, all_links, find_link, usual_link
from predictor.catalogue.offers import load_offers
from predictor.errors import SchemaError


def test_every_link_joins_gpus_or_machines_and_says_where_its_bandwidth_is_from():
    links = all_links()
    assert [link.name for link in links if link.joins not in JOINS] == []
    assert [link.name for link in links if not set(link.basis.values()) <= set(BASES)] == []
    assert [link.name for link in links if min(link.bus_bandwidth_gb_per_s.values()) <= 0] == []


def test_every_offer_with_several_gpus_names_a_link_between_gpus():
    names = {link.name for link in all_links() if link.joins == "gpu"}
    wrong = [offer for offer in load_offers() if (offer.link not in names) == (offer.gpu_count > 1)]
    assert wrong == []


def test_an_all_reduce_sends_almost_twice_the_bytes_at_a_bandwidth_between_known_numbers_of_gpus():
    link = find_link("nvlink4")
    at_once, in_messages = link.all_reduce_ms(400e6, 4, 4), link.all_reduce_ms(400e6, 4, 4, messages=11)
    assert at_once == pytest.approx(2 * 3 / 4 * 400 / 334 + 0.03)
    assert in_messages - at_once == pytest.approx(10 * 0.03)  # it waits for each message
    assert link.bandwidth_gb_per_s(4) < link.bandwidth_gb_per_s(6) < link.bandwidth_gb_per_s(8)
    assert link.bandwidth_gb_per_s(16) == link.bandwidth_gb_per_s(8)


def test_the_usual_link_is_that_of_the_offers_else_nvlink_or_pci_express():
    offers = load_offers()
    names = {name: usual_link(find_gpu(name), offers).name for name in ("H200", "T4", "RTX 6000 Ada")}
    assert names == {"H200": "nvlink4", "T4": "pcie3", "RTX 6000 Ada": "pcie4"}
    assert usual_link(find_gpu("P100 SXM2"), offers).name == "nvlink1"


def test_cards_without_peer_access_exchange_through_the_host_where_nothing_hides_it():
    names = ("GTX 1080 Ti", "RTX 2080 Ti", "RTX 4090", "RTX 5090", "TITAN V", "TITAN RTX")
    links = {name: usual_link(find_gpu(name), ()) for name in names}
    assert {name: link.name for name, link in links.items()} == {
        "GTX 1080 Ti": "pcie3_host", "RTX 2080 Ti": "pcie3_host", "RTX 4090": "pcie4_host", "RTX 5090": "pcie5_host",
        "TITAN V": "pcie3", "TITAN RTX": "pcie3_host",
    }  # fmt: skip
    assert [name for name, link in links.items() if link.overlaps] == ["TITAN V"]


def test_a_gpu_without_known_link_asks_for_one():
    unknown = next(gpu for gpu in all_gpus() if gpu.pcie_generation is None)
    with pytest.raises(SchemaError, match="Pass link, one of pcie3"):
        usual_link(unknown, ())


@each_row
def test_an_unknown_link_is_refused_with_the_nearest_of_the_right_sort(name, joins, words):
    with pytest.raises(SchemaError, match=words):
        find_link(name, joins)


def test_a_network_of_ten_times_the_rate_takes_a_tenth_of_the_time():
    slow, fast = (
        find_link(name, "node").all_reduce_ms(1e8, 2, 2) for name in ("ethernet_1g", "ethernet_10g")
    )
    assert 8 < slow / fast < 12
