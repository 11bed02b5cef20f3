"""Token buckets: bursts pass, then so many a second, each for oneself, in bounded memory."""

from api.addresses import address_of
from api.limits import Rates


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


def test_a_burst_passes_and_then_so_many_a_second():
    clock = Clock()
    rates = Rates(per_s=2.0, burst=3, clock=clock)
    assert [rates.wait_s("a") for _ in range(4)] == [0, 0, 0, 1]
    clock.now += 0.5
    assert [rates.wait_s("a") for _ in range(2)] == [0, 1]
    clock.now += 1000
    assert [rates.wait_s("a") for _ in range(4)] == [0, 0, 0, 1]


def test_a_slow_rate_says_how_long_to_wait():
    clock = Clock()
    rates = Rates(per_s=0.1, burst=1, clock=clock)
    assert [rates.wait_s("a"), rates.wait_s("a")] == [0, 10]


def test_everybody_has_a_bucket_of_their_own():
    rates = Rates(per_s=1.0, burst=1, clock=Clock())
    assert [rates.wait_s("a"), rates.wait_s("b"), rates.wait_s("a")] == [0, 0, 1]


def test_no_rate_is_no_limit():
    rates = Rates(per_s=0, burst=1, clock=Clock())
    assert not any(rates.wait_s("a") for _ in range(1000))


def test_very_many_addresses_take_bounded_memory(monkeypatch):
    monkeypatch.setattr("api.limits._MOST_BUCKETS", 10)
    rates = Rates(per_s=1.0, burst=1, clock=Clock())
    for i in range(1000):
        rates.wait_s(i)
    assert len(rates._buckets) == 10


def test_one_machine_has_one_address():
    assert address_of(("192.0.2.7", 5)) == "192.0.2.7"
    assert address_of(("2001:db8:1:2:aaaa::1", 5)) == address_of(("2001:db8:1:2:bbbb::9", 7))
    assert address_of(("2001:db8:1:3::1", 5)) != address_of(("2001:db8:1:2::1", 5))
    assert address_of(("fe80::1%eth0", 5)) == "fe80::/64"
    assert address_of(("testclient", 5)) == "testclient"
    assert address_of(("no:address", 5)) == "no:address"
    assert address_of(None) == ""
