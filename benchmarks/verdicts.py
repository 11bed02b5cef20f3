"""Is every verdict true? Seeded questions against a plain loop over all offers and numbers of their GPUs.

The loop asks `predict` for each offer with each number of its GPUs at the batch size that a verdict names, and takes
the least: it shares no code with the ranking. Prints every untrue word, and ends with 1 if there is one.

    python benchmarks/verdicts.py [--questions 500] [--seed 1]
"""

from __future__ import annotations

import argparse
import math
import random
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from predictor.answers.answer import answer
from predictor.answers.compare import Comparison, compare
from predictor.answers.offers import billed_hours, paid_hours
from predictor.answers.question import Plan, Question
from predictor.answers.ranking import chance_within
from predictor.answers.resolved import LeftOutWarning, ResolvedQuestion
from predictor.catalogue.offers import Offer, hourly_usd
from predictor.catalogue.providers import billing_h

ALIKE = 1.02 * (1 + 1e-9)
"""Times the least of a time or cost that a verdict may call so: what reads the same to two digits within 2 %."""

_TRAININGS: tuple[dict[str, Any], ...] = (
    {"cnn": "resnet50", "data_set": "imagenet"},
    {"cnn": "vgg16", "data_set": "imagenet"},
    {"cnn": "mobilenet_v2", "data_set": "imagenet", "loader": "none"},
    {"cnn": "efficientnet_b0", "data_set": "imagenet"},
    {"cnn": "resnet18_cifar", "data_set": "cifar10"},
    {"cnn": "densenet121", "samples": 200_000},
)
_MODES: tuple[dict[str, Any], ...] = ({}, {}, {"precision": "fp32"}, {"spot": True}, {"marketplaces": True})
_BATCHES = (None, None, None, 96, 256, [64, 256])
_GPUS = (*[None] * 4, ("T4", "Tesla M60", "A100-SXM4-40GB", "L4"), ("H100 SXM", "RTX 3090", "GTX 1080 Ti"))


@dataclass(frozen=True)
class Drawn:
    """A question: its training and GPUs, its batch sizes, and its wishes."""

    training: tuple[tuple[str, Any], ...]
    gpus: tuple[str, ...] | None
    batch_sizes: tuple[int, ...] | None
    plan: Plan

    def as_read(self) -> Question:
        """As the product reads it."""
        options = dict(self.training)
        return Question(options.pop("cnn"), self.gpus and list(self.gpus), self.batch_sizes, **options)


@dataclass(frozen=True, slots=True)
class Choice:
    """An offer with a number of its GPUs at a batch size: hours and US$ of the plan, and the ends of their interval."""

    gpu: str
    offer: str
    n_gpus: int
    batch_size: int
    hours: float
    low_h: float
    high_h: float
    usd: float
    usd_per_hour: float
    fits: bool
    is_sure: bool

    def miss(self, plan: Plan) -> float:
        """Share by which the limit missed most is missed; 0 or below where both hold."""
        over_deadline = self.hours / (plan.deadline_h or math.inf)
        return max(over_deadline, self.usd / (plan.budget_usd or math.inf)) - 1

    def chance(self, plan: Plan) -> float:
        """Probability that budget and deadline hold."""
        paid_h = paid_hours(
            (plan.budget_usd or math.inf) / self.usd_per_hour, *billing_h(self.offer.split()[0])
        )
        limit_h = min(plan.deadline_h or math.inf, float(paid_h))
        setup_h = plan.setup_minutes / 60
        hours = (limit_h, self.hours, self.low_h, self.high_h)
        return float(chance_within(*(own_h - setup_h for own_h in hours)))


@cache
def offers_of(training: tuple[tuple[str, Any], ...], gpus: tuple[str, ...] | None) -> list[list[Offer]]:
    """Offers of a question in layers: each layer has at most one of each GPU, so that one call answers for all."""
    options = dict(training)
    question = Question(options.pop("cnn"), gpus and list(gpus), 64, **options)
    resolved = ResolvedQuestion.of(question, "compare")
    names, layers = {gpu.name for gpu, _ in resolved.devices}, list[list[Offer]]()
    for offer in resolved.prices:
        is_rented = not offer.historic and hourly_usd(offer, resolved.question.spot) < math.inf
        if offer.gpu in names and offer.gpu_count >= 1 and is_rented:
            free = (layer for layer in layers if all(kept.gpu != offer.gpu for kept in layer))
            layer = next(free, None)
            if layer is None:
                layers.append(layer := [])
            layer.append(offer)
    return layers


