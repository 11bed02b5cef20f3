"""How fast answers come: `python benchmarks/speed.py [answers] [bulk] [device] [start]`, all of them by default.

- `answers`: processor time of questions that were never asked before, and the files of the project that they enter.
- `bulk`: rows per second of one core, from CSV and from Parquet; `--rows` in a process of 2 GiB; a million distinct
  rows beside what plain pandas takes to join them with GPUs, compute as many columns, and write them, in turn.
- `device`: distinct questions per second on one core and on a GPU through CuPy, in the same run, and how far apart.
- `start`: wall time of a process, beside a Python that does nothing.
- `--against CHECKOUT`: the same questions in this build and in another one, in turn, and the ratio of their times.

BLAS and Arrow are held to one thread, but for `--against`. Best of several runs, since other work on the machine
changes it least.
"""

# ruff: noqa: E402, TID253 - BLAS reads its number of threads when numpy is imported; a benchmark may need Arrow

import argparse
import csv
import os
import re
import resource
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count, product
from pathlib import Path
from types import FrameType

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from builds import (
    CNNS,
    COMMAND,
    GPUS,
    REPEATS,
    ask,
    compare_builds,
    least_s,
    new_question_to_service,
    write_questions,
)
from machine import heading

import api
import epochcast
import predictor
from predictor.answers.bulk import FITS, NUMBERS, WORDS, predict_rows
from predictor.catalogue.devices import all_gpus, default_precision, find_gpu
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import BackendUnavailableError
from predictor.models.roofline.arrays import DEVICES, arrays_on
from predictor.models.roofline.terms import KernelContext
from predictor.models.served import Model
from predictor.operators.kernels import kernels_of

QUESTION = {"precision": "fp32", "data_set": "imagenet"}
FRESH_CNNS = ("resnet34", "mobilenet_v2", "densenet121", "vgg16")
BATCH_SIZES = range(1, 513)
OF_A_BATCH = 500_000
MOST_GIB = 2
MOST_APART = 1e-12

Floats = np.ndarray


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", choices=[[], *PARTS], help="what to measure [all]")
    parser.add_argument(
        "--rows", type=int, default=10_000_000, help="rows of the last bulk measurement [10 million]"
    )
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another build, timed in turn")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    if options.child:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_GIB * 2**30, MOST_GIB * 2**30))
        CHILDREN[options.child[0]](*options.child[1:])
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)  # of the processor in s, peak in MiB
        return 0
    if options.against:
        print(heading("speed", load=True), flush=True)
        compare_builds(options.against)
        return 0
    failed = 0
    for name in options.parts or PARTS:
        print(heading(name, load=True), flush=True)
        failed += PARTS[name](options.rows)
        print(flush=True)
    return int(failed > 0)


def answers(_rows: int) -> int:
    print(f"{'question, never asked before':48}{'CPU ms':>10}")
    for name, milliseconds in ask(Path(__file__).resolve().parents[1]).items():
        print(f"{name:48}{milliseconds:10.1f}")
    print(f"\n{'compare of every offer over predict of all GPUs x 10':48}{'x CPU':>12}")
    of_every_offer()  # reads measured layers, once a process
    for cnn in FRESH_CNNS:
        started = time.process_time()
        epochcast.predict(cnn, "all", list(range(1, 500, 50)), **QUESTION)
        between = time.process_time()
        epochcast.compare(cnn, all_offers=True, data_set="imagenet")
        ratio = (time.process_time() - between) / (between - started)
        print(f"{cnn + ', neither asked before':48}{ratio:12.1f}")
    print(f"\n{'files of the project entered, asked twice before':48}{'files':>10}")
    questions = {
        "predict, 1 GPU x 2 batch sizes": partial(epochcast.predict, "resnet50", "T4", [64, 128], **QUESTION),
        "compare, every offer": of_every_offer,
        "REST, a new question of 1 GPU x 2 batch sizes": new_question_to_service(count(1)),
    }
    for name, question in questions.items():
        print(f"{name:48}{files_entered(question):10}")
    return 0


