"""Settling, repeats, noise and too long iterations, on a clock that only the fake framework moves."""

from dataclasses import replace
from statistics import median

import numpy as np
import pytest
from fake_backend import Clock, FakePrepared, time_ms
from small_subjects import OPERATORS, TARGETS, configurations_of

from predictor.errors import DeviceOutOfMemoryError, SchemaError
from proxy_cnns.profiler import FEWEST, LIMITS, measure, median_precision


@pytest.fixture
def target():
    return configurations_of(TARGETS, (64,))[0]


@pytest.fixture
def measured_with(target):
    """What the profiler makes of a target with these orders."""

    def run(
        kind="target", on_gpu=True, configuration=target, limits=None, captured=False, copies=1, **orders
    ):
        clock = Clock()
        run.prepared = prepared = FakePrepared(configuration, clock, orders)
        prepared.copies = copies
        return measure(prepared, clock, limits or LIMITS[kind], on_gpu=on_gpu, captured=captured)

    return run


TIME_MS = time_ms(configurations_of(TARGETS, (64,))[0])
MEASURED = {
    "a steady iteration is timed on the GPU": ({}, lambda m: m.gpu_times_ms == (pytest.approx(TIME_MS),) * 6),
    "and by the wall clock": ({}, lambda m: m.iteration_times_ms == (pytest.approx(TIME_MS),) * 6),
    "and on the host": ({}, lambda m: median(m.host_times_ms) == pytest.approx(0.2)),
    "nothing is noted of a steady iteration": ({}, lambda m: m.notes == ()),
    "slow first iterations are warm-up": ({"cold": 3}, lambda m: m.n_warmup > 12),
    "and are not counted": ({"cold": 3}, lambda m: max(m.iteration_times_ms) == pytest.approx(TIME_MS, 0.02)),
    "what never settles says so": (
        {"cold": 3, "limits": replace(LIMITS["target"], warmup_s=0.05)},
        lambda m: "wall time did not settle in the warm-up" in m.notes,
    ),
    "repeating ends with its time": (
        {"noise": 0.2, "limits": replace(LIMITS["target"], gpu_s=0.01, wall_s=0.01)},
        lambda m: len(m.gpu_times_ms) < 30,
    ),
    "without a graph there is no GPU time and the reason is noted": (
        {"no_capture": "it waits for the host"},
        lambda m: (m.gpu_times_ms, m.notes) == (None, ("no GPU time: it waits for the host",)),
    ),
    "a CPU has wall time alone": (
        {"on_gpu": False},
        lambda m: (m.gpu_times_ms, m.host_times_ms, m.notes) == (None, (), ()),
    ),
    "a captured iteration is timed by its replays": (
        {"captured": True},
        lambda m: (m.iteration_times_ms, m.host_times_ms) == (m.gpu_times_ms, ()),
    ),
}
"""Orders, and what is measured with them, by the fact that holds."""


@pytest.mark.parametrize("fact", MEASURED)
def test_a_target_is_measured_as_its_row_says(measured_with, fact):
    orders, holds = MEASURED[fact]
    measured = measured_with(**orders)
    assert holds(measured), measured


def test_noise_brings_more_repeats_and_a_wider_interval(measured_with):
    measured = measured_with(noise=0.2)
    assert len(measured.gpu_times_ms) == 30
    assert measured.precision > 0.01 > measured_with().precision


def test_the_precision_of_a_row_is_that_of_its_less_precise_time(measured_with):
    measured = replace(measured_with(), iteration_times_ms=(1.0, 1.0, 1.0, 1.0, 1.0, 1.1))
    assert measured.precision == pytest.approx(0.05)
    assert replace(measured, iteration_times_ms=(1.0,)).precision is None


def test_too_few_repeats_have_no_interval():
    assert median_precision([1.0] * (FEWEST - 1)) is None
    assert median_precision([1.0] * FEWEST) == 0
    assert min(limits.repeats_least for limits in LIMITS.values()) >= FEWEST == 6


def test_the_interval_of_a_median_is_scipys():
    from scipy.stats import quantile_test

    draw, wrong = np.random.default_rng(0), []
    for n in (6, 8, 9, 15, 24, 30, 250):
        times = 1 + draw.exponential(size=n)
        interval = quantile_test(times, p=0.5).confidence_interval(0.95)
        if median_precision(times) != pytest.approx((interval.high - interval.low) / 2 / np.median(times)):
            wrong.append((n, median_precision(times), interval))
    assert wrong == []


OPERATOR = configurations_of(OPERATORS, (4,))[0]


@pytest.mark.parametrize(("copies", "samples"), [(1, 3), (2, 2), (16, 1)])
def test_an_operator_on_a_gpu_costs_few_iterations_and_host_time_of_many_copies_is_taken_once(
    measured_with, copies, samples
):
    measured = measured_with("operator", configuration=OPERATOR, copies=copies)
    assert len(measured.host_times_ms) == samples
    assert measured_with.prepared.n_runs <= 8
    assert measured.iteration_times_ms == measured.gpu_times_ms


def test_an_operator_without_a_graph_is_timed_by_the_wall_clock(measured_with):
    measured = measured_with("operator", configuration=OPERATOR, no_capture="none")
    assert median(measured.iteration_times_ms) == pytest.approx(time_ms(OPERATOR))


def test_a_wall_time_of_an_operator_is_of_one_copy(measured_with, target):
    measured = measured_with("operator", on_gpu=False, copies=4)
    assert median(measured.iteration_times_ms) == pytest.approx(time_ms(target) / 4)


@pytest.mark.parametrize("kind", LIMITS)
def test_too_long_an_iteration_is_not_measured(measured_with, kind):
    assert measured_with(kind, limits=replace(LIMITS[kind], longest_ms=5)) is None


def test_too_little_memory_is_an_error(measured_with):
    with pytest.raises(DeviceOutOfMemoryError):
        measured_with(memory_for=64)


def test_what_cannot_be_captured_is_never_given_an_eager_time(measured_with):
    with pytest.raises(SchemaError, match=r"cannot be captured.*it waits for the host.*--capture eager"):
        measured_with(captured=True, no_capture="it waits for the host")
