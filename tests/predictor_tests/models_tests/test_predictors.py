"""What every registered predictor keeps to: scikit-learn's rules for estimators, and ours for errors.

`check_estimator` skips estimators whose X is no plain array. So its checks that need no data run as they are,
and what the others ask for is asked here of a feature table.
"""

import inspect
import json
import pickle
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.errors import NotFittedError, SchemaError
from predictor.measurements.features import feature_table, grid_rows
from predictor.models.fit import ranges_of
from predictor.models.registry import PREDICTORS, estimator_class, new_predictor
from predictor.models.roofline.rows import rows_of
from predictor.models.served import Model
from predictor.operators.operators import operators_of

DATA_FREE_CHECKS = (
    "check_estimator_cloneable",
    "check_estimator_repr",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_mixin_order",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
)

# An entry whose module does not load fails its own test below, not the collection of all others.
LOADABLE = sorted(name for name, entry in PREDICTORS.items() if find_spec(entry.estimator.split(":")[0]))


def _new(name):
    return new_predictor(name)


def _times(name, features):
    return features["iteration_time_ms"]


@pytest.fixture(scope="module", params=LOADABLE)
def name(request):
    return request.param


@pytest.fixture(scope="module")
def features_with_operators(features, made_up_gpu):
    """The same CNNs, and their operators on every GPU."""
    operators = dict.fromkeys(o for table in features["layer_table"] for o in operators_of(table))
    rows = [
        row
        for gpu in features["gpu"].unique()
        for row in made_up_gpu.operator_rows(operators, (8, 32, 128), gpu=gpu, precision="fp32")
    ]
    return pd.concat([features, feature_table(pd.DataFrame(rows))], ignore_index=True)


@pytest.fixture(scope="module")
def features(name, features, request):
    """What the predictor needs: `layer-times` is nothing without operators, `proxy-times` without proxies."""
    needed = {"layer-times": "features_with_operators", "proxy-times": "features_with_proxies"}
    return request.getfixturevalue(needed[name]) if name in needed else features


@pytest.fixture(scope="module")
def fitted(name, features):
    """Fitted once for all tests: one of them shows that predicting does not change it."""
    return _new(name).fit(features, _times(name, features))


@pytest.mark.parametrize("check", DATA_FREE_CHECKS)
def test_scikit_learns_check_without_data_holds(name, check):
    found = getattr(estimator_checks, check, None)
    if found is None:
        pytest.skip(f"this scikit-learn has no {check}")
    found(name, _new(name))


@pytest.mark.parametrize("name", sorted(PREDICTORS))
def test_every_entry_of_the_registry_loads(name):
    assert new_predictor(name)


@pytest.mark.parametrize("name", sorted(PREDICTORS))
def test_every_predictor_is_documented(name):
    text = (Path(__file__).parents[3] / "docs" / "predictors.md").read_text(encoding="utf-8")
    assert any(line.startswith("|") and f"`{name}`" in line for line in text.splitlines())


def test_an_unknown_predictor_names_the_nearest():
    with pytest.raises(SchemaError, match=r"no predictor is called 'gpu-spec'\. Nearest: 'gpu-specs'"):
        new_predictor("gpu-spec")


def test_fit_and_score_take_y(name, features):
    for method in ("fit", "score"):
        assert list(inspect.signature(getattr(_new(name), method)).parameters)[:2] == ["X", "y"]


def test_fit_returns_self(name, features):
    predictor = _new(name)
    assert predictor.fit(features, _times(name, features)) is predictor


def test_predictions_are_finite_and_of_the_rows_number(fitted, features):
    predicted = fitted.predict(features)
    assert predicted.shape == (len(features),)
    assert np.isfinite(predicted).all()


def test_fitting_changes_neither_parameters_nor_table(name, features):
    before, parameters = features.copy(), _new(name).get_params()
    fitted = _new(name).fit(features, _times(name, features))
    pd.testing.assert_frame_equal(features, before)
    assert fitted.get_params() == parameters


def test_fitting_twice_gives_the_same(name, fitted, features):
    again = clone(fitted).fit(features, _times(name, features)).fit(features, _times(name, features))
    np.testing.assert_array_equal(again.predict(features), fitted.predict(features))


def test_predict_leaves_the_predictor_as_it_was(fitted, features):
    before = pickle.dumps(vars(fitted))
    fitted.predict(features)
    assert pickle.dumps(vars(fitted)) == before


def test_predictions_do_not_depend_on_the_other_rows_asked(fitted, features):
    whole = fitted.predict(features)
    parts = np.concatenate([fitted.predict(features.iloc[i : i + 7]) for i in range(0, len(features), 7)])
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


def test_predictions_follow_the_rows_order(fitted, features):
    shuffled = features.sample(frac=1, random_state=0)
    expected = pd.Series(fitted.predict(features), index=features.index)[shuffled.index]
    np.testing.assert_allclose(fitted.predict(shuffled), expected, rtol=1e-12)


def test_fitting_does_not_depend_on_the_rows_order(name, fitted, features):
    shuffled = features.sample(frac=1, random_state=0)
    again = clone(fitted).fit(shuffled, _times(name, shuffled))
    np.testing.assert_allclose(again.predict(features), fitted.predict(features), rtol=1e-6)


def test_a_pickled_predictor_answers_the_same(fitted, features):
    loaded = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    np.testing.assert_array_equal(loaded.predict(features), fitted.predict(features))


def test_a_predictor_read_from_json_answers_the_same(name, fitted, features):
    loaded = estimator_class(name).from_json(json.loads(json.dumps(fitted.to_json())))
    np.testing.assert_array_equal(loaded.predict(features), fitted.predict(features))