def start(_rows: int) -> int:
    text = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    demo = re.search(r"^DEMO := (.*)$", text, re.MULTILINE)
    assert demo is not None, "the Makefile no longer has the arguments of `make predict` in DEMO"
    cases = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "epochcast --help": [*COMMAND, "--help"],
        "epochcast predict resnet50 -g T4 -b 64": [*COMMAND, "predict", "resnet50", "-g", "T4", "-b", "64"],
        "make predict": [*COMMAND, *shlex.split(demo[1])],
    }
    print(f"{'start of a process':48}{'wall ms':>10}{'x bare':>9}")
    bare = None
    for name, command in cases.items():
        run = partial(subprocess.run, command, check=True, capture_output=True)
        milliseconds = 1000 * least_s(run, time.perf_counter)[0]
        bare = bare or milliseconds
        print(f"{name:48}{milliseconds:10.0f}{milliseconds / bare:9.1f}", flush=True)
    return 0


def of_every_offer() -> None:
    epochcast.compare("resnet50", all_offers=True, data_set="imagenet")


def files_entered(question: Callable[[], object]) -> int:
    """Distinct files of the project with a function that a question calls, when it was asked twice before.

    Threads count that begin while it is asked, as those of a service do.
    """
    packages = tuple(str(Path(str(package.__file__)).parent) for package in (api, epochcast, predictor))
    entered: set[str] = set()
    counting = False

    def note(frame: FrameType, event: str, _: object) -> None:
        if counting and event == "call" and frame.f_code.co_filename.startswith(packages):
            entered.add(frame.f_code.co_filename)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        question()
        question()
        counting = True
        question()
    finally:
        counting = False
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return len(entered)


def bulk(n_rows: int) -> int:
    print(f"{'what':52}{'rows':>12}{'CPU s':>9}{'rows/s':>12}{'MiB at most':>13}")
    with tempfile.TemporaryDirectory() as folder:
        for name, n, seconds in measurements(Path(folder)):
            show(name, n, seconds)
        questions, answered = Path(folder) / "rows.parquet", Path(folder) / "predictions.parquet"
        write_parquet(questions, n_rows)
        most = f"at most {MOST_GIB} GiB, with the start"
        show(f"predict_rows, Parquet, {most}", n_rows, *in_a_child("predict_rows", questions, answered))
        n_rows, runs = write_questions(questions), dict[str, list[tuple[float, float]]]()
        for name in [*CHILDREN] * REPEATS:
            runs.setdefault(name, []).append(in_a_child(name, questions, answered))
        for name, of_child in runs.items():
            seconds, mib = (statistics.median(values) for values in zip(*of_child, strict=True))
            show(f"{name}, Parquet, distinct, with the start", n_rows, seconds, mib)
        pairs = zip(*runs.values(), strict=True)
        time, memory = zip(*((own[0] / plain[0], own[1] / plain[1]) for own, plain in pairs), strict=True)
        print(
            f"of plain pandas: {statistics.median(time):.2f} x the time, {statistics.median(memory):.2f} x the memory"
        )
    return 0


def in_a_child(name: str, questions: Path, answered: Path) -> tuple[float, float]:
    """Processor time in s and peak memory in MiB of a process that does one of `CHILDREN`, its start included."""
    command = [sys.executable, __file__, "--child", name, str(questions), str(answered)]
    seconds, mib = map(
        float, subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    )
    return seconds, mib


