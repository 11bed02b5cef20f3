"""From the options of `epochcast profile` to the instrument's request: presets, modes, devices, times."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.answers.options import check_known, options_of, worded
from predictor.catalogue.modes import Mode
from predictor.checks import batch_sizes_of
from predictor.errors import SchemaError

if TYPE_CHECKING:
    from collections.abc import Callable

    from proxy_cnns.configuration import Configuration
    from proxy_cnns.jobs import Progress, Request
    from proxy_cnns.runs import Outcome

_CPU_PRESET, _CPU_BATCH_SIZE = "cnn:resnet18@32", "32"
_SECONDS = {"": 1.0, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "ms": 0.001}


WHAT, HOW_LONG = "What to measure", "Time and noise"
"""Groups of options in the help."""

_option = partial(worded, answers=("profile",))


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """The options of `epochcast profile`; an empty list or None means the preset's default.

    No preset is `quick`; on a processor, which has no time for all of it, a small CNN at one batch size.
    """

    preset: str | None = _option(None, panel=WHAT)
    framework: str = _option("pytorch", panel=WHAT)
    precisions: Sequence[str] = _option((), "words", WHAT, flag="--precision")
    memory_formats: Sequence[str] = _option((), "words", WHAT, flag="--memory-format")
    capture: str = _option("eager", panel=WHAT)
    autotune: bool = _option(False, "flag", WHAT)
    batch_sizes: Sequence[str] = _option((), "sizes", WHAT, flag="--batch-size -b")
    limit: int | None = _option(None, "whole", WHAT, low=1, high=10**9)
    device: str = _option("cuda")
    gpus: str | None = _option(None)
    scheduler: str | None = _option(None)
    time_limit: str | None = _option(None, panel=HOW_LONG)
    longest: str = _option("1s", panel=HOW_LONG)
    allow_noise: bool = _option(False, "flag", HOW_LONG)

    @classmethod
    def of(cls, options: Mapping[str, Any], **more: Any) -> ProfileRequest:
        """Check options as they are typed; SchemaError or OutOfRangeError for one that is unknown or makes no sense."""
        declared = options_of(cls)
        for name in options:
            check_known(name, declared)
        return cls(**{name: declared[name].checked(value) for name, value in options.items()}, **more)


def request_for(options: ProfileRequest, out: str | PathLike[str]) -> tuple[Request, list[Configuration]]:
    """The instrument's request, and the configurations that the preset leaves out as too long or too large.

    SchemaError if an option is invalid; the message names the nearest valid one. GPUs that train together are measured
    with PyTorch, eager, on one machine.
    """
    from proxy_cnns.data_parallel import TOGETHER, device_count, gpu_counts
    from proxy_cnns.presets import configurations, in_modes, parallel_configurations, preset

    options = _with_preset(options)
    chosen = preset(str(options.preset))
    sizes = batch_sizes_of(list(options.batch_sizes)) if options.batch_sizes else None
    modes = asked_modes(chosen.modes, options)
    if _split_words(options.precisions) or _split_words(options.memory_formats):
        kept, left_out = configurations(replace(chosen, blocks=()), sizes, modes)
    else:
        kept, left_out = configurations(in_modes(chosen, modes), sizes)
    if not chosen.together:
        return measuring_request(chosen.name, kept, options, out), left_out
    if options.scheduler is not None:
        raise SchemaError(
            f"the preset {chosen.name} measures the GPUs of one machine together. Run it there, without --scheduler."
        )
    if (options.framework, options.capture) != ("pytorch", "eager"):
        raise SchemaError(
            f"--framework {options.framework} --capture {options.capture}: GPUs that train together are measured with "
            "pytorch, eager."
        )
    team = parallel_configurations(kept, gpu_counts(device_count(_devices(options))))
    request = measuring_request(chosen.name, team, options, out)
    return replace(request, devices=(",".join(request.devices),), **TOGETHER), left_out


def default_words(options: ProfileRequest) -> str:
    """Sentence on what a processor measures by default; empty if a preset is named."""
    if options.preset is not None or options.device != "cpu":
        return ""
    sizes = ", ".join(_with_preset(options).batch_sizes)
    return f"On a processor: the operators of ResNet-18 at 32 px, batch {sizes}; --preset names others."


def _with_preset(options: ProfileRequest) -> ProfileRequest:
    if options.preset is not None:
        return options
    if options.device != "cpu":
        return replace(options, preset="quick")
    return replace(options, preset=_CPU_PRESET, batch_sizes=options.batch_sizes or (_CPU_BATCH_SIZE,))


def run_profile(
    request: Request, scheduler: str | None = None, report: Callable[[Progress], None] = lambda _: None
) -> Outcome:
    """Measure a request on this machine, or on workers of a Dask scheduler; errors are those of `runs.profile`."""
    from proxy_cnns.runs import measured_by, profile

    if scheduler is None:
        return profile(request, report)
    from epochcast.fleet import Fleet

    with Fleet(scheduler) as fleet:
        return profile(request, report, measured_by(fleet))


def measuring_request(
    name: str, configurations: Sequence[Configuration], options: ProfileRequest, out: str | PathLike[str]
) -> Request:
    """The request that measures these configurations, at most `options.limit` of them, in this order."""
    from proxy_cnns.jobs import Request
    from proxy_cnns.modes import refuse_captured_operators

    chosen = tuple(configurations[: options.limit])
    refuse_captured_operators(chosen)
    return Request(
        name,
        chosen,
        options.framework,
        _devices(options),
        Path(out),
        None if options.time_limit is None else seconds(options.time_limit, "--time-limit"),
        options.allow_noise or options.device == "cpu",  # on which something else always works
        1000 * seconds(options.longest, "--longest"),
    )


def seconds(text: str, option: str) -> float:
    """Read ``180s``, ``3min``, ``1h`` or a number of seconds; SchemaError if it is none of these, or not above 0."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", text)
    if match is None or match[2] not in _SECONDS or float(match[1]) <= 0:
        raise SchemaError(f"{option} {text!r} is not a time above 0. Try: {option} 180s, 3min or 1h.")
    return float(match[1]) * _SECONDS[match[2]]


