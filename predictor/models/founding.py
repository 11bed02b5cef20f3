"""The founding study's two approaches: linear regression on GPU specifications, and on times of proxy CNNs.

Both are non-negative sums of terms, coefficient x feature, that scikit-learn fits on relative errors. They count a
CNN's layers as the nearest proxies, so that every CNN of known layers has an answer. The study's own form, least
squares in seconds with a column for each convolution shape, is in notebook 04.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import is_cpu, peak_tflop_per_s
from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import FOUNDING_PROXIES
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.base import (
    INSTEAD,
    MEASURED,
    UNSEEN,
    Case,
    WholePredictor,
    cases_of,
    finite,
    table_of,
    times_of,
)
from predictor.models.forecast import WIDENS, Reason, Term
from predictor.operators.nearest_proxy import moved_bytes_per_image, proxy_work, unlike_layers

if TYPE_CHECKING:
    import pandas as pd

_MODE = ("framework", "precision", "memory_format", "autotune")
"""Fields of a mode in which the two approaches are fitted."""

_COLUMNS = ("gpu", "cnn", "image_size", "batch_size", "layer_table")
_EXAMPLES = 3

ModeWords = tuple[str, ...]
Terms = dict[str, Array]
"""Features of a case by name, each of shape (n_batch_sizes,)."""


def _table_of(terms: Sequence[Terms]) -> pd.DataFrame:
    """Terms of all cases as one table; a term that a case lacks is 0."""
    import pandas as pd

    return pd.concat([pd.DataFrame(case_terms) for case_terms in terms], ignore_index=True).fillna(0.0)


def _words(mode: Mode) -> ModeWords:
    return tuple(str(getattr(mode, name)) for name in _MODE)


def _in_words(words: ModeWords) -> str:
    return ", ".join((*words[:-1], "autotune") if words[-1] == "True" else words[:-1])


def _counted(case: Case, proxies: tuple[str, ...]) -> tuple[Reason, ...]:
    """Reason for caution: layers without a proxy of their shape count as another; the most frequent are named."""
    n_unlike, n_layers, examples = unlike_layers(table_of(case), proxies)
    if not n_unlike:
        return ()
    named = ", ".join(examples[:_EXAMPLES]) + (" ..." if len(examples) > _EXAMPLES else "")
    text = f"{n_unlike} of {n_layers} layers count as the nearest proxy, scaled by their work: {named}"
    return (Reason("shape", text, 1.0),)


def _beyond(name: str, sizes: Array, low: float, high: float) -> list[tuple[Reason, ...]]:
    """Reason for caution at each batch size outside the fitted range."""
    reason = Reason("batch", f"{name} was fitted at batch sizes {low:g} to {high:g}", WIDENS)
    return [() if low <= size <= high else (reason,) for size in sizes]


class _LinearStudy(WholePredictor):
    """Base of both approaches: a time as a sum of terms, coefficient x feature, and their regression.

    `power`: 1 adds terms up; a larger one lets the longest term hide the others, as GPU and host hide each other.
    `positive`: whether coefficients are held at or above zero, as times of parts are.
    """

    uses_proxies: ClassVar[bool] = True
    power: float
    positive: bool

    def terms(self, case: Case) -> Terms:
        """Features of a case by name, in ms but for those of the host; errors as of `scope`."""
        raise NotImplementedError(f"{type(self).__name__} has no terms.")

    def coefficients_of(self, case: Case) -> dict[str, float]:
        """Coefficients of the regression by term (`terms`); NotFittedError before a fit."""
        raise NotImplementedError(f"{type(self).__name__} has no coefficients.")

    def parts(self, case: Case) -> dict[str, Array]:
        """Each term's part of the time in ms: coefficient x feature, and for other powers its share of the time.

        Errors as of `scope`.
        """
        coefficients = self.coefficients_of(case)
        parts = {name: coefficients[name] * feature for name, feature in self.terms(case).items()}
        if self.power == 1.0:
            return parts
        raised = {name: summand**self.power for name, summand in parts.items()}
        time = np.sum(list(raised.values()), axis=0) ** (1 / self.power)
        return {name: raised_ms / time ** (self.power - 1) for name, raised_ms in raised.items()}

    def regression_terms(self, case: Case) -> dict[str, Term]:
        """Coefficient and feature of each term; errors as of `scope`."""
        coefficients = self.coefficients_of(case)
        return {name: Term(coefficients[name], feature) for name, feature in self.terms(case).items()}

    def _regression(self, terms: pd.DataFrame, times: Array, weights: Array) -> dict[str, float]:
        """Coefficients by term of time^power = sum of (coefficient x term)^power, by least squares of relative errors.

        `times`, `weights`, shape (n,): times in ms; the weight of each squared relative error. A pipeline of a column
        transformer that scales the terms, and a linear regression without an intercept.
        """
        from sklearn.compose import ColumnTransformer
        from sklearn.linear_model import LinearRegression
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import MaxAbsScaler

        names, power = [str(name) for name in terms.columns], self.power
        scaled = ColumnTransformer([("terms", MaxAbsScaler(), names)])
        pipeline = make_pipeline(scaled, LinearRegression(fit_intercept=False, positive=self.positive))
        weights = weights / times ** (2 * power)
        pipeline.fit(terms**power, times**power, linearregression__sample_weight=weights)
        raised = pipeline[-1].coef_ / pipeline[0].named_transformers_["terms"].scale_
        return dict(zip(names, map(float, np.sign(raised) * np.abs(raised) ** (1 / power)), strict=True))


_SPECIFICATIONS = ("compute_capability", "boost_clock_ghz", "cuda_cores", "memory_bandwidth_gb_per_s")
"""Columns of gpus.csv that `gpu-specs` reads, beside the peak rate at the precision."""

_USUAL_CAPABILITY = 7.0


class GpuSpecs(_LinearStudy):
    """Approach 1: iteration time from a GPU's specifications, counts of proxies in the CNN and the batch size.

    `proxies`: proxies that may stand for layers. `power`, `positive`: as of the base. `modes_`: what was fitted, by
    framework, precision, memory format and autotuning. `proxies_`: the proxies that stand for layers of the training
    CNNs. `coefficients_`: by term, as below.

    time = sum of coefficient x term over these terms:

    - ``iteration|FRAMEWORK``: 1; ``layers|FRAMEWORK``: layers. Their coefficients are in ms.
    - ``parameters``: time to read the parameters once. ``bytes|PRECISION MEMORY_FORMAT``: time to move all layers'
      bytes (fp32's numbers) for the mini-batch. Both at the memory bandwidth.
    - ``flops``: time of the operations of convolutions and linear layers at the peak rate of the precision; its
      coefficient is the inverse of the share of the peak that they reach.
    - ``issue|PROXY``: time of those that count as the proxy at a multiply-add a core and clock, x 7 /
      compute capability.

    Every CNN of a mode weighs the same. Of forms with one coefficient for all proxies or one each, shared by modes or
    not, and of sums and logarithms, this misses GPUs and CNNs left out of all sources but PROFET's least.
    """

    def __init__(
        self, proxies: tuple[str, ...] = FOUNDING_PROXIES, power: float = 1.0, positive: bool = True
    ) -> None:
        self.proxies = proxies
        self.power = power
        self.positive = positive

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> GpuSpecs:
        """Learn from a feature table of n rows and their iteration times in milliseconds, of shape (n,).

        SchemaError if a column is missing, no row has layers and a GPU with all specifications, or a time is not above
        0.
        """
        times = times_of(y, len(self._checked(X, _COLUMNS)), "iteration_time_ms")
        with_layers = ((case, rows) for case, rows in cases_of(X) if case.table is not None)
        specified = [
            (case, rows) for case, rows in with_layers if not is_cpu(case.gpu.name) and not _lacking(case)
        ]
        if not specified:
            raise SchemaError(
                "no row has a CNN with known layers on a GPU with all specifications. Add some."
            )
        cases = [case for case, _ in specified]
        self.modes_: dict[ModeWords, tuple[tuple[str, ...], float, float]] = {}
        for mode in sorted({_words(case.mode) for case in cases}):
            of_mode = [case for case in cases if _words(case.mode) == mode]
            sizes = np.concatenate([case.batch_sizes for case in of_mode])
            gpus = tuple(sorted({case.gpu.name for case in of_mode}))
            self.modes_[mode] = (gpus, float(sizes.min()), float(sizes.max()))
        counted = {name for case in cases for name in proxy_work(table_of(case), self.proxies)}
        self.proxies_ = tuple(name for name in self.proxies if name in counted)
        terms = _table_of([self._terms(case) for case in cases])
        measured = np.concatenate([times[rows] for _, rows in specified])
        # Every CNN of a mode weighs the same.
        cnns = [(_words(case.mode), case.cnn, case.image_size) for case in cases for _ in case.batch_sizes]
        n_rows = Counter(cnns)
        weights = np.array([1 / n_rows[cnn] for cnn in cnns])
        self.coefficients_ = self._regression(terms, measured, weights / weights.mean())
        return self

    def terms(self, case: Case) -> Terms:
        """Features by term, as in the class's list; errors as of `scope`."""
        self._check_scope(case)
        return self._terms(case)

    def _terms(self, case: Case) -> Terms:
        table, gpu, mode = table_of(case), case.gpu, case.mode
        alone, images = np.ones(case.batch_sizes.size), case.batch_sizes
        bandwidth = gpu.memory_bandwidth_gb_per_s
        peak = peak_tflop_per_s(gpu, mode.precision)
        issued = 2e-3 * gpu.cuda_cores * gpu.boost_clock_ghz * gpu.compute_capability / _USUAL_CAPABILITY
        # 10^9 operations over 10^12 operations a second are a millisecond
        work = {name: images * proxy.flops for name, proxy in proxy_work(table, self.proxies_).items()}
        moved_ms = 1e3 * images * moved_bytes_per_image(table) / bandwidth
        return {
            f"iteration|{mode.framework}": alone,
            f"layers|{mode.framework}": alone * len(table),
            "parameters": alone * sum(layer.parameters or 0 for layer in table) * 4e-6 / bandwidth,
            f"bytes|{mode.precision} {mode.memory_format}": moved_ms,
            "flops": np.sum(list(work.values()), axis=0) / peak,
            **{f"issue|{name}": flops / issued for name, flops in work.items()},
        }

    def scope(self, case: Case) -> tuple[tuple[Reason, ...], ...]:
        """Reasons for caution; refused are CPUs, GPUs without a specification, and modes that were not fitted."""
        gpus, low, high = self._check_scope(case)
        always = _counted(case, self.proxies_)
        if case.gpu.name not in gpus:
            gpus_of_any_mode = {gpu for gpus_of_mode, _, _ in self.modes_.values() for gpu in gpus_of_mode}
            where = "in this mode" if case.gpu.name in gpus_of_any_mode else "in any mode"
            always = (Reason("gpu", f"gpu-specs was not fitted on it {where}", 1.0), *always)
        return tuple((*always, *at_size) for at_size in _beyond("gpu-specs", case.batch_sizes, low, high))

    def half_width(self, case: Case) -> float:
        """Half width of the interval of ln time: that of unseen GPUs unless the GPU was fitted in the mode."""
        widths = self.half_widths_
        is_fitted = case.gpu.name in self.modes_[_words(case.mode)][0]
        return widths[MEASURED] if is_fitted and MEASURED in widths else max(widths.values())

    def coefficients_of(self, case: Case) -> dict[str, float]:  # noqa: ARG002 - the same for all
        """Coefficients by term, whichever the case."""
        self._check_fitted("coefficients_")
        return self.coefficients_

    def _check_scope(self, case: Case) -> tuple[tuple[str, ...], float, float]:
        self._check_fitted("coefficients_")
        table_of(case)
        if is_cpu(case.gpu.name):
            raise OutOfRangeError(
                f"gpu-specs knows GPUs by their specifications, and {case.gpu.name} has none. {INSTEAD}."
            )
        missing = _lacking(case)
        if missing:
            raise OutOfRangeError(f"no data sheet gives {', '.join(missing)} of {case.gpu.name}. {INSTEAD}.")
        if _words(case.mode) not in self.modes_:
            modes = "; ".join(map(_in_words, self.modes_)) or "in no mode of this model"
            raise OutOfRangeError(
                f"gpu-specs was not fitted in {_in_words(_words(case.mode))}; fitted: {modes}. Ask for one of these, "
                "or leave the method out."
            )
        return self.modes_[_words(case.mode)]

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("coefficients_")
        modes = [
            {"mode": list(mode), "gpus": list(gpus), "batch_sizes": [low, high]}
            for mode, (gpus, low, high) in self.modes_.items()
        ]
        return {"modes": modes, "proxies": list(self.proxies_), "coefficients": self.coefficients_}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.modes_ = {}
        for entry in learned["modes"]:
            low, high = map(finite, entry["batch_sizes"])
            self.modes_[tuple(entry["mode"])] = tuple(entry["gpus"]), low, high
        self.proxies_ = tuple(map(str, learned["proxies"]))
        self.coefficients_ = {str(name): finite(value) for name, value in learned["coefficients"].items()}
        needed = {f"iteration|{mode[0]}" for mode in self.modes_} | {
            f"issue|{name}" for name in self.proxies_
        }
        if not needed <= set(self.coefficients_):
            raise ValueError("coefficients are not those of the modes and proxies")


def _lacking(case: Case) -> list[str]:
    """Specifications of a case's GPU that no data sheet gives, the peak rate at its precision among them."""
    peak = {f"the peak rate in {case.mode.precision}": peak_tflop_per_s(case.gpu, case.mode.precision)}
    specifications = {name: float(getattr(case.gpu, name)) for name in _SPECIFICATIONS} | peak
    return [name for name, value in specifications.items() if not value > 0]


class _Curve(NamedTuple):
    """GPU time in ms of a proxy by batch size, as logarithms."""

    log_sizes: Array
    log_ms: Array

    @classmethod
    def of(cls, points: Mapping[float, Sequence[float]]) -> _Curve:
        """Curve of medians at each batch size, rising with it."""
        sizes = sorted(points)
        middle = np.array([np.median(points[size]) for size in sizes])
        return cls(np.log(sizes), np.log(np.maximum.accumulate(middle)))

    def at(self, sizes: Array) -> Array:
        """GPU times: ln linear between measured batch sizes, proportional above them, and no shorter below them."""
        log_asked = np.log(sizes)
        beyond = np.maximum(log_asked - self.log_sizes[-1], 0.0)
        return np.asarray(np.exp(np.interp(log_asked, self.log_sizes, self.log_ms) + beyond), dtype=float)


class _Proxies(NamedTuple):
    """Proxies measured on one device in one mode: GPU times by name, and the host's time of an iteration."""

    host_ms: float
    curves: dict[str, _Curve]

    def range(self) -> tuple[float, float]:
        """Smallest and largest batch size at which some proxy was measured."""
        low, high = (np.exp([curve.log_sizes[end] for curve in self.curves.values()]) for end in (0, -1))
        return round(float(low.min())), round(float(high.max()))


_LARGE = 2.0**20
"""Batch size at which proxies' times are proportional to it."""

_LEAST_OF_CNN, _FOLDS_OF_SIZES = 2, 4
_NEAR_GENERAL = 0.3
"""Pull of the general coefficients in a CNN's own fit: relative weight of a term that makes all of the time."""

_TERMS = ("proxies", "host", "limit")
_Key = tuple[str, int, ModeWords, bool]
_Range = tuple[float, float, tuple[str, ...]]


class ProxyTimes(_LinearStudy):
    """Approach 2: iteration time of a CNN from the times of proxies on the same GPU and the batch size.

    `power`, `positive`: as of the base. `general_`: coefficients of every CNN without its own, by term. `gpus_`:
    devices whose CNNs the coefficients were fitted on.

    time^power = sum of (coefficient x term)^power over three terms, each in ms. ``proxies`` sums over the layers the
    GPU time of the nearest proxy, at the batch size at which the proxy does the layer's work; ``limit`` is the line
    through the origin that it follows at large batches; ``host`` is layers x the host's time of a proxy's iteration.
    Where no GPU time was measured, as on CPUs, ``proxies`` is of whole iterations and ``host`` is 0. Rows of kind
    ``proxy`` are the proxies; the general coefficients are fitted on GPUs' other rows of the same sources, and those of
    each CNN and mode near them.
    """

    carries_by_proxies: ClassVar[bool] = True

    def __init__(self, power: float = 2.0, positive: bool = True) -> None:
        self.power = power
        self.positive = positive

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> ProxyTimes:
        """Learn from a feature table of n rows, proxies among them, and their iteration times in ms, of shape (n,).

        SchemaError if a column is missing, a time is not above 0, or no proxy or no CNN beside one was measured.
        """
        times = times_of(y, len(self._checked(X, _COLUMNS)), "iteration_time_ms")
        is_proxy = (X["kind"] == "proxy").to_numpy() if "kind" in X else np.zeros(len(X), dtype=bool)
        if not is_proxy.any():
            raise SchemaError(
                "ProxyTimes got no proxy's time. Put rows of kind 'proxy' into the measurement table."
            )
        self.measured_ = _measured(X[is_proxy], times[is_proxy])
        measured_cases = list(self._known(X, times, is_proxy))
        if not measured_cases:
            raise SchemaError(
                "no CNN of known layers was measured beside the proxies. Measure some on the same GPU in the same mode."
            )
        on_gpus = [pair for pair in measured_cases if not is_cpu(pair[0].gpu.name)] or measured_cases
        terms = _table_of([self.terms(case) for case, _ in on_gpus])
        measured = np.concatenate([measured for _, measured in on_gpus])
        self.general_ = self._regression(terms, measured, np.ones(len(terms)))
        self.gpus_ = tuple(sorted({case.gpu.name for case, _ in measured_cases}))
        self.laws_, self.ranges_ = self._own_laws(measured_cases)
        return self

    def terms(self, case: Case) -> Terms:
        """Features of the three terms in ms; OutOfRangeError on devices and in modes without proxies."""
        proxies, table = self._proxies(case), table_of(case)
        work = proxy_work(table, tuple(proxies.curves))
        sizes = np.append(case.batch_sizes, _LARGE)
        curves = ((proxies.curves[name], share.ratios) for name, share in work.items())
        busy = np.sum([curve.at(sizes[:, None] * ratios).sum(axis=1) for curve, ratios in curves], axis=0)
        layers = sum(share.n_layers for share in work.values())
        host = np.full(case.batch_sizes.size, layers * proxies.host_ms)
        return dict(zip(_TERMS, (busy[:-1], host, case.batch_sizes * busy[-1] / _LARGE), strict=True))

    def coefficients_of(self, case: Case) -> dict[str, float]:
        """Coefficients of the CNN in the mode, else the general ones."""
        self._check_fitted("general_")
        return self.laws_.get(_key(case), self.general_)

    def scope(self, case: Case) -> tuple[tuple[Reason, ...], ...]:
        """Reasons for caution; refused are devices and modes without proxies."""
        proxies = self._proxies(case)
        always = _counted(case, tuple(proxies.curves))
        if case.gpu.name not in self.gpus_:
            text = "proxy-times was fitted on CNNs of other GPUs, and on its proxies"
            always = (Reason("gpu", text, 1.0), *always)
        if _key(case) not in self.laws_:
            always = (Reason("cnn", "proxy-times was fitted on other CNNs in this mode", 1.0), *always)
        low, high, _ = self.ranges_.get(_key(case), (*proxies.range(), ()))
        return tuple((*always, *at_size) for at_size in _beyond("proxy-times", case.batch_sizes, low, high))

    def half_width(self, case: Case) -> float:
        """Half width of ln time: of unseen batch sizes if the CNN was measured on the GPU, else of unseen GPUs.

        Between runs on other days the host differs as it does between GPUs, whichever CNN it is.
        """
        most = max(self.half_widths_.values())
        *_, gpus = self.ranges_.get(_key(case), (0.0, 0.0, ()))
        return self.half_widths_.get(MEASURED, most) if case.gpu.name in gpus else most

    def with_measurements(self, X: pd.DataFrame) -> ProxyTimes:
        """Copy with the proxies of a user's table and coefficients of its CNNs; the general ones stay."""
        times = X["iteration_time_ms"].to_numpy(dtype=float)
        is_proxy = (X["kind"] == "proxy").to_numpy()
        if not is_proxy.any():
            return self
        more = copy(self)
        more.measured_ = self.measured_ | _measured(X[is_proxy], times[is_proxy])
        laws, ranges = more._own_laws(list(more._known(X, times, is_proxy)))
        more.laws_, more.ranges_ = self.laws_ | laws, self.ranges_ | ranges
        return more

    def _proxies(self, case: Case) -> _Proxies:
        self._check_fitted("measured_")
        proxies = self.measured_.get((case.gpu.name, _words(case.mode)))
        if proxies is None:
            having = sorted({gpu for gpu, mode in self.measured_ if mode == _words(case.mode)})
            raise OutOfRangeError(
                f"method proxy-times needs proxies measured on {case.gpu.name} in {_in_words(_words(case.mode))}; "
                f"in this mode they were measured on {', '.join(having) or 'no GPU'}. "
                "Measure them with `epochcast profile --preset founding` and pass the table as measurements."
            )
        return proxies

    def _known(
        self, X: pd.DataFrame, times: Array, is_proxy: NDArray[np.bool_]
    ) -> Iterator[tuple[Case, Array]]:
        """CNNs measured beside proxies: of the proxies' sources, on their devices and in their modes."""
        beside = ~is_proxy
        if "source" in X:  # iterations of other sources include other work
            beside &= X["source"].isin(X.loc[is_proxy, "source"].unique()).to_numpy()
        at = np.flatnonzero(beside)
        for case, rows in cases_of(X.iloc[at]):
            if case.table is not None and (case.gpu.name, _words(case.mode)) in self.measured_:
                yield case, times[at[rows]]

    def _own_laws(
        self, measured_cases: Sequence[tuple[Case, Array]]
    ) -> tuple[dict[_Key, dict[str, float]], dict[_Key, _Range]]:
        """Coefficients and range of each CNN in each mode with two batch sizes or more."""
        by_key: dict[_Key, list[tuple[Case, Array]]] = {}
        for case, measured in measured_cases:
            by_key.setdefault(_key(case), []).append((case, measured))
        laws: dict[_Key, dict[str, float]] = {}
        ranges: dict[_Key, _Range] = {}
        for key, members in by_key.items():
            sizes = np.concatenate([case.batch_sizes for case, _ in members])
            if np.unique(sizes).size >= _LEAST_OF_CNN:
                terms = _table_of([self.terms(case) for case, _ in members])
                laws[key] = self._own_law(terms, np.concatenate([ms for _, ms in members]))
                gpus = tuple(sorted({case.gpu.name for case, _ in members}))
                ranges[key] = (float(sizes.min()), float(sizes.max()), gpus)
        return laws, ranges

    def _own_law(self, terms: pd.DataFrame, times: Array) -> dict[str, float]:
        """Coefficients of one CNN, pulled to the general ones by one more row for each term.

        Such a row has only the mean of its term; its target is that term's part of the time by the general ones.
        """
        import pandas as pd

        share = (terms.div(times, axis=0) ** self.power).mean() ** (1 / self.power)
        general = pd.Series(self.general_)
        held = share.index[(share > 0) & (general > 0)]
        alone = pd.DataFrame(np.diag(share), share.index, share.index).loc[held]
        in_general = (share * general)[held].to_numpy()
        rows = pd.concat([terms.div(times, axis=0), alone], ignore_index=True)
        measured = np.append(np.ones(len(times)), in_general)
        pull = (_NEAR_GENERAL * in_general**self.power) ** 2
        return self._regression(rows, measured, np.append(np.ones(len(times)), pull))

    def _left_out(self, X: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Rows that calibration leaves out: inner batch sizes in four folds, then the CNNs of each GPU with proxies."""
        target = (X["kind"].fillna("target") == "target").to_numpy()
        series = X.groupby(["cnn", "image_size", "precision", "framework"], dropna=False)["batch_size"]
        rank, last = series.rank("dense").to_numpy() - 1, series.transform("nunique").to_numpy() - 1
        inner = target & (rank > 0) & (rank < last)
        for k in range(_FOLDS_OF_SIZES):
            yield MEASURED, np.flatnonzero(inner & (rank % _FOLDS_OF_SIZES == k))
        having = set(X.loc[X["kind"] == "proxy", "gpu"])
        for gpu in sorted(having & set(X.loc[target, "gpu"])):
            yield UNSEEN, np.flatnonzero(target & (X["gpu"] == gpu).to_numpy())

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("general_")
        measured = [
            {
                "device": device,
                "mode": list(mode),
                "host_ms": proxies.host_ms,
                "proxies": {
                    name: [np.exp(curve.log_sizes).round().tolist(), np.exp(curve.log_ms).tolist()]
                    for name, curve in proxies.curves.items()
                },
            }
            for (device, mode), proxies in self.measured_.items()
        ]
        names = ("cnn", "image_size", "mode", "cpu")
        laws = [
            {**dict(zip(names, key, strict=True)), "coefficients": law, "range": list(self.ranges_[key])}
            for key, law in self.laws_.items()
        ]
        return {"measured": measured, "general": self.general_, "gpus": list(self.gpus_), "laws": laws}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.measured_ = {
            (str(entry["device"]), tuple(entry["mode"])): _Proxies(
                finite(entry["host_ms"]),
                {
                    name: _Curve(*(np.log([finite(v) for v in values]) for values in columns))
                    for name, columns in entry["proxies"].items()
                },
            )
            for entry in learned["measured"]
        }
        self.general_ = {name: finite(learned["general"][name]) for name in _TERMS}
        self.gpus_ = tuple(learned["gpus"])
        keys = {
            (str(entry["cnn"]), int(entry["image_size"]), tuple(entry["mode"]), bool(entry["cpu"])): entry
            for entry in learned["laws"]
        }
        self.laws_ = {
            key: {name: finite(entry["coefficients"][name]) for name in _TERMS} for key, entry in keys.items()
        }
        ranges = {key: entry["range"] for key, entry in keys.items()}
        self.ranges_ = {
            key: (finite(low), finite(high), tuple(gpus)) for key, (low, high, gpus) in ranges.items()
        }


def _key(case: Case) -> _Key:
    return case.cnn, case.image_size, _words(case.mode), is_cpu(case.gpu.name)


def _measured(X: pd.DataFrame, times: Array) -> dict[tuple[str, ModeWords], _Proxies]:
    """Proxies by device and mode: the median at each batch size, rising with it."""
    busy, host = (
        X[name].to_numpy(dtype=float) if name in X else np.full(len(X), np.nan)
        for name in ("gpu_time_ms", "host_time_ms")
    )
    points: dict[tuple[str, ModeWords], dict[str, dict[float, list[float]]]] = {}
    hosts: dict[tuple[str, ModeWords], list[float]] = {}
    for case, rows in cases_of(X):
        where = case.gpu.name, _words(case.mode)
        curve = points.setdefault(where, {}).setdefault(case.cnn, {})
        on_gpu = np.isfinite(busy[rows]) & np.isfinite(host[rows])
        hosts.setdefault(where, []).extend(np.where(on_gpu, host[rows], 0.0))
        for size, ms in zip(case.batch_sizes, np.where(on_gpu, busy[rows], times[rows]), strict=True):
            curve.setdefault(float(size), []).append(float(ms))
    curves = {
        where: {name: _Curve.of(by_size[name]) for name in sorted(by_size)}
        for where, by_size in points.items()
    }
    return {where: _Proxies(float(np.median(hosts[where])), curves[where]) for where in points}
