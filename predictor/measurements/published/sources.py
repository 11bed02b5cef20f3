"""The published data sets: our columns by those of each project, what all iterations share, and what to know.

Licences, projects and citations: ``published_sources.csv``; timm's names of CNNs of the zoo: ``timm_cnns.csv``.
"""

from __future__ import annotations

import csv
import re
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from predictor.cnns.layer_csv import zipped_layer_table
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import OutOfRangeError
from predictor.files import data_file
from predictor.measurements.published.profet_layers import profet_layer_tables
from predictor.measurements.published.reader import (
    DataSet,
    forward_algorithms,
    operator_columns,
    square_shapes,
)

if TYPE_CHECKING:
    import pandas as pd


def zoo_layers(cnn: str, image_size: int) -> LayerTable | None:
    """Layer table of a CNN of the zoo; None if the zoo lacks the CNN, or the CNN does not allow this image size."""
    try:
        return zoo_cnn(cnn, image_size)
    except (LookupError, OutOfRangeError):
        return None


# PROFET: training of 12 Keras CNNs on four cloud GPUs, the widest published grid of image and batch sizes.

_PROFET_KEYS = [
    "gpu", "instance", "framework", "precision", "cnn", "image_size", "samples_per_epoch", "batch_size"
]  # fmt: skip

VALIDATION_SAMPLES = {50_000: 10_000, 5_000: 1_000, 2_000: 500}
"""Images of the validation pass at the end of each epoch, by training images.

PROFET's data_generation/workload: dataset_info.py has the numbers, profile_workload.py passes validation_data
to Keras' fit and stops the epoch's clock in on_epoch_end, which Keras calls after validation.
"""


def _profet_medians(table: pd.DataFrame) -> pd.DataFrame:
    """Medians and quartiles of the repeats of each configuration."""
    groups = table.groupby(_PROFET_KEYS, sort=True)
    medians, seconds = groups[["iteration_time_s", "epoch_time_s"]].median(), groups["iteration_time_s"]
    iqr_s = seconds.quantile(0.75) - seconds.quantile(0.25)
    return medians.assign(n_repeats=seconds.size(), iqr_s=iqr_s).reset_index()


def _profet_oddities(table: pd.DataFrame) -> list[str]:
    seconds = table.groupby(_PROFET_KEYS)["iteration_time_s"]
    spread = ((seconds.max() - seconds.min()) / seconds.median()).sort_values()
    worst = dict(zip(_PROFET_KEYS, spread.index[-1], strict=True))
    sizes = seconds.size()
    notes = [
        "epoch_time_s includes a validation pass (validation_samples images, forward only)",
        f"{int((spread > 0.25).sum())} of {len(spread)} configurations spread by more than 25 % over their "
        f"repeats; worst {worst['gpu']}, {worst['cnn']}, {worst['image_size']} px, "
        f"batch {worst['batch_size']}: {spread.iloc[-1]:.0%} of the median",
        "TensorFlow's layout in memory is not stated: memory_format is unknown",
    ]
    if sizes.min() < sizes.max():
        notes.append(f"configurations have {sizes.min()} to {sizes.max()} repeats")
    return notes


_PROFET = DataSet(
    name="profet",
    table="profet_target_cnns.csv.gz",
    # Keras' fit feeds numpy arrays: each step copies its images from the host.
    holds={"kind": "target", "pass": "training", "optimizer": "sgd", "copies_input": True},
    times=("iteration_time_s", "epoch_time_s"),
    columns={
        "host": "instance",
        "samples_per_epoch": "samples_per_epoch",
        "epoch_time_s": "epoch_time_s",
        "validation_samples": lambda rows: rows["samples_per_epoch"].map(VALIDATION_SAMPLES),
        "iteration_time_ms": lambda rows: rows["iteration_time_s"] * 1e3,
        "iteration_time_ms_iqr": lambda rows: rows["iqr_s"] * 1e3,
        "n_repeats": lambda rows: rows["n_repeats"],
    },
    prefix="profet",
    needed=("repeat",),
    arranged=_profet_medians,
    oddities=_profet_oddities,
    read_layers=profet_layer_tables,
)


# Lambda's TensorFlow benchmark: six CNNs of tf_cnn_benchmarks on the widest published choice of GPUs.

