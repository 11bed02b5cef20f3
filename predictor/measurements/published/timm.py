"""PyTorch Image Models: training throughput of hundreds of CNNs and transformers on one GPU.

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
    "gpu", "framework", "precision", "memory_format", "cnn", "image_size", "batch_size", "iteration_time_ms",
    "samples_per_s", "parameters_m",
)  # fmt: skip


def read(path: Path) -> tuple[pd.DataFrame, ImportReport]:
    """One measurement per row; transformers, too, since only the layer table decides what can be modelled.

    From timm's benchmark.py: cuDNN tries its algorithms, ten warm-ups, SGD with momentum, no dropout.
    """
    report = ImportReport("timm")
    table = reject(read_published(path, _COLUMNS), ("iteration_time_ms",), report)
    versions = table["framework"].str.partition("-")
    ratio = table["batch_size"] / table["samples_per_s"] * 1e3 / table["iteration_time_ms"]
    report.oddities += [
        f"batch size / samples_per_s exceeds iteration_time_ms by {ratio.median() - 1:.1%} (median), at most "
        f"{ratio.max() - 1:.1%}: throughput includes time between steps; iteration_time_ms is taken",
        "the batch size shrank until it fitted, so it differs by model and memory format",
        f"{table['cnn'].nunique()} architectures, many of them transformers, without layer table",
    ]
    return finish(
        {
            "source": "timm",
            "framework": versions[0],
            "framework_version": versions[2],
            "gpu": table["gpu"],
            "kind": "target",
            "cnn": "timm/" + table["cnn"],
            "image_size": table["image_size"],
            "batch_size": table["batch_size"],
            "pass": "training",
            "optimizer": "momentum",
            "precision": table["precision"],
            "memory_format": table["memory_format"],
            "autotune": True,
            "n_warmup": 10,
            "n_gpus": 1,
            "iteration_time_ms": table["iteration_time_ms"],
            "notes": "parameters_m=" + table["parameters_m"].astype(str),
        },
        report,
    )


IMPORTER = Importer(
    table="timm_training_rtx3090.csv.gz",
    read=read,
    provenance=Provenance(
        project="PyTorch Image Models (timm)",
        repository="https://github.com/huggingface/pytorch-image-models",
        licence="Apache-2.0",
        citation="R. Wightman, PyTorch Image Models, doi:10.5281/zenodo.4414861",
        measured="training throughput of about 840 CNNs and transformers on a GeForce RTX 3090, PyTorch "
        "1.12, automatic mixed precision, NCHW and channels-last",
    ),
)
