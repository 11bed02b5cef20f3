"""What holds in every comparison, tried on questions of a seed; `benchmarks/verdicts.py` asks a part of it in full."""

import math
import random
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
from verdicts import untrue_of

from predictor.answers.compare import Comparer, Comparison, compare
from predictor.answers.grid import Iterations
from predictor.answers.offers import billed_hours
from predictor.answers.question import Plan, Question
from predictor.answers.ranking import ComparisonRow, place_of, short_offer
from predictor.answers.resolved import ResolvedQuestion
from predictor.catalogue.devices import short_name
from predictor.catalogue.providers import billing_h

pytestmark = pytest.mark.slow

N_QUESTIONS = 120
_SEED = 35

_CNNS = ("vgg16", "resnet50", "mobilenet_v2")
_EPOCHS: tuple[dict[str, Any], ...] = (
    *({"data_set": name} for name in ("cifar100", "imagenet")),
    *({"samples": samples} for samples in (30_000, 3_000_000)),
)
_LISTS = (["T4", "A100-SXM4-40GB", "RTX A6000"], ["L4", "H100 SXM", "H200", "B200", "GTX 1080 Ti"])
_GPUS = (None, ["H100 SXM"], *_LISTS)


@dataclass(frozen=True)
class Compared:
    """A question with its plan and answer, and its rows on every offer as asked and in the fastest modes."""

    question: Question
    plan: Plan
    comparison: Comparison
    rows: list[ComparisonRow]
    fast: list[ComparisonRow]


@cache
def comparisons() -> tuple[Compared, ...]:
    """The questions of the seed with their answers."""
    draw = random.Random(_SEED)  # noqa: S311 - nothing to guess
    kept: dict[Any, Iterations] = {}
    made = Iterations.of

    def iterations(
        resolved: Any, table: Any, trainings: Any, sizes: Any, anchored: bool = True, shared_by: Any = None
    ) -> Iterations:
        """Those of questions that differ in plan and prices alone are kept."""
        gpus = tuple((training, tuple(gpus)) for training, gpus in trainings)
        key = (table, gpus, tuple(sizes), str(shared_by), resolved.samples, resolved.question.data_set)
        if key not in kept:
            kept[key] = made(resolved, table, trainings, sizes, anchored, shared_by)
        return replace(kept[key], resolved=resolved)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Iterations, "of", iterations)
        return tuple(_compared(draw) for _ in range(N_QUESTIONS))


def _compared(draw: random.Random) -> Compared:
    """A question whose options do not contradict each other."""
    options = dict(draw.choice(_EPOCHS))
    plan: dict[str, Any] = {"epochs": draw.choice((1, 1, 10, 90)), "rank_by": draw.choice(("cost", "time"))}
    plan["all_offers"] = draw.random() < 0.3
    if draw.random() < 0.5:
        plan["budget_usd"] = round(10 ** draw.uniform(-1, 3), 2)
    if draw.random() < 0.5:
        plan["deadline_h"] = round(10 ** draw.uniform(-1, 2), 2)
    if draw.random() < 0.2:
        plan["setup_minutes"] = 15.0
    if draw.random() < 0.2:
        options["spot"] = True
    if draw.random() < 0.15:
        options["precision"] = "fp32"
    gpus = draw.choice(_GPUS)
    share = draw.random()
    if share < 0.1:
        plan["trials"] = 6
    elif share < 0.2:
        options |= {"n_gpus": 4} | ({} if gpus is None else {"link": "nvlink3"})
    elif share < 0.25:
        options |= {"n_gpus": 8, "nodes": 2, "link": "ethernet_25g"}
    question = Question(draw.choice(_CNNS), gpus, draw.choice((None, None, 64, [32, 128, 256])), **options)
    training_plan = Plan(**plan)
    comparer = Comparer.of(ResolvedQuestion.of(question, "compare"), training_plan)
    trainings = comparer.trainings(fast=True)
    as_asked = trainings.fastest(trainings.usual)
    fast = trainings.in_fast_mode(as_asked)
    rows = (comparer.rows(trainings, places[fast >= 0]) for places in (as_asked, fast))
    return Compared(question, training_plan, compare(question, training_plan), *rows)


SAME = 1 + 1e-9


def test_a_row_is_slower_in_its_fastest_mode_only_where_kernels_host_or_start_are():
    """The GPUs and the batch size are those of the row."""
    slower = []
    for compared in comparisons():
        for row, fast in zip(compared.rows, compared.fast, strict=True):
            assert place_of(row) == place_of(fast)
            assert (row.gpus_used, row.batch_size) == (fast.gpus_used, fast.batch_size)
            parts = ("gpu_time_ms", "host_time_ms", "start_s")
            if fast.total_time_h > SAME * row.total_time_h and all(
                getattr(fast, clause) <= SAME * getattr(row, clause) for clause in parts
            ):
                slower.append((compared.question, compared.plan, row.gpu, row.offer))
    assert slower == []


