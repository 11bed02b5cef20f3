"""Tests of the run-to-run noise."""

import numpy as np
import pandas as pd
import pytest

from predictor.evaluation.run import relative_spread, run_to_run_noise


def _table(**columns: object) -> pd.DataFrame:
    return pd.DataFrame(
        {"gpu": "Tesla T4", "cnn": "a", "image_size": 32, "batch_size": 16, "precision": "fp32"} | columns
    )


def test_the_noise_is_the_median_of_interquartile_range_over_time():
    table = _table(iteration_time_ms=[10.0, 10.0, 100.0], iteration_time_ms_iqr=[0.1, 0.2, 5.0])
    assert run_to_run_noise(table) == pytest.approx(0.02)


def test_repeated_rows_stand_in_where_no_repeats_were_kept():
    table = _table(iteration_time_ms=[90.0, 100.0, 110.0])
    assert relative_spread(table).tolist() == pytest.approx([0.1, 0.1, 0.1])


def test_a_single_run_says_nothing_about_noise():
    assert np.isnan(run_to_run_noise(_table(iteration_time_ms=[90.0])))


def test_an_empty_table_has_no_noise():
    assert np.isnan(run_to_run_noise(_table(iteration_time_ms=[90.0]).iloc[:0]))
