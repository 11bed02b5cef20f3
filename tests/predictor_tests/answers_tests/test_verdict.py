"""The verdict: what to rent, how likely it holds the wishes, what keeps better offers out, and what to change."""

from typing import get_args

import numpy as np
import pandas as pd
import pytest
from case_tables import each_row

from predictor.answers.compare import compare
from predictor.answers.notes import REMEDIES, Priority, as_answered, duration_estimate, estimate, remedy_of
from predictor.answers.question import Plan, Question
from predictor.answers.ranking import place_of, ranking_order
from predictor.catalogue.devices import fast_mode_of, find_gpu
from predictor.catalogue.offers import Offer
from predictor.cnns.zoo import zoo_cnn
from predictor.models.compiled import compile_seconds, measured_where
from predictor.models.forecast import Kind, Reason


def texts(verdict):
    return [note.text for note in verdict.hints]


def took(row):
    """The time of a row with its interval, in words."""
    return duration_estimate(3600 * row.total_time_h, 3600 * row.total_low_h, 3600 * row.total_high_h)


EIGHT = ["A100-SXM4-40GB"]  # on offer as an instance of eight
GPUS = ["T4", "V100-SXM2-16GB", "A100-SXM4-40GB"]


@pytest.fixture
def compared(fake_model, prices):
    """compare of ResNet-18 on three GPUs: the T4 is cheapest, the instance of eight A100 fastest."""

    def ask(gpus=GPUS, cnn="resnet18", batch_sizes=None, **options):
        usual = {"samples": 5 * 10**6, "offers": prices, "model": fake_model}
        plan, question_options = Plan.of(usual | options)
        return compare(Question.of(cnn, gpus, batch_sizes, question_options), plan)

    return ask


def test_the_best_row_is_rented_and_the_cheapest_fastest_and_safest_are_named(compared):
    comparison = compared(epochs=50)
    verdict, row = comparison.verdict, comparison.rows[0]
    assert verdict.best.offer == verdict.cheapest.offer == row.offer == "cloud cheap-t4"
    assert verdict.fastest.offer == "cloud eight-a100"
    cost = estimate(row.total_cost_usd, row.total_low_usd, row.total_high_usd)
    assert verdict.sentence.startswith(f"Rent 1x T4 at cloud cheap-t4: {took(row)}, US$ {cost}")
    assert "Fastest: 8x A100-SXM4-40GB at cloud eight-a100" in verdict.sentence
    assert "likely" not in verdict.sentence
    assert (row.chance, verdict.holds_wishes) == (None, None)  # there are no wishes


@pytest.mark.parametrize("rank_by", ["cost", "time"])
def test_a_node_of_ones_own_costs_nothing_and_holds_every_budget(compared, rank_by, tmp_path):
    own = tmp_path / "own.csv"
    own.write_text("provider,instance,gpu,gpu_count,usd_per_hour\nlab,node,T4,1,0\n")
    [row] = compared("T4", offers=own, budget_usd=1.0, rank_by=rank_by, relative_to="T4").rows
    costs = (row.cost_usd, row.total_low_usd, row.total_cost_usd, row.total_high_usd, row.one_gpu_cost_usd)
    assert costs == (0.0, 0.0, 0.0, 0.0, None)
    assert (row.within_budget, row.chance, row.misses_by, row.pareto) == (True, 1.0, -1.0, True)
    assert (row.speedup, row.cost_ratio) == (1.0, None)  # of 0 to 0 there is no ratio


def test_the_deadline_that_rules_the_cheapest_out_is_binding_and_ranks_it_last(compared):
    cheapest = compared().rows[0]
    comparison = compared(deadline_h=0.9 * cheapest.total_time_h)
    rows, verdict = comparison.rows, comparison.verdict
    is_within = [row.within_deadline for row in rows]
    assert (is_within, rows[-1].gpu) == (sorted(is_within, reverse=True), cheapest.gpu)
    assert (verdict.binding, verdict.without_binding.gpu) == (("deadline",), cheapest.gpu)
    assert any(text.startswith("The deadline rules out 1x T4 at cloud cheap-t4") for text in texts(verdict))


