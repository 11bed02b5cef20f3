"""The founding study's two approaches: linear regression on GPU specifications, and on times of proxy CNNs.

Both are non-negative sums of terms, coefficient x feature, that scikit-learn fits on relative errors. They count a
CNN's layers as the nearest proxies, so that every CNN of known layers has an answer. The study's own form, least
squares in seconds with a column for each convolution shape, is in notebook 04.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu, design_of, device_of, is_cpu, peak_tflop_per_s
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
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

_Cases = Sequence[tuple[Case, Array]]
"""Cases with their measured times in ms."""

Key = TypeVar("Key", bound=Hashable)
Member = TypeVar("Member")


def _grouped(members: Iterable[Member], key_of: Callable[[Member], Key]) -> dict[Key, list[Member]]:
    groups: dict[Key, list[Member]] = {}
    for member in members:
        groups.setdefault(key_of(member), []).append(member)
    return groups


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
    """Base of both approaches: a time as a sum of terms, coefficient x feature."""

    uses_proxies: ClassVar[bool] = True

    def terms(self, case: Case) -> Terms:
        """Features of a case by name, in ms but for those of the host; errors as of `scope`."""
        raise NotImplementedError(f"{type(self).__name__} has no terms.")

    def coefficients_of(self, case: Case) -> dict[str, float]:
        """Coefficients of the regression by term (`terms`); NotFittedError before a fit."""
        raise NotImplementedError(f"{type(self).__name__} has no coefficients.")

    def parts(self, case: Case) -> dict[str, Array]:
        """Each term's part of the time in ms; errors as of `scope`."""
        return {name: term.coefficient * term.feature for name, term in self.regression_terms(case).items()}

    def regression_terms(self, case: Case) -> dict[str, Term]:
        """Coefficient and feature of each term; errors as of `scope`."""
        coefficients = self.coefficients_of(case)
        return {name: Term(coefficients[name], feature) for name, feature in self.terms(case).items()}


def _regression(
    terms: pd.DataFrame, times: Array, weights: Array | float = 1.0, power: float = 1.0, rounds: int = 1
) -> dict[str, float]:
    """Coefficients, none below zero, of time^power = sum of (coefficient x term)^power, by least relative errors.

    `times`, `weights`, shape (n,): times in ms; the weight of each squared relative error. After the first of `rounds`
    a row counts by 1 / |ln(predicted / time)|, so that a CNN unlike all others does not bend the law.
    """
    from sklearn.linear_model import LinearRegression

    features = terms.div(times, axis=0) ** power
    regression, counts = LinearRegression(fit_intercept=False, positive=True), np.ones(len(times))
    for _ in range(rounds):
        relative = regression.fit(features, np.ones(len(times)), counts * weights).predict(features)
        with np.errstate(divide="ignore"):  # a row whose terms all have coefficient 0 does not count
            counts = 1 / np.maximum(np.abs(np.log(relative)) / power, _NEAR)
    return dict(zip(map(str, terms.columns), map(float, regression.coef_ ** (1 / power)), strict=True))


_NEAR, _ROUNDS = 0.1, 12
"""|ln(predicted / time)| below which all rows count alike, and rounds of a regression that does not follow outliers."""

_SPECIFICATIONS = ("compute_capability", "boost_clock_ghz", "cuda_cores", "memory_bandwidth_gb_per_s")
"""Columns of gpus.csv that `gpu-specs` reads, beside the peak rate at the precision."""

_USUAL_CAPABILITY = 7.0


