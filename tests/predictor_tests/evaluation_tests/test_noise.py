"""Tests of the run-to-run noise."""

import numpy as np
import pandas as pd
import pytest

from predictor.evaluation.run import relative_spread, run_to_run_noise


def _table(**columns: object) -> pd.DataFrame:
    return pd.DataFrame(
        {"gpu": "Tesla T4", "cnn": "a", "image_size": 32, "batch_size": 16, "precision": "fp32"} | columns
    )


@pytest.mark.parametrize(
    ("times", "noise"),
    [
        ({"iteration_time_ms": [10.0, 10.0, 100.0], "iteration_time_ms_iqr": [0.1, 0.2, 5.0]}, 0.02),
        ({"iteration_time_ms": [90.0]}, np.nan),  # a single run
        ({"iteration_time_ms": []}, np.nan),
    ],
)
def test_the_noise_is_the_median_of_interquartile_range_over_time(times, noise):
    assert run_to_run_noise(_table(**times)) == pytest.approx(noise, nan_ok=True)


def test_repeated_rows_stand_in_where_no_repeats_were_kept():
    table = _table(iteration_time_ms=[90.0, 100.0, 110.0])
    assert relative_spread(table).tolist() == pytest.approx([0.1, 0.1, 0.1])
