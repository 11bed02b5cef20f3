"""`layer-times`: an iteration as the weighted sum of its operators, measured one by one on the same GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from predictor.catalogue.devices import device_of, is_cpu
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.schema import is_set
from predictor.models.base import FeatureTablePredictor, Floats, times_of
from predictor.models.forecast import Anchor
from predictor.models.layer_times.fit import LayerRows, fit_laws, with_forests
from predictor.models.layer_times.law import ClassWeights, OperatorTotals, layer_sums
from predictor.models.layer_times.library import OPERATOR_KEYS, DeviceMode, OperatorLibrary
from predictor.models.residuals import kriged, layer_variances
from predictor.models.roofline.terms import join_host
from predictor.operators.operators import Operator, operator_from_row
from predictor.operators.work import operator_class

__all__ = ["LayerTimes", "libraries_of", "modes_of"]

_COLUMNS = ("gpu", "cnn", "image_size", "batch_size", "precision", "layer_table")
Anchors = tuple[pd.DataFrame, ArrayLike]

_Z = NormalDist().inv_cdf(0.95)
_WHOLE_PASSES = ("forward_backward", "training")
_OPERATOR_COLUMNS = {"kind", "activation_kind", "pass"} | {entry.name for entry in fields(Operator)} | {"cnn"}
_SAME_BUT_FOR_PRODUCTS = {"fp32": "tf32", "tf32": "fp32"}
_PRODUCTS = ("convolution", "depthwise", "linear")
_ANSWERS = ("iteration_time_ms", "gpu_time_ms")


class LayerTimes(FeatureTablePredictor):
    """Class sums of operators' times x non-negative weights, joined with the host's time.

    Parameters
    ----------
    answers : str
        ``iteration_time_ms`` or ``gpu_time_ms``: the quantity in y and of `predict`.
    pull : float
        Ridge strength: pulls each mode's weights towards those of all modes together, and these towards 1.
    trees : bool
        Whether to grow trees for shapes that were not measured; without them the neighbours' mean is taken.
    calibrate : bool
        Whether to fit intervals, which refits the weights once per CNN.
    random_state : int
        Random seed of each tree's features.

    Attributes
    ----------
    libraries_ : dict of DeviceMode -> OperatorLibrary
    laws_ : dict of DeviceMode -> ClassWeights

    Notes
    -----
    X is a feature table with rows of kind ``operator`` and, if there are any, ``target``. Weights are fitted on the
    targets' `gpu_time_ms` (on y where it was not measured) and `host_time_ms`, in relative terms.
    """

    uses_operators: ClassVar[bool] = True
    uses_anchors: ClassVar[bool] = True

    def __init__(
        self,
        answers: str = "iteration_time_ms",
        pull: float = 3.0,
        trees: bool = True,
        calibrate: bool = True,
        random_state: int = 0,
    ) -> None:
        self.answers = answers
        self.pull = pull
        self.trees = trees
        self.calibrate = calibrate
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> LayerTimes:
        """Build libraries of the operator rows, and fit weights on the whole CNNs; y holds the quantity `answers`.

        Raises
        ------
        SchemaError
            If there are no operator rows, or `answers` is unknown.
        """
        frame = self._checked(X, _COLUMNS)
        times = times_of(y, len(frame), "iteration_time_ms")
        if self.answers not in _ANSWERS:
            raise SchemaError(f"answers {self.answers!r} is unknown. Known: {', '.join(_ANSWERS)}.")
        frame = frame.assign(**{self.answers: times})
        libraries = libraries_of(frame)
        if not libraries:
            raise SchemaError(
                "LayerTimes needs single layers (rows of kind operator), got none. "
                "Measure them with `epochcast profile --preset quick`."
            )
        self.libraries_, self.laws_ = self.learn(libraries, frame, {})
        return self

    def learn(
        self,
        libraries: Mapping[DeviceMode, OperatorLibrary],
        frame: pd.DataFrame | None,
        known: Mapping[DeviceMode, ClassWeights],
    ) -> tuple[dict[DeviceMode, OperatorLibrary], dict[DeviceMode, ClassWeights]]:
        """Grow trees for libraries, and fit their weights on whole CNNs; `known` weights are priors."""
        rows: dict[DeviceMode, LayerRows] = {}
        if frame is not None:
            rows = {mode: self._rows_of(frame, mode, library.host) for mode, library in libraries.items()}
        grown = {
            mode: with_forests(library, self.random_state) if self.trees else library
            for mode, library in libraries.items()
        }
        return grown, fit_laws(grown, rows, known, self.pull, calibrate=self.calibrate)

    def predict(self, X: pd.DataFrame, anchors: Anchors | None = None) -> Floats:
        """Time in ms, shape (n_rows,); a row of kind operator gets its own time from the library.

        `anchors` are rows of the same CNNs and their times in ms; they correct predictions at and near their batch
        sizes, on the same GPU in the same mode.

        Raises
        ------
        OutOfRangeError
            If no operator was measured on a row's GPU in its mode, or a CNN has no layer table.
        """
        return self._corrected(X, anchors)[0]

    def predict_interval(
        self, X: pd.DataFrame, anchors: Anchors | None = None, *, coverage: float = 0.9
    ) -> tuple[Floats, Floats]:
        """Ends of the intervals that hold a share `coverage` of the true times, in ms."""
        middle, width = self._corrected(X, anchors)
        width = width * NormalDist().inv_cdf(0.5 + coverage / 2) / _Z
        return middle * np.exp(-width), middle * np.exp(width)

    def coefficients(self) -> dict[str, float]:
        """Weights by ``gpu|framework|precision|memory format|autotune: class``."""
        self._check_fitted("laws_")
        return {
            f"{'|'.join(map(str, mode))}: {name}": float(value)
            for mode, law in self.laws_.items()
            for name, value in {
                **law.weights,
                "operator_ms": law.operator_ms,
                "host_weight": law.host_weight,
            }.items()
        }

    def _rows_of(self, frame: pd.DataFrame, mode: DeviceMode, host: str | None) -> LayerRows:
        """Whole CNNs of one mode with layer tables; host times of machines other than the library's become NaN."""
        whole = frame[~_is_operator(frame) & frame["layer_table"].notna().to_numpy()]
        chosen = whole[np.array([each == mode for each in modes_of(whole)], dtype=bool)]
        busy = _numbers(chosen, "gpu_time_ms")
        if self.answers == "iteration_time_ms":
            busy = np.where(np.isfinite(busy), busy, _numbers(chosen, "iteration_time_ms"))
        host_ms = _numbers(chosen, "host_time_ms")
        if host is not None and "host" in chosen:
            host_ms = np.where((chosen["host"] == host).to_numpy(dtype=bool), host_ms, np.nan)
        tables = list(chosen["layer_table"])
        return LayerRows(tables, chosen["batch_size"].to_numpy(dtype=float), busy, host_ms)

    def _corrected(self, X: pd.DataFrame, anchors: Anchors | None) -> tuple[Floats, Floats]:
        self._check_fitted("laws_")
        frame = self._checked(X, _COLUMNS)
        middle, width = self._predicted(frame)
        if anchors is None or not len(anchors[0]):
            return middle, width
        known, asked = _series_of(anchors[0]), _series_of(frame)
        times = times_of(anchors[1], len(anchors[0]), self.answers)
        for series in sorted(set(known) & set(asked), key=str):
            there = np.array([i for i, each in enumerate(known) if each == series])
            here = np.array([i for i, each in enumerate(asked) if each == series])
            own = anchors[0].iloc[there]
            residual = np.log(times[there] / self._predicted(own)[0])
            deviation, rough = float(np.mean(width[here])) / _Z, self._known(series[0])[1].roughness
            mean, left = _between(own, frame.iloc[here], residual, deviation, rough)
            middle[here] *= np.exp(mean)
            width[here] = _Z * np.sqrt(left)
        return middle, width

    def _predicted(self, frame: pd.DataFrame) -> tuple[Floats, Floats]:
        times, width = np.empty(len(frame)), np.empty(len(frame))
        records: list[dict[Any, Any]] = frame.to_dict("records")
        groups: dict[tuple[DeviceMode, object], list[int]] = {}
        for i, (mode, row, single) in enumerate(
            zip(modes_of(frame), records, _is_operator(frame), strict=True)
        ):
            groups.setdefault((mode, operator_from_row(row) if single else _table_of(row)), []).append(i)
        for (mode, what), places in groups.items():
            library, law = self._known(mode)
            batches = np.array([float(records[i]["batch_size"]) for i in places])
            if not hasattr(what, "layers"):
                times[places] = library.times([what], batches).gpu_ms[0]  # type: ignore[list-item]
                width[places] = law.spread
                continue
            sums = layer_sums(library, what, batches)  # type: ignore[arg-type]
            times[places], width[places] = self._joined(law, sums, records[places[0]]), law.half_width(sums)
        return times, width

    def _joined(self, law: ClassWeights, sums: OperatorTotals, row: Mapping[Any, Any]) -> Floats:
        busy = law.gpu_ms(sums)
        captured = row.get("capture") in ("graph", "static_graph")
        if self.answers == "gpu_time_ms" or captured or is_cpu(str(row["gpu"])):
            return busy
        host = law.host_ms(sums)
        if not np.isfinite(host):
            raise OutOfRangeError(
                f"the host's time to launch the operators of {row['gpu']} was not measured, so the time of an "
                "eager iteration is unknown. Measure host_time_ms, or predict gpu_time_ms or capture graph."
            )
        return join_host(busy, np.full(busy.size, host))

    def _known(self, mode: DeviceMode) -> tuple[OperatorLibrary, ClassWeights]:
        if mode not in self.libraries_:
            known = "; ".join(", ".join(map(str, each)) for each in self.libraries_)
            raise OutOfRangeError(
                f"no operator was measured on {mode.gpu} with {mode.framework}, {mode.precision}, "
                f"{mode.memory_format}, autotune {mode.autotune}; measured: {known}. "
                "Measure some with `epochcast profile --preset quick`."
            )
        return self.libraries_[mode], self.laws_[mode]


