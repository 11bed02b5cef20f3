"""How much processor time answers take that were never asked before: every question has batch sizes of its own.

Run it as `python benchmarks/bench_answers.py`; BLAS is held to one thread. Processor time, best of several, since
other work on the machine changes it least; starts of a process are wall time, best of several.
"""

# ruff: noqa: E402 - BLAS reads its number of threads when numpy is imported

import csv
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

from machine import machine

import epochcast
import predictor

REPEATS = 5
STARTS = 5
BULK_ROWS = 100_000
QUESTION = {"precision": "fp32", "data_set": "imagenet"}
FRESH_CNNS = ("resnet34", "mobilenet_v2", "densenet121", "vgg16")
COMMAND = [sys.executable, "-c", "from epochcast.command import main; main()"]


def main() -> int:
    print(f"answers | {datetime.now(UTC):%Y-%m-%d} | {machine()} | load {os.getloadavg()[0]:.1f}\n")
    print(f"{'question, never asked before':48}{'CPU ms':>10}{'rows':>9}")
    for name, milliseconds, rows in (*answers(), bulk()):
        print(f"{name:48}{milliseconds:10.1f}{rows:9,}")
    print(f"\n{'compare of every offer over predict of all GPUs x 10':48}{'x CPU':>12}")
    of_every_offer()  # reads measured layers, once a process
    for cnn in FRESH_CNNS:
        print(f"{cnn + ', neither asked before':48}{compared_to_predict(cnn):12.1f}")
    print(f"\n{'files of the project entered, asked twice before':48}{'files':>10}")
    for name, ask in (
        ("predict, 1 GPU x 2 batch sizes", on_two_sizes),
        ("compare, every offer", of_every_offer),
    ):
        print(f"{name:48}{files_entered(ask):10}")
    print(f"\n{'start of a process':48}{'wall ms':>10}{'x bare':>9}")
    bare = None
    for name, command in (
        ("python -c pass", [sys.executable, "-c", "pass"]),
        ("epochcast --help", [*COMMAND, "--help"]),
        ("epochcast predict resnet50 -g T4 -b 64", [*COMMAND, "predict", "resnet50", "-g", "T4", "-b", "64"]),
    ):
        milliseconds = best_start_ms(command)
        bare = bare or milliseconds
        print(f"{name:48}{milliseconds:10.0f}{milliseconds / bare:9.1f}")
    return 0


def compared_to_predict(cnn: str) -> float:
    """Processor time of a comparison of every offer over that of a prediction on every GPU at ten batch sizes."""
    started = time.process_time()
    epochcast.predict(cnn, "all", list(range(1, 500, 50)), **QUESTION)
    between = time.process_time()
    epochcast.compare(cnn, all_offers=True, data_set="imagenet")
    return (time.process_time() - between) / (between - started)


def on_two_sizes() -> None:
    epochcast.predict("resnet50", "T4", [64, 128], **QUESTION)


def of_every_offer() -> None:
    epochcast.compare("resnet50", all_offers=True, data_set="imagenet")


def files_entered(ask: Callable[[], None]) -> int:
    """Distinct files of the project with a function that a question calls, when it was asked twice before."""
    packages = tuple(str(Path(str(package.__file__)).parent) for package in (epochcast, predictor))
    entered: set[str] = set()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(packages):
            entered.add(frame.f_code.co_filename)

    ask()
    ask()
    sys.setprofile(note)
    try:
        ask()
    finally:
        sys.setprofile(None)
    return len(entered)


def answers() -> Iterator[tuple[str, float, int]]:
    """Each question's name, best processor time in ms and rows; the first answer loads the model and is not timed."""
    sizes = fresh_batch_sizes()
    epochcast.predict("resnet50", "all", next(sizes), **QUESTION)

    def on_one_gpu() -> int:
        return len(epochcast.predict("resnet50", "T4", next(sizes), **QUESTION))

    def on_every_gpu() -> int:
        return len(epochcast.predict("resnet50", "all", next(sizes), **QUESTION))

    def of_layers() -> int:
        return len(epochcast.predict("resnet50", "H200", next(sizes), **QUESTION | {"precision": "tf32"}))

    def of_all_offers() -> int:
        return len(epochcast.compare("resnet50", batch_size=next(sizes), all_offers=True, **QUESTION))

    for name, ask in (
        ("predict, 1 GPU x 10 batch sizes", on_one_gpu),
        ("predict, 1 GPU with measured layers x 10", of_layers),
        ("predict, all GPUs x 10 batch sizes", on_every_gpu),
        ("compare, every offer x 10 batch sizes", of_all_offers),
    ):
        yield name, *best_ms(ask)


def fresh_batch_sizes() -> Iterator[list[int]]:
    """Ten batch sizes at a time, none of them twice."""
    first = 1
    while True:
        yield list(range(first, first + 500, 50))
        first += 1
        assert first <= 50, "no fresh batch sizes are left: ask fewer questions"


def bulk() -> tuple[str, float, int]:
    """Rows of a CSV in a process of its own, so that none is known from before."""
    with tempfile.TemporaryDirectory() as folder:
        asked, answered = Path(folder) / "asked.csv", Path(folder) / "answered.csv"
        command = [*COMMAND, "predict", "--rows", str(asked), "--out", str(answered)]
        write_questions(asked)
        milliseconds = min(children_ms(command) for _ in range(3))
    return "predict --rows, a process, its start included", milliseconds, BULK_ROWS


def write_questions(path: Path) -> None:
    cnns = ("resnet18", "resnet50", "vgg16", "mobilenet_v2", "densenet121")
    gpus = ("Tesla K80", "Tesla M60", "Tesla T4", "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB")
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["cnn", "image_size", "gpu", "batch_size", "precision", "samples"])
        for i in range(BULK_ROWS):
            writer.writerow([cnns[i % 5], 224, gpus[i // 5 % 5], 1 + i // 25 % 512, "fp32", 50_000 + i % 7])


def best_ms(work: Callable[[], int]) -> tuple[float, int]:
    """Least processor time of several runs in ms, and the rows answered."""
    times, rows = [], 0
    for _ in range(REPEATS):
        started = time.process_time()
        rows = work()
        times.append(1000 * (time.process_time() - started))
    return min(times), rows


def children_ms(command: list[str]) -> float:
    """Processor time of a process in ms."""
    before = os.times()
    subprocess.run(command, check=True, capture_output=True)
    after = os.times()
    return 1000 * (
        after.children_user + after.children_system - before.children_user - before.children_system
    )


def best_start_ms(command: list[str]) -> float:
    """Least wall time of a process in ms."""
    times = []
    for _ in range(STARTS):
        started = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        times.append(1000 * (time.perf_counter() - started))
    return min(times)


if __name__ == "__main__":
    sys.exit(main())
