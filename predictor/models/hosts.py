"""Time of a host to enqueue an iteration: number of layers to enqueue x the host's time for a mean layer.

The host of a question is named (a CPU, an instance, a machine of the training data), measured (a file of `epochcast
host`), or the usual one of each GPU.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import median
from typing import TYPE_CHECKING

from predictor.arrays import Array
from predictor.catalogue.devices import Gpu
from predictor.catalogue.hosts import REFERENCE_CNN, HostSpeed, find_host, unknown_host, usual_host
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import BY_LAW, ON_PARAMETERS, SUPPRESSION, Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.measurements.hosts import HostMeasurement
from predictor.models.base import KnownHost, Measuring
from predictor.models.join import LAUNCHED, sharpness_of
from predictor.models.ratios import ratios_of
from predictor.operator_types import RECURRENT_TYPES
from predictor.operators.operators import RECOMPUTING, is_on_chip, trained_tensors

if TYPE_CHECKING:
    from predictor.models.roofline.law import RooflineLaw

Host = str | HostMeasurement | None
WAIT_MS = 0.1
"""Time from a GPU's last kernel to the host's next one where the host waits for a number, or for boxes to suppress."""

LIST_WEIGHT = 0.25
"""Host time of a function of a list of boxes or scores, over that of a CNN's mean layer: no module calls it.

Both by five detectors on an H100, 9 % off in iterations; five others, 5.6."""

_RECURRENT_LAYERS, _PER_POSITION = 11.0, 0.4
"""Host time of a recurrent layer over a CNN's mean layer, and of each position in each direction where no kernel runs
all positions (20 shapes on an H100)."""

_CHECKPOINT = 4.3
"""Host time of a part that gradient checkpointing runs again, beside its passes, over that of a mean layer's passes
(measured at the tag `campaigns`, commit 96df2659)."""

FORWARD_ALONE, FROZEN_BACKWARD = 0.31, 0.25
"""Host time of a forward pass that no backward pass follows, over that of all passes; and of the backward pass of a
layer whose weights are frozen, over that of one that learns. Of one ConvNeXt-S in AMP on an H100's machine, trained
whole, with adapters between frozen blocks, and only by its head: 39.8, 43.3 and 13.5 ms (2026-11-26)."""

COUNTED = "pytorch"
"""Framework whose host time follows from what an iteration enqueues; that of others from machines measured."""


_MEASURED_WITH = "momentum"
_PER_TENSOR = dict.fromkeys(("adam", "adamw"), "adam_tensor") | {
    "nadam": "nadam_tensor",
    "rmsprop": "rmsprop_tensor",
}
"""Optimizers whose foreach calls take the host longer than those of SGD with momentum, and their numbers."""


def host_ms(table: LayerTable, mode: Mode, speed: HostSpeed) -> float:
    """Time to enqueue one of PyTorch's training iterations, in ms.

    Reference x (layers + `fixed_layers`) / (those of the reference CNN + `fixed_layers`), x `amp` under autocast, which
    casts. A layer counts `forward` for its forward pass and the rest for its backward pass, each as often as it runs; a
    parameter tensor counts `adam_tensor` in Adam and AdamW, `nadam_tensor`, `rmsprop_tensor`; a recorded step what it
    does beside. Beside the reference iteration timed together, eager iterations of seven CNNs are 5 % off on an H100's
    machine, whose host takes 0.7 to 1.4 times its median within three minutes.
    """
    of_reference = enqueued(zoo_cnn(*REFERENCE_CNN), _MEASURED_WITH)
    return speed.reference_ms * autocast_host(mode) * enqueued(table, mode.optimizer) / of_reference


def autocast_host(mode: Mode) -> float:
    """Factor by which a mode's autocast lengthens the host's time; 1 without autocast."""
    return ratios_of("host")["amp"] if mode.precision.startswith("amp") else 1.0


@lru_cache(maxsize=256)
def enqueued(table: LayerTable, optimizer: str) -> float:
    """Number of layers that an iteration's host time counts, with those that an optimizer's tensors count as."""
    passes = sum(_weight(layer, table) * _passes(layer, table.recomputations(layer)) for layer in table)
    beside = (table.step and table.step.beside) or 0
    again = _CHECKPOINT * table.parts * len({layer.recomputed for layer in table} - {None})
    return _update(table, optimizer) + passes + beside + again


def _update(table: LayerTable, optimizer: str) -> float:
    """Layers that an optimizer's update counts."""
    ratios = ratios_of("host")
    per_tensor = ratios[_PER_TENSOR[optimizer]] if optimizer in _PER_TENSOR else 0.0
    return ratios["fixed_layers"] + per_tensor * trained_tensors(table)


def idle_ms(table: LayerTable, mode: Mode, host_time_ms: Array) -> tuple[Array, float]:
    """Host time during which the GPU idles, shaped like `host_time_ms`, and time of round trips, both in ms.

    `host_time_ms`: time to enqueue the whole iteration. The GPU idles during the forward passes from the step's first
    wait to its last, as between the choices of a detector; each wait is a round trip, in which the host idles, too.
    """
    step = table.step
    if step is None or not (step.waits or step.update_waits):
        return 0.0 * host_time_ms, 0.0
    between = table.layers[step.first_wait : step.last_wait] if step.waits else ()
    forward = ratios_of("host")["forward"]
    passes = ((layer, 1 if layer.forwards is None else layer.forwards) for layer in between)
    idle = forward * sum(_weight(layer, table) * n for layer, n in passes)
    idle += _update(table, mode.optimizer) if step.update_waits else 0.0
    trips = (step.waits or 0) + (step.update_waits or 0)
    return host_time_ms * (idle / enqueued(table, mode.optimizer)), WAIT_MS * trips