class GpuSpecs(_LinearStudy):
    """Approach 1: iteration time from a GPU's specifications, counts of proxies in the CNN and the batch size.

    `proxies`: proxies that may stand for layers. `modes_`: what was fitted, by framework, precision, memory format and
    autotuning. `proxies_`: the proxies that stand for layers of the training CNNs. `coefficients_`: by term, as below.

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

    def __init__(self, proxies: tuple[str, ...] = FOUNDING_PROXIES) -> None:
        self.proxies = proxies

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
        self.modes_: dict[ModeWords, tuple[list[str], float, float]] = {}
        for mode, of_mode in _grouped(cases, lambda case: _words(case.mode)).items():
            sizes = np.concatenate([case.batch_sizes for case in of_mode])
            gpus = sorted({case.gpu.name for case in of_mode})
            self.modes_[mode] = gpus, float(sizes.min()), float(sizes.max())
        counted = {name for case in cases for name in proxy_work(table_of(case), self.proxies)}
        self.proxies_ = tuple(name for name in self.proxies if name in counted)
        terms = _table_of([self._terms(case) for case in cases])
        measured = np.concatenate([times[rows] for _, rows in specified])
        # Every CNN of a mode weighs the same.
        cnns = [(_words(case.mode), case.cnn, case.image_size) for case in cases for _ in case.batch_sizes]
        n_rows = Counter(cnns)
        weights = np.array([1 / n_rows[cnn] for cnn in cnns])
        self.coefficients_ = _regression(terms, measured, weights / weights.mean())
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
            is_known = any(case.gpu.name in gpus_of_mode for gpus_of_mode, _, _ in self.modes_.values())
            where = "in this mode" if is_known else "in any mode"
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

    def _check_scope(self, case: Case) -> tuple[list[str], float, float]:
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
        modes = [[mode, *fitted] for mode, fitted in self.modes_.items()]
        return {"modes": modes, "proxies": list(self.proxies_), "coefficients": self.coefficients_}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.modes_ = {
            tuple(mode): (gpus, finite(low), finite(high)) for mode, gpus, low, high in learned["modes"]
        }
        self.proxies_ = tuple(map(str, learned["proxies"]))
        self.coefficients_ = {str(name): finite(value) for name, value in learned["coefficients"].items()}
        needed = {f"iteration|{mode[0]}" for mode in self.modes_}
        if not needed | {f"issue|{name}" for name in self.proxies_} <= set(self.coefficients_):
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

    def at(self, sizes: Array) -> Array:
        """GPU times: ln linear between measured batch sizes, proportional above them, and no shorter below them."""
        log_asked = np.log(sizes)
        beyond = np.maximum(log_asked - self.log_sizes[-1], 0.0)
        return np.asarray(np.exp(np.interp(log_asked, self.log_sizes, self.log_ms) + beyond), dtype=float)


class _Proxies(NamedTuple):
    """Proxies measured on one device in one mode: the host's time of an iteration, and GPU times by name."""

    host_ms: float
    curves: dict[str, _Curve]

    def terms(self, table: LayerTable, batch_sizes: Array) -> Terms:
        """Features of a CNN in ms, as in the list of `ProxyTimes`."""
        names = tuple(self.curves)
        work = proxy_work(table, names)
        sizes = {name: batch_sizes[:, None] * layers.ratios for name, layers in work.items()}
        busy = [self.curves[name].at(sizes[name]).sum(axis=1) for name in work]
        host = np.full(batch_sizes.size, self.host_ms)
        streaming = streaming_proxy(names)
        log_sizes, log_ms = (values[-1] for values in self.curves[streaming])
        ms_per_byte = np.exp(log_ms - log_sizes) / moved_bytes_per_image(proxy_table(streaming))
        elementwise = batch_sizes * moved_bytes_per_image(table, elementwise=True) * ms_per_byte
        n_layers = sum(layers.n_layers for layers in work.values())
        return dict(zip(_TERMS, (np.sum(busy, axis=0), host * n_layers, host, elementwise), strict=True))


class _OwnLaw(NamedTuple):
    """Coefficients of a CNN on a device, where batch sizes low to high were measured.

    `factor`: what the general coefficients are multiplied by on other chips.
    """

    coefficients: dict[str, float]
    factor: float
    low: float
    high: float


_TERMS = ("proxies", "layers", "iteration", "elementwise")
_OF_PROXY = {"proxies": 1.0, "layers": 0.0, "iteration": 1.0, "elementwise": 0.0}
"""Coefficients of a measured proxy: its own times."""

