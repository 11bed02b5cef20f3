"""Tests of what an epoch costs beyond its iterations."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import DataError
from predictor.models.epochs import EpochOverhead, fit_epoch_overhead, iterations_per_epoch


def test_the_last_smaller_batch_is_an_iteration_too():
    assert iterations_per_epoch([50_000, 5_000], [128, 250]).tolist() == [391, 20]


def test_without_overhead_an_epoch_is_iterations_times_iteration_time():
    assert EpochOverhead().epoch_time_s(10.0, 1000, 100, 224) == pytest.approx(0.1)


def test_validation_images_take_a_share_of_training_images():
    plain, validated = (EpochOverhead(0.25).epoch_time_s(10.0, 1000, 100, 224, v) for v in (0, 400))
    assert validated - plain == pytest.approx(0.25 * 4 * 0.010)


def test_feeding_costs_by_the_megabyte_of_fp32_images():
    seconds = EpochOverhead(ms_per_mb=1.0).epoch_time_s(0.0, 1000, 100, 100)
    assert seconds == pytest.approx(1000 * 100 * 100 * 12 / 1e6 / 1000)


@given(st.floats(0.0, 0.5), st.floats(0.0, 2.0), st.floats(0.0, 0.2))
def test_a_fit_finds_the_overhead_that_made_the_epochs(share, per_iteration, per_mb):
    overhead = EpochOverhead(share, per_iteration, per_mb)
    time_ms, batch_size = np.array([2.0, 50.0, 9.0, 700.0, 31.0]), np.array([16, 32, 64, 128, 256])
    samples, size, validation = (
        np.array([50_000, 5_000, 50_000, 2_000, 5_000]),
        np.array([32, 64, 32, 256, 128]),
        500,
    )
    epochs = overhead.epoch_time_s(time_ms, samples, batch_size, size, validation)
    found = fit_epoch_overhead(epochs, time_ms, samples, batch_size, size, validation)
    again = found.epoch_time_s(time_ms, samples, batch_size, size, validation)
    assert again == pytest.approx(epochs, rel=1e-6)


def test_epochs_that_were_not_timed_do_not_count():
    with pytest.raises(DataError, match="2 measured epochs are too few"):
        fit_epoch_overhead([1.0, 2.0, np.nan], [1.0, 2.0, 3.0], 1000, 10, 32)