def test_where_no_offer_holds_the_wishes_the_nearest_is_named_with_what_it_misses(compared):
    verdict = compared(budget_usd=10**6).verdict
    assert (verdict.binding, verdict.without_binding, verdict.holds_wishes) == ((), None, True)
    verdict = compared(budget_usd=verdict.best.total_cost_usd / 1.5).verdict
    assert (verdict.holds_wishes, verdict.binding) == (False, ("budget",))
    assert verdict.misses_by == pytest.approx(0.5)
    assert "No offer stays within US$" in verdict.sentence
    assert "nearest, 50 % over the budget" in verdict.sentence


def test_the_chance_is_that_of_the_tighter_wish(compared):
    row = compared().rows[0]
    budget, deadline = {"budget_usd": 1.1 * row.total_cost_usd}, {"deadline_h": 1.2 * row.total_time_h}
    of_budget, of_deadline, both = (
        compared(**wishes).rows[0].chance for wishes in (budget, deadline, budget | deadline)
    )
    assert 0.5 < of_budget < of_deadline < 1.0
    assert both == of_budget


def test_mixed_precision_is_told_as_a_ratio_with_what_it_takes(compared):
    comparison = compared()
    assert (comparison.rows[0].fast_precision, comparison.rows[0].fast_memory_format) == ("amp_fp16", "nchw")
    assert comparison.verdict.fast_ratio == pytest.approx(comparison.rows[0].fast_ratio)
    changes = [note.text for note in shipped_verdict(epochs=90).hints if note.priority is Priority.CHANGE]
    assert any(text.startswith("Mixed precision: ") for text in changes)
    verdict = shipped_verdict(cnn="mobilenet_v2", data_set="imagenet", samples=10_000)
    assert verdict.fast_ratio > 1  # its start compiles kernels of grouped convolutions
    assert not any(text.startswith("Mixed precision: ") for text in texts(verdict))


def test_the_anchor_of_a_mode_scales_the_other_mode_too_and_a_precision_is_compared_alone(compared):
    anchor = {"gpu": "T4", "batch_size": 64, "iteration_time_ms": 250.0}
    assert compared(anchors=[anchor]).rows[0].fast_ratio == pytest.approx(compared().rows[0].fast_ratio)
    comparison = compared(precision="fp32")
    assert {row.fast_ratio for row in comparison.rows} | {comparison.verdict.fast_ratio} == {None}


def test_the_fastest_mode_and_batch_size_are_those_of_the_gpus_of_the_row():
    """Eight H100 train VGG-16 faster together in either mode; one of them takes under ten minutes in AMP."""
    question = {"data_set": "imagenet", "loader": "none"}
    plan = Plan(rank_by="time", all_offers=True)
    rows = compare(Question("vgg16", "H100 SXM", **question), plan).rows
    row = next(row for row in rows if row.offer == "lambda 8x H100 SXM" and row.gpus_used == 8)

    def options_asked(batch_size, **mode):
        of_eight = Question("vgg16", "H100 SXM", batch_size, n_gpus=8, **question, **mode)
        return next(ranked for ranked in compare(of_eight, plan).rows if place_of(ranked) == place_of(row))

    fast = options_asked(row.batch_size, precision="amp_bf16", memory_format="channels_last")
    assert (row.fast_time_h, row.fast_cost_usd) == pytest.approx((fast.total_time_h, fast.total_cost_usd))
    assert row.fast_time_h < row.total_time_h
    assert row.fastest_epoch_time_s == pytest.approx(options_asked(row.fastest_batch_size).epoch_time_s)


def shipped_verdict(gpu="H100 SXM", batch_sizes=None, cnn="resnet50", **options):
    """The verdict of the shipped model on one GPU."""
    plan, question_options = Plan.of({"samples": 10**6, **options})
    return compare(Question.of(cnn, gpu, batch_sizes, question_options), plan).verdict


def compile_hint(verdict):
    return next((text for text in texts(verdict) if text.startswith("torch.compile")), None)


def same_time(row, other_row):
    ends = ("total_low_h", "total_time_h", "total_high_h")
    times_h, other_h = ([getattr(of, end) for end in ends] for of in (row, other_row))
    return row.offer == other_row.offer and times_h == pytest.approx(other_h)


