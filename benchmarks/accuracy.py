"""How far predictions lie from published measurements: every scenario, every predictor that applies.

Run it as `python benchmarks/accuracy.py --published FOLDER`; docs/evaluation.md says how to read the tables.
"""

import argparse
import sys
import time
from datetime import UTC, datetime

from machine import machine

from predictor.errors import EpochcastError
from predictor.evaluation.report import scenario_text, write_report
from predictor.evaluation.run import evaluate
from predictor.evaluation.scenarios import SCENARIOS
from predictor.files import published_data_root
from predictor.measurements.published import published_features
from predictor.models.registry import PREDICTORS


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    try:
        folder = published_data_root(options.published)
    except EpochcastError as error:
        print(f"accuracy: not run: {error}")
        return 1 if options.published else 0
    print(f"accuracy | {datetime.now(UTC):%Y-%m-%d} | {machine()} | seed {options.seed}\n")
    started = time.perf_counter()
    try:
        features = published_features(folder, seed=options.seed)
        result = evaluate(
            features, options.scenario, options.predictor, seed=options.seed, n_jobs=options.jobs
        )
    except EpochcastError as error:
        print(f"accuracy: {error}", file=sys.stderr)
        return 1
    for name in result.scenarios():
        print(scenario_text(result, name), end="\n\n")
    if options.out:
        write_report(result, options.out)
    print(f"{time.perf_counter() - started:.0f} s")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--published", help="folder of published measurements ($EPOCHCAST_PUBLISHED_DATA)")
    parser.add_argument("--scenario", action="append", help=f"repeatable; all: {', '.join(SCENARIOS)}")
    parser.add_argument("--predictor", action="append", help=f"repeatable; all: {', '.join(PREDICTORS)}")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", help="folder for CSV files and plots")
    return parser


if __name__ == "__main__":
    sys.exit(main())
