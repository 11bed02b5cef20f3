"""Operators that wait rather than compute: error of their times with a size left out of an H100's and H200's libraries.

`python benchmarks/waiting_operators.py`: of recurrent layers each state, of resizing each pair of sides is left out.
`--types`: half widths of operators by the law of specifications, of types that no CNN of its fit has, each held out.
"""

import sys
from collections.abc import Callable, Hashable
from pathlib import Path

import numpy as np
import pandas as pd

from predictor.arrays import Array
from predictor.measurements.table import read_measurements
from predictor.models.forecast import COVERAGE
from predictor.models.intervals import interval_factor
from predictor.models.layer_times.estimator import libraries_of
from predictor.models.layer_times.fit import with_volumes
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.roofline.rows import pass_rows_of
from predictor.models.served import Model
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


_OF_EACH_TYPE, _LEAST_MS = 150, 0.1


def held_out_types(every: pd.DataFrame) -> None:
    """Print the half width of ln time that holds 90 % of the operators, each type counting the same, and its coverage.

    The coverage of a type is that of the half width of all others.
    """
    model = Model.load()
    strange = ~every["type"].isin([*model.roofline.ranges_.layer_types, "loss", "optimizer"])
    is_long = every["iteration_time_ms"] > _LEAST_MS
    rows = every[strange & (every["pass"] == "forward_backward") & is_long]  # noqa: S105
    rows = rows[~rows["autotune"].fillna(False).astype(bool)].sample(frac=1.0, random_state=0)
    rows = (
        rows.groupby(["gpu", "precision", "memory_format", "type"]).head(_OF_EACH_TYPE).reset_index(drop=True)
    )
    law, parts = model.roofline.law_, pass_rows_of(rows)
    operators = zip(parts.kernels, parts.contexts, parts.batch_sizes, strict=True)
    answered = [float(law.times(own, [context], [size]).device_ms[0, 0]) for own, context, size in operators]
    error = np.log(rows["iteration_time_ms"] / answered)
    weight = 1.0 / rows.groupby("type")["type"].transform("size")

    def half_width(chosen: pd.Series) -> float:
        return interval_factor(
            error[chosen].to_numpy(), np.ones(chosen.sum()), COVERAGE, weight[chosen].to_numpy()
        )

    inside = []
    for type_, own_error in error.groupby(rows["type"]):
        inside.append((own_error.abs() <= half_width(rows["type"] != type_)).mean())
        print(
            f"{type_}: {own_error.size} times, median {own_error.median():+.2f}, {100 * inside[-1]:.0f} % inside"
        )
    print(
        f"half width {half_width(error == error):.2f}, {100 * np.mean(inside):.0f} % inside with each type held out"
    )


def main() -> None:
    """Print the mean and median error by type and mode, or the widths of types held out."""
    tables = [read_measurements(path) for path in sorted(FOLDER.glob("h[12]00_pytorch_*_operators.csv.gz"))]
    if "--types" in sys.argv:
        held_out_types(pd.concat(tables, ignore_index=True))
        return
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
