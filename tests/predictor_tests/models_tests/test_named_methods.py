"""Methods that a question may name: served as evaluations judge them, refused outside their scope."""

import gzip
import json
import subprocess
import sys
from hashlib import sha256

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row
from grid_rows import grid_rows

import epochcast
from predictor.answers.answer import predict
from predictor.answers.bulk import predict_rows
from predictor.answers.compare import compare
from predictor.answers.explain import explain
from predictor.answers.question import Question
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import ArtifactError, LeftOutWarning, SchemaError
from predictor.files import data_root
from predictor.measurements.features import feature_table
from predictor.measurements.table import read_measurements
from predictor.models.base import MEASURED, UNSEEN
from predictor.models.named import Methods, errors_of, fit_methods
from predictor.models.registry import PREDICTORS, WHOLE_METHODS, estimator_class
from predictor.models.served import Model

SHIPPED = Model.load().named_methods()
RESNET = zoo_cnn("resnet50")
H200, H100, T4, L4 = map(find_gpu, ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "Tesla T4", "L4"))
TF32, CHAINER = Mode(precision="tf32"), Mode("chainer")
RUNS = [
    {"gpu": "H200", "batch_size": size, "iteration_time_ms": ms} for size, ms in ((32, 20.0), (128, 70.0))
]


@pytest.mark.parametrize("name", WHOLE_METHODS)
def test_every_method_can_be_asked_and_its_error_stands_beside_the_default_s(name):
    (row,) = predict("resnet50", "H200", 64, method=name, anchors=RUNS)
    assert (row.method, row.gpu_time_ms, row.host_time_ms) == (name, None, None)
    assert 0 < row.low_ms < row.iteration_time_ms < row.high_ms
    (text,) = [reason.text for reason in row.extrapolates if reason.kind == "method"]
    default_mape = SHIPPED.errors[name][0].default_mape
    assert f"{name} misses" in text
    assert f"(the default by {100 * default_mape:.{1 if default_mape < 0.1 else 0}f} %)" in text


MEASURED_MODES = [(H200, TF32), (H100, TF32), (H200, Mode()), (H200, CHAINER), (H100, CHAINER)]
"""GPUs and modes whose proxies were measured."""


@pytest.mark.parametrize("name", ["gpu-specs", "proxy-times"])
def test_the_founding_approaches_answer_every_cnn_of_the_zoo_where_proxies_were_measured(name):
    more = [(T4, Mode()), (L4, TF32), (T4, CHAINER)] if name == "gpu-specs" else []
    rows = grid_rows(list(map(zoo_cnn, zoo_names())), MEASURED_MODES + more, [1, 64, 1024])
    assert rows.loc[~(SHIPPED.fitted[name].predict(rows) > 0), "cnn"].unique().tolist() == []


