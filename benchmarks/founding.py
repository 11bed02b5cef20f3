"""How far the founding study's approaches lie from measurements in its three scalings, by form, beside the default.

Run it as `python benchmarks/founding.py`: our tables in TF32 (H200 and H100), fp32 (H200 and CPUs) and of Chainer.
`--published TABLES` judges from chip to chip instead: proxies are regressed from published single convolutions, whole
CNNs are PROFET's on the same three chips, and Hopper's are ours. The form of the law was chosen by CNNs left out within
a chip and by the ways between K80 and M60. Approach 1 on published GPUs: `epochcast evaluate --predictor gpu-specs
--scenario unseen-gpu-specs`.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
from machine import heading

import epochcast
from predictor.answers.parallel import ParallelWay, parallel_ways
from predictor.answers.question import Question
from predictor.cnns.proxies import FOUNDING_PROXIES, proxy_table
from predictor.errors import OutOfRangeError
from predictor.evaluation.run import EvaluationResult, evaluate, registered_predictors
from predictor.evaluation.scenarios import DEFAULT, SCALINGS
from predictor.files import data_root
from predictor.measurements.features import feature_table
from predictor.measurements.published import published_features
from predictor.measurements.table import read_measurements
from predictor.models.base import Case
from predictor.models.founding import GpuSpecs, ProxyTimes, Terms
from predictor.models.named import rows_of_measurements

_TABLES = ("proxies", "cnns", "targets", "resnet50", "vgg_cifar", "more")
_MODES = {
    "tf32": {"framework": "pytorch", "precision": "tf32", "memory_format": "nchw", "device_kind": "gpu"},
    "fp32": {"framework": "pytorch", "precision": "fp32", "memory_format": "nchw"},
    "chainer": {"framework": "chainer", "precision": "fp32", "device_kind": "gpu"},
}
"""Rows that are judged together: H200 and H100, an H200 and processors, Chainer on H200 and H100."""

_FORMS = {
    "gpu-specs": GpuSpecs(),
    "gpu-specs, any sign": GpuSpecs(positive=False),
    "gpu-specs, squares": GpuSpecs(power=2.0),
    "proxy-times": ProxyTimes(),
    "proxy-times, sum": ProxyTimes(power=1.0),
    "proxy-times, sum of any sign": ProxyTimes(power=1.0, positive=False),
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--measurements", type=Path, default=data_root() / "measurements", help="folder of tables"
    )
    parser.add_argument("--mode", nargs="+", choices=_MODES, default=list(_MODES), help="rows to judge")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--out", help="CSV file for `epochcast fit --accuracy`")
    parser.add_argument("--published", type=Path, help="folder of published tables: judge from chip to chip")
    parser.add_argument("--slides", action="store_true", help="answer every printed figure of the slides")
    options = parser.parse_args(arguments)
    print(heading("founding"))
    if options.slides:
        print(slides_in_markdown())
        return 0
    if options.published:
        hopper = founding_rows(options.measurements, "tf32")
        print_from_chip_to_chip(pd.concat([chip_rows(options.published), hopper], ignore_index=True))
        return 0
    summaries = []
    for name in options.mode:
        rows = founding_rows(options.measurements, name)
        result = judged(rows, options.jobs)
        table = result.table()
        shown = ["scenario", "predictor", "n", "mape", "median", "p90", "worst_mape", "worst_mape_group"]
        print(f"{name}\n{table[shown].round(3).to_string(index=False)}\n", flush=True)
        summaries.append(table.assign(rows=name))
    if options.out and summaries:
        pd.concat(summaries).to_csv(options.out, index=False)
    return 0


def founding_rows(folder: Path, mode: str) -> pd.DataFrame:
    """Feature table of our proxies and CNNs in a mode, on GPUs with proxies in it; some CNNs are in no fit."""
    paths = [path for kind in _TABLES for path in sorted(folder.glob(f"*_{kind}.csv.gz"))]
    tables = pd.concat([read_measurements(path) for path in paths], ignore_index=True)
    chosen = np.logical_and.reduce([tables[column] == word for column, word in _MODES[mode].items()])
    rows = rows_of_measurements(tables[chosen & (tables["source"] == "epochcast")])
    measured = rows.loc[rows["kind"] == "proxy", ["gpu", "autotune"]].drop_duplicates()
    return rows.merge(measured, on=["gpu", "autotune"]).reset_index(drop=True)


def judged(rows: pd.DataFrame, n_jobs: int = 1) -> EvaluationResult:
    """All forms of both approaches, the default and a baseline, in the three scalings."""
    return evaluate(
        rows, list(SCALINGS.values()), _FORMS | registered_predictors([DEFAULT, "flops-ratio"]), n_jobs=n_jobs
    )


class WithoutTerms(ProxyTimes):
    """Approach 2 without some of its terms: what these are worth."""

    left_out: tuple[str, ...] = ()

    def terms(self, case: Case) -> Terms:
        """Features by term, 0 for those left out."""
        return {name: feature * (name not in self.left_out) for name, feature in super().terms(case).items()}


def _laws_from_chip_to_chip() -> dict[str, GpuSpecs | ProxyTimes]:
    laws: dict[str, GpuSpecs | ProxyTimes] = {"gpu-specs": GpuSpecs(), "proxy-times": ProxyTimes()}
    for left_out in (("host",), ("elementwise",), ("host", "elementwise")):
        law = laws[f"proxy-times without {' and '.join(left_out)}"] = WithoutTerms()
        law.left_out = left_out
    return laws


_CHIPS = ("Tesla K80", "Tesla M60", "Tesla V100-SXM2-16GB")
_PROXY_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Batch sizes of the published single convolutions end at 64."""


