"""Host and wall times of iterations, eager and compiled: `python benchmarks/compiled_hosts.py --out FILE.csv`.

Each CNN of torchvision, or `unet`, is a process in each mode. Some at a time compile together; then, while all others
wait, one after the other is timed, each beside the reference iteration. `--budget` seconds after the start no more
begin; `--dry-run` takes one on a CPU, tiny, and does not make its kernels.
"""

import argparse
import csv
import multiprocessing
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache, partial
from multiprocessing.connection import wait
from pathlib import Path
from statistics import median
from typing import Any

from machine import machine
from real_epochs import among_others_ms, enqueued_ms

from predictor.catalogue.hosts import REFERENCE_CNN
from predictor.cnns.zoo import zoo_cnn

CNNS = (
    "resnet18", "mobilenet_v2", "convnext_tiny", "resnet50", "efficientnet_b0", "shufflenet_v2_x1_0", "squeezenet1_1",
    "mobilenet_v3_large", "regnet_y_400mf", "resnext50_32x4d", "mnasnet1_0", "regnet_x_800mf", "vgg11_bn", "googlenet",
    "densenet121",
)  # fmt: skip
MODES = ("tf32", "amp_bf16_cl")
"""Of fp32, tf32, amp_bf16; channels-last with _cl."""

_WAYS = "eager:4,eager:64,default:4,default:64"
_COLUMNS = (
    "cnn", "mode", "how", "batch_size", "wall_ms", "enqueue_ms", "reference_ms", "gpu_ms", "kernels", "gpu", "version",
    "machine", "measured_at", "error",
)  # fmt: skip
_REPEATS, _SECONDS = 7, 0.4


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("compiled_hosts.csv"))
    parser.add_argument("--budget", type=float, default=300, help="seconds after which no CNN begins")
    parser.add_argument("--limit", type=float, default=110, help="seconds that those of a round may compile")
    parser.add_argument("--together", type=int, default=10, help="CNNs that compile at a time")
    parser.add_argument("--cnns", default=",".join(CNNS), help="names, joined by commas")
    parser.add_argument("--modes", default=",".join(MODES), help="names, joined by commas")
    parser.add_argument("--ways", default=_WAYS, help="eager or a mode of torch.compile, and batch sizes")
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--dry-run", action="store_true", help="one CNN, tiny, on a CPU")
    options = parser.parse_args(arguments)
    end = time.perf_counter() + options.budget
    cases = [(cnn, mode) for cnn in options.cnns.split(",") for mode in options.modes.split(",")]
    if options.dry_run:
        cases = cases[:2]
    known = len(cases)
    is_new = not options.out.is_file()
    with options.out.open("a", newline="", encoding="utf-8") as file:
        rows = csv.DictWriter(file, _COLUMNS, lineterminator="\n")
        if is_new:
            rows.writeheader()
        while cases and time.perf_counter() < end:
            some, cases = cases[: options.together], cases[options.together :]
            for row in _round(some, min(options.limit, end - time.perf_counter()), options):
                rows.writerow(row)
                file.flush()
                print(*(f"{name} {value}" for name, value in row.items() if value), sep="  ", flush=True)
    print(f"{len(cases)} of {known} left out: the budget is over")
    return 0


def _round(
    cases: list[tuple[str, str]], limit_s: float, options: argparse.Namespace
) -> Iterator[dict[str, Any]]:
    """Compile all, then time one after the other."""
    context: Any = multiprocessing.get_context("spawn")
    end = time.perf_counter() + limit_s
    processes, pipes = [], []
    for case in cases:
        here, there = context.Pipe()
        process = context.Process(target=_work, args=(*case, time.time() + limit_s, options, there))
        process.start()
        there.close()
        processes.append(process)
        pipes.append(here)
    ready: list[Any] = []
    while len(ready) < len(pipes):
        come = wait([pipe for pipe in pipes if pipe not in ready], max(0.0, end + 30 - time.perf_counter()))
        if not come:
            break
        ready += come
    late = [i for i, pipe in enumerate(pipes) if pipe not in ready]
    for i in late:
        _end(processes[i])
    for case, process, pipe in zip(cases, processes, pipes, strict=True):
        if pipe in ready:
            try:
                pipe.recv()
                pipe.send("time")
                yield from pipe.recv() if pipe.poll(60) else [_row(*case, error="timing took over 60 s")]
            except (EOFError, BrokenPipeError):
                yield _row(*case, error="the process ended")
            _end(process)
        else:
            yield _row(*case, error=f"not compiled in {limit_s + 30:.0f} s")


def _end(process: Any) -> None:
    """End a process and those that compile for it; it began a session."""
    process.join(0.2)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
    process.join()


def _row(cnn: str, mode: str, **more: Any) -> dict[str, Any]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return {"cnn": cnn, "mode": mode, "machine": machine(), "measured_at": now, **more}


