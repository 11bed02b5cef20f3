"""Predictors that a question may name beside the default's own: fitted together, kept as JSON beside a model's file.

A model `NAME.json` has them in `NAME_methods.json.gz`, read when a question first names one.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache, partial
from hashlib import sha256
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING
from warnings import warn

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, is_cpu
from predictor.catalogue.modes import Mode, mode_words
from predictor.cnns.layer_table import LayerTable
from predictor.errors import ArtifactError, LeftOutWarning, OutOfRangeError, SchemaError, nearest
from predictor.files import content_of, is_written_through, replace_file
from predictor.models.base import INSTEAD, Case, WholePredictor, check_image_size
from predictor.models.forecast import Anchor, IterationForecast, Reason
from predictor.models.registry import PREDICTORS, WHOLE_METHODS, estimator_class

if TYPE_CHECKING:
    import pandas as pd

FORMAT_VERSION = 4

ERRORS_IN = {
    "problem-scaling": "an unseen batch size",
    "unseen-gpu-specs": "an unseen GPU",
    "problem-and-hardware-scaling": "both",
    "scaling-problem": "an unseen batch size",
    "scaling-hardware": "an unseen GPU",
    "scaling-both": "both",
}
"""Scenarios of an evaluation whose errors an answer names, in words; of two of the same words the first."""

BETTER = {("chainer", False): "proxy-times", ("chainer", True): "proxy-times"}
"""Method that misses unseen batch sizes by less than the default, by framework and whether a question has runs of the
CNN: 3.3 % beside 14, with runs 3.4 beside 4.2 (docs/study.md#auto has the others)."""

_DEFAULT_WITH_RUNS, _DEFAULT, _BESIDE_PROXIES = "anchored", "roofline", "default"


@dataclass(frozen=True, slots=True)
class MethodError:
    """Mean absolute percentage error (a fraction) of a method and of the default in a scenario of an evaluation.

    `default_mape` is None where the default refuses, as on processors whose operators were not measured.
    """

    scenario: str
    n: int
    mape: float
    p90: float
    default_mape: float | None

    def __str__(self) -> str:
        beside = "" if self.default_mape is None else f" (the default by {_percent(self.default_mape)})"
        return f"{ERRORS_IN.get(self.scenario, self.scenario)} by {_percent(self.mape)}{beside}"


@dataclass(frozen=True, slots=True, eq=False)
class Methods:
    """Fitted predictors by their registered name, and their errors in evaluations."""

    fitted: Mapping[str, WholePredictor] = field(default_factory=dict)
    errors: Mapping[str, tuple[MethodError, ...]] = field(default_factory=dict)

    @classmethod
    def beside(cls, model_file: Path, digest: str | None) -> Callable[[], Methods]:
        """Loader of the methods beside a model file, which unpacks them when called; of none if `digest` is None.

        ArtifactError if their file is missing or of another model; when called, if it is damaged or of another version.
        """
        path = _path_of(model_file)
        return cls if digest is None else partial(_unpacked, content_of(path, model_file, digest), str(path))

    def save(self, model_file: Path) -> str:
        """Write the file beside a model file; its SHA-256. SchemaError if the model file is no file."""
        if is_written_through(model_file):
            raise SchemaError(
                f"the model has fitted methods, which lie beside its file, and {model_file} is no file. "
                "Write it to one such as model.json."
            )
        written = {
            "format_version": FORMAT_VERSION,
            "errors": {name: [asdict(error) for error in errors] for name, errors in self.errors.items()},
            "fitted": {name: predictor.to_json() for name, predictor in self.fitted.items()},
        }
        text = json.dumps(written, separators=(",", ":"), allow_nan=False)
        content = gzip.compress(text.encode(), mtime=0)
        replace_file(_path_of(model_file), content)
        return sha256(content).hexdigest()

    def with_measurements(self, frame: pd.DataFrame) -> Methods:
        """Methods whose predictors also learned from a user's measurement table."""
        rows = rows_of_measurements(frame)
        return replace(self, fitted={name: self.fitted[name].with_measurements(rows) for name in self.fitted})

    def forecasts(
        self,
        name: str,
        table: LayerTable,
        devices: Sequence[tuple[Gpu, Mode]],
        batch_sizes: NDArray[np.float64],
        anchors: Sequence[Anchor],
    ) -> list[IterationForecast]:
        """Time of one training iteration of a CNN on each GPU at each batch size, by the predictor of this name.

        OutOfRangeError where the predictor refuses a mode, GPU, CNN or batch size. The message says why, and what to
        do.
        """
        predictor = self.fitted.get(name)
        if predictor is None:
            mode = devices[0][1]
            raise OutOfRangeError(
                f"{name} was not fitted in {mode.framework}, {mode.precision}, {mode.memory_format}; fitted: in no "
                "mode of this model. Leave the method out, or fit a model on measurements that it needs."
            )
        cases = []
        for gpu, mode in devices:
            if mode.capture != "eager":
                raise OutOfRangeError(
                    f"{name} was fitted on eager iterations, asked for capture {mode.capture}. {INSTEAD}."
                )
            runs = [anchor for anchor in anchors if anchor.precision in (None, mode.precision)]
            for anchor in runs:
                check_image_size(anchor, table)
            cases.append(Case(table.cnn, table.image_size, table, gpu, mode, batch_sizes, runs))
        error = self._error(name)
        return [
            replace(forecast, extrapolates=tuple((error, *own) for own in forecast.extrapolates))
            for forecast in predictor.forecasts(cases)
        ]

    def judged_better(self, name: str, case: Case) -> IterationForecast | None:
        """Forecast of a method where it interpolates among times of the CNN; None elsewhere."""
        predictor = self.fitted.get(name)
        if predictor is None or case.mode.capture != "eager" or not predictor.knows(case):
            return None
        [forecast] = predictor.forecasts([case])
        return forecast

    def _error(self, name: str) -> Reason:
        """The predictor's error in an evaluation, beside the default's."""
        errors = {error.scenario: error for error in self.errors.get(name, ())}
        shown: dict[str, MethodError] = {}
        for scenario, words in ERRORS_IN.items():
            if scenario in errors:
                shown.setdefault(words, errors[scenario])
        if not shown:
            return Reason("method", f"the error of {name} was not evaluated for this model", 1.0)
        return Reason("method", f"{name} misses {', '.join(map(str, shown.values()))} on average", 1.0)


def _percent(share: float) -> str:
    return f"{100 * share:,.{1 if share < 0.1 else 0}f} %"


def _path_of(model_file: Path) -> Path:
    return model_file.with_name(f"{model_file.stem}_methods.json.gz")


@lru_cache(maxsize=8)
def _unpacked(content: bytes, path: str) -> Methods:
    try:
        stored = json.loads(gzip.decompress(content))
        if stored["format_version"] != FORMAT_VERSION:
            raise ArtifactError(
                f"{path} has format version {stored['format_version']!r}; this epochcast reads {FORMAT_VERSION}. "
                "Refit it with `epochcast fit`."
            )
        fitted, errors = stored["fitted"], stored["errors"]
        return Methods(
            {name: estimator_class(name).from_json(fitted[name]) for name in fitted},
            {name: tuple(MethodError(**error) for error in errors[name]) for name in errors},
        )
    except (OSError, EOFError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"{path} holds damaged methods ({error!r}). Refit it with `epochcast fit`."
        ) from error


def fit_methods(features: pd.DataFrame, measurements: pd.DataFrame | None = None) -> Methods:
    """Fit every predictor that a model's file holds; those without enough rows are left out.

    `features`: feature table of whole CNNs, as the default's law of specifications takes it. `measurements`: a
    measurement table with proxies and whole CNNs, for the predictors that use proxies.
    """
    import pandas as pd

    rows = _iterations(features)
    more = rows
    if measurements is not None:
        more = pd.concat([rows, rows_of_measurements(measurements)], ignore_index=True)
        more = more[~more.duplicated([*_SAME, "iteration_time_ms"])].reset_index(drop=True)
    fitted: dict[str, WholePredictor] = {}
    for name in WHOLE_METHODS:
        shown = more if estimator_class(name).uses_proxies else rows
        with suppress(SchemaError):  # too few rows of what it needs
            fitted[name] = _fitted(name, shown)
    return Methods(fitted)


def fit_named(names: Sequence[str], rows: pd.DataFrame) -> Methods:
    """Fit predictors that a question may name on rows of `rows_of_measurements`.

    Those that lack rows of what they need are left out with a `LeftOutWarning`. SchemaError if there is no such method,
    or none can be fitted.
    """
    for name in names:
        if name not in WHOLE_METHODS:
            raise SchemaError(
                f"no method that can be fitted by itself is called {name!r}. Nearest: {nearest(name, WHOLE_METHODS)}; "
                f"all: {', '.join(WHOLE_METHODS)}."
            )
    if rows.empty:
        raise SchemaError(
            "the table holds no iteration of a CNN with known layers. Name CNNs as the zoo does."
        )
    fitted, left_out = {}, []
    for name in dict.fromkeys(names):
        try:
            fitted[name] = _fitted(name, rows)
        except SchemaError as error:
            left_out.append(f"{name} is not fitted: {error}")
    if not fitted:
        raise SchemaError("\n".join(left_out))
    for words in left_out:
        warn(LeftOutWarning(words), stacklevel=3)
    return Methods(fitted)


def _fitted(name: str, rows: pd.DataFrame) -> WholePredictor:
    """Fitted and calibrated; SchemaError as of its `fit`, and if no row could be left out to judge it."""
    predictor: WholePredictor = estimator_class(name)(**PREDICTORS[name].parameters)
    predictor.set_params(**predictor.served_parameters)
    times = rows["iteration_time_ms"].to_numpy(dtype=float)
    if not predictor.fit(rows, times).calibrate(rows, times).half_widths_:
        few = f"{len(rows)} rows are too few to know how far it is off"
        raise SchemaError(f"{few}. Measure its CNNs at more batch sizes, or more CNNs.")
    return predictor


_SAME = (
    "gpu", "cnn", "image_size", "batch_size", "framework", "precision", "memory_format", "autotune", "kind",
)  # fmt: skip
_MODE = ("framework", "precision", "memory_format", "autotune")


def rows_of_measurements(measurements: pd.DataFrame) -> pd.DataFrame:
    """Feature table of eager whole iterations of CNNs and proxies on one device, from a measurement table."""
    from predictor.measurements.features import feature_table
    from predictor.measurements.groups import is_compiled

    kind = measurements["kind"].fillna("target")
    chosen = measurements[kind.isin(("proxy", "target")) & ~is_compiled(measurements)]
    if chosen.empty:
        return chosen
    return _iterations(feature_table(chosen.reset_index(drop=True)), with_cpus=True)


def _iterations(features: pd.DataFrame, with_cpus: bool = False) -> pd.DataFrame:
    """Training iterations on one device whose layers are known, in modes that a question can ask for."""
    from predictor.measurements.groups import is_set

    usual = Mode()
    kind = features["kind"].fillna("target") if "kind" in features else "target"
    rows = features.assign(kind=kind)
    words = mode_words(rows, ("pass", "n_gpus"))
    chosen = rows[
        rows["kind"].isin(("target", "proxy") if with_cpus else ("target",))
        & rows["layer_table"].notna()
        & words["pass"].isin(("training", "unknown"))
        & words["n_gpus"].isin(("1", "unknown"))
        & ~is_set(rows, "xla")
        & (with_cpus | ~rows["gpu"].map(is_cpu))
    ]
    columns = mode_words(chosen, _MODE)
    mode = {key: columns[key].where(columns[key] != "unknown", str(getattr(usual, key))) for key in _MODE}
    unknown = dict.fromkeys(("optimizer", "capture"))  # iterations are told apart by neither
    return chosen.assign(**mode, **unknown, xla=False).reset_index(drop=True)


def read_summary(path: str | PathLike[str]) -> pd.DataFrame:
    """The `summary.csv` of an evaluation; SchemaError if the file is none."""
    import pandas as pd

    columns = ["scenario", "predictor", "n", "mape", "median", "p90", "coverage", "worst_coverage"]
    try:
        table: pd.DataFrame = pd.read_csv(path)[columns]
    except (OSError, KeyError, pd.errors.ParserError, pd.errors.EmptyDataError) as error:
        raise SchemaError(
            f"{path} is not the summary of an evaluation ({error}). "
            "Write one with `epochcast evaluate --out FOLDER`."
        ) from error
    return table


def errors_of(summaries: Sequence[pd.DataFrame | str | PathLike[str]], methods: Methods) -> Methods:
    """The methods with their errors and the default's, from the `summary.csv` of evaluations."""
    import pandas as pd

    tables = [table if isinstance(table, pd.DataFrame) else read_summary(table) for table in summaries]
    answered = pd.concat(tables).query("n > 0")
    judged = answered.drop_duplicates(["scenario", "predictor"], keep="last").to_dict("records")
    mape = {(str(row["scenario"]), str(row["predictor"])): float(row["mape"]) for row in judged}
    by_method: dict[str, list[MethodError]] = {}
    for row in judged:
        scenario, name = str(row["scenario"]), str(row["predictor"])
        if name in WHOLE_METHODS:
            with_runs = [_DEFAULT_WITH_RUNS] * estimator_class(name).uses_anchors
            defaults = [(scenario, default) for default in (_BESIDE_PROXIES, *with_runs, _DEFAULT)]
            default_mapes = [mape[key] for key in defaults if key in mape]
            errors = int(row["n"]), mape[scenario, name], float(row["p90"]), next(iter(default_mapes), None)
            by_method.setdefault(name, []).append(MethodError(scenario, *errors))
    return replace(methods, errors={name: tuple(errors) for name, errors in by_method.items()})
