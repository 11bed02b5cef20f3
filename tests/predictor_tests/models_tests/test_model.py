"""The served model: what it answers, refuses and admits, and that its file is safe to load."""

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from predictor.catalogue.devices import all_gpus, find_gpu, precisions_of
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import ArtifactError, OutOfRangeError
from predictor.models.forecast import Anchor
from predictor.models.served import Model

T4, BATCHES = find_gpu("T4"), (16, 64, 256)
V100 = "Tesla V100-SXM2-16GB"


@pytest.fixture(scope="module")
def model() -> Model:
    return Model.load()


@pytest.fixture
def written(model, tmp_path):
    path = tmp_path / "model.json"
    model.save(path)
    return path


def changed(path, change) -> None:
    stored = json.loads(path.read_text())
    change(stored)
    path.write_text(json.dumps(stored))


def test_a_saved_model_answers_as_before(model, written):
    again = Model.load(written)
    for cnn, gpu in (("resnet50", "T4"), ("vgg_cifar", "H200")):
        first, second = (m.forecast(zoo_cnn(cnn), find_gpu(gpu), Mode(), BATCHES) for m in (model, again))
        assert first.iteration_time_ms.tolist() == second.iteration_time_ms.tolist()
        assert first.low_ms.tolist() == second.low_ms.tolist()


def test_the_card_says_what_the_model_was_made_of(model):
    assert {"trained_on", "sources", "provenance", "data_sha256", "versions", "fitted_on", "accuracy"} <= set(
        model.card
    )
    assert {row["scenario"] for row in model.card["accuracy"]} >= {
        "unseen-cnn",
        "unseen-gpu-specs",
    }  # baselines
    assert {"chips", "unseen-cnn-profet", "own-layers-tf32"} <= set(model.card["figures"])  # of the default
    assert "profet" in model.card["sources"]


def test_the_shipped_model_was_measured_from_kepler_to_hopper(model):
    expected = {"kepler", "maxwell", "pascal", "volta", "turing", "ampere", "hopper"}
    assert set(model.ranges.generations) == expected


def test_another_format_version_is_refused(written):
    changed(written, lambda m: m.update(format_version=99))
    with pytest.raises(ArtifactError, match="format version 99; this epochcast reads 4"):
        Model.load(written)


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m.pop("roofline"),
        lambda m: m["roofline"]["terms"].update({"conv_forward|one|": float("nan")}),
        lambda m: m["roofline"]["terms"].update({"no bars": 1.0}),
        lambda m: m["roofline"].update(feed=["a", 1]),
        lambda m: m["roofline"].update(host=3),
        lambda m: m["roofline"]["calibration"]["spread"].update(host=float("inf")),
    ],
    ids=["no law", "nan", "bad term", "text for a number", "number for a table", "no spread"],
)
def test_a_damaged_model_is_refused(written, change):
    changed(written, change)
    with pytest.raises(ArtifactError, match="is a damaged model"):
        Model.load(written)


def test_a_host_named_by_its_cpu_or_its_instance_is_the_same_on_every_gpu(model):
    by_cpu, by_instance = ("AMD EPYC 7R32", "aws/g5.2xlarge")
    times = [
        float(
            model.forecast(
                zoo_cnn("resnet50"), find_gpu(gpu), Mode(precision="fp32"), [1], host=host
            ).host_time_ms[0]
        )
        for gpu in ("A10G", "H200", "T4")
        for host in (by_cpu, by_instance)
    ]
    assert times == pytest.approx([times[0]] * len(times))


def test_gpu_names_are_no_hosts(model):
    assert not set(model.hosts()) & {gpu.name for gpu in all_gpus()}


@pytest.mark.parametrize("factor", [0.1, 0.5, 0.97, 1.3, 3.0, 20.0])
@pytest.mark.parametrize("gpu", ["T4", "L4"])
def test_where_an_anchor_was_measured_the_answer_is_the_anchor(model, gpu, factor):
    table, gpu = zoo_cnn("resnet50"), find_gpu(gpu)
    plain = model.forecast(table, gpu, Mode(), [64])
    measured = factor * float(plain.iteration_time_ms[0])
    answer = model.forecast(table, gpu, Mode(), [16, 64], [Anchor(gpu.name, 64, measured)])
    assert (plain.method, answer.method) == ("roofline", "anchored")
    assert answer.iteration_time_ms[1] == pytest.approx(measured, rel=0.01)
    assert answer.low_ms[1] < measured < answer.high_ms[1]
    if 0.9 < factor < 1.5:
        assert answer.high_ms[1] / answer.low_ms[1] < plain.high_ms[0] / plain.low_ms[0]


