"""The founding study's two approaches: regression on GPU specifications, and on times of proxy CNNs.

Both count a CNN's layers as the nearest proxies, so that every CNN of known layers has an answer. The study's own
form, plain least squares with a column for each convolution shape, is in notebook 04.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.catalogue.devices import Gpu, is_cpu, peak_tflop_per_s
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.proxies import proxy_name, proxy_table
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.base import (
    INSTEAD,
    MEASURED,
    UNSEEN,
    Case,
    Floats,
    WholePredictor,
    cases_of,
    finite,
    table_of,
    times_of,
)
from predictor.models.forecast import WIDENS, Reason
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.work import PASSES, layer_bytes, layer_flops

if TYPE_CHECKING:
    import pandas as pd

FOUNDING_PROXIES = (
    "32_3_64", "32_64_64", "16_64_128", "16_128_128", "8_128_256", "8_256_256", "4_256_256", "4_256_512", "4_512_256",
    "4_512_512", "2_256_256", "2_256_512", "2_512_256", "2_512_512",
)  # fmt: skip

_FLOP_PER_BYTE = 200.0
"""FLOPs that count as a byte moved: of 0, 20, 60 and 200 the best where CNNs were left out of the H200's rows."""

_MODE = ("framework", "precision", "memory_format", "autotune")
"""Fields of a mode in which the two approaches are fitted."""

_COLUMNS = ("gpu", "cnn", "image_size", "batch_size", "layer_table")
_PRODUCTS = tuple(
    name for name, entry in OPERATOR_TYPES.items() if entry.is_convolution and entry.is_measured
)
_CUBE = 3.0  # iteration^3 = GPU time^3 + host time^3, as of `layer-times`
_EXAMPLES = 3

ModeWords = tuple[str, ...]


def _words(mode: Mode) -> ModeWords:
    return tuple(str(getattr(mode, name)) for name in _MODE)


def _in_words(words: ModeWords) -> str:
    return ", ".join((*words[:-1], "autotune") if words[-1] == "True" else words[:-1])


class ProxyWork(NamedTuple):
    """Layers of a CNN that count as one proxy: how many, and how much work each does relative to the proxy's own."""

    n_layers: int
    ratios: Floats


@lru_cache(maxsize=512)
def proxy_work(table: LayerTable, proxies: tuple[str, ...]) -> dict[str, ProxyWork]:
    """A CNN's convolutions and linear layers by their nearest proxy, in the order of `proxies`.

    Notes
    -----
    The nearest proxy is that of the same class (a grouped, a transposed or another convolution), then of the most
    similar kernel, then of the same stride, then of the most similar size: doublings of height, channels and filters.
    A linear layer counts as a convolution of one pixel. Work is FLOPs + 200 x bytes of one image's three passes.
    """
    ratios: dict[str, list[float]] = {}
    for layer in _products(table):
        name, work = _nearest(_shape(layer), proxies)
        ratios.setdefault(name, []).append(work)
    if not ratios:
        raise OutOfRangeError(
            f"{table.cnn} has no convolution and no linear layer to count as a proxy. {INSTEAD}."
        )
    return {name: ProxyWork(len(ratios[name]), np.array(ratios[name])) for name in proxies if name in ratios}


def _products(table: LayerTable) -> Iterator[Layer]:
    for layer in table:
        if layer.type in _PRODUCTS or layer.type == "linear":
            yield layer


class _Shape(NamedTuple):
    height: float
    inputs: float
    outputs: float
    kernel: float
    stride: int
    kind: str
    work: float


def _shape(layer: Layer) -> _Shape:
    try:
        flops = sum(layer_flops(layer, each, 1) for each in PASSES)
        moved = sum(layer_bytes(layer, each, 2) - layer_bytes(layer, each, 1) for each in PASSES)
        work = flops + _FLOP_PER_BYTE * moved
        if layer.type == "linear":
            return _Shape(
                1.0, float(layer.in_channels or 1), float(layer.out_channels or 1), 1.0, 1, "plain", work
            )
        sides = (layer.in_height, layer.in_width, layer.in_channels, layer.out_channels)
        height, width, inputs, outputs = (float(side) for side in sides if side is not None)
        kernel = float((layer.kernel_height or 0) * (layer.kernel_width or 0))
    except (TypeError, ValueError) as error:
        raise SchemaError(
            f"layer {layer.index} {layer.name!r} lacks a part of its shape, so that it counts as no proxy ({error}). "
            "Complete the layer table."
        ) from error
    kind = (
        "transposed"
        if layer.type == "conv_transpose2d"
        else "grouped"
        if (layer.groups or 1) > 1
        else "plain"
    )
    stride = layer.stride_height or 1
    return _Shape((height * width) ** 0.5, inputs, outputs, kernel, stride, kind, work)


