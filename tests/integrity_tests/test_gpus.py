"""Every row of gpus.csv obeys the arithmetic of its own columns, and every figure has a source."""

import json
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from case_tables import each_row

from predictor.catalogue.devices import Gpu, all_gpus, find_gpu, generations
from predictor.errors import UnknownGpuError

KNOWN = json.loads(Path(__file__).with_name("known_gpus.json").read_text("utf-8"))
"""Names that people ask for or drivers write, of one GPU each; names of several and of how many; peaks of vendors.

By compute capability: generation, and FP32 and tensor cores of a multiprocessor (CUDA C++ Programming Guide); by
memory: the range of Gbit/s per pin that its standard and the parts built with it span.
"""
GENERATION_OF, CORES_PER_SM, TENSOR_CORES_PER_SM = (
    {float(capability): cells[i] for capability, cells in KNOWN["compute capabilities"].items()}
    for i in range(3)
)


@pytest.fixture(params=all_gpus(), ids=lambda gpu: gpu.name)
def gpu(request: pytest.FixtureRequest) -> Gpu:
    return request.param


def test_cores_are_multiprocessors_times_the_cores_of_one(gpu):
    assert gpu.cuda_cores == gpu.sm_count * CORES_PER_SM[gpu.compute_capability]


def test_tensor_cores_are_multiprocessors_times_those_of_one_or_there_are_none(gpu):
    if gpu.tensor_cores is None:
        assert gpu.compute_capability < 7 or gpu.chip in ("TU116", "TU117")
    else:
        assert gpu.tensor_cores == gpu.sm_count * TENSOR_CORES_PER_SM[gpu.compute_capability]


def test_peak_fp32_is_two_flops_per_core_and_boost_cycle(gpu):
    expected = 2 * gpu.cuda_cores * gpu.boost_clock_ghz / 1000
    assert gpu.peak_fp32_tflop_per_s == pytest.approx(expected, rel=0.02)


def test_boost_clock_is_plausible_and_not_below_the_base_clock(gpu):
    assert 0.7 <= gpu.boost_clock_ghz <= 2.7
    assert gpu.base_clock_ghz is None or 0.5 <= gpu.base_clock_ghz <= gpu.boost_clock_ghz


def test_bandwidth_is_bus_width_times_a_rate_that_its_memory_has(gpu):
    low, high = KNOWN["Gbit/s per pin"][gpu.memory_type]
    assert low <= gpu.memory_bandwidth_gb_per_s * 8 / gpu.memory_bus_bits <= high


def test_the_driver_shows_what_memory_leaves():
    assert find_gpu("T4").driver_memory_gib == 15
    assert find_gpu("L4").memory_in_words == "22.49 GiB"
    assert find_gpu("L40").memory_in_words == "45 GiB, derived from the marketed size"


def test_memory_derived_is_within_three_percent_of_what_the_driver_shows(gpu):
    derived = replace(gpu, driver_memory_mib=None).driver_memory_gib
    assert (gpu.driver_memory_mib is not None) == bool(gpu.driver_memory_source)
    assert gpu.driver_memory_gib <= gpu.memory_gib
    assert derived == pytest.approx(gpu.driver_memory_gib, rel=0.03)


@each_row
def test_memory_cache_and_power_are_plausible(column, low, high):
    values = {gpu.name: getattr(gpu, column) for gpu in all_gpus()}
    assert {name: v for name, v in values.items() if v is not None and not low <= v <= high} == {}


def test_generation_follows_from_compute_capability(gpu):
    first_word = gpu.architecture.split()[0].casefold()
    assert gpu.generation == GENERATION_OF[gpu.compute_capability] == first_word


def test_tensor_peaks_are_there_for_exactly_what_the_generation_computes(gpu):
    has_bf16 = gpu.peak_bf16_tensor_tflop_per_s is not None
    assert has_bf16 == (gpu.peak_tf32_tflop_per_s is not None)
    assert gpu.compute_capability >= 8 or not has_bf16
    if gpu.peak_fp16_tensor_tflop_per_s is not None:
        assert gpu.tensor_cores is not None
        assert has_bf16 == (gpu.compute_capability >= 8)


def test_bf16_runs_at_the_fp16_rate_and_tf32_at_half_of_it(gpu):
    if gpu.peak_bf16_tensor_tflop_per_s is not None and gpu.peak_tf32_tflop_per_s is not None:
        assert gpu.peak_fp16_tensor_tflop_per_s == gpu.peak_bf16_tensor_tflop_per_s
        half = gpu.peak_bf16_tensor_tflop_per_s / 2
        assert gpu.peak_tf32_tflop_per_s == pytest.approx(half, rel=0.005)


