"""How far the founding study's approaches lie from measurements in its three scalings, beside the default.

Run it as `python benchmarks/founding.py`: our tables in TF32 (H200 and H100), fp32 (H200 and CPUs) and of Chainer.
`--slides` answers the figures that the study's slides print instead. Approach 1 on published GPUs: `epochcast evaluate
--predictor gpu-specs --scenario unseen-gpu-specs`; from chip to chip: this program at commit 679833eb.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
from machine import heading

import epochcast
from predictor.answers.parallel import parallel_ways
from predictor.answers.question import Question
from predictor.evaluation.run import evaluate
from predictor.evaluation.scenarios import DEFAULT, SCALINGS
from predictor.files import data_root
from predictor.measurements.table import read_measurements
from predictor.models.named import rows_of_measurements

_TABLES = ("proxies", "cnns", "targets", "resnet50", "vgg_cifar", "more")
_MODES = {
    "tf32": {"framework": "pytorch", "precision": "tf32", "memory_format": "nchw", "device_kind": "gpu"},
    "fp32": {"framework": "pytorch", "precision": "fp32", "memory_format": "nchw"},
    "chainer": {"framework": "chainer", "precision": "fp32", "device_kind": "gpu"},
}
"""Rows that are judged together: H200 and H100, an H200 and processors, Chainer on H200 and H100."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", nargs="+", choices=_MODES, default=list(_MODES), help="rows to judge")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--out", help="CSV file for `epochcast fit --accuracy`")
    parser.add_argument("--slides", action="store_true", help="answer every printed figure of the slides")
    options = parser.parse_args(arguments)
    print(heading("founding"))
    if options.slides:
        print(slides_in_markdown())
    else:
        judged = [_judged(mode, options.jobs) for mode in options.mode]
        if options.out:
            pd.concat(judged).to_csv(options.out, index=False)
    return 0


def _judged(mode: str, n_jobs: int) -> pd.DataFrame:
    """Errors of both approaches, the default and a baseline in the three scalings, printed."""
    predictors = ["gpu-specs", "proxy-times", DEFAULT, "flops-ratio"]
    table = evaluate(founding_rows(mode), list(SCALINGS.values()), predictors, n_jobs=n_jobs).table()
    shown = ["scenario", "predictor", "n", "mape", "median", "p90", "worst_mape", "worst_mape_group"]
    print(f"{mode}\n{table[shown].round(3).to_string(index=False)}\n", flush=True)
    return table.assign(rows=mode)


def founding_rows(mode: str) -> pd.DataFrame:
    """Feature table of our proxies and CNNs in a mode, on GPUs with proxies in it; some CNNs are in no fit."""
    folder = data_root() / "measurements"
    paths = [path for kind in _TABLES for path in sorted(folder.glob(f"*_{kind}.csv.gz"))]
    tables = pd.concat([read_measurements(path) for path in paths], ignore_index=True)
    chosen = np.logical_and.reduce([tables[column] == word for column, word in _MODES[mode].items()])
    rows = rows_of_measurements(tables[chosen & (tables["source"] == "epochcast")])
    measured = rows.loc[rows["kind"] == "proxy", ["gpu", "autotune"]].drop_duplicates()
    return rows.merge(measured, on=["gpu", "autotune"]).reset_index(drop=True)


_SLIDES, _SLIDE_PROXIES = (Path(__file__).with_name(name) for name in ("slides.csv", "slides_proxies.csv"))


def slide_answers() -> pd.DataFrame:
    """Every printed figure of the founding slides that can be asked, and what is answered by the shipped model.

    A figure of several CNNs, as of a GAN's step, sums them; one that is `over` another question is that question's time
    over its own, at independent errors. VGG's epochs on GPU 1 are answered by proxies of the slides' own table.
    """
    slides = pd.read_csv(_SLIDES, keep_default_na=False)
    answers = [_slide_answer(row) for row in slides.to_dict("records")]
    table = slides[["figure", "printed", "unit"]].join(
        pd.DataFrame(answers, columns=["answered", "low", "high"])
    )
    inside = table["printed"].between(table["low"], table["high"]).map({True: "yes", False: "no"})
    return table.assign(inside=inside.where(table["low"].notna(), "no interval"))


def _slide_answer(row: dict[str, str]) -> tuple[float, float, float]:
    question = json.loads(row["question"])
    if row["unit"] == "x, one process":
        cnns, gpus, sizes = (question.pop(name) for name in ("cnn", "gpus", "batch_sizes"))
        answers = [parallel_ways(Question(cnn, gpus, sizes, **question)) for cnn in cnns]
        by_way = [{way.way: way for way in ways} for ways in answers]
        alone_ms = [ways["one"].iteration_time_ms for ways in by_way]
        ratio = np.average([ways["channels"].one_process_ratio for ways in by_way], weights=alone_ms)
        return ratio, np.nan, np.nan
    times = _times(question, row["unit"])
    if row["unit"] == "iterations/s":
        return 1e3 / times[0], 1e3 / times[2], 1e3 / times[1]
    if not row["over"]:
        return times
    over = _times(json.loads(row["over"]), row["unit"])
    ratio, spread = over[0] / times[0], np.hypot(*(np.log(high / low) for _, low, high in (times, over))) / 2
    return ratio, ratio * np.exp(-spread), ratio * np.exp(spread)


def _times(question: dict[str, object], unit: str) -> tuple[float, float, float]:
    """Time of a question's CNNs together with its interval: of all epochs in `s`, else of an iteration in ms."""
    options = {name: value for name, value in question.items() if name not in ("cnn", "gpus", "batch_sizes")}
    if options.get("method") == "proxy-times":
        options["measurements"] = pd.read_csv(_SLIDE_PROXIES).query("kind == 'proxy'")
    epochs = options.pop("epochs", 1)
    rows = [
        epochcast.predict(cnn, question["gpus"], question["batch_sizes"], **options).iloc[0]
        for cnn in question["cnn"]
    ]
    iteration, low, high = (
        sum(row[name] for row in rows) for name in ("iteration_time_ms", "low_ms", "high_ms")
    )
    factor = epochs * sum(row["epoch_time_s"] for row in rows) / iteration if unit == "s" else 1.0
    return iteration * factor, low * factor, high * factor


def slides_in_markdown() -> str:
    """The table of docs/study.md."""
    lines = ["| figure of the slides | unit | printed | answered | inside |", "|---|---|---|---|---|"]
    for row in slide_answers().itertuples():
        ends = "" if row.inside == "no interval" else f" ({row.low:.3g}-{row.high:.3g})"
        lines.append(
            f"| {row.figure} | {row.unit} | {row.printed:g} | {row.answered:.3g}{ends} | {row.inside} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