def test_torch_compile_is_told_as_it_is_predicted_with_its_interval_and_what_compiling_takes():
    verdict = shipped_verdict(epochs=90)
    options_asked = shipped_verdict(epochs=90, capture="compile").best
    assert same_time(verdict.compiled, options_asked)
    mode = {"precision": "amp_bf16", "memory_format": "channels_last"}
    assert same_time(verdict.compiled_fast, shipped_verdict(epochs=90, capture="compile", **mode).best)
    assert verdict.compile_s == pytest.approx(compile_seconds(zoo_cnn("resnet50")))
    assert compile_hint(verdict).startswith(f"torch.compile: {took(options_asked)}")
    [where] = [note.text for note in verdict.hints if "Compiling takes" in note.text]
    assert f"about {verdict.compile_s:.0f} s once" in where
    assert f"only {measured_where()}" in where
    verdict = shipped_verdict(samples=10**5)
    assert verdict.compiled.total_time_h > verdict.best.total_time_h  # its first epoch holds compiling
    assert compile_hint(verdict) is None
    verdict = shipped_verdict(batch_sizes=[32, 256])
    assert {row.batch_size for row in (verdict.best, verdict.compiled, verdict.compiled_fast)} == {256}


def test_a_compiled_training_has_no_eager_start():
    options = {
        "data_set": "imagenet",
        "samples": 10_000,
        "precision": "amp_bf16",
        "memory_format": "channels_last",
    }
    compiled_row = shipped_verdict(cnn="mobilenet_v2", batch_sizes=256, epochs=60, **options).compiled
    question = Question("mobilenet_v2", "H100 SXM", 256, capture="compile", **options)
    rows = compare(question, Plan(epochs=60, all_offers=True)).rows
    assert same_time(compiled_row, next(row for row in rows if row.offer == compiled_row.offer))


@each_row
def test_torch_compile_is_not_told_where_nobody_can_say_it(options):
    verdict = shipped_verdict(**options)
    assert (verdict.compiled, verdict.compiled_fast, verdict.compile_s) == (None, None, None)
    assert verdict.best is not None
    assert compile_hint(verdict) is None


def test_the_anchor_of_an_eager_run_scales_the_compiled_one_too():
    anchor = {"gpu": "H100 SXM", "batch_size": 64, "iteration_time_ms": 45.0}
    long = {"samples": 10**10}  # beside it, compiling takes nothing
    plain, anchored = shipped_verdict(**long), shipped_verdict(**long, anchors=[anchor])
    ratios = [ranked.compiled.total_time_h / ranked.best.total_time_h for ranked in (plain, anchored)]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-4)


SMALL_BESIDE_TWO_LARGE = ["Tesla M60", "V100-SXM2-32GB", "A100-SXM4-40GB"]


def test_a_gpu_with_little_memory_is_compared_at_what_it_holds_which_is_said(compared, prices):
    rows = {row.gpu: row for row in compared(SMALL_BESIDE_TWO_LARGE, "resnet50").rows}
    small = rows.pop("Tesla M60")
    assert {row.batch_size for row in rows.values()} == {256}
    assert (small.batch_size, small.common_batch_size, small.fits_in_memory) == (64, 256, True)
    assert small.rank is not None
    cheap = (*prices, Offer("cloud", "old", "Tesla M60", 1, 0.001))
    ranked = [row.batch_size for row in compared(SMALL_BESIDE_TWO_LARGE, "resnet50", offers=cheap).rows[:2]]
    assert ranked == [256, 64]  # another training stands below the others
    only = (Offer("cloud", "old", "Tesla M60", 1, 0.001),)
    verdict = compared(SMALL_BESIDE_TWO_LARGE, "resnet50", offers=only).verdict
    assert verdict.best.gpu == "Tesla M60"
    assert "Its memory holds batch 64, where most others are compared at 256." in texts(verdict)
    assert {row.common_batch_size for row in compared(batch_sizes=64).rows} == {None}
    gpus = ["RTX 2070", "V100-SXM2-32GB", "A100-SXM4-40GB"]
    [small] = [row for row in compared(gpus, "resnet50").rows if row.gpu == find_gpu("RTX 2070").name]
    mode = {"precision": "amp_fp16", "memory_format": small.fast_memory_format}
    of_size = compared(["RTX 2070"], "resnet50", batch_sizes=small.batch_size, **mode)
    assert small.batch_size < small.common_batch_size
    assert small.fast_time_h == pytest.approx(of_size.rows[0].total_time_h)


def test_a_gpu_without_memory_or_price_is_not_rented(compared):
    verdict = compared(["T4"], "resnet50", batch_sizes=1024).verdict
    assert (verdict.best, verdict.binding) == (None, ("memory",))
    assert verdict.sentence.startswith("Does not fit: batch 1,024 needs ")
    assert compared(["H200"]).verdict.sentence.startswith("Take H200 (never measured): ")
    assert compared(["H200", "T4"], rank_by="time").verdict.fastest.gpu == "Tesla T4"