@pytest.mark.parametrize("name", ["gpu-specs", "proxy-times", "flops-ratio"])
def test_answering_by_a_method_imports_neither_scikit_learn_nor_scipy(name):
    code = (
        "import sys; from predictor.answers.answer import predict;"
        f"predict('resnet50', 'H200', 64, precision='fp32', method={name!r});"
        "sys.exit(' '.join({'pandas', 'sklearn', 'scipy'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.strip() == ""


@each_row
def test_an_answer_says_what_it_extrapolates(options, kinds):
    question = {"cnn": "resnet50", "gpus": "H200", "batch_sizes": 64, "method": "gpu-specs"} | options
    (row,) = predict(question.pop("cnn"), question.pop("gpus"), question.pop("batch_sizes"), **question)
    assert {str(reason).partition(":")[0] for reason in row.extrapolates} == set(kinds)


def test_an_interval_is_wider_on_a_gpu_that_was_not_fitted():
    widths = SHIPPED.fitted["gpu-specs"].half_widths_
    assert widths[MEASURED] < widths[UNSEEN]
    fitted, unfitted = (predict("resnet50", gpu, 64, method="gpu-specs")[0] for gpu in ("H200", "L4"))
    assert fitted.high_ms / fitted.low_ms < unfitted.high_ms / unfitted.low_ms


def _table(name):
    path = data_root() / "measurements" / f"{name}.csv.gz"
    if not path.is_file():
        pytest.skip("measurements come with a checkout alone")
    return path


def test_proxies_measured_on_another_gpu_carry_every_cnn_over():
    def row_of(slower):
        rows = read_measurements(_table("h200_pytorch_founding_more_proxies"))
        times = {name: slower * rows[name] for name in ("iteration_time_ms", "gpu_time_ms", "host_time_ms")}
        measurements = rows.assign(gpu="NVIDIA A100-SXM4-40GB", **times)
        options = {"method": "proxy-times", "precision": "tf32", "measurements": measurements}
        return predict("resnet152", "A100-SXM4-40GB", 64, **options)[0]

    fast, slow = row_of(1.0), row_of(2.0)
    assert slow.iteration_time_ms == pytest.approx(2 * fast.iteration_time_ms)
    reasons = "; ".join(map(str, slow.extrapolates))
    assert "gpu: proxy-times was fitted on CNNs of other GPUs" in reasons


@pytest.fixture(scope="module")
def refitted_rows():
    names = ("h200_pytorch_founding_more_proxies", "h100_pytorch_founding_more_proxies",
             "h200_pytorch_fine_tf32_targets", "h100_pytorch_founding_rest_cnns")  # fmt: skip
    return pd.concat([read_measurements(_table(name)) for name in names], ignore_index=True)


@pytest.fixture(scope="module")
def refitted(refitted_rows):
    cnns = refitted_rows[refitted_rows["kind"] != "proxy"].reset_index(drop=True)
    return fit_methods(feature_table(cnns), refitted_rows)


def test_methods_can_be_refitted_on_our_own_tables(refitted):
    assert [*refitted.fitted] == ["gpu-specs", "proxy-times"]  # flops-ratio has no other chip to leave out
    assert refitted.fitted["proxy-times"].gpus_ == (H100.name, H200.name)
    assert set(refitted.fitted["gpu-specs"].modes_) == {("pytorch", "tf32", "nchw", "False")}


def test_a_method_is_fitted_by_itself_on_any_table_with_proxies_and_cnns(refitted_rows):
    model = epochcast.fit(refitted_rows, methods=["proxy-times"])
    assert model.named_methods().fitted.keys() == {"proxy-times"}
    options = {"image_size": 32, "precision": "tf32", "method": "proxy-times"}
    own, shipped = (
        epochcast.predict("vgg_cifar", "H100 80GB HBM3", 64, **options, **more)["iteration_time_ms"].iloc[0]
        for more in ({"model": model}, {})
    )
    assert own == pytest.approx(shipped, rel=0.5)


@pytest.fixture(scope="module")
def of_processor():
    """The project's proxies and CNNs of a processor by Chainer: five rows of CNNs."""
    tables = (_table("cpu_chainer_founding_proxies"), _table("cpu_chainer_cnns"))
    return pd.concat([read_measurements(table) for table in tables], ignore_index=True)


def test_a_fit_takes_the_methods_that_have_rows_and_says_how_far_each_is_off(of_processor):
    with pytest.warns(
        LeftOutWarning, match="gpu-specs is not fitted: no row has a CNN .* on a GPU with all spec"
    ):
        model = epochcast.fit(of_processor, methods=["proxy-times", "gpu-specs"])
    methods = model.named_methods()
    assert methods.fitted.keys() == {"proxy-times"}
    [error] = methods.errors["proxy-times"]  # LeNet at batch size 16; the default knows no such processor
    assert (error.scenario, error.n, error.default_mape) == ("scaling-problem", 1, None)
    assert str(error) == f"an unseen batch size by {100 * error.mape:.1f} %"
    asked = {"method": "proxy-times", "framework": "chainer", "image_size": 28, "model": model}
    row = epochcast.predict("lenet5", "cpu:AMD EPYC", 32, **asked).iloc[0]
    assert row["low_ms"] < 15.0 < row["high_ms"]  # 8.5 ms at 16, 27.4 at 64


def test_a_fit_of_methods_without_rows_for_any_is_refused(of_processor):
    with pytest.raises(SchemaError, match="gpu-specs is not fitted: no row has a CNN"):
        epochcast.fit(of_processor, methods=["gpu-specs"])


def test_a_fit_of_methods_reads_the_errors_of_an_evaluation(of_processor, tmp_path):
    numbers = {"n": 7, "mape": 0.25, "median": 0.2, "p90": 0.5, "coverage": 0.9, "worst_coverage": 0.8}
    summary = pd.DataFrame([{"scenario": "scaling-both", "predictor": "proxy-times", **numbers}])
    summary.to_csv(tmp_path / "summary.csv", index=False)
    model = epochcast.fit(of_processor, methods=["proxy-times"], accuracy=tmp_path / "summary.csv")
    assert [str(error) for error in model.named_methods().errors["proxy-times"]] == ["both by 25 %"]


@each_row
def test_auto_takes_the_method_that_is_judged_better_for_what_is_known(changed, method):
    asked = {
        "cnn": "vgg_cifar",
        "gpus": "H200",
        "batch_sizes": [100],
        "framework": "chainer",
        "precision": "fp32",
    }
    question = asked | {"image_size": 32} | changed
    if "measurements" in question:
        tables = [
            read_measurements(_table(f"h200_chainer_study_{name}")) for name in question["measurements"]
        ]
        question["measurements"] = pd.concat(tables, ignore_index=True)
    answer = predict(question.pop("cnn"), question.pop("gpus"), question.pop("batch_sizes"), **question)[0]
    assert answer.method == method
    assert answer.gpu_time_ms > 0  # split as the default splits it


def test_methods_lie_beside_their_model_as_json(refitted, tmp_path):
    read = Methods.beside(tmp_path / "mine.json", refitted.save(tmp_path / "mine.json"))()
    question = RESNET, [(H200, TF32)], np.array([64.0]), []
    for name in refitted.fitted:
        saved, loaded = (methods.forecasts(name, *question)[0] for methods in (refitted, read))
        assert saved.iteration_time_ms == pytest.approx(loaded.iteration_time_ms, rel=1e-12)
        assert saved.high_ms == pytest.approx(loaded.high_ms, rel=1e-12)


def test_a_damaged_file_of_methods_is_refused(tmp_path):
    without_fields = json.dumps({"format_version": 4, "errors": {}, "fitted": {"gpu-specs": {}}}).encode()
    for content in (b"no gzip", b"", gzip.compress(without_fields)):
        (tmp_path / "mine_methods.json.gz").write_bytes(content)
        with pytest.raises(ArtifactError, match="holds damaged methods"):
            Methods.beside(tmp_path / "mine.json", sha256(content).hexdigest())()


def test_errors_are_read_beside_those_of_the_default():
    scenarios, predictors = ["problem-scaling"] * 2 + ["unseen-cnn"], ["gpu-specs", "roofline", "gpu-specs"]
    table = pd.DataFrame({"scenario": scenarios, "predictor": predictors, "mape": [7.0, 0.06, 9.0], "n": 5})
    table = table.assign(p90=2 * table["mape"])
    # as from a card and its evaluation
    error, alone = errors_of([table, table], Methods()).errors["gpu-specs"]
    assert (alone.scenario, alone.default_mape) == ("unseen-cnn", None)  # which the default did not answer
    assert (error.scenario, error.mape, error.default_mape) == ("problem-scaling", 7.0, 0.06)


def test_bulk_rows_are_answered_or_refused_one_by_one(tmp_path):
    (tmp_path / "rows.csv").write_text("cnn,gpu,batch_size\nresnet50,H200,64\nresnet50,A10G,64\n")
    failed = predict_rows(tmp_path / "rows.csv", tmp_path / "out.csv", method="proxy-times")
    first, second = pd.read_csv(tmp_path / "out.csv").to_dict("records")
    (row,) = predict("resnet50", "H200", 64, method="proxy-times")
    assert (first["iteration_time_ms"], first["method"]) == (row.iteration_time_ms, "proxy-times")
    assert np.isnan(first["gpu_time_ms"])
    assert (failed, "in this mode they were measured on NVIDIA H100" in second["error"]) == (1, True)


def test_a_comparison_ranks_gpus_that_the_method_answers():
    gpus = ["H200", "H100 80GB HBM3"]
    options = {"data_set": "imagenet", "method": "proxy-times", "loader": "dali"}
    rows = compare(Question("resnet50", gpus, 64, **options)).rows
    assert {row.bottleneck for row in rows} <= {"unknown", "loading"}
    assert {(row.method, row.gpus_used, row.fast_precision) for row in rows} == {("proxy-times", 1, None)}


def test_an_explanation_holds_the_summands_of_the_law():
    question = Question("vgg_cifar", "H200", [64], method="gpu-specs")
    [explained], scope = explain(question)
    assert {"iteration|pytorch", "layers|pytorch", "flops", "issue|32_64_64"} <= explained.classes.keys()
    for term in explained.terms:
        assert term.ms == explained.classes[term.name]
        assert term.ms == pytest.approx([term.coefficient * value for value in term.feature])
    assert sum(ms for (ms,) in explained.classes.values()) == pytest.approx(explained.iteration_time_ms[0])
    assert (explained.bound, explained.rung_ms, explained.other_modes) == (("unknown",), {}, ())
    assert "Method: gpu-specs, fitted on " in scope


def test_every_registered_predictor_but_baselines_is_a_method():
    baselines = {"line", "interpolation"}
    assert {*WHOLE_METHODS, "layer-times", "roofline", "anchored"} == set(PREDICTORS) - baselines
    assert all(hasattr(estimator_class(name), "parts") for name in WHOLE_METHODS)


def test_coefficients_of_a_cnn_measured_on_a_cpu_do_not_answer_for_a_gpu():
    (row,) = predict("resnet18_cifar", "H200", 128, method="proxy-times", precision="fp32")
    assert row.iteration_time_ms < 50  # measured: 17.3 ms; by the CPU's coefficients 3,032
