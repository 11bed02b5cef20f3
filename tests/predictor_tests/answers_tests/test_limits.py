"""Budget and deadline: whether they hold, how likely, and by how much they are missed."""

import math

import numpy as np
import pytest
from case_tables import each_row
from hypothesis import given
from hypothesis import strategies as st

from predictor.answers.question import Plan, Question
from predictor.answers.ranking import chance_within, limits_in_words, misses_by

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