@pytest.mark.parametrize("gpu", ["T4", "L4"])
def test_a_run_that_was_repeated_counts_once_by_its_mean(model, gpu):
    table, gpu = zoo_cnn("resnet50"), find_gpu(gpu)
    measured = 1.1 * float(model.forecast(table, gpu, Mode(), [64]).iteration_time_ms[0])
    once, twice = (
        model.forecast(table, gpu, Mode(), [16, 64], [Anchor(gpu.name, 64, time_ms) for time_ms in times])
        for times in ([measured], [measured / 1.05, 1.05 * measured])
    )
    for name in ("iteration_time_ms", "low_ms", "high_ms"):
        assert getattr(twice, name) == pytest.approx(getattr(once, name), rel=1e-9)


def test_an_anchor_far_from_the_model_is_remarked_on(model):
    table = zoo_cnn("resnet50")
    plain = float(model.forecast(table, T4, Mode(), [64]).iteration_time_ms[0])
    far, near = (
        model.forecast(table, T4, Mode(), [64], [Anchor("T4", 64, factor * plain)]).extrapolates[0]
        for factor in (5.0, 1.2)
    )
    assert [str(why) for why in far if why not in near] == [
        "anchor: 5 times the model's own time on T4 at batch 64, more than its errors explain: "
        "check its unit and mode"
    ]


@pytest.mark.parametrize("gpu", ["T4", "L4"])
@pytest.mark.parametrize("factor", [1e-6, 1 / 1001, 1001.0])
def test_an_anchor_a_thousandfold_from_the_model_is_refused(model, gpu, factor):
    table, gpu = zoo_cnn("resnet50"), find_gpu(gpu)
    plain = float(model.forecast(table, gpu, Mode(), [64]).iteration_time_ms[0])
    with pytest.raises(OutOfRangeError, match=f"on {gpu.name} at batch 64 is .* times the model's own time"):
        model.forecast(table, gpu, Mode(), [64], [Anchor(gpu.name, 64, factor * plain)])


def test_what_was_measured_gives_no_reason_for_caution(model):
    assert model.forecast(zoo_cnn("resnet50"), find_gpu("H200"), Mode(), [64]).extrapolates == ((),)


@pytest.mark.parametrize(
    ("cnn", "gpu", "mode", "batch", "reason"),
    [
        ("resnet50", "P100-PCIE-16GB", Mode(), 64, "gpu: never measured, estimated from its specifications"),
        ("resnet50", "L4", Mode(), 64, r"nor any of its generation \(ada\)"),
        ("resnet50", "T4", Mode(framework="chainer"), 64, "framework: Chainer is carried over from PyTorch"),
        ("resnet50", "RTX 3090", Mode(), 64, "precision: fp32 was never measured on GeForce RTX 3090"),
        ("resnet50", "T4", Mode(capture="graph"), 64, "capture: graph was never measured"),
        ("resnet50", "T4", Mode(optimizer="lamb"), 64, "optimizer: lamb was never measured with pytorch"),
        ("resnet50", "T4", Mode(xla=True), 64, "xla: xla was never measured with pytorch"),
        (
            "resnet50",
            "T4",
            Mode("tensorflow", memory_format="channels_last"),
            64,
            "memory_format: channels_last was never measured with tensorflow",
        ),
        (
            "resnet50",
            "H200",
            Mode(memory_format="channels_last"),
            64,
            "mode: pytorch was never measured in fp32 with channels_last",
        ),
        (
            "resnet50",
            "A100-SXM4-80GB",
            Mode(precision="tf32"),
            64,
            "gpu: never measured, but NVIDIA A100 80GB PCIe with the same chip was",
        ),
        ("resnet50", "K80", Mode(), 64, "framework: pytorch was never measured on Tesla K80"),
        ("resnet50", "T4", Mode("tensorflow", "amp_fp16"), 64, "with tensorflow on Tesla T4"),
        ("resnet50", "H200", Mode(precision="fp16"), 64, "precision: fp16 was never measured on NVIDIA H200"),
        ("resnet50", "T4", Mode(), 60_000, "batch: measured from"),
        ("dcgan_generator", "T4", Mode(), 64, "operator: conv_transpose2d never measured"),
        ("efficientnet_b5", "T4", Mode(), 64, "shape: convolutions with"),
    ],
)
def test_every_way_of_going_beyond_the_data_is_named_and_widens_the_interval(
    model, cnn, gpu, mode, batch, reason
):
    forecast = model.forecast(zoo_cnn(cnn), find_gpu(gpu), mode, [batch])
    assert any(re.search(reason, str(reason_given)) for reason_given in forecast.extrapolates[0])
    sure = model.forecast(zoo_cnn("resnet50"), find_gpu("H200"), Mode(), [64])
    assert forecast.high_ms[0] / forecast.low_ms[0] > sure.high_ms[0] / sure.low_ms[0]


def with_group_norms(table, share):
    """The CNN with group norms in place of the first `share` of its batch norms."""
    norms = [layer.index for layer in table if layer.type == "batch_norm"]
    chosen = set(norms[: round(share * len(norms))])
    layers = tuple(
        replace(layer, type="group_norm") if layer.index in chosen else layer for layer in table.layers
    )
    return replace(table, layers=layers)


