"""`layer-times` on a made-up GPU whose operators add up with known weights."""

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row

from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError
from predictor.measurements.features import feature_table
from predictor.models.layer_times.estimator import LayerTimes, libraries_of
from predictor.models.layer_times.interpolation import _nearest, _Shapes
from predictor.models.layer_times.law import CLASSES
from predictor.models.layer_times.times import DeviceMode
from predictor.operators.operators import Operator, in_fp32, is_product, operators_of

CNNS = ("resnet18", "resnet34", "vgg11_bn", "mobilenet_v2", "squeezenet1_1")
SIZES = (16, 64, 256)
WEIGHTS = dict.fromkeys(CLASSES, 1.1)
MODE = DeviceMode("NVIDIA H200", "pytorch", "tf32")


@pytest.fixture(scope="module")
def table(made_up_gpu):
    operators = dict.fromkeys(o for cnn in CNNS for o in operators_of(zoo_cnn(cnn)))
    rows = made_up_gpu.operator_rows(operators, SIZES) + made_up_gpu.target_rows(CNNS, SIZES, WEIGHTS)
    return feature_table(pd.DataFrame(rows))


@pytest.fixture(scope="module")
def targets(table):
    return table[table["kind"] == "target"]


def _fitted(table, answers="iteration_time_ms", **options):
    """Without trees, which take a second and matter to no test here but the ones that grow them."""
    return LayerTimes(**{"trees": False, "answers": answers, **options}).fit(table, table[answers])


def _without(table, cnn):
    return table[table["cnn"] != cnn]


@pytest.mark.parametrize("cnn", CNNS)
@pytest.mark.parametrize("answers", ["iteration_time_ms", "gpu_time_ms"])
def test_an_unseen_cnn_whose_operators_were_measured_is_their_weighted_sum(table, targets, cnn, answers):
    unseen = targets[targets["cnn"] == cnn]
    predicted = _fitted(_without(table, cnn), answers=answers).predict(unseen)
    np.testing.assert_allclose(predicted, unseen[answers], rtol=0.06)


def test_an_unseen_cnn_whose_own_operators_were_not_measured_is_near(table, targets):
    shared = {o.name for cnn in CNNS if cnn != "resnet34" for o in operators_of(zoo_cnn(cnn))}
    rows = table[(table["kind"] == "target") | table["cnn"].isin(shared)]
    unseen = targets[targets["cnn"] == "resnet34"]
    predicted = _fitted(_without(rows, "resnet34")).predict(unseen)
    np.testing.assert_allclose(predicted, unseen["iteration_time_ms"], rtol=0.1)


def test_the_weight_is_found(table):
    assert _fitted(table, pull=1e-6).models_.added[MODE].law.weight == pytest.approx(1.1, abs=0.03)


def test_without_any_target_the_operators_are_added(table, targets, made_up_gpu):
    fitted = _fitted(table[table["kind"] == "operator"], answers="gpu_time_ms")
    plain = made_up_gpu.target_ms(zoo_cnn("resnet18"), SIZES, {})
    np.testing.assert_allclose(fitted.predict(targets[targets["cnn"] == "resnet18"]), plain, rtol=1e-9)


def test_a_mode_without_targets_takes_the_weights_of_the_others(table, targets, made_up_gpu):
    operators = operators_of(zoo_cnn("resnet18"))
    rows = made_up_gpu.operator_rows(operators, SIZES, memory_format="channels_last")
    more = feature_table(pd.DataFrame(rows))
    fitted = _fitted(pd.concat([table, more], ignore_index=True), pull=0.1)
    law = fitted.models_.added[MODE._replace(memory_format="channels_last")].law
    assert law.weight > 1.05  # what the other mode found; 1 if it were ignored


def test_a_captured_iteration_waits_for_no_host(table, targets):
    fitted = _fitted(table, pull=0.1)
    eager, captured = fitted.predict(targets), fitted.predict(targets.assign(capture="graph"))
    assert (captured < eager).all()
    np.testing.assert_allclose(captured, targets["gpu_time_ms"], rtol=0.02)