_LAST_WITHOUT_TF32 = "2.3"
# Times further off than this from what GPU and CNN suggest are called suspect: four rows at most of the 452.
_SUSPECT = 1.6
_MACHINE = re.compile(
    r"^machine=(?:(?:Processor|Platinum)-)?(.*?)[-_](?:\dx)?_?(?:GeForce|Quadro|RTX|Tesla|A100|Radeon)"
)


def _tf_versions(rows: pd.DataFrame) -> pd.DataFrame:
    """Name, version and whether XLA compiles, from words such as ``tensorflow-1.15-xla``."""
    return rows["framework"].str.extract(r"^(?P<name>[a-z]+)-(?P<version>[\d.]+)(?P<xla>-xla)?$")


def _tf_precision(rows: pd.DataFrame) -> pd.Series:
    """TensorFlow uses TF32 on Ampere by itself from 2.4 on (TensorFlow's RFC 287); before, only vendor builds did."""
    precision, is_old = rows["precision"], _tf_versions(rows)["version"] == _LAST_WITHOUT_TF32
    is_unclear = precision == "fp32_or_tf32"
    return precision.mask(is_unclear & is_old, "fp32").mask(is_unclear & ~is_old, "tf32")


def _likeness(table: pd.DataFrame) -> pd.Series:
    """Time per image over what the GPU and the CNN usually take in that precision: about 1 for a sane row."""
    import numpy as np
    import pandas as pd

    half = table["precision"] == "fp16_mixed"
    logs = pd.Series(np.log((table["time_ms"] / table["batch_size"]).to_numpy()), index=table.index)
    for names in (table["cnn"], table["gpu"]):
        logs = logs - logs.groupby([names, half]).transform("median")
    return pd.Series(np.exp(logs.to_numpy()), index=table.index)


def _is_suspect(likeness: pd.Series) -> pd.Series:
    return (likeness > _SUSPECT) | (likeness < 1 / _SUSPECT)


def _lambda_notes(rows: pd.DataFrame) -> pd.Series:
    likeness = _likeness(rows)
    marks = likeness.map(";suspect={:.1f}x".format).where(_is_suspect(likeness), "")
    return rows["extra"] + marks


def _lambda_oddities(table: pd.DataFrame) -> list[str]:
    likeness = _likeness(table)
    odd = table.assign(likeness=likeness)[_is_suspect(likeness)].reset_index()
    notes = [
        f"line {row['line']}: {row['gpu']}, {row['cnn']}, {row['precision']}, {row['framework']} takes "
        f"{row['likeness']:.1f} x what its neighbours suggest; kept, marked suspect in notes"
        for row in odd.to_dict("records")
    ]
    unclear = int((table["precision"] == "fp32_or_tf32").sum())
    if unclear:
        notes.append(
            f"{unclear} rows on Ampere do not say whether fp32 or TF32 was used: fp32 with TensorFlow 2.3, TF32 with "
            "2.4, which made it the default (RFC 287)"
        )
    return [
        *notes,
        "time_ms_spread, the benchmark's jitter, is no interquartile range and is left out",
        "alexnet really sees 227 pixels (tf_cnn_benchmarks adds 3); image_size says 224 as published",
    ]


def tf_cnn(cnn: str, image_size: int) -> LayerTable | None:
    """Layer table of one of tf_cnn_benchmarks' six CNNs at its published image size; None of any other.

    They differ from the zoo's (scripts/tf_cnn_benchmarks of https://github.com/tensorflow/benchmarks): 1001 classes;
    ResNet v1 strides in a block's first 1x1 convolution; Inception's batch norms have no scale; AlexNet sees 227 pixels
    and has 384 channels in its fourth convolution.
    """
    table = zipped_layer_table(data_file("tf_cnns.zip"), f"{cnn}@{image_size}.csv", f"lambda/{cnn}")
    return None if table is None else replace(table, source="tf_cnn_benchmarks")


_LAMBDA = DataSet(
    name="lambda-tf",
    table="lambda_tf_training.csv.gz",
    holds={"kind": "target", "pass": "training", "copies_input": False, "memory_format": "nchw"},
    times=("time_ms",),
    columns={
        "iteration_time_ms": "time_ms",
        "n_repeats": "n_samples",
        "framework": lambda rows: _tf_versions(rows)["name"],
        "framework_version": lambda rows: _tf_versions(rows)["version"],
        "xla": lambda rows: _tf_versions(rows)["xla"].notna(),
        "precision": _tf_precision,
        "host": lambda rows: rows["extra"].str.extract(_MACHINE, expand=False),
        "optimizer": lambda rows: rows["optimizer"].str.lower(),
        "notes": _lambda_notes,
    },
    prefix="lambda",
    needed=("optimizer", "extra"),
    oddities=_lambda_oddities,
    layers=tf_cnn,
)


