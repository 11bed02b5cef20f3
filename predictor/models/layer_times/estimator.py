"""`layer-times`: an iteration as the weighted sum of its operators, measured one by one on the GPU or its chip."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from predictor.arrays import Array
from predictor.catalogue.modes import MEMORY_FORMATS, products_in_fp32
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.groups import is_set
from predictor.models.base import Case, Predictor, times_of
from predictor.models.forecast import IterationForecast
from predictor.models.layer_times.files import LayerModels, library_mode
from predictor.models.layer_times.fit import LayerRows, fit_laws, with_bases, with_forests, with_volumes
from predictor.models.layer_times.law import SummingLaw
from predictor.models.layer_times.library import OPERATOR_KEYS, OperatorLibrary, OperatorSource
from predictor.models.layer_times.model import LayerModel
from predictor.models.layer_times.served import forecast_by_layers
from predictor.models.layer_times.times import DeviceMode
from predictor.operator_types import OPERATOR_TYPES, RECURRENT_TYPES
from predictor.operators.operators import Operator, has_small_windows, in_fp32, is_product, operator_from_row
from predictor.operators.work import operator_class

_WHOLE_PASSES = ("forward_backward", "training")
_OPERATOR_COLUMNS = {"kind", "activation_kind", "pass"} | {entry.name for entry in fields(Operator)} | {"cnn"}
_ON_TENSOR_CORES = ("convolution", "depthwise", "linear")
_ANSWERS = ("iteration_time_ms", "gpu_time_ms")


class LayerTimes(Predictor):
    """Weighted sums of operators' times, joined with the host's time.

    An operator's time is measured on the GPU in the mode, or interpolated from such, or carried over from another card
    of the chip or from a like mode. `answers`: ``iteration_time_ms`` or ``gpu_time_ms``: the quantity in y and of
    `predict`. `pull`: ridge strength: pulls each mode's weights towards those of all modes together, and these towards
    1. `trees`: whether to grow trees for shapes that were not measured; without them the neighbours' mean is taken.
    `calibrate`: whether to fit intervals, which refits the weights once per CNN. `random_state`: random seed of each
    tree's features. `models_`: operator library and weights of every GPU and mode with operator rows.

    X is a feature table with rows of kind ``operator`` and, if there are any, ``target``. Weights are fitted on the
    targets' `gpu_time_ms` (on y where it was not measured) and `host_time_ms`, in relative terms.
    """

    columns: ClassVar[tuple[str, ...]] = (*Predictor.columns, "precision")
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
        """Build libraries of the operator rows, and fit weights on the whole CNNs; y: `answers` in ms.

        SchemaError if there are no operator rows, or `answers` is unknown.
        """
        frame = self._checked(X, self.columns)
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
        self.models_ = LayerModels().with_more(self.learn(libraries, frame, LayerModels()))
        return self

    def learn(
        self,
        libraries: Mapping[DeviceMode, OperatorLibrary],
        frame: pd.DataFrame | None,
        earlier: LayerModels,
    ) -> list[LayerModel]:
        """Layer models of libraries: their bases or trees, and weights fitted on whole CNNs.

        `frame`: feature table of the whole CNNs. `earlier`: bases and priors of these libraries.
        """

        def grown(library: OperatorLibrary) -> OperatorLibrary:
            return with_forests(library, self.random_state) if self.trees else library

        based = with_bases(with_volumes(libraries), earlier.measured_library, grown)
        rows: dict[DeviceMode, LayerRows] = {}
        if frame is not None:
            rows = {mode: self._rows_of(frame, mode, library.host) for mode, library in libraries.items()}
        priors = {mode: law for mode in libraries if (law := earlier.nearest_law(mode)) is not None}
        laws = fit_laws(based, rows, priors, self.pull, calibrate=self.calibrate)
        for mode, library in based.items():
            if not library.forests and library.base is None:  # too few operators for trees
                least = SummingLaw().spread_strange
                laws[mode] = replace(laws[mode], spread_strange=max(laws[mode].spread_strange, least))
        return [LayerModel(based[mode], laws[mode]) for mode in libraries]

    def forecasts(self, cases: Sequence[Case]) -> list[IterationForecast]:
        """As of `Predictor`; runs on a case's own GPU correct it.

        OutOfRangeError if no operator was measured in a case's mode, on its GPU or another card of its chip, or its CNN
        has no layer table.
        """
        self._check_fitted("models_")
        answers = []
        for case in cases:
            if self.answers == "gpu_time_ms":  # as of an iteration that waits for no host
                case = replace(case, mode=replace(case.mode, capture="graph"))
            mode = library_mode(case.gpu, case.mode)
            model = self.models_.find(mode)
            if model is None:
                measured = "; ".join(map(str, self.models_.added))
                raise OutOfRangeError(
                    f"no operator was measured on {mode}, nor on another card of its chip; measured: {measured}. "
                    "Measure some with `epochcast profile --preset quick`."
                )
            answers.append(forecast_by_layers(model, case, model.sums, model.sums(case)))
        return answers

    def _is_run_of(self, run: Case, case: Case) -> bool:
        """Whether a run was made on the case's GPU in its mode."""
        modes = [
            (library_mode(of.gpu, of.mode), of.mode.replays, of.mode.fp32_products) for of in (run, case)
        ]
        return modes[0] == modes[1]

    def _learned(self) -> dict[str, Any]:
        """The layer models, each after the one that it is based on."""
        self._check_fitted("models_")
        by_depth = sorted(self.models_.added.values(), key=lambda model: _n_bases(model.library))
        arrays = [model.to_arrays() for model in by_depth]
        return {"models": [{name: values.tolist() for name, values in own.items()} for own in arrays]}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.models_ = LayerModels()
        for stored in learned["models"]:
            arrays = {name: np.array(values) for name, values in stored.items()}
            model = LayerModel.from_arrays(arrays, self.models_.measured)
            self.models_ = self.models_.with_more([model])

    def _rows_of(self, frame: pd.DataFrame, mode: DeviceMode, host: str | None) -> LayerRows:
        """Whole CNNs of one mode with layer tables; host times of machines other than the library's become NaN."""
        iterations = frame[~_is_operator(frame) & frame["layer_table"].notna().to_numpy()]
        chosen = iterations[np.array([row_mode == mode for row_mode in modes_of(iterations)], dtype=bool)]
        busy = _numbers(chosen, "gpu_time_ms")
        if self.answers == "iteration_time_ms":
            busy = np.where(np.isfinite(busy), busy, _numbers(chosen, "iteration_time_ms"))
        host_ms = _numbers(chosen, "host_time_ms")
        if host is not None and "host" in chosen:
            host_ms = np.where((chosen["host"] == host).to_numpy(dtype=bool), host_ms, np.nan)
        tables, batches = list(chosen["layer_table"]), chosen["batch_size"].to_numpy(dtype=float)
        return LayerRows(tables, batches, busy, host_ms, fp32_products_of(chosen))


