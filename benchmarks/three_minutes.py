"""What three minutes of the preset `quick` on a GPU are worth in each mode, its chip known and not.

Run it as `python benchmarks/three_minutes.py`. CNNs that no fit has seen (`*_held_out_targets.csv.gz`) are predicted on
each GPU by the path of answers, from its `quick_sample` table and, where the chip is known, from the shipped operators
of the chip's other cards; its own other tables are hidden. Where the chip is unknown, no operator of any other GPU is
known. Rows of batch 8 to 192.
"""

import argparse
import sys
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
from machine import machine

from predictor.evaluation.served import held_out_tables, judge_served, summary_of
from predictor.files import data_root
from predictor.measurements.table import read_measurements
from predictor.models.fit import fit_layer_models
from predictor.models.layer_times.files import LayerModel, LayerModels
from predictor.models.served import Model

_PERCENT = ("mape", "median", "p90", "coverage")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=Path, default=data_root() / "measurements")
    folder = parser.parse_args(arguments).measurements
    print(f"three_minutes | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    for table in sorted(folder.glob("*_quick_sample_operators.csv.gz")):
        measured = read_measurements(table)
        gpu = str(measured["gpu"].iloc[0])
        others = of_other_gpus(Model.load().layers, gpu)
        for chip_known in (True, False) if others.given else (False,):
            print(f"{gpu}, {len(measured)} measurements; the chip is {'known' if chip_known else 'unknown'}")
            print(judged_on(gpu, measured, held_out_tables(folder), chip_known=chip_known).to_string(
                index=False, formatters=dict.fromkeys(_PERCENT, "{:.1%}".format) | {"width": "{:.3f}".format}
            ), "\n", flush=True)  # fmt: skip
    return 0


def judged_on(gpu: str, measured: pd.DataFrame, tables: list[Path], *, chip_known: bool) -> pd.DataFrame:
    """Errors of the answers for one GPU by mode, from its measurements and, if so, those of its chip's other cards."""
    model = Model.load()
    known = of_other_gpus(model.layers, gpu) if chip_known else LayerModels()
    model.layers = known.with_more(fit_layer_models(measured, known))
    own = [path for path in tables if str(read_measurements(path)["gpu"].iloc[0]) == gpu]
    judged = judge_served(own, model)
    return summary_of(judged[judged["batch_size"].between(8, 192)]).drop(columns="gpu")


def of_other_gpus(layers: LayerModels, gpu: str) -> LayerModels:
    """The shipped operators of all GPUs but one, without those that rest on measurements of it."""
    models = [LayerModel.load(path) for path in layers._files()]
    return LayerModels(given={each.library.mode: each for each in models if gpu not in _measured_on(each)})


def _measured_on(model: LayerModel) -> set[str]:
    base = getattr(model.library, "base", None)
    return {model.library.mode.gpu} | ({base.source.mode.gpu} if base is not None else set())


if __name__ == "__main__":
    sys.exit(main())
