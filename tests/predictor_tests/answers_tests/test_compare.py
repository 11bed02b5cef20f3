"""compare: ranking by cost and time, the Pareto front, wishes, and what cannot be rented or does not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.answers.compare import compare
from predictor.answers.question import Plan, Question
from predictor.answers.ranking import pareto_front

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
