"""How far the shipped model lies from CNNs measured on our own GPUs that no fit has seen, by the path of answers.

Run it as `python benchmarks/held_out.py`; with `--measurements FOLDER` on other `*_held_out_targets.csv.gz`.
"""

import argparse
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from machine import machine

from predictor.errors import EpochcastError
from predictor.evaluation.served import held_out_tables, judge_served, summary_of, summary_text
from predictor.files import data_root
from predictor.models.layer_times.files import LayerModels
from predictor.models.served import Model


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measurements", type=Path, help="folder of the tables (datasets/measurements)")
    parser.add_argument("--model", help="model file (the shipped one)")
    parser.add_argument(
        "--specifications", action="store_true", help="from specifications alone, for comparison"
    )
    options = parser.parse_args(arguments)
    print(f"held_out | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    try:
        model = Model.load(options.model)
        if options.specifications:
            model = replace(model, layers=LayerModels())
        judged = judge_served(held_out_tables(options.measurements or data_root() / "measurements"), model)
    except EpochcastError as error:
        print(f"held_out: {error}")
        return 1
    print(summary_text(summary_of(judged)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
