"""Half widths of intervals from errors on held-out CNNs: they hold the share asked for, whatever was measured."""

import numpy as np
import pandas as pd
import pytest

from predictor.cnns.zoo import zoo_cnn
from predictor.models.fit import _with_noise
from predictor.models.layer_times.fit import LayerRows, _half_widths, _jumps
from predictor.models.layer_times.law import SummingLaw


def test_they_hold_nine_of_ten_where_much_was_measured_and_where_little_was_and_are_never_zero():
    rng = np.random.default_rng(0)
    unmeasured, strange = rng.uniform(size=2000), 0.3 * rng.uniform(size=2000)
    sd = 0.01 + 0.04 * np.sqrt(unmeasured) + 0.1 * strange
    missed = np.column_stack([np.abs(sd * rng.standard_normal(2000)), unmeasured, strange])
    assert _half_widths(np.zeros((20, 3)))[0] > 0
    spread, near, strange = _half_widths(missed)
    inside = missed[:, 0] <= spread + near * np.sqrt(missed[:, 1]) + strange * missed[:, 2]
    for chosen in (missed[:, 1] < 0.2, missed[:, 1] > 0.8, missed[:, 2] > 0.2):
        assert inside[chosen].mean() == pytest.approx(0.9, abs=0.04)


@pytest.mark.parametrize(
    ("errors", "jumps"), [([0.0, 0.1, 0.2], [0.0]), ([0.0, 0.3, 0.0], [0.3 / np.sqrt(1.5)]), ([0.0, 0.3], [])]
)
def test_a_batch_size_jumps_by_its_distance_from_the_line_between_its_neighbours(errors, jumps):
    sizes = np.array([4.0, 16.0, 64.0])[: len(errors)]
    assert _jumps(sizes, np.array(errors)) == pytest.approx(jumps)


def test_noise_widens_intervals_that_were_not_judged_on_the_same_table():
    law = SummingLaw(spread=0.04, spread_near=0.1)
    noisy = pd.DataFrame({"median_precision": [0.2, 0.2], "disturbed": [False, False]})
    assert _with_noise(law, noisy, judged=True) == law
    assert _with_noise(law, noisy, judged=False).spread == pytest.approx(np.hypot(0.04, 0.2))


def test_rows_whose_gpu_time_is_unknown_are_not_judged():
    tables, numbers = [zoo_cnn(name) for name in ("lenet5", "alexnet", "resnet18")], np.arange(3.0)
    rows = LayerRows(tables, numbers, np.array([1.0, np.nan, 2.0]), numbers, np.zeros(3, dtype=bool))
    finite = rows.finite()
    assert [table.cnn for table in finite.tables] == ["lenet5", "resnet18"]
    assert (finite.batch_sizes.tolist(), finite.gpu_ms.tolist()) == ([0.0, 2.0], [1.0, 2.0])
