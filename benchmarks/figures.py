"""The judged figures, each with its goal and its committed value, and what this checkout reaches: `make figures`.

Every figure is an error on groups that no fit saw, refitted from nothing; `figures.csv` says of each what is judged.
All of them take hours of one core: what was judged is kept in build/figures as soon as it is there, and is used again
while code and data are the same. `--figure NAME` (repeatable; a name or how it begins) asks for some, `--by cnn` shows
what a figure is made of, `--readme` asks for those that the README quotes, `--card` judges nothing and writes the
committed values to the shipped model's card, `--forecasts` prints how far the forecasts of finished campaigns were off.
Where data are missing it says which, and exits with 1.
"""

import argparse
import csv
import hashlib
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from judges import JUDGES, Request, forecast_errors
from machine import heading

from predictor.errors import DataError, EpochcastError, nearest
from predictor.evaluation.run import errors_by, inside_interval
from predictor.evaluation.scenarios import SCENARIOS
from predictor.files import data_file, data_root
from predictor.models.named import MethodError
from predictor.models.registry import estimator_class
from predictor.models.served import Model

ROOT = Path(__file__).resolve().parents[1]
FIGURES = Path(__file__).with_name("figures.csv")
NOISE = 0.005
"""Figures of two days differ by half a percent (docs/evaluation.md); more than that is worse."""

_FILTERS = ("predictor", "gpu", "precision", "memory_format")
_DEFAULT = "default"
_MANY = "published"
"""The judge whose scenarios are judged together: those that leave out the same group share its fits."""

Figure = dict[str, str]
"""A row of figures.csv."""


class Value(NamedTuple):
    """A judged figure: mean absolute relative error, its bias, share inside the 90 % interval, rows, worst CNN.

    `width` is the median of the intervals' ln half-widths.
    """

    error: float
    bias: float
    inside: float
    width: float
    n: int
    worst: str


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--published", type=Path, help="folder of published measurements ($EPOCHCAST_PUBLISHED_DATA)"
    )
    parser.add_argument("--figure", action="append", help="repeatable; a figure's name, or how it begins")
    parser.add_argument("--readme", action="store_true", help="those that the README quotes")
    parser.add_argument("--by", action="append", help="repeatable; such as cnn, gpu or precision")
    parser.add_argument("--write", action="store_true", help="commit what was judged to figures.csv")
    parser.add_argument("--card", action="store_true", help="write committed values to the model's card")
    parser.add_argument("--forecasts", action="store_true", help="errors of forecasts.csv by campaign")
    parser.add_argument("--kept-in", type=Path, default=ROOT / "build" / "figures", help="folder")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    options = parser.parse_args(arguments)
    if options.card:
        write_card()
        return 0
    if options.forecasts:
        print(
            forecast_errors().to_string(
                index=False, na_rep="-", formatters={"error": "{:.1%}".format, "bias": "{:+.1%}".format}
            )
        )
        return 0
    try:
        figures = chosen_figures(options.figure, readme=options.readme)
    except EpochcastError as error:
        print(f"figures: {error}", file=sys.stderr)
        return 1
    print(f"{heading('figures')}\n{_HEAD}", flush=True)
    state, missing, values = state_of(options.published), 0, {}
    for group in _groups(figures):
        judged = kept(group, options.kept_in, state)
        if judged is None:
            started = time.perf_counter()
            try:
                scenarios, predictors, precisions = (
                    tuple(
                        dict.fromkeys(figure[name] for figure in group if figure[name] or name == "scenario")
                    )
                    for name in ("scenario", "predictor", "precision")
                )
                request = Request(scenarios, predictors, precisions, options.published, options.jobs)
                judged = JUDGES[group[0]["judge"]](request)
            except EpochcastError as error:
                missing += len(group)
                names = ", ".join(figure["name"] for figure in group)
                print(f"{names}: not judged: {error}", file=sys.stderr)
                continue
            keep(judged, group, options.kept_in, state, time.perf_counter() - started)
        for figure in group:
            values[figure["name"]] = value = value_of(figure, judged)
            print(line(figure, value), flush=True)
            if options.by:
                print(parts(figure, judged, options.by), flush=True)
    if options.write:
        write(values)
    return int(missing > 0)


