"""Methods that a question may name: served from JSON as their estimators predict, refused outside their range."""

import json
from dataclasses import replace
from hashlib import sha256

import numpy as np
import pandas as pd
import pytest

from predictor.answers.bulk import predict_rows
from predictor.answers.compare import compare
from predictor.answers.explain import explain
from predictor.answers.predict import predict
from predictor.answers.question import Question
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import PROXY_TIME_PREFIX
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import ArtifactError, DataError, OutOfRangeError, SchemaError
from predictor.files import data_root
from predictor.measurements.features import grid_rows
from predictor.measurements.table import read_measurements
from predictor.models.forecast import Anchor
from predictor.models.methods.files import UNSEEN, Methods
from predictor.models.methods.fit import errors_of, fit_methods
from predictor.models.methods.served import forecast_by_method
from predictor.models.per_epoch import IterationFromEpoch
from predictor.models.registry import PREDICTORS, WHOLE_METHODS, estimator_class, new_predictor
from predictor.models.served import Model

SHIPPED = Model.load().named_methods()
RESNET = zoo_cnn("resnet50")
H200, H100, T4 = map(find_gpu, ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "Tesla T4"))
TF32 = Mode(precision="tf32")
RUNS = [
    {"gpu": "H200", "batch_size": size, "iteration_time_ms": ms} for size, ms in ((32, 20.0), (128, 70.0))
]


def _estimator(fitted):
    """The scikit-learn estimator of what a method learned, as evaluations fit it."""
    kind = estimator_class(fitted.name)
    if kind.answer == "epoch_time_s":
        return IterationFromEpoch.from_json(fitted.learned, kind)
    return kind.from_json(fitted.learned)


@pytest.mark.parametrize("name", WHOLE_METHODS)
def test_every_method_can_be_asked(name):
    (row,) = predict("resnet50", "H200", 64, method=name, anchors=RUNS)
    assert (row.method, row.gpu_time_ms, row.host_time_ms) == (name, None, None)
    assert 0 < row.low_ms < row.iteration_time_ms < row.high_ms


@pytest.mark.parametrize("name", WHOLE_METHODS)
def test_the_error_of_an_evaluation_stands_beside_the_default_s(name):
    (row,) = predict("resnet50", "H200", 64, method=name, anchors=RUNS)
    (told,) = [reason.text for reason in row.extrapolates if reason.kind == "method"]
    (error, *_) = SHIPPED.errors[name]
    assert f"{name} misses" in told
    assert f"(the default by {100 * error.default_mape:.{1 if error.default_mape < 0.1 else 0}f} %)" in told


@pytest.mark.parametrize("name", ["gpu-specs", "gpu-specs-relative"])
def test_what_is_served_is_what_the_estimator_predicts_from_specifications(name):
    fitted = next(each for each in SHIPPED.fitted[name] if each.is_of(TF32))
    (found,) = forecast_by_method(SHIPPED, name, RESNET, [(H200, TF32)], np.array([32.0, 64.0]), [])
    expected = _estimator(fitted).predict(grid_rows([RESNET], [(H200, TF32)], [32, 64]))
    np.testing.assert_allclose(found.iteration_time_ms, expected, rtol=1e-9)


@pytest.mark.parametrize("name", ["proxy-times", "proxy-times-relative"])
def test_what_is_served_is_what_the_estimator_predicts_from_proxies(name):
    (fitted,) = SHIPPED.fitted[name]
    times = SHIPPED.proxy_times(fitted.law.proxies, TF32, H100.name)
    (found,) = forecast_by_method(SHIPPED, name, RESNET, [(H100, TF32)], np.array([16.0, 64.0]), [])
    rows = grid_rows([RESNET], [(H100, TF32)], [16, 64])
    rows = rows.assign(**{PROXY_TIME_PREFIX + p: [times[16][p], times[64][p]] for p in fitted.law.proxies})
    np.testing.assert_allclose(found.iteration_time_ms, _estimator(fitted).predict(rows), rtol=1e-9)