@lru_cache(maxsize=4096)
def _nearest(shape: _Shape, proxies: tuple[str, ...]) -> tuple[str, float]:
    """Name of the nearest proxy, and the layer's work over its convolution's."""

    def distance(proxy: _Shape) -> tuple[bool, float, bool, float]:
        sizes = zip(shape[:3], proxy[:3], strict=True)
        return (
            shape.kind != proxy.kind,
            abs(np.log(shape.kernel / proxy.kernel)),
            shape.stride != proxy.stride,
            sum(abs(float(np.log2(one / other))) for one, other in sizes),
        )

    known = {name: _shape_of_proxy(name) for name in proxies}
    name = min(known, key=lambda each: distance(known[each]))
    return name, shape.work / known[name].work


@lru_cache(maxsize=256)
def _shape_of_proxy(name: str) -> _Shape:
    return _shape(next(layer for layer in proxy_table(name) if layer.type in _PRODUCTS))


@lru_cache(maxsize=512)
def _counted(table: LayerTable, proxies: tuple[str, ...]) -> tuple[Reason, ...]:
    """That layers without a proxy of their shape count as others, with the most frequent ones."""
    unlike: Counter[tuple[str, str]] = Counter()
    layers = list(_products(table))
    for layer in layers:
        name = (
            f"linear_{layer.in_channels}_{layer.out_channels}"
            if layer.type == "linear"
            else proxy_name(layer)
        )
        if name not in proxies:
            unlike[name, _nearest(_shape(layer), proxies)[0]] += 1
    if not unlike:
        return ()
    some = ", ".join(f"{name} as {proxy}" for (name, proxy), _ in unlike.most_common(_EXAMPLES))
    text = (
        f"{unlike.total()} of {len(layers)} layers count as the nearest proxy, scaled by their work: {some}"
    )
    return (Reason("shape", text + (" ..." if len(unlike) > _EXAMPLES else ""), 1.0),)


def _beyond(name: str, sizes: Floats, low: float, high: float) -> list[tuple[Reason, ...]]:
    """At each batch size the reason that it lies outside the fitted ones."""
    reason = Reason("batch", f"{name} was fitted at batch sizes {low:g} to {high:g}", WIDENS)
    return [() if low <= size <= high else (reason,) for size in sizes]


def _not_fitted(name: str, mode: ModeWords, fitted: Sequence[ModeWords]) -> OutOfRangeError:
    known = "; ".join(_in_words(each) for each in fitted) or "in no mode of this model"
    return OutOfRangeError(
        f"{name} was not fitted in {_in_words(mode)}; fitted: {known}. Ask for one of these, or leave the method out."
    )


_TYPICAL = {
    "compute_capability": 7.0,
    "boost_clock_ghz": 1.5,
    "cuda_cores": 5000.0,
    "peak_fp32_tflop_per_s": 15.0,
    "l2_mib": 6.0,
    "memory_bandwidth_gb_per_s": 900.0,
}
"""Specifications that `gpu-specs` uses, with values around which they are scaled."""

_SPECIFICATIONS = tuple(_TYPICAL)
_USUAL_EXPONENTS = {"peak_fp32_tflop_per_s": -0.5, "memory_bandwidth_gb_per_s": -0.5}
_OF_EXPONENTS, _OF_PROXIES, _OF_MODES, _OF_ALL = 1.0, 3.0, 0.5, 0.01
"""Ridges, chosen by leaving out GPUs of Lambda's rows, and CNNs of the H200's."""


