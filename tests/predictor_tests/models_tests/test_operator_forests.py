"""Trees of a library: numpy answers as scikit-learn does, and a shape never seen is nearer with them."""

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn.ensemble

from predictor.cnns.zoo import zoo_cnn
from predictor.errors import ArtifactError, BackendUnavailableError
from predictor.models.layer_times.fit import _grown, _nodes_of, with_forests
from predictor.models.layer_times.interpolation import FEATURES, NODE_ARRAYS, Forest, forest_features
from predictor.models.layer_times.law import SummingLaw
from predictor.models.layer_times.model import LayerModel
from predictor.models.layer_times.times import DeviceMode
from predictor.operators.operators import Operator, operators_of
from predictor.operators.work import device_rates

SIZES = (16, 64, 256)
MODE = DeviceMode("NVIDIA H200", "pytorch", "tf32")
CNNS = ("resnet18", "resnet50", "vgg16_bn", "squeezenet1_1", "densenet121")
H200 = device_rates("NVIDIA H200", "tf32")


@pytest.fixture(scope="module")
def plain(made_up_gpu):
    operators = dict.fromkeys(o for cnn in CNNS for o in operators_of(zoo_cnn(cnn)))
    return made_up_gpu.library_of(MODE, made_up_gpu.operator_rows(operators, SIZES))


@pytest.fixture(scope="module")
def grown(plain):
    return with_forests(plain)


@pytest.fixture(scope="module")
def strangers(grown):
    measured = set(grown.operators)
    return [o for o in operators_of(zoo_cnn("googlenet")) if o.type == "conv2d" and o not in measured]


def test_features_are_finite_for_every_operator(plain):
    features = forest_features(plain.operators, np.array(SIZES, dtype=float), H200)
    assert features.shape == (len(plain), len(SIZES), len(FEATURES))
    assert np.isfinite(features).all()


def test_trees_are_nearer_to_shapes_never_seen_than_neighbours_alone(plain, grown, strangers, made_up_gpu):
    truth = np.array([made_up_gpu.operator_ms(operator, SIZES) for operator in strangers])

    def error(library):
        return np.abs(library.times(strangers, np.array(SIZES, dtype=float)).gpu_ms / truth - 1).mean()

    assert error(grown) < error(plain)
    assert error(grown) < 0.05


def test_measured_operators_keep_their_times(plain, grown):
    question = list(plain.operators), np.array(SIZES, dtype=float)
    np.testing.assert_allclose(grown.times(*question).gpu_ms, plain.times(*question).gpu_ms, rtol=1e-12)


def test_what_trees_expect_of_a_measured_operator_is_not_what_they_saw(plain, made_up_gpu):
    odd = next(o for o in plain.operators if o.type == "conv2d" and o.in_channels == 256)
    at = plain.operators.index(odd)
    log_ms = plain.log_ms.copy()
    log_ms[at] += 2.0
    spoilt = with_forests(replace(plain, log_ms=log_ms))
    np.testing.assert_allclose(spoilt.expected[at], with_forests(plain).expected[at], atol=0.15)


def test_forests_put_together_answer_their_mean(grown):
    forest = next(iter(grown.forests.values()))
    shifted = replace(forest, start=forest.start + 2.0)
    rows = np.random.default_rng(0).normal(size=(5, len(FEATURES)))
    np.testing.assert_allclose(Forest.mean([forest, shifted]).predict(rows), forest.predict(rows) + 1.0)


def test_an_operator_taken_out_is_answered_as_if_never_seen(grown):
    out = next(o for o in grown.operators if o.type == "conv2d" and o.in_channels == 512)
    lesser = grown.without([out])
    assert out in lesser.hidden
    assert lesser.times([out], np.array([64.0])).gpu_ms > 0


def test_a_small_library_grows_no_trees(made_up_gpu):
    rows = made_up_gpu.operator_rows(list(operators_of(zoo_cnn("lenet5"))), SIZES)
    assert not with_forests(made_up_gpu.library_of(MODE, rows)).forests


def test_a_file_keeps_the_trees(grown, strangers):
    content, question = LayerModel(grown, SummingLaw()).packed(), (strangers, np.array([32.0, 128.0]))
    loaded = LayerModel.unpacked(content, Path("own.npz"), {}.get).library
    np.testing.assert_allclose(loaded.times(*question).gpu_ms, grown.times(*question).gpu_ms, rtol=1e-3)


def test_damaged_trees_are_refused():
    sound = {"roots": [0], "feature": [0, -1, -1], "threshold": [0.5, 0, 0]}
    sound |= {"left": [1, 1, 2], "right": [2, 1, 2], "value": [0.0, -1.0, 1.0]}
    assert list(Forest.of(FEATURES, 0.0, sound).predict(np.array([[0.0], [1.0]]))) == [-1.0, 1.0]
    damaged = {"left": [0, 0, 0], "right": [9, 1, 2], "feature": [len(FEATURES), -1, -1], "roots": [3]}
    damaged |= {"value": [0.0, float("inf"), 1.0], "threshold": [0.5]}  # the first is a way without end
    for name in damaged:
        with pytest.raises((ValueError, IndexError)):
            Forest.of(FEATURES, 0.0, sound | {name: damaged[name]})


def nodes_of(forest):
    return {name: getattr(forest, name) for name in NODE_ARRAYS}


def test_trees_read_their_features_by_name(grown):
    forest = next(iter(grown.forests.values()))
    turned = np.where(forest.feature < 0, forest.feature, len(FEATURES) - 1 - forest.feature)
    loaded = Forest.of(FEATURES[::-1], forest.start, nodes_of(forest) | {"feature": turned})
    for name, values in nodes_of(forest).items():
        np.testing.assert_array_equal(getattr(loaded, name), values)


def test_trees_of_other_features_are_refused_and_these_are_named(grown):
    nodes, unknown = nodes_of(next(iter(grown.forests.values()))), (*FEATURES, "type swirl")
    words = {"'in_channels' lacks": FEATURES[1:], "'type swirl' is unknown": unknown}
    for text, names in (words | {"a name repeats": (*FEATURES, FEATURES[0])}).items():
        with pytest.raises(ArtifactError, match=text):
            Forest.of(names, 0.0, nodes)


def test_the_arrays_answer_as_scikit_learn_does(monkeypatch, plain):
    fitted = []

    class Kept(sklearn.ensemble.HistGradientBoostingRegressor):
        def fit(self, X, y):
            fitted.append(self)
            return super().fit(X, y)

    monkeypatch.setattr(sklearn.ensemble, "HistGradientBoostingRegressor", Kept)
    features = forest_features(plain.operators, plain.batch_sizes, H200)
    forest = _grown(features, plain.log_ms, 0)
    rows = features.reshape(-1, len(FEATURES))[::7]
    varying = np.ptp(features.reshape(-1, len(FEATURES)), axis=0) > 0
    np.testing.assert_allclose(forest.predict(rows), fitted[0].predict(rows[:, varying]), atol=1e-9)


def test_another_layout_of_scikit_learns_trees_is_refused():
    nodes = np.zeros(3, dtype=[("left_child", int), ("right_child", int)])
    for rounds in (None, [], [[object()]], [[SimpleNamespace(nodes=nodes)]]):
        with pytest.raises(BackendUnavailableError, match=r"keeps the trees .* otherwise"):
            _nodes_of(SimpleNamespace(_predictors=rounds))


def test_a_type_without_any_neighbour_is_not_asked_of_trees(grown):
    strange = Operator("layer_norm", None, 96, 56, 56, 96, 56, 56, parameters=192)
    assert grown.times([strange], np.array([64.0])).gpu_ms > 0