@pytest.mark.parametrize("gpu", [H200, T4])
@pytest.mark.parametrize(
    "runs",
    [
        [],
        [Anchor(H200.name, 64, 30.0)],
        [Anchor(H200.name, 32, 16.0), Anchor(H100.name, 64, 35.0), Anchor(H100.name, 16, 9.0)],
    ],
)
def test_what_is_served_is_what_the_estimator_predicts_from_flops(gpu, runs):
    (fitted,), mode = SHIPPED.fitted["flops-ratio"], Mode()
    (found,) = forecast_by_method(SHIPPED, "flops-ratio", RESNET, [(gpu, mode)], np.array([64.0]), runs)
    known = [grid_rows([RESNET], [(find_gpu(each.gpu), mode)], [each.batch_size]) for each in runs]
    anchors = (pd.concat(known), [each.iteration_time_ms for each in runs]) if runs else None
    expected = _estimator(fitted).predict(grid_rows([RESNET], [(gpu, mode)], [64]), anchors=anchors)
    np.testing.assert_allclose(found.iteration_time_ms, expected, rtol=1e-12)


@pytest.mark.parametrize("name", ["line", "interpolation"])
def test_what_is_served_is_what_the_estimator_predicts_from_own_runs(name):
    runs = [Anchor(H200.name, size, ms) for size, ms in ((16, 12.0), (64, 30.0), (128, 70.0))]
    sizes = np.array([32.0, 100.0])
    (found,) = forecast_by_method(Methods(), name, RESNET, [(H200, TF32)], sizes, runs)
    known = grid_rows([RESNET], [(H200, TF32)], [each.batch_size for each in runs])
    estimator = new_predictor(name).fit(known, [each.iteration_time_ms for each in runs])
    expected = estimator.predict(grid_rows([RESNET], [(H200, TF32)], [32, 100]))
    np.testing.assert_allclose(found.iteration_time_ms, expected, rtol=1e-12)


REFUSALS = (
    ({"method": "gpu-specs", "gpus": "T4"}, "was tested only on"),
    ({"method": "gpu-specs", "gpus": "B200"}, "NVIDIA B200 is unlike the GPUs that gpu-specs was fitted on: its"),
    ({"method": "gpu-specs", "framework": "tensorflow", "cnn": "vgg16", "image_size": 32, "gpus": "T4"},
     "which is not a time: it adds up GPU, CNN and batch size"),
    ({"method": "gpu-specs", "cnn": "alexnet", "image_size": 96}, "convolution shapes without a column"),
    ({"method": "gpu-specs", "batch_sizes": 4096}, "batch_size 4096 lies outside 16..720"),
    ({"method": "gpu-specs", "framework": "chainer"}, "gpu-specs was not fitted in chainer, fp32, nchw; fitted: "),
    ({"method": "gpu-specs", "capture": "graph"}, "was fitted on eager iterations, asked for capture graph"),
    ({"method": "proxy-times", "gpus": "A10G"}, "they were on NVIDIA H100 80GB HBM3, NVIDIA H200. Measure them"),
    ({"method": "proxy-times", "batch_sizes": 100}, "were not measured at batch_size 100 on NVIDIA H200, but at 1, 2"),
    ({"method": "proxy-times", "cnn": "resnet152"}, "has no law for resnet152 at image size 224; it has "),
    ({"method": "proxy-times", "precision": "fp32"}, "proxy-times was not fitted in pytorch, fp32, nchw"),
    ({"method": "line"}, "line needs runs of resnet50 on NVIDIA H200 at two batch sizes, got none. Give two"),
    ({"method": "line", "anchors": RUNS, "batch_sizes": 256}, "batch_size 256 lies outside 32..128"),
)  # fmt: skip


@pytest.mark.parametrize(("asked", "why"), REFUSALS)
def test_a_method_refuses_what_lies_outside_its_range_and_says_why(asked, why):
    question = {"cnn": "resnet50", "gpus": "H200", "batch_sizes": 64} | asked
    cnn, gpus, sizes = (question.pop(name) for name in ("cnn", "gpus", "batch_sizes"))
    with pytest.raises(OutOfRangeError) as refused:
        predict(cnn, gpus, sizes, **question)
    assert why in str(refused.value)


def test_a_gpu_that_the_fitted_ones_do_not_determine_is_refused():
    fitted = next(each for each in SHIPPED.fitted["gpu-specs"] if each.is_of(Mode("tensorflow")))
    few = replace(fitted, gpus=("Tesla K80", "Tesla V100-SXM2-16GB", "Tesla T4", "Tesla M60"))
    methods = Methods({"gpu-specs": (few,)})
    with pytest.raises(OutOfRangeError, match="4 GPUs do not determine its 5 coefficients of specifications"):
        forecast_by_method(
            methods,
            "gpu-specs",
            RESNET,
            [(find_gpu("Tesla P100-PCIE-16GB"), Mode("tensorflow"))],
            np.ones(1) * 64,
            [],
        )