class GpuSpecs(WholePredictor):
    """Approach 1: iteration time from a GPU's specifications and counts of proxies in the CNN.

    Parameters
    ----------
    proxies : tuple of str
        Proxies as which layers count.

    Attributes
    ----------
    modes_ : dict of tuple of str -> (GPUs, smallest and largest batch size)
        What was fitted, by framework, precision, memory format and autotuning.
    coefficients_ : dict of str -> float
        Logarithms of a, h and u of each mode and of c of each proxy, and the exponents e of the specifications.

    Notes
    -----
    time = a + h layers + u x batch size x product over specifications of spec^e x sum over proxies of c x work, where
    all coefficients but e are above zero, and so is every time. `work` is that of the layers that count as the proxy;
    the peak rate is that of the precision. Least squares of ln time; every CNN of a mode weighs the same. Ridges hold
    the coefficients of modes and of proxies near one another, and e near -1/2 for peak and bandwidth, else near 0.
    """

    uses_proxies: ClassVar[bool] = True

    def __init__(self, proxies: tuple[str, ...] = FOUNDING_PROXIES) -> None:
        self.proxies = proxies

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> GpuSpecs:
        """Learn from a feature table of n rows and their iteration times in milliseconds, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing, no row has layers and a GPU with all specifications, or a time is not above 0.
        """
        from scipy.optimize import least_squares

        times = times_of(y, len(self._checked(X, _COLUMNS)), "iteration_time_ms")
        cases = [(case, rows) for case, rows in cases_of(X) if case.table is not None and _is_specified(case)]
        if not cases:
            raise SchemaError(
                "no row has a CNN with known layers on a GPU with all specifications. Add some."
            )
        self.modes_ = _fitted_modes([case for case, _ in cases])
        design = _Specs(self, [case for case, _ in cases])
        measured = np.concatenate([times[rows] for _, rows in cases])
        weights, start = _balanced([case for case, _ in cases]), design.start(measured)
        ridge = design.ridge()

        def residuals(x: Floats) -> Floats:
            return np.concatenate([weights * np.log(design.times(x) / measured), ridge @ (x - start)])

        def slopes(x: Floats) -> Floats:
            return np.vstack([weights[:, None] * design.slopes(x), ridge])

        solved = least_squares(residuals, start, jac=slopes, method="lm").x
        self.coefficients_ = dict(zip(design.names, map(float, solved), strict=True))
        return self

    def parts(self, case: Case) -> dict[str, Floats]:
        """Time of an iteration, of all its layers, and of the work of each proxy; errors as of `scope`."""
        self._check_fitted("coefficients_")
        self._check_scope(case)
        return _Specs(self, [case]).parts(self.coefficients_)

    def scope(self, case: Case) -> tuple[tuple[Reason, ...], ...]:
        """Reasons for caution; refused are CPUs, GPUs without a specification, and modes that were not fitted."""
        gpus, low, high = self._check_scope(case)
        always = _counted(table_of(case), self.proxies)
        if case.gpu.name not in gpus:
            others = {gpu for known, _, _ in self.modes_.values() for gpu in known}
            where = "in this mode" if case.gpu.name in others else "in any mode"
            always = (Reason("gpu", f"gpu-specs was not fitted on it {where}", 1.0), *always)
        return tuple((*always, *each) for each in _beyond("gpu-specs", case.batch_sizes, low, high))

    def half_width(self, case: Case) -> float:
        """That of GPUs left out, where the GPU was not among those fitted in the mode."""
        widths = self.half_widths_
        is_fitted = case.gpu.name in self.modes_[_words(case.mode)][0]
        return widths[MEASURED] if is_fitted and MEASURED in widths else max(widths.values())

    def coefficients(self) -> dict[str, float]:
        """Logarithms of the coefficients and the exponents, by name."""
        self._check_fitted("coefficients_")
        return dict(self.coefficients_)

    def _check_scope(self, case: Case) -> tuple[tuple[str, ...], float, float]:
        table_of(case)
        if is_cpu(case.gpu.name):
            raise OutOfRangeError(
                f"gpu-specs knows GPUs by their specifications, and {case.gpu.name} has none. {INSTEAD}."
            )
        values = _specifications(case.gpu, case.mode.precision)
        missing = [name for name, value in zip(_SPECIFICATIONS, values, strict=True) if not value > 0]
        if missing:
            raise OutOfRangeError(f"no data sheet gives {', '.join(missing)} of {case.gpu.name}. {INSTEAD}.")
        if _words(case.mode) not in self.modes_:
            raise _not_fitted("gpu-specs", _words(case.mode), tuple(self.modes_))
        return self.modes_[_words(case.mode)]

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("coefficients_")
        modes = [
            {"mode": list(mode), "gpus": list(gpus), "batch_sizes": [low, high]}
            for mode, (gpus, low, high) in self.modes_.items()
        ]
        return {"modes": modes, "coefficients": self.coefficients_}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.modes_ = {
            tuple(each["mode"]): (
                tuple(each["gpus"]),
                finite(each["batch_sizes"][0]),
                finite(each["batch_sizes"][1]),
            )
            for each in learned["modes"]
        }
        self.coefficients_ = {str(name): finite(value) for name, value in learned["coefficients"].items()}
        if set(self.coefficients_) != set(_Specs(self, []).names):
            raise ValueError("coefficients are not those of the modes and proxies")