def test_tensor_peak_is_what_its_tensor_cores_compute_at_a_clock_up_to_boost(gpu):
    """Dense, sums in fp32: GeForce RTX at half rate, and L40, too, by its data sheet."""
    per_clock = {7.0: 1024, 7.2: 1024, 7.5: 1024, 8.0: 2048, 8.7: 2048, 9.0: 4096, 10.0: 8192, 10.3: 8192}
    halved = gpu.name.startswith("GeForce RTX") or gpu.name == "NVIDIA L40"
    flops = per_clock.get(gpu.compute_capability, 1024) * gpu.sm_count * (0.5 if halved else 1)
    # Hopper and Blackwell data centre parts state their tensor peaks below boost, at 1.54 to 1.86 GHz.
    lowest = 0.85 if gpu.compute_capability in (9.0, 10.0, 10.3) else 0.99
    if gpu.peak_fp16_tensor_tflop_per_s is not None:
        clock_ghz = gpu.peak_fp16_tensor_tflop_per_s * 1000 / flops
        assert lowest * gpu.boost_clock_ghz <= clock_ghz <= 1.01 * gpu.boost_clock_ghz


def test_every_figure_has_a_source_and_a_date(gpu):
    assert gpu.source
    assert re.fullmatch(r"20\d\d-\d\d(-\d\d)?", gpu.retrieved_on)
    assert gpu.source_url == "" or gpu.source_url.startswith("https://")


def test_a_verified_row_says_what_was_verified_and_where(gpu):
    assert not gpu.verified or (gpu.source_url and "Vendor's text seen for" in gpu.notes)


def test_every_alias_finds_its_own_gpu():
    names = [(gpu.name, name) for gpu in all_gpus() for name in (gpu.name, *gpu.aliases)]
    assert [(own, name) for own, name in names if find_gpu(name).name != own] == []


def test_names_and_aliases_are_unique():
    labels = Counter(label.casefold() for gpu in all_gpus() for label in (gpu.name, *gpu.aliases))
    assert [label for label, count in labels.items() if count > 1] == []


def test_a_shared_name_is_shared():
    bearers = Counter(label for gpu in all_gpus() for label in gpu.shared_names)
    assert [label for label, count in bearers.items() if count < 2] == []


def test_rows_are_sorted_from_the_oldest_generation_on():
    order = [generations().index(gpu.generation) for gpu in all_gpus()]
    first = [
        min(gpu.compute_capability for gpu in all_gpus() if gpu.generation == generation)
        for generation in generations()
    ]
    assert order == sorted(order)
    assert first == sorted(first)


def test_only_nvidia_gpus_are_listed():
    assert not [gpu.name for gpu in all_gpus() if "radeon" in gpu.name.casefold()]


def test_a_card_of_several_chips_is_listed_by_its_chip():
    counts = {gpu.name: gpu.chips_per_card for gpu in all_gpus() if gpu.chips_per_card != 1}
    assert counts == {"GRID K520": 2, "Tesla K80": 2, "Tesla M10": 4, "Tesla M60": 2, "NVIDIA A16": 4}


@pytest.mark.parametrize("names", ["people", "drivers"])
def test_a_name_that_people_or_drivers_write_means_one_gpu(names):
    refused = {}
    for name in KNOWN[names]:
        try:
            find_gpu(name)
        except UnknownGpuError as error:
            refused[name] = str(error)
    assert refused == {}


@pytest.mark.parametrize(("name", "count"), KNOWN["of several"].items())
def test_a_name_of_several_gpus_is_refused_with_all_of_them(name, count):
    with pytest.raises(UnknownGpuError, match="fits several GPUs") as caught:
        find_gpu(name)
    listed = [gpu.name for gpu in all_gpus() if f"'{gpu.name}'" in str(caught.value)]
    assert len(listed) == count


@pytest.mark.parametrize(("name", "boost_clock_ghz", "vendor_tflop_per_s"), KNOWN["vendor peaks"])
def test_boost_clock_gives_the_peak_that_the_vendor_states(name, boost_clock_ghz, vendor_tflop_per_s):
    gpu = find_gpu(name)
    assert gpu.boost_clock_ghz == boost_clock_ghz
    assert gpu.peak_fp32_tflop_per_s == pytest.approx(vendor_tflop_per_s, rel=0.02)
