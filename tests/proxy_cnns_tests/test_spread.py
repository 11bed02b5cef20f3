"""An order that is even from the first on; what is drawn is held by the presets' digests."""

import pytest

from proxy_cnns.spread import spread_order


def test_a_reordered_list_has_the_same_items():
    assert sorted(spread_order(range(1000))) == list(range(1000))


@pytest.mark.parametrize("beginning", [20, 50, 200])
def test_every_beginning_of_a_reordered_list_reaches_each_tenth_of_it(beginning):
    tenths = {position // 100 for position in spread_order(range(1000))[:beginning]}
    assert len(tenths) == 10
