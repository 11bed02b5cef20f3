"""PROFET: training of 12 Keras CNNs on four cloud GPUs, the widest published grid of image and batch sizes.

Called by predictor.measurements.published; calls common. Layer tables are converted in profet_layers,
operator profiles in profet_profiles.
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

__all__ = ["IMPORTER", "VALIDATION_SAMPLES"]

_KEYS = ["gpu", "instance", "framework", "precision", "cnn", "image_size", "samples_per_epoch", "batch_size"]
_TIMES = ("iteration_time_s", "epoch_time_s")

VALIDATION_SAMPLES = {50_000: 10_000, 5_000: 1_000, 2_000: 500}
"""Images of the validation pass at the end of each epoch, by training images.

PROFET's data_generation/workload: dataset_info.py has the numbers, profile_workload.py passes validation_data
to Keras' fit and stops the epoch's clock in on_epoch_end, which Keras calls after validation.
"""


def read(path: Path) -> tuple[pd.DataFrame, ImportReport]:
    """Summarise the repeats of each configuration by their medians and quartiles."""
    report = ImportReport("profet")
    table = reject(read_published(path, (*_KEYS, "repeat", *_TIMES)), _TIMES, report)
    groups = table.groupby(_KEYS, sort=True)
    seconds = groups["iteration_time_s"]
    keys = seconds.median().reset_index()
    spread = (seconds.quantile(0.75) - seconds.quantile(0.25)).to_numpy() * 1e3
    report.oddities += _oddities(table)
    versions = keys["framework"].str.partition("-")
    return finish(
        {
            "source": "profet",
            "framework": versions[0],
            "framework_version": versions[2],
            "gpu": keys["gpu"],
            "host": keys["instance"],
            "kind": "target",
            "cnn": "profet/" + keys["cnn"],
            "image_size": keys["image_size"],
            "batch_size": keys["batch_size"],
            "samples_per_epoch": keys["samples_per_epoch"],
            "validation_samples": keys["samples_per_epoch"].map(VALIDATION_SAMPLES),
            "pass": "training",
            "optimizer": "sgd",
            "precision": keys["precision"],
            "n_gpus": 1,
            "iteration_time_ms": keys["iteration_time_s"] * 1e3,
            "n_repeats": seconds.size().to_numpy(),
            "iteration_time_ms_iqr": spread,
            "epoch_time_s": groups["epoch_time_s"].median().to_numpy(),
        },
        report,
    )


def _oddities(table: pd.DataFrame) -> list[str]:
    seconds = table.groupby(_KEYS)["iteration_time_s"]
    spread = ((seconds.max() - seconds.min()) / seconds.median()).sort_values()
    worst = dict(zip(_KEYS, spread.index[-1], strict=True))
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


IMPORTER = Importer(
    table="profet_target_cnns.csv.gz",
    read=read,
    provenance=Provenance(
        project="PROFET",
        repository="https://github.com/ddps-lab/profet",
        licence="MIT",
        citation="S. Lee et al., PROFET: PROFiling-based CNN Training Latency ProphET for GPU Cloud "
        "Instances, arXiv:2208.05130, 2022",
        measured="iteration and epoch times of 12 Keras CNNs x 5 image sizes x 5 batch sizes, nine repeats, "
        "on Tesla K80, M60, T4 and V100 (AWS p2, g3s, g4dn, p3), TensorFlow 2.5, fp32, SGD; layer tables; "
        "operator profiles",
    ),
)
