"""How the scenarios on measured layers split a table: which CNNs are new, and which of their layers are known.

Called by `predictor.evaluation.scenarios` alone; calls splits and operators. docs/evaluation.md gives the reasons.
A row of an operator may say in its `notes` which library it belongs to (``library=quick``, ``library=library``);
operators without such a note were measured because some CNN has them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.errors import DataError
from predictor.evaluation.splits import Fold, Positions, leave_one_out, series_of
from predictor.operators import operator_from_row, operators_of

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "LIBRARIES",
    "N_KNOWN_BATCH_SIZES",
    "fine_grid",
    "general_library",
    "layers_measured",
    "library_of",
    "preset_library",
]

N_KNOWN_BATCH_SIZES = 5
"""Batch sizes of the CNN itself that are known on a fine grid: smallest, largest, and three between."""

LIBRARIES = ("quick", "library")
"""Libraries that were designed before any CNN was timed, smallest first; each holds the ones before it."""

_WHOLE = 0.95  # of a CNN's operators, for its layers to count as measured
_FINE = 12  # batch sizes that make a grid fine
_NOTHING = np.empty(0, dtype=np.intp)
_FAMILY = re.compile(
    r"(wide_resnet|resnext|resnet|vgg|densenet|efficientnet|convnext|mobilenet|regnet|shufflenet|[a-z]+)"
)


def layers_measured(
    features: pd.DataFrame, rows: Positions, _seed: int, *, family: bool = False
) -> Iterator[Fold]:
    """Hold out one CNN, or one family, whose operators were measured; all operators are known."""
    operators = _operators(features)
    timed = _timed(features, rows)
    whole = timed[_whole(features, timed, operators)]
    if not whole.size:
        raise DataError("no CNN had its layers measured: `epochcast profile --preset zoo` does.")
    for name, test, rest in leave_one_out(_groups(features, family), timed):
        if np.isin(test, whole).any():
            yield Fold(name, np.union1d(rest, operators), _NOTHING, test[np.isin(test, whole)])


def general_library(
    features: pd.DataFrame, rows: Positions, _seed: int, *, family: bool = False
) -> Iterator[Fold]:
    """Hold out one CNN, or one family, with the operators that no other CNN has."""
    return _without_own(features, rows, _operators(features), _groups(features, family))


def preset_library(features: pd.DataFrame, rows: Positions, _seed: int, *, largest: str) -> Iterator[Fold]:
    """Hold out one CNN with the operators that no other CNN has; known are those of a designed library alone."""
    operators = _operators(features)
    libraries = library_of(features)[operators]
    wanted = LIBRARIES[: LIBRARIES.index(largest) + 1]
    chosen = operators[np.isin(libraries, wanted)]
    if not chosen.size:
        raise DataError(
            f"no operator says in its notes that it is of the library {largest}: library={largest}."
        )
    return _without_own(features, rows, chosen, _groups(features, family=False))


def fine_grid(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Know five batch sizes of every long series, geometrically apart, and all operators; predict the others."""
    rows = _timed(features, rows)
    series, batch = series_of(features), features["batch_size"].to_numpy()
    known: list[Positions] = []
    for number in np.unique(series[rows]):
        members = rows[series[rows] == number]
        sizes = np.unique(batch[members])
        if sizes.size >= _FINE:
            known.append(members[np.isin(batch[members], _spread(sizes))])
    if not known:
        raise DataError(
            f"no CNN was measured at {_FINE} batch sizes or more. Measure one with `epochcast profile`."
        )
    anchors = np.sort(np.concatenate(known))
    long = np.isin(series[rows], series[anchors])
    test = np.setdiff1d(rows[long], anchors)
    train = np.union1d(np.union1d(anchors, rows[~long]), _operators(features))
    yield Fold("five batch sizes", train, anchors, test)


def library_of(features: pd.DataFrame) -> NDArray[np.str_]:
    """Name the library of every row, from ``library=NAME`` in its notes; empty where there is none."""
    notes = features["notes"].astype(str) if "notes" in features else None
    if notes is None:
        return np.full(len(features), "", dtype=np.str_)
    return notes.str.extract(r"library=(\w+)", expand=False).fillna("").to_numpy().astype(np.str_)


