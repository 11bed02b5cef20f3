"""How well the measurements repeat: no prediction can be judged below the noise of what it is compared with.

Called by `predictor.evaluation.run`; calls nothing of ours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["relative_spread", "run_to_run_noise"]

_SAME_RUN = (
    "source", "framework", "gpu", "cnn", "image_size", "batch_size", "precision", "memory_format", "xla",
    "optimizer",
)  # fmt: skip


def relative_spread(features: pd.DataFrame) -> NDArray[np.float64]:
    """Interquartile range of each row's repeats over its time, as a fraction.

    Where a row keeps no repeats but the table times the same configuration several times, the interquartile
    range of those rows over their median stands in; NaN where neither is known.
    """
    time_ms = features["iteration_time_ms"].to_numpy(dtype=float)
    spread = np.full(len(features), np.nan)
    if "iteration_time_ms_iqr" in features:
        spread = features["iteration_time_ms_iqr"].to_numpy(dtype=float) / time_ms
    return np.where(np.isnan(spread), _spread_of_repeated_rows(features), spread)


def _spread_of_repeated_rows(features: pd.DataFrame) -> NDArray[np.float64]:
    columns = [column for column in _SAME_RUN if column in features]
    run = features.groupby(columns, dropna=False, sort=False).ngroup()
    times = features["iteration_time_ms"].groupby(run)
    low, median, high = (run.map(times.quantile(q)) for q in (0.25, 0.5, 0.75))
    repeated = times.transform("size") > 1
    return ((high - low) / median).where(repeated).to_numpy(dtype=float)


def run_to_run_noise(features: pd.DataFrame) -> float:
    """Median over rows of the relative spread of repeats, as a fraction; NaN where nothing was repeated."""
    if features.empty:
        return float("nan")
    spread = relative_spread(features)
    known = spread[np.isfinite(spread)]
    return float(np.median(known)) if known.size else float("nan")
