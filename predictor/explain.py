"""What the time of an iteration is made of: classes of operators, what bounds it, how it goes with batch size and mode.

Called by the public face and the service; calls questions, sources, bounds, switches and the served model, and gives
explanations. numpy alone. `explain_tables` does the same for what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.bounds import OVERHEAD, bounding_ms, bounds_of, operator_classes_of
from predictor.cpus import is_cpu
from predictor.errors import OutOfRangeError
from predictor.explanations import Explanation, Numbers, OtherMode, SmallBatchLaw, small_batch_law
from predictor.gpus import Gpu, precisions_of
from predictor.inputs import batch_sizes_of, texts_of
from predictor.layer_models import library_mode
from predictor.layers import LayerTable
from predictor.modes import MEMORY_FORMATS, Mode
from predictor.predict import fitted_measurements, layer_table_of
from predictor.questions import anchors_of, gpus_of, load_model, samples_of
from predictor.switches import Switch, switches_of_library

if TYPE_CHECKING:
    import pandas as pd

    from predictor.model import Anchor, IterationForecast, Model
    from predictor.own_measurements import OwnMeasurements

__all__ = ["explain"]

Array = NDArray[np.float64]
_LAW_BATCHES = np.unique(np.round(2 ** np.arange(0, 12.01, 0.125))).astype(int)


def explain(
    cnn: object,
    gpus: object,
    batch_sizes: int | str | Iterable[object],
    *,
    image_size: int | None = None,
    samples: int | None = None,
    data_set: str | None = None,
    precision: str = "fp32",
    memory_format: str = "nchw",
    framework: str = "pytorch",
    autotune: bool = False,
    capture: str = "eager",
    optimizer: str = "momentum",
    anchors: Iterable[Anchor | Mapping[str, Any]] = (),
    measurements: pd.DataFrame | OwnMeasurements | str | PathLike[str] | None = None,
    method: str = "auto",
    host: str | None = None,
    model: Model | str | PathLike[str] | None = None,
) -> list[Explanation]:
    """What the time of an iteration is made of, for every CNN and GPU.

    Parameters
    ----------
    cnn, gpus, batch_sizes, image_size, samples, data_set, precision, memory_format, framework, autotune, capture,
    optimizer, anchors, measurements, method, host, model
        As for `predictor.predict.predict`, with the same times. Samples are needed for the law's constant alone.

    Returns
    -------
    list of Explanation
        In the order of `cnn`, then `gpus`.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense; nothing is answered then.
    """
    mode = Mode(framework, precision, memory_format, autotune, capture, optimizer)
    sizes, chosen = batch_sizes_of(batch_sizes), gpus_of(gpus, precision)
    n_samples, served = samples_of(samples, data_set), load_model(model)
    known = anchors_of(anchors, served, mode)
    own = fitted_measurements(measurements, served)
    served = own.model if own else served
    found: list[Explanation] = []
    for each in texts_of(cnn):
        table = layer_table_of(each, image_size, data_set)
        also = own.anchors(table, mode) if own else ()
        asked = _Asked(served, table, mode, (*known, *also), method, host, n_samples)
        found += [_explained(asked, gpu, sizes) for gpu in chosen]
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A question about one CNN in one mode."""

    model: Model
    table: LayerTable
    mode: Mode
    anchors: tuple[Anchor, ...]
    method: str
    host: str | None
    samples: int | None

    def forecast(self, gpu: Gpu, sizes: Sequence[int] | Array) -> IterationForecast:
        """The model's answer."""
        return self.model.forecast(self.table, gpu, self.mode, sizes, self.anchors, self.method, self.host)

    def k_s(self, iteration_time_ms: float) -> float:
        """Seconds x images."""
        seconds = self.model.epoch_time_s([float(self.samples or 0)], [iteration_time_ms], self.mode)
        return float(seconds[0])


def _explained(asked: _Asked, gpu: Gpu, sizes: list[int]) -> Explanation:
    forecast, table, mode = asked.forecast(gpu, sizes), asked.table, asked.mode
    _check(forecast, table, gpu, sizes)
    class_ms, by_bound = _classes(forecast), _by_bound(asked, gpu, sizes, forecast)
    return Explanation(
        table.cnn,
        table.image_size,
        gpu.name,
        mode.precision,
        mode.memory_format,
        mode.framework,
        mode.autotune,
        mode.capture,
        mode.optimizer,
        tuple(sizes),
        _plain(forecast.iteration_time_ms),
        _plain(forecast.low_ms),
        _plain(forecast.high_ms),
        _plain(forecast.gpu_time_ms),
        _plain(forecast.host_time_ms),
        {name: _plain(ms) for name, ms in class_ms.items()},
        bounds_of(forecast.gpu_time_ms, forecast.host_time_ms, by_bound),
        {name: _plain(ms) for name, ms in by_bound.items()},
        _law(asked, gpu),
        _switches(asked, gpu),
        _other_modes(asked, gpu, sizes),
        forecast.host,
        forecast.method,
        forecast.trained_on,
        forecast.extrapolates,
    )


