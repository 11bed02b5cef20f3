"""What three minutes of the preset `quick` on a GPU are worth in each mode, its chip known and not.

Run it as `python benchmarks/three_minutes.py`. CNNs that no fit has seen (`*_held_out_targets.csv.gz`) are predicted on
each GPU by the path of answers, from its `quick_sample` table and, where the chip is known, from the shipped operators
of the chip's other cards; its own other tables are hidden. Where the chip is unknown, no operator of any other GPU is
known. Rows of batch 8 to 192.
"""

import argparse
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from machine import machine

from predictor.evaluation.served import held_out_tables, judge_served, summary_of, summary_text
from predictor.files import data_root
from predictor.measurements.table import read_measurements
from predictor.models.fit import fit_layer_models
from predictor.models.layer_times.files import LayerModels
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.transfer import CarriedOver
from predictor.models.served import Model


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=Path, default=data_root() / "measurements")
    folder = parser.parse_args(arguments).measurements
    print(f"three_minutes | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    shipped = Model.load()
    for table in sorted(folder.glob("*_quick_sample_operators.csv.gz")):
        measured = read_measurements(table)
        gpu = str(measured["gpu"].iloc[0])
        others = of_other_gpus(shipped.layers, gpu)
        for known in (others, LayerModels()) if others.given else (LayerModels(),):
            print(f"{gpu}, {len(measured)} measurements; the chip is {'known' if known.given else 'unknown'}")
            layers = known.with_more(fit_layer_models(measured, known))
            judged = judged_on(gpu, replace(shipped, layers=layers), held_out_tables(folder))
            print(summary_text(judged), "\n", flush=True)
    return 0


def judged_on(gpu: str, model: Model, tables: list[Path]) -> pd.DataFrame:
    """Errors of a model's answers for one GPU by mode."""
    own = [path for path in tables if str(read_measurements(path)["gpu"].iloc[0]) == gpu]
    judged = judge_served(own, model)
    return summary_of(judged[judged["batch_size"].between(8, 192)]).drop(columns="gpu")


def of_other_gpus(layers: LayerModels, gpu: str) -> LayerModels:
    """The shipped operators of all GPUs but one, without those that rest on measurements of it."""
    known = {each.library.mode: each for each in layers.in_files() if gpu not in measured_on(each.library)}
    return LayerModels(given=known)


def measured_on(library: OperatorLibrary | CarriedOver) -> set[str]:
    """GPUs on which a library and those that it rests on were measured."""
    base = library.source if isinstance(library, CarriedOver) else library.base
    return {library.mode.gpu} | (measured_on(base) if base is not None else set())


if __name__ == "__main__":
    sys.exit(main())