def by_pandas(questions: str, answered: str) -> None:
    """Read a table, join the specifications of its GPUs, compute as many columns as `predict_rows` adds, write them."""
    import pandas as pd

    rows = pd.read_parquet(questions)
    gpus = pd.DataFrame({"gpu": rows["gpu"].unique()})
    for name in ("memory_bandwidth_gb_per_s", "memory_gib", "generation"):
        gpus[name] = [getattr(find_gpu(gpu), name) for gpu in gpus["gpu"]]
    joined = rows.merge(gpus, on="gpu")
    for number, name in enumerate(NUMBERS, start=1):
        rows[name] = number * joined["batch_size"] / joined["memory_bandwidth_gb_per_s"] + joined["samples"]
    rows[FITS] = joined["batch_size"] < 4 * joined["memory_gib"]
    for name in WORDS:
        rows[name] = pd.Categorical(joined["generation"])
    rows.to_parquet(answered)


CHILDREN = {"predict_rows": predict_rows, "plain pandas": by_pandas}


def measurements(folder: Path) -> Iterator[tuple[str, int, float]]:
    """Each measurement's name, rows, and least processor time in s."""
    table, parquet = ((folder / f"rows.{kind}", folder / f"out.{kind}") for kind in ("csv", "parquet"))
    write_csv(table[0], 100_000)
    yield "csv: read and write as many rows", 100_000, least_s(lambda: copy(*table))[0]
    yield "predict_rows, CSV", 100_000, least_s(lambda: predict_rows(*table))[0]
    write_csv(table[0], 1_000_000)
    yield "predict_rows, CSV", 1_000_000, least_s(lambda: predict_rows(*table))[0]
    for n_rows in (100_000, 1_000_000):
        write_parquet(parquet[0], n_rows)
        yield "predict_rows, Parquet", n_rows, least_s(lambda: predict_rows(*parquet))[0]
    cells = list(product(range(len(CNNS)), range(len(GPUS)), range(len(BATCH_SIZES))))
    pq.write_table(as_table(*np.array(cells).T), parquet[0])
    yield "predict_rows, Parquet, distinct", len(cells), least_s(lambda: predict_rows(*parquet))[0]


def show(name: str, n_rows: int, seconds: float, mib: float | None = None) -> None:
    memory = "" if mib is None else f"{mib:,.0f}"
    print(f"{name:52}{n_rows:12,}{seconds:9.2f}{n_rows / seconds:12,.0f}{memory:>13}", flush=True)


def drawn(n_rows: int, seed: int = 0) -> Iterator[np.ndarray]:
    """Three arrays of shape (n_rows,): random indices into `CNNS`, `GPUS` and `BATCH_SIZES`."""
    draw = np.random.default_rng(seed)
    return (draw.integers(len(values), size=n_rows) for values in (CNNS, GPUS, BATCH_SIZES))


def write_csv(path: Path, n_rows: int) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["cnn", "image_size", "gpu", "batch_size", "precision", "samples"])
        writer.writerows(
            [CNNS[cnn], 224, GPUS[gpu], BATCH_SIZES[size], "fp32", 1_281_167]
            for cnn, gpu, size in zip(*drawn(n_rows), strict=True)
        )


def write_parquet(path: Path, n_rows: int) -> None:
    with pq.ParquetWriter(path, as_table(*drawn(1)).schema) as writer:
        for start in range(0, n_rows, OF_A_BATCH):
            writer.write_table(as_table(*drawn(min(OF_A_BATCH, n_rows - start), seed=start)))


def as_table(cnn: np.ndarray, gpu: np.ndarray, size: np.ndarray) -> pa.Table:
    n_rows = len(cnn)
    return pa.table(
        {
            "cnn": pa.array(np.array(CNNS, dtype=object)[cnn]),
            "image_size": np.full(n_rows, 224),
            "gpu": pa.array(np.array(GPUS, dtype=object)[gpu]),
            "batch_size": np.array(BATCH_SIZES)[size],
            "precision": pa.array(["fp32"] * n_rows),
            "samples": np.full(n_rows, 1_281_167),
        }
    )