def write(values: Mapping[str, Value]) -> None:
    """Commit judged values to figures.csv."""
    figures = chosen_figures()
    for figure in figures:
        if value := values.get(figure["name"]):
            numbers = {"committed": value.error, "inside": value.inside, "width": value.width}
            figure |= {name: "" if np.isnan(x) else f"{x:.4f}" for name, x in numbers.items()}
    with FIGURES.open("w", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, list(figures[0]), lineterminator="\n")
        rows.writeheader()
        rows.writerows(figures)


def write_card() -> None:
    """Write committed values to the shipped model's card, and the default's errors to what its named methods quote.

    A method that takes runs of a CNN is compared with the default that takes them, another with the default without.
    """
    figures = [figure for figure in chosen_figures() if figure["committed"]]
    model, path = Model.load(), data_file("models/default.json")
    default = {
        (figure["scenario"], figure["predictor"]): float(figure["committed"])
        for figure in figures
        if figure["judge"] == _MANY and not any(figure[name] for name in ("gpu", "precision", "cnn"))
    }
    methods = model.named_methods()

    def quoting(error: MethodError, *predictors: str) -> MethodError:
        committed = [default[key] for name in predictors if (key := (error.scenario, name)) in default]
        return replace(error, default_mape=committed[0]) if committed else error

    errors = {
        name: tuple(
            quoting(error, *["anchored"] * estimator_class(name).uses_anchors, "roofline") for error in own
        )
        for name, own in methods.errors.items()
    }
    numbers = {"error": "committed", "inside": "inside", "half_width": "width"}
    judged = {
        figure["name"]: {name: float(figure[column]) for name, column in numbers.items() if figure[column]}
        for figure in figures
    }
    card = model.card | {"figures": judged, "figures_by": "benchmarks/figures.py --figure NAME"}
    replace(model, card=card, methods=replace(methods, errors=errors)).save(path)


def chosen_figures(names: Sequence[str] | None = None, *, readme: bool = False) -> list[Figure]:
    """Rows of figures.csv whose name begins with one of `names`, all by default; `readme`: only those of the README.

    DataError if a name begins no row's.
    """
    with FIGURES.open(newline="", encoding="utf-8") as file:
        figures = [row for row in csv.DictReader(file) if row["readme"] or not readme]
    for name in names or ():
        if not any(figure["name"].startswith(name) for figure in figures):
            names_of_all = [figure["name"] for figure in figures]
            raise DataError(
                f"no figure is called {name!r}. Nearest: {nearest(name, names_of_all)}; "
                f"all: {', '.join(names_of_all)}."
            )
    return [figure for figure in figures if not names or figure["name"].startswith(tuple(names))]


def value_of(figure: Figure, judged: pd.DataFrame) -> Value:
    """Value of a figure from judged rows; DataError if no row has the figure's GPU, mode and predictor."""
    rows = _rows_of(figure, judged)
    rows = rows.assign(part=rows["part"].astype(object).fillna("") if "part" in rows else "")
    means, by_cnn = errors_by(rows, "part").mean(), errors_by(rows, "cnn")["error"]
    inside, width = np.nan, np.nan
    if "low" in rows and rows["low"].notna().any():
        inside = inside_interval(rows).mean()
        width = np.median(np.log(rows["high"] / rows["low"].clip(lower=1e-9)) / 2)
    worst = f"{by_cnn.idxmax()} {by_cnn.max():.0%}"
    return Value(float(means["error"]), float(means["bias"]), float(inside), float(width), len(rows), worst)


def _rows_of(figure: Figure, judged: pd.DataFrame) -> pd.DataFrame:
    rows = judged.reset_index(drop=True)
    filters = (*_FILTERS, *(["scenario"] * ("scenario" in rows)))
    for column in filters:
        if figure[column]:
            rows = rows[rows[column] == figure[column]]
    if figure["cnn"]:
        rows = rows[rows["cnn"].str.contains(figure["cnn"])]
    if rows.empty:
        raise DataError(f"{figure['name']}: nothing was judged of {[figure[name] for name in filters]}.")
    return rows


