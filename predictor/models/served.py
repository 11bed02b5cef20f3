"""The served model: fitted coefficients, read from JSON, applied with numpy.

The file holds numbers and text alone, no training rows and no code: loading an untrusted model is safe.
`predictor.models.fit` makes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from predictor.catalogue.devices import Gpu, check_precision, find_gpu, is_cpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import ArtifactError, OutOfRangeError, SchemaError, nearest
from predictor.files import data_file, replace_file
from predictor.measurements.hosts import HostMeasurement
from predictor.models.chainer import CHAINER_BY_PYTORCH, check_chainer, pytorch_host
from predictor.models.compiled import COMPILED
from predictor.models.epochs import Epochs
from predictor.models.extrapolation import Ranges, reasons, with_frozen_parts
from predictor.models.forecast import COVERAGE, Anchor, IterationForecast, Reason, widening
from predictor.models.layer_times.files import LayerModel, LayerModels, library_mode
from predictor.models.layer_times.law import layer_sums
from predictor.models.layer_times.served import (
    HOST_DRIFT,
    forecast_by_layers,
    small_host_ms,
    too_little_measured,
)
from predictor.models.named import Methods
from predictor.models.ratios import Way
from predictor.models.registry import METHODS, WHOLE_METHODS
from predictor.models.residuals import is_of
from predictor.models.roofline.arrays import arrays_on
from predictor.models.roofline.law import IterationTimes, RooflineLaw
from predictor.models.roofline.terms import KernelContext
from predictor.operators.kernels import Kernels, kernels_of

__all__ = ["Anchor", "IterationForecast", "Model"]

Array = NDArray[np.float64]

FORMAT_VERSION = 4


_UNTUNED = Reason(
    "autotune",
    "no convolution was measured autotuned on this chip in this mode; the time is that without autotuning",
)


@dataclass(eq=False)
class Model(Epochs):
    """The law of specifications, operators measured on GPUs, and what was measured; the fields of the JSON file.

    `roofline` is what the estimator `Roofline` fitted, the very object that evaluations judge. `methods` are the other
    ones that a question may name, or what unpacks them when one is named.
    """

    roofline: RooflineLaw
    ranges: Ranges
    card: dict[str, Any]
    layers: LayerModels = field(default_factory=LayerModels)
    methods: Methods | Callable[[], Methods] = field(default_factory=Methods)

    @property
    def fed_frameworks(self) -> tuple[str, ...]:
        """Frameworks whose iterations include the copy of their images."""
        return self.roofline.fed_frameworks

    @classmethod
    def load(cls, path: str | PathLike[str] | None = None) -> Model:
        """Read a model file; without path, the default that comes with epochcast.

        Raises
        ------
        ArtifactError
            If the file is missing, damaged or of another version.
        """
        chosen = Path(path) if path is not None else data_file("models/default.json")
        try:
            return _read(str(chosen.resolve()), chosen.stat().st_mtime_ns)
        except OSError as error:
            raise ArtifactError(
                f"cannot read the model {chosen}: {error.strerror}. Write one with `epochcast fit`."
            ) from error

    def save(self, path: str | PathLike[str]) -> None:
        """Write the model as JSON, last, with the digests of the files beside it: a reader gets them all or none."""
        operators, methods = self.layers.save(Path(path)), self.named_methods()
        digest = methods.save(Path(path)) if methods.fitted or methods.errors else None
        written = {
            "format_version": FORMAT_VERSION,
            "files": {"methods": digest, "operators": operators},
            "card": self.card,
            "epoch_ms_per_iteration": self.epoch_ms_per_iteration,
            "ranges": self.ranges.as_json(),
            "roofline": self.roofline.to_json(),
        }
        replace_file(path, json.dumps(written, indent=1, allow_nan=False) + "\n")

    def forecast(
        self,
        table: LayerTable,
        gpu: Gpu,
        mode: Mode,
        batch_sizes: Sequence[int] | ArrayLike,
        anchors: Sequence[Anchor] = (),
        method: str = "auto",
        host: str | HostMeasurement | None = None,
    ) -> IterationForecast:
        """Time of one training iteration on one GPU; see `forecasts`."""
        return self.forecasts(table, [(gpu, mode)], batch_sizes, anchors, method, host)[0]

    def forecasts(
        self,
        table: LayerTable,
        devices: Sequence[tuple[Gpu, Mode]],
        batch_sizes: Sequence[int] | ArrayLike,
        anchors: Sequence[Anchor] = (),
        method: str = "auto",
        host: str | HostMeasurement | None = None,
    ) -> list[IterationForecast]:
        """Time of one training iteration of a CNN on each GPU, in the mode given with it, at each batch size.

        Raises
        ------
        OutOfRangeError
            If a GPU lacks the precision, the host is unknown, `anchored` is asked for without anchors, or a named
            method leaves its range.
        SchemaError
            If the method is unknown, or a layer lacks its shape.
        """
        if method not in METHODS:
            raise SchemaError(f"no method is called {method!r}. Nearest: {nearest(method, METHODS)}.")
        for gpu, mode in devices:
            check_precision(gpu, mode.precision)
            if mode.framework == "chainer":
                check_chainer(mode)
        batches = np.asarray(batch_sizes, dtype=float)
        if method in WHOLE_METHODS:
            return self.named_methods().forecasts(method, table, devices, batches, anchors)
        if method == "anchored" and not anchors:
            raise OutOfRangeError(
                "'anchored' needs a measurement of the CNN. Give an anchor, or use 'roofline'."
            )
        if devices[0][1].capture == "compile":
            return self._by_ratios(COMPILED, table, devices, batches, anchors, method, host)
        asked, devices = devices, self._measured_or_plain(devices)
        found: dict[int, IterationForecast] = {}
        doubts: dict[int, Reason] = {}
        for place, layers in enumerate(self._layers(devices, method, anchors)):
            gpu, mode = devices[place]
            if layers is not None:
                answer = self._by_layers(layers, table, gpu, mode, batches, anchors, method, host)
                if isinstance(answer, IterationForecast):
                    found[place] = with_frozen_parts(answer, table)
                    continue
                doubts[place] = answer
        tuned = {place for place in found if devices[place][1].autotune}
        left = [place for place in range(len(devices)) if place not in found]
        on_gpus = [anchor for anchor in anchors if not is_cpu(anchor.gpu)]
        unmeasured = [_plain(*devices[place]) for place in left]
        why = [doubts.get(place) for place in left]
        given = on_gpus if method != "roofline" else []
        if left and devices[0][1].framework == "chainer" and not self._knows("chainer"):
            by_pytorch = self._by_ratios(
                CHAINER_BY_PYTORCH, table, unmeasured, batches, given, method, pytorch_host(host)
            )
            specified = [_doubted(each, doubt) for each, doubt in zip(by_pytorch, why, strict=True)]
        else:
            knowing, name = self._knowing(host, devices[0][1]) if left else (self, None)
            specified = [
                with_frozen_parts(each, table)
                for each in knowing._by_specifications(table, unmeasured, batches, given, name, why)
            ]
        found |= dict(zip(left, specified, strict=True))
        return [
            _untuned(found[place]) if mode.autotune and place not in tuned else found[place]
            for place, (_, mode) in enumerate(asked)
        ]

    def on(self, device: str) -> Model:
        """The model whose law of specifications is computed on a device; errors as of `arrays_on`."""
        return replace(self, roofline=replace(self.roofline, arrays=arrays_on(device)))

    def _by_ratios(
        self,
        way: Way,
        table: LayerTable,
        devices: Sequence[tuple[Gpu, Mode]],
        batches: Array,
        anchors: Sequence[Anchor],
        method: str,
        host: str | HostMeasurement | None,
    ) -> list[IterationForecast]:
        """Forecasts of iterations run another way than the known one; anchors are runs of that way, too."""
        known = [(gpu, way.known_mode(table, gpu, mode)) for gpu, mode in devices]
        alike = [self._as_known(way, anchor, table, devices[0][1], host) for anchor in anchors]
        found = self.forecasts(table, known, batches, alike, method, host)
        shares = self._host_shares(way, table, devices, host)
        return [
            way.forecast(each, table, gpu, mode, batches, share)
            for each, (gpu, mode), share in zip(found, devices, shares, strict=True)
        ]

    def _host_shares(
        self,
        way: Way,
        table: LayerTable,
        devices: Sequence[tuple[Gpu, Mode]],
        host: str | HostMeasurement | None,
    ) -> list[float]:
        """Known host time in these modes over that in the modes that the forecasts start from."""
        own = [(gpu, way.own_mode(mode)) for gpu, mode in devices]
        turned = [(gpu, way.known_mode(table, gpu, mode)) for gpu, mode in devices]
        if own == turned or devices[0][1].replays:
            return [1.0] * len(devices)
        both = (self.forecasts(table, each, [1], host=host) for each in (own, turned))
        return [float(one.host_time_ms[0] / other.host_time_ms[0]) for one, other in zip(*both, strict=True)]

    def _as_known(
        self, way: Way, anchor: Anchor, table: LayerTable, mode: Mode, host: str | HostMeasurement | None
    ) -> Anchor:
        """The known run beside which the anchor would be the measured one."""
        gpu = find_gpu(anchor.gpu)
        mode = replace(mode, precision=anchor.precision or mode.precision)
        start = way.known_mode(table, gpu, mode)
        batch = np.array([float(anchor.batch_size)])
        known = self.forecast(table, gpu, start, batch, (), "auto", host)
        (share,) = self._host_shares(way, table, [(gpu, mode)], host)
        there = way.forecast(known, table, gpu, mode, batch, share)
        ratio = float(there.iteration_time_ms[0] / known.iteration_time_ms[0])
        precision = anchor.precision and start.precision
        return replace(anchor, iteration_time_ms=anchor.iteration_time_ms / ratio, precision=precision)

    def _knows(self, framework: str) -> bool:
        """Whether a framework is among the training data."""
        return any(words[0] == framework for words in self.ranges.modes)

    def named_methods(self) -> Methods:
        """The methods beside the default's own."""
        return self.methods if isinstance(self.methods, Methods) else self.methods()

    def _knowing(self, host: str | HostMeasurement | None, mode: Mode) -> tuple[Model, str | None]:
        """The model with the host among its machines, and the host's name."""
        if not isinstance(host, HostMeasurement):
            return self, host
        return replace(self, roofline=self.roofline.with_host(host, mode)), host.host

    def _measured_or_plain(self, devices: Sequence[tuple[Gpu, Mode]]) -> Sequence[tuple[Gpu, Mode]]:
        """These modes, without autotuning where no autotuned operator was measured on the chip."""
        if not any(mode.autotune for _, mode in devices):
            return devices
        tuned = self.layers.find_each(library_mode(gpu, mode) for gpu, mode in devices)
        return [
            _plain(*device) if layers is None else device
            for device, layers in zip(devices, tuned, strict=True)
        ]

    def _by_layers(
        self,
        layers: LayerModel,
        table: LayerTable,
        gpu: Gpu,
        mode: Mode,
        batches: Array,
        anchors: Sequence[Anchor],
        method: str,
        host: str | HostMeasurement | None,
    ) -> IterationForecast | Reason:
        """The forecast from operators measured on this GPU, or a reason to use specifications."""
        own = [anchor for anchor in anchors if is_of(anchor, gpu)]
        sums = layer_sums(layers.library, table, batches)
        if method != "layer-times" and not is_cpu(gpu.name):  # CPUs have no specifications to fall back on
            doubt = too_little_measured(sums)
            if doubt is not None:
                return doubt
        if isinstance(host, HostMeasurement):
            own_ms = layers.law.host_ms(sums) * host.slowness(mode, partial(small_host_ms, layers))
            return forecast_by_layers(layers, table, gpu, mode, batches, sums, own, host.host, own_ms)
        other = None if host in (None, layers.library.host) else self._host_ms(table, gpu, mode, host)
        is_known = host is not None or layers.library.host_mode in self.layers.given
        spread = HOST_DRIFT if is_known else self.roofline.calibration.host_half_width(COVERAGE)
        return forecast_by_layers(layers, table, gpu, mode, batches, sums, own, host, other, spread)

    def _by_specifications(
        self,
        table: LayerTable,
        devices: Sequence[tuple[Gpu, Mode]],
        batches: Array,
        anchors: Sequence[Anchor],
        host: str | None,
        doubts: Sequence[Reason | None],
    ) -> list[IterationForecast]:
        """Forecasts by the roofline model from GPU specifications, corrected by anchors if given."""
        if not devices:
            return []
        framework = devices[0][1].framework
        kernels, law = kernels_of(table), self.roofline
        machine = law.machine_of(host)
        times = self._times(kernels, devices, batches, machine)
        gpus = [gpu for gpu, _ in devices]
        shares = times.shares(is_new_host=machine is None)
        widths, gpu_widths = (
            law.calibration.half_widths(gpus, each, COVERAGE) for each in (shares, times.shares_of_gpu())
        )
        why = reasons(self.ranges, table, devices, batches)
        wider = np.array(widening(list(chain.from_iterable(why)))).reshape(widths.shape)
        mean = np.zeros(widths.shape)
        more = [[] if doubt is None else [doubt] for doubt in doubts]
        residual = np.array([self._residual(table, devices[0][1], anchor, machine) for anchor in anchors])
        for i, gpu in enumerate(gpus if anchors else ()):
            mean[i], width, far = law.calibration.anchored(table, gpu, batches, anchors, residual, COVERAGE)
            widths[i] = gpu_widths[i] = width
            wider[i] *= math.prod(reason.widens for reason in far)
            more[i] = [*far, *more[i]]
        corrected = np.exp(mean)  # the correction of the iteration applies to its GPU and host time alike
        middle, busy, host_ms = (
            ms * corrected for ms in (times.iteration_ms, times.device_ms, times.host_ms)
        )
        low, high = (middle * np.exp(sign * widths * wider) for sign in (-1, 1))
        gpu_low, gpu_high = (busy * np.exp(sign * gpu_widths * wider) for sign in (-1, 1))

        def split(i: int) -> tuple[dict[str, Array], dict[str, dict[str, Array]]]:
            return {name: ms[i] * corrected[i] for name, ms in times.class_ms.items()}, {}

        return [
            IterationForecast(
                middle[i],
                busy[i],
                host_ms[i],
                low[i],
                high[i],
                gpu_low[i],
                gpu_high[i],
                "anchored" if anchors else "roofline",
                str(self.card["trained_on"]),
                tuple((*each, *more[i]) for each in why[i]) if more[i] else why[i],
                host or f"average {framework} host of the training data",
                partial(split, i),
                0.0 if anchors or machine is not None else law.calibration.host_half_width(COVERAGE),
            )
            for i in range(len(devices))
        ]

    def hosts(self) -> list[str]:
        """Names of the hosts in the training data."""
        return list(self.roofline.hosts())

    def _layers(
        self, devices: Sequence[tuple[Gpu, Mode]], method: str, anchors: Sequence[Anchor]
    ) -> list[LayerModel | None]:
        """The operators measured on each GPU in its mode, unless another method is asked for."""
        found = self.layers.find_each(library_mode(gpu, mode) for gpu, mode in devices)
        for place, (gpu, mode) in enumerate(devices):
            if is_cpu(gpu.name) or method in ("auto", "layer-times"):
                if found[place] is None and (method == "layer-times" or is_cpu(gpu.name)):
                    raise self._not_measured(gpu, mode)
            elif method == "roofline" or not any(is_of(anchor, gpu) for anchor in anchors):
                found[place] = None
        return found

    def _not_measured(self, gpu: Gpu, mode: Mode) -> OutOfRangeError:
        if is_cpu(gpu.name):
            given = [each for each in self.layers.given if each.gpu == gpu.name]
            measured = [f"{each.framework}, {each.precision}, {each.memory_format}" for each in given]
            return OutOfRangeError(
                f"{gpu.name} is predicted from operators measured on it, in {mode.framework}, {mode.precision}, "
                f"{mode.memory_format}; measured: {' and '.join(measured) or 'nothing'}. Measure some, `epochcast "
                "profile --device cpu --preset cnn:NAME --time-limit 3min --out cpu.csv`, and pass "
                "the table as measurements."
            )
        return OutOfRangeError(
            f"no operator was measured on {gpu.name} or another card of its chip with {mode.framework}, "
            f"{mode.precision}, {mode.memory_format}{', autotune' if mode.autotune else ''}; "
            f"measured: {', '.join(self.layers.modes()) or 'nothing'}. "
            "Measure some with `epochcast profile --preset quick` and pass the table as measurements."
        )

    def _host_ms(self, table: LayerTable, gpu: Gpu, mode: Mode, host: str | None) -> float:
        """Host time of one iteration on another host than the library's, by the roofline model."""
        machine = self.roofline.machine_of(host)
        return float(self._times(kernels_of(table), [(gpu, mode)], np.ones(1), machine).host_ms[0, 0])

    def _times(
        self, kernels: Kernels, devices: Sequence[tuple[Gpu, Mode]], batches: Array, machine: str | None
    ) -> IterationTimes:
        """Times on these devices, in modes that differ in precision alone, at these batch sizes."""
        contexts = [
            KernelContext(gpu, mode.precision, mode.framework, mode.memory_format, mode.xla)
            for gpu, mode in devices
        ]
        mode = devices[0][1]
        return self.roofline.times(
            kernels,
            contexts,
            batches / kernels.parts,
            machine,
            copies=mode.framework in self.roofline.fed_frameworks,
            captured=mode.capture != "eager",
        )

    def _residual(self, table: LayerTable, mode: Mode, anchor: Anchor, machine: str | None) -> float:
        """ln(measured / predicted) of an anchor, in its own precision where it has one."""
        if anchor.image_size not in (None, table.image_size):
            raise OutOfRangeError(
                f"the anchor's image size {anchor.image_size} is not the question's {table.image_size}. "
                "Give a measurement at that image size."
            )
        gpu, mode = find_gpu(anchor.gpu), replace(mode, precision=anchor.precision or mode.precision)
        check_precision(gpu, mode.precision)
        batch = np.array([float(anchor.batch_size)])
        predicted = self._times(kernels_of(table), [(gpu, mode)], batch, machine).iteration_ms
        return math.log(anchor.iteration_time_ms / float(predicted[0, 0]))