def libraries_of(frame: pd.DataFrame) -> dict[DeviceMode, OperatorLibrary]:
    """One library per GPU and mode of a measurement table's operator rows."""
    operators = frame[_is_operator(frame)]
    if "pass" in operators:
        whole = operators["pass"].isna() | operators["pass"].isin(_WHOLE_PASSES)
        operators = operators[whole | operators["type"].isin(("add", "concat"))]
    if operators.empty:
        return {}
    measured = _operators_of_rows(operators)
    busy, wall = _numbers(operators, "gpu_time_ms"), _numbers(operators, "iteration_time_ms")
    batches, host_ms = _numbers(operators, "batch_size"), _numbers(operators, "host_time_ms")
    times = np.column_stack([batches, np.where(np.isfinite(busy), busy, wall), host_ms])
    machines = operators["host"].tolist() if "host" in operators else [None] * len(operators)
    rows: dict[DeviceMode, list[int]] = {}
    for i, mode in enumerate(modes_of(operators)):
        rows.setdefault(mode, []).append(i)
    rows = {mode: at + _of_the_same_kernels(mode, rows, measured) for mode, at in rows.items()}
    return {
        mode: OperatorLibrary.of_times(mode, [measured[i] for i in at], times[at], {machines[i] for i in at})
        for mode, at in rows.items()
    }


