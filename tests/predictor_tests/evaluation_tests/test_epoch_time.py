"""Epoch times from predictors of iteration times."""

import pytest

from predictor.errors import NotFittedError
from predictor.evaluation.epoch_time import EpochTime, as_epoch_time
from predictor.models.baselines import Line


def test_measured_iterations_are_judged_beside_predicted_ones():
    assert list(as_epoch_time({"line": Line()})) == [
        "measured iteration",
        "measured iteration + overhead",
        "line + overhead",
    ]


def test_an_unfitted_one_says_so(features):
    with pytest.raises(NotFittedError, match="has not been fitted yet"):
        EpochTime().predict(features)
