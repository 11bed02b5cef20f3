"""How far predictions from specifications lie on chips never measured: each chip of the default left out in turn.

Run it as `python benchmarks/unseen_chips.py --published FOLDER`. Fits start from nothing; a machine counts once.
"""

import argparse
import sys
import time
from datetime import UTC, datetime

import numpy as np
import pandas as pd
from machine import machine

from predictor.catalogue.devices import find_gpu
from predictor.errors import EpochcastError
from predictor.files import published_data_root
from predictor.models.fit import default_features
from predictor.models.roofline.model import Roofline
from predictor.models.roofline.rows import rows_of, whole_iterations


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--published", help="folder of published measurements ($EPOCHCAST_PUBLISHED_DATA)")
    options = parser.parse_args(arguments)
    try:
        features = default_features(published_data_root(options.published))
    except EpochcastError as error:
        print(f"unseen_chips: not run: {error}")
        return 1 if options.published else 0
    print(f"unseen chips | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    started = time.perf_counter()
    errors = errors_by_machine(features)
    for name, (mape, rows) in errors.items():
        print(f"  {name:60} {100 * mape:5.1f} %  n {rows}")
    print(f"\nmean over {len(errors)} machines {100 * np.mean([mape for mape, _ in errors.values()]):.1f} %")
    print(f"{time.perf_counter() - started:.0f} s")
    return 0


def errors_by_machine(features: pd.DataFrame) -> dict[str, tuple[float, int]]:
    """MAPE and number of rows of each machine, its chip left out of the fit with all that was measured on it."""
    chips = np.array([find_gpu(name).chip for name in features["gpu"]])
    whole = features.index.isin(whole_iterations(features).index)
    parts = []
    for chip in sorted(set(chips[whole])):
        train, test = features[chips != chip], features[(chips == chip) & whole]
        predicted = Roofline(calibrate=False).fit(train, train["iteration_time_ms"]).predict(test)
        error = np.abs(predicted / test["iteration_time_ms"].to_numpy(dtype=float) - 1.0)
        parts.append(pd.DataFrame({"machine": rows_of(test).machines, "error": error}))
    grouped = pd.concat(parts).groupby("machine")["error"]
    return {str(name): (float(error.mean()), len(error)) for name, error in grouped}


if __name__ == "__main__":
    sys.exit(main())