def copy(questions: Path, answered: Path) -> None:
    with questions.open(newline="") as source, answered.open("w", newline="") as target:
        csv.writer(target).writerows(
            [*row, *["1.2345678901234"] * 11, "true", "pytorch", "roofline", "", ""]
            for row in csv.reader(source)
        )


def device(_rows: int) -> int:
    devices, missing = list(DEVICES), None
    try:
        cupy = arrays_on("cuda").xp
        gpu_name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
        print(f"CuPy {cupy.__version__}, {gpu_name}")
    except BackendUnavailableError as error:
        devices, missing = ["cpu"], error
    print(f"{'what':24}{'device':8}{'questions':>12}{'first s':>10}{'s':>9}{'questions/s':>14}{'apart':>10}")
    apart = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for what, ask in (("the law alone", by_the_law()), ("predict_rows, Parquet", by_rows(Path(folder)))):
            expected = None
            for name in devices:
                first_s, s, numbers = timed(lambda name=name, ask=ask: ask(name))
                expected = numbers if expected is None else expected
                gap = float(np.nanmax(np.abs(numbers / expected - 1.0)))
                apart = max(apart, gap)
                n = numbers.shape[-1]
                print(f"{what:24}{name:8}{n:12,}{first_s:10.2f}{s:9.3f}{n / s:14,.0f}{gap:10.1e}", flush=True)
    if missing is not None:
        print(f"The GPU was left out: {missing}")
    return int(apart > MOST_APART)


def by_the_law() -> Callable[[str], Floats]:
    """Iteration times of CNNs on all GPUs at all batch sizes, of shape (n_questions,), by device."""
    law = Model.load().roofline.law_
    kernels = [kernels_of(zoo_cnn(cnn)) for cnn in CNNS]
    contexts = [KernelContext(gpu, default_precision(gpu, "pytorch"), "pytorch") for gpu in all_gpus()]
    sizes = np.arange(1, 513)

    def ask(device: str) -> Floats:
        own_law, n = replace(law, arrays=arrays_on(device)), 8 if device == "cpu" else len(contexts)
        chunks = [contexts[start : start + n] for start in range(0, len(contexts), n)]
        times = [own_law.times(cnn, chunk, sizes).iteration_ms for cnn in kernels for chunk in chunks]
        return np.concatenate([ms.ravel() for ms in times])

    return ask


def by_rows(folder: Path) -> Callable[[str], Floats]:
    """Function of a device (``cpu``) that answers a table of rows kept in `folder`.

    It gives times, costs and energies, shape (n_columns, n_questions); RuntimeError if a row fails.
    """
    sizes = np.arange(1, 2049)
    cells = np.array(list(product(range(len(CNNS)), range(len(GPUS)), range(len(sizes)))))
    cnn, gpu, size = cells.T
    questions = as_table(cnn, gpu, np.zeros_like(size))
    column = questions.schema.get_field_index("batch_size")
    questions = questions.set_column(column, "batch_size", pa.array(sizes[size]))
    pq.write_table(questions, folder / "rows.parquet")

    def ask(device: str) -> Floats:
        answered = folder / f"{device}.parquet"
        if predict_rows(folder / "rows.parquet", answered, device=device):
            raise RuntimeError("rows failed; see the column error of their answers.")
        table = pq.read_table(answered)
        numbers = [name for name in table.column_names if name.endswith(("_ms", "_s", "_usd", "watt_hours"))]
        return np.stack([table[name].to_numpy().astype(float) for name in numbers])

    return ask


def timed(work: Callable[[], Floats]) -> tuple[float, float, Floats]:
    """Seconds of the first call, the least of the later ones, and what they give."""
    started = time.perf_counter()
    work()
    first_s = time.perf_counter() - started
    return first_s, *least_s(work, time.perf_counter)


PARTS: dict[str, Callable[[int], int]] = {"answers": answers, "bulk": bulk, "device": device, "start": start}


if __name__ == "__main__":
    sys.exit(main())
