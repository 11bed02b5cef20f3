"""Forecasts by a named method: by the very estimator that evaluations judge, refused where it leaves its range."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu, find_gpu, is_cpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.measurements.features import FOUNDING_SPECIFICATIONS
from predictor.models.forecast import Anchor, IterationForecast, Reason
from predictor.models.methods.files import MEASURED, MODE_KEYS, UNSEEN, FittedMethod, Methods, ProxyRun
from predictor.models.methods.laws import LogPoints, fit_linear_law
from predictor.models.residuals import is_of

__all__ = ["ERRORS_IN", "check_specifications", "forecast_by_method"]

Array = NDArray[np.float64]

ERRORS_IN = {
    "problem-scaling": "an unseen batch size",
    "unseen-gpu-specs": "an unseen GPU",
    "another-gpu-by-proxies": "another GPU",
}
"""Scenarios of an evaluation whose errors an answer names, in words."""

_ELSEWHERE = "another-gpu-by-proxies"
_PROXY_TIMES = ("proxy-times", "proxy-times-relative")
_OF_ANCHORS = ("line", "interpolation")
_HOST = "not told apart from the GPU"
_INSTEAD = "Leave the method out: the default answers there"
_LEAST_SIZES = 2
_P90 = {"line": 0.072, "interpolation": 0.087}
"""Relative error of nine tenths of the batch sizes between measured ones: the scenario ``problem-scaling``."""
_SAME = 1e-9  # of scaled specifications


def forecast_by_method(
    methods: Methods,
    name: str,
    table: LayerTable,
    devices: Sequence[tuple[Gpu, Mode]],
    batch_sizes: Array,
    anchors: Sequence[Anchor],
) -> list[IterationForecast]:
    """Time of one training iteration of a CNN on each GPU at each batch size, by the method of this name.

    Raises
    ------
    OutOfRangeError
        Where the method leaves its range: a mode, GPU, CNN or batch size that it cannot answer, or a time that is not
        above zero. The message says why, and what to do.
    """
    for _, mode in devices:
        if mode.capture != "eager":
            raise OutOfRangeError(
                f"{name} was fitted on eager iterations, asked for capture {mode.capture}. {_INSTEAD}."
            )
    found = [
        _Asked(methods, name, table, gpu, mode, batch_sizes, anchors).forecast() for gpu, mode in devices
    ]
    for each, (gpu, _) in zip(found, devices, strict=True):
        _check_times(name, each, table, gpu, batch_sizes)
    return found


def _check_times(name: str, found: IterationForecast, table: LayerTable, gpu: Gpu, sizes: Array) -> None:
    bad = np.flatnonzero(~(found.iteration_time_ms > 0))
    if bad.size:
        raise OutOfRangeError(
            f"{name} gives {found.iteration_time_ms[bad[0]]:.4g} ms for {table.cnn} on {gpu.name} at batch_size "
            f"{sizes[bad[0]]:.0f}, which is not a time: it adds up GPU, CNN and batch size, and nothing keeps the sum "
            f"above zero. {_INSTEAD}, or ask at another batch size."
        )


class _Asked:
    """A question to one method about one CNN on one GPU."""

    def __init__(
        self,
        methods: Methods,
        name: str,
        table: LayerTable,
        gpu: Gpu,
        mode: Mode,
        batch_sizes: Array,
        anchors: Sequence[Anchor],
    ) -> None:
        self.methods, self.name, self.table = methods, name, table
        self.gpu, self.mode, self.batch_sizes = gpu, mode, batch_sizes
        self.anchors = [each for each in anchors if each.precision in (None, mode.precision)]
        for each in self.anchors:
            if each.image_size not in (None, table.image_size):
                raise OutOfRangeError(
                    f"the anchor's image size {each.image_size} is not the question's {table.image_size}. "
                    "Give a measurement at that image size."
                )

    def forecast(self) -> IterationForecast:
        """The estimator's answer, with its interval and the reasons for caution."""
        if self.name in _OF_ANCHORS:
            return self._from_own_runs()
        fitted = self._fitted()
        self._check_batch_sizes(fitted)
        width, reasons = self._half_width(fitted)
        return self._made(self._parts(fitted), width, fitted.trained_on, reasons)

    def _parts(self, fitted: FittedMethod) -> dict[str, Array]:
        """Summands of the iteration's time at each batch size."""
        if self.name in _PROXY_TIMES:
            times = self._proxy_times(fitted)
            return dict(fitted.law.parts(self.name, self.table, self.batch_sizes, times))
        if self.name == "flops-ratio":
            runs = [each for each in self.anchors if not is_cpu(each.gpu)]
            return dict(fitted.law.parts(self.table, self.gpu, self.mode.precision, self.batch_sizes, runs))
        return dict(fitted.law.parts(self.name, self.table, self.gpu, self.batch_sizes))

    def _made(
        self, parts: dict[str, Array], width: float, trained_on: str, reasons: tuple[Reason, ...] = ()
    ) -> IterationForecast:
        time_ms = np.sum(list(parts.values()), axis=0)
        nothing, error = np.full(time_ms.size, np.nan), self._error()
        return IterationForecast(
            time_ms,
            nothing,
            nothing,
            time_ms * np.exp(-width),
            time_ms * np.exp(width),
            nothing,
            nothing,
            self.name,
            trained_on,
            ((error, *reasons),) * time_ms.size,
            _HOST,
            lambda: (parts, {}),
        )

    def _fitted(self) -> FittedMethod:
        """What was fitted in this mode, for this CNN where each has a law of its own."""
        fitted = self.methods.fitted.get(self.name, ())
        alike = [each for each in fitted if each.is_of(self.mode)]
        if not alike:
            known = "; ".join(", ".join(each.mode[key] for key in MODE_KEYS[:3]) for each in fitted)
            asked = (
                *(str(getattr(self.mode, key)) for key in MODE_KEYS[:3]),
                *["autotune"] * self.mode.autotune,
            )
            raise OutOfRangeError(
                f"{self.name} was not fitted in {', '.join(asked)}; "
                f"fitted: {known or 'in no mode of this model'}. Ask for one of these, or leave the method out."
            )
        if self.name not in _PROXY_TIMES:
            return alike[0]
        key = (self.table.cnn, self.table.image_size)
        return next((each for each in alike if key in each.law.laws), alike[0])

    def _from_own_runs(self) -> IterationForecast:
        """A line, or a chain of points, through the anchors of this GPU."""
        own = [each for each in self.anchors if is_of(each, self.gpu)]
        sizes, times = (
            np.array([getattr(each, name) for each in own], dtype=float)
            for name in ("batch_size", "iteration_time_ms")
        )
        distinct = [f"{size:.0f}" for size in np.unique(sizes)]
        if len(distinct) < _LEAST_SIZES:
            raise OutOfRangeError(
                f"{self.name} needs runs of {self.table.cnn} on {self.gpu.name} at two batch sizes, got "
                f"{', '.join(distinct) or 'none'}. Give two anchors, or a measurement table with them."
            )
        self._check_between(int(sizes.min()), int(sizes.max()))
        width = math.log1p(_P90[self.name])
        return self._made(
            self._through(sizes, times), width, f"your runs at batch size {', '.join(distinct)}"
        )

    def _through(self, sizes: Array, times: Array) -> dict[str, Array]:
        """Summands of the times at the batch sizes asked, from those measured."""
        if self.name == "interpolation":
            return {"interpolated": LogPoints.of(sizes, times).predict(self.batch_sizes)}
        law = fit_linear_law(("batch_size",), sizes[:, None], times, relative=True)
        return law.parts(self.batch_sizes[:, None], {})

    def _check_batch_sizes(self, fitted: FittedMethod) -> None:
        if self.name in _PROXY_TIMES:
            fitted.law.law_of(self.name, self.table)
            self._check_between(*fitted.law.batch_sizes[self.table.cnn, self.table.image_size])
        elif self.name != "flops-ratio":
            self._check_between(*fitted.batch_sizes)

    def _check_between(self, low: int, high: int) -> None:
        outside = [f"{size:.0f}" for size in self.batch_sizes if not low <= size <= high]
        if outside:
            raise OutOfRangeError(
                f"batch_size {', '.join(outside)} lies outside {low}..{high}, where {self.name} was fitted. "
                "Ask for batch sizes in that range, or leave the method out."
            )

    def _half_width(self, fitted: FittedMethod) -> tuple[float, tuple[Reason, ...]]:
        """Of ln time, and the reasons for caution; GPUs unlike those fitted are refused."""
        if self.gpu.name in fitted.gpus:
            return fitted.half_widths[MEASURED], ()
        if self.name.startswith("gpu-specs"):
            check_specifications(self.name, fitted.gpus, self.gpu)
        if UNSEEN not in fitted.half_widths:
            raise OutOfRangeError(
                f"{self.name} was tested only on {', '.join(fitted.gpus)}, asked for {self.gpu.name}. {_INSTEAD}."
            )
        reason = Reason("gpu", f"{self.name} was not fitted on it", 1.0)
        return max(fitted.half_widths[UNSEEN], self._half_width_elsewhere()), (reason,)

    def _half_width_elsewhere(self) -> float:
        """Of ln time, from the nine tenths of an evaluation's rows on another GPU; 0 if it was not evaluated there."""
        errors = {each.scenario: each.p90 for each in self.methods.errors.get(self.name, ())}
        p90 = errors.get(_ELSEWHERE, 0.0)
        return -math.log1p(-p90) if p90 < 1 else 0.0

    def _proxy_times(self, fitted: FittedMethod) -> Array:
        """The proxies' epoch times in seconds, shape (n_batches, n_proxies); OutOfRangeError if not measured."""
        proxies = fitted.law.proxies
        known = self.methods.proxy_times(proxies, self.mode, self.gpu.name)
        if not known:
            having = sorted({run.gpu for run in self.methods.proxy_runs if self._measured_on(run, proxies)})
            raise OutOfRangeError(
                f"{self.name} needs the proxies {', '.join(proxies)} measured on {self.gpu.name} with "
                f"{self.mode.framework} in {self.mode.precision}; they were on {', '.join(having) or 'no GPU'}. "
                "Measure them with `epochcast profile --preset founding` and pass the table as measurements."
            )
        lacking = [f"{size:.0f}" for size in self.batch_sizes if size not in known]
        if lacking:
            raise OutOfRangeError(
                f"the proxies were not measured at batch_size {', '.join(lacking)} on {self.gpu.name}, but "
                f"at {', '.join(map(str, known))}. Ask for these, or measure them with "
                "`epochcast profile --preset founding`."
            )
        return np.array([[known[int(size)][name] for name in proxies] for size in self.batch_sizes])

    def _measured_on(self, run: ProxyRun, proxies: Sequence[str]) -> bool:
        """Whether a run of these proxies is in the question's mode."""
        mode = (self.mode.framework, self.mode.precision, self.mode.memory_format)
        return mode == (run.framework, run.precision, run.memory_format) and set(proxies) <= set(
            run.epoch_time_s
        )

    def _error(self) -> Reason:
        """The method's error in an evaluation, beside the default's."""
        found = [
            (ERRORS_IN[each.scenario], each)
            for each in self.methods.errors.get(self.name, ())
            if each.scenario in ERRORS_IN
        ]
        if not found:
            return Reason("method", f"the error of {self.name} was not evaluated for this model", 1.0)
        told = (
            f"{what} by {_percent(each.mape)} (the default by {_percent(each.default_mape)})"
            for what, each in found
        )
        return Reason("method", f"{self.name} misses {', '.join(told)} on average", 1.0)


