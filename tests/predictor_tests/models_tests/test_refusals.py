"""What the predictors refuse: the call, the error, and words of its message that say what is wrong or to be done."""

# ruff: noqa: E501 - a row of the table is a line

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import epochcast
from predictor.answers.answer import predict
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import ArtifactError, DataError, OutOfRangeError, SchemaError
from predictor.measurements.hosts import HostMeasurement, HostTime
from predictor.measurements.table import check_measurements
from predictor.models.base import Case, new_predictor
from predictor.models.baselines import FlopsRatio, Line
from predictor.models.compiled import check_compiles
from predictor.models.epochs import fit_epoch_overhead
from predictor.models.fit import accuracy_of, fit_measurements
from predictor.models.forecast import Anchor
from predictor.models.founding import GpuSpecs, ProxyTimes
from predictor.models.intervals import Calibration, Shares
from predictor.models.layer_times.estimator import LayerTimes
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.times import DeviceMode
from predictor.models.named import Methods
from predictor.models.roofline.arrays import arrays_on
from predictor.models.served import Model
from predictor.operators.operators import Operator, operators_of

H200, T4 = find_gpu("H200"), find_gpu("T4")
TF32 = Mode(precision="tf32")
LIBRARY_MODE = DeviceMode("NVIDIA H200", "pytorch", "tf32")
RESNET18 = tuple(operators_of(zoo_cnn("resnet18")))
CHAINER_HOST = HostMeasurement("a desk", (HostTime("chainer", "gpu", "fp32", "nchw", "resnet18", 32, 5.0),))


def forecast(cnn="resnet50", gpu="T4", mode=Mode(), anchors=(), **options):  # noqa: B008 - frozen
    return Model.load().forecast(zoo_cnn(cnn), find_gpu(gpu), mode, [64], anchors, **options)


def ask(gpu="NVIDIA H200", **options):
    return predict("resnet50", gpu, 64, **options)


def fit(estimator, rows):
    return estimator.fit(rows, rows["iteration_time_ms"])


def case_on(gpu="T4", mode=Mode()):  # noqa: B008 - frozen
    return Case("resnet50", 224, zoo_cnn("resnet50"), find_gpu(gpu), mode, np.array([64.0]))


def iterations(**columns):
    """Measured iterations of ResNet-18 on two GPUs, with other values in some columns."""
    row = {"cnn": "resnet18", "image_size": 224, "precision": "fp32", "iteration_time_ms": 900.0}
    rows = [row | {"gpu": gpu, "batch_size": size} for gpu in ("T4", "K80") for size in (16, 32, 64)]
    return check_measurements(pd.DataFrame(rows).assign(**columns), "made up")