def _n_bases(library: OperatorSource) -> int:
    """Length of the chain of bases below a library."""
    base = library.base if isinstance(library, OperatorLibrary) else None
    return 0 if base is None else 1 + _n_bases(base.source)


def libraries_of(frame: pd.DataFrame) -> dict[DeviceMode, OperatorLibrary]:
    """One library per GPU and mode of a measurement table's operator rows."""
    operators = frame[_is_operator(frame)]
    if "pass" in operators and len(operators):
        is_training = operators["pass"].isna() | operators["pass"].isin(_WHOLE_PASSES)
        operators = operators[is_training | operators["type"].isin(("add", "concat"))]
    if operators.empty:
        return {}
    # Equal rows share one operator.
    keys = [column for column in OPERATOR_KEYS if column in operators]
    number = operators.groupby(keys, dropna=False, sort=False).ngroup().to_numpy()
    distinct, first = np.unique(number, return_index=True)
    used = [column for column in operators if column in _OPERATOR_COLUMNS]
    records: list[dict[Any, Any]] = operators[used].iloc[first].to_dict("records")
    plain = [operator_from_row(record) for record in records]
    flagged = [plain, list(map(in_fp32, plain))]
    has_fp32_products = fp32_products_of(operators).tolist()
    numbers = np.searchsorted(distinct, number).tolist()
    measured = [flagged[fp32][i] for fp32, i in zip(has_fp32_products, numbers, strict=True)]
    busy, wall = _numbers(operators, "gpu_time_ms"), _numbers(operators, "iteration_time_ms")
    batches, host_ms = _numbers(operators, "batch_size"), _numbers(operators, "host_time_ms")
    times = np.column_stack([batches, np.where(np.isfinite(busy), busy, wall), host_ms])
    machines = operators["host"].tolist() if "host" in operators else [None] * len(operators)
    modes = modes_of(operators)
    rows: dict[DeviceMode, list[tuple[int, Operator]]] = {mode: [] for mode in modes}
    for i, mode in enumerate(modes):
        rows[mode].append((i, measured[i]))
    for i, mode in enumerate(modes):
        for twin_mode, operator in _same_kernels(mode, measured[i]):
            if twin_mode in rows:
                rows[twin_mode].append((i, operator))
    libraries = {}
    for mode, members in rows.items():
        at, of_mode = [i for i, _ in members], [operator for _, operator in members]
        libraries[mode] = OperatorLibrary.of_times(mode, of_mode, times[at], {machines[i] for i in at})
    return libraries


