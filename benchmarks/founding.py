"""How far the founding study's approaches lie from measurements in its three scalings, beside the default.

Run it as `python benchmarks/founding.py`: our tables in TF32 (H200 and H100), fp32 (H200 and CPUs) and of Chainer.
`--published TABLES` judges from chip to chip instead: proxies are regressed from published single convolutions, whole
CNNs are PROFET's on the same three chips. `--slides` answers the figures that the study's slides print. Approach 1 on
published GPUs: `epochcast evaluate --predictor gpu-specs --scenario unseen-gpu-specs`.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
from machine import heading

import epochcast
from predictor.answers.parallel import parallel_ways
from predictor.answers.question import Question
from predictor.cnns.proxies import FOUNDING_PROXIES, proxy_table
from predictor.evaluation.run import evaluate
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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", nargs="+", choices=_MODES, default=list(_MODES), help="rows to judge")
    parser.add_argument("--jobs", type=int, default=1, help="number of processes")
    parser.add_argument("--out", help="CSV file for `epochcast fit --accuracy`")
    parser.add_argument("--published", type=Path, help="folder of published tables: judge from chip to chip")
    parser.add_argument("--slides", action="store_true", help="answer every printed figure of the slides")
    options = parser.parse_args(arguments)
    print(heading("founding"))
    if options.slides:
        print(slides_in_markdown())
    elif options.published:
        print_from_chip_to_chip(pd.concat(from_chip_to_chip(chip_rows(options.published)), ignore_index=True))
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


class WithoutTerms(ProxyTimes):
    """Approach 2 without some of its terms: what these are worth."""

    def __init__(self, left_out: tuple[str, ...] = ()) -> None:
        self.left_out = left_out

    def terms(self, case: Case) -> Terms:
        """Features by term, 0 for those left out."""
        return {name: feature * (name not in self.left_out) for name, feature in super().terms(case).items()}


_HOST, _ELEMENTWISE = ("layers", "iteration"), ("elementwise",)
_LAWS = {
    "gpu-specs": GpuSpecs(),
    "proxy-times": ProxyTimes(),
    "without elementwise work": WithoutTerms(_ELEMENTWISE),
    "without the host": WithoutTerms(_HOST),
    "without both": WithoutTerms(_HOST + _ELEMENTWISE),
}
_CHIPS = {"Tesla K80": "K80", "Tesla M60": "M60", "Tesla V100-SXM2-16GB": "V100"}
_PROXY_SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Batch sizes of the published single convolutions end at 64."""


def chip_rows(folder: Path) -> pd.DataFrame:
    """Feature table of PROFET's CNNs on three chips, and of proxies regressed from single convolutions on the same.

    The shortest proxy of a GPU counts as the host's time, as an iteration's instrument would measure it.
    """
    layers = pd.read_csv(folder / "justus_single_conv.csv.gz")
    trained = layers[(layers["optimizer"] != "none") & (layers["precision"] == "fp32")]
    proxies = pd.concat(
        [_regressed_proxies(trained[trained["gpu"] == gpu]).assign(gpu=gpu) for gpu in _CHIPS]
    )
    shortest = proxies.groupby("gpu")["iteration_time_ms"].transform("min")
    proxies = proxies.assign(host_time_ms=shortest, gpu_time_ms=proxies["iteration_time_ms"] - shortest)
    mode = {
        "kind": "proxy",
        "source": "profet",
        "framework": "tensorflow",
        "precision": "fp32",
        "pass": "training",
    }
    targets = published_features(folder)
    targets = targets[(targets["source"] == "profet") & targets["gpu"].isin(_CHIPS)]
    features = feature_table(proxies[proxies["gpu_time_ms"] > 0].assign(**mode).reset_index(drop=True))
    return pd.concat([features, targets], ignore_index=True).assign(memory_format="nchw", autotune=False)