def chip_rows(folder: Path) -> pd.DataFrame:
    """Feature table of PROFET's CNNs on three chips, and of proxies regressed from single convolutions on the same.

    The shortest proxy of a GPU counts as the host's time, as an iteration's instrument would measure it.
    """
    layers = pd.read_csv(folder / "justus_single_conv.csv.gz")
    trained = layers[(layers["optimizer"] != "none") & (layers["precision"] == "fp32")]
    proxies = pd.concat([_regressed_proxies(trained[trained["gpu"] == gpu], gpu) for gpu in _CHIPS])
    mode = {"source": "profet", "framework": "tensorflow", "precision": "fp32", "pass": "training"}
    targets = published_features(folder)
    targets = targets[(targets["source"] == "profet") & targets["gpu"].isin(_CHIPS)]
    both = [feature_table(proxies.assign(kind="proxy", **mode).reset_index(drop=True)), targets]
    rows = pd.concat(both, ignore_index=True)
    return rows.assign(memory_format="nchw", autotune=False)


def _regressed_proxies(layers: pd.DataFrame, gpu: str) -> pd.DataFrame:
    """Times of the founding proxies by a regression over a GPU's single convolutions, 9 to 12 % off in its own rows."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    law = HistGradientBoostingRegressor(max_iter=400, learning_rate=0.06, random_state=0)
    law.fit(_convolution_features(layers), np.log(layers["time_ms_median"]))
    shapes = {
        name: next(layer for layer in proxy_table(name) if layer.type == "conv2d")
        for name in FOUNDING_PROXIES
    }
    rows = pd.DataFrame(
        {
            "gpu": gpu, "cnn": name, "image_size": layer.in_height, "batch_size": size, "in_size": layer.in_height,
            "in_channels": layer.in_channels, "out_channels": layer.out_channels, "kernel_size": layer.kernel_height,
            "stride": layer.stride_height,
        }
        for name, layer in shapes.items()
        for size in _PROXY_SIZES
    )  # fmt: skip
    time_ms = np.exp(law.predict(_convolution_features(rows)))
    is_shortest = time_ms == time_ms.min()
    rows = rows.assign(
        iteration_time_ms=time_ms, host_time_ms=time_ms.min(), gpu_time_ms=time_ms - time_ms.min()
    )
    columns = ["gpu", "cnn", "image_size", "batch_size", "iteration_time_ms", "host_time_ms", "gpu_time_ms"]
    return rows.loc[~is_shortest, columns]


def _convolution_features(layers: pd.DataFrame) -> np.ndarray:
    side, batch = np.ceil(layers["in_size"] / layers["stride"]), layers["batch_size"]
    channels = layers["in_channels"], layers["out_channels"]
    flops = 2 * batch * side**2 * layers["kernel_size"] ** 2 * channels[0] * channels[1]
    moved = 4 * batch * (layers["in_size"] ** 2 * channels[0] + side**2 * channels[1])
    logs = [np.log(column) for column in (flops, moved, batch, layers["in_size"], *channels)]
    return np.column_stack([*logs, layers["kernel_size"], layers["stride"]])


def print_from_chip_to_chip(rows: pd.DataFrame) -> None:
    """Errors and coverage from one chip to another, all batch sizes known and each held out."""
    judged_rows = pd.concat(list(from_chip_to_chip(rows)), ignore_index=True)
    judged_rows["error"] = np.abs(judged_rows["predicted"] / judged_rows["measured"] - 1)
    judged_rows["inside"] = judged_rows["measured"].between(judged_rows["low"], judged_rows["high"])
    keys = ["scaling", "predictor", "way"]
    table = judged_rows.groupby(keys).agg(
        n=("error", "size"), mape=("error", "mean"), inside=("inside", "mean")
    )
    six = judged_rows[~judged_rows["way"].str.contains("Hopper")]
    by_way = six.groupby(keys)["error"].mean().groupby(["scaling", "predictor"]).mean()
    inside = six.groupby(["scaling", "predictor"])["inside"].mean()
    print(
        table.round(3).to_string(), pd.DataFrame({"six ways": by_way, "inside": inside}).round(3), sep="\n\n"
    )
    of_proxies = six[six["predictor"] == "proxy-times"]
    for group in ("way", "cnn", "image_size", "batch_size"):
        print(of_proxies.groupby(["scaling", group])["inside"].agg(["size", "mean"]).round(2).to_string())


def from_chip_to_chip(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Predicted and measured times of CNNs on each chip, by fits on each other chip."""
    chips = {
        "K80": _CHIPS[:1],
        "M60": _CHIPS[1:2],
        "V100": _CHIPS[2:],
        "Hopper": tuple(set(rows["gpu"]) - {*_CHIPS}),
    }
    is_target = rows["kind"] == "target"
    sizes = np.unique(rows.loc[is_target, "batch_size"])
    for first, second in permutations(chips, 2):
        known = rows["gpu"].isin(chips[first]) | (~is_target & rows["gpu"].isin(chips[second]))
        asked = rows["gpu"].isin(chips[second]) & is_target
        held_out = [("hardware", np.zeros(len(rows), dtype=bool))]
        held_out += [("both", rows["batch_size"].isin(sizes[k::4]).to_numpy()) for k in range(4)]
        for scaling, gone in held_out:
            tested = rows[asked & (gone if scaling == "both" else True)]
            for name, law in _laws_from_chip_to_chip().items():
                train = rows[known & ~(gone & is_target)]
                train = train[train["kind"] == "target"] if name == "gpu-specs" else train
                yield _asked(law, train, tested).assign(
                    scaling=scaling, predictor=name, way=f"{first} > {second}"
                )