def test_trials_share_the_gpus_of_an_offer(compared):
    rows = {row.gpu: row for row in compared(trials=9, epochs=2).rows}
    for row, gpus_used, rounds in ((rows["Tesla T4"], 1, 9), (rows["NVIDIA A100-SXM4-40GB"], 8, 2)):
        assert row.gpus_used == gpus_used
        assert row.total_time_h == pytest.approx(rounds * (2 * row.epoch_time_s + row.start_s) / 3600)
    single, *several = (
        compared(EIGHT, trials=trials, n_gpus=4, batch_sizes=64).rows[0] for trials in (1, 2, 8, 9)
    )
    assert [row.gpus_used for row in (single, *several)] == [4, 8, 8, 8]
    for row, rounds in zip(several, (1, 4, 5), strict=True):
        assert row.total_time_h == pytest.approx(rounds * single.total_time_h)
        assert row.total_cost_usd == pytest.approx(rounds * single.total_cost_usd)


RUN = {"gpu": "NVIDIA H200", "cnn": "vgg_cifar", "image_size": 32, "batch_size": 128}
RUN |= {"precision": "tf32", "iteration_time_ms": 30.0}
ON_CIFAR = {"gpu": "H200", "batch_sizes": 128, "samples": None, "data_set": "cifar10"}


@pytest.mark.parametrize("cnn", ["vgg_cifar", "resnet18_cifar"])
def test_other_modes_follow_a_run_of_a_table_as_they_follow_an_anchor(cnn):
    anchor = {"gpu": "H200", "batch_size": 128, "iteration_time_ms": 30.0}
    of_anchor, of_table = (
        shipped_verdict(cnn=cnn, **ON_CIFAR, **source)
        for source in ({"anchors": [anchor]}, {"measurements": pd.DataFrame([RUN | {"cnn": cnn}])})
    )
    assert of_anchor.fast_ratio > 0.5
    assert of_table.fast_ratio == pytest.approx(of_anchor.fast_ratio)
    for name in ("best", "compiled", "compiled_fast"):
        of_both = [getattr(verdict, name).total_time_h for verdict in (of_table, of_anchor)]
        assert of_both[0] == pytest.approx(of_both[1])
    fast = RUN | {
        "precision": "amp_bf16",
        "memory_format": "channels_last",
        "iteration_time_ms": 12.0,
        "cnn": cnn,
    }
    table = pd.DataFrame([RUN | {"cnn": cnn}, fast])
    of_both_modes = shipped_verdict(cnn=cnn, **ON_CIFAR, epochs=1000, measurements=table)
    assert of_both_modes.fast_ratio == pytest.approx(12.0 / 30.0, rel=0.02)


def test_an_offer_of_several_gpus_is_judged_by_what_they_do_together(compared):
    comparison = compared(EIGHT)
    [row] = comparison.rows
    assert (row.gpus_used, row.local_batch_size, row.batch_size) == (8, 32, 256)
    assert row.total_time_h < row.one_gpu_time_h < 8 * row.total_time_h
    assert row.one_gpu_cost_usd == pytest.approx(24.0 * row.one_gpu_time_h)
    [hint] = [text for text in texts(comparison.verdict) if "train together" in text]
    assert "8 GPUs train together on 32 images each" in hint
    assert "one takes" in hint
    for options, gpus_used in (  # a mini-batch is shared evenly
        ({"samples": 10**5}, 8), ({"batch_sizes": 100}, 5), ({"batch_sizes": 96}, 8), ({"batch_sizes": 101}, 1),
    ):  # fmt: skip
        assert compared(EIGHT, **options).rows[0].gpus_used == gpus_used


def test_both_rankings_share_one_mini_batch_and_a_larger_one_that_holds_the_wishes_is_another_training(
    compared,
):
    by_cost, by_time = (compared(EIGHT, samples=10**7, rank_by=rank).rows[0] for rank in ("cost", "time"))
    assert by_cost == by_time
    deadline = {"samples": 10**7, "deadline_h": 0.8 * by_cost.total_time_h}
    for verdict in (compared(EIGHT, rank_by=rank, **deadline).verdict for rank in ("cost", "time")):
        larger = verdict.larger_batch
        assert verdict.sentence.startswith("No offer stays within ")
        assert (verdict.best.batch_size, larger.batch_size) == (256, 512)
        assert (
            f"At batch 256. Batch 512, another training, stays within: {len(EIGHT) * 8}x A100"
            in verdict.sentence
        )
        assert larger.total_time_h <= deadline["deadline_h"]
    assert compared(EIGHT, **deadline, batch_sizes=256).verdict.larger_batch is None  # the user said so
    assert compared(EIGHT, samples=10**7, deadline_h=0.001).verdict.larger_batch is None


