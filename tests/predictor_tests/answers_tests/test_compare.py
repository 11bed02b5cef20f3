"""compare: ranking by cost and time, the Pareto front, budget and deadline, what cannot be rented or does not fit."""

import math

import numpy as np
import pytest
from case_tables import each_row
from hypothesis import given
from hypothesis import strategies as st

from predictor.answers.compare import compare
from predictor.answers.question import Plan, Question
from predictor.answers.ranking import chance_within, limits_in_words, misses_by, pareto_front

GPUS = ["T4", "V100-SXM2-16GB", "A100-SXM4-40GB"]


@pytest.fixture
def rank(fake_model, prices):
    """compare of ResNet-18 at batch 64 on three GPUs, by default."""

    def ranked(gpus=GPUS, batch_sizes=64, **question):
        options = {"samples": 10**6, "offers": prices, "model": fake_model, **question}
        plan, options_of_question = Plan.of(options)
        return compare(Question.of("resnet18", gpus, batch_sizes, options_of_question), plan).rows

    return ranked


def test_cost_is_the_whole_instance_for_all_epochs_and_the_setup(rank):
    (row,) = rank("A100-SXM4-40GB", epochs=10, setup_minutes=30)
    assert row.total_time_h == pytest.approx((10 * row.epoch_time_s + row.start_s) / 3600 + 0.5)
    assert row.total_cost_usd == pytest.approx(24.0 * row.total_time_h)
    assert row.cost_usd == pytest.approx(24.0 * row.epoch_time_s / 3600)


def test_offers_are_rows_when_asked_but_for_old_ones_and_shares_of_a_gpu_and_stand_before_none(rank):
    assert [row.offer for row in rank("T4", all_offers=True)] == ["cloud cheap-t4", "cloud dear-t4"]
    (row,) = rank("K80", all_offers=True)
    assert (row.offer, row.total_cost_usd) == ("no offer", None)
    assert rank(["H200", "T4"])[-1].gpu == "NVIDIA H200"


def test_every_gpu_on_offer_is_compared_unless_told_otherwise_each_at_its_best_batch_size(rank):
    assert {row.gpu for row in rank(None)} == {
        "Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB",
    }  # fmt: skip
    assert {row.gpu for row in rank(None, spot=True)} == {"Tesla T4"}
    assert {row.batch_size for row in rank(batch_sizes=[1, 64])} == {64}


def test_what_does_not_fit_in_memory_is_marked_and_not_ranked(rank):
    last = rank(["T4", "A100-SXM4-40GB"], batch_sizes=1024)[-1]
    assert (last.gpu, last.fits_in_memory, last.rank, last.pareto) == ("Tesla T4", False, None, False)


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12))
def test_no_point_of_the_front_is_beaten_and_every_other_is(points):
    def beats(a, b):
        return a[0] <= b[0] and a[1] <= b[1] and a != b

    for point, front in zip(points, pareto_front(points), strict=True):
        assert front is not any(beats(rival, point) for rival in points)


POSITIVE = st.floats(0.01, 1e6)


@given(POSITIVE, st.floats(1.01, 5.0), st.floats(1.01, 5.0))
def test_half_of_the_probability_lies_below_the_estimate_and_five_percent_beyond_each_end(value, down, up):
    ends = value / down, value * up
    chances = [chance_within(limit, value, *ends) for limit in (ends[0], value, ends[1])]
    assert chances == pytest.approx([0.05, 0.5, 0.95], abs=1e-6)


@given(POSITIVE, POSITIVE, POSITIVE)
def test_a_larger_limit_is_never_less_likely_to_hold(value, limit, other_limit):
    limits = sorted((limit, other_limit))
    small, large = (chance_within(least, value, value / 2, value * 3) for least in limits)
    assert 0.0 <= small <= large <= 1.0


def test_a_certain_value_holds_or_does_not():
    assert [chance_within(limit, 10.0, 10.0, 10.0) for limit in (9.0, 11.0)] == [0.0, 1.0]


def test_no_limit_is_left_after_the_set_up():
    assert chance_within(-1.0, 10.0, 9.0, 11.0) == 0.0


@each_row
def test_the_limit_that_is_missed_most_counts(plan, cost, share):
    usd = np.array([math.nan if cost is None else cost])
    missed = misses_by(Plan(**plan), np.array([3.0]), usd)
    assert (None if missed is None else missed.tolist()) == (None if share is None else [share])


@each_row
def test_a_deadline_has_a_unit(given_as, hours):
    assert Plan(deadline_h=given_as).deadline_h == hours


@pytest.mark.parametrize("given_as", [1500, "1500", "$1500", "US$ 1,500", "1,500 USD", "$1.5k"])
def test_a_budget_may_name_its_currency(given_as):
    assert Plan(budget_usd=given_as).budget_usd == 1500.0


@pytest.mark.parametrize("given_as", [1_281_000, "1,281,000", "1281k", "1.281M", "1.281e6"])
def test_numbers_are_read_as_people_write_them(given_as):
    assert Question("resnet50", "T4", 1, samples=given_as).samples == 1_281_000


def test_limits_are_said_in_words():
    assert limits_in_words(Plan(budget_usd=60.0, deadline_h="2d")) == "US$ 60 and 48 h"
    assert limits_in_words(Plan(deadline_h="90s")) == "90.0 s"
    assert limits_in_words(Plan()) == ""
