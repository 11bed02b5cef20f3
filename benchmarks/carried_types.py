"""Operators carried from an H200 to older GPUs by the ratio of rooflines, each type taken as one that no CNN has.

`python benchmarks/carried_types.py`, with PROFET's operator profiles (TensorFlow, fp32) and DeepBench's convolutions in
`$EPOCHCAST_PUBLISHED_DATA`, prints the half width that joins the law's own, for libraries of the same units (tensor
cores or not) and of others, and the coverage with types, and with GPUs, held out. Types with few rows are left out.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from machine import heading

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.measurements.published.profet_layers import profet_layer_tables
from predictor.models.base import Case
from predictor.models.carried import carried_types
from predictor.models.forecast import COVERAGE
from predictor.models.layer_times.files import LayerModels
from predictor.models.served import Model

FOLDER = Path(os.environ.get("EPOCHCAST_PUBLISHED_DATA", "."))
TYPES = {
    "conv2d": ("Conv2D", "_FusedConv2D", "Conv2DBackpropInput", "Conv2DBackpropFilter"),
    "linear": ("MatMul",),
    "batch_norm": ("FusedBatchNormV3", "FusedBatchNormGradV3"),
    "activation": ("Relu", "ReluGrad", "Relu6", "Relu6Grad"),
    "max_pool": ("MaxPool", "MaxPoolGrad"),
}
LEAST_MS = 0.1  # of an operator
SPEAKS_FOR = {"same units": {"fp32": "fp32", "amp_fp16": "amp_bf16"}, "other units": {"fp32": "tf32"}}
"""Precision of a GPU -> that of the H200's library."""

Timed = tuple[str, str, LayerTable, str, int, float]
"""GPU, precision, CNN, type, batch size, and ms of all the CNN's operators of the type."""


def profiles() -> Iterator[Timed]:
    """Types of whole CNNs without depthwise convolutions."""
    tables = profet_layer_tables(FOLDER)
    for row in pd.read_csv(FOLDER / "profet_op_profile.csv.gz").to_dict("records"):
        table = tables.get((f"profet/{row['cnn']}", row["image_size"]))
        for type_, names in TYPES.items() if table and not row["Device_DepthwiseConv2dNative"] else ():
            ms, n = sum(row[f"Device_{name}"] for name in names), sum(layer.type == type_ for layer in table)
            if ms > n * LEAST_MS > 0:
                yield row["gpu"], "fp32", table, type_, row["batch_size"], ms