@cache
def epochs_of(
    training: tuple[tuple[str, Any], ...], gpus: tuple[str, ...] | None, batch_size: int
) -> list[tuple[Any, float, str]]:
    """`predict`'s row of each offer with each number of its GPUs that shares the mini-batch, its price and its name."""
    options = dict(training)
    cnn = options.pop("cnn")
    options |= {"marketplaces": True}
    if options.get("data_set") == "imagenet":
        options = {"loader": "torchvision"} | options
    rows = []
    for layer in offers_of(training, gpus):
        for n in range(1, int(max(offer.gpu_count for offer in layer)) + 1):
            enough = [offer for offer in layer if offer.gpu_count >= n] if batch_size % n == 0 else []
            if enough:
                names = [offer.gpu for offer in enough]
                question = Question(cnn, names, batch_size, n_gpus=n, offers=enough, **options)
                for offer, row in zip(enough, answer(question).rows(), strict=True):
                    usd = hourly_usd(offer, options.get("spot", False))
                    rows.append((row, usd, f"{offer.provider} {offer.instance}"))
    return rows


def choices_of(query: Drawn, batch_size: int) -> list[Choice]:
    """Every offer with every number of its GPUs, as the plan has them."""
    plan = query.plan
    choices = []
    for row, usd, offer in epochs_of(query.training, query.gpus, batch_size):
        starts = (row.start_s, row.start_low_s, row.start_high_s)
        epochs = (row.epoch_time_s, row.epoch_low_s, row.epoch_high_s)
        hours = [
            (plan.epochs * epoch_s + (start_s or 0.0)) / 3600 + plan.setup_minutes / 60
            for epoch_s, start_s in zip(epochs, starts, strict=True)
        ]
        bill = float(billed_hours(hours[0], *billing_h(offer.split()[0]))) * usd, usd
        answers = row.fits_in_memory, not row.extrapolates
        choices.append(Choice(row.gpu, offer, row.gpus_used, batch_size, *hours, *bill, *answers))
    return choices


def drawn(draw: random.Random) -> Drawn:
    """A question; wishes are drawn near what trainings take, so that they decide."""
    training = dict(draw.choice(_TRAININGS)) | draw.choice(_MODES)
    wishes: dict[str, Any] = {"epochs": draw.choice((1, 10, 90)), "rank_by": draw.choice(("cost", "time"))}
    if draw.random() < 0.5:
        wishes["budget_usd"] = round(10 ** draw.uniform(-1, 2.7), 2)
    if draw.random() < 0.5:
        wishes["deadline_h"] = round(10 ** draw.uniform(-1.5, 1.7), 2)
    if draw.random() < 0.1:
        wishes["setup_minutes"] = 15.0
    wishes["all_offers"] = draw.random() < 0.2
    batch, gpus = draw.choice(_BATCHES), draw.choice(_GPUS)
    sizes = None if batch is None else (batch,) if isinstance(batch, int) else tuple(batch)
    return Drawn(tuple(training.items()), gpus, sizes, Plan(**wishes))


_ROLE = re.compile(r"(Fastest|Cheapest|Safest|Best)( measured)?((?: that fits| for rent| within [^:]+)*): ")


def untrue(query: Drawn) -> Iterator[str]:
    """What is untrue of the verdict and the ranks of a question."""
    plan, comparison = query.plan, compare(query.as_read(), query.plan)
    verdict, rows = comparison.verdict, comparison.rows
    if verdict.best is None:
        every = choices_of(query, rows[0].batch_size)
        yield from ["'Does not fit'"] * any(choice.fits for choice in every)
        return
    sizes = query.batch_sizes or (verdict.best.batch_size,)
    choices = [choice for size in sizes for choice in choices_of(query, size)]
    fitting = [choice for choice in choices if choice.fits]
    holding = [choice for choice in fitting if choice.miss(plan) <= 0]
    by_cost = plan.rank_by == "cost"

    def least(chosen: Any, candidates: Sequence[Choice], cost: bool) -> bool:
        value = chosen.total_cost_usd if cost else chosen.total_time_h
        values = [choice.usd if cost else choice.hours for choice in candidates]
        return value is not None and value <= ALIKE * min(values)

    if not fitting:
        is_rented = verdict.best.total_cost_usd is not None
        yield from ["nothing for rent fits, and something is rented"] * is_rented
        return
    if verdict.sentence.startswith("No offer stays within"):
        yield from ["'No offer stays within'"] * bool(holding)
        nearest = min(choice.miss(plan) for choice in fitting)
        yield from ["'nearest'"] * (not holding and (verdict.misses_by or 0.0) > nearest * (1 + 1e-9) + 1e-9)
        yield from _untrue_larger(query, verdict)
    else:
        yield from ["what is rented misses the wishes"] * (not holding)
        yield from ["'Rent'"] * (bool(holding) and not least(verdict.best, holding, by_cost))
    for role, measured, within in _ROLE.findall(verdict.sentence):
        chosen = verdict.measured if measured else getattr(verdict, role.lower())
        candidates = [choice for choice in choices if choice.fits or "that fits" not in within]
        candidates = [choice for choice in candidates if choice.miss(plan) <= 0 or "within" not in within]
        candidates = [choice for choice in candidates if (choice.is_sure and choice.fits) or not measured]
        if role == "Safest":
            likeliest = max(choice.chance(plan) for choice in candidates)
            yield from [f"'{role}{within}'"] * (chosen.chance < min(0.99, likeliest) - 1e-9)
        else:
            cost = by_cost if role == "Best" else role == "Cheapest"
            holds = bool(candidates) and least(chosen, candidates, cost)
            yield from [f"'{role}{measured}{within}'"] * (not holds)
    yield from _untrue_ranks(query, comparison, fitting)
    yield from _disagreement(query, comparison)