def _specifications(gpu: Gpu, precision: str) -> Floats:
    """Values of `_SPECIFICATIONS`, the peak rate at this precision; NaN where no data sheet gives one."""
    values = [
        peak_tflop_per_s(gpu, precision) if name.startswith("peak") else getattr(gpu, name)
        for name in _SPECIFICATIONS
    ]
    return np.array(values, dtype=float)


def _is_specified(case: Case) -> bool:
    return not is_cpu(case.gpu.name) and bool((_specifications(case.gpu, case.mode.precision) > 0).all())


def _fitted_modes(cases: Sequence[Case]) -> dict[ModeWords, tuple[tuple[str, ...], float, float]]:
    found: dict[ModeWords, tuple[tuple[str, ...], float, float]] = {}
    for mode in sorted({_words(case.mode) for case in cases}):
        some = [case for case in cases if _words(case.mode) == mode]
        sizes = np.concatenate([case.batch_sizes for case in some])
        found[mode] = (
            tuple(sorted({case.gpu.name for case in some})),
            float(sizes.min()),
            float(sizes.max()),
        )
    return found


def _balanced(cases: Sequence[Case]) -> Floats:
    """Weights of the rows with which every CNN of a mode weighs the same, their squares 1 on average."""
    key = [(_words(case.mode), case.cnn, case.image_size) for case in cases for _ in case.batch_sizes]
    n = Counter(key)
    weights = np.array([n[each] ** -0.5 for each in key])
    return np.asarray(weights * np.sqrt(len(key) / np.sum(weights**2)), dtype=float)


