"""Fits the named methods on the rows that the default is fitted on, and the proxies' laws on one's own tables."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import combinations
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import find_gpu, is_cpu
from predictor.catalogue.modes import Mode, mode_words
from predictor.cnns.proxies import PROXY_TIME_PREFIX
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.features import FOUNDING_SPECIFICATIONS, feature_table
from predictor.measurements.schema import is_compiled, is_set
from predictor.models.methods.files import (
    MEASURED,
    MODE_KEYS,
    UNSEEN,
    FittedMethod,
    MethodError,
    Methods,
    ProxyRun,
)
from predictor.models.methods.laws import fit_linear_law

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["as_epochs", "errors_of", "fit_methods", "fit_proxy_times"]

Array = NDArray[np.float64]

COVERAGE = 0.9
_GPU_SPECS = ("gpu-specs", "gpu-specs-relative")
_PROXY_TIMES = ("proxy-times", "proxy-times-relative")
_LEAST_ROWS = 10
_LEAST_GPUS = 2
_FOLDS = 5
_MOST_PROXIES = 2
_DEFAULTS = {"another-gpu-by-proxies": "default"}
_DEFAULT_WITH_RUNS, _DEFAULT = "anchored", "roofline"


def fit_methods(features: pd.DataFrame, measurements: pd.DataFrame | None = None) -> Methods:
    """Fit every method that a model holds; those without enough rows are left out.

    Parameters
    ----------
    features : DataFrame
        Feature table of whole CNNs, as the default's law of specifications takes it.
    measurements : DataFrame, optional
        A measurement table with proxies and, on one GPU at least, whole CNNs.
    """
    rows = _iterations(features)
    fitted = {name: tuple(_fitted_specs(name, rows)) for name in _GPU_SPECS}
    fitted["flops-ratio"] = tuple(_fitted_flops(rows))
    found = Methods({name: each for name, each in fitted.items() if each})
    return found if measurements is None else found.with_more(*fit_proxy_times(measurements))


def _iterations(features: pd.DataFrame) -> pd.DataFrame:
    """Training iterations on one GPU whose layers are known, in modes that a question can ask for."""
    usual = Mode()
    of_cnns = features["kind"].fillna("target") == "target" if "kind" in features else True
    words = mode_words(features, ("pass", "n_gpus"))
    chosen = features[
        of_cnns
        & features["layer_table"].notna()
        & words["pass"].isin(("training", "unknown"))
        & words["n_gpus"].isin(("1", "unknown"))
        & ~is_set(features, "xla")
        & ~features["gpu"].map(is_cpu)
    ]
    known = mode_words(chosen, MODE_KEYS)
    mode = {key: known[key].where(known[key] != "unknown", str(getattr(usual, key))) for key in MODE_KEYS}
    unknown = dict.fromkeys(("optimizer", "capture"))  # iterations are told apart by neither
    return chosen.assign(**mode, **unknown, xla=False).reset_index(drop=True)


def _fitted_specs(name: str, rows: pd.DataFrame) -> Iterator[FittedMethod]:
    """A law for each mode in which two GPUs or more were measured, judged on rows that it was not fitted on."""
    specified = rows[[f"gpu_{each}" for each in FOUNDING_SPECIFICATIONS]].notna().all(axis=1)
    for mode, group in rows[specified].groupby(list(MODE_KEYS)):
        some = group.reset_index(drop=True)
        if len(some) < _LEAST_ROWS or some["gpu"].nunique() < _LEAST_GPUS:
            continue
        widths = _widths(name, some)
        if MEASURED in widths:
            yield _made(name, _new(name).fit(some, some["iteration_time_ms"]), some, mode, widths)


def _fitted_flops(rows: pd.DataFrame) -> Iterator[FittedMethod]:
    """One estimator for all modes: the share of the peak differs by precision alone."""
    if len(rows) < _LEAST_ROWS:
        return
    chips = _chips(rows)
    errors = [
        each
        for chip in sorted(set(chips))
        for each in _left_out("flops-ratio", rows, np.flatnonzero(chips == chip))
    ]
    if len(errors) >= _LEAST_ROWS:
        width = _width(errors)
        fitted = _new("flops-ratio").fit(rows, rows["iteration_time_ms"])
        yield _made("flops-ratio", fitted, rows, (), {MEASURED: width, UNSEEN: width})


def _made(
    name: str, estimator: Any, rows: pd.DataFrame, mode: Sequence[Any], widths: Mapping[str, float]
) -> FittedMethod:
    words = dict(zip(MODE_KEYS, map(str, mode), strict=False))
    gpus = tuple(sorted({find_gpu(each).name for each in rows["gpu"]}))
    cnns = rows.groupby(["cnn", "image_size"]).ngroups
    trained_on = (
        f"{len(rows):,} iterations of {cnns} CNNs (by image size) on {len(gpus)} GPU{'s' * (len(gpus) > 1)}"
    )
    sizes = (int(rows["batch_size"].min()), int(rows["batch_size"].max()))
    return FittedMethod(name, estimator.to_json(), words, gpus, sizes, trained_on, dict(widths))


def _new(name: str, **parameters: Any) -> Any:
    """An unfitted estimator of iteration times, as evaluations make it; no CNN's own rows are kept."""
    from predictor.models.per_epoch import IterationFromEpoch
    from predictor.models.registry import new_predictor

    made = new_predictor(name)
    if name == "flops-ratio":
        return made.set_params(by_cnn=False)
    return IterationFromEpoch(made.set_params(**parameters))


