"""How many distinct questions per second one core answers, and a GPU through CuPy, in the same run, and how far apart.

Run it as `python benchmarks/bench_device.py`. `the law alone` is the times of 5 CNNs on every GPU of the catalogue at
512 batch sizes: eight GPUs at once on the core, whose caches hold that, all at once on the GPU. `predict_rows` reads,
answers and writes Parquet, one row for each of 5 CNNs x 8 GPUs x 2,048 batch sizes. Wall time, one thread each for BLAS
and Arrow, copies to and from the GPU included; the first call, in which CuPy compiles its kernels, is told apart.
Without CuPy or a GPU only the core is measured, and the exit code is 1.
"""

# ruff: noqa: TID253 - a benchmark may need Arrow

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

from bench_bulk import CNNS, GPUS, as_table  # isort: skip - it limits BLAS to one thread before numpy is imported

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from machine import machine

from predictor.answers.bulk import predict_rows
from predictor.catalogue.devices import all_gpus, default_precision
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import BackendUnavailableError
from predictor.models.roofline.arrays import DEVICES, arrays_on
from predictor.models.roofline.terms import KernelContext
from predictor.models.served import Model
from predictor.operators.kernels import kernels_of

BATCH_SIZES = {"the law alone": np.arange(1, 513), "predict_rows, Parquet": np.arange(1, 2049)}
AT_ONCE = {"cpu": 8}
REPEATS = 3
MOST_APART = 1e-12

Floats = np.ndarray


def main() -> int:
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    devices, missing = list(DEVICES), None
    try:
        name = gpu_name()
    except BackendUnavailableError as error:
        devices, name, missing = ["cpu"], "no GPU", error
    print(f"bulk by device | {datetime.now(UTC):%Y-%m-%d} | {machine()} | {name}\n")
    print(f"{'what':24}{'device':8}{'questions':>12}{'first s':>10}{'s':>9}{'questions/s':>14}{'apart':>10}")
    apart = 0.0
    with tempfile.TemporaryDirectory() as folder:
        for what, ask in (
            ("the law alone", by_the_law()),
            ("predict_rows, Parquet", by_rows(Path(folder))),
        ):
            expected = None
            for device in devices:
                first_s, s, found = timed(lambda each=device, asked=ask: asked(each))
                expected = found if expected is None else expected
                gap = float(np.nanmax(np.abs(found / expected - 1.0)))
                apart = max(apart, gap)
                n = found.shape[-1]
                print(
                    f"{what:24}{device:8}{n:12,}{first_s:10.2f}{s:9.3f}{n / s:14,.0f}{gap:10.1e}", flush=True
                )
    if missing is not None:
        print(f"\n{missing}", file=sys.stderr)
    return int(missing is not None or apart > MOST_APART)


def gpu_name() -> str:
    """CuPy's version and the driver's name of its GPU."""
    cupy = arrays_on("cuda").xp
    return f"CuPy {cupy.__version__}, {cupy.cuda.runtime.getDeviceProperties(0)['name'].decode()}"


def by_the_law() -> Callable[[str], Floats]:
    """Iteration times of CNNs on all GPUs at all batch sizes, of shape (n_questions,), by device."""
    law = Model.load().roofline.law_
    kernels = [kernels_of(zoo_cnn(cnn)) for cnn in CNNS]
    contexts = [KernelContext(gpu, default_precision(gpu, "pytorch"), "pytorch") for gpu in all_gpus()]
    sizes = BATCH_SIZES["the law alone"]

    def ask(device: str) -> Floats:
        asked, n = replace(law, arrays=arrays_on(device)), AT_ONCE.get(device, len(contexts))
        parts = [contexts[start : start + n] for start in range(0, len(contexts), n)]
        found = [asked.times(cnn, part, sizes).iteration_ms for cnn in kernels for part in parts]
        return np.concatenate([each.ravel() for each in found])

    return ask


def by_rows(folder: Path) -> Callable[[str], Floats]:
    """Numbers of the answers to a table of rows, of shape (n_columns, n_questions), by device."""
    sizes = BATCH_SIZES["predict_rows, Parquet"]
    cells = np.array(list(product(range(len(CNNS)), range(len(GPUS)), range(len(sizes)))))
    cnn, gpu, size = cells.T
    asked = as_table(cnn, gpu, np.zeros_like(size))
    place = asked.schema.get_field_index("batch_size")
    asked = asked.set_column(place, "batch_size", pa.array(sizes[size]))
    pq.write_table(asked, folder / "rows.parquet")

    def ask(device: str) -> Floats:
        answered = folder / f"{device}.parquet"
        if predict_rows(folder / "rows.parquet", answered, device=device):
            raise RuntimeError("rows failed; see the column error of their answers.")
        found = pq.read_table(answered)
        numbers = [name for name in found.column_names if name.endswith(("_ms", "_s", "_usd", "watt_hours"))]
        return np.stack([found[name].to_numpy().astype(float) for name in numbers])

    return ask


def timed(work: Callable[[], Floats]) -> tuple[float, float, Floats]:
    """Seconds of the first call, the least of the later ones, and what they give."""
    times = []
    for _ in range(1 + REPEATS):
        started = time.perf_counter()
        found = work()
        times.append(time.perf_counter() - started)
    return times[0], min(times[1:]), found


if __name__ == "__main__":
    sys.exit(main())
