"""Operator types left out of an H200's library: answered by its other operators, by specifications, or by both.

Judged on the GPU time of our CNNs that have the type. "mixed" is what `predict` does: specifications tell the time of a
type never measured, operators all others.
"""

from collections.abc import Iterator

import numpy as np
import pandas as pd
from machine import machine

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.measurements.schema import is_compiled
from predictor.models.base import Case
from predictor.models.fit import own_measurements
from predictor.models.layer_times.files import LayerModel, library_mode
from predictor.models.layer_times.law import counted_operators, layer_sums
from predictor.models.served import Model
from predictor.operators.kernels import operator_classes_of

H200 = find_gpu("NVIDIA H200")
MODES = (("tf32", "nchw"), ("amp_bf16", "nchw"), ("amp_bf16", "channels_last"))
TYPES = ("activation", "batch_norm", "add", "max_pool", "concat", "avg_pool", "multiply", "linear")
MATMUL = "high"  # as CNNs in TF32 were measured


def main() -> None:
    model, measured = Model.load(), targets()
    print(f"types_left_out | {machine()}\n\n{'':34} {'all':>6} {'others':>7} {'specs':>7} {'mixed':>7}  CNNs")
    for precision, memory_format in MODES:
        mode = Mode(
            precision=precision,
            memory_format=memory_format,
            capture="graph",
            float32_matmul_precision=MATMUL,
        )
        layers = model.layers.measured(library_mode(H200, mode))
        rows = measured[(measured["precision"] == precision) & (measured["memory_format"] == memory_format)]
        for name in TYPES:
            errors = np.array(list(errors_without(name, model, layers, mode, rows)))
            numbers = " ".join(f"{each:7.1%}" for each in errors.mean(axis=0))
            print(f"{precision + ' ' + memory_format:22} {name:11} {numbers}  {len(errors):4}", flush=True)


def targets() -> pd.DataFrame:
    """GPU times of the H200's CNNs whose layers were measured, in PyTorch, uncompiled."""
    rows = own_measurements(("targets",))
    rows = rows[
        (rows["gpu"] == H200.name) & (rows["framework"] == "pytorch") & (rows["source"] == "epochcast")
    ]
    rows = rows[rows["gpu_time_ms"].notna() & (rows["n_gpus"].fillna(1) == 1) & ~is_compiled(rows)]
    in_tf32 = (rows["precision"] != "tf32") | (rows["float32_matmul_precision"] == MATMUL)
    rows = rows[in_tf32 & ~rows["autotune"].fillna(False).astype(bool)]
    return rows.assign(memory_format=rows["memory_format"].fillna("nchw"))


def errors_without(
    name: str, model: Model, layers: LayerModel, mode: Mode, rows: pd.DataFrame
) -> Iterator[tuple[float, ...]]:
    """Mean absolute error of each CNN that has the type: all measured, without it, by specifications, mixed."""
    lesser = layers.library.without([each for each in layers.library.operators if each.type == name])
    for (cnn, image_size), own in rows.groupby(["cnn", "image_size"]):
        table = zoo_cnn(cnn, int(image_size))
        if all(each.type != name for each in counted_operators(table)[0]):
            continue
        times = own.groupby("batch_size")["gpu_time_ms"].median()
        batches, truth = times.index.to_numpy(dtype=float), times.to_numpy()
        specified = model.roofline.forecasts([Case(cnn, int(image_size), table, H200, mode, batches, ())])[0]
        whole, others = (
            layer_sums(library, table, batches, mode.fp32_products) for library in (layers.library, lesser)
        )
        mixed = others.with_specified(operator_classes_of(specified.class_ms))
        answers = [layers.law.gpu_ms(each) for each in (whole, others, mixed)]
        answers.insert(2, specified.gpu_time_ms)
        yield tuple(float(np.mean(np.abs(each / truth - 1))) for each in answers)


if __name__ == "__main__":
    main()