def _weight(layer: Layer, table: LayerTable) -> float:
    """Host time of a layer over that of a mean one; functions of lists cost less in steps that choose boxes."""
    if layer.name in (ON_PARAMETERS, SUPPRESSION) or layer.name.startswith(BY_LAW):
        return 0.0  # the step's `beside` holds all but the second
    if layer.type in RECURRENT_TYPES:
        positions = (layer.out_height or 1) * (layer.out_width or 1) * (layer.groups or 1)
        return _RECURRENT_LAYERS + _PER_POSITION * positions * (not is_on_chip(layer))
    chooses = table.step is not None and bool(table.step.waits)
    is_list = (layer.in_height, layer.in_width) == (1, 1) and not layer.parameters
    return LIST_WEIGHT if chooses and is_list else 1.0


def _passes(layer: Layer, again: int) -> float:
    """Host time of a layer's passes over that of a trained layer's; `again`: forward passes that are run again."""
    forward = ratios_of("host")["forward"]
    if layer.forwards is None:
        return 1.0
    backward = float(max(layer.input_gradients or 0, layer.weight_gradients or 0))
    if not backward:
        forward = FORWARD_ALONE
    elif layer.parameters and not layer.weight_gradients:
        backward *= FROZEN_BACKWARD
    return forward * (layer.forwards - again) + RECOMPUTING * again + (1.0 - forward) * backward


def speed_of(host: Host, gpu: Gpu, mode: Mode) -> HostSpeed | None:
    """The speed of a question's host; errors and None as of `named_speed`."""
    return usual_host(gpu) if host is None else named_speed(host, mode)


def named_speed(host: str | HostMeasurement, mode: Mode) -> HostSpeed | None:
    """The speed of a host; None for a machine of the training data that no table of hosts has.

    OutOfRangeError if a file has no times of the framework.

    Small CNNs in a quiet loop take less than they tell of larger ones: the reference is `file_ms` x its time in a
    file^`file_trust`, as of 18 runs of ours that timed both (tag `campaigns`).
    """
    if not isinstance(host, HostMeasurement):
        return find_host(host)
    ratios = ratios_of("host")
    quiet_ms = host.reference_ms(mode.framework, ratios["amp"])
    return HostSpeed(host.host, ratios["file_ms"] * quiet_ms ** ratios["file_trust"], ratios.host_spread)


def host_cnn_ms(table: LayerTable, mode: Mode, iteration_ms: float, gpu_ms: float) -> float | None:
    """Time in ms that a file of `epochcast host` would have for the host of an eager iteration; None if unknown.

    The inverse of `host_ms` and `speed_of`. By 16 iterations on an H100 and an H200 that their hosts decided, files of
    single CNNs differ by 23 % on a machine, within the `host_spread` of every file.
    """
    waits = table.step is not None and table.step.waits
    if mode.framework != COUNTED or mode.capture != "eager" or waits or iteration_ms <= LAUNCHED * gpu_ms:
        return None
    sharpness = sharpness_of(mode.framework)
    host = iteration_ms * (1.0 - (LAUNCHED * gpu_ms / iteration_ms) ** sharpness) ** (1.0 / sharpness)
    reference_ms = host / host_ms(table, mode, HostSpeed("", 1.0, 0.0))
    ratios = ratios_of("host")
    return float(autocast_host(mode) * (reference_ms / ratios["file_ms"]) ** (1.0 / ratios["file_trust"]))


def measuring_on(host: Host, table: LayerTable, mode: Mode, law: RooflineLaw) -> Measuring:
    """`Measuring` of an iteration on a question's host, for the law of specifications.

    OutOfRangeError if no host has the name, or its file has no times of the framework.

    A name that both tables of hosts and training data have is the former's in PyTorch, the latter's elsewhere.
    """
    if host is None:
        return Measuring()
    if isinstance(host, str):
        machines, in_table = law.hosts(), find_host(host) is not None
        if host in machines and not (in_table and mode.framework == COUNTED):
            return Measuring(machines[host])
        if not in_table:
            raise unknown_host(host, machines)
    speed = named_speed(host, mode)
    assert speed is not None  # noqa: S101 - for the type checker: machines of the training data went before
    if mode.framework == COUNTED:
        return Measuring(host=known_host(speed, table, mode))
    # The reference iteration in PyTorch on the middle of the machines of other frameworks: the median over machines
    # whose CPU is known of time / how much slower the machine is than the middle.
    speeds = {machine: find_host(name) for name, machine in law.hosts().items()}
    times = ((machine, known.reference_ms) for machine, known in speeds.items() if known)
    middle_ms = median(time_ms / math.exp(law.host_offset[machine]) for machine, time_ms in times)
    slowness = speed.reference_ms / middle_ms
    return Measuring(host=KnownHost(speed.name, slowness * law.host_ms(mode.framework, table), speed.spread))


def known_host(speed: HostSpeed, table: LayerTable, mode: Mode) -> KnownHost:
    """A host of a known speed, for one of PyTorch's iterations."""
    return KnownHost(speed.name, host_ms(table, mode, speed), speed.spread)