def _percent(share: float) -> str:
    return f"{100 * share:,.{1 if share < 0.1 else 0}f} %"


def check_specifications(name: str, fitted: Sequence[str], gpu: Gpu) -> None:
    """Refuse a GPU whose specifications lie outside those fitted, or do not follow from them.

    Notes
    -----
    A law that is linear in specifications is determined for a GPU if its specifications are a weighted mean of those
    of the GPUs fitted, weights of any sign; with fewer such GPUs than specifications few others are.
    """
    known, asked = _specifications([find_gpu(each) for each in fitted]), _specifications([gpu])[0]
    near = f"fitted: {', '.join(fitted)}. Ask for one of these, or leave the method out"
    for label, values, value in zip(FOUNDING_SPECIFICATIONS, known.T, asked, strict=True):
        if not values.min() <= value <= values.max():
            raise OutOfRangeError(
                f"{gpu.name} is unlike the GPUs that {name} was fitted on: its {label} of {value:g} lies outside "
                f"{values.min():g}..{values.max():g}; {near}."
            )
    scaled = np.column_stack([np.ones(len(known)), known / known.max(axis=0)])
    row = np.concatenate([[1.0], asked / known.max(axis=0)])
    if np.linalg.matrix_rank(np.vstack([scaled, row]), _SAME) > np.linalg.matrix_rank(scaled, _SAME):
        raise OutOfRangeError(
            f"{name} says nothing of {gpu.name}: {len(fitted)} GPUs do not determine its "
            f"{len(FOUNDING_SPECIFICATIONS)} coefficients of specifications; {near}."
        )


def _specifications(gpus: Sequence[Gpu]) -> Array:
    """Shape (n_gpus, n_specifications); NaN where no data sheet gives one."""
    values = [[getattr(gpu, name) for name in FOUNDING_SPECIFICATIONS] for gpu in gpus]
    return np.array(values, dtype=float)
