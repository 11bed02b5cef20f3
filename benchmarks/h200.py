"""How far `layer-times` lies from our own H200 and H100 measurements: every scenario on measured layers, per mode.

Run it as `python benchmarks/h200.py`; docs/evaluation.md says how to read the tables. The name
of a table's file says with which preset its operators were measured.
"""

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from machine import machine

from predictor.catalogue.devices import find_gpu
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError, EpochcastError
from predictor.evaluation.report import percent, scenario_text, write_report
from predictor.evaluation.run import EvaluationResult, evaluate
from predictor.evaluation.scenarios import SCENARIOS
from predictor.evaluation.splits import LIBRARIES
from predictor.files import data_root
from predictor.measurements.features import feature_table
from predictor.measurements.table import read_measurements

OF_LAYERS = [name for name, scenario in SCENARIOS.items() if scenario.answer == "gpu_time_ms"]
MODE = ["precision", "memory_format"]
USUAL_BATCHES = (16, 256)
SMALL_IMAGE = 32  # pixels
INSTRUMENT = "epochcast"
"""Source of the rows that `epochcast profile` measured."""


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    print(f"h200 | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    tables: dict[tuple[str, ...], pd.DataFrame] = {}
    try:
        for name in options.scenario or OF_LAYERS:
            gpus = tuple(dict.fromkeys(("h200", *SCENARIOS[name].sources)))
            if gpus not in tables:
                tables[gpus] = own_features(options.measurements, options.precision, gpus)
            features = tables[gpus]
            started = time.perf_counter()
            result = evaluate(features, [name], options.predictor, n_jobs=options.jobs)
            print(scenario_text(result, name), end="\n\n")
            print(by_mode_and_cnn(result, features, name))
            print(f"{time.perf_counter() - started:.0f} s\n", flush=True)
            if options.out:
                write_report(result, f"{options.out}/{name}", plots=False)
    except EpochcastError as error:
        print(f"h200: not run: {error}")
    return 0


def own_features(
    folder: Path | None = None, precisions: list[str] | None = None, gpus: tuple[str, ...] = ("h200",)
) -> pd.DataFrame:
    """Feature table of the PyTorch rows of our operator and target tables of these GPUs, with each operator's library.

    `h200_pytorch_targets` was measured before there was an instrument, its gradients added to kept ones: two launches
    per parameter tensor and 16 bytes per parameter more than operators add up to, 0.2 to 1.1 ms. It is left out.
    """
    root = folder or data_root() / "measurements"
    kinds = ("operators", "targets")
    paths = [path for gpu in gpus for kind in kinds for path in sorted(root.glob(f"{gpu}*_{kind}.csv.gz"))]
    if not any("operators" in path.name for path in paths):
        raise DataError(f"{root} has no {gpus[0]}*_operators.csv.gz. Measure them with `epochcast profile`.")
    frame = pd.concat([_with_library(path) for path in paths], ignore_index=True)
    frame = frame[(frame["framework"] == "pytorch") & (frame["source"] == INSTRUMENT)]
    if precisions:
        frame = frame[frame["precision"].isin(precisions)]
    single = set(frame.loc[frame["kind"] == "operator", "cnn"])  # no CNNs: looking for them takes seconds

    def layers_of(cnn: str, image_size: int) -> LayerTable | None:
        return None if cnn in single else zoo_cnn(cnn, image_size)

    source = frame["gpu"].map(lambda name: find_gpu(name).name.split()[1].lower())
    return feature_table(frame.assign(source=source).reset_index(drop=True), layers_of)


def _with_library(path: Path) -> pd.DataFrame:
    """One table; its name says which preset measured it, and notes shall: the same operator may be in several."""
    frame = read_measurements(path)
    library = next((name for name in LIBRARIES if f"_{name}_" in path.name), "zoo")
    single = frame["kind"] == "operator"
    return frame.assign(notes=frame["notes"].astype(object).where(~single, f"library={library}"))


def by_mode_and_cnn(result: EvaluationResult, features: pd.DataFrame, scenario: str) -> str:
    """MAPE of each predictor in each mode with its worst CNNs, then of `layer-times` part by part and CNN by CNN."""
    rows = result.predictions[result.predictions["scenario"] == scenario]
    if rows.empty:
        return "(nothing was answered)"
    memory_format = features["memory_format"].to_numpy()[rows["row"].to_numpy()]
    rows = rows.assign(memory_format=memory_format, error=(rows["predicted"] / rows["measured"] - 1).abs())
    lines = []
    for (predictor, *mode), some in rows.groupby(["predictor", *MODE], sort=True):
        by_cnn = some.groupby("cnn")["error"].mean().sort_values(ascending=False)
        worst = ", ".join(f"{cnn} {percent(error)}" for cnn, error in by_cnn.head(4).items())
        inside = ((some["measured"] >= some["low"]) & (some["measured"] <= some["high"])).mean()
        lines.append(
            f"  {predictor:13s} {' '.join(mode):23s} MAPE {percent(some['error'].mean()):>7s}"
            f" median {percent(some['error'].median()):>7s} n {len(some):4d}"
            f" inside {percent(inside):>7s}  worst {worst}"
        )
    own = rows[rows["predictor"] == "layer-times"]
    own = own.assign(cnn=own["cnn"] + "@" + own["image_size"].astype(str))
    usual, small = own["batch_size"].between(*USUAL_BATCHES), own["image_size"] <= SMALL_IMAGE
    for part, chosen in (
        (f"batch {USUAL_BATCHES[0]} to {USUAL_BATCHES[1]}", usual),
        (f"the same, images of more than {SMALL_IMAGE} pixels", usual & ~small),
        (f"all batch sizes, images of at most {SMALL_IMAGE} pixels", small),
    ):
        by_mode = own[chosen].groupby(MODE)["error"].agg(["mean", "size"])
        told = (f"{' '.join(mode)} {percent(mean)} (n {n})" for mode, (mean, n) in by_mode.iterrows())
        lines.append(f"  layer-times, {part}: {', '.join(told)}")
    table = own[usual].pivot_table(index="cnn", columns=MODE, values="error", aggfunc="mean")
    return "\n".join(lines) + "\n" + (100 * table).round(1).to_string()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=Path, help="folder of the tables (datasets/measurements)")
    parser.add_argument("--scenario", action="append", help=f"repeatable; all: {', '.join(OF_LAYERS)}")
    parser.add_argument("--predictor", action="append", help="repeatable")
    parser.add_argument("--precision", action="append", help="repeatable; all")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--out", help="folder for CSV files")
    return parser


if __name__ == "__main__":
    sys.exit(main())
