"""Tests of running predictors through scenarios."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, RegressorMixin

from predictor.errors import DataError, EpochcastError
from predictor.evaluation.run import EvaluationResult, evaluate, registered_predictors
from predictor.evaluation.scenarios import SCENARIOS


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


def test_an_error_of_a_tenth_is_reported_as_a_tenth(features, world):
    result = evaluate(features, ["unseen-cnn"], {"tenth": world.lawful(1.1)})
    row = result.table("unseen-cnn").iloc[0]
    assert row[["mape", "median", "p90"]].tolist() == pytest.approx([0.1, 0.1, 0.1])
    assert row["n"] == len(features)


def test_start_goal_and_noise_stand_beside_the_error(features, world):
    row = evaluate(features, ["unseen-cnn"], {"law": world.lawful()}).table("unseen-cnn").iloc[0]
    scenario = SCENARIOS["unseen-cnn"]
    assert (row["start"], row["goal"]) == (scenario.start, scenario.goal)
    assert row["noise"] == pytest.approx(0.02)


def test_the_best_predictor_comes_first(features, world):
    predictors = {"worse": world.lawful(1.5), "better": world.lawful(1.01)}
    assert evaluate(features, ["unseen-cnn"], predictors).table()["predictor"].tolist() == ["better", "worse"]


def test_coverage_is_the_share_of_truths_inside_the_interval(features, world):
    predictors = {"inside": world.lawful_with_interval(1.05), "outside": world.lawful_with_interval(1.3)}
    table = evaluate(features, ["unseen-cnn"], predictors).table().set_index("predictor")
    assert table["coverage"].to_dict() == {"inside": 1.0, "outside": 0.0}


def test_the_group_with_the_lowest_coverage_is_named(features, world):
    features.loc[features["cnn"] == "profet/Cnn2", "iteration_time_ms"] *= 2
    row = evaluate(features, ["unseen-cnn"], {"law": world.lawful_with_interval()}).table().iloc[0]
    assert (row["worst_coverage_group"], row["worst_coverage"]) == ("profet/Cnn2", 0.0)
    assert row["worst_mape_group"] == "profet/Cnn2"


def test_a_predictor_without_intervals_has_no_coverage(features, world):
    row = evaluate(features, ["unseen-cnn"], {"law": world.lawful()}).table().iloc[0]
    assert np.isnan(row["coverage"])


def test_a_refusal_is_reported_with_its_reason_and_the_rest_is_answered(features, world):
    result = evaluate(features, ["unseen-cnn"], {"refusing": world.refusing()})
    row = result.table("unseen-cnn").iloc[0]
    assert row["notes"] == "not applicable to 20 rows: profet/Cnn0 is not for me"
    assert row["n"] == len(features) * 5 // 6


def test_a_refused_cnn_does_not_silence_the_others_of_its_fold(features, world):
    result = evaluate(features, ["unseen-gpu-specs"], {"refusing": world.refusing()})
    assert result.table().iloc[0]["n"] == len(features) * 5 // 6
    assert result.not_applicable["n_rows"].tolist() == [5, 5, 5, 5]


def test_a_time_that_is_not_above_zero_is_counted_and_said(features, world):
    row = evaluate(features, ["unseen-cnn"], {"negative": world.lawful(-1.0)}).table().iloc[0]
    assert row["mape"] == pytest.approx(2.0)
    assert row["notes"] == "120 rows: predicted time not above 0 (counted)"


def test_a_predictor_that_refuses_every_fold_keeps_its_line(features):
    result = evaluate(features, ["unseen-cnn"], ["line"])
    row = result.table("unseen-cnn").iloc[0]
    assert row["n"] == 0
    assert row["notes"].startswith("not applicable to 120 rows: line has no two batch sizes of profet/Cnn0")
    assert row["notes"].endswith("23 more reasons")


def test_an_unexpected_error_is_not_swallowed(features):
    class Broken(Spy):
        def predict(self, _X):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        evaluate(features, ["unseen-cnn"], {"broken": Broken()})


def test_a_prediction_that_is_no_number_is_counted_apart(features):
    class Blank(Spy):
        def predict(self, X):
            return np.where(X["batch_size"] == 16, np.nan, 1.0)

    row = evaluate(features, ["unseen-cnn"], {"blank": Blank()}).table().iloc[0]
    assert row["notes"] == "24 rows: no finite prediction"
    assert row["n"] == 96


def test_predictions_of_the_wrong_shape_are_refused(features):
    class Short(Spy):
        def predict(self, _X):
            return np.ones(1)

    row = evaluate(features, ["unseen-cnn"], {"short": Short()}).table().iloc[0]
    assert "gave an answer of shape (1,) for 5 rows" in row["notes"]


def test_scenarios_that_a_table_cannot_answer_are_reported_in_one_line(features, world):
    table = evaluate(features, ["unseen-cnn-quick-preset"], {"law": world.lawful()}).table()
    (note,) = table["notes"]
    assert "no single layers are among the rows" in note


def test_the_answer_is_never_shown(features, spy):
    evaluate(features, ["unseen-cnn"], {"spy": spy})
    answers = {"iteration_time_ms", "iteration_time_ms_iqr", "epoch_time_s"}
    assert not any(answers & set(X) for _, X, _ in spy.shown)


@pytest.mark.parametrize("column", ["gpu_time_ms", "host_time_ms", "conv_algorithms"])
def test_what_else_was_measured_is_there_to_learn_from_but_not_of_the_tested_rows(column, features, spy):
    evaluate(features.assign(**{column: 1.0}), ["unseen-cnn"], {"spy": spy})
    assert all((column in X) == (step == "fit") for step, X, _ in spy.shown)


def test_single_layers_are_kept_from_predictors_that_do_not_ask_for_them(features_with_operators, spy):
    evaluate(features_with_operators, ["unseen-cnn"], {"spy": spy})
    assert all(set(X["kind"]) == {"target"} for _, X, _ in spy.shown)


def test_single_layers_are_given_to_predictors_that_ask_for_them(features_with_operators, spy):
    evaluate(features_with_operators, ["unseen-cnn"], {"spy": WithOperators()})
    fitted = [X for step, X, _ in WithOperators.shown if step == "fit"]
    assert all("operator" in set(X["kind"]) for X in fitted)


def test_anchors_come_with_their_times_without_showing_them_in_the_table(features, spy):
    evaluate(features, ["unseen-gpu-anchored"], {"spy": WithAnchors()})
    anchors = [anchors for step, _, anchors in WithAnchors.shown if step == "predict"]
    assert all(len(X) == len(y) == 30 and "iteration_time_ms" not in X for X, y in anchors)


def test_folds_that_train_on_the_same_rows_share_one_fit(features, spy):
    evaluate(features, ["unseen-cnn-one-run"], {"spy": spy})
    assert sum(step == "fit" for step, _, _ in spy.shown) == 6
    assert sum(step == "predict" for step, _, _ in spy.shown) == 24


def test_scenarios_that_train_on_the_same_rows_share_one_fit(features, spy):
    evaluate(features, ["unseen-cnn", "unseen-cnn-one-run"], {"spy": spy})
    assert sum(step == "fit" for step, _, _ in spy.shown) == 6
    assert sum(step == "predict" for step, _, _ in spy.shown) == 30


def test_without_its_host_a_machine_is_shown_to_fits_alone(features, spy):
    table = features.assign(host="a host")
    evaluate(table, ["unseen-cnn-host-unknown"], {"spy": spy})
    shown = {step: {"host", "source"} & set(rows.columns) for step, rows, _ in spy.shown}
    assert shown == {"fit": {"host", "source"}, "predict": set()}


def test_the_same_seed_repeats_to_the_last_digit(features, world):
    first, second = (
        evaluate(features, ["unseen-cnn"], {"mean": world.noisy_mean()}, seed=5) for _ in range(2)
    )
    pd.testing.assert_frame_equal(first.predictions, second.predictions, check_exact=True)


def test_another_seed_reaches_the_predictors(features, world):
    first, second = (evaluate(features, ["unseen-cnn"], {"mean": world.noisy_mean()}, seed=s) for s in (1, 2))
    assert not first.predictions["predicted"].equals(second.predictions["predicted"])


@pytest.mark.slow
def test_two_jobs_give_the_same_digits_as_one(features):
    scenarios, predictors = ["problem-scaling", "unseen-cnn-one-run"], ["line"]
    one, two = (evaluate(features, scenarios, predictors, seed=5, n_jobs=jobs) for jobs in (1, 2))
    pd.testing.assert_frame_equal(one.predictions, two.predictions, check_exact=True)
    pd.testing.assert_frame_equal(one.not_applicable, two.not_applicable)


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


def test_an_unknown_predictor_is_refused(features):
    with pytest.raises(EpochcastError, match="'lines'"):
        evaluate(features, ["unseen-cnn"], ["lines"])


def test_an_empty_table_is_refused():
    with pytest.raises(DataError, match="no rows to evaluate on"):
        evaluate(pd.DataFrame({"iteration_time_ms": []}))


def test_a_result_of_nothing_has_no_tables():
    nothing = EvaluationResult(
        pd.DataFrame({"scenario": []}),
        pd.DataFrame({"scenario": [], "predictor": [], "n_rows": [], "reason": []}),
    )
    assert nothing.table().empty