# PyTorch training steps from three projects, Pascal to Hopper.

_PYTORCH_SOURCES = {
    "lambda_pytorch": "pytorch/lambda",
    "sia": "pytorch/sia",
    "pytorch_gpu_benchmark": "pytorch/gpu-benchmark",
}


def _true_or_unknown(is_true: pd.Series) -> pd.Series:
    return is_true.astype("boolean").where(is_true)


def _has_note(rows: pd.DataFrame, note: str) -> pd.Series:
    return rows["notes"].str.contains(note, regex=False)


_COPIES_INPUT = "h2d_copy_in_time=1"


def _pytorch_oddities(table: pd.DataFrame) -> list[str]:
    copied = _has_note(table, _COPIES_INPUT)
    real = table["input_data"] != "synthetic"
    small = table["pass"].eq("forward_backward")
    return [
        "TF32 is that of matrix products, too (float32_matmul_precision high): NVIDIA's containers switch it on, and "
        "PyTorch before 1.12 did, whose age is that of the other two projects",
        f"{int(copied.sum())} rows include the copy of the images to the GPU",
        f"{int(small.sum())} rows are forward and backward without optimizer at batch 12, which is "
        "host-bound on fast GPUs: give them little weight",
        f"{int(real.sum())} rows read real images, so that the loader may be in the time",
        f"{int((table['source'] == 'sia').sum())} rows include gradient statistics (AdaScale)",
        "spread_ms means something else in each project and is left out; n_samples counts machines, not "
        "repeats, for pytorch/lambda",
    ]


_PYTORCH = DataSet(
    name="pytorch",
    table="pytorch_training.csv.gz",
    holds={"kind": "target"},  # some rows copy their images or wait for a loader, others do not
    times=("iteration_time_ms",),
    columns={
        "pass": "pass",
        "iteration_time_ms": "iteration_time_ms",
        "source": lambda rows: rows["source"].map(_PYTORCH_SOURCES).fillna(rows["source"]),
        "autotune": lambda rows: _true_or_unknown(_has_note(rows, "cudnn.benchmark=1")),
        "float32_matmul_precision": lambda rows: (rows["precision"] == "tf32").map({True: "high"}),
        # Sia's step waits for the loader and takes statistics of gradients.
        "copies_input": lambda rows: _true_or_unknown(
            (rows["source"] == "sia") | _has_note(rows, _COPIES_INPUT)
        ),
        "waits_for_loader": lambda rows: _true_or_unknown(rows["source"] == "sia"),
        "n_repeats": lambda rows: rows["n_samples"].where(rows["source"] == "pytorch_gpu_benchmark"),
        "notes": lambda rows: "input_data=" + rows["input_data"] + ";" + rows["notes"],
    },
    prefix="pytorch",
    # NVIDIA's "v1.5" (stride in the 3x3 convolution) is what torchvision, and the zoo, call resnet50.
    aliases={"resnet50_v1.5": "resnet50"},
    needed=("source", "n_samples", "input_data", "notes"),
    oddities=_pytorch_oddities,
    layers=zoo_layers,
)


# PyTorch Image Models: training throughput of hundreds of CNNs and transformers on one GPU, and forward passes on Ada
# and Blackwell cards.


@cache
def timm_cnns() -> dict[str, str]:
    """CNNs of the zoo by timm's names of the same architecture, whose parameters agree within 1 %.

    Variants with other stems, activations, antialiasing or TensorFlow padding are other operators and are left out.
    """
    with data_file("timm_cnns.csv").open(newline="", encoding="utf-8") as file:
        return {row["name"]: row["cnn"] for row in csv.DictReader(file)}


def timm_layers(cnn: str, image_size: int) -> LayerTable | None:
    """The zoo's layer table without dropout: timm's benchmark trains with all its rates at 0."""
    table = zoo_layers(timm_cnns().get(cnn, ""), image_size)
    return None if table is None else _without(table, ("dropout", "stochastic_depth"))


