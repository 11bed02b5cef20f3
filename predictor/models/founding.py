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
from predictor.catalogue.devices import design_of, device_of, is_cpu, peak_tflop_per_s
from predictor.catalogue.modes import Mode
from predictor.cnns.proxies import FOUNDING_PROXIES, proxy_table
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
from predictor.operators.nearest_proxy import (
    moved_bytes_per_image,
    proxy_work,
    streaming_proxy,
    unlike_layers,
)

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

_TERMS = ("proxies", "host", "limit", "elementwise")
_Key = tuple[str, int, ModeWords, str]
"""CNN, image size, mode and device that a law is of."""

_CARD = "card"
"""Key of the half width on another card of the chip."""

_FROM_CHIP_TO_CHIP = 0.6
"""Half width of ln time on a chip without measured CNNs: 90 % of times from one to another of K80, M60 and V100 lie
inside (benchmarks/founding.py). Fits of one chip have no evidence of their own."""

_OF_PROXY = {"proxies": 1.0, "host": 0.5, "limit": 0.0, "elementwise": 0.0}
"""Coefficients of a measured proxy: its own times. Its host's time counts once, and it has two products."""

_CHIP_WORDS = "from chip to chip (K80, M60, V100) it errs by 24 % on average"

_OWN_SHARE = 0.5
"""Share of a CNN's ln(measured / general) that other chips take: better than 0 and 1 from K80 to M60 and back."""


class _OwnLaw(NamedTuple):
    """Coefficients of a CNN on a device, where batch sizes low to high were measured.

    `factor`: what the general coefficients are multiplied by on other chips.
    """

    coefficients: dict[str, float]
    factor: float
    low: float
    high: float


