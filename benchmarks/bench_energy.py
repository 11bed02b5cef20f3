"""How well the law of power predicts the power of training GPUs, and with predicted times their energy.

Run it as `python benchmarks/bench_energy.py [--traces FOLDER]`. Each CNN, then each GPU, is predicted by a law that was
fitted without it. With the power traces of Zeus (the folder `trace` of github.com/ml-energy/zeus, Apache-2.0), GPUs of
which the power limit alone is known are judged, too; they never enter the fit.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pandas as pd
from machine import machine

from predictor.models.power import LAW
from predictor.models.power_fit import (
    Reading,
    fit_law,
    held_out_w,
    own_readings,
    predicted_w,
    published_readings,
    shipped_law,
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--traces", type=Path, help="folder with summary_power_v100.csv and its like")
    folder = parser.parse_args().traces
    print(f"energy | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    own = own_readings()
    published = published_readings(folder) if folder else []
    print(f"{len(own)} readings of {len({r.cnn for r in own})} CNNs on {len({r.gpu.name for r in own})} GPUs")
    print(f"shipped {LAW}\nfitted  {shipped_law(own, published)}\n")
    show("CNN left out", own, lambda reading: reading.cnn)
    show("GPU left out", own, lambda reading: reading.gpu.name)
    show_published(published)
    return 0


def show(title: str, readings: Sequence[Reading], group: Callable[[Reading], str]) -> None:
    """Errors of power at the measured time and of energy as answers give it, by group."""
    frame = pd.DataFrame(
        {
            title: [group(reading) for reading in readings],
            "power": _error([reading.power_w for reading in readings], held_out_w(readings, group)),
            "energy": served_errors(readings, group),
        }
    )
    frame["inside"] = np.abs(np.log1p(frame["power"])) <= LAW.spread
    print(_table(frame, title), "\n")


def served_errors(readings: Sequence[Reading], group: Callable[[Reading], str]) -> list[float]:
    """Relative errors of energy: power and time are predicted, the law is fitted without the reading's group."""
    laws = {
        left_out: fit_law([each for each in readings if group(each) != left_out])
        for left_out in set(map(group, readings))
    }
    predicted = [
        predicted_w(laws[group(reading)], reading, served=True) * reading.predicted_ms[0]
        for reading in readings
    ]
    return _error([reading.power_w * reading.iteration_ms for reading in readings], predicted)


def show_published(readings: Sequence[Reading]) -> None:
    """Errors on GPUs whose power limit alone is known."""
    if not readings:
        print("No --traces: other GPUs are not judged.")
        return
    power = [predicted_w(LAW, reading) for reading in readings]
    frame = pd.DataFrame(
        {
            "limit alone": [reading.gpu.name for reading in readings],
            "power": _error([reading.power_w for reading in readings], power),
            "energy": _error(
                [reading.power_w * reading.iteration_ms for reading in readings],
                [predicted_w(LAW, reading, served=True) * reading.predicted_ms[0] for reading in readings],
            ),
        }
    )
    frame["inside"] = np.abs(np.log1p(frame["power"])) <= LAW.other_spread
    print(_table(frame, "limit alone"))


def _error(measured: Sequence[float], predicted: Sequence[float]) -> list[float]:
    return list(np.asarray(predicted) / np.asarray(measured) - 1.0)


def _table(frame: pd.DataFrame, by: str) -> str:
    """Mean absolute errors, mean power error and the share of readings inside the interval, by group and in all."""
    rows = {str(name): _row(group) for name, group in frame.groupby(by)} | {"all": _row(frame)}
    return (
        pd.DataFrame.from_dict(rows, orient="index").rename_axis(by).to_string(float_format="{:.1f}".format)
    )


def _row(frame: pd.DataFrame) -> dict[str, float]:
    return {
        "readings": len(frame),
        "power error %": 100 * frame["power"].abs().mean(),
        "bias %": 100 * frame["power"].mean(),
        "energy error %": 100 * frame["energy"].abs().mean(),
        "inside 90 % interval, %": 100 * frame["inside"].mean(),
    }


if __name__ == "__main__":
    sys.exit(main())