def _of_the_same_kernels(
    mode: DeviceMode, rows: Mapping[DeviceMode, list[int]], measured: list[Operator]
) -> list[int]:
    """Positions of fp32 rows that are valid in TF32, or the reverse: all operators but matrix products."""
    other = mode._replace(precision=_SAME_BUT_FOR_PRODUCTS.get(mode.precision, mode.precision))
    if other == mode:
        return []
    return [i for i in rows.get(other, ()) if operator_class(measured[i]) not in _PRODUCTS]


def _operators_of_rows(rows: pd.DataFrame) -> list[Operator]:
    """Operator of every row; equal rows share one object."""
    keys = [column for column in OPERATOR_KEYS if column in rows]
    number = rows.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()
    distinct, first = np.unique(number, return_index=True)
    used = [column for column in rows if column in _OPERATOR_COLUMNS]
    records: list[dict[Any, Any]] = rows[used].iloc[first].to_dict("records")
    found = [operator_from_row(record) for record in records]
    return [found[i] for i in np.searchsorted(distinct, number)]


def modes_of(frame: pd.DataFrame) -> list[DeviceMode]:
    """GPU and mode of every row; missing columns and values get the defaults."""
    usual = DeviceMode("")
    columns: list[list[Any]] = [frame["gpu"].astype(str).tolist()]
    for name in ("framework", "precision", "memory_format"):
        default = getattr(usual, name)
        values = frame[name].tolist() if name in frame else [default] * len(frame)
        columns.append([value if isinstance(value, str) and value else default for value in values])
    columns.append(is_set(frame, "autotune").tolist())
    rows = list(zip(*columns, strict=True))
    made = {row: DeviceMode(*row) for row in set(rows)}
    return [made[row] for row in rows]


def _series_of(frame: pd.DataFrame) -> list[tuple[DeviceMode, object, object, object]]:
    """Series of every row: mode, CNN, image size and capture. Anchors correct their own series alone."""
    captures = frame["capture"].astype(str) if "capture" in frame else [""] * len(frame)
    return list(zip(modes_of(frame), frame["cnn"], frame["image_size"], captures, strict=True))


def _between(
    known: pd.DataFrame, asked: pd.DataFrame, residual: Floats, deviation: float, roughness: float
) -> tuple[Floats, Floats]:
    """Mean and variance of ln(truth / prediction) at the batch sizes of one series, given its anchors."""
    gpu = device_of(str(known["gpu"].iloc[0]))
    anchors = [Anchor(gpu.name, int(size), 1.0) for size in known["batch_size"]]
    variances = layer_variances(deviation**2, roughness)
    batches = asked["batch_size"].to_numpy(dtype=float)
    return kriged(asked["layer_table"].iloc[0], gpu, batches, anchors, residual, variances)


def _is_operator(frame: pd.DataFrame) -> NDArray[np.bool_]:
    if "kind" not in frame:
        return np.zeros(len(frame), dtype=bool)
    found: NDArray[np.bool_] = (frame["kind"] == "operator").to_numpy(dtype=bool)
    return found


def _numbers(frame: pd.DataFrame, column: str) -> Floats:
    if column not in frame:
        return np.full(len(frame), np.nan)
    return np.asarray(pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=float), dtype=float)


def _table_of(row: Mapping[Any, Any]) -> object:
    if row["layer_table"] is None or row["layer_table"] != row["layer_table"]:
        raise OutOfRangeError(
            f"{row['cnn']} at image size {row['image_size']} has no layer table, so its operators are unknown. "
            "Give its layers as a CSV file, or leave the row out."
        )
    return row["layer_table"]