_Where = tuple[str, ModeWords]
"""Device and mode that proxies were measured on."""
_Key = tuple[str, int, str, ModeWords]
"""CNN, image size, device and mode that a law is of."""

_POWERS = {"tensorflow": 1.0}
_POWER = 2.0
"""Power of the terms by framework, and of all others: batch sizes and CNNs left out on K80, M60 and V100 choose a plain
sum for PROFET's TensorFlow, those on Hopper squares for PyTorch and Chainer, which enqueue ahead of the GPU."""

_LEAST_OF_CNN, _FOLDS_OF_SIZES = 2, 4
_NEAR_GENERAL = 0.3
"""Pull of the general coefficients in a CNN's own fit: relative weight of a term that makes all of the time."""

_OWN_SHARE = 0.5
"""Share of a CNN's ln(measured / general) that other chips take: better than 0 and 1 from K80 to M60 and back."""

_FROM_CHIP_TO_CHIP = 0.73
"""Half width of ln time on a chip without measured CNNs: the least that holds 90 % of the times from one to another of
K80, M60 and V100, and 85 % of every way and CNN (benchmarks/founding.py). A fit of one chip has no evidence."""

_CHIP_WORDS = "from chip to chip (K80, M60, V100) it errs by 21 % on average"


class ProxyTimes(_LinearStudy):
    """Approach 2: iteration time of a CNN from the times of proxies on the same GPU and the batch size.

    `general_`: by framework and kind of device, coefficients by term. `laws_`: those of each CNN, mode and device.
    `gpus_`: devices whose CNNs the coefficients were fitted on.

    time^power = sum of (coefficient x term)^power over four terms, each in ms; power is 1 in TensorFlow, else 2:

    - ``proxies``: GPU times of the layers' nearest proxies, each at the batch size at which it does the layer's work.
    - ``iteration``: the host's time of a proxy's iteration; ``layers``: the same x layers.
    - ``elementwise``: bytes of all layers but products x the time for a byte of the proxy that moves most for its
      operations.

    Where no GPU time was measured, as on CPUs, ``proxies`` is of whole iterations and the host's terms are 0. Rows of
    kind ``proxy`` are the proxies. The general coefficients of a framework on GPUs, or on processors, are fitted on all
    other rows of the same sources, without following outliers; those of each CNN, mode and device near them. On a chip
    where the CNN was not measured the general ones answer, times a factor of the CNN.
    """

    carries_by_proxies: ClassVar[bool] = True
    users_laws: Mapping[_Key, _OwnLaw] = MappingProxyType({})

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> ProxyTimes:
        """Learn from a feature table of n rows, proxies among them, and their iteration times in ms, of shape (n,).

        SchemaError if a column is missing, a time is not above 0, or no proxy or no CNN beside one was measured.
        """
        times = times_of(y, len(self._checked(X, _COLUMNS)), "iteration_time_ms")
        if "proxy" not in set(X.get("kind", ())):
            raise SchemaError(
                "ProxyTimes got no proxy's time. Put rows of kind 'proxy' into the measurement table."
            )
        self.measured_ = _measured(X, times)
        measured_cases = list(self._known(X, times))
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
        return self._proxies(case).terms(table_of(case), case.batch_sizes)

    def parts(self, case: Case) -> dict[str, Array]:
        """Each term's share of the time in ms; errors as of `scope`."""
        power = _power(case)
        raised = {name: summand**power for name, summand in super().parts(case).items()}
        time = np.sum(list(raised.values()), axis=0) ** (1 / power)
        return {name: summand / time ** (power - 1) for name, summand in raised.items()}

    def coefficients_of(self, case: Case) -> dict[str, float]:
        """Coefficients of the CNN in the mode on this chip, else the general ones x its factor on other chips.

        OutOfRangeError if no CNN was measured in the framework on the kind of device.
        """
        self._check_fitted("general_")
        law, laws = self._laws(case)
        if law is not None:
            return law.coefficients
        if case.cnn in self._proxies(case).curves:
            return _OF_PROXY
        general = self.general_.get(_kind(case))
        if general is None:
            raise OutOfRangeError(
                f"method proxy-times was fitted on CNNs of {', '.join(sorted(self.general_))}, and {case.gpu.name} is "
                f"asked in {_kind(case)}: its law does not carry over. Measure a CNN at two batch sizes beside the "
                f"proxies: `epochcast profile --preset targets:vgg_cifar@32`. {INSTEAD}."
            )
        factor = float(np.exp(np.mean([np.log(law.factor) for law in laws]))) if laws else 1.0
        return {name: factor * general[name] for name in _TERMS}

    def _laws(self, case: Case) -> tuple[_OwnLaw | None, list[_OwnLaw]]:
        """Law of the CNN in the mode on this device, else on another card of its chip; laws on all like devices."""
        of_cnn = {
            device: law
            for (cnn, image_size, device, mode), law in self.laws_.items()
            if (cnn, image_size, mode) == (case.cnn, case.image_size, _words(case.mode))
            and is_cpu(device) == is_cpu(case.gpu.name)
        }
        on_chip = (law for device, law in of_cnn.items() if _is_card_of(device, case.gpu))
        return of_cnn.get(case.gpu.name) or next(on_chip, None), list(of_cnn.values())

    def scope(self, case: Case) -> tuple[tuple[Reason, ...], ...]:
        """Reasons for caution; refused are devices and modes without proxies."""
        proxies = self._proxies(case)
        self.coefficients_of(case)
        always = _counted(case, tuple(proxies.curves))
        if case.gpu.name not in self.gpus_:
            is_card = any(_is_card_of(gpu, case.gpu) for gpu in self.gpus_)
            text = f"proxy-times was fitted on CNNs of other GPUs{', one of its chip' * is_card}, and on its proxies"
            text += "" if is_card else f"; {_CHIP_WORDS}: time a CNN on it at two batch sizes, too"
            always = (Reason("gpu", text, 1.0), *always)
        law, laws = self._laws(case)
        if not laws:
            always = (Reason("cnn", "proxy-times was fitted on other CNNs in this mode", 1.0), *always)
        fitted = [law] if law else laws or self.laws_.values()
        low = min((law.low for law in fitted), default=0.0)
        high = max((law.high for law in fitted), default=np.inf)
        return tuple((*always, *at_size) for at_size in _beyond("proxy-times", case.batch_sizes, low, high))

    def knows(self, case: Case) -> bool:
        """Whether the CNN was timed beside proxies on this device in this mode, at sizes around all that are asked.

        Where the question has runs of its own, they are the user's that count.
        """
        law = (self.users_laws if case.anchors else self.laws_).get(_key(case))
        return law is not None and bool(
            law.low <= case.batch_sizes.min() and case.batch_sizes.max() <= law.high
        )

    def half_width(self, case: Case) -> float:
        """Half width of ln time: of batch sizes of a CNN that was measured on the device, else of unseen chips.

        Between runs on other days the host differs as it does between cards of a chip.
        """
        is_own = _key(case) in self.laws_ and MEASURED in self.half_widths_
        return self.half_widths_[MEASURED if is_own else UNSEEN]

    def calibrate(self, X: pd.DataFrame, y: Array) -> ProxyTimes:
        """As of the base; chips that were not measured have at least the width of published ones."""
        super().calibrate(X, y)
        cases = [case for case, _ in self._known(X, y)]
        n_rows = sum(case.batch_sizes.size for case in cases)
        n_cnns = len({(case.cnn, case.image_size) for case in cases})
        devices = f"{len(self.gpus_)} device{'s' * (len(self.gpus_) > 1)}"
        of_cnns = f"{n_rows:,} iterations of {n_cnns} CNNs (by image size)"
        self.trained_on_ = f"{of_cnns} beside proxies on {devices}"
        self.half_widths_[UNSEEN] = max(self.half_widths_.get(UNSEEN, 0.0), _FROM_CHIP_TO_CHIP)
        return self

    def with_measurements(self, X: pd.DataFrame) -> ProxyTimes:
        """Copy with the proxies of a user's table and coefficients of its CNNs; the general ones stay."""
        times = X["iteration_time_ms"].to_numpy(dtype=float)
        if "proxy" not in set(X["kind"]):
            return self
        more = copy(self)
        more.measured_ = self.measured_ | _measured(X, times)
        measured_cases = list(more._known(X, times))
        more.general_ = more._general_laws(measured_cases) | self.general_
        more.users_laws = more._own_laws(measured_cases)
        more.laws_ = self.laws_ | more.users_laws
        return more

    def _proxies(self, case: Case) -> _Proxies:
        self._check_fitted("measured_")
        proxies, mode = self.measured_.get(_where(case)), _words(case.mode)
        if proxies is None:
            having = sorted({gpu for gpu, mode_of_gpu in self.measured_ if mode_of_gpu == mode})
            raise OutOfRangeError(
                f"method proxy-times needs proxies measured on {case.gpu.name} in {_in_words(mode)}; "
                f"in this mode they were measured on {', '.join(having) or 'no GPU'}. "
                "Measure them with `epochcast profile --preset founding` and pass the table as measurements."
            )
        return proxies

    def _known(self, X: pd.DataFrame, times: Array) -> Iterator[tuple[Case, Array]]:
        """CNNs measured beside proxies: of the proxies' sources, on their devices and in their modes."""
        is_proxy = (X["kind"] == "proxy").to_numpy()
        beside = ~is_proxy
        if "source" in X:  # iterations of other sources include other work
            beside &= X["source"].isin(X.loc[is_proxy, "source"].unique()).to_numpy()
        at = np.flatnonzero(beside)
        for case, rows in cases_of(X.iloc[at]):
            if case.table is not None and _where(case) in self.measured_:
                yield case, times[at[rows]]

    def _general_laws(self, measured_cases: _Cases) -> dict[str, dict[str, float]]:
        """Coefficients of all CNNs together, by framework and kind of device."""
        return {
            kind: _regression(*self._rows(members), power=_power(members[0][0]), rounds=_ROUNDS)
            for kind, members in _grouped(measured_cases, lambda member: _kind(member[0])).items()
        }

    def _own_laws(self, measured_cases: _Cases) -> dict[_Key, _OwnLaw]:
        """Law of each CNN in each mode on each device with two batch sizes or more."""
        laws: dict[_Key, _OwnLaw] = {}
        for key, members in _grouped(measured_cases, lambda member: _key(member[0])).items():
            sizes = np.concatenate([case.batch_sizes for case, _ in members])
            if np.unique(sizes).size >= _LEAST_OF_CNN:
                general, power = self.general_[_kind(members[0][0])], _power(members[0][0])
                terms, times = self._rows(members)
                general_ms = np.linalg.norm(terms * [*general.values()], power, axis=1)
                factor = float(np.exp(_OWN_SHARE * np.log(times / general_ms).mean()))
                own = _pulled(terms, times, general, power)
                laws[key] = _OwnLaw(own, factor, float(sizes.min()), float(sizes.max()))
        return laws

    def _rows(self, members: _Cases) -> tuple[pd.DataFrame, Array]:
        """Terms of cases as one table, and their times."""
        return _table_of([self.terms(case) for case, _ in members]), np.concatenate([ms for _, ms in members])

    def _left_out(self, X: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Rows that calibration leaves out: inner batch sizes in four folds, the CNNs of each chip."""
        target = (X["kind"].fillna("target") == "target").to_numpy()
        series = X.groupby(["cnn", "image_size", "precision", "framework"], dropna=False)["batch_size"]
        rank, last = series.rank("dense").to_numpy() - 1, series.transform("nunique").to_numpy() - 1
        inner = target & (rank > 0) & (rank < last)
        for k in range(_FOLDS_OF_SIZES):
            yield MEASURED, np.flatnonzero(inner & (rank % _FOLDS_OF_SIZES == k))
        yield from (left_out for left_out in super()._left_out(X) if left_out[0] == UNSEEN)

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("general_")
        measured = [
            [
                *where,
                proxies.host_ms,
                {name: np.exp(curve).tolist() for name, curve in proxies.curves.items()},
            ]
            for where, proxies in self.measured_.items()
        ]
        laws = [[*key, *law] for key, law in self.laws_.items()]
        return {"measured": measured, "general": self.general_, "gpus": list(self.gpus_), "laws": laws}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.measured_ = {}
        for device, mode, host_ms, curves in learned["measured"]:
            logs = {
                name: _Curve(*(np.log([finite(v) for v in values]) for values in curves[name]))
                for name in curves
            }
            self.measured_[str(device), tuple(mode)] = _Proxies(finite(host_ms), logs)
        self.general_ = {kind: _coefficients(law) for kind, law in learned["general"].items()}
        self.gpus_ = tuple(learned["gpus"])
        self.laws_ = {
            (str(cnn), int(image_size), str(device), tuple(mode)): _OwnLaw(
                _coefficients(law), *map(finite, range_and_factor)
            )
            for cnn, image_size, device, mode, law, *range_and_factor in learned["laws"]
        }


def _pulled(terms: pd.DataFrame, times: Array, general: dict[str, float], power: float) -> dict[str, float]:
    """Coefficients of one CNN, pulled to the general ones by one more row for each term.

    Such a row has only the mean of its term; its target is that term's part of the time by the general ones.
    """
    import pandas as pd

    relative = terms.div(times, axis=0)
    share = (relative**power).mean() ** (1 / power)
    in_general = share * pd.Series(general)
    held = in_general.index[in_general > 0]
    alone = pd.DataFrame(np.diag(share), share.index, share.index).loc[held]
    measured = np.append(np.ones(len(times)), in_general[held])
    pull = (_NEAR_GENERAL * in_general[held] ** power) ** 2
    weights = np.append(np.ones(len(times)), pull)
    return _regression(pd.concat([relative, alone], ignore_index=True), measured, weights, power)


def _coefficients(stored: Mapping[str, Any]) -> dict[str, float]:
    return {name: finite(stored[name]) for name in _TERMS}


def _power(case: Case) -> float:
    return _POWERS.get(case.mode.framework, _POWER)


def _kind(case: Case) -> str:
    """Framework and kind of device, which share their general coefficients."""
    return f"{case.mode.framework} on {'processors' if is_cpu(case.gpu.name) else 'GPUs'}"


def _where(case: Case) -> _Where:
    return case.gpu.name, _words(case.mode)


def _key(case: Case) -> _Key:
    return case.cnn, case.image_size, *_where(case)


def _is_card_of(device: str, gpu: Gpu) -> bool:
    """Whether a device has the chip of a GPU."""
    return design_of(device_of(device)) == design_of(gpu)


def _measured(X: pd.DataFrame, times: Array) -> dict[_Where, _Proxies]:
    """Proxies of a table by device and mode: the median at each batch size, rising with it."""
    is_proxy = (X["kind"] == "proxy").to_numpy()
    X, times = X[is_proxy], times[is_proxy]
    busy, host = (
        X[name].to_numpy(dtype=float) if name in X else np.full(len(X), np.nan)
        for name in ("gpu_time_ms", "host_time_ms")
    )
    on_gpu = np.isfinite(busy) & np.isfinite(host)
    busy, host = np.where(on_gpu, busy, times), np.where(on_gpu, host, 0.0)
    sizes = X["batch_size"].to_numpy(dtype=float)
    measured: dict[_Where, _Proxies] = {}
    for where, members in _grouped(cases_of(X), lambda member: _where(member[0])).items():
        curves = {}
        for name, of_proxy in sorted(_grouped(members, lambda member: member[0].cnn).items()):
            at = np.concatenate([rows for _, rows in of_proxy])
            own_sizes = np.unique(sizes[at])
            middle = [np.median(busy[at][sizes[at] == size]) for size in own_sizes]
            curves[name] = _Curve(np.log(own_sizes), np.log(np.maximum.accumulate(middle)))
        at = np.concatenate([rows for _, rows in members])
        measured[where] = _Proxies(float(np.median(host[at])), curves)
    return measured