def _untrue_larger(query: Drawn, verdict: Any) -> Iterator[str]:
    """The larger mini-batch is the smallest power of two, among those tried, that holds the wishes."""
    larger = getattr(verdict, "larger_batch", None)
    if query.batch_sizes is None:
        size = 2 * verdict.best.batch_size
        while size <= (larger.batch_size if larger else 4096):
            holds = any(choice.fits and choice.miss(query.plan) <= 0 for choice in choices_of(query, size))
            if holds or (larger and size == larger.batch_size):
                yield from [f"'Batch {size}'"] * (not holds or larger is None or larger.batch_size != size)
                return
            size *= 2


def _untrue_ranks(query: Drawn, comparison: Comparison, fitting: Sequence[Choice]) -> Iterator[str]:
    """Each GPU's row is its best offer and number of GPUs, and no row ranks above a better one."""
    plan, by_cost = query.plan, query.plan.rank_by == "cost"
    sizes = {choice.batch_size for choice in fitting}

    def key(hours: float, usd: float, miss: float) -> tuple[float, float]:
        return (max(0.0, miss), usd if by_cost else hours)

    keys = []
    for row in comparison.rows:
        if row.rank is None or row.total_cost_usd is None or row.batch_size not in sizes:
            continue
        keys.append(key(row.total_time_h, row.total_cost_usd, row.misses_by or 0.0))
        own_choices = [choice for choice in fitting if choice.gpu == row.gpu]
        if plan.all_offers:  # some are alike but for their region and price
            offer = row.offer, row.usd_per_hour
            own_choices = [choice for choice in own_choices if (choice.offer, choice.usd_per_hour) == offer]
        own_keys = [key(choice.hours, choice.usd, choice.miss(plan)) for choice in own_choices]
        best = min(own_keys, default=(math.inf, 0.0))
        if keys[-1][0] > best[0] * (1 + 1e-9) or (keys[-1][0] <= best[0] and keys[-1][1] > ALIKE * best[1]):
            yield f"the row of {row.gpu}"
    for above, below in pairwise(keys):
        if above[0] > below[0] * (1 + 1e-9) or (above[0] == below[0] and above[1] > ALIKE * below[1]):
            yield "a rank"
            return


def _disagreement(query: Drawn, comparison: Comparison) -> Iterator[str]:
    """Both rankings find the same offers within the wishes, and the same fastest and cheapest."""
    other_rank = "time" if query.plan.rank_by == "cost" else "cost"
    reverse = compare(query.as_read(), replace(query.plan, rank_by=other_rank))
    pair = comparison.verdict, reverse.verdict
    if pair[0].holds_wishes != pair[1].holds_wishes:
        yield "the rankings by cost and by time: whether an offer holds the wishes"
    for role, value in (("fastest", "total_time_h"), ("cheapest", "total_cost_usd")):
        values = [getattr(getattr(verdict, role), value) for verdict in pair if getattr(verdict, role)]
        if len(values) == 2 and max(values) > ALIKE * min(values):
            yield f"the rankings by cost and by time: the {role}"


def untrue_of(n_questions: int, seed: int) -> dict[str, list[str]]:
    """What is untrue, by question."""
    draw = random.Random(seed)  # noqa: S311 - nothing to guess
    results = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LeftOutWarning)
        for number in range(n_questions):
            query = drawn(draw)
            if faults := list(untrue(query)):
                words = f"{number}: {dict(query.training)} {query.gpus} {query.batch_sizes} {query.plan}"
                results[words] = faults
    return results


def main() -> int:
    """Print what is untrue."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    results = untrue_of(arguments.questions, arguments.seed)
    for question, faults in results.items():
        print(f"{', '.join(dict.fromkeys(faults))} | {question}")
    print(f"{arguments.questions} questions, {len(results)} verdicts with something untrue")
    return 1 if results else 0


if __name__ == "__main__":
    sys.exit(main())
