"""Ways to split a feature table into what a predictor may see and what it is judged on, by whole groups.

Called by `predictor.evaluation.scenarios`; calls `predictor.gpus` to tell which GPUs are the same chip,
and mode_columns.
Every function takes row *positions* (0 is the first row) of one feature table, and gives folds of positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from predictor.errors import SchemaError
from predictor.mode_columns import MODE_COLUMNS

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "Fold",
    "Positions",
    "chips",
    "deal_into_groups",
    "interior_rows",
    "leave_one_out",
    "middle_rows",
    "one_run_folds",
    "operator_configurations",
    "operator_rows",
    "ordered_pair_folds",
    "series_of",
    "target_rows",
]

Positions = NDArray[np.intp]

_SERIES_COLUMNS = ("source", "host", "gpu", "cnn", "image_size", *MODE_COLUMNS)
_OPERATOR_COLUMNS = (
    "source",
    "gpu",
    "cnn",
    "batch_size",
    "precision",
    "optimizer",
    "activation_kind",
    "parameters",
)
_MIDDLE_BATCH_SIZE = 64


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """One split of a feature table, as row positions.

    `train` is fitted on. `anchors` are measurements that may be used at predict time, fitted on or not, such
    as the target on other GPUs. `test` is predicted, and overlaps neither of the others.
    """

    name: str
    train: Positions
    anchors: Positions
    test: Positions

    def __post_init__(self) -> None:
        for name, known in (("train", self.train), ("anchors", self.anchors)):
            shared = np.intersect1d(known, self.test)
            if shared.size:
                raise SchemaError(
                    f"fold {self.name!r} tests {shared.size} rows that are in its {name}, e.g. {shared[0]}."
                )


def target_rows(features: pd.DataFrame, sources: tuple[str, ...] = ()) -> Positions:
    """Positions of the CNNs as trained (kind ``target``), of the named sources or of all if none is named."""
    chosen = _kind(features) == "target"
    if sources:
        chosen &= features["source"].isin(sources).to_numpy()
    return np.flatnonzero(chosen)


def operator_rows(features: pd.DataFrame) -> Positions:
    """Positions of single layers and of proxy CNNs: what can be measured without the target."""
    return np.flatnonzero(np.isin(_kind(features), ("operator", "proxy")))


def operator_configurations(features: pd.DataFrame, rows: Positions) -> list[Positions]:
    """Rows of one and the same layer, pass by pass, together; whole training steps of it are left out."""
    columns = [column for column in _OPERATOR_COLUMNS if column in features]
    chosen = features.iloc[rows]
    number = chosen.groupby(columns, dropna=False, sort=False).ngroup().to_numpy()
    alone = np.ones(rows.size, dtype=bool)
    if "pass" in chosen:  # a training step of a single layer also updates what it should only read
        alone = ~chosen["pass"].isin(("training",)).to_numpy()
    return [rows[alone & (number == each)] for each in np.unique(number[alone])]


def _kind(features: pd.DataFrame) -> NDArray[np.str_]:
    if "kind" not in features:
        return np.full(len(features), "target")
    return features["kind"].fillna("target").to_numpy().astype(str)


def chips(features: pd.DataFrame) -> NDArray[np.str_]:
    """Name the chip of every row: cards with one chip (RTX 2080 Ti, Quadro RTX 8000) tell about each other.

    Returns
    -------
    ndarray of shape (n_rows,)
        The catalogue's chip; a CPU (``cpu:<model>``) is its own.

    Raises
    ------
    UnknownGpuError
        If the catalogue lacks a GPU.
    """
    from predictor.gpus import find_gpu

    names = [str(name) for name in features["gpu"].unique()]
    chip_of = {name: name if name.startswith("cpu:") else find_gpu(name).chip for name in names}
    return features["gpu"].map(chip_of).to_numpy().astype(str)


def leave_one_out(groups: NDArray[np.str_], rows: Positions) -> Iterator[tuple[str, Positions, Positions]]:
    """Name of each group, its rows, and the other rows. `groups` labels every row of the table."""
    for name in sorted(set(groups[rows])):
        inside = groups[rows] == name
        yield str(name), rows[inside], rows[~inside]


def series_of(features: pd.DataFrame) -> NDArray[np.intp]:
    """Give every row the number of its series (all but the batch size equal), of shape (n_rows,)."""
    columns = [column for column in _SERIES_COLUMNS if column in features]
    return features.groupby(columns, dropna=False, sort=False).ngroup().to_numpy().astype(np.intp)


def interior_rows(features: pd.DataFrame, rows: Positions) -> dict[int, Positions]:
    """Rows at k-th interior batch size of their series (k from 1): neither the smallest nor the largest."""
    series, batch = series_of(features), features["batch_size"].to_numpy()
    held_out: dict[int, list[Positions]] = {}
    for number in np.unique(series[rows]):
        members = rows[series[rows] == number]
        for k, batch_size in enumerate(np.unique(batch[members])[1:-1], start=1):
            held_out.setdefault(k, []).append(members[batch[members] == batch_size])
    return {k: np.sort(np.concatenate(parts)) for k, parts in sorted(held_out.items())}


def middle_rows(features: pd.DataFrame, rows: Positions, batch_size: int = _MIDDLE_BATCH_SIZE) -> Positions:
    """Of each series in `rows` the row whose batch size is nearest to `batch_size`, as a ratio."""
    series, batch = series_of(features)[rows], features["batch_size"].to_numpy()[rows]
    distance = np.abs(np.log2(batch / batch_size))
    order = np.lexsort((batch, distance, series))
    first = np.unique(series[order], return_index=True)[1]
    return np.sort(rows[order][first])


def one_run_folds(features: pd.DataFrame, name: str, train: Positions, held_out: Positions) -> Iterator[Fold]:
    """Make a fold of each series of `held_out`: its row nearest to batch 64 is known, the rest is tested."""
    series = series_of(features)
    for number in np.unique(series[held_out]):
        members = held_out[series[held_out] == number]
        anchor = middle_rows(features, members)
        rest = np.setdiff1d(members, anchor)
        if rest.size:
            first = features.iloc[members[0]]
            yield Fold(f"{name} | {first['gpu']} | {first['image_size']} px", train, anchor, rest)


def deal_into_groups(names: list[str], n_groups: int, seed: int) -> list[list[str]]:
    """`names` shuffled with `seed` and dealt into `n_groups` groups whose sizes differ by one at most."""
    shuffled = np.random.default_rng(seed).permutation(sorted(names))
    return [[str(name) for name in shuffled[i::n_groups]] for i in range(min(n_groups, len(names)))]


def ordered_pair_folds(
    features: pd.DataFrame, rows: Positions, groups: Callable[[list[str]], list[list[str]]]
) -> Iterator[Fold]:
    """From one GPU to another: all of the first is known, and of the second the CNNs not held out."""
    gpu, cnn = features["gpu"].to_numpy().astype(str), features["cnn"].to_numpy().astype(str)
    names = sorted(set(gpu[rows]))
    for first, second in ((a, b) for a in names for b in names if a != b):
        known, wanted = rows[gpu[rows] == first], rows[gpu[rows] == second]
        both = sorted(set(cnn[known]) & set(cnn[wanted]))
        for held_out in groups(both):
            test = wanted[np.isin(cnn[wanted], held_out)]
            train = np.concatenate([known, wanted[~np.isin(cnn[wanted], held_out)]])
            anchors = known[np.isin(cnn[known], held_out)]
            yield Fold(f"{first} -> {second} | {', '.join(held_out)}", np.sort(train), anchors, test)
