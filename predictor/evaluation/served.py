"""Judges the shipped model by the path that answers questions: on tables that no fit reads, and beside others."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.hosts import REFERENCE_CNN
from predictor.catalogue.modes import Mode
from predictor.errors import DataError
from predictor.measurements.hosts import WATCHED, HostMeasurement, HostTime
from predictor.models.base import Case, Predictor, cases_of, table_of
from predictor.models.fit import HELD_OUT

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    import pandas as pd
    from numpy.typing import ArrayLike

    from predictor.arrays import Array
    from predictor.models.base import Anchors
    from predictor.models.served import Model

MODE = ["gpu", "precision", "memory_format"]
"""Columns that identify an error."""

_SERIES = [*MODE, "cnn", "image_size"]


def held_out_tables(folder: Path) -> list[Path]:
    """Tables of whole CNNs in `folder` that no fit reads."""
    return sorted(folder.glob(f"*{HELD_OUT}"))


def judge_served(paths: Sequence[Path], model: Model) -> pd.DataFrame:
    """Measured and predicted GPU time of every timed row of measurement tables.

    Columns are GPU, mode, CNN, image size, batch size; in ms `measured`, `predicted` and the ends of the 90 % interval
    `low` and `high`; and `method`. DataError or SchemaError if a table cannot be read, and DataError with the CNNs
    whose layers nobody knows.
    """
    import pandas as pd

    from predictor.measurements.features import feature_table
    from predictor.measurements.table import read_measurements

    frame = feature_table(pd.concat([read_measurements(path) for path in paths], ignore_index=True))
    timed = frame[frame["gpu_time_ms"].notna()]
    unknown = sorted(set(timed.loc[timed["layer_table"].isna(), "cnn"]))
    if unknown:
        raise DataError(
            f"no layers are known of {', '.join(map(repr, unknown))}. Leave these rows out, or add the CNNs' layer "
            "tables to the measurements' folder."
        )
    return pd.concat([_judged(rows, model) for _, rows in timed.groupby(_SERIES)], ignore_index=True)


def _judged(rows: pd.DataFrame, model: Model) -> pd.DataFrame:
    first = rows.iloc[0]
    setting = first["float32_matmul_precision"] or Mode().float32_matmul_precision
    framework, precision, layout = (str(first[name]) for name in ("framework", "precision", "memory_format"))
    mode = Mode(framework, precision, layout, capture="graph", float32_matmul_precision=str(setting))
    answer = model.forecast(first["layer_table"], find_gpu(first["gpu"]), mode, rows["batch_size"].to_numpy())
    times = {"predicted": answer.iteration_time_ms, "low": answer.low_ms, "high": answer.high_ms}
    measured = rows[[*_SERIES, "batch_size"]].assign(measured=rows["gpu_time_ms"])
    return measured.assign(**times, method=answer.method)


class ShippedModel(Predictor):
    """The default as it is shipped, whatever it is fitted on: it answers a row as a question on the row's host.

    A row tells its host by `host_cnn_ms`, as ``--host`` does; without it, and where the row's own iteration tells it
    (`epochcast.watch`), the host is the usual one.
    """

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> ShippedModel:  # noqa: ARG002 - it was fitted
        """Load the shipped model; X and y are not used.

        Its named methods are judged beside it, and answer nothing here: some are fitted on the very rows.
        """
        from predictor.models.named import Methods
        from predictor.models.served import Model

        self.model_ = replace(Model.load(), methods=Methods())
        return self

    def predict(self, X: pd.DataFrame, anchors: Anchors | None = None) -> Array:  # noqa: ARG002 - it uses none
        """Times in ms, shape (n_rows,); OutOfRangeError where a question is refused. `anchors` are not used."""
        return self._answers(X)[0]

    def predict_interval(self, X: pd.DataFrame, anchors: Anchors | None = None) -> tuple[Array, Array]:  # noqa: ARG002
        """Ends of the 90 % intervals in ms, each of shape (n_rows,); `anchors` and errors as of `predict`."""
        _, low, high = self._answers(X)
        return low, high

    def _answers(self, X: pd.DataFrame) -> tuple[Array, Array, Array]:
        self._check_fitted("model_")
        times_ms = np.empty((3, len(self._checked(X, self.columns))))
        hosts = X["host_cnn_ms"].to_numpy(dtype=float) if "host_cnn_ms" in X else np.full(len(X), np.nan)
        if "source" in X:
            hosts = np.where(X["source"] == WATCHED, np.nan, hosts)
        for host_ms in dict.fromkeys(np.where(np.isnan(hosts), -1.0, hosts)):
            at = np.flatnonzero(hosts == host_ms if host_ms > 0 else np.isnan(hosts))
            for case, rows in cases_of(X.iloc[at]):
                host = _host(case, host_ms) if host_ms > 0 else None
                table = table_of(case)
                answer = self.model_.forecast(table, case.gpu, case.mode, case.batch_sizes, host=host)
                times_ms[:, at[rows]] = answer.iteration_time_ms, answer.low_ms, answer.high_ms
        return times_ms[0], times_ms[1], times_ms[2]


def _host(case: Case, host_cnn_ms: float) -> HostMeasurement:
    about = case.mode.framework, "gpu", case.mode.precision, case.mode.memory_format, *REFERENCE_CNN
    return HostMeasurement("the row's host", (HostTime(*about, float(host_cnn_ms)),), case.gpu.name)