def _work(cnn: str, mode: str, until: float, options: argparse.Namespace, pipe: Any) -> None:
    """Compile one CNN in a mode, say so, and when told time each of its iterations."""
    os.setsid()
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "2"
    tiny, size = options.dry_run, options.image_size
    with tempfile.TemporaryDirectory() as cache:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = cache
        import torch

        torch.set_num_threads(2)
        device = torch.device("cpu" if tiny else "cuda")
        rows: list[dict[str, Any]] = []
        steps: dict[tuple[str, int], Any] = {}
        for how, batch in (each.split(":") for each in options.ways.split(",")):
            way = how, int(batch)
            if steps and how != "eager" and time.time() > until:
                break
            try:
                steps[way] = _step(cnn, mode, how, 2 if tiny else way[1], 32 if tiny else size, device)
                for _ in range(3):
                    steps[way]()
                _wait(device)
            except Exception as error:  # noqa: BLE001 - a row says so
                steps.pop(way, None)
                rows.append(_failed(cnn, mode, error, way))
            if not tiny:
                torch.cuda.empty_cache()
        pipe.send("ready")
        pipe.recv()
        gpu = "cpu" if tiny else torch.cuda.get_device_name()
        timed = []
        try:
            for way, step in steps.items():
                about = {"gpu": gpu, "version": f"torch {torch.__version__}", **_named(way)}
                timed.append(_row(cnn, mode, **about, **iteration_times(step, device)))
            for row, step in zip(timed, steps.values(), strict=True):
                row |= kernels_of(step, device)
        except Exception as error:  # noqa: BLE001 - it crosses a process border
            rows.append(_failed(cnn, mode, error))
        pipe.send(rows + timed)


def _named(way: tuple[str, int]) -> dict[str, Any]:
    return {"how": way[0], "batch_size": way[1]}


def _failed(cnn: str, mode: str, error: Exception, way: tuple[str, int] | None = None) -> dict[str, Any]:
    return _row(cnn, mode, error=f"{type(error).__name__}: {error}"[:300], **(_named(way) if way else {}))


def _step(cnn: str, mode: str, how: str, batch_size: int, size: int, device: Any) -> Any:
    import torch

    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = mode.startswith("tf32")
    amp, layout = (
        mode.startswith("amp"),
        torch.channels_last if mode.endswith("_cl") else torch.contiguous_format,
    )
    model = _model(cnn).train().to(device, memory_format=layout)
    images = torch.randn(batch_size, 3, size, size, device=device).contiguous(memory_format=layout)
    labels = torch.randint(10, (batch_size, *((size, size) if cnn == "unet" else ())), device=device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    way: dict[str, Any] = {"mode": how} if device.type == "cuda" else {"backend": "aot_eager"}
    trained = model if how == "eager" else torch.compile(model, dynamic=False, **way)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        if how == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast(device.type, torch.bfloat16, enabled=amp):
            loss = torch.nn.functional.cross_entropy(trained(images), labels)
        loss.backward()
        optimizer.step()

    return step


def _model(cnn: str) -> Any:
    import torchvision

    if cnn == "unet":
        from fit_memory import model_of

        return model_of(cnn)
    more = {"aux_logits": False, "init_weights": True} if cnn in ("googlenet", "inception_v3") else {}
    return getattr(torchvision.models, cnn)(weights=None, **more)


def _wait(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize()


def iteration_times(step: Any, device: Any) -> dict[str, Any]:
    """Wall time of an iteration among others, and times to enqueue it and the reference on an idle GPU."""
    reference, idle = reference_iteration(device), partial(_wait, device)
    for _ in range(3):
        step()
    pairs = [(enqueued_ms(reference, idle, 1), enqueued_ms(step, idle, 1)) for _ in range(_REPEATS)]
    reference_ms, enqueue_ms = map(median, zip(*pairs, strict=True))
    wall_ms = among_others_ms(step, idle, max(10, int(1000 * _SECONDS / enqueue_ms)))
    found = {"wall_ms": wall_ms, "enqueue_ms": enqueue_ms, "reference_ms": reference_ms}
    return {name: float(f"{value:.5g}") for name, value in found.items()}


@cache
def reference_iteration(device: Any) -> Any:
    """The iteration that `epochcast host` takes for a host's speed."""
    import torch

    from proxy_cnns.backends.torch.network import network

    model = network(zoo_cnn(*REFERENCE_CNN), "cpu").train().to(device)
    images = torch.randn(8, 3, REFERENCE_CNN[1], REFERENCE_CNN[1], device=device)
    labels = torch.randint(10, (8,), device=device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()

    for _ in range(5):
        step()
    return step


def kernels_of(step: Any, device: Any) -> dict[str, float]:
    """Number and GPU time of the kernels and copies of a step; none on a CPU.

    Time what needs the host before: once a process has profiled, it enqueues 1.3 to 1.5 times as slowly, unless
    ``TEARDOWN_CUPTI=1`` is in its environment (four CNNs before and after a profile on an H100, 2026-11-26).
    """
    import torch

    if device.type != "cuda":
        return {}
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    kernels = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    gpu_ms = sum(event.time_range.elapsed_us() for event in kernels) / 1000
    return {"gpu_ms": float(f"{gpu_ms:.5g}"), "kernels": len(kernels)}


if __name__ == "__main__":
    sys.exit(main())
