from dataclasses import replace

import pytest

from predictor.catalogue.devices import all_gpus, find_gpu, generations
from predictor.catalogue.hosts import all_hosts, find_host, usual_host
from predictor.errors import DataError


def test_a_measured_cpu_left_out_is_told_by_its_clock_within_15_percent():
    measured = [host for host in all_hosts() if host.measured_ms and host.performance]
    for host in measured:
        peers = [peer for peer in measured if peer is not host]
        by_clock = replace(host, measured_ms=None).speed(peers)
        assert by_clock.reference_ms == pytest.approx(host.measured_ms, rel=0.15), host.name


def test_a_speed_by_the_clock_of_cpus_that_were_not_measured_is_refused():
    unmeasured = [replace(host, measured_ms=None) for host in all_hosts()]
    for others in (unmeasured, []):
        with pytest.raises(DataError, match=r"has a measured time.*leave them out for those of hosts\.csv"):
            unmeasured[0].speed(others)


def test_a_host_is_named_by_its_cpu_with_its_maker_or_without_or_by_its_instance():
    assert find_host("EPYC 7R32").name == find_host("amd epyc 7r32").name == "AMD EPYC 7R32"
    for name in ("g5.2xlarge", "AWS/g5.2xlarge"):
        assert find_host(name).reference_ms == find_host("amd epyc 7r32").reference_ms
    assert find_host("8x HGX B200") is None  # its provider mixes CPUs
    assert find_host("v4") is None


def test_the_usual_host_follows_from_the_generation_and_never_becomes_slower():
    usual_ms = {gpu.generation: usual_host(gpu).reference_ms for gpu in all_gpus()}
    assert all(usual_host(gpu).reference_ms == usual_ms[gpu.generation] for gpu in all_gpus())
    in_order = [usual_ms[generation] for generation in generations()]
    assert in_order == sorted(in_order, reverse=True)
    assert in_order[0] > 1.5 * in_order[-1]


def test_the_usual_host_is_surer_where_offers_tell_their_cpus():
    offered, not_offered = (usual_host(find_gpu(name)).spread for name in ("A10G", "RTX 3090"))
    assert offered < not_offered
