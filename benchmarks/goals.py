"""The goals of accuracy, each with its committed figure and what this checkout reaches: `make bench-accuracy`.

Every figure is an error on groups that no fit saw, refitted from nothing; `goals.csv` says of each what is judged. All
of them take hours of one core: each is kept in build/goals.csv as soon as it is there, and is used again while code and
data are the same. `--goal NAME` (repeatable; a name or how it begins) asks for some, `--kept` only shows what is there.
"""

import argparse
import csv
import hashlib
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import eager_host
import numpy as np
import unseen_chips
from h200 import MODE, own_features
from machine import machine

from predictor.errors import DataError, EpochcastError, nearest
from predictor.evaluation.run import EvaluationResult, evaluate
from predictor.evaluation.scenarios import SCENARIOS
from predictor.files import data_root, published_data_root, replace_file
from predictor.measurements.published import published_features
from predictor.models.fit import default_features

ROOT = Path(__file__).resolve().parents[1]
COMMITTED = Path(__file__).with_name("goals.csv")
KEPT = ROOT / "build" / "goals.csv"
NOISE = 0.005
"""Figures of two days differ by half a percent (docs/evaluation.md); more than that is worse."""

Goal = dict[str, str]
Figures = dict[str, float]
"""Goal -> MAPE."""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        goals = chosen_goals(options.goal)
        folder = published_data_root(options.published) if options.published or _needs(goals) else None
    except EpochcastError as error:
        print(f"goals: {error}", file=sys.stderr)
        return 1
    print(f"goals | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n", flush=True)
    state = state_of(folder)
    figures = kept_figures(options.kept_in, state)
    asked = [goal for goal in goals if goal["benchmark"] and goal["name"] not in figures]
    for group in [] if options.kept else _groups(asked):
        started = time.perf_counter()
        try:
            figures |= JUDGES[group[0]["benchmark"]](group, folder, options.jobs)
        except EpochcastError as error:
            print(f"{', '.join(goal['name'] for goal in group)}: not judged: {error}", flush=True)
            continue
        keep(figures, options.kept_in, state)
        for goal in group:
            print(f"{_line(goal, figures)}   ({time.perf_counter() - started:.0f} s)", flush=True)
    print(f"\n{table(goals, figures)}")
    return 0


def chosen_goals(names: list[str] | None = None) -> list[Goal]:
    """Rows of goals.csv whose name is, or begins with, one of these; all by default. A DataError if none does."""
    with COMMITTED.open(newline="", encoding="utf-8") as file:
        goals = list(csv.DictReader(file))
    for name in names or []:
        if not any(goal["name"].startswith(name) for goal in goals):
            known = [goal["name"] for goal in goals]
            raise DataError(
                f"no goal is called {name!r}. Nearest: {nearest(name, known)}; all: {', '.join(known)}."
            )
    return [goal for goal in goals if not names or goal["name"].startswith(tuple(names))]


def table(goals: list[Goal], figures: Figures) -> str:
    """Every goal with its committed figure, the figure now, and whether it is met or has become worse."""
    head = f"{'':88} {'goal':>6} {'committed':>9} {'now':>6}"
    return "\n".join([head, *(_line(goal, figures) for goal in goals)])


def _line(goal: Goal, figures: Figures) -> str:
    least, now = float(goal["goal"]), figures.get(goal["name"])
    if not goal["benchmark"]:
        return f"{goal['question']:88} {least:6.1%} {'-':>9} {'-':>6} nothing judges it"
    committed = float(goal["committed"])
    told = "" if now is None else f"{now:6.1%} {_verdict(now, least, committed)}"
    return f"{goal['question']:88} {least:6.1%} {committed:9.1%} {told}".rstrip()


def _verdict(now: float, goal: float, committed: float) -> str:
    met = "met" if now <= goal else f"missed by {100 * (now - goal):.1f}"
    return met + (" WORSE THAN COMMITTED" if now > committed + NOISE else "")


