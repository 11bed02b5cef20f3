"""Coherence of the shipped model: cards of one chip keep the order of their data sheets, modes theirs."""

from itertools import product

import numpy as np
import pytest

from predictor.answers.answer import predict
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import ZOO, zoo_cnn
from predictor.models.layer_times.files import LayerModels, library_mode
from predictor.models.layer_times.library import CarriedOver
from predictor.models.served import Model

pytestmark = pytest.mark.slow

CNNS = [*sorted(ZOO)[::2], "lenet5"]  # of each family some
SIZES = (4, 8, 16, 32, 64, 128, 256, 512)
MODES = {
    "tf32": Mode(precision="tf32", capture="graph"),
    "bf16, channels-last": Mode(precision="amp_bf16", memory_format="channels_last", capture="graph"),
}
FASTER_FIRST = (
    ("NVIDIA GH200 144G HBM3e", "NVIDIA H200"),
    ("NVIDIA H200", "NVIDIA GH200 480GB"),
    ("NVIDIA GH200 480GB", "NVIDIA H100 80GB HBM3"),
    ("NVIDIA H200", "NVIDIA H200 NVL"),
    ("NVIDIA H100 NVL", "NVIDIA H100 PCIe"),
)
"""Cards of one chip; the first has at least the bandwidth, multiprocessors and clock of the second."""

EQUAL = 1.05
"""Cards may swap within 5 %: operators were measured on two of them, and repeat within that."""

MEASURED_FROM = {"tf32": 4, "bf16, channels-last": 16}
"""Least batch size of most of the H200's operators: what it takes below is extrapolated, the H100 was measured."""


LENET_SWAPS = {("lenet5", 128)}
"""All of LeNet takes 0.3 ms in either mode, in kernels of microseconds that a host enqueues more slowly than a GPU runs
them; on the H200 the modes change order three times from batch 32 to 512. Its two convolutions in bf16 were measured on
the H200 alone (0.15 ms at batch 128, answered 0.17); the H100, by its own law, has 0.19. The H200's answer is the wrong
one: measured there, bf16 channels-last takes 0.31 ms, TF32 0.27.
"""


@pytest.fixture(scope="module")
def gpu_ms():
    """GPU time by CNN, mode and card, over batch sizes."""
    model = Model.load()
    cards = list(dict.fromkeys(card for pair in FASTER_FIRST for card in pair))
    times = {}
    for cnn in CNNS:
        for name, mode in MODES.items():
            forecasts = model.forecasts(zoo_cnn(cnn), [(find_gpu(card), mode) for card in cards], SIZES)
            times |= {
                (cnn, name, card): forecast.gpu_time_ms
                for card, forecast in zip(cards, forecasts, strict=True)
            }
    return times


def test_a_card_with_more_bandwidth_or_clock_is_never_slower_than_another_of_its_chip(gpu_ms):
    swapped = {
        (cnn, name, faster, slower): round(float(worst), 3)
        for faster, slower in FASTER_FIRST
        for cnn in CNNS
        for name in MODES
        if (worst := np.max((gpu_ms[cnn, name, faster] / gpu_ms[cnn, name, slower])[_measured(name)])) > EQUAL
    }
    assert not swapped


def _measured(name):
    return np.array(SIZES) >= MEASURED_FROM[name]


def test_the_faster_mode_of_one_card_is_the_faster_one_of_the_others(gpu_ms):
    """By more than a tenth on the H200: the H100 keeps the order at the same batch size, or has them within 1 %."""
    swapped = []
    for cnn in CNNS:
        on_h200, on_h100 = (
            gpu_ms[cnn, "bf16, channels-last", card] / gpu_ms[cnn, "tf32", card]
            for card in ("NVIDIA H200", "NVIDIA H100 80GB HBM3")
        )
        clear = (np.abs(np.log(on_h200)) > np.log(1.1)) & _measured("bf16, channels-last")
        opposite = (np.sign(on_h200 - 1) != np.sign(on_h100 - 1)) & (np.abs(np.log(on_h100)) > np.log(1.01))
        swapped += [(cnn, size) for size, bad in zip(SIZES, clear & opposite, strict=True) if bad]
    assert set(swapped) <= LENET_SWAPS


@pytest.mark.parametrize("precision", ["tf32", "amp_bf16"])
def test_where_the_host_decides_the_memory_format_does_not(precision):
    nchw, channels_last = (
        predict("resnet50", "NVIDIA H200", 1, precision=precision, memory_format=layout)[0].iteration_time_ms
        for layout in ("nchw", "channels_last")
    )
    assert channels_last == pytest.approx(nchw, rel=0.02)


def test_no_upper_bound_falls_as_the_batch_grows_where_the_time_does_not():
    model, sizes = Model.load(), 2 ** np.arange(11)
    cards = list(map(find_gpu, ("T4", "RTX 3090", "RTX 4090", "B200", "H200", "H200 NVL", "H100 PCIe")))
    modes = (Mode(), Mode(precision="amp_fp16", memory_format="channels_last"))
    falling = []
    for cnn, mode in product(CNNS, modes):
        forecasts = model.forecasts(zoo_cnn(cnn), [(card, mode) for card in cards], sizes)
        for card, forecast in zip(cards, forecasts, strict=True):
            middle, high = np.diff(np.log([forecast.iteration_time_ms, forecast.high_ms]), axis=1)
            if np.min(high - np.minimum(2 * middle, 0.0)) < -0.001:
                falling.append((cnn, card.name, mode.precision))
    assert not falling


def test_two_rungs_that_answer_the_same_question_differ_by_less_than_their_intervals():
    """An H100 by its own operators and by the H200's alone."""
    model, card = Model.load(), find_gpu("H100 SXM")
    apart = []
    for name, mode in MODES.items():
        source = model.layers.measured(library_mode(find_gpu("H200"), mode))
        own = model.layers.measured(library_mode(card, mode))
        carried = type(own)(CarriedOver(source.library, own.library.mode), source.law.borrowed("H200"))
        carrying = Model(**{**vars(model), "layers": LayerModels().with_more([carried])})
        for cnn in CNNS:
            rungs = [rung.forecast(zoo_cnn(cnn), card, mode, SIZES) for rung in (model, carrying)]
            allowed = np.hypot(*(np.log(answer.high_ms / answer.low_ms) for answer in rungs)) / 2
            difference = np.abs(np.subtract(*(np.log(answer.iteration_time_ms) for answer in rungs)))
            apart += [(cnn, name, size) for size, bad in zip(SIZES, difference > allowed, strict=True) if bad]
    assert not apart
