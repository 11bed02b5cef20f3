"""PyTorch training steps from three projects, Pascal to Hopper.

Called by predictor.measurements.published; calls common.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from predictor.measurements.published.common import (
    Importer,
    ImportReport,
    Provenance,
    finish,
    read_published,
    reject,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["IMPORTER"]

_COLUMNS = (
    "source", "gpu", "framework", "precision", "cnn", "image_size", "batch_size", "pass", "iteration_time_ms",
    "n_samples", "input_data", "notes",
)  # fmt: skip
_SOURCES = {
    "lambda_pytorch": "pytorch/lambda",
    "sia": "pytorch/sia",
    "pytorch_gpu_benchmark": "pytorch/gpu-benchmark",
}
# NVIDIA's "v1.5" (stride in the 3x3 convolution) is what torchvision calls resnet50.
_CNNS = {"resnet50_v1.5": "resnet50"}


def read(path: Path) -> tuple[pd.DataFrame, ImportReport]:
    """One measurement per row; `source` tells the three projects apart, `notes` keeps what else they say."""
    report = ImportReport("pytorch")
    table = reject(read_published(path, _COLUMNS), ("iteration_time_ms",), report)
    versions = table["framework"].str.partition("-")
    report.oddities += _oddities(table)
    tuned = table["notes"].str.contains("cudnn.benchmark=1", regex=False)
    timed = table["source"] == "pytorch_gpu_benchmark"
    return finish(
        {
            "source": table["source"].map(_SOURCES).fillna(table["source"]),
            "framework": versions[0],
            "framework_version": versions[2],
            "gpu": table["gpu"],
            "kind": "target",
            "cnn": "pytorch/" + table["cnn"].replace(_CNNS),
            "image_size": table["image_size"],
            "batch_size": table["batch_size"],
            "pass": table["pass"],
            "precision": table["precision"],
            "autotune": tuned.astype("boolean").where(tuned),
            "n_gpus": 1,
            "iteration_time_ms": table["iteration_time_ms"],
            "n_repeats": table["n_samples"].where(timed),
            "notes": "input_data=" + table["input_data"] + ";" + table["notes"],
        },
        report,
    )


def _oddities(table: pd.DataFrame) -> list[str]:
    copied = table["notes"].str.contains("h2d_copy_in_time=1", regex=False)
    real = table["input_data"] != "synthetic"
    small = table["pass"].eq("forward_backward")
    return [
        f"{int(copied.sum())} rows include the copy of the images to the GPU",
        f"{int(small.sum())} rows are forward and backward without optimizer at batch 12, which is "
        "host-bound on fast GPUs: give them little weight",
        f"{int(real.sum())} rows read real images, so that the loader may be in the time",
        f"{int((table['source'] == 'sia').sum())} rows include gradient statistics (AdaScale)",
        "spread_ms means something else in each project and is left out; n_samples counts machines, not "
        "repeats, for pytorch/lambda",
    ]


IMPORTER = Importer(
    table="pytorch_training.csv.gz",
    read=read,
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
