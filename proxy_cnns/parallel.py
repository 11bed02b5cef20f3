"""One process for each GPU: each measures every n-th series and writes its own rows file.

A GPU's process sees no other GPU.
"""

import multiprocessing
import os
import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from predictor.errors import BackendUnavailableError, EpochcastError, ProfilingError, SchemaError
from proxy_cnns.campaign import Progress
from proxy_cnns.nvml import gpu_names

__all__ = ["measure_in_parallel", "visible_gpus"]


def visible_gpus(wanted: str) -> tuple[str, ...]:
    """Devices of ``--gpus``: ``all``, or numbers such as ``0,1``.

    Raises
    ------
    SchemaError
        If `wanted` is neither, or names GPUs of different kinds.
    BackendUnavailableError
        If there is no GPU, or none of this number.
    """
    names = _visible_names()
    if wanted.strip() == "all":
        if not names:
            raise BackendUnavailableError(
                "--gpus all finds no GPU: NVIDIA's driver or nvidia-ml-py (pip install 'epochcast[gpu]') is "
                "missing. `epochcast profile doctor` says which; --device cpu measures without."
            )
        chosen = list(range(len(names)))
    else:
        chosen = _numbers(wanted, names)
    kinds = sorted({names[number] for number in chosen}) if names else []
    if len(kinds) > 1:
        raise SchemaError(
            f"--gpus {wanted}: these GPUs differ: {', '.join(kinds)}. Measure each kind into a table of its own."
        )
    return tuple(f"cuda:{number}" for number in chosen)


def _numbers(wanted: str, names: Sequence[str] | None) -> list[int]:
    parts = [part.strip() for part in wanted.split(",")]
    if not all(part.isdecimal() for part in parts) or len(set(parts)) < len(parts):
        raise SchemaError(f"--gpus {wanted!r} is neither `all` nor different numbers such as 0,1.")
    numbers = [int(part) for part in parts]
    if names is not None and max(numbers) >= len(names):
        raise BackendUnavailableError(
            f"there is no GPU {max(numbers)}: this machine has {len(names)}, numbered from 0."
        )
    return numbers


def measure_in_parallel(shares: Sequence[Any], report: Callable[[Progress], None]) -> dict[str, Any]:
    """Measure every share in a process of its own; return the environment of the first.

    Raises
    ------
    EpochcastError
        The first that a process raised, once all have ended.
    ProfilingError
        If a process was killed.
    """
    context = multiprocessing.get_context("spawn")
    messages: Any = context.Queue()
    processes = [
        context.Process(target=_process, args=(share, messages, os.getpid()), daemon=True) for share in shares
    ]
    for process in processes:
        process.start()
    results = _collect(processes, messages, report)
    for process in processes:
        process.join()
    return _first_environment(shares, results)


def _collect(
    processes: Sequence[Any], messages: Any, report: Callable[[Progress], None]
) -> dict[int, dict[str, Any] | EpochcastError]:
    """Pass progress on until every process has sent its result or is gone."""
    results: dict[int, dict[str, Any] | EpochcastError] = {}
    progress: dict[int, Progress] = {}
    while len(results) < len(processes):
        try:
            number, message = messages.get(timeout=0.5)
        except queue.Empty:
            gone = [n for n, each in enumerate(processes) if n not in results and not each.is_alive()]
            if gone and messages.empty():
                results |= {number: _killed(processes[number]) for number in gone}
            continue
        if isinstance(message, Progress):
            progress[number] = message
            report(_together(progress))
        else:
            results[number] = message
    return results


def _killed(process: Any) -> ProfilingError:
    return ProfilingError(
        f"a measuring process ended by itself (exit code {process.exitcode}). What it measured is kept; repeat the "
        "command to go on."
    )


def _together(progress: dict[int, Progress]) -> Progress:
    latest = list(progress.values())
    left = max(each.seconds_left for each in latest)
    return Progress(
        sum(each.done for each in latest), sum(each.total for each in latest), left, latest[-1].now
    )


def _first_environment(
    shares: Sequence[Any], results: dict[int, dict[str, Any] | EpochcastError]
) -> dict[str, Any]:
    ordered = [results[number] for number in range(len(shares))]
    for result in ordered:
        if isinstance(result, EpochcastError):
            raise result
    environments = [result for result in ordered if isinstance(result, dict)]
    return environments[0] | {"gpus": len(shares)}


def _process(share: Any, messages: Any, parent: int) -> None:
    """Measure on the one GPU that this process is shown, and say how it went."""
    from proxy_cnns.runs import measure_share

    _end_with(parent)
    shown = _show_only(share.device)
    try:
        result: Any = measure_share(
            replace(share, device=shown), lambda progress: messages.put((share.number, progress))
        )
    except EpochcastError as error:
        result = error
    messages.put((share.number, result))


def _show_only(device: str) -> str:
    if device == "cpu":
        return device
    number = int(device.partition(":")[2])
    visible = [each.strip() for each in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if each.strip()]
    os.environ["CUDA_VISIBLE_DEVICES"] = visible[number] if number < len(visible) else str(number)
    return "cuda:0"


def _end_with(parent: int) -> None:
    """End this process when its parent is killed: nobody would collect what it measures."""

    def watch() -> None:
        while os.getppid() == parent:
            threading.Event().wait(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _visible_names() -> list[str] | None:
    """Names of the GPUs that are visible here; None where the driver cannot be asked."""
    names, visible = gpu_names(), os.environ.get("CUDA_VISIBLE_DEVICES")
    if names is None or visible is None:
        return names
    shown = [each.strip() for each in visible.split(",") if each.strip()]
    return [names[int(each)] if each.isdecimal() and int(each) < len(names) else each for each in shown]
