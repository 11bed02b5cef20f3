"""Operators carried from an H200 to older GPUs by the ratio of rooflines, each type taken as one that no CNN has.

`python benchmarks/carried_types.py`, with PROFET's operator profiles (TensorFlow, fp32) and DeepBench's convolutions in
`$EPOCHCAST_PUBLISHED_DATA`, prints the half width that joins the law's own, for libraries of the same units (tensor
cores or not) and of others, and the coverage with types, and with GPUs, held out. Types with few rows are left out.
"""

import os
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import pandas as pd
from machine import heading

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.measurements.published import load_published, published_layer_tables
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
ALIKE = ["cnn", "image_size", "batch_size", "gpu", "precision", "width"]

Timed = tuple[str, str, LayerTable, str, int, float]
"""GPU, precision, CNN, type, batch size, and ms of all the CNN's operators of the type."""


def profiles() -> Iterator[Timed]:
    """Types of whole CNNs without depthwise convolutions."""
    tables = published_layer_tables(FOLDER)
    for row in pd.read_csv(FOLDER / "profet_op_profile.csv.gz").to_dict("records"):
        table = tables.get((f"profet/{row['cnn']}", row["image_size"]))
        for type_, names in TYPES.items() if table and not row["Device_DepthwiseConv2dNative"] else ():
            ms, n = sum(row[f"Device_{name}"] for name in names), sum(layer.type == type_ for layer in table)
            if ms > n * LEAST_MS > 0:
                yield row["gpu"], "fp32", table, type_, row["batch_size"], ms


def convolutions() -> Iterator[Timed]:
    """Single convolutions with all three passes, behind a norm to which they give a gradient."""
    every = load_published(FOLDER, ["deepbench"])
    names = [entry.name for entry in fields(Layer) if entry.name in every.select_dtypes("number")]
    about = ["gpu", "precision", "batch_size", "cnn", "image_size", *names]
    for key, rows in every.groupby([*dict.fromkeys(about)], dropna=False):
        of = dict(zip(dict.fromkeys(about), key, strict=True))
        cells = {name: int(of[name]) for name in names if of[name] == of[name]}
        conv = Layer(index=1, name="conv", type="conv2d", inputs=(0,), **cells)
        same = {
            f"{end}_{side}": cells[f"in_{side}"]
            for side in ("channels", "height", "width")
            for end in ("in", "out")
        }
        norm = Layer(
            index=0, name="norm", type="batch_norm", inputs=(IMAGE,), parameters=2 * conv.in_channels, **same
        )
        ms = rows["iteration_time_ms"].sum()
        if len(rows) == 3 and ms > LEAST_MS:
            yield (
                of["gpu"],
                of["precision"],
                LayerTable("one", of["image_size"], (norm, conv)),
                conv.type,
                of["batch_size"],
                ms,
            )


def carried(model: Model, library_of: dict[str, str]) -> pd.DataFrame:
    """Measured and carried ms of every row that a library of `library_of` knows, and the law's own half width."""

    @cache
    def layers(precision: str) -> LayerModels:
        words, files = f"h200-pytorch-{library_of[precision]}-nchw.", model.layers.files
        return LayerModels(
            model.layers.folder, files={name: text for name, text in files.items() if words in name}
        )

    @cache
    def width(gpu: str, precision: str) -> float:
        case = Case("", 224, zoo_cnn("resnet50"), find_gpu(gpu), Mode(precision=precision), np.array([64.0]))
        usual = model.roofline.forecasts([case])[0]
        return float(np.log(usual.gpu_high_ms / usual.gpu_time_ms)[0])

    rows = []
    for gpu, precision, table, type_, batch_size, ms in chain(profiles(), convolutions()):
        if precision in library_of:
            case = Case(
                table.cnn,
                table.image_size,
                table,
                find_gpu(gpu),
                Mode(precision=precision),
                np.array([batch_size]),
            )
            others = [other for other in model.ranges.layer_types if other != type_]
            times = carried_types([case], layers(precision), model.roofline.law_, others)
            key = table.cnn, table.image_size, batch_size, gpu, precision, width(gpu, precision)
            if times is not None:
                rows.append((*key, type_, ms, float(times.gpu_ms[0, 0]), 1.0))
    return pd.DataFrame(rows, columns=[*ALIKE, "type", "measured", "carried", "share"])


def inside(rows: pd.DataFrame, spread: float) -> float:
    """Share of rows inside, types counting the same, and in a type each GPU of a source."""
    error = np.log(rows["measured"] / rows["carried"]).abs()
    is_inside = error <= np.hypot(rows["width"], spread * rows["share"])
    cells = is_inside.groupby([rows["type"], rows["cnn"] == "one", rows["gpu"], rows["precision"]]).mean()
    return float(cells.groupby("type").mean().mean())


def fitted(rows: pd.DataFrame) -> float:
    """Smallest spread, to a hundredth, that holds 90 % of the rows."""
    return next(spread for spread in np.arange(0.0, 3.0, 0.01) if inside(rows, spread) >= COVERAGE)


def main() -> None:
    """Print the spread of libraries of the same units and of others, and the coverage with each label held out."""
    print(heading("carried operators"))
    for words, library_of in SPEAKS_FOR.items():
        rows = carried(Model.load(), library_of)
        print(
            f"{words}: {len(rows)} times, half width {fitted(rows):.2f} beside the law's {rows['width'].mean():.2f}"
        )
        several = rows[rows["cnn"] != "one"].assign(share=rows["carried"] ** 2, type="several")
        sums = several.groupby([*ALIKE, "type"], as_index=False)[["measured", "carried", "share"]].sum()
        sums["share"] = sums["share"] ** 0.5 / sums["carried"]  # errors of types are independent
        print(f"  {len(sums)} iterations, all types: {100 * inside(sums, fitted(rows)):.0f} % inside")
        for label in ("type", "gpu"):
            held = {
                name: 100 * inside(own, fitted(rows[rows[label] != name]))
                for name, own in rows.groupby(label)
            }
            each = ", ".join(f"{name} {share:.0f}" for name, share in held.items())
            print(f"  {label} held out: {np.mean([*held.values()]):.0f} % inside ({each})")


if __name__ == "__main__":
    main()