SERVED = {
    "layer-times": lambda judged: {"layers": judged.models_},
    "roofline": lambda judged: {"roofline": judged.law_},
}
"""Fields of the served model that hold what an estimator learned; `test_named_methods` holds the whole methods."""


def test_what_is_judged_is_what_is_served(name, fitted, features):
    """A model of the estimator's JSON answers as the estimator predicts, to the last digit, interval included."""
    if name not in SERVED:
        pytest.skip("another test holds it")
    judged = estimator_class(name).from_json(json.loads(json.dumps(fitted.to_json())))
    whole = _whole_cnns(features)
    ranges = ranges_of(whole, rows_of(whole))  # nothing widens an interval besides
    model = replace(Model.load(), ranges=ranges, **SERVED[name](judged))
    for (gpu, cnn), rows in whole.assign(host="an unknown host").groupby(["gpu", "cnn"]):
        table, mode = rows["layer_table"].iloc[0], Mode(precision="fp32")
        found = model.forecast(table, find_gpu(gpu), mode, rows["batch_size"], method=name)
        np.testing.assert_array_equal(found.iteration_time_ms, judged.predict(rows), err_msg=f"{cnn}, {gpu}")
        np.testing.assert_allclose(
            [found.low_ms, found.high_ms], judged.predict_interval(rows), rtol=1e-12, err_msg=f"{cnn}, {gpu}"
        )


def test_json_of_an_unfitted_predictor_is_refused(name):
    with pytest.raises(NotFittedError, match="has not been fitted yet"):
        _new(name).to_json()


def test_a_grid_holds_what_rows_of_any_selection_get(name, fitted, features):
    """Rows may be ragged: other batch sizes on each GPU, in any order, some twice."""
    if name in ("line", "interpolation"):
        pytest.skip("it predicts series that were measured, and no grid")
    rows = _whole_cnns(features)
    tables = {(row["cnn"], row["image_size"]): row["layer_table"] for row in rows.to_dict("records")}
    gpus, sizes = [find_gpu(each) for each in rows["gpu"].unique()], sorted(rows["batch_size"].unique())
    devices, chosen = [(gpu, Mode()) for gpu in gpus], list(tables.values())
    asked = grid_rows(chosen, devices, sizes)
    shared = [column for column in features if column not in asked]  # proxies' times, samples
    asked = asked.merge(rows[["gpu", "batch_size", *shared]].drop_duplicates(["gpu", "batch_size"]))
    ragged = np.random.default_rng(0).choice(len(asked), len(asked) // 3)
    whole = fitted.predict(asked)
    np.testing.assert_allclose(fitted.predict(asked.iloc[ragged]), whole[ragged], rtol=1e-12)
    if not shared:
        grid = fitted.grid(chosen, devices, sizes)
        assert grid.shape == (len(chosen), len(devices), len(sizes))
        np.testing.assert_allclose(grid.ravel(), whole, rtol=1e-12)


def _whole_cnns(features):
    return features[features["kind"] != "operator"] if "kind" in features else features


def test_a_clone_is_not_fitted(fitted):
    assert not [attribute for attribute in vars(clone(fitted)) if attribute.endswith("_")]


def test_check_is_fitted_knows_the_difference(name, fitted):
    check_is_fitted(fitted)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(_new(name))


def test_predicting_before_fitting_raises_ours_and_scikit_learns_error(name, features):
    with pytest.raises(NotFittedError, match=r"has not been fitted yet. Call fit") as raised:
        _new(name).predict(features)
    missing = [
        each
        for each in (SklearnNotFittedError, ValueError, AttributeError)
        if not isinstance(raised.value, each)
    ]
    assert missing == []


def test_a_pipeline_gives_the_same_answers(name, fitted, features):
    pipeline = Pipeline([("as it is", FunctionTransformer()), ("predictor", _new(name))])
    pipeline.fit(features, _times(name, features))
    np.testing.assert_array_equal(pipeline.predict(features), fitted.predict(features))


def test_an_array_is_refused_with_what_to_do(name):
    with pytest.raises(SchemaError, match=r"needs a feature table \(pandas DataFrame\), got ndarray"):
        _new(name).fit(np.ones((9, 4)), np.ones(9))


def test_a_missing_column_is_named(name, features):
    with pytest.raises(SchemaError, match="needs the column 'batch_size'"):
        _new(name).fit(features.drop(columns="batch_size"), _times(name, features))


def test_a_table_without_rows_is_refused(name, features):
    with pytest.raises(SchemaError, match="without rows"):
        _new(name).fit(features.head(0), [])


@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf])
def test_a_time_that_is_not_above_zero_and_finite_is_refused(name, features, bad):
    times = _times(name, features).to_numpy().copy()
    times[5] = bad
    with pytest.raises(SchemaError, match="must be above 0 and finite; row 5"):
        _new(name).fit(features, times)


def test_times_are_required(name, features):
    with pytest.raises(SchemaError, match="fit requires y"):
        _new(name).fit(features, None)


def test_one_time_per_row_is_required(name, features):
    with pytest.raises(SchemaError, match="shape"):
        _new(name).fit(features, _times(name, features)[:-1])


def test_single_layers_are_refused_among_the_rows_predicted_as_cnns(name, features):
    if new_predictor(name).uses_operators:
        pytest.skip("it learns from single layers")
    with pytest.raises(SchemaError, match="kind is proxy or target, got operator"):
        _new(name).fit(features.assign(kind="operator"), _times(name, features))


def test_coefficients_are_numbers_by_name(fitted):
    coefficients = fitted.coefficients()
    assert coefficients
    assert all(isinstance(key, str) and isinstance(value, float) for key, value in coefficients.items())