def test_intervals_surround_the_answer_and_widen_where_shapes_are_missing(table, targets):
    unseen = targets[targets["cnn"] == "mobilenet_v2"]
    rows = _without(table, "mobilenet_v2")
    fitted = _fitted(rows)
    (low, high), middle = fitted.predict_interval(unseen), fitted.predict(unseen)
    assert ((low < middle) & (middle < high)).all()
    names = {cnn: {operator.name for operator in operators_of(zoo_cnn(cnn))} for cnn in CNNS}
    own = names.pop("mobilenet_v2").difference(*names.values())
    blind_low, blind_high = _fitted(rows[~rows["cnn"].isin(own)]).predict_interval(unseen)
    assert (blind_high / blind_low > high / low).all()


@each_row
def test_what_has_no_operators_or_layers_is_refused_with_what_there_is(table, targets, changed, words):
    with pytest.raises(OutOfRangeError, match=words):
        _fitted(table).predict(targets.assign(**changed))


def test_without_host_times_an_eager_iteration_is_refused_and_its_gpu_time_is_not(table, targets):
    blind = table.drop(columns="host_time_ms")
    with pytest.raises(OutOfRangeError, match="time to launch the operators of NVIDIA H200 was not measured"):
        _fitted(blind).predict(targets)
    assert (_fitted(blind, answers="gpu_time_ms").predict(targets) > 0).all()


def test_fp32_and_tf32_share_what_tensor_cores_do_not_change(made_up_gpu):
    operators = list(operators_of(zoo_cnn("resnet18")))
    norm, product = (next(o for o in operators if o.type == name) for name in ("batch_norm", "conv2d"))
    rows = made_up_gpu.operator_rows([norm, product], (16, 512), precision="tf32")
    left = [operator for operator in operators if operator not in (norm, product)]
    rows += made_up_gpu.operator_rows(left, (16,), precision="fp32")
    rows += made_up_gpu.operator_rows([norm], (16,), precision="amp_bf16")
    libraries = libraries_of(pd.DataFrame(rows))
    by_precision = {mode.precision: library.operators for mode, library in libraries.items()}
    assert norm in by_precision["fp32"]
    assert product not in by_precision["fp32"]
    assert set(by_precision["amp_bf16"]) == {norm, *map(in_fp32, filter(is_product, operators))}


def test_a_recurrent_layer_is_known_in_every_layout_of_its_precision(made_up_gpu):
    sizes = (("channels", 64), ("height", 8), ("width", 1))
    sides = {f"{end}_{size}": n for end in ("in", "out") for size, n in sizes}
    lstm = Operator("lstm", parameters=33_280, groups=1, **sides)
    norm = Operator("batch_norm", parameters=128, **sides)
    rows = made_up_gpu.operator_rows([lstm, norm], (16,), precision="amp_bf16")
    rows += made_up_gpu.operator_rows([norm], (16,), precision="amp_bf16", memory_format="channels_last")
    rows += made_up_gpu.operator_rows([norm], (16,), precision="tf32")
    by_mode = {mode[2:4]: library.operators for mode, library in libraries_of(pd.DataFrame(rows)).items()}
    assert set(by_mode["amp_bf16", "channels_last"]) == {lstm, norm}
    assert by_mode["tf32", "nchw"] == (norm,)


@pytest.mark.parametrize(("at", "noise"), [(0, 1e-12), (14, 1e-5)])  # alike; alike in float32
def test_the_nearest_are_those_of_exact_sorting_the_first_of_equals_whatever_a_processor_rounds(at, noise):
    rng = np.random.default_rng(0)
    own, measured = (at + rng.integers(0, 2, (n, 4)) + noise * rng.standard_normal((n, 4)) for n in (20, 500))
    shapes, learned, first = (_Shapes.of(at, np.zeros(len(at), int)) for at in (own, measured, own[:1]))
    rows, distances = _nearest(shapes, learned, 12)
    exact = ((own.round(11)[:, None] - measured.round(11)) ** 2).sum(axis=2) + 1e-10 * np.arange(500)
    np.testing.assert_array_equal(rows, np.argsort(exact, axis=1, kind="stable")[:, :12])
    np.testing.assert_allclose(distances**2, np.sort(exact, axis=1)[:, :12], rtol=1e-7, atol=1e-7)
    assert (distances[:1] == _nearest(first, learned, 12)[1]).all()  # alone as among others
