"""Spot machines that are taken away: expected hours against a simulation, and what a comparison makes of them."""

import math

import numpy as np
import pytest

from predictor.answers.compare import compare
from predictor.answers.question import Plan, Question
from predictor.answers.ranking import Interruptions, young_interval_h

SPOT = Question("resnet50", ["A10G", "T4"], 64, data_set="imagenet", spot=True)
OFTEN = {"epochs": 90, "interruptions_per_day": 6.0, "checkpoint_seconds": 60.0, "setup_minutes": 10.0}


def expected_h(work_h, *hours):
    return Interruptions(*hours).expected_h(np.array([work_h]))[0]


def simulated_h(work_h, interval_h, checkpoint_h, restart_h, between_h, n=4000):
    """Mean hours of `n` trainings, interruption by interruption."""
    draw, took = np.random.default_rng(0), []
    for _ in range(n):
        now, next_h = 0.0, draw.exponential(between_h)
        for _ in range(round(work_h / interval_h)):
            end = now + interval_h + checkpoint_h
            while end > next_h:
                now = next_h
                next_h = now + draw.exponential(between_h)
                while now + restart_h > next_h:
                    now, next_h = next_h, next_h + draw.exponential(between_h)
                now += restart_h
                end = now + interval_h + checkpoint_h
            now = end
        took.append(now)
    return np.mean(took)


@pytest.mark.parametrize("between_h", [2.0, 6.0, 50.0])
def test_expected_hours_are_those_of_a_simulation(between_h):
    hours = (20.0, 0.5, 0.02, 0.2, between_h)
    assert expected_h(*hours) == pytest.approx(simulated_h(*hours), rel=0.03)


def test_young_s_interval_loses_about_the_least():
    best = young_interval_h(0.02, 6.0)
    at = [expected_h(100.0, factor * best, 0.02, 0.2, 6.0) for factor in (0.5, 0.9, 1.0, 1.1, 2)]
    assert at[2] < min(at[0], at[4])
    assert at[2] == pytest.approx(min(at), rel=0.002)


def test_without_interruptions_to_speak_of_only_checkpoints_are_lost_and_none_within_the_interval():
    assert expected_h(100.0, 1.0, 0.01, 0.2, 1e7) == pytest.approx(101.0, rel=1e-4)
    assert expected_h(0.3, 0.5, 0.1, 0.0, 1e6) == pytest.approx(0.3, rel=1e-4)


def test_a_comparison_expects_time_money_and_energy():
    calm = {row.gpu: row for row in compare(SPOT, Plan(epochs=90, setup_minutes=10.0)).rows}
    for row in compare(SPOT, Plan(**OFTEN)).rows:
        usual = calm[row.gpu]
        assert row.checkpoint_minutes == pytest.approx(60 * math.sqrt(2 * 4 / 60))
        assert row.total_time_h == pytest.approx(usual.total_time_h + row.interruption_h)
        assert row.total_cost_usd == pytest.approx(row.total_time_h * row.usd_per_hour)
        assert row.total_low_h < row.total_time_h < row.total_high_h
        assert 1 < row.total_watt_hours / usual.total_watt_hours < row.total_time_h / usual.total_time_h
        assert (usual.interruption_h, usual.checkpoint_minutes) == (None, None)


def test_checkpoints_of_one_s_own_are_taken():
    question = Question("resnet50", "T4", 64, samples=10**6, spot=True)
    [row] = compare(question, Plan(**OFTEN, checkpoint_minutes=7)).rows
    assert row.checkpoint_minutes == pytest.approx(7)


def test_spot_prices_without_a_rate_say_that_no_interruptions_are_counted():
    assert "no interruptions are counted" in compare(SPOT, Plan()).scope
    assert "no interruptions" not in compare(SPOT, Plan(**OFTEN)).scope
