"""Forecasts and truths of the steps in `training_steps.py` and `training_steps_3.py`: GPU time, iteration and memory.

`python benchmarks/trainings.py --forecast FILE` records each step and writes what epochcast answers, on no GPU;
`--measure FILE` runs them on this machine's GPU; `--judge FORECASTS MEASURED` compares. `--tiny` takes small sizes.
GPU time is that of all kernels and copies of three iterations by PyTorch's profiler, the iteration the median of three
stretches of iterations before anything is profiled, memory PyTorch's peak beside which a CUDA context lies.
"""

import argparse
import csv
import gc
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from statistics import mean, median
from typing import Any

import torch  # noqa: TID253 - what is measured
import training_steps_3  # noqa: F401 - adds its steps
from training_steps import STEPS

GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
LISTS: dict[str, list[str]] = {}
for _name, _make in STEPS.items():
    LISTS.setdefault(_make.__module__, []).append(_name)
HERE = Path(__file__).parent
HOSTS = {"": None, "h100_16_cores": str(HERE.parent / "datasets/hosts/h100_16_cores.json")}
HOSTS |= {name: str(HERE / f"{name}.json") for name in ("third_host_before", "third_host_after")}
"""Files of `epochcast host`: the last two by the minutes in which the third list ran."""
CONTEXT_GIB = 0.5
WARM, PROFILED, STRETCHES, STRETCH_S = 4, 3, 3, 0.4
GOALS = {"gpu_time_ms": 0.08, "iteration_time_ms": 0.10, "peak_memory_gib": 0.06}
Row = dict[str, Any]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help=f"steps or {', '.join(LISTS)} (all)")
    parser.add_argument("--forecast", type=Path, metavar="FILE")
    parser.add_argument("--measure", type=Path, metavar="FILE")
    parser.add_argument("--judge", type=Path, nargs=2, metavar="FILE")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--device", default="cuda", help="where --measure runs")
    parser.add_argument("--seconds", type=float, default=300.0, help="of --measure: half of them for times")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    names = [name for given in options.names or LISTS for name in LISTS.get(given, [given])]
    if options.forecast:
        write(options.forecast, forecasts(names, options.tiny))
    if options.measure:
        write(options.measure, truths(names, options.tiny, options.device, options.seconds))
    if options.judge:
        judge(*options.judge)
    return 0


def write(path: Path, rows: Iterator[Row]) -> None:
    """Write each row as it comes, so that a stopped run keeps what it has."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = None
        for row in rows:
            writer = writer or csv.DictWriter(file, list(row), lineterminator="\n")
            writer.writerow(row) if file.tell() else (writer.writeheader(), writer.writerow(row))
            file.flush()
            print(
                ", ".join(
                    f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values()
                )
            )


ANSWERED: tuple[str, ...] = (
    "batch_size",
    "gpu_time_ms",
    "gpu_low_ms",
    "gpu_high_ms",
    "host_time_ms",
    "iteration_time_ms",
)
ANSWERED += ("low_ms", "high_ms", "peak_memory_gib")


def forecasts(names: list[str], tiny: bool) -> Iterator[Row]:
    """Answers by step, GPU and host, the usual one and one of `datasets/hosts`; a refusal is the row's error."""
    import epochcast
    from predictor.errors import EpochcastError

    for name in names:
        try:
            table = epochcast.record(STEPS[name](tiny))
        except EpochcastError as error:
            yield {"step": name, "gpu": "", "host": "", **dict.fromkeys(ANSWERED), "error": str(error)[:200]}
            continue
        for gpu, (host, file) in product(GPUS, HOSTS.items()):
            row = epochcast.predict(table, gpu, host=file).iloc[0]
            yield {"step": name, "gpu": gpu, "host": host, **{key: row[key] for key in ANSWERED}, "error": ""}


def truths(names: list[str], tiny: bool, device: str, seconds: float) -> Iterator[Row]:
    """Times of all steps, then the rows with their kernels: a process enqueues more slowly once it has profiled."""
    begin, timed = time.perf_counter(), {}
    for name in names:
        if time.perf_counter() - begin < seconds / 2:
            timed[name] = tried(timing, name, tiny, device)
            print(name, timed[name])
    for name, row in timed.items():
        if time.perf_counter() - begin < seconds:
            found = row if row["error"] else row | tried(kernels, name, tiny, device)
            yield {"step": name} | {key: found.get(key) for key in (*MEASURED, "error")}


