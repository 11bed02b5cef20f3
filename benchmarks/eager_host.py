"""How far predicted host and iteration times lie from eager iterations on an H200, where one waits for the host.

Run it as `python benchmarks/eager_host.py`; docs/evaluation.md says how to read the tables. One CNN after the other is
held out: its operators were measured, whole iterations were timed of the other CNNs alone.
"""

import argparse
import gzip
import json
import sys
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from h200 import INSTRUMENT, MODE, own_features
from machine import machine

from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import Mode
from predictor.errors import EpochcastError
from predictor.evaluation.report import percent
from predictor.evaluation.served import held_out_tables
from predictor.files import data_root
from predictor.measurements.features import feature_table
from predictor.measurements.hosts import REFERENCE_CNN, HostMeasurement, HostTime
from predictor.measurements.table import read_measurements
from predictor.models.layer_times.estimator import LayerTimes, modes_of
from predictor.models.layer_times.law import counted_operators, layer_sums
from predictor.models.roofline.terms import join_host
from predictor.models.served import Model

LARGEST_BATCH = 32
KEY = ["precision", "memory_format", "cnn", "image_size", "batch_size"]
PREDICTED = ("host", "iteration", "constant host", "iteration by constant host", "GPU alone")


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    print(f"eager_host | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    try:
        features = own_features(options.measurements, options.precision)
        machines = features.groupby(["kind", "host"])["cnn"].size()
        print("\n".join(f"{kind} rows of {host}: {n}" for (kind, host), n in machines.items()), end="\n\n")
        answers = held_out(features, options.largest_batch)
        print(by_mode(answers), end="\n\n")
        print(by_cnn(answers), end="\n\n")
        folder = options.measurements or data_root() / "measurements"
        print(repeatability(folder, options.largest_batch), end="\n\n")
        print(by_session(other_sessions(folder, options.largest_batch)))
        if options.out:
            answers.to_csv(options.out, index=False)
    except EpochcastError as error:
        print(f"eager_host: not run: {error}")
    return 0


def held_out(features: pd.DataFrame, largest_batch: int = LARGEST_BATCH) -> pd.DataFrame:
    """Measured and predicted times in ms of each small eager iteration, its CNN unseen and its operators measured.

    Returns
    -------
    DataFrame
        `precision, memory_format, cnn, image_size, batch_size, operators`, measured `host_time_ms`, `gpu_time_ms` and
        `iteration_time_ms`, and one column for each of `PREDICTED`.
    """
    small = features["batch_size"].to_numpy() <= largest_batch
    asked = (features["kind"] == "target").to_numpy() & features["host_time_ms"].notna().to_numpy() & small
    asked &= features["layer_table"].notna().to_numpy()
    rows: list[dict[str, object]] = []
    for _, mode in features[asked].groupby(MODE, sort=False):
        of_mode = (features[MODE] == mode[MODE].iloc[0]).all(axis=1).to_numpy()
        for cnn in sorted(set(mode["cnn"])):
            known = features[of_mode & (features["cnn"] != cnn).to_numpy()]
            rows += _answers(known, mode[mode["cnn"] == cnn])
    return pd.DataFrame(rows)


def _answers(known: pd.DataFrame, asked: pd.DataFrame) -> list[dict[str, object]]:
    """Answers for one CNN, by what was measured of all others."""
    wall = known["iteration_time_ms"].to_numpy()
    model = LayerTimes(calibrate=False).fit(known.drop(columns="iteration_time_ms_iqr"), wall)
    constant_ms = constant_host_ms(known[known["kind"] == "target"])
    answers: list[dict[str, object]] = []
    for row, mode in zip(asked.to_dict("records"), modes_of(asked), strict=True):
        found, table = model.models_.given[mode], row["layer_table"]
        law = found.law
        sums = layer_sums(found.library, table, np.array([float(row["batch_size"])]))
        n = counted_operators(table)[1].sum()
        busy, host, constant = law.gpu_ms(sums), np.array([law.host_ms(sums)]), np.array([n * constant_ms])
        predicted = (host, join_host(busy, host), constant, join_host(busy, constant), busy)
        told = {name: row[name] for name in (*KEY, "host_time_ms", "gpu_time_ms", "iteration_time_ms")}
        times = {name: float(each[0]) for name, each in zip(PREDICTED, predicted, strict=True)}
        answers.append(told | {"operators": n} | times)
    return answers


def constant_host_ms(targets: pd.DataFrame) -> float:
    """Host time per operator, the same for all: the median over whole CNNs."""
    timed = targets[targets["layer_table"].notna() & targets["host_time_ms"].notna()]
    counts = [counted_operators(table)[1].sum() for table in timed["layer_table"]]
    return float(np.median(timed["host_time_ms"].to_numpy() / np.array(counts)))


def errors(answers: pd.DataFrame) -> pd.DataFrame:
    """Relative error of each prediction against what it predicts."""
    truth = {
        name: "host_time_ms" if name in ("host", "constant host") else "iteration_time_ms"
        for name in PREDICTED
    }
    return pd.DataFrame({name: (answers[name] / answers[of] - 1) for name, of in truth.items()})


def by_mode(answers: pd.DataFrame) -> str:
    """Mean and median error in each mode: all small iterations, then those that wait for the host."""
    lines = [f"{'MAPE / median':44s} n  " + "  ".join(f"{name:>16s}" for name in PREDICTED)]
    waits = answers["host_time_ms"] > answers["gpu_time_ms"]
    for mode, rows in answers.groupby(MODE, sort=False):
        for name, some in (("all", rows), ("host slower than GPU", rows[waits[rows.index]])):
            off = errors(some).abs()
            figures = [
                f"{percent(off[each].mean()):>7s} /{percent(off[each].median()):>7s}" for each in PREDICTED
            ]
            lines.append(f"{' '.join(map(str, mode)):23s} {name:20s} {len(some):4d}  " + "  ".join(figures))
    return "\n".join(lines)


def by_cnn(answers: pd.DataFrame) -> str:
    """Each CNN at its smallest batch size, predicted beside measured, in ms."""
    first = answers.sort_values("batch_size").drop_duplicates([*MODE, "cnn", "image_size"])
    columns = [
        "host_time_ms",
        "host",
        "constant host",
        "iteration_time_ms",
        "iteration",
        "gpu_time_ms",
        "GPU alone",
    ]
    table = first.sort_values([*MODE, "cnn", "image_size"])[[*KEY, "operators", *columns]]
    return str(table.round(2).to_string(index=False))


def repeatability(folder: Path, largest_batch: int = LARGEST_BATCH) -> str:
    """How well the host's time repeats: within a run, and from one run to another of the same configuration."""
    runs = [_with_spread(path, largest_batch) for path in sorted(folder.glob("h200_pytorch*_targets.csv.gz"))]
    rows = pd.concat([run for run in runs if len(run)], ignore_index=True)
    lines = []
    for column in ("host", "iteration", "gpu"):
        again = rows.groupby(KEY)[f"{column}_time_ms"].agg(["min", "max", "size"])
        again = (again["max"] / again["min"] - 1)[again["size"] > 1]
        spread = rows[f"{column}_spread"].dropna()
        lines.append(
            f"{column:9s} interquartile range of repeats: median {percent(spread.median())}, "
            f"90 % within {percent(spread.quantile(0.9))} ({len(spread)} rows); "
            f"another run: median {percent(again.median())}, 90 % within {percent(again.quantile(0.9))}, "
            f"most {percent(again.max())} ({len(again)} configurations)"
        )
    return "\n".join(lines)


def other_sessions(folder: Path, largest_batch: int = LARGEST_BATCH) -> pd.DataFrame:
    """Small eager iterations of sessions that no fit has seen, beside what the shipped model answers.

    `knows` is what it is told of the host: nothing; ResNet-18's enqueue time, noted when the session began; or, as a
    bound, the GPU and host time measured of the very iteration.
    """
    model, parts = Model.load(), []
    for path in held_out_tables(folder):
        frame = feature_table(read_measurements(path))
        small = (
            frame["layer_table"].notna()
            & frame["host_time_ms"].notna()
            & (frame["batch_size"] <= largest_batch)
        )
        for (name, *words, _, _), rows in frame[small].groupby(["gpu", *MODE, "cnn", "image_size"]):
            mode, gpu, sizes = Mode("pytorch", *words), find_gpu(name), rows["batch_size"].to_numpy()
            told = rows[["gpu", *MODE, "cnn", "batch_size", "iteration_time_ms"]].assign(session=path.name)
            for knows, host in _hosts_of(rows, mode):
                found = model.forecast(rows["layer_table"].iloc[0], gpu, mode, sizes, host=host)
                ends = {"predicted": found.iteration_time_ms, "low": found.low_ms, "high": found.high_ms}
                parts.append(told.assign(knows=knows, **ends))
            both = join_host(rows["gpu_time_ms"].to_numpy(), rows["host_time_ms"].to_numpy())
            parts.append(told.assign(knows="both times", predicted=both))
    return pd.concat(parts, ignore_index=True)


def _hosts_of(rows: pd.DataFrame, mode: Mode) -> list[tuple[str, HostMeasurement | None]]:
    """No host, and that of the session where it was noted."""
    noted = rows["host_cnn_ms"].iloc[0] if "host_cnn_ms" in rows else np.nan
    if not np.isfinite(noted):
        return [("nothing", None)]
    time = HostTime("pytorch", "gpu", mode.precision, mode.memory_format, *REFERENCE_CNN, float(noted))
    return [("nothing", None), ("ResNet-18's time", HostMeasurement("noted", (time,)))]


def by_session(answers: pd.DataFrame) -> str:
    """Error of the iterations of each session and of all, and the share inside the 90 % interval."""
    error = answers["predicted"] / answers["iteration_time_ms"] - 1
    inside = answers["iteration_time_ms"].between(answers["low"], answers["high"])
    found = answers.assign(
        mape=error.abs(), bias=error, inside=inside.where(answers["low"].notna()).astype(float)
    )
    tables = [found.groupby(by) for by in (["session", *MODE, "knows"], ["knows"])]
    means = [100 * each[["mape", "bias", "inside"]].mean() for each in tables]
    return "\n\n".join(
        mean.assign(n=each.size()).round(1).to_string() for mean, each in zip(means, tables, strict=True)
    )


def _with_spread(path: Path, largest_batch: int) -> pd.DataFrame:
    """Small targets of one table, with the interquartile range of each time's repeats over its median."""
    frame, beside = read_measurements(path), path.with_name(path.name.replace(".csv.gz", ".json.gz"))
    repeats = json.loads(gzip.decompress(beside.read_bytes()))["repeats"] if beside.is_file() else []
    if len(repeats) != len(frame):
        repeats = [{}] * len(frame)
    for column in ("host", "iteration", "gpu"):
        frame[f"{column}_spread"] = [relative_range(each.get(f"{column}_times_ms")) for each in repeats]
    return frame[(frame["source"] == INSTRUMENT) & (frame["batch_size"] <= largest_batch)]


def relative_range(times: list[float] | None) -> float:
    """Interquartile range over the median; NaN of nothing."""
    if not times:
        return float("nan")
    low, middle, high = np.quantile(times, (0.25, 0.5, 0.75))
    return float((high - low) / middle)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=Path, help="folder of the tables (datasets/measurements)")
    parser.add_argument("--precision", action="append", help="repeatable; all")
    parser.add_argument("--largest-batch", type=int, default=LARGEST_BATCH)
    parser.add_argument("--out", type=Path, help="CSV file for every row's answer")
    return parser


if __name__ == "__main__":
    sys.exit(main())
