"""What a GPU sustains, from its specifications."""

import pytest

from predictor.errors import OutOfRangeError
from predictor.gpus import find_gpu
from predictor.roofline.rates import rates_of


def test_a_data_centre_card_runs_between_base_and_boost():
    gpu = find_gpu("Tesla T4")
    share = rates_of(gpu, "fp32").flop_per_ms / (gpu.peak_fp32_tflop_per_s * 1e9)
    assert share == pytest.approx((gpu.base_clock_ghz / gpu.boost_clock_ghz) ** 0.5)


def test_a_desktop_card_runs_at_its_boost():
    gpu = find_gpu("RTX 3090")
    assert rates_of(gpu, "fp32").flop_per_ms == pytest.approx(gpu.peak_fp32_tflop_per_s * 1e9)


def test_half_precision_without_tensor_cores_runs_at_the_fp32_rate_on_half_the_bytes():
    half, full = (rates_of(find_gpu("GTX 1080 Ti"), precision) for precision in ("amp_fp16", "fp32"))
    assert half.flop_per_ms == full.flop_per_ms
    assert (half.element_bytes, full.element_bytes, half.tensor) == (2, 4, False)


def test_tensor_cores_count_at_the_precision_that_they_have():
    a100 = find_gpu("A100-SXM4-40GB")
    tf32, bf16 = rates_of(a100, "tf32"), rates_of(a100, "amp_bf16")
    assert tf32.tensor
    assert bf16.flop_per_ms / tf32.flop_per_ms == pytest.approx(2.0, rel=0.01)


def test_an_unknown_precision_is_refused():
    with pytest.raises(OutOfRangeError, match="precision 'fp8' is not known here"):
        rates_of(find_gpu("T4"), "fp8")