def _same_kernels(mode: DeviceMode, operator: Operator) -> Iterator[tuple[DeviceMode, Operator]]:
    """The operator of fp32 in TF32, or the reverse, where it runs the same kernels; a matrix product in any layout.

    All do but convolutions, recurrent layers, and matrix products in TF32. Autocast leaves some products in fp32, such
    as those of an attention that no fused kernel reads, and group norms of float32 maps. A recurrent layer reads no
    maps. In NCHW a depthwise convolution of small windows, or a resizing, runs as in channels-last where its map lies
    so.
    """
    has_windows = operator.input_gradient and has_small_windows(operator)
    depends_on_layout = has_windows or OPERATOR_TYPES[operator.type].loops
    if mode.memory_format == "channels_last" and depends_on_layout and not operator.wide_input:
        yield mode._replace(memory_format="nchw"), replace(operator, wide_input=True)
    if operator.type in RECURRENT_TYPES:
        for memory_format in MEMORY_FORMATS:
            if memory_format != mode.memory_format:
                yield mode._replace(memory_format=memory_format), operator
    if mode.precision not in ("fp32", "tf32"):
        return
    twins = {"fp32": "tf32", "tf32": "fp32"}
    twin_mode = mode._replace(precision=twins[mode.precision])
    in_nchw = mode.framework == "pytorch" and mode.memory_format == "nchw"
    if operator.type == "group_norm" and in_nchw and not operator.wide_input:
        for precision in ("amp_bf16", "amp_fp16"):  # of a map in float32
            yield mode._replace(precision=precision), replace(operator, wide_input=True)
    if operator_class(operator) not in _ON_TENSOR_CORES:
        yield twin_mode, operator
    elif mode.framework == "pytorch" and (
        operator.fp32_product or (mode.precision == "fp32" and is_product(operator))
    ):
        if operator.fp32_product:
            yield twin_mode, replace(operator, fp32_product=False)
        for precision, memory_format in product(("tf32", "amp_bf16", "amp_fp16"), MEMORY_FORMATS):
            other = mode._replace(precision=precision, memory_format=memory_format)
            if other != mode:
                yield other, in_fp32(operator)


def modes_of(frame: pd.DataFrame) -> list[DeviceMode]:
    """GPU and mode of every row; missing columns and values get the defaults."""
    words = (_words(frame, name) for name in ("framework", "precision", "memory_format"))
    rows = list(zip(frame["gpu"].astype(str), *words, is_set(frame, "autotune").tolist(), strict=True))
    made = {row: DeviceMode(*row) for row in set(rows)}
    return [made[row] for row in rows]


def fp32_products_of(frame: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows were measured in TF32 with matrix products in fp32, (n_rows,); unknown is PyTorch's default."""
    words = (_words(frame, name) for name in ("framework", "precision", "float32_matmul_precision"))
    return np.array([products_in_fp32(*row) for row in zip(*words, strict=True)], dtype=bool)


def _words(frame: pd.DataFrame, column: str) -> list[str]:
    """Words of a column; missing ones are the default of `DeviceMode`, or empty."""
    default = getattr(DeviceMode(""), column, "")
    values = frame[column].tolist() if column in frame else [None] * len(frame)
    return [value if isinstance(value, str) and value else default for value in values]


def _is_operator(frame: pd.DataFrame) -> NDArray[np.bool_]:
    if "kind" not in frame:
        return np.zeros(len(frame), dtype=bool)
    return (frame["kind"] == "operator").to_numpy(dtype=bool)


def _numbers(frame: pd.DataFrame, column: str) -> Array:
    if column not in frame:
        return np.full(len(frame), np.nan)
    return np.asarray(pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=float), dtype=float)
