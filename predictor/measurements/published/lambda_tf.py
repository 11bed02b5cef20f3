"""Lambda's TensorFlow benchmark: six CNNs on many GPUs, the widest published choice of GPUs.

Called by predictor.measurements.published; calls common.
"""

from __future__ import annotations

import re
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
    "framework", "gpu", "cnn", "image_size", "batch_size", "precision", "phase", "time_ms", "n_samples",
    "optimizer", "extra",
)  # fmt: skip
# Times further off than this from what GPU and CNN suggest are called suspect: four rows at most of the 452.
_LAST_WITHOUT_TF32 = "2.3"
_SUSPECT = 1.6
_MACHINE = re.compile(
    r"machine=(?:(?:Processor|Platinum)-)?(.*?)[-_](?:\dx)?_?(?:GeForce|Quadro|RTX|Tesla|A100|Radeon)"
)


def read(path: Path) -> tuple[pd.DataFrame, ImportReport]:
    """One measurement per row; rows of GPUs that are not NVIDIA's are rejected."""
    report = ImportReport("lambda-tf")
    table = reject(read_published(path, _COLUMNS), ("time_ms",), report)
    versions = table["framework"].str.extract(r"^(?P<name>[a-z]+)-(?P<version>[\d.]+)(?P<xla>-xla)?$")
    likeness = _likeness(table)
    report.oddities += _oddities(table, likeness)
    marks = [
        f";suspect={value:.1f}x" if odd else ""
        for value, odd in zip(likeness, _suspect(likeness), strict=True)
    ]
    return finish(
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
            "precision": _precision(table["precision"], versions["version"]),
            "memory_format": "nchw",
            "n_gpus": 1,
            "iteration_time_ms": table["time_ms"],
            "n_repeats": table["n_samples"],
            "notes": table["extra"] + marks,
        },
        report,
    )


def _precision(named: pd.Series, version: pd.Series) -> pd.Series:
    """TensorFlow uses TF32 on Ampere by itself from 2.4 on (TensorFlow's RFC 287); before, only vendor builds did."""
    unclear, old = named == "fp32_or_tf32", version == _LAST_WITHOUT_TF32
    return named.mask(unclear & old, "fp32").mask(unclear & ~old, "tf32")


def _host(extra: str) -> str | None:
    found = _MACHINE.match(extra)
    return found.group(1) if found else None


def _likeness(table: pd.DataFrame) -> pd.Series:
    """Time per image over what the GPU and the CNN usually take in that precision: about 1 for a sane row."""
    import numpy as np
    import pandas as pd

    half = table["precision"] == "fp16_mixed"
    logs = pd.Series(np.log((table["time_ms"] / table["batch_size"]).to_numpy()), index=table.index)
    for names in (table["cnn"], table["gpu"]):
        logs = logs - logs.groupby([names, half]).transform("median")
    return pd.Series(np.exp(logs.to_numpy()), index=table.index)


def _oddities(table: pd.DataFrame, likeness: pd.Series) -> list[str]:
    odd = table.assign(likeness=likeness)[_suspect(likeness)].reset_index()
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


def _suspect(likeness: pd.Series) -> pd.Series:
    return (likeness > _SUSPECT) | (likeness < 1 / _SUSPECT)


IMPORTER = Importer(
    table="lambda_tf_training.csv.gz",
    read=read,
    provenance=Provenance(
        project="Lambda TensorFlow benchmark",
        repository="https://github.com/lambdal/lambda-tensorflow-benchmark",
        licence="BSD-3-Clause",
        citation="Lambda Labs, lambda-tensorflow-benchmark (tf_cnn_benchmarks of the TensorFlow authors)",
        measured="training steps of AlexNet, VGG16, ResNet-50, ResNet-152, Inception v3 and v4 on 14 NVIDIA "
        "GPUs from GTX 1080 Ti to A100, TensorFlow 1.15 to 2.4, fp32, TF32 and mixed precision, with and "
        "without XLA, synthetic images, one batch size each",
    ),
)
