"""PyTorch training steps from three projects, Pascal to Hopper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from predictor.measurements.published.data_set import DataSet, Provenance, layer_tables_of, zoo_layers

if TYPE_CHECKING:
    import pandas as pd

_SOURCES = {
    "lambda_pytorch": "pytorch/lambda",
    "sia": "pytorch/sia",
    "pytorch_gpu_benchmark": "pytorch/gpu-benchmark",
}
# Sia's step waits for the loader and takes statistics of gradients.
_WITH_LOADER = "sia"
# NVIDIA's "v1.5" (stride in the 3x3 convolution) is what torchvision, and the zoo, call resnet50.
_CNNS = {"resnet50_v1.5": "resnet50"}


def _columns(rows: pd.DataFrame) -> dict[str, Any]:
    """`source` distinguishes the three projects; `notes` keeps their other columns."""
    tuned = rows["notes"].str.contains("cudnn.benchmark=1", regex=False)
    waits = rows["source"] == _WITH_LOADER
    copies = waits | rows["notes"].str.contains("h2d_copy_in_time=1", regex=False)
    return {
        "source": rows["source"].map(_SOURCES).fillna(rows["source"]),
        "cnn": "pytorch/" + rows["cnn"].replace(_CNNS),
        "autotune": tuned.astype("boolean").where(tuned),
        "float32_matmul_precision": (rows["precision"] == "tf32").map({True: "high"}),
        "copies_input": copies.astype("boolean").where(copies),
        "waits_for_loader": waits.astype("boolean").where(waits),
        "n_repeats": rows["n_samples"].where(rows["source"] == "pytorch_gpu_benchmark"),
        "notes": "input_data=" + rows["input_data"] + ";" + rows["notes"],
    }


def _oddities(table: pd.DataFrame) -> list[str]:
    copied = table["notes"].str.contains("h2d_copy_in_time=1", regex=False)
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


_TABLE = "pytorch_training.csv.gz"
DATA_SET = DataSet(
    name="pytorch",
    table=_TABLE,
    holds={"kind": "target"},  # some rows copy their images or wait for a loader, others do not: `_columns`
    times=("iteration_time_ms",),
    renamed={name: name for name in ("image_size", "pass", "iteration_time_ms")},
    needed=("source", "cnn", "n_samples", "input_data", "notes"),
    computed=_columns,
    oddities=_oddities,
    layer_tables=layer_tables_of(_TABLE, "pytorch", zoo_layers, _CNNS),
    provenance=Provenance(
        project="Lambda deep learning benchmark; Sia; pytorch-gpu-benchmark",
        repository="https://github.com/lambdal/deeplearning-benchmark, "
        "https://github.com/siasosp23/artifacts, https://github.com/lamikr/pytorch-gpu-benchmark",
        licence="none stated (facts only); see its repository; MIT",
        citation="Lambda Labs, deeplearning-benchmark; S. Jayaram Subramanya et al., Sia: "
        "Heterogeneity-aware, goodput-optimized ML-cluster scheduling, SOSP 2023; pytorch-gpu-benchmark "
        "contributors",
        measured="ResNet-50 at one batch size per GPU and precision in NGC containers; batch curves of "
        "ResNet-50 and CIFAR ResNet-18 on T4 and A100; about 30 torchvision CNNs at batch 12, forward and "
        "backward",
    ),
)
