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
    "estimator_cloneable", "estimator_repr", "estimator_tags_renamed", "valid_tag_types", "mixin_order",
    "no_attributes_set_in_init", "do_not_raise_errors_in_init_or_set_params", "parameters_default_constructible",
    "get_params_invariance", "set_params",
)  # fmt: skip

# An entry whose module does not load fails its own test below, not the collection of all others.
LOADABLE = sorted(name for name, entry in PREDICTORS.items() if find_spec(entry.estimator.split(":")[0]))


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
def questions(features):
    """Rows of whole CNNs, which every predictor answers."""
    return features[features["kind"] != "operator"] if "kind" in features else features


@pytest.fixture(scope="module")
def fitted(name, features):
    """Fitted once for all tests: one of them shows that predicting does not change it."""
    return new_predictor(name).fit(features, features["iteration_time_ms"])


def test_scikit_learns_checks_without_data_hold(name):
    for check in DATA_FREE_CHECKS:
        getattr(estimator_checks, f"check_{check}")(name, new_predictor(name))


@pytest.mark.parametrize("registered", sorted(PREDICTORS))
def test_every_entry_of_the_registry_loads_and_is_documented(registered):
    assert new_predictor(registered)
    text = (Path(__file__).parents[3] / "docs" / "predictors.md").read_text(encoding="utf-8")
    assert any(line.startswith("|") and f"`{registered}`" in line for line in text.splitlines())


def test_fit_and_score_take_y_and_predictions_are_finite(name, fitted, questions):
    for method in ("fit", "score"):
        assert list(inspect.signature(getattr(new_predictor(name), method)).parameters)[:2] == ["X", "y"]
    predicted = fitted.predict(questions)
    assert predicted.shape == (len(questions),)
    assert np.isfinite(predicted).all()


def test_fit_returns_the_predictor_and_changes_neither_parameters_nor_table(name, features):
    predictor, before, parameters = new_predictor(name), features.copy(), new_predictor(name).get_params()
    assert predictor.fit(features, features["iteration_time_ms"]) is predictor
    pd.testing.assert_frame_equal(features, before)
    assert predictor.get_params() == parameters


def test_fitting_twice_gives_the_same(name, fitted, features, questions):
    rows = features, features["iteration_time_ms"]
    again = clone(fitted).fit(*rows).fit(*rows)
    np.testing.assert_array_equal(again.predict(questions), fitted.predict(questions))


def test_predictions_do_not_depend_on_other_rows_and_their_order_and_change_nothing(fitted, questions):
    together = fitted.predict(questions)
    before = pickle.dumps(vars(fitted))  # with what a law keeps of contexts
    parts = np.concatenate([fitted.predict(questions.iloc[i : i + 7]) for i in range(0, len(questions), 7)])
    assert pickle.dumps(vars(fitted)) == before
    np.testing.assert_allclose(parts, together, rtol=1e-12)
    shuffled = questions.sample(frac=1, random_state=0)
    expected = pd.Series(together, index=questions.index)[shuffled.index]
    np.testing.assert_allclose(fitted.predict(shuffled), expected, rtol=1e-12)


def test_fitting_does_not_depend_on_the_rows_order(name, fitted, features, questions):
    shuffled = features.sample(frac=1, random_state=0)
    again = clone(fitted).fit(shuffled, shuffled["iteration_time_ms"])
    np.testing.assert_allclose(again.predict(questions), fitted.predict(questions), rtol=1e-6)


def test_a_pickled_predictor_answers_the_same(fitted, questions):
    loaded = pickle.loads(pickle.dumps(fitted))  # noqa: S301
    np.testing.assert_array_equal(loaded.predict(questions), fitted.predict(questions))


def test_a_predictor_that_questions_name_is_read_from_json(name, fitted, questions):
    if not PREDICTORS[name].serves:
        pytest.skip("evaluations alone use it")
    loaded = estimator_class(name).from_json(json.loads(json.dumps(fitted.to_json())))
    np.testing.assert_array_equal(loaded.predict(questions), fitted.predict(questions))
    with pytest.raises(NotFittedError, match="has not been fitted yet"):
        new_predictor(name).to_json()


def test_rows_of_any_selection_get_what_a_grid_of_them_gets(name, fitted, features, questions):
    """Rows may be ragged: other batch sizes on each GPU, in any order, some twice."""
    if name in ("line", "interpolation"):
        pytest.skip("it predicts series that were measured, and no grid")
    tables = {(row["cnn"], row["image_size"]): row["layer_table"] for row in questions.to_dict("records")}
    devices = [(find_gpu(gpu_name), Mode()) for gpu_name in questions["gpu"].unique()]
    grid = grid_rows(list(tables.values()), devices, sorted(questions["batch_size"].unique()))
    shared = [column for column in features if column not in grid]  # proxies' times, samples
    grid = grid.merge(questions[["gpu", "batch_size", *shared]].drop_duplicates(["gpu", "batch_size"]))
    ragged = np.random.default_rng(0).choice(len(grid), len(grid) // 3)
    of_grid = fitted.predict(grid)
    np.testing.assert_allclose(fitted.predict(grid.iloc[ragged]), of_grid[ragged], rtol=1e-12)


def test_what_is_not_fitted_says_so_by_our_error_and_scikit_learns(name, fitted, questions):
    assert not [attribute for attribute in vars(clone(fitted)) if attribute.endswith("_")]
    check_is_fitted(fitted)
    with pytest.raises(SklearnNotFittedError):
        check_is_fitted(new_predictor(name))
    with pytest.raises(NotFittedError, match=r"has not been fitted yet. Call fit") as raised:
        new_predictor(name).predict(questions)
    assert {SklearnNotFittedError, ValueError, AttributeError} <= {*type(raised.value).__mro__}


def test_a_pipeline_gives_the_same_answers(name, fitted, features, questions):
    pipeline = Pipeline([("as it is", FunctionTransformer()), ("predictor", new_predictor(name))])
    pipeline.fit(features, features["iteration_time_ms"])
    np.testing.assert_array_equal(pipeline.predict(questions), fitted.predict(questions))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda X, y: (X.to_numpy(), y), r"needs a feature table \(pandas DataFrame\), got ndarray"),
        (lambda X, y: (X.drop(columns="batch_size"), y), "needs the column 'batch_size'"),
        (lambda X, _: (X.head(0), []), "without rows"),
        *(
            (lambda X, y, bad=bad: (X, np.r_[y[:5], bad, y[6:]]), "must be above 0 and finite; row 5")
            for bad in (0.0, -1.0, np.nan, np.inf)
        ),
        (lambda X, _: (X, None), "fit requires y"),
        (lambda X, y: (X, y[:-1]), "shape"),
        (lambda X, y: (X.assign(kind="operator"), y), "kind is proxy or target, got operator"),
    ],
)
def test_rows_that_teach_nothing_are_refused(name, features, change, words):
    if "got operator" in words and new_predictor(name).uses_operators:
        pytest.skip("it learns from single layers")
    with pytest.raises(SchemaError, match=words):
        new_predictor(name).fit(*change(features, features["iteration_time_ms"]))
