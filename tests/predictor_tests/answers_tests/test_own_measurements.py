"""A user's own measurement table answers at once: `predict(..., measurements=...)`."""

from dataclasses import replace

import pandas as pd
import pytest
from case_tables import each_row

from predictor.answers.answer import predict
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError, OutOfRangeError, SchemaError
from predictor.measurements.table import write_measurements
from predictor.models.layer_times.files import LayerModels
from predictor.models.served import Model
from predictor.operators.operators import operators_of

SIZES = (16, 64, 256)
A100 = "NVIDIA A100-SXM4-40GB"  # nobody shipped its operators


def _predict(cnn, table, **options):
    return predict(cnn, A100, [64], precision="tf32", measurements=table, **options)[0]


@pytest.fixture(scope="module")
def operators(made_up_gpu):
    rows = made_up_gpu.operator_rows(operators_of(zoo_cnn("resnet18")), SIZES, gpu=A100)
    return pd.DataFrame(rows)


@pytest.fixture(scope="module")
def with_target(operators, made_up_gpu):
    rows = [row | {"gpu": A100} for row in made_up_gpu.target_rows(["resnet18"], [64], {"batch_norm": 1.5})]
    return pd.concat([operators, pd.DataFrame(rows)], ignore_index=True)


@pytest.fixture(scope="module")
def nobodys():
    """The shipped model without measured layers, so that no weights can be borrowed."""
    return replace(Model.load(), layers=LayerModels())


def test_operators_answer_without_a_fit_from_a_file_as_from_a_table(
    operators, made_up_gpu, nobodys, tmp_path
):
    write_measurements(operators, tmp_path / "mine.csv.gz")
    assert _predict("resnet18", tmp_path / "mine.csv.gz") == _predict("resnet18", operators)
    row = _predict("resnet18", operators, model=nobodys)
    assert row.method == "layer-times"
    assert row.gpu_time_ms == pytest.approx(made_up_gpu.target_ms(zoo_cnn("resnet18"), [64], {})[0], rel=1e-6)


def test_a_gpu_without_measured_cnns_borrows_the_weights_of_another(operators, nobodys):
    borrowing, plain = (_predict("resnet18", operators, model=variant) for variant in (Model.load(), nobodys))
    assert "weights of NVIDIA H200" in borrowing.trained_on
    assert "weights of 1" in plain.trained_on
    assert borrowing.gpu_time_ms == pytest.approx(plain.gpu_time_ms, rel=0.1)
    assert borrowing.gpu_time_ms != plain.gpu_time_ms


@each_row
def test_a_target_of_the_same_cnn_is_an_anchor(with_target, kinds, capture, method, column):
    table = with_target if "operators" in kinds else with_target[with_target["kind"] == "target"]
    row = _predict("resnet18", table, capture=capture)
    assert row.method == method
    assert row.iteration_time_ms == pytest.approx(float(table[column].iloc[-1]), rel=0.01)


@each_row
def test_a_target_of_another_mode_size_or_of_several_gpus_is_no_anchor(with_target, columns, options):
    table = with_target.assign(n_gpus=1)
    table.loc[table.index[-1], list(columns)] = list(columns.values())
    assert _predict("resnet18", table, **options).method == "layer-times"


def test_disturbed_and_imprecise_measurements_widen_the_interval(operators):
    def factor(**columns):
        row = _predict("resnet18", operators.assign(**columns))
        return row.gpu_high_ms / row.gpu_low_ms

    noted = operators.assign(notes="disturbed: other processes used 51 % of the processors")
    n = len(operators)
    assert f"{n} of {n} measurements were disturbed" in _predict("resnet18", noted).trained_on
    assert "disturbed" not in _predict("resnet18", operators).trained_on
    # the model stays as it was
    assert predict("resnet18", A100, [64], precision="tf32")[0].method == "roofline"
    quiet, precise = factor(), factor(median_precision=0.02)
    assert quiet == precise
    assert factor(median_precision=0.4) > factor(disturbed=True) > 1.3 * quiet


def test_proxies_alone_a_missing_file_or_a_wrong_table_are_refused(with_target, tmp_path):
    proxies = with_target.tail(1).assign(kind="proxy", cnn="16_128_128")
    for table, error, words in (
        (proxies, DataError, "only proxies, neither operators nor"),
        (tmp_path / "none.csv", DataError, "no measurement table"),
        (pd.DataFrame({"gpu": ["T4"]}), SchemaError, "lacks the column"),
    ):
        with pytest.raises(error, match=words):
            _predict("resnet18", table)


CPU = "cpu:Xeon"


@pytest.fixture(scope="module")
def on_cpu(made_up_gpu):
    rows = made_up_gpu.operator_rows(operators_of(zoo_cnn("lenet5")), SIZES, gpu=CPU, precision="fp32")
    target = made_up_gpu.target_rows(["lenet5"], [64])[0] | {"gpu": CPU, "precision": "fp32"}
    return pd.DataFrame(rows).drop(columns=["gpu_time_ms", "host_time_ms"]), pd.DataFrame([target])


def test_a_cpu_is_answered_from_its_operators_and_a_run_on_it_is_an_anchor(on_cpu, made_up_gpu):
    row = predict("lenet5", CPU, [64], measurements=on_cpu[0])[0]
    [expected_ms] = made_up_gpu.target_ms(zoo_cnn("lenet5"), [64], {})
    assert (row.method, row.gpu, row.host_time_ms) == ("layer-times", CPU, 0.0)
    assert row.iteration_time_ms == pytest.approx(expected_ms, rel=1e-6)
    row = predict("lenet5", CPU, [64], measurements=pd.concat(on_cpu, ignore_index=True))[0]
    assert row.method == "layer-times, anchored"
    assert row.iteration_time_ms == pytest.approx(float(on_cpu[1]["iteration_time_ms"].iloc[0]), rel=0.01)
    for method in ("auto", "roofline", "layer-times"):
        with pytest.raises(OutOfRangeError, match="cpu:Xeon is predicted from operators measured on it"):
            predict("lenet5", CPU, [64], method=method)


def test_measurements_in_another_precision_than_the_answers_are_said_to_be_unused(operators):
    in_fp32 = operators.assign(precision="fp32")
    (row,) = predict("resnet18", A100, 64, measurements=in_fp32)
    assert (row.precision, row.method) == ("tf32", "roofline")
    assert f"measurements: yours on {A100} are not used" in "; ".join(map(str, row.extrapolates))
    (row,) = predict("resnet18", A100, 64, measurements=in_fp32, precision="fp32")
    assert "measurements" not in {reason.kind for reason in row.extrapolates}


def test_a_compiled_cnn_is_an_anchor_of_compiled_questions_alone(with_target):
    compiled = with_target.assign(capture="eager")
    compiled.loc[compiled.index[-1], "capture"] = "compile"
    measured = float(compiled["iteration_time_ms"].iloc[-1])
    answered = {how: _predict("resnet18", compiled, capture=how) for how in ("eager", "graph", "compile")}
    assert answered["compile"].iteration_time_ms == pytest.approx(measured, rel=0.01)
    assert answered["eager"].method == answered["graph"].method == "layer-times"
    assert "anchored" not in _predict("resnet18", with_target, capture="compile").method