def _check(forecast: IterationForecast, table: LayerTable, gpu: Gpu, sizes: list[int]) -> None:
    """Rule one: a model that answers nonsense is an error, not an answer."""
    for ms, size in zip(forecast.iteration_time_ms, sizes, strict=True):
        if not (np.isfinite(ms) and ms > 0):
            raise OutOfRangeError(
                f"the model gives {ms} ms for {table.cnn} on {gpu.name} at batch_size {size}, which is no time. "
                "Try a batch size nearer to 64, or another method."
            )


def _classes(forecast: IterationForecast) -> dict[str, Array]:
    """GPU time by class of operators; what is left over is overhead."""
    found = operator_classes_of(forecast.class_ms)
    left = forecast.gpu_time_ms - sum(found.values(), np.zeros(forecast.gpu_time_ms.size))
    return found | ({OVERHEAD: left} if (left > 1e-6 * forecast.gpu_time_ms).any() else {})


def _by_bound(
    asked: _Asked, gpu: Gpu, sizes: Sequence[int] | Array, forecast: IterationForecast
) -> dict[str, Array]:
    return bounding_ms(
        asked.table, gpu, asked.mode.precision, np.asarray(sizes, dtype=float), _classes(forecast)
    )


def _law(asked: _Asked, gpu: Gpu) -> SmallBatchLaw | None:
    """The law from batch size 1 on, whichever were asked about; up to the largest that was measured."""
    forecast = asked.forecast(gpu, _LAW_BATCHES)
    by_bound = _by_bound(asked, gpu, _LAW_BATCHES, forecast)
    beyond = np.array([any(why.startswith("batch") for why in each) for each in forecast.extrapolates])
    within = slice(0, _LAW_BATCHES.size - int(np.argmin(beyond[::-1])))
    found = small_batch_law(
        _LAW_BATCHES[within],
        forecast.iteration_time_ms[within],
        bounds_of(forecast.gpu_time_ms, forecast.host_time_ms, by_bound),
        None if asked.samples is None else asked.k_s,
    )
    return None if found is None else replace(found, extrapolates=bool(beyond[0]))


def _switches(asked: _Asked, gpu: Gpu) -> tuple[Switch, ...]:
    """From the operators measured on this GPU in this mode, if there are any."""
    known = asked.model.layers.find(library_mode(gpu, asked.mode))
    if known is None:
        return ()
    sizes = known.library.batch_sizes
    busy = replace(asked, anchors=(), method="auto").forecast(gpu, sizes).gpu_time_ms
    return switches_of_library(
        known.library, asked.table, dict(zip(sizes.tolist(), busy.tolist(), strict=True))
    )


def _other_modes(asked: _Asked, gpu: Gpu, sizes: list[int]) -> tuple[OtherMode, ...]:
    if is_cpu(gpu.name):
        return ()
    mode = asked.mode
    here = (mode.precision, mode.memory_format)
    return tuple(
        _other_mode(asked, gpu, sizes, replace(mode, precision=precision, memory_format=memory_format))
        for precision, memory_format in product(precisions_of(gpu), MEMORY_FORMATS)
        if (precision, memory_format) != here
    )


def _other_mode(asked: _Asked, gpu: Gpu, sizes: list[int], mode: Mode) -> OtherMode:
    """Both times by one method, so that shared errors cancel, and without anchors, which hold for their own mode."""
    here, there = _alike(replace(asked, anchors=()), gpu, sizes, mode)
    factor = there.iteration_time_ms / here.iteration_time_ms
    width = np.hypot(_half_width(here), _half_width(there))
    return OtherMode(
        mode.precision,
        mode.memory_format,
        _plain(factor),
        _plain(factor * np.exp(-width)),
        _plain(factor * np.exp(width)),
        _plain(there.gpu_time_ms / here.gpu_time_ms),
        there.method,
        _more_reasons(there, here),
    )


def _alike(
    asked: _Asked, gpu: Gpu, sizes: list[int], mode: Mode
) -> tuple[IterationForecast, IterationForecast]:
    """Forecasts in the mode asked about and in another, by the same method: measured layers if both have them."""
    methods = ("roofline",) if asked.method in ("roofline", "anchored") else ("auto", "roofline")
    for method in methods:
        one, two = replace(asked, method=method), replace(asked, method=method, mode=mode)
        try:
            here, there = one.forecast(gpu, sizes), two.forecast(gpu, sizes)
        except OutOfRangeError:  # layers without host times: the roofline may answer
            if method == methods[-1]:
                raise
            continue
        if here.method == there.method:
            break
    return here, there


def _more_reasons(there: IterationForecast, here: IterationForecast) -> tuple[str, ...]:
    """Why one forecast extrapolates at some batch size where the other has no such reason."""
    pairs = zip(there.extrapolates, here.extrapolates, strict=True)
    return tuple(dict.fromkeys(why for one, other in pairs for why in one if why not in other))


def _half_width(forecast: IterationForecast) -> Array:
    """Of ln time."""
    width: Array = np.log(forecast.high_ms / forecast.low_ms) / 2.0
    return width


def _plain(values: Array) -> Numbers:
    return tuple(float(value) for value in values)
