"""What a user would take instead of epochcast, asked the same: `python benchmarks/peers.py --published FOLDER`.

Truths are GPU times and memory of CNNs on an H100 and an H200 that no fit has read, and iterations of PROFET and Lambda
on GPUs that are left out of the fit. A counter of operations becomes a time as a user would make one: three forward
passes over the GPU's peak, times the share of the peak that CNNs reach on all *other* chips (their median), or over
the peaks of Lightning's table alone. Tools run in an environment of their own (`peers_env.py`, pins below).

`--entry NAME=FILE` judges a table of yours beside them: `set, cnn, image_size, gpu, precision, memory_format,
batch_size, predicted_ms`; `--questions FILE` writes the rows to answer, with what was measured.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Iterable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from judges import predicted_peaks_gib
from machine import heading

from predictor.catalogue.devices import find_gpu, peak_tflop_per_s
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.evaluation.run import evaluate
from predictor.evaluation.served import held_out_tables, judge_served
from predictor.files import data_root, published_data_root
from predictor.measurements.published import published_features
from predictor.measurements.table import read_measurements
from predictor.models.served import Model
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.work import layer_flops

PINS = (
    *("torch==2.13.0", "torchvision==0.28.0", "numpy==2.4.6", "transformers==5.24.0", "lightning==2.6.6"),
    *("thop==0.1.1.post2209072238", "torchinfo==1.8.0", "fvcore==0.1.5.post20221221", "ptflops==0.7.5"),
    *("calflops==0.3.2", "accelerate==1.15.0"),
)
OURS = "epochcast"
TWINS = {
    "AlexNet": "alexnet", "ResNet18": "resnet18", "ResNet50": "resnet50", "VGG11": "vgg11", "VGG16": "vgg16",
    "VGG19": "vgg19", "MobileNetV2": "mobilenet_v2",
}  # fmt: skip
"""PROFET's names of CNNs that torchvision has, too; those of 224 pixels are asked."""

SCENARIOS = {"unseen-gpu-specs": "PROFET", "unseen-gpu-specs-lambda": "Lambda"}
LISTED_AS = {"h100 sxm": "h100 80gb hbm3", "h200 sxm1": "h200", "v100 sxm": "v100 sxm", "a6000": "rtx a6000"}
"""Beginnings of our names of GPUs that Lightning's table calls otherwise."""

LISTED_TYPES = {"fp32": "torch.float32", "amp_bf16": "torch.bfloat16", "amp_fp16": "torch.float16"}
NO_TORCHVISION = "resnet18_cifar"
"""The one held-out CNN that torchvision lacks."""

ROW = ["set", "cnn", "image_size", "gpu", "precision", "memory_format", "batch_size"]
ORDERED = 1.05
"""GPUs whose times differ by at most this factor have no order."""


def main() -> int:
    """Ask, judge and print."""
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("--published", type=Path, help="folder of the published tables")
    parser.add_argument("--env", type=Path, help="environment with the tools; else one is made and removed")
    parser.add_argument("--entry", action="append", default=[], metavar="NAME=FILE")
    parser.add_argument("--questions", type=Path, metavar="FILE")
    options = parser.parse_args()
    times = measured_times(published_data_root(options.published))
    if options.questions:
        times.drop(columns=["predicted_ms", "low", "high"]).to_csv(options.questions, index=False)
        return 0
    memory = measured_memory()
    answers = answers_of_peers(options.env, times, memory)
    predicted = {OURS: times["predicted_ms"], **napkins(times, answers)}
    for entry in options.entry:
        name, _, path = entry.partition("=")
        predicted[name] = times[ROW].merge(pd.read_csv(path), on=ROW, how="left")["predicted_ms"]
    print(heading("peers"))
    print(table_of_times(times, predicted, answers).to_string(index=False, na_rep="-"), end="\n\n")
    print(table_of_memory(memory, answers).to_string(index=False, na_rep="-"), end="\n\n")
    print(table_of_forms(answers).to_string(index=False, na_rep="refused"))
    return 0


def measured_times(published: Path) -> pd.DataFrame:
    """Rows of `ROW`, `measured_ms`, our `predicted_ms` with `low` and `high`, of CNNs that torchvision has."""
    own = judge_served(held_out_tables(data_root() / "measurements"), Model.load()).assign(set="Hopper")
    own = own[own["cnn"] != NO_TORCHVISION]
    features = published_features(published)
    judged = evaluate(features, list(SCENARIOS), ["roofline"]).predictions
    rows = features.iloc[judged["row"].to_numpy()].reset_index(drop=True)
    judged = judged.assign(
        set=judged["scenario"].map(SCENARIOS), memory_format=rows["memory_format"], xla=rows["xla"],
        cnn=judged["cnn"].str.partition("/")[2].replace(TWINS),
    )  # fmt: skip
    kept = judged["cnn"].isin([*TWINS.values(), "resnet152", "inception_v3"])
    kept &= judged["image_size"].isin((224, 299))
    frame = pd.concat([own, judged[kept & ~judged["xla"].eq(True).fillna(False)]], ignore_index=True)
    frame = frame.rename(columns={"measured": "measured_ms", "predicted": "predicted_ms"})
    return frame[[*ROW, "measured_ms", "predicted_ms", "low", "high"]].drop_duplicates(ROW, ignore_index=True)


