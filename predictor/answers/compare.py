"""Which GPU to rent: predictions as time and money for a whole training, ranked, with the Pareto front marked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from predictor.answers.predict import PredictionRow, offers_of, predict
from predictor.answers.question import gpus_of, load_model
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.offers import Offer, cheapest_offer
from predictor.checks import positive_number, texts_of, whole_number
from predictor.errors import SchemaError

__all__ = ["RANKINGS", "ComparisonRow", "compare", "mark_pareto", "pareto_front", "ranked"]

RANKINGS = ("cost", "time")
"""What rows can be ranked by: `total_cost_usd` or `total_time_h`."""


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """One way to train: a GPU at its best batch size, on an offer. None where there is no offer or wish.

    `cost_usd` is one epoch; `total_time_h` and `total_cost_usd` are all epochs plus the set-up time. `rank`
    is None where the training does not fit in memory. `pareto`: nothing that fits is as fast and as cheap and
    better in one of the two. `speedup` and `cost_ratio` compare with `relative_to`: 2 is twice as fast, or
    twice as dear.
    """

    rank: int | None
    gpu: str
    batch_size: int
    offer: str
    region: str | None
    offer_gpu_count: float | None
    gpus_used: int
    usd_per_hour: float | None
    priced_on: str | None
    cnn: str
    image_size: int
    precision: str
    memory_format: str
    framework: str
    iteration_time_ms: float
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


@dataclass(frozen=True, slots=True)
class _Plan:
    """The checked wishes of one comparison."""

    epochs: int
    setup_h: float
    budget_usd: float | None
    deadline_h: float | None
    spot: bool


def compare(
    cnn: object,
    batch_sizes: int | str | Iterable[object],
    gpus: object = None,
    *,
    epochs: int = 1,
    budget_usd: float | None = None,
    deadline_h: float | None = None,
    setup_minutes: float = 0.0,
    relative_to: str | None = None,
    rank_by: str = "cost",
    all_offers: bool = False,
    offers: str | PathLike[str] | Sequence[Offer] | None = None,
    spot: bool = False,
    **question: Any,
) -> list[ComparisonRow]:
    """Time and cost of training on every GPU, ranked.

    Parameters
    ----------
    cnn, batch_sizes
        One CNN, and batch sizes as for `predict`; each GPU keeps its best, the smallest within 5 %.
    gpus : str, Gpu, or a list of them, optional
        Every GPU that an offer has and that trains in the precision, if not given.
    epochs : int
        Epochs to train, >= 1.
    budget_usd, deadline_h : float, optional
        What the whole training may cost and how many hours it may take; rows are marked, not dropped.
    setup_minutes : float
        Minutes of the rented instance before training starts; billed.
    relative_to : str, optional
        GPU that the others are compared with.
    rank_by : {"cost", "time"}
    all_offers : bool
        A row for each offer instead of the cheapest of each GPU.
    offers, spot
        Prices, as for `predict`.
    **question
        Everything else of `predict`; one of samples and data_set is needed.

    Returns
    -------
    list of ComparisonRow
        Best first; ranked by cost, rows without a price follow those with one; what does not fit in memory
        comes last. Cost is the whole instance x time. Historic offers never appear.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense.
    """
    _check(cnn, question, rank_by)
    plan = _plan(epochs, setup_minutes, budget_usd, deadline_h, spot)
    prices = offers_of(offers)
    question = {**question, "model": load_model(question.get("model")), "offers": prices, "spot": spot}
    chosen = _offered_gpus(prices, str(question.get("precision", "fp32"))) if gpus is None else gpus
    rows = [
        _row(prediction, offer, plan)
        for prediction in _best_of_each_gpu(predict(cnn, chosen, batch_sizes, **question))
        for offer in _offers_for(prices, prediction.gpu, spot, all_offers)
    ]
    if relative_to is not None:
        at_reference = _best_of_each_gpu(predict(cnn, find_gpu(relative_to), batch_sizes, **question))[0]
        reference = _row(at_reference, cheapest_offer(prices, at_reference.gpu, 1, spot), plan)
        rows = [_relative(row, reference) for row in rows]
    return ranked(mark_pareto(rows), rank_by)


def _check(cnn: object, question: dict[str, Any], rank_by: str) -> None:
    if len(texts_of(cnn)) != 1:
        raise SchemaError("compare ranks GPUs for one CNN. Ask once for each CNN.")
    if question.get("samples") is None and question.get("data_set") is None:
        raise SchemaError(
            "compare needs the samples of an epoch. Pass samples, or a data set such as 'imagenet'."
        )
    if rank_by not in RANKINGS:
        raise SchemaError(f"rank_by {rank_by!r} is not known. Known: {', '.join(RANKINGS)}.")


def _plan(epochs: object, setup_minutes: object, budget_usd: object, deadline_h: object, spot: bool) -> _Plan:
    return _Plan(
        epochs=whole_number("epochs", epochs, high=1_000_000),
        setup_h=positive_number("setup_minutes", setup_minutes) / 60.0 if setup_minutes else 0.0,
        budget_usd=None if budget_usd is None else positive_number("budget_usd", budget_usd),
        deadline_h=None if deadline_h is None else positive_number("deadline_h", deadline_h),
        spot=spot,
    )


def _offered_gpus(prices: Sequence[Offer], precision: str) -> list[object]:
    """Collect the GPUs of today's offers that have the precision, in the catalogue's order."""
    offered = {offer.gpu for offer in prices if not offer.historic}
    return [gpu for gpu in gpus_of("all", precision) if gpu.name in offered]


def _best_of_each_gpu(predictions: list[PredictionRow]) -> list[PredictionRow]:
    """Keep the recommended batch size of each GPU; where none fits, the one that needs least memory."""
    by_gpu: dict[str, list[PredictionRow]] = {}
    for row in predictions:
        by_gpu.setdefault(row.gpu, []).append(row)
    return [next((row for row in rows if row.best_batch), rows[0]) for rows in by_gpu.values()]


def _offers_for(prices: Sequence[Offer], gpu: str, spot: bool, all_offers: bool) -> list[Offer | None]:
    """Find the offers that make a row for this GPU; one None if there is none."""
    if not all_offers:
        return [cheapest_offer(prices, gpu, 1, spot)]
    found: list[Offer | None] = [
        offer
        for offer in prices
        if offer.gpu == gpu
        and not offer.historic
        and offer.gpu_count >= 1
        and _hourly(offer, spot) is not None
    ]
    return found or [None]


def _hourly(offer: Offer, spot: bool) -> float | None:
    return offer.spot_usd_per_hour if spot else offer.usd_per_hour


def _row(prediction: PredictionRow, offer: Offer | None, plan: _Plan) -> ComparisonRow:
    epoch_s = prediction.epoch_time_s
    if epoch_s is None:
        raise SchemaError("compare needs epoch times. Pass samples, or a data set such as 'imagenet'.")
    per_hour = _hourly(offer, plan.spot) if offer else None
    total_h = plan.epochs * epoch_s / 3600.0 + plan.setup_h
    total_usd = None if per_hour is None else total_h * per_hour
    return ComparisonRow(
        rank=None,
        gpu=prediction.gpu,
        batch_size=prediction.batch_size,
        offer=f"{offer.provider} {offer.instance}" if offer else "no offer",
        region=offer.region if offer else None,
        offer_gpu_count=offer.gpu_count if offer else None,
        gpus_used=prediction.gpus_used,
        usd_per_hour=per_hour,
        priced_on=str(offer.retrieved_on) if offer and offer.retrieved_on else None,
        cnn=prediction.cnn,
        image_size=prediction.image_size,
        precision=prediction.precision,
        memory_format=prediction.memory_format,
        framework=prediction.framework,
        iteration_time_ms=prediction.iteration_time_ms,
        epoch_time_s=epoch_s,
        epoch_low_s=prediction.epoch_low_s,
        epoch_high_s=prediction.epoch_high_s,
        cost_usd=None if per_hour is None else epoch_s * per_hour / 3600.0,
        epochs=plan.epochs,
        total_time_h=total_h,
        total_cost_usd=total_usd,
        pareto=False,
        within_budget=None if None in (total_usd, plan.budget_usd) else bool(total_usd <= plan.budget_usd),  # type: ignore[operator]
        within_deadline=None if plan.deadline_h is None else total_h <= plan.deadline_h,
        speedup=None,
        cost_ratio=None,
        peak_memory_gib=prediction.peak_memory_gib,
        fits_in_memory=prediction.fits_in_memory,
        memory_estimate_validated=prediction.memory_estimate_validated,
        host=prediction.host,
        method=prediction.method,
        trained_on=prediction.trained_on,
        extrapolates=prediction.extrapolates,
    )


def _relative(row: ComparisonRow, reference: ComparisonRow) -> ComparisonRow:
    both = row.total_cost_usd is not None and reference.total_cost_usd
    return replace(
        row,
        speedup=reference.total_time_h / row.total_time_h,
        cost_ratio=(row.total_cost_usd or 0.0) / (reference.total_cost_usd or math.nan) if both else None,
    )