def _of_published(goals: list[Goal], folder: Path | None, jobs: int) -> Figures:
    scenario, predictors = goals[0]["scenario"], sorted({goal["predictor"] for goal in goals})
    errors = evaluate(published_features(folder), [scenario], predictors, n_jobs=jobs).table(scenario)
    mape = dict(zip(errors["predictor"], errors["mape"], strict=True))
    return {goal["name"]: float(mape[goal["predictor"]]) for goal in goals}


def _of_own_tables(goals: list[Goal], _folder: Path | None, jobs: int) -> Figures:
    scenario = goals[0]["scenario"]
    gpus = tuple(dict.fromkeys(("h200", *SCENARIOS[scenario].sources)))
    features = own_features(None, sorted({goal["precision"] for goal in goals}), gpus)
    predictors = sorted({goal["predictor"] for goal in goals})
    result = evaluate(features, [scenario], predictors, n_jobs=jobs)
    formats = features["memory_format"].to_numpy()[result.predictions["row"].to_numpy()]
    return {goal["name"]: _mape_of(goal, result, formats) for goal in goals}


def _mape_of(goal: Goal, result: EvaluationResult, formats: np.ndarray) -> float:
    rows = result.predictions.assign(memory_format=formats)
    for column in ("predictor", "gpu", *MODE):
        rows = rows[rows[column] == goal[column]]
    return float((rows["predicted"] / rows["measured"] - 1).abs().mean())


def _of_chips(goals: list[Goal], folder: Path | None, _jobs: int) -> Figures:
    errors = unseen_chips.errors_by_machine(default_features(folder))
    return {goal["name"]: float(np.mean([mape for mape, _ in errors.values()])) for goal in goals}


def _of_eager(goals: list[Goal], _folder: Path | None, _jobs: int) -> Figures:
    figures = {}
    for goal in goals:
        answers = eager_host.held_out(own_features(None, [goal["precision"]]))
        answers = answers[answers["memory_format"] == goal["memory_format"]]
        figures[goal["name"]] = float(eager_host.errors(answers)["iteration"].abs().mean())
    return figures


JUDGES: dict[str, Callable[[list[Goal], Path | None, int], Figures]] = {
    "published": _of_published,
    "own": _of_own_tables,
    "chips": _of_chips,
    "eager": _of_eager,
}
_ON_PUBLISHED = ("published", "chips")


def _needs(goals: list[Goal]) -> bool:
    """Whether any of these goals is judged on published measurements."""
    return any(goal["benchmark"] in _ON_PUBLISHED for goal in goals)


def _groups(goals: list[Goal]) -> list[list[Goal]]:
    """Goals that one evaluation answers, those of a scenario."""
    found: dict[tuple[str, str], list[Goal]] = {}
    for goal in goals:
        found.setdefault((goal["benchmark"], goal["scenario"]), []).append(goal)
    return list(found.values())


def state_of(folder: Path | None) -> str:
    """Digest of all that a figure depends on: the core's code, the catalogue, our tables and the published ones."""
    own = [*(ROOT / "predictor").rglob("*.py"), *data_root().glob("*.csv")]
    tables = [*(data_root() / "measurements").glob("*.csv.gz"), *(folder.glob("*.csv*") if folder else ())]
    digest = hashlib.sha256()
    for path in sorted([*own, *tables, *Path(__file__).parent.glob("*.py")]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def kept_figures(path: Path, state: str) -> Figures:
    """Figures of this state in a file of figures; none if there is no such file."""
    if not path.is_file():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {row["name"]: float(row["mape"]) for row in csv.DictReader(file) if row["state"] == state}


def keep(figures: Figures, path: Path, state: str) -> None:
    """Write the figures of a state, in place of those of another."""
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{name},{mape:.6f},{state}" for name, mape in figures.items()]
    replace_file(path, "\n".join(["name,mape,state", *rows]) + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--published", help="folder of published measurements ($EPOCHCAST_PUBLISHED_DATA)")
    parser.add_argument("--goal", action="append", help="repeatable; a name of goals.csv, or how it begins")
    parser.add_argument("--kept", action="store_true", help="judge nothing, show what was")
    parser.add_argument("--kept-in", type=Path, default=KEPT, help="file of figures (build/goals.csv)")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    return parser


if __name__ == "__main__":
    sys.exit(main())
