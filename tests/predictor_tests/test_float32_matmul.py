"""PyTorch's TF32 computes convolutions in TF32 and matrix products in fp32, unless told otherwise."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row

import epochcast
from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.features import feature_table
from predictor.measurements.table import check_measurements
from predictor.models.layer_times.estimator import LayerTimes, libraries_of
from predictor.models.layer_times.times import DeviceMode
from predictor.models.served import Model
from predictor.operators.operators import as_run, in_fp32, is_product, operators_of

H200 = "NVIDIA H200"
VGG = zoo_cnn("vgg11_bn")
DEFAULT, HIGH = Mode(precision="tf32"), Mode(precision="tf32", float32_matmul_precision="high")
SIZES = (16, 64, 256)


@pytest.fixture(scope="module")
def operator_rows(made_up_gpu):
    """All operators of a VGG in TF32, products twice as long in fp32."""
    operators = list(operators_of(VGG))
    rows = made_up_gpu.operator_rows(operators, SIZES, precision="tf32")
    rows = [{**row, "float32_matmul_precision": "high"} for row in rows]
    of_products = made_up_gpu.operator_rows(list(filter(is_product, operators)), SIZES)
    return rows + [
        {**row, "precision": "fp32"} | {name: 2 * row[name] for name in ("iteration_time_ms", "gpu_time_ms")}
        for row in of_products
    ]


def product_ms(rows):
    """Iteration times of the VGG in both settings, and what its products take in TF32."""
    table = feature_table(pd.DataFrame(rows))
    fitted = LayerTimes(trees=False, calibrate=False).fit(table, table["iteration_time_ms"])
    library = fitted.models_.added[DeviceMode(H200, "pytorch", "tf32")].library
    products = [operator for operator in operators_of(VGG) if is_product(operator)]
    batches = np.array([64.0])
    in_tf32 = library.times(products, batches)
    in_fp32_ = library.times([in_fp32(product) for product in products], batches)
    return in_tf32, in_fp32_


def test_products_of_fp32_and_of_the_default_are_measured_operators_of_pytorchs_default_tf32(operator_rows):
    default = {"precision": "tf32", "float32_matmul_precision": "highest"}
    for change in ({}, default):
        rows = [row | change if row["precision"] == "fp32" else row for row in operator_rows]
        in_tf32, in_fp32_ = product_ms(rows)
        np.testing.assert_allclose(in_fp32_.gpu_ms, 2 * in_tf32.gpu_ms, rtol=1e-9)
        assert change or (in_fp32_.sureness == 0).all()


def test_products_do_not_depend_on_the_layout_of_maps(operator_rows):
    last = [{**row, "memory_format": "channels_last"} for row in operator_rows if row["precision"] == "tf32"]
    libraries = libraries_of(pd.DataFrame(operator_rows + last))
    products = {in_fp32(operator) for operator in operators_of(VGG) if is_product(operator)}
    for memory_format in ("nchw", "channels_last"):
        assert products <= set(libraries[DeviceMode(H200, "pytorch", "tf32", memory_format)].operators)


def test_products_never_measured_in_fp32_are_unsure_and_slower_than_in_tf32(operator_rows):
    in_tf32, in_fp32_ = product_ms([row for row in operator_rows if row["precision"] == "tf32"])
    large = in_tf32.gpu_ms.argmax()
    assert in_fp32_.gpu_ms[large] > 1.5 * in_tf32.gpu_ms[large]
    assert (in_fp32_.sureness > in_tf32.sureness).all()


def test_cnns_measured_in_either_setting_are_predicted_by_their_own(operator_rows, made_up_gpu):
    targets = made_up_gpu.target_rows(["vgg11_bn"], SIZES, {})
    both = [{**row, "float32_matmul_precision": word} for row in targets for word in ("high", "highest")]
    questions = feature_table(pd.DataFrame(both))
    table = feature_table(pd.DataFrame(operator_rows))
    fitted = LayerTimes(trees=False, calibrate=False).fit(table, table["iteration_time_ms"])
    predicted = pd.Series(fitted.predict(questions)).groupby(questions["float32_matmul_precision"]).mean()
    assert predicted["highest"] > 1.01 * predicted["high"]


@pytest.mark.parametrize("method", ["auto", "roofline"])
def test_a_cnn_of_matrix_products_takes_longer_by_default_than_with_tf32_products(method):
    convnext, gpu, model = zoo_cnn("convnext_base"), find_gpu(H200), Model.load()
    default, high = (model.forecast(convnext, gpu, mode, [64], (), method) for mode in (DEFAULT, HIGH))
    assert default.gpu_time_ms[0] > 1.2 * high.gpu_time_ms[0]
    assert default.low_ms[0] < 247 < default.high_ms[0] or method != "auto"  # one run took 247 ms by default
    assert default.host_time_ms[0] == pytest.approx(high.host_time_ms[0], rel=0.1)


def test_the_setting_changes_nothing_in_other_frameworks_and_precisions():
    changes = [{"framework": name} for name in ("tensorflow", "chainer")]
    changes += [{"precision": name} for name in ("fp32", "amp_bf16")]
    assert not any(mode.fp32_products for mode in (HIGH, *(replace(DEFAULT, **change) for change in changes)))
    assert DEFAULT.fp32_products


@each_row
def test_the_option_is_refused_where_it_does_nothing_or_is_medium(word, options, remedy):
    with pytest.raises(SchemaError, match=rf"float32_matmul_precision '{word}' {remedy}"):
        Question("resnet50", H200, 64, float32_matmul_precision=word, **options)


def test_a_gpu_without_tf32_is_refused_and_left_out_of_all():
    with pytest.raises(OutOfRangeError, match=r"Tesla T4 .* has no tf32"):
        epochcast.predict("resnet18", "T4", 64, float32_matmul_precision="highest")
    answers = epochcast.predict("resnet18", "all", 64, float32_matmul_precision="high")
    assert set(answers["precision"]) == {"tf32"}


def test_an_answer_says_what_matrix_products_are_computed_in():
    for word, products in ((None, "in fp32"), ("high", "in tf32, too")):
        answer = epochcast.predict("resnet18", H200, 64, float32_matmul_precision=word)
        assert f"tf32 (matrix products {products})" in answer.attrs["covers"]


@each_row
def test_rows_of_version_1_were_measured_with_both_in_tf32(version, framework, precision, setting):
    row = {"gpu": H200, "cnn": "resnet18", "image_size": 224, "batch_size": 64, "iteration_time_ms": 9.0}
    row |= {"format_version": version, "framework": framework, "precision": precision}
    (row_checked,) = check_measurements(pd.DataFrame([row]), "mine").to_dict("records")
    assert (row_checked["float32_matmul_precision"], row_checked["format_version"]) == (setting, 2)


def test_tensorflows_amp_is_channels_last_unless_told_otherwise():
    question = Question("resnet50", "V100-SXM2-16GB", 64, framework="tensorflow", precision="amp_fp16")
    assert ResolvedQuestion.of(question).devices[0][1].memory_format == "channels_last"
    for change in ({"memory_format": "nchw"}, {"precision": "fp32"}, {"framework": "pytorch"}):
        assert ResolvedQuestion.of(replace(question, **change)).devices[0][1].memory_format == "nchw"
    options = {"framework": "tensorflow", "precision": "amp_fp16"}
    answers = epochcast.predict("resnet50", "V100-SXM2-16GB", 64, **options)
    assert "channels_last" in answers.attrs["covers"]


def test_a_product_that_autocast_leaves_in_float32_is_one_of_fp32_in_amp_alone(torch):
    conv, inside, outside = torch.nn.Conv2d(3, 8, 4, 4), torch.nn.Linear(8, 32), torch.nn.Linear(32, 16)

    def step():
        with torch.autocast("cuda", torch.float16):
            rows = inside(conv(torch.zeros(4, 3, 4, 4)).flatten(1))
        outside(rows.float()).sum().backward()

    table = epochcast.record(step)
    for precision, widens in (("amp_fp16", True), ("fp32", False)):
        running = [as_run(operator, "pytorch", "nchw", precision) for operator in operators_of(table)]
        assert [o.fp32_product for o in running if o.type == "linear"] == [False, widens]


def test_the_parts_of_an_attention_that_no_fused_kernel_reads_are_in_float32(torch):
    queries = torch.nn.Conv2d(3, 8, 1)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            rows = queries(torch.zeros(4, 3, 6, 6)).view(4, 2, 4, 36).mT
            torch.nn.functional.scaled_dot_product_attention(rows, rows, rows).sum().backward()

    layers = [(layer.type, layer.widens) for layer in epochcast.record(step).layers[-6:-1]]
    assert layers == [("matmul", 2), ("activation", None), ("clamp", None), ("clamp", None), ("matmul", 2)]