def test_several_gpus_are_refused_with_the_method_s_name():
    with pytest.raises(
        SchemaError, match="method 'gpu-specs' predicts an iteration on one GPU, and n_gpus is 2"
    ):
        predict("resnet50", "H200", 64, method="gpu-specs", n_gpus=2)


def _proxy_rows(gpu, proxies, sizes, slower=1.0):
    """Proxies measured on a GPU, `slower` times as long as on the H200."""
    known = SHIPPED.proxy_times(proxies, TF32, H200.name)
    return [
        {
            "gpu": gpu, "cnn": proxy, "kind": "proxy", "image_size": 32, "batch_size": size, "precision": "tf32",
            "framework": "pytorch", "memory_format": "nchw", "pass": "training",
            "iteration_time_ms": slower * 1000 * known[size][proxy] / np.ceil(50_000 / size),
        }
        for proxy in proxies
        for size in sizes
    ]  # fmt: skip


def test_proxies_measured_on_another_gpu_carry_its_cnns_over():
    (fitted,) = SHIPPED.fitted["proxy-times"]
    table = pd.DataFrame(_proxy_rows("NVIDIA A100-SXM4-40GB", fitted.law.proxies, (64,), slower=2.0))
    asked = {"method": "proxy-times", "precision": "tf32"}
    (there,) = predict("resnet50", "A100-SXM4-40GB", 64, measurements=table, **asked)
    (here,) = predict("resnet50", "H200", 64, **asked)
    parts = fitted.law.laws["resnet50", 224]
    added = parts.slopes[1:] @ [
        SHIPPED.proxy_times(fitted.law.proxies, TF32, H200.name)[64][p] for p in fitted.law.proxies
    ]
    iterations = np.ceil(50_000 / 64)
    assert there.iteration_time_ms == pytest.approx(here.iteration_time_ms + 1000 * added / iterations)
    assert any(
        str(reason).startswith("gpu: proxy-times was not fitted on it") for reason in there.extrapolates
    )


@pytest.fixture(scope="module")
def own_tables():
    """Proxies and CNNs of two GPUs, from our own tables."""
    names = ("h200_pytorch_founding_proxies", "h200_pytorch_fine_tf32_targets", "h200_pytorch_profiled_targets",
             "h100_pytorch_founding_proxies", "h100_pytorch_founding_cnns", "h200_pytorch_founding_more_proxies",
             "h100_pytorch_founding_more_proxies", "h100_pytorch_founding_more_cnns",
             "h200_pytorch_founding_rest_proxies", "h100_pytorch_founding_rest_cnns")  # fmt: skip
    folder = data_root() / "measurements"
    if not folder.is_dir():
        pytest.skip("measurements come with a checkout alone")
    rows = pd.concat([read_measurements(folder / f"{name}.csv.gz") for name in names], ignore_index=True)
    chosen = SHIPPED.fitted["proxy-times"][0].law.proxies
    others = rows["kind"].eq("proxy") & ~rows["cnn"].isin([*chosen, "32_3_64"])  # one to choose against
    return rows[rows["precision"].eq("tf32") & ~others].reset_index(drop=True)


@pytest.fixture(scope="module")
def refitted(own_tables):
    from predictor.measurements.features import feature_table

    return fit_methods(feature_table(own_tables), own_tables)


def test_methods_can_be_refitted_on_our_own_tables(refitted):
    (proxies,) = refitted.fitted["proxy-times"]
    assert proxies.gpus == (H200.name,)
    assert proxies.law.proxies == SHIPPED.fitted["proxy-times"][0].law.proxies
    assert UNSEEN in proxies.half_widths  # from the CNNs of the second GPU
    (specs,) = refitted.fitted["gpu-specs"]
    assert set(specs.gpus) == {H200.name, H100.name}
    assert "flops-ratio" not in refitted.fitted  # one chip: no other could be left out