class _Specs:
    """Design matrices of approach 1 for cases whose modes were fitted."""

    def __init__(self, predictor: GpuSpecs, cases: Sequence[Case]) -> None:
        modes, self.proxies = list(predictor.modes_), predictor.proxies
        self.n_modes = len(modes)
        rows: list[tuple[Floats, float, Floats, int]] = []
        for case in cases:
            work = proxy_work(table_of(case), self.proxies)
            own = np.array([_work_of(name, work) for name in self.proxies])
            layers = sum(each.n_layers for each in work.values())
            specs = np.log(
                _specifications(case.gpu, case.mode.precision) / [_TYPICAL[name] for name in _SPECIFICATIONS]
            )
            rows += [(own * size, layers, specs, modes.index(_words(case.mode))) for size in case.batch_sizes]
        if rows:
            self.work, self.layers, self.specs, at = (np.array(each) for each in zip(*rows, strict=True))
            self.mode = np.eye(self.n_modes)[at]
        kinds = ("iteration", "layer", "work")
        of_modes = [f"{kind}|{'|'.join(mode)}" for kind in kinds for mode in modes]
        self.names = [
            *of_modes,
            *(f"proxy|{name}" for name in self.proxies),
            *(f"exponent|{s}" for s in _SPECIFICATIONS),
        ]

    def start(self, measured: Floats) -> Floats:
        """Coefficients to start from: half a millisecond an iteration, and typical times of layers and of work."""
        typical = (
            np.log(0.5),
            np.log(np.median(measured / self.layers) / 4),
            np.log(np.median(measured / self.work.sum(1))),
        )
        exponents = [_USUAL_EXPONENTS.get(name, 0.0) for name in _SPECIFICATIONS]
        return np.array([*np.repeat(typical, self.n_modes), *np.zeros(len(self.proxies)), *exponents])

    def ridge(self) -> Floats:
        """Rows of the penalties, which hold the coefficients near the start and those of the modes near one another.

        All rows of a GPU share what its specifications miss, so that exponents are held by rows per GPU.
        """
        n, n_all = self.n_modes, len(self.names)
        rows_of_gpu = len(self.specs) / len(np.unique(self.specs, axis=0))
        rows = np.eye(n_all)
        rows[: 3 * n] *= _OF_ALL
        rows[3 * n : 3 * n + len(self.proxies)] *= _OF_PROXIES
        rows[3 * n + len(self.proxies) :] *= _OF_EXPONENTS * np.sqrt(rows_of_gpu)
        apart = np.zeros((3 * n, n_all))
        for kind in range(3):
            block = slice(kind * n, (kind + 1) * n)
            apart[block, block] = _OF_MODES * (np.eye(n) - 1.0 / n)
        return np.vstack([rows, apart])

    def _summands(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """Times of the iteration and its layers, shape (n_rows,), and of the work, shape (n_rows, n_proxies)."""
        iteration, layer, work, proxy, exponent = np.split(
            x, np.cumsum([self.n_modes] * 3 + [len(self.proxies)])
        )
        speed = np.exp(self.mode @ work + self.specs @ exponent)
        return (
            np.exp(self.mode @ iteration),
            np.exp(self.mode @ layer) * self.layers,
            self.work * np.exp(proxy) * speed[:, None],
        )

    def times(self, x: Floats) -> Floats:
        """Times in ms, shape (n_rows,)."""
        iteration, layers, work = self._summands(x)
        return np.asarray(iteration + layers + work.sum(axis=1), dtype=float)

    def slopes(self, x: Floats) -> Floats:
        """Derivatives of ln time by the coefficients, shape (n_rows, n_coefficients)."""
        iteration, layers, work = self._summands(x)
        busy = work.sum(axis=1)
        columns = (
            *(self.mode * each[:, None] for each in (iteration, layers, busy)),
            work,
            self.specs * busy[:, None],
        )
        return np.asarray(np.column_stack(columns) / (iteration + layers + busy)[:, None], dtype=float)

    def parts(self, coefficients: Mapping[str, float]) -> dict[str, Floats]:
        """Summands by name, of proxies those as which layers count."""
        iteration, layers, work = self._summands(np.array([coefficients[name] for name in self.names]))
        found = {"iteration": iteration, "layers": layers}
        return found | {name: ms for name, ms in zip(self.proxies, work.T, strict=True) if ms.any()}


def _work_of(name: str, work: Mapping[str, ProxyWork]) -> float:
    """Work of the layers that count as a proxy, in 10^9."""
    return float(work[name].ratios.sum()) * _shape_of_proxy(name).work / 1e9 if name in work else 0.0


class _Curve(NamedTuple):
    """GPU time in ms of a proxy by batch size, as logarithms."""

    log_sizes: Floats
    log_ms: Floats

    def at(self, sizes: Floats) -> Floats:
        """GPU times: ln linear between measured batch sizes, proportional above them, and no shorter below them."""
        asked = np.log(sizes)
        beyond = np.maximum(asked - self.log_sizes[-1], 0.0)
        return np.asarray(np.exp(np.interp(asked, self.log_sizes, self.log_ms) + beyond), dtype=float)


class _Proxies(NamedTuple):
    """Proxies measured on one device in one mode: GPU times by name, and the host's time of an iteration."""

    host_ms: float
    curves: dict[str, _Curve]

    def range(self) -> tuple[float, float]:
        """Smallest and largest batch size at which some proxy was measured."""
        low, high = (np.exp([curve.log_sizes[end] for curve in self.curves.values()]) for end in (0, -1))
        return round(float(low.min())), round(float(high.max()))


class _Law(NamedTuple):
    """Coefficients of one CNN: of the proxies' GPU times, of the host's, and of the former's limit of large batches."""

    gpu: float
    host: float
    limit: float = 0.0

    def cubes(self, busy: Floats, host: Floats, limit: Floats) -> tuple[Floats, Floats]:
        """Cubes of the GPU's time and of the host's."""
        return (self.gpu * busy + self.limit * limit) ** _CUBE, (self.host * host) ** _CUBE


_LARGE = 2.0**20
"""Batch size at which proxies' times are proportional to it."""

_LEAST_OF_CNN = 2
_NEAR_GENERAL = 0.1
"""Ridge of a CNN's own coefficients, chosen by batch sizes left out of the H200's rows in fp32."""

_Key = tuple[str, int, ModeWords, bool]
_Range = tuple[float, float, tuple[str, ...]]


class ProxyTimes(WholePredictor):
    """Approach 2: iteration time of a CNN from the times of proxies on the same GPU.

    Attributes
    ----------
    measured_ : dict of (device, mode) -> proxies' times
    general_ : coefficients of every CNN without its own
    laws_ : dict of (cnn, image_size, mode, whether of a CPU) -> coefficients
    gpus_ : tuple of str
        Devices whose CNNs the coefficients were fitted on.
    ranges_ : dict of the same keys -> (smallest and largest batch size, devices)

    Notes
    -----
    time^3 = (g G + c L)^3 + (h layers x host)^3. G sums over the layers the GPU time of the nearest proxy, at the batch
    size at which the proxy does the layer's work; L is the line through the origin that G follows at large batches;
    host is the host's time of a proxy's iteration. Where no GPU time was measured, as on CPUs, G is of whole iterations
    and host is 0. Rows of kind ``proxy`` are the proxies; g and h are fitted on GPUs' other rows of the same sources,
    and with c for each CNN and mode, near the general ones.
    """

    uses_proxies: ClassVar[bool] = True

    def __init__(self) -> None:
        pass

    def fit(self, X: pd.DataFrame, y: ArrayLike) -> ProxyTimes:
        """Learn from a feature table of n rows, proxies among them, and their iteration times in ms, of shape (n,).

        Raises
        ------
        SchemaError
            If a column is missing, a time is not above 0, or no proxy or no CNN beside one was measured.
        """
        times = times_of(y, len(self._checked(X, _COLUMNS)), "iteration_time_ms")
        is_proxy = (X["kind"] == "proxy").to_numpy() if "kind" in X else np.zeros(len(X), dtype=bool)
        if not is_proxy.any():
            raise SchemaError(
                "ProxyTimes got no proxy's time. Put rows of kind 'proxy' into the measurement table."
            )
        self.measured_ = _measured(X[is_proxy], times[is_proxy])
        known = list(self._known(X, times, is_proxy))
        if not known:
            raise SchemaError(
                "no CNN of known layers was measured beside the proxies. Measure some on the same GPU in the same mode."
            )
        on_gpus = [each for each in known if not is_cpu(each[0].gpu.name)] or known
        inputs = np.hstack([self._inputs(case) for case, _ in on_gpus])
        self.general_ = _fitted_law(inputs, np.concatenate([measured for _, measured in on_gpus]))
        self.gpus_ = tuple(sorted({case.gpu.name for case, _ in known}))
        self.laws_, self.ranges_ = self._own_laws(known)
        return self

    def parts(self, case: Case) -> dict[str, Floats]:
        """Shares of the proxies' GPU times and of the host in the time; errors as of `scope`."""
        self._check_fitted("general_")
        law = self.laws_.get(_key(case), self.general_)
        busy, host = law.cubes(*self._inputs(case))
        time = (busy + host) ** (1 / _CUBE)
        return {"proxies": busy / time**2, "host": host / time**2}

    def scope(self, case: Case) -> tuple[tuple[Reason, ...], ...]:
        """Reasons for caution; refused are devices and modes without proxies."""
        proxies = self._proxies(case)
        always = _counted(table_of(case), tuple(proxies.curves))
        if case.gpu.name not in self.gpus_:
            always = (
                Reason("gpu", "proxy-times was fitted on CNNs of other GPUs, and on its proxies", 1.0),
                *always,
            )
        if _key(case) not in self.laws_:
            always = (Reason("cnn", "proxy-times was fitted on other CNNs in this mode", 1.0), *always)
        low, high, _ = self.ranges_.get(_key(case), (*proxies.range(), ()))
        return tuple((*always, *each) for each in _beyond("proxy-times", case.batch_sizes, low, high))

    def half_width(self, case: Case) -> float:
        """That of batch sizes left out, where the CNN was measured on the GPU; else that of GPUs left out.

        Between runs on other days the host differs as it does between GPUs, whichever CNN it is.
        """
        most = max(self.half_widths_.values())
        *_, gpus = self.ranges_.get(_key(case), (0.0, 0.0, ()))
        return self.half_widths_.get(MEASURED, most) if case.gpu.name in gpus else most

    def with_measurements(self, X: pd.DataFrame) -> ProxyTimes:
        """With the proxies of a user's table, and coefficients of its CNNs; the general ones stay."""
        times = X["iteration_time_ms"].to_numpy(dtype=float)
        is_proxy = (X["kind"] == "proxy").to_numpy()
        if not is_proxy.any():
            return self
        more = copy(self)
        more.measured_ = self.measured_ | _measured(X[is_proxy], times[is_proxy])
        laws, ranges = more._own_laws(list(more._known(X, times, is_proxy)))
        more.laws_, more.ranges_ = self.laws_ | laws, self.ranges_ | ranges
        return more

    def coefficients(self) -> dict[str, float]:
        """`<cnn>@<image_size>|<mode>:<name>` -> coefficient; those without a CNN are the general ones."""
        self._check_fitted("general_")
        named = {"": self.general_} | {
            f"{cnn}@{size}|{'|'.join(mode)}:": law for (cnn, size, mode, _), law in self.laws_.items()
        }
        return {
            f"{prefix}{name}": value for prefix, law in named.items() for name, value in law._asdict().items()
        }

    def _proxies(self, case: Case) -> _Proxies:
        found = self.measured_.get((case.gpu.name, _words(case.mode)))
        if found is None:
            having = sorted({gpu for gpu, mode in self.measured_ if mode == _words(case.mode)})
            raise OutOfRangeError(
                f"method proxy-times needs proxies measured on {case.gpu.name} in {_in_words(_words(case.mode))}; "
                f"they were on {', '.join(having) or 'no GPU in this mode'}. "
                "Measure them with `epochcast profile --preset founding` and pass the table as measurements."
            )
        return found

    def _inputs(self, case: Case) -> tuple[Floats, Floats, Floats]:
        """Sum of the proxies' GPU times and the host's time of all layers in ms, and the former's limit."""
        proxies, table = self._proxies(case), table_of(case)
        work = proxy_work(table, tuple(proxies.curves))
        sizes = np.append(case.batch_sizes, _LARGE)
        busy = sum(
            (
                proxies.curves[name].at(sizes[:, None] * each.ratios).sum(axis=1)
                for name, each in work.items()
            ),
            np.zeros(sizes.size),
        )
        layers = sum(each.n_layers for each in work.values())
        host = np.full(case.batch_sizes.size, layers * proxies.host_ms)
        return busy[:-1], host, case.batch_sizes * busy[-1] / _LARGE

    def _known(
        self, X: pd.DataFrame, times: Floats, is_proxy: NDArray[np.bool_]
    ) -> Iterator[tuple[Case, Floats]]:
        """CNNs measured beside proxies: of the proxies' sources, on their devices and in their modes."""
        beside = ~is_proxy
        if "source" in X:  # iterations of other sources include other work
            beside &= X["source"].isin(X.loc[is_proxy, "source"].unique()).to_numpy()
        at = np.flatnonzero(beside)
        for case, rows in cases_of(X.iloc[at]):
            if case.table is not None and (case.gpu.name, _words(case.mode)) in self.measured_:
                yield case, times[at[rows]]

    def _own_laws(self, known: Sequence[tuple[Case, Floats]]) -> tuple[dict[_Key, _Law], dict[_Key, _Range]]:
        """Coefficients and range of each CNN in each mode with two batch sizes or more."""
        rows: dict[_Key, list[tuple[Floats, ...]]] = {}
        gpus: dict[_Key, set[str]] = {}
        for case, measured in known:
            rows.setdefault(_key(case), []).append((*self._inputs(case), measured, case.batch_sizes))
            gpus.setdefault(_key(case), set()).add(case.gpu.name)
        laws: dict[_Key, _Law] = {}
        ranges: dict[_Key, _Range] = {}
        for key, some in rows.items():
            *inputs, measured, sizes = (np.concatenate(each) for each in zip(*some, strict=True))
            if np.unique(sizes).size >= _LEAST_OF_CNN:
                laws[key] = _fitted_law(np.array(inputs), measured, self.general_)
                ranges[key] = (float(sizes.min()), float(sizes.max()), tuple(sorted(gpus[key])))
        return laws, ranges

    def _left_out(self, X: pd.DataFrame) -> Iterator[tuple[str, NDArray[np.intp]]]:
        """Inner batch sizes of each CNN in turn; the CNNs of one GPU after the other."""
        target = (X["kind"].fillna("target") == "target").to_numpy()
        series = X.groupby(["cnn", "image_size", "precision", "framework"], dropna=False)["batch_size"]
        rank, last = series.rank("dense").to_numpy() - 1, series.transform("nunique").to_numpy() - 1
        inner = target & (rank > 0) & (rank < last)
        for k in range(_FOLDS_OF_SIZES):
            yield MEASURED, np.flatnonzero(inner & (rank % _FOLDS_OF_SIZES == k))
        for gpu in sorted(set(X.loc[target, "gpu"])):
            yield UNSEEN, np.flatnonzero(target & (X["gpu"] == gpu).to_numpy())

    def _learned(self) -> dict[str, Any]:
        self._check_fitted("general_")
        measured = [
            {
                "device": device,
                "mode": list(mode),
                "host_ms": found.host_ms,
                "proxies": {
                    name: [np.exp(curve.log_sizes).round().tolist(), np.exp(curve.log_ms).tolist()]
                    for name, curve in found.curves.items()
                },
            }
            for (device, mode), found in self.measured_.items()
        ]
        laws = [
            {
                "cnn": key[0],
                "image_size": key[1],
                "mode": list(key[2]),
                "cpu": key[3],
                "law": list(law),
                "range": list(self.ranges_[key]),
            }
            for key, law in self.laws_.items()
        ]
        return {"measured": measured, "general": list(self.general_), "gpus": list(self.gpus_), "laws": laws}

    def _restore(self, learned: Mapping[str, Any]) -> None:
        self.measured_ = {
            (str(each["device"]), tuple(each["mode"])): _Proxies(
                finite(each["host_ms"]),
                {
                    name: _Curve(*(np.log([finite(v) for v in values]) for values in both))
                    for name, both in each["proxies"].items()
                },
            )
            for each in learned["measured"]
        }
        self.general_, self.gpus_ = _Law(*map(finite, learned["general"])), tuple(learned["gpus"])
        keys = {
            (str(each["cnn"]), int(each["image_size"]), tuple(each["mode"]), bool(each["cpu"])): each
            for each in learned["laws"]
        }
        self.laws_ = {key: _Law(*map(finite, each["law"])) for key, each in keys.items()}
        self.ranges_ = {
            key: (finite(each["range"][0]), finite(each["range"][1]), tuple(each["range"][2]))
            for key, each in keys.items()
        }


_FOLDS_OF_SIZES = 4


def _key(case: Case) -> _Key:
    return case.cnn, case.image_size, _words(case.mode), is_cpu(case.gpu.name)


def _measured(X: pd.DataFrame, times: Floats) -> dict[tuple[str, ModeWords], _Proxies]:
    """Proxies by device and mode: the median at each batch size, rising with it."""
    busy = X["gpu_time_ms"].to_numpy(dtype=float) if "gpu_time_ms" in X else np.full(len(X), np.nan)
    host = X["host_time_ms"].to_numpy(dtype=float) if "host_time_ms" in X else np.full(len(X), np.nan)
    points: dict[tuple[str, ModeWords], dict[str, dict[float, list[float]]]] = {}
    hosts: dict[tuple[str, ModeWords], list[float]] = {}
    for case, rows in cases_of(X):
        where = case.gpu.name, _words(case.mode)
        curve = points.setdefault(where, {}).setdefault(case.cnn, {})
        on_gpu = np.isfinite(busy[rows]) & np.isfinite(host[rows])
        hosts.setdefault(where, []).extend(np.where(on_gpu, host[rows], 0.0))
        for size, ms in zip(case.batch_sizes, np.where(on_gpu, busy[rows], times[rows]), strict=True):
            curve.setdefault(float(size), []).append(float(ms))
    return {
        where: _Proxies(float(np.median(hosts[where])), {name: _curve(found[name]) for name in sorted(found)})
        for where, found in points.items()
    }


def _curve(points: Mapping[float, Sequence[float]]) -> _Curve:
    sizes = sorted(points)
    middle = np.array([np.median(points[size]) for size in sizes])
    return _Curve(np.log(sizes), np.log(np.maximum.accumulate(middle)))


def _fitted_law(inputs: Floats, measured: Floats, general: _Law | None = None) -> _Law:
    """Least squares of ln time over coefficients above zero; near `general` with the limit's, if given.

    `inputs` holds the proxies' GPU times, the host's and the limit, shape (3, n).
    """
    from scipy.optimize import least_squares

    near = np.array(general[:2] if general else (0.5, 0.4))
    pull = _NEAR_GENERAL if general else 1e-3

    def residuals(x: Floats) -> Floats:
        on_gpu, on_host = _Law(*x).cubes(*inputs)
        errors = np.log(on_gpu + on_host) / _CUBE - np.log(measured)
        return np.concatenate([errors, pull * np.log(x[:2] / near), pull * x[2:]])

    low = np.array([1e-4, 1e-4, *[0.0] * bool(general)])
    start = np.maximum([*near, *[0.0] * bool(general)], low)
    return _Law(
        *map(float, least_squares(residuals, start, bounds=(low, np.inf), loss="soft_l1", f_scale=0.2).x)
    )