def _plain(gpu: Gpu, mode: Mode) -> tuple[Gpu, Mode]:
    return gpu, replace(mode, autotune=False)


def _untuned(forecast: IterationForecast) -> IterationForecast:
    """The forecast of the plain mode as that of the autotuned one, whose effect was not measured there."""

    def wider(end_ms: Array, middle_ms: Array) -> Array:
        widened: Array = middle_ms * (end_ms / middle_ms) ** _UNTUNED.widens
        return widened

    middle, busy = forecast.iteration_time_ms, forecast.gpu_time_ms
    return replace(
        _doubted(forecast, _UNTUNED),
        low_ms=wider(forecast.low_ms, middle),
        high_ms=wider(forecast.high_ms, middle),
        gpu_low_ms=wider(forecast.gpu_low_ms, busy),
        gpu_high_ms=wider(forecast.gpu_high_ms, busy),
    )


def _doubted(forecast: IterationForecast, doubt: Reason | None) -> IterationForecast:
    """The forecast with one more reason for caution."""
    if doubt is None:
        return forecast
    return replace(forecast, extrapolates=tuple((*each, doubt) for each in forecast.extrapolates))


@lru_cache(maxsize=8)
def _read(path: str, _modified_ns: int) -> Model:
    try:
        found = json.loads(Path(path).read_text(encoding="utf-8"))
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ArtifactError(
            f"{path} is not a model: it is not JSON ({error}). Write one with `epochcast fit`."
        ) from error
    version = found.get("format_version") if isinstance(found, dict) else None
    if version != FORMAT_VERSION:
        raise ArtifactError(
            f"{path} has model format version {version!r}; this epochcast reads {FORMAT_VERSION}. "
            "Refit it with `epochcast fit`."
        )
    try:
        return _from_json(found, Path(path))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ArtifactError(
            f"{path} is a damaged model ({error!r}). Refit it with `epochcast fit`."
        ) from error


def _from_json(found: dict[str, Any], path: Path) -> Model:
    return Model(
        layers=LayerModels.beside(path, found["files"]["operators"]),
        roofline=RooflineLaw.from_json(found["roofline"]),
        epoch_ms_per_iteration={name: float(v) for name, v in found["epoch_ms_per_iteration"].items()},
        ranges=Ranges.from_json(found["ranges"]),
        card=dict(found["card"]),
        methods=Methods.beside(path, found["files"]["methods"]),
    )
