"""Scores predictions of published trainings: `python benchmarks/score.py CLAIMS.csv PREDICTIONS.csv ...`.

docs/benchmark.md is the task. Claims are a table with the columns `id, group, measured, value, confidence`, such as
`datasets/claims.csv`; predictions have `id, predicted`, and `low, high` where they have 90 % intervals, in the unit of
`measured`. It needs only Python.
"""

import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, median

Row = Mapping[str, str]


def main(arguments: Sequence[str]) -> int:
    """Print a line for each table of predictions."""
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    claims = {row["id"]: row for row in read(arguments[0])}
    print("predictor             mean of the groups  rows  median  within 25 %  inside     answered")
    for path in arguments[1:]:
        print(f"{Path(path).stem:20}  {score(claims, read(path))}")
    return 0


def read(path: str) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def score(claims: Mapping[str, Row], predictions: Sequence[Row]) -> str:
    """Report of errors, in percent of the published time, over the counting claims that were answered.

    ValueError if an `id` is no claim's, or stands twice.
    """
    names = [row["id"] for row in predictions]
    wrong = sorted({name for name in names if name not in claims or names.count(name) > 1})
    if wrong:
        raise ValueError(f"each id must be that of a claim, once; not so: {', '.join(wrong)}")
    counted = {name for name, claim in claims.items() if claim["confidence"] != "low"}
    answered = {row["id"]: row for row in predictions if row["predicted"] and row["id"] in counted}
    ratios = {name: ratio(claims[name], float(row["predicted"])) for name, row in answered.items()}
    errors = {name: abs(100 * (value - 1)) for name, value in ratios.items()}
    groups: dict[str, list[float]] = {}
    for name, error in errors.items():
        groups.setdefault(claims[name]["group"], []).append(error)
    within = fmean(100 * (error <= 25) for error in errors.values())
    inside = [100 * is_inside(claims[name], row) for name, row in answered.items() if row.get("low")]
    share = f"{fmean(inside):.0f} %" if inside else "-"
    means = f"{fmean(map(fmean, groups.values())):18.1f}  {fmean(errors.values()):4.1f}  {median(errors.values()):6.1f}"
    return f"{means}  {within:9.0f} %  {share:>6}  {len(answered)} of {len(counted)}, {len(groups)} groups"


def ratio(claim: Row, predicted: float) -> float:
    """Predicted time over published time; a rate is the inverse of a time."""
    value = float(claim["value"])
    return value / predicted if claim["measured"] == "images/s" else predicted / value


def is_inside(claim: Row, row: Row) -> bool:
    """Whether the published value lies in the predicted interval."""
    return float(row["low"]) <= float(claim["value"]) <= float(row["high"])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