def test_a_sentence_says_what_its_table_says():
    for compared in comparisons():
        verdict, rows, plan = compared.comparison.verdict, compared.comparison.rows, compared.plan
        sentence, fitting = verdict.sentence, [row for row in rows if row.fits_in_memory]
        if not fitting:
            assert sentence.startswith("Does not fit")
            continue
        best = rows[0]
        priced = [row for row in fitting if row.total_cost_usd is not None]
        assert not priced or best.total_cost_usd is not None, sentence
        held = [row for row in priced or fitting if row.holds_limits]
        head = "No offer stays within" if not held else "Rent" if priced else "Take"
        assert sentence.startswith(head), sentence
        if held:
            value = {"cost": "total_cost_usd", "time": "total_time_h"}[plan.rank_by]
            least = min(getattr(row, value) for row in held if row.batch_size == best.batch_size)
            assert not priced or least <= getattr(best, value) <= 1.02 * least, sentence
        else:
            assert missed_in(sentence) == pytest.approx(missed_by(best, plan), rel=0.06), sentence


def test_every_place_of_a_sentence_is_a_row_with_its_price_and_no_more_workers_than_vcpus():
    named = 0
    for compared in comparisons():
        verdict = compared.comparison.verdict
        chosen = [
            verdict.best,
            verdict.measured,
            verdict.cheapest,
            verdict.fastest,
            verdict.safest,
            verdict.larger_batch,
        ]
        for count, gpu, offer, usd in PLACE.findall(verdict.sentence):
            costs = [
                row.total_cost_usd
                for row in chosen
                if row
                and (row.gpus_used, short_name(row.gpu), short_offer(row.offer)) == (int(count), gpu, offer)
            ]
            assert pytest.approx(float(usd.replace(",", "")), rel=0.06) in costs, verdict.sentence
            named += 1
        for note in verdict.hints:
            for needed, what in re.findall(r"needs (\d+) (workers|vCPUs)[:,] ", note.text):
                rented = [row.vcpus for row in compared.comparison.rows if row.vcpus]
                assert what == "vCPUs" or int(needed) <= max(rented), note.text
    assert named > N_QUESTIONS


PLACE = re.compile(
    r"(\d+)(?: of \d+)?x ([^:.]+?) at ([^:,]+?)(?: \(never measured\))?[:,] [^:U]*?US\$ ([\d,.]*\d)"
)
"""GPUs that work, their name, the offer and the cost, as sentences have them."""


def missed_in(sentence):
    """How many times each limit the nearest offer takes, as the sentence has it: ``12 % over the budget``."""
    misses = re.findall(r"(?:([\d,.]+) times|(\d+) % over|(under 1 %) over) the (budget|deadline)", sentence)
    return {
        name: float(times.replace(",", "")) if times else 1 + float(share or 0) / 100
        for times, share, _, name in misses
    }


def missed_by(row, plan):
    """How many times each limit that it misses a row takes, as far as its price is known."""
    ratios = {
        "budget": (row.total_cost_usd or 0.0) / (plan.budget_usd or math.inf),
        "deadline": row.total_time_h / (plan.deadline_h or math.inf),
    }
    return {name: ratio for name, ratio in ratios.items() if ratio > 1}


COSTS = {"cost_usd": "epoch_time_s", "cost_low_usd": "epoch_low_s", "cost_high_usd": "epoch_high_s"}
COSTS |= {f"{name}_usd": f"{name}_h" for name in ("total_low", "total_high")}
COSTS |= {f"{name}_cost_usd": f"{name}_time_h" for name in ("total", "one_gpu", "fast")}


def test_no_cost_differs_from_its_own_time_at_its_own_price():
    for compared in comparisons():
        for row in compared.comparison.rows:
            for cost, time in COSTS.items():
                usd, lasts = getattr(row, cost), getattr(row, time)
                if row.usd_per_hour is None or lasts is None:
                    assert usd is None, (compared.question, compared.plan, row.gpu, cost)
                else:
                    billing = billing_h(row.offer.split()[0])
                    hours = lasts / 3600 if time.endswith("_s") else billed_hours(lasts, *billing)
                    own = float(hours) * row.usd_per_hour
                    assert usd == pytest.approx(own, rel=1e-9), (compared.question, row.gpu, cost)


def test_no_verdict_or_rank_of_seeded_questions_is_untrue():
    assert untrue_of(15, seed=2) == {}