def _regressed_proxies(layers: pd.DataFrame) -> pd.DataFrame:
    """Times of the founding proxies by a regression over a GPU's single convolutions, 7 to 9 % off on unseen ones."""
    from sklearn.ensemble import HistGradientBoostingRegressor

    law = HistGradientBoostingRegressor(max_iter=400, learning_rate=0.06, random_state=0)
    law.fit(_convolution_features(layers), np.log(layers["time_ms_median"]))
    convolutions = [
        next(layer for layer in proxy_table(name) if layer.type == "conv2d") for name in FOUNDING_PROXIES
    ]
    rows = pd.DataFrame(
        {
            "cnn": name, "image_size": layer.in_height, "batch_size": size, "in_size": layer.in_height,
            "in_channels": layer.in_channels, "out_channels": layer.out_channels, "kernel_size": layer.kernel_height,
            "stride": layer.stride_height, "padding": "same", "activation": "relu", "use_bias": True,
            "optimizer": "momentum",
        }
        for name, layer in zip(FOUNDING_PROXIES, convolutions, strict=True)
        for size in _PROXY_SIZES
    )  # fmt: skip
    times = np.exp(law.predict(_convolution_features(rows)))
    return rows[["cnn", "image_size", "batch_size"]].assign(iteration_time_ms=times)


def _convolution_features(layers: pd.DataFrame) -> np.ndarray:
    """Work, bytes and sides of convolutions as logarithms, and what else the published table says of them."""
    batch, inputs, outputs, kernel = (
        layers[name] for name in ("batch_size", "in_channels", "out_channels", "kernel_size")
    )
    lost = np.where(layers["padding"] == "same", 0, kernel - 1)
    side = np.maximum(np.ceil((layers["in_size"] - lost) / layers["stride"]), 1)
    weights = kernel**2 * inputs * outputs
    flops = 2 * batch * side**2 * weights
    moved = 4 * batch * (layers["in_size"] ** 2 * inputs + side**2 * outputs)
    sizes = (flops, moved, batch, layers["in_size"], inputs, outputs, side, weights, flops / moved)
    words = [
        layers["activation"].map(["none", "relu", "sigmoid", "tanh"].index),
        layers["optimizer"].map(["sgd", "momentum", "adagrad", "rmsprop", "adadelta", "adam"].index),
    ]
    options = [kernel, layers["stride"], layers["padding"] == "same", layers["use_bias"], *words]
    return np.column_stack([*map(np.log, sizes), *options])


def from_chip_to_chip(rows: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Predicted and measured times of CNNs on each chip, by fits on each other one: all sizes known, or each unseen."""
    is_proxy = rows["kind"] == "proxy"
    sizes = np.unique(rows.loc[~is_proxy, "batch_size"])
    for chip in _CHIPS:
        own, others = rows["gpu"] == chip, ~is_proxy & (rows["gpu"] != chip)
        for scaling, unseen in [("hardware", sizes[:0]), *(("both", sizes[k::4]) for k in range(4))]:
            is_unseen = rows["batch_size"].isin(unseen)
            tested = rows[others & is_unseen if unseen.size else others]
            for name, law in _LAWS.items():
                train = rows[own & ~is_proxy & ~is_unseen | is_proxy & (name != "gpu-specs")]
                predicted = law.fit(train, train["iteration_time_ms"]).predict(tested)
                yield tested[["gpu", "cnn", "image_size", "batch_size"]].assign(
                    scaling=scaling,
                    predictor=name,
                    way=_CHIPS[chip] + " > " + tested["gpu"].map(_CHIPS),
                    error=np.abs(predicted / tested["iteration_time_ms"] - 1),
                    log_error=np.abs(np.log(predicted / tested["iteration_time_ms"])),
                )


def width_of(answers: pd.DataFrame) -> float:
    """Least half width of ln time that holds 90 % of the answers, and 85 % of those of each way and of each CNN."""
    by_group = [answers.groupby(group)["log_error"].quantile(0.85) for group in ("way", "cnn")]
    return max(answers["log_error"].quantile(0.9), *(quantiles.max() for quantiles in by_group))


def print_from_chip_to_chip(answers: pd.DataFrame) -> None:
    """Errors by way, and how many answers of proxy-times lie inside a width that the ways of other pairs set."""
    by_way = answers.pivot_table("error", ["scaling", "predictor"], "way")
    print(by_way.assign(mean=by_way.mean(axis=1)).round(3).to_string())
    for scaling, own in answers[answers["predictor"] == "proxy-times"].groupby("scaling"):
        pairs = own["way"].map(lambda way: frozenset(way.split(" > ")))
        widths = {pair: width_of(own[pairs != pair]) for pair in set(pairs)}
        own = own.assign(inside=own["log_error"] <= pairs.map(widths))
        print(f"{scaling}: {own['inside'].mean():.3f} inside; width of all {width_of(own):.3f}, {widths}")
        for group in ("way", "cnn", "image_size", "batch_size"):
            print(own.groupby(group)["inside"].agg(["size", "mean"]).round(2).T.to_string())


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
