"""How each scenario splits a feature table: what may be fitted on, what may be known, what is predicted.

Called by `predictor.evaluation.scenarios` alone; calls splits. docs/evaluation.md gives the reasons.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predictor.errors import DataError
from predictor.evaluation.splits import (
    Fold,
    Positions,
    chips,
    deal_into_groups,
    interior_rows,
    leave_one_out,
    one_run_folds,
    operator_configurations,
    operator_rows,
    ordered_pair_folds,
)

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "N_PROXIES",
    "epoch_time",
    "hardware_scaling",
    "problem_and_hardware_scaling",
    "problem_scaling",
    "unseen_cnn",
    "unseen_cnn_one_run",
    "unseen_gpu",
    "unseen_gpu_anchored",
    "unseen_gpu_proxies",
]

N_PROXIES = 20
"""Convolutions timed alone on the new GPU in the scenario with proxies."""

_N_CNN_GROUPS = 4
_EPOCH_COLUMNS = ["epoch_time_s", "samples_per_epoch", "iteration_time_ms"]
_NOTHING = np.empty(0, dtype=np.intp)


def _union(*parts: Positions) -> Positions:
    joined: Positions = np.unique(np.concatenate(parts))
    return joined


def _column(features: pd.DataFrame, name: str) -> NDArray[np.str_]:
    values: NDArray[np.str_] = features[name].to_numpy().astype(str)
    return values


def _operators_of_other_chips(features: pd.DataFrame, chip_of: NDArray[np.str_], chip: str) -> Positions:
    operators = operator_rows(features)
    elsewhere: Positions = operators[chip_of[operators] != chip]
    return elsewhere


def problem_scaling(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out the k-th interior batch size of every series; the rest is known."""
    for k, test in interior_rows(features, rows).items():
        rest = np.setdiff1d(rows, test)
        yield Fold(f"interior batch size {k}", _union(rest, operator_rows(features)), rest, test)


def unseen_cnn(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one CNN on all GPUs."""
    for name, test, rest in leave_one_out(_column(features, "cnn"), rows):
        yield Fold(name, _union(rest, operator_rows(features)), _NOTHING, test)


def unseen_cnn_one_run(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one CNN on all GPUs; of each series tested, one run is known and no other series."""
    for name, held_out, rest in leave_one_out(_column(features, "cnn"), rows):
        yield from one_run_folds(features, name, _union(rest, operator_rows(features)), held_out)


def unseen_gpu(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one chip with all that was measured on it."""
    chip_of = chips(features)
    for name, test, rest in leave_one_out(chip_of, rows):
        yield Fold(name, _union(rest, _operators_of_other_chips(features, chip_of, name)), _NOTHING, test)


def unseen_gpu_anchored(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one chip, and one CNN everywhere; that CNN's runs on other chips are anchors."""
    chip_of, cnn = chips(features), _column(features, "cnn")
    for chip, held_out, rest in leave_one_out(chip_of, rows):
        operators = _operators_of_other_chips(features, chip_of, chip)
        for name in sorted(set(cnn[held_out])):
            train = rest[cnn[rest] != name]
            if train.size:  # operators alone would be another question
                train = _union(train, operators)
                yield Fold(
                    f"{chip} | {name}", train, rest[cnn[rest] == name], held_out[cnn[held_out] == name]
                )


def unseen_gpu_proxies(features: pd.DataFrame, rows: Positions, seed: int) -> Iterator[Fold]:
    """Hold out one chip, but for some convolutions timed alone on it."""
    chip_of = chips(features)
    convolutions = _fp32_convolutions(features)
    for number, (chip, test, rest) in enumerate(leave_one_out(chip_of, rows)):
        measured = operator_configurations(features, convolutions[chip_of[convolutions] == chip])
        if len(measured) < N_PROXIES:
            raise DataError(
                f"{chip} has {len(measured)} convolutions timed alone; this scenario "
                f"needs {N_PROXIES} on every chip. Add operator rows to the table."
            )
        chosen = np.random.default_rng([seed, number]).choice(len(measured), N_PROXIES, replace=False)
        others = _operators_of_other_chips(features, chip_of, chip)
        yield Fold(chip, _union(rest, others, *(measured[i] for i in chosen)), _NOTHING, test)


def _fp32_convolutions(features: pd.DataFrame) -> Positions:
    rows = operator_rows(features)
    chosen = features.iloc[rows]
    keep = (chosen["precision"] == "fp32").to_numpy()
    if "type" in chosen:
        keep = keep & (chosen["type"] == "conv2d").to_numpy()
    return rows[keep]


def hardware_scaling(features: pd.DataFrame, rows: Positions, seed: int) -> Iterator[Fold]:
    """From each GPU to each other one, with a group of CNNs held out on the second."""
    deal = partial(deal_into_groups, n_groups=_N_CNN_GROUPS, seed=seed)
    return ordered_pair_folds(features, rows, deal)


def problem_and_hardware_scaling(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one chip, and the k-th interior batch size of every series everywhere."""
    chip_of = chips(features)
    for k, interior in interior_rows(features, rows).items():
        outside = np.setdiff1d(rows, interior)
        for chip, test, _ in leave_one_out(chip_of, interior):
            rest = outside[chip_of[outside] != chip]
            train = _union(rest, _operators_of_other_chips(features, chip_of, chip))
            yield Fold(f"{chip} | interior batch size {k}", train, rest, test)


def epoch_time(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one chip, then one CNN, among the rows whose epoch was timed."""
    if not set(_EPOCH_COLUMNS) <= set(features.columns):
        return
    rows = rows[features[_EPOCH_COLUMNS].notna().all(axis=1).to_numpy()[rows]]
    for column, groups in (("gpu", chips(features)), ("cnn", _column(features, "cnn"))):
        for name, test, rest in leave_one_out(groups, rows):
            yield Fold(f"{column} {name}", rest, _NOTHING, test)
