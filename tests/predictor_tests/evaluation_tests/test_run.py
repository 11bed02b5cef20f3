"""Tests of running predictors through scenarios."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row
from sklearn.base import BaseEstimator, RegressorMixin

from predictor.errors import EpochcastError, NotFittedError
from predictor.evaluation.epoch_time import EpochTime, as_epoch_time
from predictor.evaluation.run import (
    EvaluationResult,
    evaluate,
    registered_predictors,
    relative_spread,
    run_to_run_noise,
)
from predictor.evaluation.scenarios import SCENARIOS
from predictor.models.baselines import Line


class Spy(RegressorMixin, BaseEstimator):
    """Answers 1 ms and keeps what it was shown, in a list that clones share."""

    shown: tuple[tuple[str, pd.DataFrame, Any], ...] = ()

    def fit(self, X, _y):
        type(self).shown += (("fit", X, None),)
        return self

    def predict(self, X, anchors=None):
        type(self).shown += (("predict", X, anchors),)
        return np.ones(len(X))


@pytest.fixture
def spy() -> Spy:
    Spy.shown = ()
    return Spy()


class WithAnchors(Spy):
    uses_anchors = True


class WithOperators(Spy):
    uses_operators = True


class Blank(Spy):
    def predict(self, X):
        return np.where(X["batch_size"] == 16, np.nan, 1.0)


class Short(Spy):
    def predict(self, _X):
        return np.ones(1)


NAN, N = float("nan"), 120
OUTCOMES = {
    "an error of a tenth": ("lawful", 1.1, {"mape": 0.1, "median": 0.1, "p90": 0.1, "n": N, "noise": 0.02}, ""),
    "no interval": ("lawful", 1.0, {"coverage": NAN}, ""),
    "truths inside": ("lawful_with_interval", 1.05, {"coverage": 1.0}, ""),
    "truths outside": ("lawful_with_interval", 1.3, {"coverage": 0.0}, ""),
    "a refusal": ("refusing", None, {"n": N * 5 // 6}, "not applicable to 20 rows: profet/Cnn0 is not for me"),
    "below zero": ("lawful", -1.0, {"mape": 2.0}, "120 rows: predicted time not above 0 (counted)"),
    "no number": (Blank(), None, {"n": 96}, "24 rows: no finite prediction"),
    "a wrong shape": (Short(), None, {"n": 0}, "gave an answer of shape (1,) for 5 rows"),
    "every fold refused": ("line", None, {"n": 0}, "120 rows: line has no two batch sizes of profet/Cnn0"),
}  # fmt: skip


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_predictors_line_has_its_errors_and_what_was_not_answered(outcome, features, world):
    predictor, factor, figures, note = OUTCOMES[outcome]
    if predictor == "line":
        predictors = ["line"]
    elif isinstance(predictor, str):
        made = getattr(world, predictor)
        predictors = {"it": made() if factor is None else made(factor)}
    else:
        predictors = {"it": predictor}
    row = evaluate(features, ["unseen-cnn"], predictors).table("unseen-cnn").iloc[0]
    assert row[list(figures)].tolist() == pytest.approx(list(figures.values()), nan_ok=True)
    assert note in row["notes"]
    assert bool(note) == bool(row["notes"])
    scenario = SCENARIOS["unseen-cnn"]
    assert (row["start"], row["goal"]) == (scenario.start, scenario.goal)


def test_the_best_predictor_comes_first(features, world):
    predictors = {"worse": world.lawful(1.5), "better": world.lawful(1.01)}
    assert evaluate(features, ["unseen-cnn"], predictors).table()["predictor"].tolist() == ["better", "worse"]


def test_the_group_with_the_lowest_coverage_is_named(features, world):
    features.loc[features["cnn"] == "profet/Cnn2", "iteration_time_ms"] *= 2
    row = evaluate(features, ["unseen-cnn"], {"law": world.lawful_with_interval()}).table().iloc[0]
    assert (row["worst_coverage_group"], row["worst_coverage"]) == ("profet/Cnn2", 0.0)
    assert row["worst_mape_group"] == "profet/Cnn2"


def test_a_refused_cnn_does_not_silence_the_others_of_its_fold(features, world):
    result = evaluate(features, ["unseen-gpu-specs"], {"refusing": world.refusing()})
    assert result.table().iloc[0]["n"] == len(features) * 5 // 6
    assert result.not_applicable["n_rows"].tolist() == [5, 5, 5, 5]


def test_an_unexpected_error_is_not_swallowed(features):
    class Broken(Spy):
        def predict(self, _X):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(features, ["unseen-cnn"], {"broken": Broken()})


def test_the_answer_is_never_shown_and_what_else_was_measured_only_to_fits(features, spy):
    answers, beside = (
        {"iteration_time_ms", "iteration_time_ms_iqr", "epoch_time_s"},
        {"gpu_time_ms", "host_time_ms", "conv_algorithms"},
    )
    evaluate(features.assign(**dict.fromkeys(beside, 1.0)), ["unseen-cnn"], {"spy": spy})
    for step, X, _ in spy.shown:
        assert (answers | beside) & set(X) == (beside if step == "fit" else set())


@pytest.mark.parametrize(("predictor", "kinds"), [(Spy, {"target"}), (WithOperators, {"target", "operator"})])
def test_single_layers_are_shown_to_fits_of_predictors_that_ask_for_them(
    predictor, kinds, features_with_operators, spy
):
    evaluate(features_with_operators, ["unseen-cnn"], {"spy": predictor()})
    assert all(set(X["kind"]) == kinds for step, X, _ in predictor.shown if step == "fit")
    assert all(set(X["kind"]) == {"target"} for step, X, _ in predictor.shown if step == "predict")


def test_anchors_come_with_their_times_without_showing_them_in_the_table(features, spy):
    evaluate(features, ["unseen-gpu-anchored"], {"spy": WithAnchors()})
    anchors = [anchors for step, _, anchors in WithAnchors.shown if step == "predict"]
    assert all(len(X) == len(y) == 30 and "iteration_time_ms" not in X for X, y in anchors)


@each_row
def test_folds_that_train_on_the_same_rows_share_one_fit(scenarios, predictions, features, spy):
    evaluate(features, scenarios, {"spy": spy})
    steps = [step for step, _, _ in spy.shown]
    assert (steps.count("fit"), steps.count("predict")) == (6, predictions)


def test_without_its_host_a_machine_is_shown_to_fits_alone(features, spy):
    table = features.assign(host="a host")
    evaluate(table, ["unseen-cnn-host-unknown"], {"spy": spy})
    shown = {step: {"host", "source"} & set(rows.columns) for step, rows, _ in spy.shown}
    assert shown == {"fit": {"host", "source"}, "predict": set()}


def test_a_seed_reaches_the_predictors_and_repeats_to_the_last_digit(features, world):
    first, again, second = (
        evaluate(features, ["unseen-cnn"], {"mean": world.noisy_mean()}, seed=seed).predictions
        for seed in (5, 5, 2)
    )
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    assert not first["predicted"].equals(second["predicted"])


@pytest.mark.slow
def test_two_jobs_give_the_same_digits_as_one(features):
    scenarios, predictors = ["problem-scaling", "unseen-cnn-one-run"], ["line"]
    alone, parallel = (evaluate(features, scenarios, predictors, seed=5, n_jobs=jobs) for jobs in (1, 2))
    pd.testing.assert_frame_equal(alone.predictions, parallel.predictions, check_exact=True)
    pd.testing.assert_frame_equal(alone.not_applicable, parallel.not_applicable)


def test_the_plain_product_misses_the_overhead_that_an_answer_counts(features, world):
    table = evaluate(features, ["epoch-time"], {"law": world.lawful()}).table().set_index("predictor")
    assert table.loc["measured iteration", "mape"] > 0.05
    assert table.loc["measured iteration + overhead", "mape"] < 0.02
    assert table.loc["law + overhead", "mape"] < 0.02


@pytest.mark.parametrize("name", ["unseen-cnn", "epoch-time"])
def test_anchored_takes_no_part_where_no_run_of_the_cnn_is_known(features, name):
    table = evaluate(features, [name], ["anchored"]).table().set_index("predictor")
    row = table.loc["anchored" if name == "unseen-cnn" else "anchored + overhead"]
    assert row["n"] == 0
    assert "it needs a measurement of the CNN, of which this scenario knows none" in row["notes"]


@pytest.mark.slow
def test_every_scenario_but_those_on_request_has_a_table_by_its_name(features, world):
    result = evaluate(features, predictors={"law": world.lawful()})
    usual = [name for name, scenario in SCENARIOS.items() if not scenario.scaling]
    assert result.scenarios() == usual
    assert set(result.table()["scenario"]) == set(usual)


def test_every_registered_predictor_answers_or_says_why_not(features):
    result = evaluate(features, ["problem-scaling"])
    table = result.table("problem-scaling")
    assert set(table["predictor"]) == set(registered_predictors())
    assert ((table["n"] > 0) | (table["notes"] != "")).all()


def test_a_table_of_ones_own_has_no_start_and_no_goal_and_runs_no_question_twice(features, world):
    result = evaluate(features.assign(source="my lab"), predictors={"law": world.lawful()})
    assert result.table()["goal"].isna().all()
    assert result.scenarios() == [name for name, scenario in SCENARIOS.items() if scenario.for_any_table]


@pytest.mark.parametrize(
    ("rows", "predictors", "words"),
    [(slice(None), ["lines"], "'lines'"), (slice(0), None, "no rows to evaluate on")],
)
def test_what_cannot_be_judged_is_refused(rows, predictors, words, features):
    with pytest.raises(EpochcastError, match=words):
        evaluate(features[rows], ["unseen-cnn"], predictors)


def test_a_result_of_nothing_has_no_tables():
    nothing = EvaluationResult(
        pd.DataFrame({"scenario": []}),
        pd.DataFrame({"scenario": [], "predictor": [], "n_rows": [], "reason": []}),
    )
    assert nothing.table().empty


def _table(**columns: object) -> pd.DataFrame:
    return pd.DataFrame(
        {"gpu": "Tesla T4", "cnn": "a", "image_size": 32, "batch_size": 16, "precision": "fp32"} | columns
    )


@each_row
def test_the_noise_is_the_median_of_interquartile_range_over_time(times, noise):
    assert run_to_run_noise(_table(**times)) == pytest.approx(noise, nan_ok=True)


def test_repeated_rows_stand_in_where_no_repeats_were_kept():
    table = _table(iteration_time_ms=[90.0, 100.0, 110.0])
    assert relative_spread(table).tolist() == pytest.approx([0.1, 0.1, 0.1])


def test_measured_iterations_are_judged_beside_predicted_ones():
    assert list(as_epoch_time({"line": Line()})) == [
        "measured iteration",
        "measured iteration + overhead",
        "line + overhead",
    ]


def test_an_unfitted_one_says_so(features):
    with pytest.raises(NotFittedError, match="has not been fitted yet"):
        EpochTime().predict(features)
