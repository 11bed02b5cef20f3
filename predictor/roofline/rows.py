"""Rows of a feature table as the roofline model sees them: kernels, situations, hosts and times of kernel groups.

Called by the `roofline` and `anchored` estimators; calls kernels, design and fitting's data classes.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from predictor.errors import OutOfRangeError
from predictor.gpus import find_gpu
from predictor.importers import KERNEL_TIME_PREFIX
from predictor.kernels import KERNEL_CLASSES, Kernels, kernels_of, kernels_of_operator
from predictor.layers import Layer
from predictor.roofline.design import Design
from predictor.roofline.fitting import HostLayout, KernelTimes
from predictor.roofline.situations import Situation

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Rows", "device_times", "operator_times", "profile_times", "rows_of", "single_passes"]

_KERNEL_GROUPS = {"activation": ("activation", "activation_after_bias")}
_FED_SOURCES = ("profet",)  # its step copies the images from the host; the others train on data already there
_LEAST_MS = 0.003
_NOT_SHAPE = ("index", "name", "type", "kind", "inputs")
_SHAPE_COLUMNS = tuple(f.name for f in fields(Layer) if f.name not in _NOT_SHAPE)

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Whole iterations, one entry per row of the feature table that they came from."""

    kernels: list[Kernels]
    situations: list[Situation]
    batch_sizes: list[int]
    hosts: list[str]
    fed: Array

    def design(self) -> Design:
        """Lay the rows out for fitting or predicting."""
        return Design.of(self.kernels, self.situations, self.batch_sizes)

    def layout(self) -> HostLayout:
        """What the host does in each row."""
        frameworks, framework = np.unique([s.framework for s in self.situations], return_inverse=True)
        hosts, host = np.unique(self.hosts, return_inverse=True)
        batches = np.array(self.batch_sizes, dtype=float)
        return HostLayout(
            [str(name) for name in frameworks],
            [str(name) for name in hosts],
            framework,
            host,
            np.array([k.count.sum() for k in self.kernels]),
            4e-6 * batches * np.array([k.image_elements for k in self.kernels]),
            self.fed,
        )


def rows_of(X: pd.DataFrame) -> Rows:
    """Whole CNNs of a feature table.

    Raises
    ------
    OutOfRangeError
        If a CNN has no layer table; the message names it.
    """
    cells = [_cell(row) for row in X.to_dict("records")]
    kernels, situations, batches, hosts, fed = (list(column) for column in zip(*cells, strict=True))
    return Rows(kernels, situations, batches, hosts, np.array(fed, dtype=float))


def _cell(row: dict[Any, Any]) -> tuple[Kernels, Situation, int, str, bool]:
    table = row["layer_table"]
    if table is None:
        raise OutOfRangeError(
            f"{row['cnn']} at image size {row['image_size']} has no layer table, from which its kernels are known. "
            "Give its layers as a CSV file, or leave the row out."
        )
    gpu = find_gpu(row["gpu"])
    situation = Situation(
        gpu,
        str(row["precision"]),
        _word(row, "framework", "pytorch"),
        _word(row, "memory_format", "nchw"),
        row.get("xla") is True or str(row.get("xla")) == "True",
    )
    source = _word(row, "source", "")
    kernels = kernels_of(table, optimizer=_word(row, "pass", "training") == "training")
    host = f"{source}: {_word(row, 'host', gpu.name)}"
    return kernels, situation, int(row["batch_size"]), host, source in _FED_SOURCES


def _word(row: dict[Any, Any], column: str, default: str) -> str:
    value = row.get(column)
    return default if value is None or value != value else str(value)


def single_passes(X: pd.DataFrame) -> pd.DataFrame:
    """Rows of single layers that time one pass."""
    if "kind" not in X or "pass" not in X:
        return X.iloc[:0]
    return X[(X["kind"] == "operator") & X["pass"].isin(("forward", "backward_input", "backward_weight"))]


def operator_times(X: pd.DataFrame, weight: float) -> KernelTimes | None:
    """Single layers timed alone; rows of whole training steps are left out, for these update their inputs too."""
    chosen = single_passes(X)
    if chosen.empty:
        return None
    records = chosen.to_dict("records")
    design = Design.of(
        [kernels_of_operator(_layer(row), str(row["pass"])) for row in records],
        [Situation(find_gpu(r["gpu"]), str(r["precision"]), "", origin=str(r["source"])) for r in records],
        [int(row["batch_size"]) for row in records],
    )
    log_ms = np.log(chosen["iteration_time_ms"].to_numpy(dtype=float))
    return KernelTimes(design, design.sums(), log_ms, np.full(len(records), weight), np.arange(len(records)))


def _layer(row: dict[Any, Any]) -> Layer:
    shape: dict[str, Any] = {
        name: None if row[name] != row[name] else int(row[name]) for name in _SHAPE_COLUMNS
    }
    return Layer(
        index=0,
        name=str(row["cnn"]),
        type=str(row["type"]),
        **{**shape, "parameters": shape["parameters"] or 0},
    )


def device_times(X: pd.DataFrame, design: Design, weight: float) -> KernelTimes | None:
    """Times that the GPU was busy in the rows' iterations, where they were measured apart from the host's."""
    if "gpu_time_ms" not in X:
        return None
    measured = X["gpu_time_ms"].to_numpy(dtype=float)
    rows = np.flatnonzero(np.isfinite(measured))
    if not rows.size:
        return None
    return KernelTimes(design, design.sums()[rows], np.log(measured[rows]), np.full(rows.size, weight), rows)


def profile_times(X: pd.DataFrame, time_ms: Array, design: Design, weight: float) -> KernelTimes | None:
    """A profiler's times of groups of kernels within the rows' iterations, where the table has them.

    A group counts by its share of the iteration. Profiles that sum to more than the iteration (profiling slows
    some GPUs) are scaled down to it.
    """
    names = [str(c) for c in X.columns if str(c).startswith(KERNEL_TIME_PREFIX)]
    if not names:
        return None
    groups = [name.removeprefix(KERNEL_TIME_PREFIX) for name in names]
    measured = X[names].to_numpy(dtype=float)
    measured = measured * np.minimum(1.0, time_ms / np.maximum(np.nansum(measured, axis=1), 1e-9))[:, None]
    group_of_class = np.full(len(KERNEL_CLASSES), -1)
    for number, kernel_group in enumerate(groups):
        for name in _KERNEL_GROUPS.get(kernel_group, (kernel_group,)):
            group_of_class[KERNEL_CLASSES.index(name)] = number
    group = group_of_class[design.class_of]
    known = (group >= 0) & (measured[design.row_of, group] > _LEAST_MS)
    items = np.flatnonzero(known)
    labels, label = np.unique(design.row_of[items] * len(groups) + group[items], return_inverse=True)
    if not labels.size:
        return None
    ms = measured[labels // len(groups), labels % len(groups)]
    sums = sp.csr_matrix((design.count[items], (label, items)), (labels.size, design.row_of.size))
    row = labels // len(groups)
    return KernelTimes(design, sums, np.log(ms), weight * np.minimum(1.0, 5 * ms / time_ms[row]), row)
