"""What the time is made of: parts that add up, bounds on constructed cases, the law, switches, other modes."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from case_tables import each_row

from predictor.answers.answer import predict
from predictor.answers.bounds import (
    bounding_ms,
    bounds_of,
    jumps_of,
    switches_of_algorithms,
    switches_of_library,
)
from predictor.answers.explain import explain, small_batch_law
from predictor.answers.question import Question
from predictor.answers.resolved import load_model
from predictor.catalogue.devices import find_gpu, precisions_of
from predictor.catalogue.modes import MEMORY_FORMATS
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.models.layer_times.files import LayerModels
from predictor.models.layer_times.law import SummingLaw
from predictor.models.layer_times.model import LayerModel
from predictor.models.layer_times.times import DeviceMode
from predictor.operators.kernels import operator_classes_of
from predictor.operators.operators import operators_of

SIZES = [1, 8, 64, 512]


def explained(cnn, gpus, batch_sizes, **options):
    """The explanations of a question."""
    return explain(Question.of(cnn, gpus, batch_sizes, options))[0]


H200 = DeviceMode("NVIDIA H200", precision="tf32")


@pytest.fixture(scope="module")
def answer():
    return explained("resnet50", ["H200", "T4"], SIZES, data_set="imagenet", precision="fp32")


@pytest.fixture(scope="module")
def measured_model(made_up_gpu):
    """The shipped model, and all of ResNet-18's operators measured on a made-up H200."""
    rows = made_up_gpu.operator_rows(operators_of(zoo_cnn("resnet18")), [4, 16, 64, 256])
    library = made_up_gpu.library_of(H200, rows)
    law = SummingLaw(operator_ms=0.001, iteration_ms=0.02)
    return replace(load_model(None), layers=LayerModels(added={H200: LayerModel(library, law)}))


@pytest.fixture(scope="module")
def by_layers(measured_model):
    return explained("resnet18", "H200", [4, 16, 64], precision="tf32", model=measured_model)[0]


def matrix_product(channels, positions):
    """A CNN of one dense layer over so many positions."""
    side = (channels, positions, 1)
    layer = Layer(0, "product", "linear", None, None, *side, *side, parameters=channels * channels)
    return LayerTable("product", 32, (layer,))


def test_each_gpu_has_one_explanation_with_the_times_of_predict(answer):
    about = [(explanation.gpu, explanation.batch_sizes) for explanation in answer]
    assert about == [("NVIDIA H200", tuple(SIZES)), ("Tesla T4", tuple(SIZES))]
    rows = predict("resnet50", "H200", SIZES, data_set="imagenet", precision="fp32")
    for name in ("iteration_time_ms", "low_ms", "high_ms", "gpu_time_ms", "host_time_ms"):
        assert list(getattr(answer[0], name)) == [getattr(row, name) for row in rows]


@pytest.mark.parametrize("parts", ["classes", "bound_ms"])
def test_parts_add_up_to_the_gpus_time(answer, by_layers, parts):
    for explanation in (*answer, by_layers):
        sums = np.sum(list(getattr(explanation, parts).values()), axis=0)
        assert sums == pytest.approx(np.array(explanation.gpu_time_ms))


def test_classes_have_the_same_names_whatever_the_method(answer, by_layers):
    assert by_layers.method == "layer-times"
    for explanation in (answer[0], by_layers):
        assert {"convolution", "batch_norm", "linear", "pooling"} <= set(explanation.classes)


def test_time_that_no_operator_accounts_for_is_overhead(by_layers):
    operators = sum(operators_of(zoo_cnn("resnet18")).values())
    assert by_layers.classes["overhead"] == pytest.approx([0.02 + 0.001 * operators] * 3)


def test_kernels_of_one_class_are_added_up():
    ms = np.array([1.0, 2.0])
    kernels = {"add": ms, "conv_forward": ms, "conv_backward_input": ms, "fan_out": ms / 4}
    by_class = {name: list(values) for name, values in operator_classes_of(kernels).items()}
    assert by_class == {"convolution": [2, 4], "add": [1.25, 2.5]}


@each_row
def test_the_gpu_is_bound_by_what_its_layers_wait_for(table, batch_size, bound):
    by_bound = bounding_ms(matrix_product(*table), find_gpu("T4"), "fp32", np.array([batch_size]), None)
    assert bounds_of(np.ones(1), np.zeros(1), by_bound) == (bound,)


def test_the_host_bounds_what_it_enqueues_more_slowly_than_the_gpu_runs():
    by_bound = {"compute": np.array([1.0, 1.0]), "memory": np.array([0.5, 2.0])}
    assert bounds_of(np.array([1.5, 3.0]), np.array([2.0, 2.0]), by_bound) == ("host", "memory")


def test_without_the_hosts_time_a_busy_gpu_bounds_and_an_idle_one_is_unknown():
    gpu, host, wall = np.array([9.0, 3.0, math.nan]), np.full(3, math.nan), np.full(3, 10.0)
    assert bounds_of(gpu, host, {"memory": gpu}, wall) == ("memory", "unknown", "unknown")


def test_a_captured_graph_waits_for_no_host():
    explanation = explained("resnet50", "H200", [1], capture="graph", precision="fp32")[0]
    assert (explanation.bound, explanation.host_time_ms) == (("launch",), (0.0,))


def test_the_law_holds_while_the_host_takes_all_the_time():
    law = small_batch_law([1, 2, 4, 8, 16], [10.0, 10.1, 10.5, 11.5, 20.0], ["host"] * 5, lambda ms: 50 * ms)
    assert (law.k_s, law.from_batch_size, law.up_to_batch_size, law.because) == (500.0, 1, 4, "host")