def tried(measure: Callable[[Any, str], Row], name: str, tiny: bool, device: str) -> Row:
    """What is measured of a fresh step; one that this PyTorch cannot run stops no other."""
    torch.manual_seed(0)
    step: Any = None
    try:
        with torch.device(device):
            step = STEPS[name](tiny)
        return measure(step, device) | {"error": ""}
    except (RuntimeError, ValueError) as error:
        return {"error": str(error).splitlines()[0][:200]}
    finally:
        step = None
        gc.collect()
        if device == "cuda":
            torch.cuda.empty_cache()


TIMED: tuple[str, ...] = ("gpu", "torch", "iteration_time_ms", "iteration_min_ms", "iteration_max_ms")
TIMED += ("peak_allocated_gib", "peak_reserved_gib")
MEASURED = (*TIMED[:2], "gpu_time_ms", *TIMED[2:5], "kernels", *TIMED[5:])


def warmed(step: Any, device: str) -> Callable[[], None]:
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(WARM):
        step()
    wait()
    return wait


def timing(step: Any, device: str) -> Row:
    on_gpu = device == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    wait = warmed(step, device)
    stretches = []
    for _ in range(STRETCHES):
        n, start = 0, time.perf_counter()
        while n < 3 or time.perf_counter() - start < STRETCH_S:
            step()
            n += 1
        wait()
        stretches.append(1000 * (time.perf_counter() - start) / n)
    gib = [0.0, 0.0]
    if on_gpu:
        gib = [peak() / 2**30 for peak in (torch.cuda.max_memory_allocated, torch.cuda.max_memory_reserved)]
    gpu = torch.cuda.get_device_name() if on_gpu else "cpu"
    times = (median(stretches), min(stretches), max(stretches))
    values = (gpu, torch.__version__, *times, *gib)
    return dict(zip(TIMED, values, strict=True))


def kernels(step: Any, device: str) -> Row:
    wait = warmed(step, device)
    kind = torch.profiler.ProfilerActivity.CUDA if device == "cuda" else torch.profiler.ProfilerActivity.CPU
    with torch.profiler.profile(activities=[kind]) as profile:
        for _ in range(PROFILED):
            step()
        wait()
    on_device = (event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA)
    ran = [
        (event.time_range.start, event.time_range.end)
        for event in on_device
        if not event.name.startswith("Optimizer.")
    ]
    return {"gpu_time_ms": union(ran) / 1000 / PROFILED, "kernels": len(ran) / PROFILED}


def union(spans: list[tuple[float, float]]) -> float:
    """Length of all spans together; where some run beside each other, as on a recurrent layer's streams, once."""
    total, until = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, until))
        until = max(until, end)
    return total


def compared(
    forecast: Path, truth: Path, host: str = ""
) -> tuple[dict[str, dict[str, tuple[float, float]]], int]:
    """Forecast and truth of each goal by step, answered for a host, and how many iterations lie in their interval."""
    with truth.open(encoding="utf-8") as file:
        seen = {row["step"]: row for row in csv.DictReader(file) if not row["error"]}
    with forecast.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if seen.get(row["step"], {}).get("gpu") == row["gpu"]]
    found, inside = {}, 0
    for row in rows:
        if row.get("host", "") == host:
            real = {name: float(seen[row["step"]][name]) for name in ("gpu_time_ms", "iteration_time_ms")}
            real["peak_memory_gib"] = float(seen[row["step"]]["peak_allocated_gib"]) + CONTEXT_GIB
            inside += float(row["low_ms"]) <= real["iteration_time_ms"] <= float(row["high_ms"])
            found[row["step"]] = {name: (float(row[name]), value) for name, value in real.items()}
    return found, inside


def judge(forecast: Path, truth: Path) -> None:
    """Print each step's error, the mean over steps, and how many lie within the interval, for each host."""
    for host in HOSTS:
        found, inside = compared(forecast, truth, host)
        for step, numbers in found.items():
            parts = (
                f"{name[:4]} {a:7.2f} for {b:7.2f} ({a / b - 1:+.1%})" for name, (a, b) in numbers.items()
            )
            print(f"{step:30}", *parts)
        for name, goal in GOALS.items() if found else ():
            error = mean(abs(a / b - 1) for a, b in (numbers[name] for numbers in found.values()))
            print(f"{name}: {error:.1%} on average, goal {goal:.0%}")
        print(f"host {host or 'not named'}: {inside} of {len(found)} iterations inside their interval\n")


if __name__ == "__main__":
    sys.exit(main())
