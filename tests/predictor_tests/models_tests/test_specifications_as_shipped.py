"""What holds of all answers from specifications that the shipped model gives."""

import numpy as np
import pytest

from predictor.catalogue.devices import all_gpus, find_gpu, precisions_of
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.models.base import Case

CNNS = (
    "alexnet", "vgg16", "resnet50", "densenet121", "mobilenet_v2", "efficientnet_b0", "convnext_tiny",
    "regnet_y_400mf",
)  # fmt: skip
FASTER = (("tf32", "fp32"), ("amp_fp16", "fp32"), ("amp_bf16", "fp32"), ("fp16", "amp_fp16"))
SIZES = np.array([8.0, 16.0, 32.0, 64.0, 128.0, 256.0])
"""Within the measured ones: outside, that reason widens the interval."""


def asked(model, cnn, gpus, precision, sizes=SIZES):
    table = zoo_cnn(cnn)
    cases = [Case(cnn, table.image_size, table, gpu, Mode(precision=precision), sizes) for gpu in gpus]
    return dict(zip((gpu.name for gpu in gpus), model.roofline.forecasts(cases), strict=True))


@pytest.mark.parametrize("cnn", CNNS)
def test_no_faster_precision_is_answered_slower_on_any_gpu(model, cnn):
    of = {}
    for precision in ("fp32", "tf32", "amp_fp16", "amp_bf16", "fp16"):
        gpus = [gpu for gpu in all_gpus() if precision in precisions_of(gpu)]
        of[precision] = asked(model, cnn, gpus, precision)
    slower = [
        (gpu, fast)
        for fast, slow in FASTER
        for gpu in of[fast]
        if (of[fast][gpu].gpu_time_ms > of[slow][gpu].gpu_time_ms * (1 + 1e-9)).any()
    ]
    assert slower == []


@pytest.mark.parametrize(
    ("cnn", "sizes", "tolerance"),
    [
        *((cnn, SIZES, 1e-3) for cnn in CNNS),
        # Below the measured sizes, thousands of kernels are shorter than a launch: features change faster than work.
        *((cnn, 2.0 ** np.arange(5), 5e-3) for cnn in ("alexnet", "lenet5", "resnet20_cifar", "densenet121")),
    ],
)
def test_the_upper_end_does_not_fall_as_the_batch_grows(model, cnn, sizes, tolerance):
    answers = asked(model, cnn, list(all_gpus()), "fp32", sizes).items()
    highs = {name: answer.high_ms for name, answer in answers}
    falls = [name for name in highs if (np.diff(highs[name]) < -tolerance * highs[name][1:]).any()]
    assert falls == []


def test_a_gpu_never_measured_has_a_wider_interval_than_every_measured_one_of_its_generation(model):
    measured = set(model.roofline.law_.calibration.gpus)
    names = ("RTX 2080 Ti", "T4", "RTX 2060", "GTX 1080 Ti", "GTX 1060 6GB", "Tesla P100-PCIE-16GB")
    gpus = [find_gpu(name) for name in names]
    answers = asked(model, "resnet50", gpus, "fp32")
    ratio = {gpu: answers[gpu.name].gpu_high_ms[-1] / answers[gpu.name].gpu_time_ms[-1] for gpu in gpus}
    narrow = [
        (new.name, old.name)
        for new in gpus
        for old in gpus
        if new.generation == old.generation and new.name not in measured and old.name in measured
        if ratio[new] <= ratio[old]
    ]
    assert narrow == []