def convolutions() -> Iterator[Timed]:
    """Single convolutions, behind a norm to which they give a gradient."""
    rows = pd.read_csv(FOLDER / "deepbench_conv_training.csv.gz")
    passes = [f"{name}_time_ms" for name in ("forward", "backward_input", "backward_weight")]
    for row in rows[rows["precision"].isin(["fp32", "mixed"])].dropna(subset=passes).to_dict("records"):
        shape: dict[str, Any] = {name: row[name] for name in ("in_channels", "out_channels")}
        for side, along in (("height", "vertical"), ("width", "horizontal")):
            size, kernel, stride = row[f"in_{side}"], row[f"kernel_{side}"], row[f"stride_{along}"]
            padding = row[f"pad_{side}"]
            shape |= {f"in_{side}": size, f"out_{side}": (size + 2 * padding - kernel) // stride + 1}
            shape |= {f"kernel_{side}": kernel, f"stride_{side}": stride, f"padding_{side}": padding}
        shape["parameters"] = int(np.prod([shape[f"{of}_channels"] for of in ("in", "out")]))
        shape["parameters"] *= row["kernel_height"] * row["kernel_width"]
        conv = Layer(index=1, name="conv", type="conv2d", inputs=(0,), groups=1, dilation=1, **shape)
        same = {
            f"{end}_{of}": shape[f"in_{of}"]
            for of in ("channels", "height", "width")
            for end in ("in", "out")
        }
        parameters = 2 * shape["in_channels"]
        norm = Layer(index=0, name="norm", type="batch_norm", inputs=(IMAGE,), parameters=parameters, **same)
        precision, ms = (
            "fp32" if row["precision"] == "fp32" else "amp_fp16",
            sum(row[name] for name in passes),
        )
        if ms > LEAST_MS:
            yield (
                row["gpu"],
                precision,
                LayerTable("one", row["in_height"], (norm, conv)),
                "conv2d",
                row["batch_size"],
                ms,
            )


def carried(model: Model, library_of: dict[str, str]) -> pd.DataFrame:
    """Measured and carried ms of every row that a library of `library_of` knows, and the law's own half width."""
    widths, seen, rows = dict[tuple[str, str], float](), model.ranges.layer_types, []
    layers = {
        precision: LayerModels(
            model.layers.folder,
            files={
                key: text
                for key, text in model.layers.files.items()
                if f"h200-pytorch-{own}-nchw.json" in key
            },
        )
        for precision, own in library_of.items()
    }
    for name, precision, table, type_, batch_size, ms in chain(profiles(), convolutions()):
        if precision not in library_of:
            continue
        case = Case(
            table.cnn,
            table.image_size,
            table,
            find_gpu(name),
            Mode(precision=precision),
            np.array([batch_size]),
        )
        if (name, precision) not in widths:
            usual = model.roofline.forecasts(
                [replace(case, table=zoo_cnn("resnet50"), batch_sizes=np.array([64]))]
            )[0]
            widths[name, precision] = float(np.log(usual.gpu_high_ms / usual.gpu_time_ms)[0])
        others = [other for other in seen if other != type_]
        times = carried_types([case], layers[precision], model.roofline.law_, others)
        if times is not None:
            about = table.cnn, table.image_size, batch_size, type_, name, precision
            rows.append((*about, ms, float(times.gpu_ms[0, 0]), widths[name, precision]))
    columns = ["cnn", "image_size", "batch_size", "type", "gpu", "precision", "measured", "carried", "width"]
    return pd.DataFrame(rows, columns=columns).assign(share=1.0)


def inside(rows: pd.DataFrame, spread: float) -> float:
    """Share of rows inside, types counting the same, and in a type each GPU of a source."""
    error = np.log(rows["measured"] / rows["carried"]).abs()
    is_inside = error <= np.hypot(rows["width"], spread * rows["share"])
    cells = is_inside.groupby([rows["type"], rows["cnn"] == "one", rows["gpu"], rows["precision"]]).mean()
    return float(cells.groupby("type").mean().mean())


def fitted(rows: pd.DataFrame) -> float:
    """Smallest spread, to a hundredth, that holds 90 % of the rows."""
    return next(spread for spread in np.arange(0.0, 3.0, 0.01) if inside(rows, spread) >= COVERAGE)


def sums(rows: pd.DataFrame) -> pd.DataFrame:
    """Types of one iteration together; `share`: root of the sum of their squared shares."""
    alike = ["cnn", "image_size", "batch_size", "gpu", "precision", "width"]
    several = (
        rows[rows["cnn"] != "one"]
        .assign(share=rows["carried"] ** 2)
        .groupby(alike)
        .filter(lambda own: len(own) > 1)
    )
    added = several.groupby(alike, as_index=False)[["measured", "carried", "share"]].sum()
    return added.assign(share=added["share"] ** 0.5 / added["carried"], type="several")


def main() -> None:
    """Print the spread of libraries of the same units and of others, and the coverage with each label held out."""
    print(heading("carried operators"))
    for words, library_of in SPEAKS_FOR.items():
        rows = carried(Model.load(), library_of)
        print(
            f"{words}: {len(rows)} times, half width {fitted(rows):.2f} beside the law's {rows['width'].mean():.2f}"
        )
        together = sums(rows)
        print(f"  {len(together)} sums of several types: {100 * inside(together, fitted(rows)):.0f} % inside")
        for label in ("type", "gpu"):
            held = {
                name: 100 * inside(own, fitted(rows[rows[label] != name]))
                for name, own in rows.groupby(label)
            }
            each = ", ".join(f"{name} {share:.0f}" for name, share in held.items())
            print(f"  {label} held out: {np.mean([*held.values()]):.0f} % inside ({each})")


if __name__ == "__main__":
    main()
