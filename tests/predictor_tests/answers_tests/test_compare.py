"""compare: ranking by cost and time, the Pareto front, wishes, and what cannot be rented or does not fit."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.answers.compare import compare
from predictor.answers.question import Plan, Question
from predictor.answers.ranking import pareto_front
from predictor.catalogue.offers import Offer
from predictor.errors import SchemaError

GPUS = ["T4", "V100-SXM2-16GB", "A100-SXM4-40GB"]


@pytest.fixture
def rank(fake_model, prices):
    """compare of ResNet-18 at batch 64 on three GPUs, by default."""

    def ranked(gpus=GPUS, batch_sizes=64, **question):
        options = {"samples": 10**6, "offers": prices, "model": fake_model, **question}
        plan, options_of_question = Plan.of(options)
        return compare(Question.of("resnet18", gpus, batch_sizes, options_of_question), plan).rows

    return ranked


def test_rows_are_ranked_by_cost(rank):
    costs = [row.total_cost_usd for row in rank()]
    assert costs == sorted(costs)
    assert [row.rank for row in rank()] == [1, 2, 3]


def test_rows_are_ranked_by_time_when_asked(rank):
    times = [row.total_time_h for row in rank(rank_by="time")]
    assert times == sorted(times)


def test_the_ranking_by_cost_changes_with_the_prices(rank, prices):
    cheap_a100 = (*prices, Offer("other", "one-a100", "NVIDIA A100-SXM4-40GB", 1, 0.01))
    assert rank()[0].gpu == "Tesla T4"
    assert rank(offers=cheap_a100)[0].gpu == "NVIDIA A100-SXM4-40GB"


def test_a_users_own_price_file_works_the_same(rank, tmp_path):
    path = tmp_path / "mine.csv"
    path.write_text("provider,instance,gpu,gpu_count,usd_per_hour\nmine,box,V100 SXM2 16GB,1,0.02\n")
    assert [row.offer for row in rank(offers=path)] == ["mine box", "no offer", "no offer"]


def test_cost_is_the_whole_instance_for_all_epochs_and_the_setup(rank):
    (row,) = rank("A100-SXM4-40GB", epochs=10, setup_minutes=30)
    assert row.total_time_h == pytest.approx((10 * row.epoch_time_s + row.start_s) / 3600 + 0.5)
    assert row.total_cost_usd == pytest.approx(24.0 * row.total_time_h)
    assert row.cost_usd == pytest.approx(24.0 * row.epoch_time_s / 3600)


def test_the_cheapest_offer_of_a_gpu_is_taken(rank):
    (row,) = rank("T4")
    assert row.offer == "cloud cheap-t4"


def test_all_offers_have_their_own_rows_when_asked(rank):
    assert [row.offer for row in rank("T4", all_offers=True)] == ["cloud cheap-t4", "cloud dear-t4"]


def test_historic_offers_and_shares_of_a_gpu_are_not_for_rent(rank):
    (row,) = rank("K80", all_offers=True)
    assert (row.offer, row.total_cost_usd) == ("no offer", None)


def test_rows_without_an_offer_come_after_those_with_one(rank):
    assert rank(["H200", "T4"])[-1].gpu == "NVIDIA H200"


def test_every_gpu_on_offer_is_compared_unless_told_otherwise(rank):
    assert {row.gpu for row in rank(None)} == {
        "Tesla T4",
        "Tesla V100-SXM2-16GB",
        "NVIDIA A100-SXM4-40GB",
    }
    assert {row.gpu for row in rank(None, spot=True)} == {"Tesla T4"}


def test_what_does_not_fit_in_memory_is_marked_and_not_ranked(rank):
    last = rank(["T4", "A100-SXM4-40GB"], batch_sizes=1024)[-1]
    assert (last.gpu, last.fits_in_memory, last.rank, last.pareto) == ("Tesla T4", False, None, False)


def test_each_gpu_keeps_its_best_batch_size(rank):
    assert {row.batch_size for row in rank(batch_sizes=[1, 64])} == {64}


def test_budget_and_deadline_are_marked_not_dropped(rank):
    rows = rank(budget_usd=rank()[0].total_cost_usd * 1.01, deadline_h=rank(rank_by="time")[0].total_time_h)
    assert [row.within_budget for row in rows] == [True, False, False]
    assert [row.within_deadline for row in rows].count(True) == 1


def test_other_gpus_are_compared_with_one_when_asked(rank):
    rows = {row.gpu: row for row in rank(relative_to="T4")}
    assert (rows["Tesla T4"].speedup, rows["Tesla T4"].cost_ratio) == (1.0, 1.0)
    assert rows["Tesla V100-SXM2-16GB"].speedup > 1


def test_the_front_holds_the_cheapest_and_the_fastest(rank):
    front = {row.gpu for row in rank() if row.pareto}
    assert {rank()[0].gpu, rank(rank_by="time")[0].gpu} <= front


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=12))
def test_no_point_of_the_front_is_beaten_and_every_other_is(points):
    def beats(a, b):
        return a[0] <= b[0] and a[1] <= b[1] and a != b

    for point, front in zip(points, pareto_front(points), strict=True):
        assert front is not any(beats(rival, point) for rival in points)


def test_only_one_cnn_is_compared_at_a_time(fake_model, prices):
    with pytest.raises(SchemaError, match="compare ranks GPUs for one CNN"):
        compare(Question(["resnet18", "alexnet"], GPUS, 64, samples=10, offers=prices, model=fake_model))