def _operators(features: pd.DataFrame) -> Positions:
    """Rows of operators that say which: others, such as published ones of a single pass, are another instrument's."""
    found = (
        (features["kind"] == "operator").to_numpy() if "kind" in features else np.zeros(len(features), bool)
    )
    if "n_tensors" in features:
        found = found & features["n_tensors"].notna().to_numpy()
    if not found.any():
        raise DataError(
            "no single layers are among the rows: measure them with `epochcast profile --preset library`."
        )
    return np.flatnonzero(found)


def _timed(features: pd.DataFrame, rows: Positions, operators: Positions | None = None) -> Positions:
    """Rows whose GPU time and layers are known, in a mode in which (these) operators were measured."""
    from predictor.predictors.layer_times import modes_of

    if "gpu_time_ms" not in features:
        raise DataError("no row has gpu_time_ms, which measured layers add up to.")
    modes = modes_of(features)
    measured = {modes[i] for i in (_operators(features) if operators is None else operators)}
    known = features["gpu_time_ms"].notna().to_numpy() & features["layer_table"].notna().to_numpy()
    known &= np.array([mode in measured for mode in modes], dtype=bool)
    return rows[known[rows]]


def _whole(features: pd.DataFrame, rows: Positions, operators: Positions) -> NDArray[np.bool_]:
    """Whether nearly all operators of a row's CNN were measured in its mode."""
    from predictor.predictors.layer_times import modes_of

    modes = modes_of(features)
    names = features["cnn"].to_numpy()
    measured: dict[object, set[str]] = {}
    for i in operators:
        measured.setdefault(modes[i], set()).add(str(names[i]))
    shares: dict[tuple[object, ...], float] = {}
    for i in rows:
        table = features["layer_table"].iloc[i]
        cell = (modes[i], id(table))
        if cell not in shares:
            counted = operators_of(table)
            known = sum(n for operator, n in counted.items() if operator.name in measured[modes[i]])
            shares[cell] = known / counted.total()
    return np.array(
        [shares[modes[i], id(features["layer_table"].iloc[i])] >= _WHOLE for i in rows], dtype=bool
    )


def _groups(features: pd.DataFrame, family: bool) -> NDArray[np.str_]:
    names = [str(name) for name in features["cnn"]]
    return np.array([_family(name) if family else name for name in names], dtype=np.str_)


def _family(cnn: str) -> str:
    found = _FAMILY.match(cnn)
    return found.group(1) if found else cnn


def _without_own(
    features: pd.DataFrame, rows: Positions, operators: Positions, groups: NDArray[np.str_]
) -> Iterator[Fold]:
    rows = _timed(features, rows, operators)
    records: list[dict[Any, Any]] = features.iloc[operators].to_dict("records")
    names = np.array([operator_from_row(row).name for row in records], dtype=np.str_)
    having = _names_by_group(features, rows, groups)
    for name, test, rest in leave_one_out(groups, rows):
        elsewhere = set().union(*(found for group, found in having.items() if group != name))
        own = sorted(having[name] - elsewhere)
        yield Fold(name, np.union1d(rest, operators[~np.isin(names, own)]), _NOTHING, test)


def _names_by_group(features: pd.DataFrame, rows: Positions, groups: NDArray[np.str_]) -> dict[str, set[str]]:
    """Names of the operators of each group's CNNs."""
    found: dict[str, set[str]] = {}
    for group, table in {(str(groups[i]), features["layer_table"].iloc[i]) for i in rows}:
        found.setdefault(group, set()).update(operator.name for operator in operators_of(table))
    return found


def _spread(sizes: NDArray[np.int64]) -> list[int]:
    wanted = np.geomspace(sizes[0], sizes[-1], N_KNOWN_BATCH_SIZES)
    return [int(sizes[np.argmin(np.abs(np.log(sizes / each)))]) for each in wanted]
