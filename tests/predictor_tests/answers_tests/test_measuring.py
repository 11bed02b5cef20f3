"""What a measurement is worth: regret of renting now against regret after it, chance-weighted by the intervals."""

from dataclasses import replace

import numpy as np
import pytest

from predictor.answers.compare import compare
from predictor.answers.measuring import MINUTES, choices_after, expected_regrets, measuring_of
from predictor.answers.notes import Priority
from predictor.answers.question import Plan, Question

NEAR = np.array([100.0, 105.0, 110.0])
WIDE = np.full(3, 0.25)
TRAINING = Question("efficientnet_b4", None, data_set="imagenet")


def test_regret_grows_with_the_intervals_and_a_run_leaves_less_but_one_of_a_known_gpu_as_much():
    assert expected_regrets(NEAR, np.full(3, 0.001)) == pytest.approx((0.0, 0.0), abs=1e-3)
    regrets = [expected_regrets(NEAR, spread * WIDE)[0] for spread in (0.5, 1.0, 2.0)]
    assert regrets == sorted(regrets)
    assert expected_regrets(np.array([100.0, 200.0]), WIDE[:2])[0] < expected_regrets(NEAR[:2], WIDE[:2])[0]
    now, after = expected_regrets(NEAR, WIDE)
    assert after < 0.7 * now
    now, after = expected_regrets(NEAR, np.array([0.001, 0.25, 0.25]))
    assert after == pytest.approx(now, rel=0.02)
    # a slower run than expected sends to the next row, and a faster one stays
    assert choices_after(NEAR, WIDE, np.log([1.5, 1.0, 0.7])).tolist() == [1, 0, 0]


def test_the_choice_after_a_run_is_the_comparison_with_it_as_an_anchor():
    question = replace(TRAINING, gpus=["A40", "L4", "A10G", "RTX 4090"], batch_sizes=[64])
    rows = compare(question, Plan(300)).rows
    spread = np.array([np.log(row.total_high_h / row.total_low_h) / 3.29 for row in rows])
    cost_usd = np.array([row.total_cost_usd for row in rows])
    for factor in (0.8, 1.6):
        run = {"gpu": rows[0].gpu, "batch_size": 64, "iteration_time_ms": factor * rows[0].iteration_time_ms}
        again = compare(replace(question, anchors=[run]), Plan(300)).rows
        [chosen] = choices_after(cost_usd, spread, np.log([factor]))
        assert again[0].gpu == rows[chosen].gpu


def test_a_verdict_says_what_a_measurement_is_worth_only_where_it_pays():
    long = compare(TRAINING, Plan(300)).verdict
    short = compare(replace(TRAINING, data_set=None, samples=20_000)).verdict
    measuring = long.measuring
    assert measuring.regret_usd - measuring.regret_after_usd > measuring.price_usd
    worth, of_cents, of_none = (
        [note.priority for note in verdict.hints if "Measuring 3 minutes" in note.text]
        for verdict in (long, compare(TRAINING, Plan(1)).verdict, short)
    )
    assert (worth, of_cents, of_none) == ([Priority.REMEDY], [Priority.VERBOSE], [])
    assert not any("To narrow the interval" in note.text for note in long.hints)
    assert short.measuring is None
    rows = compare(TRAINING, Plan(300)).rows
    measuring = measuring_of(rows, Plan(300, setup_minutes=30))  # both are paid on that machine
    assert measuring.price_usd == pytest.approx((MINUTES + 30) / 60 * rows[0].usd_per_hour)


def test_nothing_is_measured_where_time_decides_or_nothing_is_to_be_chosen():
    assert compare(TRAINING, Plan(300, rank_by="time")).verdict.measuring is None
    assert compare(replace(TRAINING, gpus="L4", batch_sizes=[64]), Plan(300)).verdict.measuring is None
