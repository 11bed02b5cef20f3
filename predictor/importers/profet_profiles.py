"""PROFET's operator profiles: where the milliseconds of a step go, operator by operator.

Called by predictor.importers; calls common and measurements.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from predictor.importers.common import published_file, read_published
from predictor.measurements import canonical_gpu_name

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PROFET_PROFILES", "import_operator_profiles"]

PROFET_PROFILES = "profet_op_profile.csv.gz"
_KEYS = ["gpu", "cnn", "image_size", "batch_size"]


def import_operator_profiles(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Milliseconds per step by operator type, device and host.

    Parameters
    ----------
    path : path
        The published table, or the folder that holds it.

    Returns
    -------
    DataFrame
        gpu, cnn (`profet/...`), image_size, batch_size, operator (TensorFlow's name; IDLE is waiting),
        device_time_ms, host_time_ms; an operator that ran on neither has no row, and a side on which the
        profiler never saw it is missing.
    """
    table = read_published(
        published_file(Path(path), PROFET_PROFILES), (*_KEYS, "step_ms", "device_total_ms")
    )
    device, host = _long(table, "Device_"), _long(table, "Host_")
    long = device.merge(host, on=[*_KEYS, "operator"], how="outer", sort=True)
    times = long[["device_time_ms", "host_time_ms"]]
    long = long[(times.fillna(0.0) > 0).any(axis="columns")].reset_index(drop=True)
    long["gpu"] = long["gpu"].map({name: canonical_gpu_name(name) for name in long["gpu"].unique()})
    long["cnn"] = "profet/" + long["cnn"]
    return long


def _long(table: pd.DataFrame, prefix: str) -> pd.DataFrame:
    columns = {name: name.removeprefix(prefix) for name in table.columns if name.startswith(prefix)}
    wide = table[[*_KEYS, *columns]].rename(columns=columns)
    return wide.melt(id_vars=_KEYS, var_name="operator", value_name=f"{prefix.lower()}time_ms")