def parts(figure: Figure, judged: pd.DataFrame, by: Sequence[str]) -> str:
    """Error, bias, share inside (in percent) and number of a figure's rows by these columns."""
    table = errors_by(_rows_of(figure, judged), list(by))
    percents = 100 * table[["error", "bias", "inside"]]
    return f"{percents.assign(n=table['n']).round(1).to_string()}\n"


_HEAD = f"{'':92} {'goal':>6} {'committed':>10} {'now':>6} {'bias':>7} {'inside':>7} {'width':>6} {'n':>6}  worst CNN"


def line(figure: Figure, value: Value) -> str:
    """A figure with its goal, the committed value, the value now, and whether it has become worse."""
    goal = f"{float(figure['goal']):.1%}" if figure["goal"] else ""
    committed = f"{float(figure['committed']):.1%}" if figure["committed"] else ""
    text = f"{figure['question']:92} {goal:>6} {committed:>10}"
    inside, width = "", ""
    if not np.isnan(value.inside):
        inside, width = f"{value.inside:.0%}", f"{value.width:.2f}"
    text += f" {value.error:6.1%} {value.bias:+7.1%} {inside:>7} {width:>6} {value.n:6}  {value.worst}"
    worse = figure["committed"] and value.error > float(figure["committed"]) + NOISE
    return text + "  WORSE THAN COMMITTED" * bool(worse)


def _groups(figures: list[Figure]) -> list[list[Figure]]:
    """Figures that one call of a judge answers."""
    groups: dict[tuple[str, str], list[Figure]] = {}
    for figure in figures:
        scenario = figure["scenario"]
        shared = SCENARIOS[scenario].group if figure["judge"] == _MANY else scenario
        groups.setdefault((figure["judge"], shared), []).append(figure)
    return list(groups.values())


def state_of(published: Path | None) -> str:
    """Digest of the inputs of figures: the core's code, the catalogue, our tables and the published ones."""
    code = [*(ROOT / "predictor").rglob("*.py"), *Path(__file__).parent.glob("*.py")]
    models = [*(data_root() / "models").rglob("*.json*")]
    data = [*data_root().glob("*.csv"), *(path for path in models if not path.name.startswith(_DEFAULT))]
    tables = [*(data_root() / "measurements").glob("*.csv.gz")]
    tables += published.glob("*.csv*") if published else ()
    digest = hashlib.sha256()
    default = json.loads(data_file(f"models/{_DEFAULT}.json").read_text(encoding="utf-8"))
    judged = {name: value for name, value in default.items() if name not in ("card", "files")}
    digest.update(json.dumps(judged).encode())  # its card quotes figures
    for path in sorted([*code, *data, *tables]):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def _path(group: list[Figure], folder: Path, state: str) -> Path:
    names = f"{group[0]['judge']} {[(figure['scenario'], figure['name']) for figure in group]}"
    return folder / f"{hashlib.sha256((names + state).encode()).hexdigest()[:16]}.csv.gz"


def kept(group: list[Figure], folder: Path, state: str) -> pd.DataFrame | None:
    """Judged rows kept for this group, folder and state; None if there are none."""
    path = _path(group, folder, state)
    return pd.read_csv(path) if path.is_file() else None


def keep(judged: pd.DataFrame, group: list[Figure], folder: Path, state: str, seconds: float) -> None:
    """Write judged rows to the file that `kept` reads in the same state; print the `seconds` to stderr."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = [
        "scenario", "error", "gpu", "precision", "memory_format", "cnn", "predictor", "part", "measured", "predicted",
        "low", "high",
    ]  # fmt: skip
    judged[[name for name in columns if name in judged]].to_csv(_path(group, folder, state), index=False)
    print(f"{', '.join(figure['name'] for figure in group)}: {seconds:.0f} s", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