class ProxyTimes(_LinearStudy):
    """Approach 2: iteration time of a CNN from the times of proxies on the same GPU and the batch size.

    `power`, `positive`: as of the base. `general_`: by framework and kind of device, coefficients by term. `gpus_`:
    devices whose CNNs the coefficients were fitted on.

    time^power = sum of (coefficient x term)^power over four terms, each in ms. ``proxies`` sums over the layers the
    GPU time of the nearest proxy, at the batch size at which the proxy does the layer's work; ``limit`` is the line
    through the origin that it follows at large batches; ``host`` is layers x the host's time of a proxy's iteration;
    ``elementwise`` is the bytes of all layers but products x the time for a byte of the proxy that moves most for its
    operations. Where no GPU time was measured, as on CPUs, ``proxies`` is of whole iterations and ``host`` is 0. Rows
    of kind ``proxy`` are the proxies. The general coefficients of a framework on GPUs, or on processors, are fitted on
    all other rows of the same sources; those of each CNN, mode and device near them. On a chip where the CNN was not
    measured the general ones answer, times a factor of the CNN.
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
        self.general_ = self._general_laws(measured_cases)
        self.gpus_ = tuple(sorted({case.gpu.name for case, _ in measured_cases}))
        self.laws_ = self._own_laws(measured_cases)
        return self

    def terms(self, case: Case) -> Terms:
        """Features of the four terms in ms; OutOfRangeError on devices and in modes without proxies."""
        proxies, table = self._proxies(case), table_of(case)
        work = proxy_work(table, tuple(proxies.curves))
        sizes = np.append(case.batch_sizes, _LARGE)
        curves = ((proxies.curves[name], share.ratios) for name, share in work.items())
        busy = np.sum([curve.at(sizes[:, None] * ratios).sum(axis=1) for curve, ratios in curves], axis=0)
        layers = sum(share.n_layers for share in work.values())
        host = np.full(case.batch_sizes.size, layers * proxies.host_ms)
        limit = case.batch_sizes * busy[-1] / _LARGE
        name = streaming_proxy(tuple(proxies.curves))
        ms_per_byte = proxies.curves[name].at(sizes[-1:]) / _LARGE / moved_bytes_per_image(proxy_table(name))
        elementwise = case.batch_sizes * moved_bytes_per_image(table, elementwise=True) * ms_per_byte
        return dict(zip(_TERMS, (busy[:-1], host, limit, elementwise), strict=True))

    def coefficients_of(self, case: Case) -> dict[str, float]:
        """Coefficients of the CNN in the mode on this chip, else the general ones x its factor on other chips."""
        self._check_fitted("general_")
        law = self._law(case)
        if law is not None:
            return law.coefficients
        if case.cnn in self._proxies(case).curves:
            return _OF_PROXY
        factors = [law.factor for law in self._laws_elsewhere(case).values()]
        factor = float(np.exp(np.mean(np.log(factors)))) if factors else 1.0
        return {name: factor * coefficient for name, coefficient in self._general(case).items()}

    def _general(self, case: Case) -> dict[str, float]:
        """Coefficients of all CNNs in the framework on the kind of device; OutOfRangeError if none was measured."""
        general = self.general_.get(_kind(case))
        if general is None:
            raise OutOfRangeError(
                f"method proxy-times was fitted on CNNs of {', '.join(sorted(self.general_))}, and {case.gpu.name} is "
                f"asked in {_kind(case)}: its law does not carry over. Measure a CNN at two batch sizes beside the "
                f"proxies: `epochcast profile --preset targets:vgg_cifar@32`. {INSTEAD}."
            )
        return general

    def _law(self, case: Case) -> _OwnLaw | None:
        """Law of the CNN in the mode on this device, else on another card of its chip."""
        if _key(case) in self.laws_:
            return self.laws_[_key(case)]
        laws = self._laws_elsewhere(case).items()
        return next((law for name, law in laws if design_of(device_of(name)) == design_of(case.gpu)), None)

    def _laws_elsewhere(self, case: Case) -> dict[str, _OwnLaw]:
        """Laws of the CNN in the mode on devices of the kind, GPUs or processors, by device."""
        *of_cnn, device = _key(case)
        others = {key[-1]: law for key, law in self.laws_.items() if [*key[:-1]] == of_cnn}
        return {name: law for name, law in others.items() if is_cpu(name) == is_cpu(device)}

    def scope(self, case: Case) -> tuple[tuple[Reason, ...], ...]:
        """Reasons for caution; refused are devices and modes without proxies."""
        proxies = self._proxies(case)
        self.coefficients_of(case)
        always = _counted(case, tuple(proxies.curves))
        if case.gpu.name not in self.gpus_:
            is_card = any(design_of(device_of(gpu)) == design_of(case.gpu) for gpu in self.gpus_)
            where = f"other GPUs{', one of its chip' * is_card}"
            text = f"proxy-times was fitted on CNNs of {where}, and on its proxies"
            text += "" if is_card else f"; {_CHIP_WORDS}: time a CNN on it at two batch sizes, too"
            always = (Reason("gpu", text, 1.0), *always)
        law = self._law(case)
        laws = [*self._laws_elsewhere(case).values()] if law is None else [law]
        if not laws:
            always = (Reason("cnn", "proxy-times was fitted on other CNNs in this mode", 1.0), *always)
        ends = [(law.low, law.high) for law in laws] or [proxies.range()]
        low, high = min(low for low, _ in ends), max(high for _, high in ends)
        return tuple((*always, *at_size) for at_size in _beyond("proxy-times", case.batch_sizes, low, high))

    def knows(self, case: Case) -> bool:
        """Whether the CNN was timed beside proxies on this device in this mode, at sizes around all that are asked."""
        law = self.laws_.get(_key(case))
        if law is None:
            return False
        return bool(law.low <= case.batch_sizes.min() and case.batch_sizes.max() <= law.high)

    def half_width(self, case: Case) -> float:
        """Half width of ln time: of batch sizes, of other cards of a chip on which the CNN was measured, or of chips.

        Between runs on other days the host differs as it does between cards. A CNN that was not measured counts as a
        chip that was not.
        """
        widths = self.half_widths_
        if self._law(case) is None:
            return max(widths.values())
        of_card = widths.get(_CARD, max(widths.values()))
        return widths.get(MEASURED, of_card) if _key(case) in self.laws_ else of_card

    def calibrate(self, X: pd.DataFrame, y: Array) -> ProxyTimes:
        """As of the base; chips that were not measured have at least the width of published ones."""
        super().calibrate(X, y)
        known = list(self._known(X, y, (X["kind"] == "proxy").to_numpy()))
        n_rows, cnns = (
            sum(len(times) for _, times in known),
            {(case.cnn, case.image_size) for case, _ in known},
        )
        n_devices = f"{len(self.gpus_)} device{'s' * (len(self.gpus_) > 1)}"
        self.trained_on_ = (
            f"{n_rows:,} iterations of {len(cnns)} CNNs (by image size) beside proxies on {n_devices}"
        )
        self.half_widths_[UNSEEN] = max(self.half_widths_.get(UNSEEN, 0.0), _FROM_CHIP_TO_CHIP)
        return self

    def with_measurements(self, X: pd.DataFrame) -> ProxyTimes:
        """Copy with the proxies of a user's table and coefficients of its CNNs; the general ones stay."""
        times = X["iteration_time_ms"].to_numpy(dtype=float)
        is_proxy = (X["kind"] == "proxy").to_numpy()
        if not is_proxy.any():
            return self
        more = copy(self)
        more.measured_ = self.measured_ | _measured(X[is_proxy], times[is_proxy])
        measured_cases = list(more._known(X, times, is_proxy))
        more.general_ = more._general_laws(measured_cases) | self.general_
        more.laws_ = self.laws_ | more._own_laws(measured_cases)
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

    def _general_laws(self, measured_cases: Sequence[tuple[Case, Array]]) -> dict[str, dict[str, float]]:
        """Coefficients of all CNNs together, by framework and kind of device."""
        by_kind: dict[str, list[tuple[Case, Array]]] = {}
        for case, measured in measured_cases:
            by_kind.setdefault(_kind(case), []).append((case, measured))
        laws: dict[str, dict[str, float]] = {}
        for kind, members in by_kind.items():
            terms = _table_of([self.terms(case) for case, _ in members])
            times = np.concatenate([measured for _, measured in members])
            laws[kind] = self._regression(terms, times, np.ones(len(terms)))
        return laws

    def _own_laws(self, measured_cases: Sequence[tuple[Case, Array]]) -> dict[_Key, _OwnLaw]:
        """Law of each CNN in each mode on each device with two batch sizes or more."""
        import pandas as pd

        by_key: dict[_Key, list[tuple[Case, Array]]] = {}
        for case, measured in measured_cases:
            by_key.setdefault(_key(case), []).append((case, measured))
        laws: dict[_Key, _OwnLaw] = {}
        for key, members in by_key.items():
            sizes = np.concatenate([case.batch_sizes for case, _ in members])
            if np.unique(sizes).size >= _LEAST_OF_CNN:
                general = pd.Series(self._general(members[0][0]))
                terms = _table_of([self.terms(case) for case, _ in members])
                times = np.concatenate([ms for _, ms in members])
                general_ms = np.linalg.norm(terms * general, self.power, axis=1)
                factor = float(np.exp(_OWN_SHARE * np.log(times / general_ms).mean()))
                of_cnn = self._own_law(terms, times, general)
                laws[key] = _OwnLaw(of_cnn, factor, float(sizes.min()), float(sizes.max()))
        return laws

    def _own_law(self, terms: pd.DataFrame, times: Array, general: pd.Series[float]) -> dict[str, float]:
        """Coefficients of one CNN, pulled to the general ones by one more row for each term.

        Such a row has only the mean of its term; its target is that term's part of the time by the general ones.
        """
        import pandas as pd

        share = (terms.div(times, axis=0) ** self.power).mean() ** (1 / self.power)
        held = share.index[(share > 0) & (general > 0)]
        alone = pd.DataFrame(np.diag(share), share.index, share.index).loc[held]
        in_general = (share * general)[held].to_numpy()
        rows = pd.concat([terms.div(times, axis=0), alone], ignore_index=True)
        measured = np.append(np.ones(len(times)), in_general)
        pull = (_NEAR_GENERAL * in_general**self.power) ** 2
        return self._regression(rows, measured, np.append(np.ones(len(times)), pull))

    def _left_out(self, X: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Rows that calibration leaves out: inner batch sizes in four folds, the CNNs of each card, then of each chip.

        Cards and chips are those with proxies; a card counts where another one of its chip has CNNs, too.
        """
        target = (X["kind"].fillna("target") == "target").to_numpy()
        series = X.groupby(["cnn", "image_size", "precision", "framework"], dropna=False)["batch_size"]
        rank, last = series.rank("dense").to_numpy() - 1, series.transform("nunique").to_numpy() - 1
        inner = target & (rank > 0) & (rank < last)
        for k in range(_FOLDS_OF_SIZES):
            yield MEASURED, np.flatnonzero(inner & (rank % _FOLDS_OF_SIZES == k))
        gpus = X["gpu"].to_numpy(dtype=str)
        designs = np.array([design_of(device_of(gpu)) for gpu in gpus])
        having = sorted(set(gpus[~target]) & set(gpus[target]))
        by_design = {
            design: [gpu for gpu in having if design_of(device_of(gpu)) == design] for design in designs
        }
        for design, cards in sorted(by_design.items()):
            for gpu in cards if len(cards) > 1 else ():
                yield _CARD, np.flatnonzero(target & (gpus == gpu))
            if cards and len(by_design) > 1:
                yield UNSEEN, np.flatnonzero(target & (designs == design))

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
        names = ("cnn", "image_size", "mode", "device")
        laws = [dict(zip(names, key, strict=True)) | law._asdict() for key, law in self.laws_.items()]
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
        self.general_ = {
            kind: {name: finite(law[name]) for name in _TERMS} for kind, law in learned["general"].items()
        }
        self.gpus_ = tuple(learned["gpus"])
        self.laws_ = {
            (
                str(entry["cnn"]),
                int(entry["image_size"]),
                tuple(entry["mode"]),
                str(entry["device"]),
            ): _OwnLaw(
                {name: finite(entry["coefficients"][name]) for name in _TERMS},
                *(finite(entry[name]) for name in ("factor", "low", "high")),
            )
            for entry in learned["laws"]
        }


def _kind(case: Case) -> str:
    """Framework and kind of device, which share their general coefficients."""
    return f"{case.mode.framework} on {'processors' if is_cpu(case.gpu.name) else 'GPUs'}"


def _key(case: Case) -> _Key:
    return case.cnn, case.image_size, _words(case.mode), case.gpu.name


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
