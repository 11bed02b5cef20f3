"""Tests of the way between epoch time and iteration time."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

from predictor.errors import NotFittedError
from predictor.evaluation.epoch_time import EpochTime, as_epoch_time, as_iteration_time
from predictor.models.per_epoch import IterationFromEpoch


class MeanEpoch(RegressorMixin, BaseEstimator):
    """Answers with the mean epoch time, as a predictor of the founding kind."""

    answer = "epoch_time_s"

    def fit(self, X: pd.DataFrame, y):
        self.samples_, self.mean_ = set(X["samples_per_epoch"]), float(np.mean(y))
        return self

    def predict(self, X: pd.DataFrame):
        return np.full(len(X), self.mean_)


def test_an_epoch_predictor_is_fitted_on_a_fixed_number_of_samples():
    X = pd.DataFrame({"batch_size": [100, 200], "samples_per_epoch": [7, 8]})
    fitted = IterationFromEpoch(MeanEpoch(), samples=1000).fit(X, [10.0, 20.0])
    assert fitted.epoch_.samples_ == {1000}
    assert fitted.epoch_.mean_ == pytest.approx(0.1)


def test_its_answer_is_turned_back_into_an_iteration():
    X = pd.DataFrame({"batch_size": [100, 300]})
    fitted = IterationFromEpoch(MeanEpoch(), samples=1000).fit(X.iloc[:1], [10.0])
    assert fitted.predict(X).tolist() == pytest.approx([10.0, 25.0])


def test_only_predictors_of_epochs_are_turned():
    found = as_iteration_time({"epochs": MeanEpoch(), "iterations": EpochTime()})
    assert [type(each).__name__ for each in found.values()] == ["IterationFromEpoch", "EpochTime"]


def test_measured_iterations_are_judged_beside_predicted_ones():
    assert list(as_epoch_time({"line": MeanEpoch()})) == [
        "measured iteration",
        "measured iteration + overhead",
        "line + overhead",
    ]


@pytest.mark.parametrize("unfitted", [EpochTime(), IterationFromEpoch(MeanEpoch())])
def test_an_unfitted_one_says_so(unfitted, features):
    with pytest.raises(NotFittedError, match="has not been fitted yet"):
        unfitted.predict(features)


@pytest.mark.parametrize("name", ["gpu-specs", "gpu-specs-relative", "proxy-times", "proxy-times-relative"])
def test_the_founding_predictors_say_that_they_answer_with_epochs(name):
    from predictor.models.registry import new_predictor

    assert new_predictor(name).answer == "epoch_time_s"
