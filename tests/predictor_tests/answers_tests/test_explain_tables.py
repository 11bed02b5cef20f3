"""What measured iterations are made of: from made-up tables, of which nothing is predicted."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row

from predictor.answers.explain import explain_measurements, is_measurement_table
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError, SchemaError
from predictor.operators.operators import operators_of

SIZES = [4, 16, 64]


@pytest.fixture(scope="module")
def targets(made_up_gpu):
    return made_up_gpu.target_rows(["resnet18", "vgg16"], SIZES)


@pytest.fixture(scope="module")
def operators(made_up_gpu):
    return made_up_gpu.operator_rows(operators_of(zoo_cnn("resnet18")), SIZES)


def own_row(**columns):
    row = {"gpu": "T4", "cnn": "mine", "image_size": 32, "batch_size": 8, "precision": "fp32"}
    return row | {"iteration_time_ms": 10.0} | columns


def explained(*rows, **options):
    """The explanations of measured rows."""
    return explain_measurements(pd.DataFrame(rows), **options)


def test_every_cnn_has_an_explanation_with_the_times_as_measured(targets):
    explanations = explained(*targets)
    assert [(row.cnn, row.method, row.batch_sizes) for row in explanations] == [
        ("resnet18", "measured", (4, 16, 64)),
        ("vgg16", "measured", (4, 16, 64)),
    ]
    assert list(explanations[0].gpu_time_ms) == pytest.approx([row["gpu_time_ms"] for row in targets[:3]])


def test_classes_come_from_the_tables_own_operators_and_add_up_to_the_gpus_time(targets, operators):
    resnet18 = explain_measurements([pd.DataFrame(targets), pd.DataFrame(operators)], ["resnet18"])[0]
    assert np.sum(list(resnet18.classes.values()), axis=0) == pytest.approx(resnet18.gpu_time_ms)
    assert "add up to 1.00 x the GPU time" in resnet18.trained_on
    assert resnet18.extrapolates == ((), (), ())


def test_classes_by_near_operators_say_so(made_up_gpu, operators):
    rows = made_up_gpu.target_rows(["resnet34"], SIZES)  # an optimizer of its own
    resnet34 = explain_measurements(pd.DataFrame(rows + operators))[0]
    assert np.sum(list(resnet34.classes.values()), axis=0) == pytest.approx(resnet34.gpu_time_ms)
    assert "% of the time is of operators near to those measured" in resnet34.extrapolates[0][0].text


def test_a_table_without_operators_has_no_classes_and_bounds_by_the_layers_arithmetic(targets):
    resnet18 = explain_measurements(pd.DataFrame(targets), ["resnet18"])[0]
    assert resnet18.classes == {}
    assert np.sum(list(resnet18.bound_ms.values()), axis=0) == pytest.approx(resnet18.gpu_time_ms)


def test_classes_are_left_out_where_operators_are_unlike_any_measured(targets, made_up_gpu):
    alike = [operator for operator in operators_of(zoo_cnn("resnet18")) if operator.type in ("loss", "add")]
    table = pd.DataFrame(targets + made_up_gpu.operator_rows(alike, SIZES))
    vgg16 = explain_measurements(table, ["vgg16"])[0]
    assert vgg16.classes == {}
    assert "classes: left out" in str(vgg16.extrapolates[0][0])


def test_a_cnn_outside_the_zoo_is_bound_by_the_device_or_unknown():
    busy, unknown = own_row(gpu_time_ms=9.0, host_time_ms=3.0), own_row(batch_size=16, iteration_time_ms=12.0)
    assert explained(busy, unknown)[0].bound == ("device", "unknown")


def test_the_law_takes_the_samples_of_the_table_or_those_given():
    times = {"samples_per_epoch": 1000, "host_time_ms": 9.9, "gpu_time_ms": 1.0}
    rows = [own_row(batch_size=size, **times) for size in (2, 4, 8)]
    law = explained(*rows)[0].small_batch_law
    assert (law.k_s, law.from_batch_size, law.up_to_batch_size, law.because) == (10.0, 2, 8, "host")
    assert explained(*rows, samples=500)[0].small_batch_law.k_s == 5.0


def test_repeated_measurements_count_as_their_median():
    [explanation] = explained(*(own_row(iteration_time_ms=ms) for ms in (9.0, 10.0, 50.0)))
    assert (explanation.iteration_time_ms, explanation.trained_on) == ((10.0,), "3 measurements")


def test_modes_are_put_side_by_side_where_batch_sizes_are_common():
    amp = own_row(precision="amp_fp16", memory_format="channels_last", iteration_time_ms=4.0)
    by_precision = {row.precision: row for row in explained(own_row(), own_row(batch_size=16), amp)}
    [mode] = by_precision["fp32"].other_modes
    assert (mode.precision, mode.memory_format, mode.factor[0]) == ("amp_fp16", "channels_last", 0.4)
    assert math.isnan(mode.factor[1])


def test_modes_of_other_hosts_are_not_compared():
    explanations = explained(own_row(host="a"), own_row(host="b", precision="amp_fp16"))
    assert [explanation.other_modes for explanation in explanations] == [(), ()]


def test_recorded_kernels_that_change_are_switches():
    layer = "3x8x8_4x3x3x3_s1x1"
    recorded = {8: "gemm", 16: "winograd"}
    rows = [
        own_row(batch_size=size, conv_algorithms=json.dumps({f"{size}x{layer}": {"forward": name}}))
        for size, name in recorded.items()
    ]
    [switch] = explained(*rows)[0].switches
    assert (switch.layer, switch.before, switch.after, switch.factor) == (layer, "gemm", "winograd", None)


@each_row
def test_a_measurement_table_is_told_from_a_layer_table_by_its_columns(tmp_path, name, content, is_one):
    (tmp_path / name).write_text(content)
    assert is_measurement_table(tmp_path / name) is is_one


def test_what_is_not_there_is_refused_with_what_is(targets):
    with pytest.raises(SchemaError, match=r"no cnn 'resnet19'.*It has: resnet18, vgg16"):
        explain_measurements(pd.DataFrame(targets), ["resnet19"])
    with pytest.raises(SchemaError, match=r"no precision 'fp32'.*It has: tf32"):
        explain_measurements(pd.DataFrame(targets), precision="fp32")


def test_operators_alone_are_no_whole_cnn(operators):
    with pytest.raises(DataError, match=r"holds no whole CNN.*--measurements FILE"):
        explain_measurements(pd.DataFrame(operators))
