"""Times the same questions in two builds of the project, in turn: `python benchmarks/speed.py --against CHECKOUT`.

A process of each build, one after the other, asks through the public faces alone, so that the builds may differ inside.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import TypeVar

PAIRS = 5
REPEATS = 5
CNNS = ("resnet18", "resnet50", "vgg16", "mobilenet_v2", "densenet121")
GPUS = ("K80", "M60", "T4", "V100-SXM2-16GB", "P100-PCIE-16GB", "RTX 2080 Ti", "RTX 3090", "A100-SXM4-40GB")
SAMPLES = range(50_000, 50_049)
COMMAND = [sys.executable, "-c", "from epochcast.command import main; main()"]
NUMPY = [sys.executable, "-c", "import numpy"]
COMMANDS = {
    "python -c 'import numpy', whole process": [],
    "command: predict, whole process": ["predict", "resnet50", "-g", "T4", "-b", "64"],
    "command: compare, whole process": ["compare", "resnet50", "--data-set", "imagenet"],
    "command: a million rows, Parquet": ["predict", "--rows", "rows.parquet", "--out", "answers.parquet"],
}


Result = TypeVar("Result")


def compare_builds(other: Path) -> None:
    """Print processor times of both builds, medians of pairs, and the median ratio of a pair.

    Raises
    ------
    SystemExit
        If `other` is no checkout, or its packages are not those that a process started there imports.
    """
    here = Path(__file__).resolve().parents[1]
    other = other.resolve()
    if not (other / "predictor/__init__.py").is_file():
        sys.exit(f"{other} is no checkout of epochcast: it has no predictor/. Pass the folder of one.")
    times_by_build: dict[Path, list[dict[str, float]]] = {here: [], other: []}
    with tempfile.TemporaryDirectory() as folder:
        write_questions(Path(folder) / "rows.parquet")
        for _ in range(PAIRS):
            for build, runs in times_by_build.items():
                runs.append(times_of_build(build, Path(folder)))
    print(f"{'question, never asked before':48}{'CPU ms':>10}{'against':>10}{'ratio':>8}{'x numpy':>9}")
    bare_ms, *_ = ([run[next(iter(COMMANDS))] for run in runs] for runs in times_by_build.values())
    for name in times_by_build[here][0]:
        ours, theirs = ([run[name] for run in runs] for runs in times_by_build.values())
        ratio = _median_ratio(ours, theirs)
        over_bare = f"{_median_ratio(ours, bare_ms):9.2f}" if name in COMMANDS else ""
        print(
            f"{name:48}{statistics.median(ours):10.2f}{statistics.median(theirs):10.2f}{ratio:8.2f}{over_bare}"
        )


def _median_ratio(times_ms: list[float], bases_ms: list[float]) -> float:
    return statistics.median(own / base for own, base in zip(times_ms, bases_ms, strict=True))


def write_questions(path: Path) -> int:
    """Write a million questions, all distinct, as Parquet, and say how many."""
    import pandas as pd

    questions = list(product(CNNS, GPUS, range(1, 513), SAMPLES))
    rows = pd.DataFrame(questions, columns=["cnn", "gpu", "batch_size", "samples"])
    rows.assign(precision="fp32", image_size=224).to_parquet(path)
    return len(questions)


def times_of_build(build: Path, folder: Path) -> dict[str, float]:
    """Processor time of each question in ms, asked in new processes that import the packages of `build`."""
    environment = os.environ | {"PYTHONPATH": str(build), "EPOCHCAST_STORE": ""}
    # as installed: the sources are compiled once, wherever the bytecode lies
    environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    # as users ask, who set no number of threads; processor time is that of all threads
    as_typed = {name: value for name, value in environment.items() if not name.endswith("_NUM_THREADS")}
    child = [sys.executable, __file__, str(build)]
    times: dict[str, float] = json.loads(output_of(child, folder, as_typed))
    for name, arguments in COMMANDS.items():
        before_s = _children_s()
        output_of([*COMMAND, *arguments] if arguments else NUMPY, folder, as_typed)
        times[name] = 1000 * (_children_s() - before_s)
    return times


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def output_of(command: list[str], folder: Path, environment: dict[str, str]) -> str:
    """What a command prints; the benchmark ends with its error if it fails."""
    run = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if run.returncode:
        sys.exit(f"{environment['PYTHONPATH']} does not answer: {run.stderr.strip()[-2000:]}")
    return run.stdout


def ask(build: Path) -> dict[str, float]:
    """Least processor time in ms of each question in this process, which imports the packages of `build`."""
    import epochcast

    if build not in Path(epochcast.__file__).parents:
        sys.exit(f"the epochcast of {epochcast.__file__} is imported, not that of {build}.")
    first_sizes = iter(range(1, 50))
    common = {"precision": "fp32", "data_set": "imagenet"}

    def sizes() -> list[int]:
        return list(range(next(first_sizes), 500, 50))

    image_sizes = iter(range(190, 222, 2))
    epochcast.predict("resnet50", "all", sizes(), **common)
    epochcast.compare("resnet50", data_set="imagenet")
    return {
        "predict, 1 GPU x 10 batch sizes": least_ms(lambda: epochcast.predict("resnet50", "T4", sizes(), **common)),
        "predict, 1 GPU with measured layers x 10": least_ms(
            lambda: epochcast.predict("resnet50", "H200", sizes(), **common | {"precision": "tf32"})
        ),
        "predict, 1 GPU x 1 batch size": least_ms(lambda: epochcast.predict("resnet50", "T4", sizes()[1:2], **common)),
        "predict, all GPUs x 10 batch sizes": least_ms(lambda: epochcast.predict("resnet50", "all", sizes(), **common)),
        "compare, a new image size": least_ms(
            lambda: epochcast.compare("resnet50", data_set="imagenet", image_size=next(image_sizes))
        ),
        "compare, asked before": least_ms(lambda: epochcast.compare("resnet50", data_set="imagenet")),
        "REST, 1 GPU x 2 batch sizes": least_ms(new_question_to_service(first_sizes)),
    }  # fmt: skip


def new_question_to_service(sizes: Iterator[int]) -> Callable[[], None]:
    """A function that asks a service in this process about the next of `sizes`, so that no kept answer is sent."""
    from starlette.testclient import TestClient

    from api.main import create_app
    from api.settings import Settings

    client = TestClient(create_app(Settings()), base_url="http://127.0.0.1")

    def new_question() -> None:
        size = next(sizes)
        batch_sizes = [size, size + 50]
        question = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": batch_sizes, "data_set": "imagenet"}
        client.post("/v1/predictions", json=question).raise_for_status()

    return new_question


def least_ms(question: Callable[[], object]) -> float:
    """Least processor time of a question, in ms."""
    return 1000 * least_s(question)[0]


def least_s(
    work: Callable[[], Result], clock: Callable[[], float] = time.process_time
) -> tuple[float, Result]:
    """Least time of several runs, in s of processor time or of another clock, and what the last one gives."""
    times = []
    for _ in range(REPEATS):
        started = clock()
        result = work()
        times.append(clock() - started)
    return min(times), result


if __name__ == "__main__":
    print(json.dumps(ask(Path(sys.argv[1]))))
