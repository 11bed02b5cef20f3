"""The served model: fitted coefficients, read from JSON, applied with numpy.

The file holds numbers and text alone, no training rows and no code: loading an untrusted model is safe.
`predictor.models.fit` makes it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
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
from predictor.models.extrapolation import Ranges, reasons
from predictor.models.forecast import COVERAGE, Anchor, IterationForecast, Reason
from predictor.models.layer_times.files import LayerModel, LayerModels, library_mode
from predictor.models.layer_times.law import layer_sums
from predictor.models.layer_times.served import forecast_by_layers, too_little_measured
from predictor.models.registry import METHODS
from predictor.models.residuals import far_anchors, is_of, kriged, prior_variance
from predictor.models.roofline.terms import (
    Coefficients,
    IterationParts,
    KernelContext,
    Term,
    iteration_parts,
    join_host,
)
from predictor.operators.kernels import Kernels, kernels_of

__all__ = ["Anchor", "IterationForecast", "Model"]

Array = NDArray[np.float64]

FORMAT_VERSION = 2


@dataclass(eq=False)
class Model:
    """Coefficients, error variances and interval factors; the fields of the JSON file (datasets/README.md)."""

    terms: dict[Term, float]
    host: dict[str, tuple[float, float]]
    host_offset: dict[str, float]
    reference_host: dict[str, str]
    feed: tuple[float, float]
    fed_frameworks: tuple[str, ...]
    epoch_ms_per_iteration: dict[str, float]
    variances: dict[str, dict[str, float]]
    factors: dict[str, dict[str, float]]
    ranges: Ranges
    card: dict[str, Any]
    layers: LayerModels = field(default_factory=LayerModels)

    @cached_property
    def coefficients(self) -> Coefficients:
        """The terms as arrays over GPUs."""
        return Coefficients(self.terms)

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
        """Write the model as JSON; a service that reads the file meanwhile sees the old model or this one."""
        written = {
            "format_version": FORMAT_VERSION,
            "card": self.card,
            "host": {name: list(pair) for name, pair in self.host.items()},
            "host_offset": self.host_offset,
            "reference_host": self.reference_host,
            "feed": list(self.feed),
            "fed_frameworks": list(self.fed_frameworks),
            "epoch_ms_per_iteration": self.epoch_ms_per_iteration,
            "variances": self.variances,
            "factors": self.factors,
            "ranges": self.ranges.as_json(),
            "terms": {"|".join(term): value for term, value in self.terms.items()},
        }
        self.layers.save(Path(path))
        replace_file(path, json.dumps(written, indent=1, allow_nan=False) + "\n")

    def forecast(
        self,
        table: LayerTable,
        gpu: Gpu,
        mode: Mode,
        batch_sizes: Sequence[int] | ArrayLike,
        anchors: Sequence[Anchor] = (),
        method: str = "auto",
        host: str | None = None,
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
        host: str | None = None,
    ) -> list[IterationForecast]:
        """Time of one training iteration of a CNN on each GPU, in the mode given with it, at each batch size.

        Raises
        ------
        OutOfRangeError
            If a GPU lacks the precision, the host is unknown, or `anchored` is asked for without anchors.
        SchemaError
            If the method is unknown, or a layer lacks its shape.
        """
        if method not in METHODS:
            raise SchemaError(f"no method is called {method!r}. Nearest: {nearest(method, METHODS)}.")
        if method == "anchored" and not anchors:
            raise OutOfRangeError(
                "'anchored' needs a measurement of the CNN. Give an anchor, or use 'roofline'."
            )
        batches = np.asarray(batch_sizes, dtype=float)
        found: dict[int, IterationForecast] = {}
        doubts: dict[int, Reason] = {}
        for place, (gpu, mode) in enumerate(devices):
            check_precision(gpu, mode.precision)
            answer = self._by_layers(table, gpu, mode, batches, anchors, method, host)
            if isinstance(answer, IterationForecast):
                found[place] = answer
            elif answer is not None:
                doubts[place] = answer
        left = [place for place in range(len(devices)) if place not in found]
        on_gpus = [anchor for anchor in anchors if not is_cpu(anchor.gpu)]
        specified = self._by_specifications(
            table, [devices[place] for place in left], batches, on_gpus if method != "roofline" else [], host,
            [doubts.get(place) for place in left],
        )  # fmt: skip
        found |= dict(zip(left, specified, strict=True))
        return [found[place] for place in range(len(devices))]

    def _by_layers(
        self,
        table: LayerTable,
        gpu: Gpu,
        mode: Mode,
        batches: Array,
        anchors: Sequence[Anchor],
        method: str,
        host: str | None,
    ) -> IterationForecast | Reason | None:
        """The forecast from operators measured on this GPU, a reason to use specifications, or None."""
        own = [anchor for anchor in anchors if is_of(anchor, gpu)]
        layers = self._layers(gpu, mode, method, own)
        if layers is None:
            return None
        sums = layer_sums(layers.library, table, batches)
        if method != "layer-times" and not is_cpu(gpu.name):  # CPUs have no specifications to fall back on
            doubt = too_little_measured(sums)
            if doubt is not None:
                return doubt
        other = None if host in (None, layers.library.host) else self._host_ms(table, gpu, mode, host)
        return forecast_by_layers(layers, table, gpu, mode, batches, sums, own, host, other)

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
        modes = [mode for _, mode in devices]
        host = host or self.reference_host.get(modes[0].framework)
        kernels = kernels_of(table)
        parts, host_ms, total = self._times(kernels, devices, batches, host)
        why = reasons(self.ranges, table, kernels, devices, batches)
        residuals = [self._residual(table, modes[0], anchor, host) for anchor in anchors]
        found = []
        for i, (gpu, _) in enumerate(devices):
            variances = self._variances_for(gpu)
            mean, variance = np.zeros(batches.size), np.full(batches.size, prior_variance(variances))
            more = [doubt for doubt in (doubts[i],) if doubt is not None]
            wider = np.array([math.prod(reason.widens for reason in each) for each in why[i]])
            if anchors:
                residual = np.array(residuals)
                mean, variance = kriged(table, gpu, batches, anchors, residual, variances)
                far = far_anchors(anchors, residual, variances)
                wider = wider * math.prod(reason.widens for reason in far)
                more = [*far, *more]
            factor = self.factors[
                ("anchored-" if anchors else "") + ("cnn" if gpu.name in self.ranges.gpus else "gpu")
            ]
            width = factor[str(COVERAGE)] * np.sqrt(variance) * wider
            corrected = np.exp(mean)  # the correction of the iteration applies to its GPU and host time alike
            middle, busy = total[i] * corrected, parts.device_ms[i] * corrected
            found.append(
                IterationForecast(
                    iteration_time_ms=middle,
                    gpu_time_ms=busy,
                    host_time_ms=host_ms * corrected,
                    low_ms=middle * np.exp(-width),
                    high_ms=middle * np.exp(width),
                    gpu_low_ms=busy * np.exp(-width),
                    gpu_high_ms=busy * np.exp(width),
                    method="anchored" if anchors else "roofline",
                    trained_on=str(self.card["trained_on"]),
                    extrapolates=tuple((*each, *more) for each in why[i]) if more else why[i],
                    host=host or f"average {modes[0].framework} host of the training data",
                    class_ms={name: ms[i] * corrected for name, ms in parts.class_ms.items()},
                )
            )
        return found

    def epoch_time_s(self, iterations: ArrayLike, iteration_time_ms: ArrayLike, mode: Mode) -> Array:
        """Seconds of one epoch: iterations x (iteration time + overhead between iterations, where measured)."""
        between = self.epoch_ms_per_iteration.get(mode.framework, 0.0)
        seconds: Array = (
            np.asarray(iterations, dtype=float) * (np.asarray(iteration_time_ms, dtype=float) + between) / 1e3
        )
        return seconds

    def hosts(self) -> list[str]:
        """Names of the hosts in the training data."""
        return sorted(self.host_offset)

    def _layers(self, gpu: Gpu, mode: Mode, method: str, own: Sequence[Anchor]) -> LayerModel | None:
        """The operators measured on this GPU in this mode, unless another method is asked for."""
        if not is_cpu(gpu.name) and (method == "roofline" or (method == "anchored" and not own)):
            return None
        found = self.layers.find(library_mode(gpu, mode))
        if found is None and (method == "layer-times" or is_cpu(gpu.name)):
            raise OutOfRangeError(
                f"no operator was measured on {gpu.name} or another card of its chip with {mode.framework}, "
                f"{mode.precision}, {mode.memory_format}{', autotune' if mode.autotune else ''}; "
                f"measured: {', '.join(self.layers.modes()) or 'nothing'}. "
                "Measure some with `epochcast profile --preset quick` and pass the table as measurements."
            )
        return found

    def _host_ms(self, table: LayerTable, gpu: Gpu, mode: Mode, host: str | None) -> float:
        """Host time of one iteration on another host than the library's, by the roofline model."""
        _, host_ms, _ = self._times(kernels_of(table), [(gpu, mode)], np.ones(1), host)
        return float(host_ms[0])

    def _times(
        self, kernels: Kernels, devices: Sequence[tuple[Gpu, Mode]], batches: Array, host: str | None
    ) -> tuple[IterationParts, Array, Array]:
        """GPU times, (n_devices, n_batches); host times, (n_batches,); whole iterations, (n_devices, n_batches)."""
        situations = [
            KernelContext(gpu, mode.precision, mode.framework, mode.memory_format, mode.xla)
            for gpu, mode in devices
        ]
        parts = iteration_parts(self.coefficients, kernels, situations, batches)
        mode = devices[0][1]
        fixed, per_kernel = np.exp(self._host_of(mode.framework))
        host_ms = np.full(
            batches.size, (fixed + per_kernel * parts.kernels) * math.exp(self._offset_of(host))
        )
        if mode.capture != "eager":  # a captured graph is launched at once
            host_ms = np.zeros(batches.size)
        total = join_host(parts.device_ms, host_ms)
        if mode.framework in self.fed_frameworks:
            first, per_megabyte = np.exp(self.feed)
            total = total + first + per_megabyte * 4e-6 * kernels.image_elements * batches
        return parts, host_ms, total

    def _host_of(self, framework: str) -> tuple[float, float]:
        if framework in self.host:
            return self.host[framework]
        mean = np.mean(list(self.host.values()), axis=0)
        return float(mean[0]), float(mean[1])

    def _offset_of(self, host: str | None) -> float:
        if host is None:
            return 0.0
        if host not in self.host_offset:
            raise OutOfRangeError(
                f"host {host!r} was not measured. Nearest: {nearest(host, self.host_offset)}; "
                f"measured: {', '.join(self.hosts()) or 'none by name'}. Leave --host out for the usual one."
            )
        return self.host_offset[host]

    def _variances_for(self, gpu: Gpu) -> Mapping[str, float]:
        new_cnn, new_gpu = self.variances["cnn"], self.variances["gpu"]
        if gpu.name in self.ranges.gpus:
            return new_cnn
        return {part: max(new_cnn.get(part, 0.0), new_gpu.get(part, 0.0)) for part in {*new_cnn, *new_gpu}}

    def _residual(self, table: LayerTable, mode: Mode, anchor: Anchor, host: str | None) -> float:
        """ln(measured / predicted) of an anchor, in its own precision where it has one."""
        if anchor.image_size not in (None, table.image_size):
            raise OutOfRangeError(
                f"the anchor's image size {anchor.image_size} is not the question's {table.image_size}. "
                "Give a measurement at that image size."
            )
        gpu, mode = find_gpu(anchor.gpu), replace(mode, precision=anchor.precision or mode.precision)
        check_precision(gpu, mode.precision)
        batch = np.array([float(anchor.batch_size)])
        _, _, predicted = self._times(kernels_of(table), [(gpu, mode)], batch, host)
        return math.log(anchor.iteration_time_ms / float(predicted[0, 0]))


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
    terms: dict[Term, float] = {}
    for key, value in found["terms"].items():
        name, feature, tag = key.split("|")
        terms[name, feature, tag] = _finite(value)
    return Model(
        layers=LayerModels.beside(path),
        terms=terms,
        host={name: (_finite(a), _finite(b)) for name, (a, b) in found["host"].items()},
        host_offset={name: _finite(value) for name, value in found["host_offset"].items()},
        reference_host={str(framework): str(name) for framework, name in found["reference_host"].items()},
        feed=(_finite(found["feed"][0]), _finite(found["feed"][1])),
        fed_frameworks=tuple(found["fed_frameworks"]),
        epoch_ms_per_iteration={name: _finite(v) for name, v in found["epoch_ms_per_iteration"].items()},
        variances={
            kind: {part: _finite(v) for part, v in parts.items()}
            for kind, parts in found["variances"].items()
        },
        factors={
            kind: {level: _finite(v) for level, v in levels.items()}
            for kind, levels in found["factors"].items()
        },
        ranges=Ranges.from_json(found["ranges"]),
        card=dict(found["card"]),
    )


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not a finite number")
    return number