def _widths(name: str, rows: pd.DataFrame) -> dict[str, float]:
    """Half widths of 90 % intervals of ln time, from series of known GPUs and from chips left out."""
    series = rows.groupby(["gpu", "cnn", "image_size"]).ngroup().to_numpy()
    dealt = np.random.default_rng(0).permutation(series.max() + 1)[series] % _FOLDS
    chips = _chips(rows)
    groups = {
        MEASURED: [np.flatnonzero(dealt == fold) for fold in range(_FOLDS)],
        UNSEEN: [np.flatnonzero(chips == chip) for chip in sorted(set(chips))],
    }
    found: dict[str, float] = {}
    for kind, parts in groups.items():
        errors = [each for part in parts for each in _left_out(name, rows, part, kind == UNSEEN)]
        if len(errors) >= _LEAST_ROWS:
            found[kind] = _width(errors)
    return found


def _left_out(name: str, rows: pd.DataFrame, part: NDArray[np.intp], in_range: bool = False) -> list[float]:
    """|ln(measured / predicted)| of rows left out that the method answers when fitted on the others."""
    rest = rows.drop(index=rows.index[part])
    if not len(part) or not len(rest):
        return []
    try:
        fitted = _new(name).fit(rest, rest["iteration_time_ms"])
    except SchemaError:
        return []
    errors: list[float] = []
    for (gpu, _, _), cell in rows.iloc[part].groupby(["gpu", "cnn", "image_size"]):
        if in_range and not _answers_gpu(name, rest, str(gpu)):
            continue
        with suppress(OutOfRangeError):
            errors += _log_errors(fitted, cell)
    return errors


def _answers_gpu(name: str, rest: pd.DataFrame, gpu: str) -> bool:
    from predictor.models.methods.served import check_specifications

    try:
        check_specifications(name, sorted(set(rest["gpu"])), find_gpu(gpu))
    except OutOfRangeError:
        return False
    return True


def _chips(rows: pd.DataFrame) -> NDArray[np.str_]:
    return np.array([find_gpu(name).chip for name in rows["gpu"]], dtype=np.str_)


def _width(errors: Sequence[float]) -> float:
    return max(float(np.quantile(errors, COVERAGE)), 1e-6)


def as_epochs(measurements: pd.DataFrame) -> pd.DataFrame:
    """A measurement table whose rows time an epoch of the founding study's samples, from their iterations."""
    from predictor.models.epochs import iterations_per_epoch
    from predictor.models.per_epoch import SAMPLES_PER_EPOCH

    iterations = iterations_per_epoch(SAMPLES_PER_EPOCH, measurements["batch_size"])
    return measurements.assign(
        samples_per_epoch=SAMPLES_PER_EPOCH,
        epoch_time_s=measurements["iteration_time_ms"] * iterations / 1000.0,
    )


