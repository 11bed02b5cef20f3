"""Whether the advice to measure first pays: regret really paid with and without it, on measurements that no fit saw.

`python benchmarks/measuring.py` asks which GPU trains a CNN cheapest, where each was measured: PROFET's CNNs on four
GPUs, predicted with the CNN or the GPU held out ($EPOCHCAST_PUBLISHED_DATA; refits take minutes), and published
trainings of one source on several GPUs (datasets/claims.csv). Prices are drawn around the offers', and the hours of the
training between 1 and 300, with one seed.
"""

import argparse
import math
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from claims import asked_claims, claims
from machine import machine

import epochcast.measured
from predictor.answers.measuring import MINUTES, choices_after, expected_regrets
from predictor.catalogue.offers import cheapest_offers, load_offers

SCENARIOS = ("unseen-cnn", "unseen-gpu-specs")
_CELL = ["scenario", "cnn", "image_size", "batch_size", "precision"]
_TIMES = ["measured", "predicted", "low", "high"]
_PRICES = 0.4  # standard deviation of ln price
_HOURS = (1.0, 300.0)
_HISTORIC_USD = {"Tesla K80": 0.9, "Tesla M60": 0.75}  # of AWS, if no offer has the GPU


class Paid(NamedTuple):
    """Regret of a question in US$: expected, and paid without, with the advice, and with a measurement in any case."""

    data: str
    cost: float
    advised: bool
    expected: float
    without: float
    with_advice: float
    always: float


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--questions", type=int, default=1000, help="of each data")
    parser.add_argument(
        "--predictions", type=Path, help="predictions.csv of `epochcast evaluate`, instead of refits"
    )
    options = parser.parse_args(arguments)
    found = pd.DataFrame(
        [
            paid
            for data, cells in cells_of(options.predictions).items()
            for paid in questions(data, cells, options.questions)
        ]
    )
    print(f"regret of renting | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    print(summary(found).to_string(float_format="%.2f"))
    return 0


def cells_of(predictions: Path | None) -> dict[str, list[pd.DataFrame]]:
    """By data the trainings, each with its GPUs: `gpu`, `measured`, `predicted`, `low`, `high`."""
    if predictions is None:
        rows = epochcast.measured.evaluation(None, None, list(SCENARIOS), ["roofline"], 0, 1).predictions
    else:
        rows = pd.read_csv(predictions)
    rows = rows[rows["gpu"].str.startswith("Tesla") & rows["scenario"].isin(SCENARIOS)]
    by_data: dict[str, list[pd.DataFrame]] = {}
    for key, cell in rows.groupby(_CELL):
        cell = cell.groupby("gpu", as_index=False)[_TIMES].median()
        if len(cell) >= 3:
            by_data.setdefault(f"PROFET, {key[0]}", []).append(cell)
    asked = asked_claims([row for row in claims() if row["n_gpus"] in ("", "1")])
    asked[_TIMES] = asked[_TIMES].div(asked["n_images"], axis=0)
    for _, cell in asked.groupby(["group", "cnn", "framework", "precision", "memory_format", "images"]):
        cell = cell.groupby("gpu", as_index=False)[_TIMES].median()
        if len(cell) >= 2:
            by_data.setdefault("claims", []).append(cell)
    return by_data


def questions(data: str, cells: list[pd.DataFrame], n: int) -> Iterator[Paid]:
    """Questions of these cells with drawn prices and hours."""
    random = np.random.default_rng(1)
    offers = cheapest_offers(load_offers())
    for _ in range(n):
        cell = cells[random.integers(len(cells))]
        usual = [
            offers[gpu].usd_per_hour if gpu in offers else _HISTORIC_USD.get(gpu, math.nan)
            for gpu in cell["gpu"]
        ]
        per_hour = np.array(usual) * np.exp(_PRICES * random.standard_normal(len(cell)))
        known = np.isfinite(per_hour)
        hours = math.exp(random.uniform(*map(math.log, _HOURS)))
        if known.sum() >= 2:
            yield paid(data, cell[known], per_hour[known], hours)


def paid(data: str, cell: pd.DataFrame, per_hour: np.ndarray, hours: float) -> Paid:
    """What a question costs more than the cheapest GPU, by what is done first."""
    times, truths = cell["predicted"].to_numpy(), cell["measured"].to_numpy()
    hours_of_unit = hours / times.min()
    order = np.argsort(times * per_hour)
    times, truths, per_hour = times[order], truths[order], per_hour[order]
    spread = np.log((cell["high"] / cell["low"]).to_numpy()[order]) / (2 * 1.645)
    cost, true_cost = times * per_hour * hours_of_unit, truths * per_hour * hours_of_unit
    price = MINUTES / 60 * per_hour[0]
    now, after = expected_regrets(cost, spread)
    [chosen] = choices_after(cost, spread, np.array([math.log(truths[0] / times[0])]))
    without, always = (float(true_cost[place] - true_cost.min()) for place in (0, chosen))
    always, advised = always + price, now - after > price
    return Paid(data, float(true_cost.min()), advised, now, without, always if advised else without, always)


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Means by data and of all, in US$, and what the regret is of the cost in percent."""
    tables = {**dict(iter(found.groupby("data"))), "all": found}
    rows = {}
    for name, some in tables.items():
        means = some[["cost", "expected", "without", "with_advice", "always"]].mean()
        shares = 100 * some[["without", "with_advice", "always"]].div(some["cost"], axis=0).mean()
        rows[name] = {
            "questions": len(some),
            "advised": some["advised"].mean(),
            **means,
            **shares.add_suffix("_%"),
        }
    return pd.DataFrame(rows).T


if __name__ == "__main__":
    sys.exit(main())