@pytest.mark.parametrize("times", [[10.0, 11.5], [10.0]])
def test_there_is_no_law_where_doubling_the_batch_breaks_it(times):
    assert small_batch_law([1, 2][: len(times)], times, ["host", "host"]) is None


def test_the_laws_constant_is_the_epoch_time_times_the_batch_size(answer):
    law = answer[0].small_batch_law
    [row] = predict("resnet50", "H200", 2, data_set="imagenet", precision="fp32")
    assert row.epoch_time_s * 2 == pytest.approx(law.k_s, rel=0.1)
    assert law.iteration_time_ms == answer[0].iteration_time_ms[0]
    assert law.extrapolates  # it begins below the measured batch sizes


def test_without_samples_the_law_has_no_constant_and_says_the_iterations_time():
    law = explained("lenet5", "H200", 1, precision="fp32")[0].small_batch_law
    assert law.k_s is None
    assert law.iteration_time_ms > 0


def test_every_other_precision_and_memory_format_of_the_gpu_is_another_mode(answer):
    for explanation in answer:
        modes = {(mode.precision, mode.memory_format) for mode in explanation.other_modes}
        every = {(p, f) for p in precisions_of(find_gpu(explanation.gpu)) for f in MEMORY_FORMATS}
        assert modes == every - {("fp32", "nchw")}


def test_a_factor_is_the_ratio_of_two_predictions_within_its_interval(answer):
    tf32 = next(o for o in answer[0].other_modes if (o.precision, o.memory_format) == ("tf32", "nchw"))
    rows = predict("resnet50", "H200", SIZES, precision="tf32")
    expected = [row.iteration_time_ms / ms for row, ms in zip(rows, answer[0].iteration_time_ms, strict=True)]
    assert list(tf32.factor) == pytest.approx(expected)
    assert (np.array([tf32.low, tf32.factor]) < np.array([tf32.factor, tf32.high])).all()


def test_modes_are_compared_by_the_same_method_where_one_lacks_measured_operators(by_layers):
    of_other_kernels = [mode for mode in by_layers.other_modes if mode.precision != "tf32"]
    assert {mode.method for mode in of_other_kernels} == {"roofline"}
    fp32 = next(o for o in by_layers.other_modes if (o.precision, o.memory_format) == ("fp32", "nchw"))
    in_fp32, in_tf32 = (
        predict("resnet18", "H200", [4, 16, 64], precision=precision, method="roofline")
        for precision in ("fp32", "tf32")
    )
    pairs = zip(in_fp32, in_tf32, strict=True)
    expected = [row.iteration_time_ms / usual.iteration_time_ms for row, usual in pairs]
    assert list(fp32.factor) == pytest.approx(expected)


def test_another_mode_has_only_the_reasons_that_the_asked_one_lacks(answer):
    assert any(why.kind == "batch" for why in answer[0].extrapolates[0])
    assert not any(why.kind == "batch" for mode in answer[0].other_modes for why in mode.extrapolates)


def test_an_anchor_corrects_the_time_and_not_the_factors_of_other_modes(answer):
    anchor = {"gpu": "H200", "batch_size": 64, "iteration_time_ms": 35.0}
    anchored = explained("resnet50", "H200", SIZES, anchors=[anchor], precision="fp32")[0]
    assert anchored.iteration_time_ms[2] != answer[0].iteration_time_ms[2]
    assert anchored.other_modes == answer[0].other_modes


def test_smooth_operators_have_no_switches(by_layers):
    assert by_layers.switches == ()


def test_an_operator_whose_time_jumps_switches_there(made_up_gpu):
    table = zoo_cnn("resnet18")
    rows = made_up_gpu.operator_rows(operators_of(table), [4, 16, 64])
    slow = max((row for row in rows if row["batch_size"] == 16), key=lambda row: row["gpu_time_ms"])
    slow["gpu_time_ms"] *= 10
    library = made_up_gpu.library_of(H200, rows)
    switches = switches_of_library(library, table, dict.fromkeys([4.0, 16.0, 64.0], 20.0))
    jumps = [(switch.layer, switch.from_batch_size, switch.to_batch_size) for switch in switches]
    assert jumps == [(slow["cnn"], 4, 16), (slow["cnn"], 16, 64)]
    assert switches[0].after is None


def test_a_jump_that_hardly_changes_the_iteration_is_left_out(made_up_gpu):
    table = zoo_cnn("resnet18")
    rows = made_up_gpu.operator_rows(operators_of(table), [4, 16, 64])
    rows[1]["gpu_time_ms"] *= 10
    library = made_up_gpu.library_of(H200, rows)
    assert not switches_of_library(library, table, dict.fromkeys([4.0, 16.0, 64.0], 1e9))


@each_row
def test_a_jump_is_what_one_algorithm_would_not_do(times, jumps):
    assert len(list(jumps_of("mine", [16, 32, 64], times))) == jumps


def test_kernels_that_change_between_batch_sizes_are_named():
    layer = "64x8x8_64x64x3x3_s1x1"
    texts = [
        json.dumps({f"{size}x{layer}": {"forward": name, "backward_data": "same"}})
        for size, name in ((4, "direct"), (8, "winograd"))
    ]
    [switch] = switches_of_algorithms([4, 8, 16, 32], [*texts, None, "damaged {"])
    assert (switch.layer, switch.part) == (layer, "forward")
    assert (switch.before, switch.after) == ("direct", "winograd")
