"""Evenly spread numbers: the same everywhere, and even from the first on."""

from itertools import islice

import pytest

from proxy_cnns.spread import draws, spread_order


def test_a_reordered_list_has_the_same_items():
    assert sorted(spread_order(range(1000))) == list(range(1000))


@pytest.mark.parametrize("beginning", [20, 50, 200])
def test_every_beginning_of_a_reordered_list_reaches_each_tenth_of_it(beginning):
    tenths = {item // 100 for item in spread_order(range(1000))[:beginning]}
    assert len(tenths) == 10


def test_draws_are_the_same_for_one_seed_and_differ_between_seeds():
    one, again, other = ([draw.between(1, 1000) for draw in islice(draws(s), 20)] for s in ("a", "a", "b"))
    assert one == again
    assert one != other


def test_sizes_fill_their_range_evenly_in_ratio():
    sizes = [draw.between(1, 1024) for draw in islice(draws("x"), 1000)]
    assert [sum(2**p <= size < 2 ** (p + 1) for size in sizes) for p in range(10)] == pytest.approx(
        [100] * 10, abs=3
    )


def test_most_channels_are_multiples_of_eight_and_some_are_odd():
    channels = [draw.channels(draw.between(16, 1024)) for draw in islice(draws("x"), 1000)]
    assert 0.65 < sum(c % 8 == 0 for c in channels) / 1000 < 0.85
    assert 0.05 < sum(c % 2 for c in channels) / 1000 < 0.2


def test_sides_lie_in_their_range_and_half_of_them_are_usual():
    sides = [draw.side(7, 150) for draw in islice(draws("x"), 1000)]
    assert (min(sides), max(sides) <= 150) == (7, True)
    assert 0.5 < sum(side in (7, 8, 14, 16, 28, 32, 56, 64, 112, 128) for side in sides) / 1000 < 0.75