def _without(table: LayerTable, types: tuple[str, ...]) -> LayerTable:
    """Leave out the layers of these types, which have one input each, and read that input instead."""
    stands_for: dict[int, int] = {}
    kept: list[Layer] = []
    for layer in table:
        inputs = None if layer.inputs is None else tuple([stands_for.get(i, i) for i in layer.inputs])
        if layer.type in types and inputs is not None:
            stands_for[layer.index] = inputs[0]
            continue
        stands_for[layer.index] = len(kept)
        kept.append(replace(layer, index=len(kept), inputs=inputs))
    return replace(table, layers=tuple(kept))


def _timm_oddities(table: pd.DataFrame) -> list[str]:
    ratio = table["batch_size"] / table["samples_per_s"] * 1e3 / table["iteration_time_ms"]
    return [
        f"batch size / samples_per_s exceeds iteration_time_ms by {ratio.median() - 1:.1%} (median), at most "
        f"{ratio.max() - 1:.1%}: throughput includes time between steps; iteration_time_ms is taken",
        "the batch size shrank until it fitted, so it differs by model and memory format",
        f"{table['cnn'].nunique()} architectures, many of them transformers, without layer table",
    ]


_TIMM = DataSet(
    name="timm",
    table="timm_training_rtx3090.csv.gz",
    # timm's benchmark.py: cuDNN tries its algorithms, ten warm-ups, SGD with momentum, images made on the GPU.
    holds={"kind": "target", "pass": "training", "copies_input": False, "autotune": True}
    | {"optimizer": "momentum", "n_warmup": 10},
    times=("iteration_time_ms",),
    columns={
        "memory_format": "memory_format",
        "iteration_time_ms": "iteration_time_ms",
        "notes": lambda rows: "parameters_m=" + rows["parameters_m"].astype(str),
    },
    prefix="timm",
    needed=("samples_per_s", "parameters_m"),
    oddities=_timm_oddities,
    layers=timm_layers,
)

_EAGER = "eager"


