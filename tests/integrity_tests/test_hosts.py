"""Every shipped host has a speed, and its instances are shipped offers that no other host claims."""

from fnmatch import fnmatchcase

from predictor.catalogue.devices import all_gpus
from predictor.catalogue.hosts import all_hosts
from predictor.catalogue.offers import load_offers


def test_every_pattern_of_a_hosts_instances_is_of_an_offer_or_of_a_gpu():
    names = {f"{offer.provider}/{offer.instance}" for offer in load_offers()}
    names |= {f"own/{gpu.name}" for gpu in all_gpus()}
    patterns = [pattern for host in all_hosts() for pattern in host.instances]
    assert [pattern for pattern in patterns if not any(fnmatchcase(name, pattern) for name in names)] == []


def test_no_offer_has_two_hosts():
    hosts = all_hosts()
    claimed = {own.instance: [host.name for host in hosts if host.has(own)] for own in load_offers()}
    assert {instance: hosts for instance, hosts in claimed.items() if len(hosts) > 1} == {}


def test_every_host_has_its_own_name_and_a_speed_between_the_fastest_and_the_slowest_known():
    hosts = all_hosts()
    assert len({host.name.casefold() for host in hosts}) == len(hosts)
    assert [host.name for host in hosts if not 2.0 < host.speed().reference_ms < 25.0] == []


def test_a_host_that_says_published_has_its_address_and_day():
    assert [
        host.name
        for host in all_hosts()
        if host.basis == "published" and not (host.source_url and host.retrieved_on)
    ] == []
    assert {host.basis for host in all_hosts()} <= {"published", "cited", "own"}