def test_operators_never_measured_widen_the_interval_by_their_share_of_the_time(model):
    answers = [
        model.forecast(with_group_norms(zoo_cnn("resnet50"), share), T4, Mode(), [64])
        for share in (0.0, 0.02, 0.5, 1.0)
    ]
    assert [str(reason) for reason in answers[1].extrapolates[0]] == ["operator: group_norm never measured"]
    without, few, half, all_of_them = (np.log(answer.high_ms[0] / answer.low_ms[0]) for answer in answers)
    assert 1.25 * without < few < 1.4 * without < half < all_of_them < 2.5 * without


MODES = {
    "eager": Mode(precision="tf32"),
    "fp32": Mode(),
    "graph": Mode(precision="tf32", capture="graph"),
    "compile": Mode(precision="tf32", capture="compile"),
    "chainer": Mode(framework="chainer", precision="tf32"),
    "tensorflow": Mode(framework="tensorflow", precision="tf32"),
    "autotune": Mode(precision="tf32", autotune=True),
}
RUN = Anchor(gpu="A100 PCIe 40GB", batch_size=32, iteration_time_ms=60.0)


@pytest.mark.parametrize(
    ("names", "anchors"), [(tuple(MODES), ()), (tuple(MODES)[::-1], ()), (tuple(MODES), (RUN,))]
)
def test_each_mode_of_a_question_is_answered_as_alone(model, names, anchors):
    table = zoo_cnn("convnext_tiny")
    devices = [(find_gpu(gpu), MODES[name]) for name in names for gpu in ("H200", "B200", "RTX 3090")]
    together = model.forecasts(table, devices, (1, 32), anchors)
    for (gpu, mode), answer in zip(devices, together, strict=True):
        alone = model.forecast(table, gpu, mode, (1, 32), anchors)
        for name in ("iteration_time_ms", "gpu_time_ms", "host_time_ms", "low_ms", "high_ms"):
            assert getattr(answer, name).tolist() == getattr(alone, name).tolist(), (gpu.name, mode, name)
        assert (answer.method, answer.extrapolates) == (alone.method, alone.extrapolates)


def test_answers_are_finite_for_every_gpu_and_precision(model):
    precisions = ("fp32", "tf32", "amp_fp16", "amp_bf16")
    devices = [
        (gpu, Mode(precision=precision))
        for precision in precisions
        for gpu in all_gpus()
        if precision in precisions_of(gpu)
    ]
    answers = model.forecasts(zoo_cnn("mobilenet_v3_small"), devices, BATCHES)
    for (gpu, mode), forecast in zip(devices, answers, strict=True):
        assert np.isfinite(forecast.high_ms).all(), (gpu.name, mode)
        assert (forecast.low_ms < forecast.iteration_time_ms).all(), (gpu.name, mode)


def epoch_times_s(
    model: Model, cnn: str, gpus: tuple[str, ...], batch_sizes: tuple[int, ...], host: str | None = None
) -> Any:
    """Of 50,000 samples: a row per GPU, a column per batch size."""
    devices = [(find_gpu(gpu), Mode()) for gpu in gpus]
    forecasts = model.forecasts(zoo_cnn(cnn), devices, batch_sizes, host=host)
    iterations = np.ceil(50_000 / np.array(batch_sizes))
    return np.array(
        [model.epoch_time_s(iterations, forecast.iteration_time_ms, Mode()) for forecast in forecasts]
    )


def test_epochs_get_shorter_or_stay_as_the_batch_doubles(model):
    """Within 5 %, in at least 95 % of the doublings; real CNNs have algorithm switches."""
    gpus = ("Tesla K80", "Tesla T4", V100, "NVIDIA A100-SXM4-40GB", "NVIDIA H200")
    times = np.array([epoch_times_s(model, cnn, gpus, (16, 32, 64, 128, 256)) for cnn in zoo_names()])
    rising = times[..., 1:] / times[..., :-1] - 1 > 0.05
    worst = [(zoo_names()[i], gpus[j]) for i, j in zip(*np.where(rising.any(axis=-1)), strict=True)]
    assert rising.mean() <= 0.05, worst


def _plain_and_tuned(model, anchors=()):
    return [
        model.forecast(zoo_cnn("resnet50"), find_gpu("T4"), Mode(autotune=tuned), [64], anchors)
        for tuned in (False, True)
    ]


def test_runs_of_an_autotuned_cnn_hold_what_autotuning_gains(model):
    run = Anchor(gpu="Tesla T4", batch_size=64, iteration_time_ms=500.0)
    plain, tuned = _plain_and_tuned(model, (run,))
    assert tuned.iteration_time_ms == plain.iteration_time_ms