def fit_proxy_times(
    measurements: pd.DataFrame,
) -> tuple[dict[str, tuple[FittedMethod, ...]], tuple[ProxyRun, ...]]:
    """Laws of CNNs by proxies, and the proxies' times on every GPU.

    Laws are fitted on the GPU with most rows of CNNs at batch sizes of its proxies; the same CNNs on other GPUs with
    proxies give the width of intervals there. At most two proxies are used: those with which batch sizes left out of
    that GPU's series are predicted best.
    """
    mine = _one_gpu(measurements)
    runs = _proxy_runs(mine)
    features = _proxy_features(mine)
    if features is None:
        return {}, runs
    fitted = {name: tuple(_fitted_proxies(name, features)) for name in _PROXY_TIMES}
    return {name: found for name, found in fitted.items() if found}, runs


def _one_gpu(measurements: pd.DataFrame) -> pd.DataFrame:
    words = mode_words(measurements, ("pass", "n_gpus"))
    kind = measurements["kind"].fillna("target")
    chosen = measurements[
        kind.isin(("proxy", "target"))
        & ~is_compiled(measurements)
        & words["pass"].isin(("training", "unknown"))
        & words["n_gpus"].isin(("1", "unknown"))
    ]
    unknown = dict.fromkeys(("optimizer", "capture"))
    return as_epochs(chosen).assign(**unknown, kind=kind[chosen.index]).reset_index(drop=True)


def _proxy_runs(rows: pd.DataFrame) -> tuple[ProxyRun, ...]:
    proxies = rows[rows["kind"] == "proxy"]
    keys = ["gpu", *MODE_KEYS[:3], "batch_size"]
    usual = Mode()
    filled = proxies.assign(**{key: proxies[key].fillna(getattr(usual, key)) for key in MODE_KEYS[:3]})
    times = filled.groupby([*keys, "cnn"])["epoch_time_s"].median()
    found: dict[tuple[str, str, str, str, int], dict[str, float]] = {}
    for row in times.reset_index().to_dict("records"):
        gpu, framework, precision, memory_format = (str(row[key]) for key in keys[:4])
        where = (gpu, framework, precision, memory_format, int(row["batch_size"]))
        found.setdefault(where, {})[str(row["cnn"])] = float(row["epoch_time_s"])
    return tuple(ProxyRun(*where, seconds) for where, seconds in sorted(found.items()))


def _proxy_features(rows: pd.DataFrame) -> pd.DataFrame | None:
    """Whole CNNs with the proxies' epoch times; None where no proxy was measured beside one."""
    same = rows
    if "source" in rows:  # iterations of other sources include other work
        same = rows[rows["source"].isin(rows.loc[rows["kind"] == "proxy", "source"].unique())]
    if not (same["kind"] == "proxy").any() or not (same["kind"] == "target").any():
        return None
    features = feature_table(same.reset_index(drop=True), lambda _cnn, _size: None)
    return features[features["kind"] == "target"].reset_index(drop=True)


def _fitted_proxies(name: str, features: pd.DataFrame) -> Iterator[FittedMethod]:
    for mode, rows in features.groupby(list(MODE_KEYS)):
        columns = [column for column in map(str, rows) if column.startswith(PROXY_TIME_PREFIX)]
        known = rows[rows[columns].notna().all(axis=1)]
        counts = known["gpu"].value_counts()
        if not len(counts):
            continue
        first = known[known["gpu"] == counts.index[0]]
        proxies = _best_proxies(name, first, [each.removeprefix(PROXY_TIME_PREFIX) for each in columns])
        if proxies is None:
            continue
        cnns, errors = _with_enough(first, len(proxies)), _left_out_sizes(name, first, proxies)
        fitted = _new(name, proxies=proxies).fit(cnns, cnns["iteration_time_ms"])
        widths = {MEASURED: _width(errors)}
        elsewhere = _errors_elsewhere(fitted, known[known["gpu"] != counts.index[0]])
        if len(elsewhere) >= _LEAST_ROWS:
            widths[UNSEEN] = _width(elsewhere)
        yield _made(name, fitted, cnns, mode, widths)