def asked_modes(defaults: Sequence[Mode], options: ProfileRequest) -> list[Mode]:
    """The preset's modes that framework and GPU have, or every combination of the options' modes; on a CPU fp32."""
    from proxy_cnns.modes import measurable_modes, modes_of_gpu

    precisions = _split_words(options.precisions) or (["fp32"] if options.device == "cpu" else [])
    formats = _split_words(options.memory_formats)
    elsewhere = options.device == "cpu" or options.scheduler is not None
    chosen = list(defaults) if elsewhere else modes_of_gpu(defaults)
    if precisions or formats:
        chosen = [
            Mode(precision=precision, memory_format=memory_format)
            for precision in precisions or dict.fromkeys(mode.precision for mode in defaults)
            for memory_format in formats or ["nchw"]
        ]
    modes = dict.fromkeys(
        replace(mode, framework=options.framework, capture=capture, autotune=options.autotune)
        for mode in chosen
        for capture in _split_words([options.capture])
    )
    named_by_user = {"precision_asked": bool(_split_words(options.precisions)), "format_asked": bool(formats)}
    return measurable_modes(list(modes), options.device, **named_by_user)


def _devices(options: ProfileRequest) -> tuple[str, ...]:
    if options.scheduler is not None and (options.gpus is not None or options.device not in ("cpu", "cuda")):
        flag = f"--device {options.device}" if options.gpus is None else f"--gpus {options.gpus}"
        raise SchemaError(
            f"{flag} names GPUs of this machine, and --scheduler measures on others. Start a worker for each GPU."
        )
    if options.gpus is not None:
        from proxy_cnns.device import visible_gpus

        return visible_gpus(options.gpus)
    if options.device == "cuda":
        return ("cuda:0",)
    if options.device != "cpu" and not re.fullmatch(r"cuda:\d+", options.device):
        raise SchemaError(f"--device {options.device!r} is neither cpu nor cuda nor cuda:N, such as cuda:1.")
    return (options.device,)


def _split_words(texts: Sequence[str]) -> list[str]:
    return [word.strip() for text in texts for word in text.split(",") if word.strip()]