def test_methods_lie_beside_their_model_as_json(refitted, tmp_path):
    read = Methods.beside(tmp_path / "mine.json", refitted.save(tmp_path / "mine.json"))()
    for asked in ("gpu-specs", "gpu-specs-relative", "proxy-times"):
        one, two = (
            forecast_by_method(each, asked, RESNET, [(H200, TF32)], np.array([64.0]), [])[0]
            for each in (refitted, read)
        )
        assert one.iteration_time_ms.tolist() == two.iteration_time_ms.tolist()


def test_a_model_without_methods_says_that_none_was_fitted():
    with pytest.raises(
        OutOfRangeError, match="gpu-specs was not fitted in pytorch, tf32, nchw; fitted: in no mode"
    ):
        forecast_by_method(Methods(), "gpu-specs", RESNET, [(H200, TF32)], np.array([64.0]), [])


@pytest.mark.parametrize("content", [b"no gzip", b""])
def test_a_damaged_file_of_methods_is_refused(tmp_path, content):
    (tmp_path / "mine_methods.json.gz").write_bytes(content)
    with pytest.raises(ArtifactError, match="holds damaged methods"):
        Methods.beside(tmp_path / "mine.json", sha256(content).hexdigest())()


def test_errors_are_read_beside_those_of_the_default():
    rows = [
        ("problem-scaling", "gpu-specs", 7.0),
        ("problem-scaling", "roofline", 0.06),
        ("unseen-cnn", "gpu-specs", 9.0),
    ]
    table = pd.DataFrame(
        [{"scenario": s, "predictor": p, "n": 5, "mape": m, "p90": 2 * m} for s, p, m in rows]
    )
    found = errors_of([table, table], Methods()).errors  # as from a card and its evaluation
    assert [(each.scenario, each.mape, each.default_mape) for each in found["gpu-specs"]] == [
        ("problem-scaling", 7.0, 0.06)
    ]


def test_no_table_without_operators_proxies_and_cnns_is_taken():
    row = {
        "gpu": "T4",
        "cnn": "resnet50",
        "image_size": 224,
        "batch_size": 8,
        "precision": "fp32",
        "iteration_time_ms": 9.0,
    }
    table = pd.DataFrame([row | {"kind": "target", "pass": "forward"}])
    with pytest.raises(DataError, match="neither operators nor proxies nor trained CNNs"):
        predict("resnet50", "T4", 8, measurements=table)


def test_bulk_rows_are_answered_or_refused_one_by_one(tmp_path):
    (tmp_path / "rows.csv").write_text("cnn,gpu,batch_size\nresnet50,H200,64\nresnet50,A10G,64\n")
    failed = predict_rows(tmp_path / "rows.csv", tmp_path / "out.csv", method="proxy-times")
    first, second = pd.read_csv(tmp_path / "out.csv").to_dict("records")
    (row,) = predict("resnet50", "H200", 64, method="proxy-times")
    assert (first["iteration_time_ms"], first["method"]) == (row.iteration_time_ms, "proxy-times")
    assert np.isnan(first["gpu_time_ms"])
    assert (failed, "they were on NVIDIA H100" in second["error"]) == (1, True)


def test_a_comparison_ranks_gpus_that_the_method_answers():
    gpus = ["H200", "H100 80GB HBM3"]
    found = compare(Question("resnet50", gpus, 64, data_set="imagenet", method="proxy-times", loader="dali"))
    assert {row.bottleneck for row in found.rows} <= {"unknown", "loading"}
    assert {(row.method, row.gpus_used, row.fast_precision) for row in found.rows} == {
        ("proxy-times", 1, None)
    }


def test_an_explanation_holds_the_summands_of_the_law():
    question = Question("resnet50", "H200", [64], method="gpu-specs-relative")
    [found], scope = explain(question)
    assert list(found.classes) == ["constant", "batch_size", "gpu_specifications", "convolution_counts"]
    assert sum(ms for (ms,) in found.classes.values()) == pytest.approx(found.iteration_time_ms[0])
    assert (found.bound, found.rung_ms, found.other_modes) == (("unknown",), {}, ())
    assert "Method: gpu-specs-relative, fitted on 89 iterations" in scope


def test_every_registered_predictor_is_a_method():
    assert {*WHOLE_METHODS, "layer-times", "roofline", "anchored"} == set(PREDICTORS)
    assert json.dumps(sorted(SHIPPED.fitted)) == json.dumps(
        ["flops-ratio", "gpu-specs", "gpu-specs-relative", "proxy-times", "proxy-times-relative"]
    )
