"""Lambda's TensorFlow benchmark: six CNNs on many GPUs, the widest published choice of GPUs.

Called by predictor.importers; calls common.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.importers.common import ImportReport, Importer, Provenance, finish, read_published, reject

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["IMPORTER"]

_COLUMNS = (
    "framework", "gpu", "cnn", "image_size", "batch_size", "precision", "phase", "time_ms", "n_samples",
    "optimizer", "extra",
)  # fmt: skip
_MACHINE = re.compile(
    r"machine=(?:(?:Processor|Platinum)-)?(.*?)[-_](?:\dx)?_?(?:GeForce|Quadro|RTX|Tesla|A100|Radeon)"
)


def read(path: Path) -> tuple[pd.DataFrame, ImportReport]:
    """One measurement per row; rows of GPUs that are not NVIDIA's are rejected."""
    report = ImportReport("lambda-tf")
    table = reject(read_published(path, _COLUMNS), ("time_ms",), report)
    versions = table["framework"].str.extract(r"^(?P<name>[a-z]+)-(?P<version>[\d.]+)(?P<xla>-xla)?$")
    report.oddities += _oddities(table)
    frame, report = finish(
        {
            "source": "lambda-tf",
            "framework": versions["name"],
            "framework_version": versions["version"],
            "gpu": table["gpu"],
            "host": table["extra"].map(_host),
            "kind": "target",
            "cnn": "lambda/" + table["cnn"],
            "image_size": table["image_size"],
            "batch_size": table["batch_size"],
            "pass": "training",
            "optimizer": table["optimizer"].str.lower(),
            "xla": versions["xla"].notna(),
            "precision": table["precision"],
            "memory_format": "nchw",
            "n_gpus": 1,
            "iteration_time_ms": table["time_ms"],
            "n_repeats": table["n_samples"],
            "notes": table["extra"],
        },
        report,
    )
    return frame, report


def _host(extra: str) -> str | None:
    found = _MACHINE.match(extra)
    return found.group(1) if found else None


def _oddities(table: pd.DataFrame) -> list[str]:
    import numpy as np

    per_image = np.log(table["time_ms"] / table["batch_size"])
    usual = per_image.groupby([table["gpu"], table["cnn"]]).transform("median")
    far = table[np.exp((per_image - usual).abs()) > 4]
    notes = [
        f"line {line}: {row['gpu']}, {row['cnn']}, {row['precision']}, {row['framework']}: its time per image is "
        f"{np.exp(per_image[line] - usual[line]):.1f} x that GPU's median for the CNN"
        for line, row in far.iterrows()
    ]
    unclear = int((table["precision"] == "fp32_or_tf32").sum())
    if unclear:
        notes.append(
            f"{unclear} rows may be fp32 or TF32 (TensorFlow 2.3 and 2.4 on Ampere): kept as fp32_or_tf32"
        )
    notes.append("time_ms_spread, the benchmark's jitter, is no interquartile range and is left out")
    return notes


IMPORTER = Importer(
    table="lambda_tf_training.csv.gz",
    read=read,
    provenance=Provenance(
        project="Lambda TensorFlow benchmark",
        repository="https://github.com/lambdal/lambda-tensorflow-benchmark",
        licence="BSD-3-Clause",
        citation="Lambda Labs, lambda-tensorflow-benchmark (tf_cnn_benchmarks of the TensorFlow authors)",
        measured="training steps of AlexNet, VGG16, ResNet-50, ResNet-152, Inception v3 and v4 on 14 NVIDIA GPUs from "
        "GTX 1080 Ti to A100, TensorFlow 1.15 to 2.4, fp32, TF32 and mixed precision, with and without XLA, "
        "synthetic images, one batch size each",
    ),
)