def test_each_offer_is_judged_by_what_joins_its_own_gpus(compared):
    fast, slow = (
        Offer("cloud", link, "NVIDIA A100-SXM4-40GB", 8, 24.0, link=link) for link in ("nvlink3", "pcie3")
    )
    rows = {row.offer: row for row in compared(EIGHT, "vgg16", offers=(fast, slow), all_offers=True).rows}
    assert rows["cloud nvlink3"].link == "nvlink3"
    assert rows["cloud pcie3"].total_time_h > 1.1 * rows["cloud nvlink3"].total_time_h
    together = compared(EIGHT, "vgg16", 256, offers=(fast, slow), all_offers=True, n_gpus=8).rows
    assert [row.link for row in together] == ["nvlink3", "pcie3"]


def test_what_reads_alike_ties_and_the_cheaper_or_faster_comes_first():
    hours, usd = np.array([3.11, 3.14, 3.16, 3.20]), np.array([99.0, 85.0, 80.0, 70.0])
    fits, is_other = np.ones(4, dtype=bool), np.zeros(4, dtype=bool)
    assert ranking_order(fits, is_other, None, usd, hours, "time").tolist() == [1, 0, 3, 2]
    assert ranking_order(fits, is_other, None, hours, usd, "cost").tolist() == [1, 0, 3, 2]


def test_a_winner_that_was_never_measured_is_called_so_beside_the_best_measured_one(compared, prices):
    cheap = (*prices, Offer("cloud", "new", "NVIDIA L4", 1, 0.01))
    verdict = compared(["L4", "T4"], offers=cheap).verdict
    assert (verdict.best.gpu, verdict.measured.gpu) == ("NVIDIA L4", "Tesla T4")
    assert verdict.sentence.startswith("Rent 1x L4 at cloud new (never measured): ")
    assert "Cheapest measured: 1x T4 at cloud cheap-t4, " in verdict.sentence


def test_gpus_that_nothing_known_joins_work_one_by_one(compared, monkeypatch):
    from predictor.answers import compare as module
    from predictor.errors import SchemaError

    def unknown(*_):
        raise SchemaError("it is not known what joins them")

    monkeypatch.setattr(module, "usual_link", unknown)
    comparison = compared(EIGHT)
    assert comparison.rows[0].gpus_used == 1
    assert "1 of 8x A100-SXM4-40GB" in comparison.verdict.sentence


def test_an_answer_that_extrapolates_says_what_would_sharpen_it_most(compared):
    comparison = compared(EIGHT, epochs=50)
    assert "measure 3 minutes on this GPU" in remedy_of(comparison.rows[0].extrapolates)
    [remedy] = [note.text for note in comparison.verdict.hints if note.priority is Priority.REMEDY]
    assert remedy.startswith("To narrow the interval: measure 3 minutes on this GPU")
    short = compared(EIGHT).verdict  # minutes of measuring are not advised for minutes of training
    assert (short.measuring, [note for note in short.hints if note.priority is Priority.REMEDY]) == (None, [])
    slight, severe = Reason("batch", "x", 1.1), Reason("gpu", "y", 2.0)
    assert remedy_of(as_answered((slight, severe))) == REMEDIES["gpu"]
    assert remedy_of(as_answered((Reason("cnn", "z"),))) is None
    assert set(REMEDIES) == set(get_args(Kind))


def test_the_fastest_common_mode_follows_from_the_tensor_cores():
    modes = {"V100-SXM2-16GB": ("amp_fp16", "nchw"), "H200": ("amp_bf16", "channels_last")}
    for gpu in ("K80", "GTX 1080 Ti", "GTX 1660 Ti", *modes):  # the third is of Turing, without tensor cores
        assert fast_mode_of(find_gpu(gpu), "pytorch") == modes.get(gpu)
        assert fast_mode_of(find_gpu(gpu), "chainer") is None