@pytest.fixture(scope="module")
def made(features, features_with_proxies, made_up_gpu, tmp_path_factory):
    """Tables and fitted predictors that the calls take, and files of a folder by name."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "bracket.json").write_text("{")
    (folder / "table.csv").write_text("a,b\n1,2\n")
    is_proxy = features_with_proxies["kind"] == "proxy"
    return SimpleNamespace(
        folder=folder,
        features=features,
        proxies=features_with_proxies[is_proxy],
        gpu=made_up_gpu,
        library=made_up_gpu.library_of(LIBRARY_MODE, made_up_gpu.operator_rows(RESNET18, (8, 32))),
        specs=fit(GpuSpecs(), features_with_proxies),
        ratio=fit(FlopsRatio(), features),
        ratio_without_deep=fit(FlopsRatio(), features[features["cnn"] != "deep"]),
        line=fit(Line(), features[features["batch_size"] == 16]),
        by_proxies=fit(ProxyTimes(), features_with_proxies[features_with_proxies["gpu"] != "Tesla T4"]),
    )


def on(rows, gpu, **columns):
    return rows[rows["gpu"] == gpu].assign(**columns)


REFUSALS = [
    # A model's files and questions.
    (lambda m: Model.load(m.folder / "none.json"), ArtifactError, "cannot read the model"),
    (lambda m: Model.load(m.folder / "bracket.json"), ArtifactError, "it is not JSON"),
    (lambda _: forecast(method="oracle"), SchemaError, "no method is called 'oracle'"),
    (lambda _: forecast(method="anchored"), OutOfRangeError, "'anchored' needs a measurement"),
    (lambda _: forecast(host="g4dn.7xlarge"), OutOfRangeError, r"host 'g4dn\.7xlarge' is not known.*'g4dn\..*hosts list"),
    (lambda _: forecast(gpu="K80", mode=TF32), OutOfRangeError, "has no tf32"),
    (lambda _: forecast(anchors=[Anchor("T4", 64, 500.0, 128)]), OutOfRangeError, "image size 128 is not the question's 224"),
    (lambda _: forecast(gpu="H200", mode=TF32, anchors=[Anchor("H200", 64, 9.0, 32)]), OutOfRangeError, "image size 32"),
    (lambda _: forecast(gpu="H200", mode=TF32, host=CHAINER_HOST), OutOfRangeError, "not measured with pytorch and a GPU"),
    (lambda _: forecast(method="layer-times"), OutOfRangeError, "on Tesla T4 .*nvidia_h200-pytorch-tf32"),
    (lambda _: arrays_on("tpu"), SchemaError, "'tpu'.*cpu, cuda"),
    # Chainer and torch.compile.
    *(
        (lambda _, mode=mode: forecast(gpu="H200", mode=Mode(**{"framework": "chainer"} | mode)), OutOfRangeError, f"It has: {words}. Pass one")
        for mode, words in (
            ({"precision": "amp_bf16"}, "fp32, tf32, fp16, amp_fp16"),
            ({"memory_format": "channels_last"}, "nchw"),
            ({"capture": "graph"}, "eager, static_graph"),
            ({"capture": "compile"}, "eager, static_graph"),
        )
    ),
    (lambda _: check_compiles(H200, Mode("tensorflow", capture="compile_graph")), OutOfRangeError, "capture compile_graph is PyTorch's"),
    # Methods that a question names.
    (lambda _: new_predictor("gpu-spec"), SchemaError, r"no predictor is called 'gpu-spec'\. Nearest: 'gpu-specs'"),
    (lambda _: Methods().forecasts("gpu-specs", zoo_cnn("resnet50"), [(H200, TF32)], np.ones(1), []), OutOfRangeError, "gpu-specs was not fitted .*in no mode"),
    (lambda _: epochcast.fit(iterations(), methods=["proxy-time"]), SchemaError, r"is called 'proxy-time'\. Nearest: 'proxy-times'"),
    (lambda _: ask("T4", measurements=iterations(**{"pass": "forward"})), DataError, "neither operators nor proxies nor trained CNNs"),
    # Estimators.
    (lambda m: m.specs.scope(case_on(mode=Mode("chainer"))), OutOfRangeError, "in chainer, .*fitted: pytorch, fp32, nchw"),
    (lambda m: m.specs.parts(replace(case_on(), gpu=replace(T4, boost_clock_ghz=np.nan))), OutOfRangeError, "no data sheet gives boost_clock_ghz of Tesla T4"),
    (lambda m: fit(GpuSpecs(), m.features.assign(layer_table=None)), SchemaError, "no row has a CNN with known layers"),
    (lambda m: m.ratio.predict(on(m.features, "Tesla M60", precision="tf32")), OutOfRangeError, "Tesla M60 has no peak rate in tf32"),
    (lambda m: m.ratio.predict(on(m.features, "NVIDIA H200", precision="tf32")), OutOfRangeError, "not timed in tf32"),
    (lambda m: m.ratio_without_deep.predict(m.features[m.features["cnn"] == "deep"].assign(layer_table=None)), OutOfRangeError, "deep at image size 32 was not timed in fp32"),
    (lambda m: m.line.predict(m.features), OutOfRangeError, "no two batch sizes of narrow at image size 32 on Tesla K80"),
    (lambda m: m.by_proxies.scope(case_on("T4")), OutOfRangeError, "measured on Tesla T4 .*were measured on GeForce RTX 3090"),
    (lambda m: fit(ProxyTimes(), m.features), SchemaError, "no proxy's time"),
    (lambda m: fit(ProxyTimes(), m.proxies), SchemaError, "no CNN of known layers was measured beside the proxies"),
    (lambda m: fit(LayerTimes(), m.features), SchemaError, "needs single layers"),
    (lambda m: fit(LayerTimes(answers="epochs"), m.features), SchemaError, "answers 'epochs' is unknown"),
    # Libraries, intervals, epochs.
    (lambda m: m.library.times([Operator("conv2d")], np.ones(1)), SchemaError, "in_channels"),
    (lambda _: OperatorLibrary.of_times(LIBRARY_MODE, [], np.empty((0, 3)), ()), SchemaError, "no operators of"),
    (lambda _: Calibration(("Tesla T4",), ("a",)).half_widths([T4], [False], Shares(*np.zeros((5, 1))), 0.9), OutOfRangeError, r"has one CNN \(a\) on one chip \(Tesla T4\)"),
    (lambda _: fit_epoch_overhead([1.0, 2.0, np.nan], [1.0, 2.0, 3.0], 1000, 10, 32), DataError, "2 measured epochs are too few"),
    # Tables that a model is fitted on.
    (lambda _: fit_measurements(iterations().drop(columns="precision")), SchemaError, "the table of measurements lacks the column 'precision'"),
    (lambda _: fit_measurements(iterations()), DataError, "are too few to fit on: it takes 10"),
    (lambda m: fit_measurements(check_measurements(pd.DataFrame(m.gpu.operator_rows(RESNET18, (16, 64))), "made up")), DataError, "predict --measurements FILE"),
    (lambda m: accuracy_of(m.folder / "table.csv"), SchemaError, "is not the summary of an evaluation"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "words"), REFUSALS, ids=[words[:40] for *_, words in REFUSALS])
def test_what_cannot_be_answered_is_refused_with_the_reason(made, call, error, words):
    with pytest.raises(error, match=words):
        call(made)
