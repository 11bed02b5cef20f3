"""What a GPU sustains, from its specifications."""

import pytest
from case_tables import each_row

from predictor.catalogue.devices import all_gpus, find_gpu, precisions_of, rates_of, sustained_clock_ghz
from predictor.errors import OutOfRangeError


@each_row
def test_a_card_sustains_the_clock_that_it_is_known_to_hold(name, lowest_ghz, highest_ghz):
    assert lowest_ghz < sustained_clock_ghz(find_gpu(name)) < highest_ghz


def test_a_card_of_little_power_sustains_less_of_its_boost_than_one_of_more():
    shares = [sustained_clock_ghz(gpu) / gpu.boost_clock_ghz for gpu in map(find_gpu, ("T4", "RTX 2080"))]
    assert shares[0] < 0.75 < 1.0 < shares[1]


def test_a_card_whose_sheet_says_no_power_is_taken_at_its_boost():
    gpu = find_gpu("GH200 480GB")
    assert gpu.tdp_w is None
    assert sustained_clock_ghz(gpu) == gpu.boost_clock_ghz


def test_rates_follow_the_sustained_clock():
    gpu = find_gpu("RTX 3090")
    share = sustained_clock_ghz(gpu) / gpu.boost_clock_ghz
    assert rates_of(gpu, "fp32").flop_per_ms == pytest.approx(share * gpu.peak_fp32_tflop_per_s * 1e9)


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


def test_kepler_issues_two_thirds_of_its_peak():
    gpu = find_gpu("Tesla K40m")
    share = rates_of(gpu, "fp32").flop_per_ms / (gpu.peak_fp32_tflop_per_s * 1e9)
    assert share == pytest.approx(2 / 3 * sustained_clock_ghz(gpu) / gpu.boost_clock_ghz)


@pytest.mark.parametrize(
    ("name", "share"), [("Tesla K40m", 0.72 * 0.8), ("Tesla T4", 0.72), ("Tesla V100-SXM2-16GB", 0.88)]
)
def test_memory_streams_at_a_share_of_its_bandwidth_by_technology(name, share):
    gpu = find_gpu(name)
    assert rates_of(gpu, "fp32").bytes_per_ms == pytest.approx(share * gpu.memory_bandwidth_gb_per_s * 1e6)


@each_row
def test_each_precision_has_its_own_tensor_peak(precision, peak):
    gpu = find_gpu("NVIDIA H200")
    rates = rates_of(gpu, precision)
    ratio = getattr(gpu, peak) / gpu.peak_fp32_tflop_per_s
    assert rates.flop_per_ms / rates.fp32_flop_per_ms == pytest.approx(ratio)


def test_fp32_never_runs_on_tensor_cores():
    assert not any(rates_of(gpu, "fp32").tensor for gpu in all_gpus())


def test_every_gpu_has_rates_above_zero_and_tensor_cores_are_never_slower_than_fp32():
    rates = {(gpu.name, p): rates_of(gpu, p) for gpu in all_gpus() for p in precisions_of(gpu)}
    lowest = {key: min(r.flop_per_ms, r.fp32_flop_per_ms, r.bytes_per_ms) for key, r in rates.items()}
    assert {key: rate for key, rate in lowest.items() if not rate > 0} == {}
    assert {key: r for key, r in rates.items() if r.flop_per_ms < r.fp32_flop_per_ms} == {}
