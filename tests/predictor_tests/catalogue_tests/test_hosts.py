from dataclasses import replace

import pytest

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.hosts import all_hosts, find_host, usual_host


def test_a_measured_cpu_left_out_is_told_by_its_clock_within_15_percent():
    measured = [host for host in all_hosts() if host.measured_ms and host.performance]
    for host in measured:
        others = [other for other in measured if other is not host]
        by_clock = replace(host, measured_ms=None).speed(others)
        assert by_clock.reference_ms == pytest.approx(host.measured_ms, rel=0.15), host.name


def test_an_instance_has_the_speed_of_its_cpu():
    for name in ("g5.2xlarge", "AWS/g5.2xlarge"):
        assert find_host(name).reference_ms == find_host("amd epyc 7r32").reference_ms


def test_a_machine_whose_provider_mixes_cpus_has_no_host_of_its_own():
    assert find_host("8x HGX B200") is None


def test_the_usual_host_of_a_gpu_is_the_median_of_its_offers_and_surer_than_that_of_a_kind():
    a10g, desktop, server = (usual_host(find_gpu(name)) for name in ("A10G", "RTX 5090", "B200"))
    assert a10g.reference_ms == find_host("AMD EPYC 7R32").reference_ms
    assert a10g.spread < desktop.spread
    assert desktop.reference_ms < server.reference_ms


def test_a_cpu_is_named_with_its_maker_or_without():
    assert find_host("EPYC 7R32").name == find_host("amd epyc 7r32").name == "AMD EPYC 7R32"
    assert find_host("v4") is None
