"""Whole epochs that were forecast before they were trained: rows that figures and fits read."""

import epochs
import pytest
from case_tables import each_row

from predictor.errors import SchemaError


@pytest.mark.parametrize("name", epochs.SETS)
def test_every_epoch_that_was_trained_is_a_case_and_was_forecast_before(name):
    trained = list(epochs.trained_epochs(name))
    assert trained
    for case, forecast, measured in trained:
        framework = case.mode.framework
        start = f"{case.cnn}_{framework}_{case.n_gpus}x{case.local_batch_size}_"
        assert measured["case"].startswith(start)
        assert case.table.image_size == case.task.image_size
        assert name not in ("strangers", "more strangers", "last strangers") or (
            forecast["forecast_at"] < measured["started_at"]
        )


def test_what_is_no_case_is_refused():
    with pytest.raises(SchemaError, match="is no case"):
        epochs.EpochCase.named("resnet50")


@each_row
def test_a_start_is_added_to_the_forecast_of_the_first_epoch_alone(forecast, measured, later, seconds):
    assert epochs.forecast_and_measured(forecast, measured, later=later) == tuple(seconds)
