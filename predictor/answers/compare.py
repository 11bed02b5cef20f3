"""Which GPU to rent: predictions as time and money for a whole training, ranked, with the Pareto front marked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from predictor.answers.predict import COLUMNS, Answer, answer
from predictor.answers.question import Plan, Question, gpus_of
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.offers import Offer, cheapest_offers, hourly_usd, offers_for
from predictor.checks import as_list
from predictor.errors import SchemaError

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Comparison",
    "ComparisonRow",
    "compare",
    "mark_pareto",
    "pareto_front",
    "ranked",
]


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One GPU at its best batch size on one offer. Fields are None without an offer, a budget or a deadline.

    `cost_usd` is one epoch; `total_time_h` and `total_cost_usd` are all epochs plus the set-up time. `rank` is None
    where the training does not fit in memory. `pareto`: no other row that fits is as fast and as cheap and better in
    one of the two. `speedup` and `cost_ratio` compare with `relative_to`: 2 is twice as fast, or twice as expensive.
    """

    rank: int | None
    gpu: str
    batch_size: int
    offer: str
    region: str | None
    offer_gpu_count: float | None
    gpus_used: int
    nodes: int
    link: str | None
    local_batch_size: int
    added_ms: float
    scaling_efficiency: float
    usd_per_hour: float | None
    priced_on: str | None
    cnn: str
    image_size: int
    precision: str
    memory_format: str
    framework: str
    iteration_time_ms: float
    low_ms: float
    high_ms: float
    gpu_time_ms: float
    gpu_low_ms: float
    gpu_high_ms: float
    epoch_time_s: float
    epoch_low_s: float | None
    epoch_high_s: float | None
    cost_usd: float | None
    epochs: int
    total_time_h: float
    total_cost_usd: float | None
    pareto: bool
    within_budget: bool | None
    within_deadline: bool | None
    speedup: float | None
    cost_ratio: float | None
    peak_memory_gib: float
    fits_in_memory: bool
    memory_estimate_validated: bool
    host: str
    method: str
    trained_on: str
    extrapolates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows, best first; `scope` is a paragraph on what they include and exclude."""

    rows: list[ComparisonRow]
    scope: str

    def frame(self) -> pd.DataFrame:
        """A data frame; ``attrs["covers"]`` is the scope."""
        import pandas as pd

        names = [each.name for each in fields(ComparisonRow)]
        frame = pd.DataFrame([asdict(row) for row in self.rows], columns=names)
        frame.attrs["covers"] = self.scope
        return frame


def compare(question: Question, plan: Plan | None = None) -> Comparison:
    """Time and cost of training one CNN on every GPU, ranked.

    Parameters
    ----------
    question : Question
        One CNN; each GPU keeps its best batch size, the smallest within 5 %. With `gpus` None: every GPU that an offer
        has and that trains in the precision. `samples` or `data_set` is needed.
    plan : Plan, optional
        One epoch by default.

    Returns
    -------
    Comparison
        Ranked by cost, rows without a price follow those with one; what does not fit in memory comes last. Cost is
        the whole instance x time. Historic offers never appear.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense.
    """
    plan = plan or Plan()
    if len(as_list(question.cnn)) != 1:
        raise SchemaError("compare ranks GPUs for one CNN. Ask once for each CNN.")
    if question.epoch_samples() is None:
        raise SchemaError(
            "compare needs the samples of an epoch. Pass samples, or a data set such as 'imagenet'."
        )
    prices = question.prices()
    cheapest = cheapest_offers(prices, question.spot, question.gpus_per_node)

    def offers_of(gpu: str) -> list[Offer | None]:
        """The offers that make a row for this GPU; one None if there is none."""
        if not plan.all_offers:
            return [cheapest.get(gpu)]
        return [*offers_for(prices, gpu, question.gpus_per_node, spot=question.spot)] or [None]

    question = replace(question, offers=prices, gpus=_offered(question, prices))
    found = answer(question)
    rows = [
        _row(row, offer, plan, question.spot)
        for row in _best_of_each_gpu(found)
        for offer in offers_of(row["gpu"])
    ]
    if plan.relative_to is not None:
        best = _best_of_each_gpu(answer(replace(question, gpus=find_gpu(plan.relative_to))))[0]
        reference = _row(best, cheapest.get(best["gpu"]), plan, question.spot)
        rows = [_relative(row, reference) for row in rows]
    return Comparison(ranked(mark_pareto(rows), plan.rank_by), found.scope)


def mark_pareto(rows: list[ComparisonRow]) -> list[ComparisonRow]:
    """Mark the front among rows that fit and have a price."""
    candidates = [i for i, row in enumerate(rows) if row.fits_in_memory and row.total_cost_usd is not None]
    points = [(rows[i].total_time_h, rows[i].total_cost_usd or 0.0) for i in candidates]
    on_front = {i for i, front in zip(candidates, pareto_front(points), strict=True) if front}
    return [replace(row, pareto=i in on_front) for i, row in enumerate(rows)]


def ranked(rows: list[ComparisonRow], rank_by: str) -> list[ComparisonRow]:
    """Order by cost or time, what does not fit last, and number what fits."""

    def key(row: ComparisonRow) -> tuple[bool, float, float]:
        cost = math.inf if row.total_cost_usd is None else row.total_cost_usd
        numbers = (cost, row.total_time_h) if rank_by == "cost" else (row.total_time_h, cost)
        return (not row.fits_in_memory, *numbers)

    ordered = sorted(rows, key=key)
    return [replace(row, rank=i + 1 if row.fits_in_memory else None) for i, row in enumerate(ordered)]


def pareto_front(points: Sequence[tuple[float, float]]) -> list[bool]:
    """For each (time, cost), whether no other point is at least as good in both and better in one."""
    return [
        not any(other[0] <= point[0] and other[1] <= point[1] and other != point for other in points)
        for point in points
    ]


def _offered(question: Question, prices: Sequence[Offer]) -> object:
    """The GPUs asked for; by default those of today's offers that have the precision, in the catalogue's order."""
    if question.gpus is not None:
        return question.gpus
    n = question.gpus_per_node
    offered = {offer.gpu for offer in prices if not offer.historic and (n == 1 or offer.gpu_count >= n)}
    return [gpu for gpu in gpus_of("all", question.precision) if gpu.name in offered]


def _best_of_each_gpu(found: Answer) -> list[dict[str, Any]]:
    """Keep the recommended batch size of each GPU; where none fits, the one that needs least memory."""
    by_gpu: dict[str, list[dict[str, Any]]] = {}
    for row in found.records():
        by_gpu.setdefault(row["gpu"], []).append(row)
    return [next((row for row in rows if row["best_batch"]), rows[0]) for rows in by_gpu.values()]


def _row(found: dict[str, Any], offer: Offer | None, plan: Plan, spot: bool) -> ComparisonRow:
    per_hour = found["nodes"] * hourly_usd(offer, spot) if offer else None
    total_h = plan.epochs * found["epoch_time_s"] / 3600.0 + plan.setup_h
    total_usd = None if per_hour is None else total_h * per_hour
    return ComparisonRow(
        **{name: found[name] for name in _PREDICTED},
        rank=None,
        offer=f"{offer.provider} {offer.instance}" if offer else "no offer",
        region=offer.region if offer else None,
        offer_gpu_count=offer.gpu_count if offer else None,
        usd_per_hour=per_hour,
        priced_on=str(offer.retrieved_on) if offer and offer.retrieved_on else None,
        cost_usd=None if per_hour is None else found["epoch_time_s"] * per_hour / 3600.0,
        epochs=plan.epochs,
        total_time_h=total_h,
        total_cost_usd=total_usd,
        pareto=False,
        within_budget=_within(total_usd, plan.budget_usd),
        within_deadline=_within(total_h, plan.deadline_h),
        speedup=None,
        cost_ratio=None,
    )


_OF_OFFER = ("offer", "offer_gpu_count", "priced_on", "cost_usd")
_PREDICTED = [
    each.name for each in fields(ComparisonRow) if each.name in COLUMNS and each.name not in _OF_OFFER
]


def _within(value: float | None, limit: float | None) -> bool | None:
    return None if value is None or limit is None else value <= limit


def _relative(row: ComparisonRow, reference: ComparisonRow) -> ComparisonRow:
    both = row.total_cost_usd is not None and reference.total_cost_usd
    return replace(
        row,
        speedup=reference.total_time_h / row.total_time_h,
        cost_ratio=(row.total_cost_usd or 0.0) / (reference.total_cost_usd or math.nan) if both else None,
    )
