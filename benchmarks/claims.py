"""Published trainings, asked as their sources describe them: `python benchmarks/claims.py [--picture FILE]`.

`datasets/claims.csv` holds what others published about their own trainings; no fit reads it. Each row is asked through
`epochcast.predict` with the options that its source states; what it leaves unknown stays at the product's default. Rows
of low confidence do not count. The error of all is the mean over groups of sources: no long table outweighs the others.
"""

import argparse
import csv
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from machine import heading

import epochcast
from predictor.catalogue.devices import find_gpu, generations
from predictor.catalogue.links import usual_link
from predictor.catalogue.offers import load_offers
from predictor.evaluation.run import errors_by
from predictor.files import data_file

Claim = Mapping[str, str]

_AS_STATED = ("data_set", "precision", "memory_format", "framework", "optimizer", "capture")
_NUMBERS = ("image_size", "samples", "validation_samples", "n_gpus")


CHOSEN: dict[str, Callable[[Claim], bool]] = {
    "all": lambda _: True,
    "ada": lambda claim: (
        find_gpu(claim["gpu"]).generation == "ada" and (claim["n_gpus"], claim["loading"]) == ("1", "no")
    ),
}
"""Claims of a figure's scenario."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--picture", type=Path, help="draw answered against published into this file")
    options = parser.parse_args(arguments)
    rows = answered_claims(claims())
    print(heading("published trainings"))
    print(table(rows))
    if options.picture:
        draw(rows, options.picture)
    return 0


def claims(scenario: str = "all") -> list[dict[str, str]]:
    """Rows of claims.csv that count and belong to `scenario`, a key of `CHOSEN`."""
    with data_file("claims.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["confidence"] != "low"]
    return [row for row in rows if CHOSEN[scenario](row)]


def answered_claims(rows: Sequence[Claim]) -> pd.DataFrame:
    """Seconds of each claim, a row each: published as `measured`, answered as `predicted`, `low` and `high`.

    A published throughput counts as seconds of an iteration. `n_images` are trained on in that time.
    """
    return pd.DataFrame([{**_kind_of(row), **_times(row)} for row in rows])


def options_of(claim: Claim) -> dict[str, Any]:
    """Options of `epochcast.predict` that the source of a claim states; of several GPUs also the usual link."""
    options: dict[str, Any] = {name: claim[name] for name in _AS_STATED if claim[name]}
    options |= {name: int(claim[name]) for name in _NUMBERS if claim[name]}
    if int(claim["n_gpus"] or 1) > 1:  # their own machines: no offer needs to have as many
        options["link"] = usual_link(find_gpu(claim["gpu"]), load_offers()).name
    if claim["autotuned"] == "yes":
        options["autotune"] = True
    if claim["loader_asked"]:
        options["loader"] = claim["loader_asked"]
    elif claim["loading"] == "yes":
        options["workers"] = int(claim["workers"])
    return options


def _times(claim: Claim) -> dict[str, float]:
    answer = epochcast.predict(claim["cnn"], claim["gpu"], int(claim["batch_size"]), **options_of(claim))
    row, value, batch_size = answer.iloc[0], float(claim["value"]), int(claim["batch_size"])
    if claim["measured"] in ("iteration_ms", "images/s"):
        ends = [row[end] / 1000 for end in ("iteration_time_ms", "low_ms", "high_ms")]
        seconds = value / 1000 if claim["measured"] == "iteration_ms" else batch_size / value
        return {"measured": seconds, **dict(zip(_ENDS, ends, strict=True)), "n_images": batch_size}
    n = float(claim["epochs"] or 1)
    has_start = claim["measured"] == "total_s" and not pd.isna(row["start_s"])
    start_s = float(row["start_s"]) if has_start else 0.0  # a training is its epochs and one start
    ends = [n * row[end] + start_s for end in ("epoch_time_s", "epoch_low_s", "epoch_high_s")]
    return {"measured": value, **dict(zip(_ENDS, ends, strict=True)), "n_images": n * int(claim["samples"])}


_ENDS = ("predicted", "low", "high")


def _kind_of(claim: Claim) -> dict[str, Any]:
    gpu = find_gpu(claim["gpu"])
    return {
        **{name: claim[name] for name in ("id", "cnn", "framework", "precision", "memory_format", "gpu")},
        "predictor": "default",
        "group": claim["group"],
        "generation": gpu.generation,
        "gpus": "one" if claim["n_gpus"] == "1" else "several",
        "images": "loaded" if claim["loading"] == "yes" else "synthetic",
    }


def table(rows: pd.DataFrame) -> str:
    """Error, bias and share inside the interval of all rows and of each group of them, in percent."""
    groups = errors_by(rows, "group")
    lines = [f"{'mean of the groups':32} {100 * groups['error'].mean():6.1f}", _HEAD]
    lines += _lines(errors_by(rows.assign(rows="all"), "rows"))
    for column in ("generation", "gpus", "images", "framework", "group"):
        groups = errors_by(rows, column)
        if column == "generation":
            groups = groups.reindex([name for name in generations() if name in groups.index])
        lines += ["", *_lines(groups)]
    return "\n".join(lines)


_HEAD = f"{'':32}  error   bias  inside    n"


def _lines(groups: pd.DataFrame) -> list[str]:
    return [
        f"{row.Index:32} {100 * row.error:6.1f} {100 * row.bias:+6.1f} {100 * row.inside:7.0f} {row.n:4}"
        for row in groups.itertuples()
    ]


INK = "#7d8590"  # read on white and on black alike
COLOURS = {
    "kepler": "#a0785a", "maxwell": "#c9a227", "pascal": "#4c9f70", "volta": "#3b82c4", "turing": "#9467bd",
    "ampere": "#e07b39", "ada": "#d6406f", "hopper": "#22a6b3", "blackwell": "#555555",
}  # fmt: skip


def draw(rows: pd.DataFrame, path: Path) -> None:
    """Draw answered against published times with 90 % intervals, coloured by generation, into `path`."""
    import matplotlib as mpl

    mpl.use("agg")
    mpl.rcParams |= {"svg.hashsalt": "epochcast", "svg.fonttype": "none", "font.family": "sans-serif"}
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7.2, 5.4), layout="constrained")
    image_ms = rows[["measured", *_ENDS]].mul(1000 / rows["n_images"], axis=0)
    image_ms = image_ms.assign(generation=rows["generation"])
    ends = [image_ms[["measured", "low"]].min().min() / 1.2, image_ms[["measured", "high"]].max().max() * 1.2]
    axes.plot(ends, ends, color=INK, linewidth=1)
    for generation in filter(set(rows["generation"]).__contains__, COLOURS):
        own, colour = image_ms[image_ms["generation"] == generation], COLOURS[generation]
        axes.vlines(own["measured"], own["low"], own["high"], color=colour, alpha=0.3, linewidth=1.6)
        label = f"{generation.title()} ({len(own)})"
        axes.scatter(own["measured"], own["predicted"], s=20, color=colour, label=label, zorder=3)
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
    axes.set_xlabel("published, ms per image", color=INK)
    axes.set_ylabel("answered, with 90 % intervals", color=INK)
    axes.xaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.tick_params(which="both", colors=INK)
    axes.spines[:].set_color(INK)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, labelcolor=INK, loc="upper left")
    figure.savefig(path, transparent=True, metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main())