def measured_memory() -> pd.DataFrame:
    """Peaks in GiB of PyTorch's allocator in fp32 and TF32, without the CUDA context, of CNNs that no fit has read."""
    frame = pd.concat([read_measurements(path) for path in held_out_tables(data_root() / "measurements")])
    frame = frame[frame["precision"].isin(("fp32", "tf32")) & (frame["peak_memory_mib"] > 512)]
    frame = frame[frame["cnn"] != NO_TORCHVISION].drop_duplicates(["cnn", "image_size", "batch_size"])
    kept = frame[["cnn", "image_size", "batch_size"]].assign(measured=frame["peak_memory_mib"] / 1024)
    ours = predicted_peaks_gib(frame.assign(memory_format="nchw"))
    return kept.assign(**{OURS: ours}).reset_index(drop=True)


def answers_of_peers(env: Path | None, times: pd.DataFrame, memory: pd.DataFrame) -> pd.DataFrame:
    """Answers of every tool: a row of `tool, what, cnn, image_size, batch_size, value, refused, seconds`."""
    sizes = memory.groupby(["cnn", "image_size"])["batch_size"].apply(sorted)
    cnns = [
        {"cnn": cnn, "image_size": int(side), "batch_sizes": list(map(int, sizes.get((cnn, side), [])))}
        for cnn, side in times[["cnn", "image_size"]].drop_duplicates().itertuples(index=False)
    ]
    estimates = [list(row) for row in dict.fromkeys(filter(None, asked_estimates(times)))]
    with tempfile.TemporaryDirectory() as folder:
        python = (env or Path(folder)) / "bin" / "python"
        if env is None:
            venv.create(folder, with_pip=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *PINS], check=True)
        program = Path(__file__).with_name("peers_env.py")
        question = json.dumps({"cnns": cnns, "estimates": estimates})
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        command = [python, program]
        ran = subprocess.run(command, input=question, capture_output=True, text=True, env=clean, check=False)
    if ran.returncode:
        raise DataError(f"{program.name} ended with {ran.returncode}: {ran.stderr[-500:]}")
    return pd.DataFrame([json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")])


def asked_estimates(times: pd.DataFrame) -> list[tuple[Any, ...] | None]:
    """What PyTorch's RuntimeEstimator is asked of each row: those on Hopper without autocast; None of the others."""
    return [
        (
            row.cnn,
            row.image_size,
            row.batch_size,
            peak_tflop_per_s(gpu, row.precision),
            gpu.memory_bandwidth_gb_per_s,
        )
        if row.set == "Hopper" and row.precision in ("fp32", "tf32") and row.memory_format == "nchw"
        else None
        for row, gpu in zip(times.itertuples(), map(find_gpu, times["gpu"]), strict=True)
    ]


def napkins(times: pd.DataFrame, answers: pd.DataFrame) -> dict[str, pd.Series]:
    """Times in ms by each counter: three forward passes over peak x share.

    The share is the median of all other chips' medians, those on tensor cores and the others apart.
    """
    gpus, modes = [find_gpu(gpu) for gpu in times["gpu"]], times["precision"]
    in_fp32 = pd.Series([gpu.peak_fp32_tflop_per_s for gpu in gpus], dtype=float)
    peak = pd.Series(list(map(peak_tflop_per_s, gpus, modes)), dtype=float).fillna(in_fp32)
    kind, chip = peak > in_fp32, pd.Series([gpu.chip for gpu in gpus])
    at_peak_ms, by_counter = {}, {}
    for tool, counted in answers[answers["what"] == "flops"].groupby("tool", sort=False):
        flops = counted.set_index(["cnn", "image_size"])["value"]
        operations = 3 * flops.reindex(pd.MultiIndex.from_frame(times[["cnn", "image_size"]])).to_numpy()
        at_peak_ms[tool] = operations * times["batch_size"] / peak / 1e9
        reached = at_peak_ms[tool] / times["measured_ms"]
        of_chip = reached.groupby([kind, chip]).median()
        others = [of_chip[kind[row]].drop(chip[row]).median() for row in times.index]
        by_counter[str(tool)] = at_peak_ms[tool] / others
    estimated = answers[answers["what"] == "estimate"]
    estimates = dict(zip(map(tuple, estimated["estimated"]), estimated["value"], strict=True))
    by_counter["RuntimeEstimator"] = pd.Series(
        [estimates.get(row, np.nan) for row in asked_estimates(times)], dtype=float
    )
    peaks = answers.loc[answers["what"] == "peaks", "peaks"].iloc[0]
    listed = [listed_peak(peaks, gpu, mode) for gpu, mode in zip(times["gpu"], modes, strict=True)]
    by_counter["Lightning, its peaks"] = at_peak_ms["Lightning"] * peak / pd.Series(listed, dtype=float)
    return by_counter


def listed_peak(peaks: dict[str, dict[str, float]], gpu: str, precision: str) -> float:
    """Peak in TFLOP/s of Lightning's table, NaN where it does not list the GPU or the type."""
    words = re.sub(r"nvidia |geforce |tesla |quadro ", "", gpu.lower()).replace("-", " ")
    names = {name: f"{LISTED_AS.get(name, name)} " for name in peaks}
    row = next((peaks[name] for name, begin in names.items() if f"{words} ".startswith(begin)), {})
    return row.get(LISTED_TYPES.get(precision, "tfloat32"), np.nan) / 1e12


def table_of_times(
    times: pd.DataFrame, predicted: dict[str, pd.Series], answers: pd.DataFrame
) -> pd.DataFrame:
    """A row for each tool: mean error in % by set, pairs of GPUs in the right order, CNNs refused, seconds a CNN."""
    seconds = answers[answers["what"].isin(("flops", "estimate"))].groupby("tool")["seconds"].median()
    seconds[OURS] = own_seconds(sorted(set(times["cnn"])))
    counts = answers[answers["what"] == "flops"].groupby("tool")
    refused = counts["refused"].count() if "refused" in answers else {}
    rows = []
    for name, column in predicted.items():
        error = 100 * (column / times["measured_ms"] - 1).abs()
        sets = {f"{part}, %": round(own.mean(), 1) for part, own in error.groupby(times["set"], sort=False)}
        rows.append(
            {
                "time by": name,
                **sets,
                "order, %": round(100 * np.mean(list(ordered_pairs(times.assign(answer=column)))), 1),
                "answered": f"{column.notna().sum()} of {len(times)}",
                "refused CNNs": refused.get(name, 0),
                "s a CNN": round(seconds.get(name, np.nan), 2),
            }
        )
    return pd.DataFrame(rows)


def own_seconds(cnns: list[str]) -> float:
    """Median seconds of a first answer about a CNN on an H100: its layers, operators, time and interval."""
    model, seconds = Model.load(), []
    for cnn in cnns:
        start = time.perf_counter()
        model.forecast(zoo_cnn(cnn), find_gpu("H100 SXM"), Mode(), [64])
        seconds.append(time.perf_counter() - start)
    return float(np.median(seconds))


def ordered_pairs(times: pd.DataFrame) -> Iterator[bool]:
    """Whether the answers put two GPUs, of one question, in the measured order; equal answers do not."""
    question = ["set", "cnn", "image_size", "precision", "batch_size"]
    for _, rows in times.dropna(subset="answer").groupby(question):
        for (first_ms, first), (second_ms, second) in combinations(
            zip(rows["measured_ms"], rows["answer"], strict=True), 2
        ):
            if max(first_ms / second_ms, second_ms / first_ms) > ORDERED:
                yield bool(first != second and (second_ms > first_ms) == (second > first))


def table_of_memory(memory: pd.DataFrame, answers: pd.DataFrame) -> pd.DataFrame:
    """A row for each tool: mean error in %, bias, largest error, peaks answered."""
    rows, key = [], ["cnn", "image_size", "batch_size"]
    predicted = {OURS: memory[OURS]} | {
        tool: memory[key].merge(answered, on=key, how="left")["value"]
        for tool, answered in answers[answers["what"] == "memory"].groupby("tool", sort=False)
    }
    for name, column in predicted.items():
        error = 100 * (column / memory["measured"] - 1)
        figures = {
            "error, %": error.abs().mean(),
            "bias, %": error.mean(),
            "worst, %": error[error.abs().idxmax()],
        }
        answered = f"{column.notna().sum()} of {len(memory)}"
        rows.append({"memory by": name, **{k: round(v, 1) for k, v in figures.items()}, "answered": answered})
    return pd.DataFrame(rows)


def table_of_forms(answers: pd.DataFrame) -> pd.DataFrame:
    """Counted over real operations of the forward pass of each form, a column for each tool."""
    import torch
    from peers_forms import CHANNELS, FORMS, SIDE

    from predictor.cnns.torch_step import record

    forms = answers[answers["what"] == "form"]
    table = forms.pivot_table("value", "form", "tool", sort=False)
    images = torch.zeros(2, CHANNELS, SIDE, SIDE)
    for form in table.index:
        make, multiply_adds = FORMS[form]
        recorded = product_flops(record(make(), images), ["forward"])
        table.loc[form, OURS] = recorded / (2 * multiply_adds)
    return table.round(2).reset_index()


def product_flops(table: LayerTable, passes: Iterable[str]) -> float:
    """Operations of an image in the products and convolutions of a table, which counters count, in these passes."""
    products = [layer for layer in table if OPERATOR_TYPES[layer.type].product is not None]
    return sum(layer_flops(layer, pass_, 1) for layer in products for pass_ in passes)


if __name__ == "__main__":
    sys.exit(main())
