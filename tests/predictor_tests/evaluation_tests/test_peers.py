"""The benchmark beside other tools makes a counter's time as its user would, and never from the chip in question."""

import pandas as pd
import peers
import pytest


@pytest.fixture
def times():
    """The same CNN on three chips, in fp32; the counter's operations reach 50, 25 and 25 % of the peaks."""
    gpus = ("Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA GeForce GTX 1080 Ti")
    peak = [peers.find_gpu(gpu).peak_fp32_tflop_per_s for gpu in gpus]
    rows = [
        {"cnn": "x", "image_size": 224, "gpu": gpu, "precision": "fp32", "batch_size": 10} for gpu in gpus
    ]
    at_peak_ms = [3 * 1e9 * 10 / tflop / 1e9 for tflop in peak]
    measured = [ms / share for ms, share in zip(at_peak_ms, (0.5, 0.25, 0.25), strict=True)]
    return pd.DataFrame(rows).assign(set="own", memory_format="nchw", measured_ms=measured)


PEAKS = {"l4": {"torch.float32": 30e12}, "h200 sxm1": {"torch.bfloat16": 2e15}}
ANSWERS = pd.DataFrame(
    [
        {"tool": "Lightning", "what": "peaks", "peaks": PEAKS},
        {"tool": "Lightning", "what": "flops", "cnn": "x", "image_size": 224, "value": 1e9},
        {
            "tool": "RuntimeEstimator",
            "what": "estimate",
            "estimated": ["x", 224, 10, 60.0, 3000.0],
            "value": 1.0,
        },
    ]
)


def test_the_share_of_the_peak_is_that_of_the_other_chips(times):
    times_ms = peers.napkins(times, ANSWERS)["Lightning"]
    assert (times_ms / times["measured_ms"]).tolist() == pytest.approx([2, 0.25 / 0.375, 0.25 / 0.375])


def test_a_gpu_that_lightning_does_not_list_has_no_peak():
    assert peers.listed_peak(PEAKS, "NVIDIA H200", "amp_bf16") == 2000
    assert peers.listed_peak(PEAKS, "NVIDIA L4", "fp32") == 30
    assert pd.isna(peers.listed_peak(PEAKS, "NVIDIA L40", "fp32"))


def test_gpus_as_fast_as_each_other_have_no_order(times):
    times["measured_ms"] = [10.0, 10.2, 20.0]
    assert list(peers.ordered_pairs(times.assign(answer=[2.0, 1.0, 1.5]))) == [False, True]


def test_equal_answers_put_no_gpus_in_order(times):
    times["measured_ms"] = [10.0, 20.0, 40.0]
    assert list(peers.ordered_pairs(times.assign(answer=[1.0, 1.0, 2.0]))) == [False, True, True]
