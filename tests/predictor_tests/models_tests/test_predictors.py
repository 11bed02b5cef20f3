"""What every registered predictor keeps to: scikit-learn's rules for estimators, and ours for errors.

`check_estimator` skips estimators whose X is no plain array. So its checks that need no data run as they are,
and what the others ask for is asked here of a feature table.
"""

import inspect
import json
import pickle
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from grid_rows import grid_rows
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils import estimator_checks
from sklearn.utils.validation import check_is_fitted

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.errors import NotFittedError, SchemaError
from predictor.measurements.features import feature_table
from predictor.models.base import new_predictor
from predictor.models.registry import PREDICTORS, estimator_class
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
def asked(features):
    """Rows of whole CNNs, which every predictor answers."""
    return features[features["kind"] != "operator"] if "kind" in features else features


@pytest.fixture(scope="module")
def fitted(name, features):
    """Fitted once for all tests: one of them shows that predicting does not change it."""
    return _new(name).fit(features, _times(name, features))


def test_scikit_learns_checks_without_data_hold(name):
    for check in DATA_FREE_CHECKS:
        getattr(estimator_checks, check)(name, _new(name))


@pytest.mark.parametrize("registered", sorted(PREDICTORS))
def test_every_entry_of_the_registry_loads_and_is_documented(registered):
    assert new_predictor(registered)
    text = (Path(__file__).parents[3] / "docs" / "predictors.md").read_text(encoding="utf-8")
    assert any(line.startswith("|") and f"`{registered}`" in line for line in text.splitlines())


def test_an_unknown_predictor_names_the_nearest():
    with pytest.raises(SchemaError, match=r"no predictor is called 'gpu-spec'\. Nearest: 'gpu-specs'"):
        new_predictor("gpu-spec")


def test_fit_and_score_take_y(name, features):
    for method in ("fit", "score"):
        assert list(inspect.signature(getattr(_new(name), method)).parameters)[:2] == ["X", "y"]


def test_predictions_are_finite_and_of_the_rows_number(fitted, asked):
    predicted = fitted.predict(asked)
    assert predicted.shape == (len(asked),)
    assert np.isfinite(predicted).all()


def test_fit_returns_the_predictor_and_changes_neither_parameters_nor_table(name, features):
    predictor, before, parameters = _new(name), features.copy(), _new(name).get_params()
    assert predictor.fit(features, _times(name, features)) is predictor
    pd.testing.assert_frame_equal(features, before)
    assert predictor.get_params() == parameters


def test_fitting_twice_gives_the_same(name, fitted, features, asked):
    again = clone(fitted).fit(features, _times(name, features)).fit(features, _times(name, features))
    np.testing.assert_array_equal(again.predict(asked), fitted.predict(asked))


def test_predict_leaves_the_predictor_as_it_was(fitted, asked):
    before = pickle.dumps(vars(fitted))
    fitted.predict(asked)
    assert pickle.dumps(vars(fitted)) == before


def test_predictions_do_not_depend_on_the_other_rows_asked(fitted, asked):
    whole = fitted.predict(asked)
    parts = np.concatenate([fitted.predict(asked.iloc[i : i + 7]) for i in range(0, len(asked), 7)])
    np.testing.assert_allclose(parts, whole, rtol=1e-12)


def test_predictions_follow_the_rows_order(fitted, asked):
    shuffled = asked.sample(frac=1, random_state=0)
    expected = pd.Series(fitted.predict(asked), index=asked.index)[shuffled.index]
    np.testing.assert_allclose(fitted.predict(shuffled), expected, rtol=1e-12)


def test_fitting_does_not_depend_on_the_rows_order(name, fitted, features, asked):
    shuffled = features.sample(frac=1, random_state=0)
    again = clone(fitted).fit(shuffled, _times(name, shuffled))
    np.testing.assert_allclose(again.predict(asked), fitted.predict(asked), rtol=1e-6)


def test_a_pickled_predictor_answers_the_same(fitted, asked):
    loaded = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    np.testing.assert_array_equal(loaded.predict(asked), fitted.predict(asked))


def test_a_predictor_that_questions_name_is_read_from_json(name, fitted, asked):
    if not PREDICTORS[name].serves:
        pytest.skip("evaluations alone use it")
    loaded = estimator_class(name).from_json(json.loads(json.dumps(fitted.to_json())))
    np.testing.assert_array_equal(loaded.predict(asked), fitted.predict(asked))
    with pytest.raises(NotFittedError, match="has not been fitted yet"):
        _new(name).to_json()


def test_rows_of_any_selection_get_what_a_grid_of_them_gets(name, fitted, features, asked):
    """Rows may be ragged: other batch sizes on each GPU, in any order, some twice."""
    if name in ("line", "interpolation"):
        pytest.skip("it predicts series that were measured, and no grid")
    tables = {(row["cnn"], row["image_size"]): row["layer_table"] for row in asked.to_dict("records")}
    gpus, sizes = [find_gpu(each) for each in asked["gpu"].unique()], sorted(asked["batch_size"].unique())
    devices, chosen = [(gpu, Mode()) for gpu in gpus], list(tables.values())
    grid = grid_rows(chosen, devices, sizes)
    shared = [column for column in features if column not in grid]  # proxies' times, samples
    grid = grid.merge(asked[["gpu", "batch_size", *shared]].drop_duplicates(["gpu", "batch_size"]))
    ragged = np.random.default_rng(0).choice(len(grid), len(grid) // 3)
    whole = fitted.predict(grid)
    np.testing.assert_allclose(fitted.predict(grid.iloc[ragged]), whole[ragged], rtol=1e-12)


def test_a_clone_is_not_fitted(fitted):
    assert not [attribute for attribute in vars(clone(fitted)) if attribute.endswith("_")]


def test_check_is_fitted_knows_the_difference(name, fitted):
    check_is_fitted(fitted)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(_new(name))


def test_predicting_before_fitting_raises_ours_and_scikit_learns_error(name, asked):
    with pytest.raises(NotFittedError, match=r"has not been fitted yet. Call fit") as raised:
        _new(name).predict(asked)
    missing = [
        each
        for each in (SklearnNotFittedError, ValueError, AttributeError)
        if not isinstance(raised.value, each)
    ]
    assert missing == []


def test_a_pipeline_gives_the_same_answers(name, fitted, features, asked):
    pipeline = Pipeline([("as it is", FunctionTransformer()), ("predictor", _new(name))])
    pipeline.fit(features, _times(name, features))
    np.testing.assert_array_equal(pipeline.predict(asked), fitted.predict(asked))


def test_an_array_is_refused_with_what_to_do(name):
    with pytest.raises(SchemaError, match=r"needs a feature table \(pandas DataFrame\), got ndarray"):
        _new(name).fit(np.ones((9, 4)), np.ones(9))


def test_a_missing_column_is_named(name, features):
    with pytest.raises(SchemaError, match="needs the column 'batch_size'"):
        _new(name).fit(features.drop(columns="batch_size"), _times(name, features))


def test_a_table_without_rows_is_refused(name, features):
    with pytest.raises(SchemaError, match="without rows"):
        _new(name).fit(features.head(0), [])


def test_a_time_that_is_not_above_zero_and_finite_is_refused(name, features):
    times = _times(name, features).to_numpy().copy()
    for bad in (0.0, -1.0, np.nan, np.inf):
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
