"""How the GPU's and the host's time join to that of an iteration: the longer of the two, rounded where they are alike.

One GPU, teams, compiled CNNs, recorded steps and the fits use this one law. A host that is not known enters by the
median of its time, and so adds nothing where it is probably the faster one; the interval holds the rest.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from predictor.arrays import Array
from predictor.models.forecast import SHARPNESS, IterationForecast, Reason

_SHARPNESS_OF = {"tensorflow": 1.5}
"""Frameworks that do not overlap GPU and host as PyTorch does: TensorFlow's loop waits for each of its steps."""

LAUNCHED = 1.02
"""GPU time of kernels that a host launches one by one, over that of the same kernels launched as one graph."""


def sharpness_of(framework: str) -> float:
    """Exponent of the norm by which a framework's iterations join GPU and host time."""
    return _SHARPNESS_OF.get(framework, SHARPNESS)


def join_host(gpu_ms: Array, host_ms: Array, sharpness: Array | float = SHARPNESS) -> Array:
    """Iteration time in ms of GPU and host time: ((1.02 g)^s + h^s)^(1/s); g itself where there is no host, h = 0."""
    launched = gpu_ms * np.where(host_ms > 0, LAUNCHED, 1.0)
    longer = np.maximum(launched, host_ms)  # keeps the powers finite
    return longer * (1.0 + (np.minimum(launched, host_ms) / longer) ** sharpness) ** (1.0 / sharpness)


def join_shares(gpu_ms: Array, host_ms: Array, sharpness: Array | float = SHARPNESS) -> tuple[Array, Array]:
    """Relative change of the joined time by that of the GPU's and by that of the host's time; they add up to 1."""
    host: Array = (host_ms / join_host(gpu_ms, host_ms, sharpness)) ** sharpness
    return 1.0 - host, host


def host_half_width(forecast: IterationForecast, spread: Array | float) -> Array:
    """Half width of the ln of the iteration's time where the ln of the host's has that half width, `spread`."""
    gpu_ms, host_ms = forecast.gpu_time_ms, forecast.host_time_ms
    low, high = (join_host(gpu_ms, host_ms * np.exp(end), forecast.sharpness) for end in (-spread, spread))
    return np.asarray(np.log(high / low) / 2.0)


def change_host(
    iteration_ms: Array, before_ms: Array, after_ms: Array, sharpness: float = SHARPNESS
) -> Array:
    """Iteration time in ms with a host time of `after_ms` in place of `before_ms`, at most `iteration_ms`."""
    longer = np.maximum(iteration_ms, after_ms)
    iteration, after, before = ((ms / longer) ** sharpness for ms in (iteration_ms, after_ms, before_ms))
    return longer * (iteration + after - before) ** (1.0 / sharpness)


def with_gpu_share(
    forecast: IterationForecast, share: float, best: float, worst: float, why: Reason
) -> IterationForecast:
    """The forecast where the GPU takes `share` of its time, from `best` to `worst`, and the host as long as before.

    `why` becomes one more reason for caution.
    """
    gpu_ms, host_ms = forecast.gpu_time_ms, forecast.host_time_ms
    whole_ms = join_host(gpu_ms, host_ms, forecast.sharpness)

    def of_iteration(of_gpu: float) -> Array:
        return np.asarray(join_host(of_gpu * gpu_ms, host_ms, forecast.sharpness) / whole_ms, float)

    return replace(
        forecast,
        iteration_time_ms=of_iteration(share) * forecast.iteration_time_ms,
        gpu_time_ms=share * gpu_ms,
        low_ms=of_iteration(best) * forecast.low_ms,
        high_ms=of_iteration(worst) * forecast.high_ms,
        gpu_low_ms=best * forecast.gpu_low_ms,
        gpu_high_ms=worst * forecast.gpu_high_ms,
        extrapolates=tuple((*reasons, why) for reasons in forecast.extrapolates),
    )