def _with_enough(rows: pd.DataFrame, n_proxies: int) -> pd.DataFrame:
    """CNNs with one batch size more than their law has coefficients, so that each can be left out."""
    sizes = rows.groupby(["cnn", "image_size"])["batch_size"].transform("nunique")
    return rows[sizes > n_proxies + 2].reset_index(drop=True)


def _best_proxies(name: str, rows: pd.DataFrame, proxies: Sequence[str]) -> tuple[str, ...] | None:
    """The one or two proxies with the least mean relative error on batch sizes left out; None without enough rows."""
    chosen = [each for n in range(1, _MOST_PROXIES + 1) for each in combinations(proxies, n)]
    found = {each: _left_out_sizes(name, rows, each) for each in chosen}
    errors = {each: float(np.mean(np.expm1(values))) for each, values in found.items() if values}
    return min(errors, key=lambda each: errors[each]) if errors else None


def _left_out_sizes(name: str, rows: pd.DataFrame, proxies: tuple[str, ...]) -> list[float]:
    """|ln(measured / predicted)| of the inner batch sizes of each CNN, each left out in turn."""
    errors: list[float] = []
    columns = ("batch_size", *(PROXY_TIME_PREFIX + each for each in proxies))
    for _, cnn in _with_enough(rows, len(proxies)).groupby(["cnn", "image_size"]):
        design, times = cnn[list(columns)].to_numpy(dtype=float), cnn["epoch_time_s"].to_numpy(dtype=float)
        for size in np.unique(design[:, 0])[1:-1]:
            out = design[:, 0] == size
            law = fit_linear_law(columns, design[~out], times[~out], relative=name.endswith("relative"))
            predicted = law.predict(design[out])
            errors += np.abs(np.log(times[out] / np.maximum(predicted, 1e-3 * times[out]))).tolist()
    return errors


def _errors_elsewhere(fitted: Any, rows: pd.DataFrame) -> list[float]:
    laws = fitted.epoch_.laws_
    cells = zip(rows["cnn"], rows["image_size"], strict=True)
    known = rows[[(str(cnn), int(size)) in laws for cnn, size in cells]]
    return [] if known.empty else _log_errors(fitted, known)


def _log_errors(fitted: Any, rows: pd.DataFrame) -> list[float]:
    """|ln(measured / predicted)| where the prediction is above zero."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*predicted times are not above zero")
        predicted = fitted.predict(rows)
    above = predicted > 0
    measured = rows["iteration_time_ms"].to_numpy(dtype=float)
    errors: list[float] = np.abs(np.log(measured[above] / predicted[above])).tolist()
    return errors


def errors_of(summaries: Sequence[pd.DataFrame | str | PathLike[str]], methods: Methods) -> Methods:
    """The methods with their errors and the default's, from the `summary.csv` of evaluations."""
    import pandas as pd

    from predictor.models.registry import WHOLE_METHODS

    tables = [each if isinstance(each, pd.DataFrame) else pd.read_csv(each) for each in summaries]
    answered = pd.concat(tables).query("n > 0")
    judged = answered.drop_duplicates(["scenario", "predictor"], keep="last").to_dict("records")
    mape = {(str(row["scenario"]), str(row["predictor"])): float(row["mape"]) for row in judged}
    found: dict[str, list[MethodError]] = {}
    for row in judged:
        scenario, name = str(row["scenario"]), str(row["predictor"])
        default = next((each for each in _defaults_of(scenario, name) if (scenario, each) in mape), None)
        if name in WHOLE_METHODS and default is not None:
            error = MethodError(
                scenario, int(row["n"]), mape[scenario, name], float(row["p90"]), mape[scenario, default]
            )
            found.setdefault(name, []).append(error)
    return replace(methods, errors={name: tuple(errors) for name, errors in found.items()})


def _defaults_of(scenario: str, name: str) -> tuple[str, ...]:
    """Predictors that answer a question without a method from as much as this one knows, the best one first."""
    from predictor.models.registry import PREDICTORS, estimator_class

    if scenario in _DEFAULTS or name not in PREDICTORS:
        return (_DEFAULTS[scenario],) if scenario in _DEFAULTS else ()
    of_runs = estimator_class(name).uses_anchors or PREDICTORS[name].needs_runs
    return (_DEFAULT_WITH_RUNS, _DEFAULT) if of_runs else (_DEFAULT,)
