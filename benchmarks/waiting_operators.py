"""Operators that wait rather than compute: error of their times with a size left out of an H100's and H200's libraries.

`python benchmarks/waiting_operators.py`: of recurrent layers each state, of resizing each pair of sides is left out.
"""

from collections.abc import Callable, Hashable
from pathlib import Path

import numpy as np
import pandas as pd

from predictor.arrays import Array
from predictor.measurements.table import read_measurements
from predictor.models.layer_times.estimator import libraries_of
from predictor.models.layer_times.fit import with_volumes
from predictor.models.layer_times.library import OperatorLibrary
from predictor.operator_types import RECURRENT_TYPES, RESIZING_TYPES
from predictor.operators.operators import Operator

FOLDER = Path(__file__).parents[1] / "datasets" / "measurements"


def left_out(own: OperatorLibrary, known: OperatorLibrary, group_of: Callable[[Operator], Hashable]) -> Array:
    """ln(answer / measured) of a library's operators, each group answered by what the others of `known` tell."""
    errors = []
    for group in dict.fromkeys(map(group_of, own.operators)):
        rows = [i for i, operator in enumerate(own.operators) if group_of(operator) == group]
        lesser = known.without([operator for operator in known.operators if group_of(operator) == group])
        if {own.operators[i].type for i in rows} <= {operator.type for operator in lesser.operators}:
            answers = lesser.times([own.operators[i] for i in rows], own.batch_sizes).gpu_ms
            errors.append(np.log(answers) - own.log_ms[rows])
    joined = np.concatenate([error.ravel() for error in errors]) if errors else np.empty(0)
    return joined[np.isfinite(joined)]


def main() -> None:
    """Print the mean and median error by type and mode."""
    tables = [read_measurements(path) for path in sorted(FOLDER.glob("h[12]00_pytorch_*_operators.csv.gz"))]
    every = pd.concat([table[table["type"].isin(RECURRENT_TYPES + RESIZING_TYPES)] for table in tables])
    groups: dict[str, Callable[[Operator], Hashable]] = {
        **dict.fromkeys(
            RECURRENT_TYPES, lambda operator: (operator.out_channels or 0) // (operator.groups or 1)
        ),
        **dict.fromkeys(RESIZING_TYPES, lambda operator: (operator.in_height, operator.out_height)),
    }
    for type_, group_of in groups.items():
        libraries = libraries_of(every[every["type"] == type_].reset_index(drop=True))
        known = with_volumes(libraries)
        for mode, library in sorted(libraries.items()):
            errors = np.abs(left_out(library, known[mode], group_of))
            if errors.size:
                mean, median = 100 * np.mean(errors), 100 * np.median(errors)
                print(f"{type_} {mode}: {errors.size} times, {mean:.1f} % off, median {median:.1f} %")


if __name__ == "__main__":
    main()