def _eager(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows that no compiler touched; their framework is written ``pytorch 2.4.0 cu124 eager``."""
    words = rows["framework"].str.split()
    chosen = rows[words.str[-1] == _EAGER]
    return chosen.assign(framework=words.str[0] + "-" + words.str[1])


def _timm_forward_oddities(table: pd.DataFrame) -> list[str]:
    compiled = ~table["framework"].str.endswith(_EAGER)
    return [
        f"{int(compiled.sum())} rows were compiled by torch.compile, which fuses operators, and are left out",
        f"{table['cnn'].nunique()} architectures, many of them transformers, without layer table",
        "no gradient is computed: times of passes forward, in evaluation mode",
    ]


_TIMM_FORWARD = replace(
    _TIMM,
    name="timm-forward",
    table="timm_forward.csv.gz",
    holds={"kind": "target", "pass": "forward", "copies_input": False, "autotune": True},
    columns={**_TIMM.columns, "batch_size": "batch_size_per_gpu", "notes": "url"},
    needed=(),
    arranged=_eager,
    oddities=_timm_forward_oddities,
)


# Justus et al. 2018: 175,000 random single convolutions on six GPUs, forward only or one training step.


def _justus_shapes(rows: pd.DataFrame) -> pd.DataFrame:
    size, kernel, stride = rows["in_size"], rows["kernel_size"], rows["stride"]
    # TensorFlow: ceil(size / stride) when padded to the same size, else ceil((size - kernel + 1) / stride).
    out_size = (-(-size // stride)).where(rows["padding"] != "valid", -(-(size - kernel + 1) // stride))
    weights = kernel**2 * rows["in_channels"] * rows["out_channels"]
    parameters = weights + rows["use_bias"] * rows["out_channels"]
    return square_shapes(rows, out_size).assign(parameters=parameters)


def _justus_oddities(table: pd.DataFrame) -> list[str]:
    unpadded = [value is None for value in operator_columns("", _justus_shapes(table))["padding_height"]]
    return [
        "a training step (optimizer given) also updates the input image and the target, which are variables "
        "here: longer than the layer's own training",
        f"{sum(unpadded)} of {len(table)} rows pad one side more than the other ('same' padding): padding "
        "unknown, the output size is given",
        f"{int((table['activation'] != 'none').sum())} rows run an activation with the convolution "
        "(activation_kind)",
        "times hold a median, a least and a greatest value, no quartiles",
    ]


_JUSTUS = DataSet(
    name="justus",
    table="justus_single_conv.csv.gz",
    holds={"kind": "operator"},
    times=("time_ms_median",),
    columns={
        "iteration_time_ms": "time_ms_median",
        "pass": lambda rows: (rows["optimizer"] == "none").map({True: "forward", False: "training"}),
        "optimizer": lambda rows: rows["optimizer"].where(rows["optimizer"] != "none"),
        "activation_kind": lambda rows: rows["activation"].where(rows["activation"] != "none"),
    },
    shapes=_justus_shapes,
    needed=(
        "in_size", "in_channels", "out_channels", "kernel_size", "stride", "padding", "activation", "use_bias",
        "optimizer",
    ),
    oddities=_justus_oddities,
)  # fmt: skip


# Baidu's DeepBench: three passes of 94 convolutions through bare cuDNN.

_DEEPBENCH_PASSES = {
    "forward_time_ms": "forward",
    "backward_input_time_ms": "backward_input",
    "backward_weight_time_ms": "backward_weight",
}
_DEEPBENCH_SHAPE = (
    "in_height", "in_width", "in_channels", "out_channels", "kernel_height", "kernel_width", "pad_height",
    "pad_width", "stride_vertical", "stride_horizontal",
)  # fmt: skip


def _by_pass(table: pd.DataFrame) -> pd.DataFrame:
    """One row per pass; a pass without a time has none."""
    import pandas as pd

    passes = [table.assign(part=name, time_ms=table[column]) for column, name in _DEEPBENCH_PASSES.items()]
    long = pd.concat(passes)
    return long[long["time_ms"].notna()].sort_index(kind="stable")


def _deepbench_shapes(rows: pd.DataFrame) -> pd.DataFrame:
    shapes = rows.rename(
        columns={
            "pad_height": "padding_height",
            "pad_width": "padding_width",
            "stride_vertical": "stride_height",
            "stride_horizontal": "stride_width",
        }
    )
    for side in ("height", "width"):
        padded = shapes[f"in_{side}"] + 2 * shapes[f"padding_{side}"] - shapes[f"kernel_{side}"]
        shapes[f"out_{side}"] = padded // shapes[f"stride_{side}"] + 1
    window = shapes["kernel_height"] * shapes["kernel_width"]
    return shapes.assign(parameters=window * shapes["in_channels"] * shapes["out_channels"])


def _deepbench_oddities(table: pd.DataFrame) -> list[str]:
    repeated = int(table.duplicated(["gpu", "framework", "precision", "batch_size", *_DEEPBENCH_SHAPE]).sum())
    return [
        f"{int(table['backward_input_time_ms'].isna().sum())} rows have no backward_input time (the first "
        "layer of a network needs none): no measurement is made of it",
        f"{int((table['forward_algorithm'] == 'LICIT_PRECOMP_GEMM').sum())} algorithms are called "
        "LICIT_PRECOMP_GEMM, a cut-off IMPLICIT_PRECOMP_GEMM; kept as they are",
        f"{repeated} rows repeat the configuration of an earlier row (run-to-run noise)",
        "precision 'mixed' (fp16 numbers, fp32 sums on Tensor Cores) is called amp_fp16",
    ]


_DEEPBENCH = DataSet(
    name="deepbench",
    table="deepbench_conv_training.csv.gz",
    holds={"kind": "operator", "memory_format": "nchw"},
    times=("forward_time_ms", "backward_weight_time_ms"),
    columns={
        "pass": lambda rows: rows["part"],
        # DeepBench's "mixed": fp16 numbers, products summed in fp32 on Tensor Cores, which is what our amp_fp16 runs.
        "precision": lambda rows: rows["precision"].replace({"mixed": "amp_fp16"}),
        "iteration_time_ms": lambda rows: rows["time_ms"],
        "conv_algorithms": lambda rows: forward_algorithms(rows["forward_algorithm"]).where(
            rows["part"] == "forward"
        ),
    },
    shapes=_deepbench_shapes,
    optional_times=("backward_input_time_ms",),
    needed=(*_DEEPBENCH_SHAPE, "forward_algorithm"),
    arranged=_by_pass,
    oddities=_deepbench_oddities,
)

DATA_SETS: dict[str, DataSet] = {
    data_set.name: data_set
    for data_set in (_PROFET, _LAMBDA, _PYTORCH, _TIMM, _TIMM_FORWARD, _JUSTUS, _DEEPBENCH)
}
"""In the order in which their rows are joined; the default model is fitted on all."""