def _asked(law: GpuSpecs | ProxyTimes, train: pd.DataFrame, tested: pd.DataFrame) -> pd.DataFrame:
    """A law's answers with intervals, fitted on `train`; none where it refuses."""
    times = train["iteration_time_ms"].to_numpy()
    if tested.empty:
        return tested
    try:
        fitted = law.fit(train, times)
        if not isinstance(law, WithoutTerms):
            fitted.calibrate(train, times)
        low, high = fitted.predict_interval(tested)
        predicted = fitted.predict(tested)
    except OutOfRangeError:
        return tested.iloc[:0]
    columns = tested[["cnn", "image_size", "batch_size"]]
    return columns.assign(predicted=predicted, measured=tested["iteration_time_ms"], low=low, high=high)


_SLIDES, _SLIDE_PROXIES = (Path(__file__).with_name(name) for name in ("slides.csv", "slides_proxies.csv"))
_WITHOUT_INTERVAL = (float("nan"), float("nan"))


def slide_answers() -> pd.DataFrame:
    """Every printed figure of the founding slides that can be asked, and what is answered by the shipped model.

    A figure of several CNNs, as of a GAN's step, sums them; one `over` another question divides them, at independent
    errors. VGG's epochs on GPU 1 are answered by proxies of the slides' own table.
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
        ways = [_ways({**question, "cnn": cnn}) for cnn in question.pop("cnn")]
        whole_ms = sum(way["one"].iteration_time_ms for way in ways)
        split_ms = sum(way["one"].iteration_time_ms * way["channels"].one_process_ratio for way in ways)
        return (split_ms / whole_ms, *_WITHOUT_INTERVAL)
    times = _times(question, "total_s" if row["unit"] == "s" else "ms")
    if row["unit"] == "iterations/s":
        return 1e3 / times[0], 1e3 / times[2], 1e3 / times[1]
    if not row["over"]:
        return times
    over = _times(json.loads(row["over"]), "ms")
    ratio = (
        over[0] / times[0]
        if row["unit"] == "share" or row["figure"].startswith("static")
        else times[0] / over[0]
    )
    spread = np.exp(np.hypot(np.log(times[2] / times[1]), np.log(over[2] / over[1])) / 2)
    return ratio, ratio / spread, ratio * spread


def _times(question: dict[str, object], unit: str) -> tuple[float, float, float]:
    """Time of a question's CNNs together and the ends of its interval: of an iteration in ms, of all epochs in s."""
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
    factor = 1.0 if unit == "ms" else epochs * sum(row["epoch_time_s"] for row in rows) / iteration
    return iteration * factor, low * factor, high * factor


def _ways(question: dict[str, object]) -> dict[str, ParallelWay]:
    cnn, gpus, sizes = (question.pop(name) for name in ("cnn", "gpus", "batch_sizes"))
    return {way.way: way for way in parallel_ways(Question(cnn, gpus, sizes, **question))}


def slides_in_markdown() -> str:
    """The table of docs/study.md."""
    rows = slide_answers().to_dict("records")
    lines = ["| figure of the slides | unit | printed | answered | inside |", "|---|---|---|---|---|"]
    for row in rows:
        ends = "" if row["inside"] == "no interval" else f" ({row['low']:.3g}-{row['high']:.3g})"
        answered = f"{row['answered']:.3g}{ends}"
        lines.append(
            f"| {row['figure']} | {row['unit']} | {row['printed']:g} | {answered} | {row['inside']} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
