"""Splits of a feature table into rows that a fit sees and rows that judge it: groups are held out whole.

A fit sees all rows of all sources but those of the group that is judged, as the shipped default does. Rows are chosen
and grouped first; then comes one split per question, of whole CNNs and of CNNs whose single layers were measured.
`predictor.evaluation.scenarios` names the questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.modes import MEMORY_FORMATS, MODE_COLUMNS
from predictor.errors import DataError, SchemaError
from predictor.measurements.groups import chips_of, cnns_of
from predictor.models.layer_times.law import counted_operators, operators_in
from predictor.operators.operators import as_run, operator_from_row, operators_of

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.layer_times.times import DeviceMode

Positions = NDArray[np.intp]

N_KNOWN_BATCH_SIZES = 5
"""Batch sizes of the CNN itself that are known on a fine grid: smallest, largest, and three between."""

LIBRARIES = ("quick", "library")
"""Libraries that were designed before any CNN was timed, smallest first; a library holds those before it."""

_SERIES_COLUMNS = ("source", "host", "gpu", "cnn", "image_size", *MODE_COLUMNS)
_EPOCH_COLUMNS = ["epoch_time_s", "samples_per_epoch", "iteration_time_ms"]
_MIDDLE_BATCH_SIZE = 64
_N_CNN_GROUPS = 3  # a fit for each of them and each chip: for each CNN and chip there are 48 on PROFET
_WHOLE = 0.95  # of a CNN's operators, for its layers to count as measured
_FINE = 12  # batch sizes that make a grid fine
_N_SIZE_GROUPS = 4
_NOTHING = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """One split of a feature table, as row positions.

    `train` is fitted on. `anchors` are measurements that may be used at predict time, fitted on or not, such
    as the target on other GPUs. `test` is predicted, and overlaps neither of the others. `proxies` were measured on
    the GPUs that are tested, for predictors that carry a law over by them.
    """

    name: str
    train: Positions
    anchors: Positions
    test: Positions
    proxies: Positions = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        for name, known in (("train", self.train), ("anchors", self.anchors), ("proxies", self.proxies)):
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


def _kind(features: pd.DataFrame) -> NDArray[np.str_]:
    if "kind" not in features:
        return np.full(len(features), "target")
    return features["kind"].fillna("target").to_numpy().astype(str)


def series_of(features: pd.DataFrame) -> NDArray[np.intp]:
    """Give every row the number of its series (all but the batch size equal), of shape (n_rows,)."""
    columns = [column for column in _SERIES_COLUMNS if column in features]
    return features.groupby(columns, dropna=False, sort=False).ngroup().to_numpy().astype(np.intp)


def library_of(features: pd.DataFrame) -> NDArray[np.str_]:
    """Name the library of every row, from ``library=NAME`` in its notes; empty where there is none."""
    notes = features["notes"].astype(str) if "notes" in features else None
    if notes is None:
        return np.full(len(features), "", dtype=np.str_)
    return notes.str.extract(r"library=(\w+)", expand=False).fillna("").to_numpy().astype(np.str_)


def _column(features: pd.DataFrame, name: str) -> NDArray[np.str_]:
    values: NDArray[np.str_] = features[name].to_numpy().astype(str)
    return values


def leave_one_out(groups: NDArray[np.str_], rows: Positions) -> Iterator[tuple[str, Positions, Positions]]:
    """Name of each group, its rows, and the other rows. `groups` labels every row of the table."""
    for name in sorted(set(groups[rows])):
        inside = groups[rows] == name
        yield str(name), rows[inside], rows[~inside]


def interior_rows(features: pd.DataFrame, rows: Positions) -> dict[int, Positions]:
    """Rows at k-th interior batch size of their series (k from 1): neither the smallest nor the largest."""
    series, batch = series_of(features), features["batch_size"].to_numpy()
    held_out: dict[int, list[Positions]] = {}
    for number in np.unique(series[rows]):
        members = rows[series[rows] == number]
        for k, batch_size in enumerate(np.unique(batch[members])[1:-1], start=1):
            held_out.setdefault(k, []).append(members[batch[members] == batch_size])
    return {k: np.sort(np.concatenate(parts)) for k, parts in sorted(held_out.items())}


def deal_into_groups(names: list[str], n_groups: int, seed: int) -> list[list[str]]:
    """`names` shuffled with `seed` and dealt into `n_groups` groups whose sizes differ by one at most."""
    shuffled = np.random.default_rng(seed).permutation(sorted(names))
    return [[str(name) for name in shuffled[i::n_groups]] for i in range(min(n_groups, len(names)))]


def _all_but(gone: NDArray[np.bool_]) -> Positions:
    """What a fit sees: all rows of all sources but those gone."""
    return np.flatnonzero(~gone)


def _without(features: pd.DataFrame, test: Positions) -> Positions:
    """All rows but those tested."""
    gone = np.zeros(len(features), dtype=bool)
    gone[test] = True
    return _all_but(gone)


def problem_scaling(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out the k-th interior batch size of every series; the rest is known."""
    for k, test in interior_rows(features, rows).items():
        yield Fold(f"interior batch size {k}", _without(features, test), np.setdiff1d(rows, test), test)


def unseen_batch_size(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one batch size of whole CNNs everywhere, the interior one nearest to 64."""
    size, gone = _middle_batch_size(features, rows)
    yield Fold(f"batch size {size}", _all_but(gone), _NOTHING, rows[gone[rows]])


def _middle_batch_size(features: pd.DataFrame, rows: Positions) -> tuple[int, NDArray[np.bool_]]:
    """The interior batch size nearest to 64, as a ratio, and whether each row is a CNN at it."""
    batch = features["batch_size"].to_numpy()
    sizes = np.unique(batch[rows])[1:-1]
    if not sizes.size:
        raise DataError("no batch size lies between others. Measure the CNNs at three batch sizes or more.")
    size = int(sizes[np.argmin(np.abs(np.log(sizes / _MIDDLE_BATCH_SIZE)))])
    return size, (batch == size) & (_kind(features) == "target")


def unseen_cnn(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one CNN everywhere, under all its names."""
    cnns = cnns_of(features)
    for name, test, _ in leave_one_out(cnns, rows):
        yield Fold(name, _all_but(cnns == name), _NOTHING, test)


def unseen_cnn_one_run(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one CNN everywhere; of each series tested, the run nearest to batch 64 is known and no other series."""
    for name, train, series in _series_of_unseen_cnns(features, rows):
        for members in series:
            run = _nearest_to_middle(features, members)
            rest = members[members != run]
            if rest.size:
                first = features.iloc[run]
                yield Fold(
                    f"{name} | {first['gpu']} | {first['image_size']} px", train, np.array([run]), rest
                )


def unseen_cnn_run_elsewhere(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one CNN everywhere; of each series tested, the run nearest to batch 64 on one other GPU is known."""
    for name, train, series in _series_of_unseen_cnns(features, rows):
        runs = [(members, features.iloc[_nearest_to_middle(features, members)]) for members in series]
        for members, first in runs:
            for others, run in runs:
                if run["gpu"] != first["gpu"] and run["image_size"] == first["image_size"]:
                    known = np.array([_nearest_to_middle(features, others)])
                    label = f"{name} | {run['gpu']} -> {first['gpu']} | {first['image_size']} px"
                    yield Fold(label, train, known, members)


def _series_of_unseen_cnns(
    features: pd.DataFrame, rows: Positions
) -> Iterator[tuple[str, Positions, list[Positions]]]:
    """Of each CNN: its name, the rows without it, and its series."""
    series = series_of(features)
    for fold in unseen_cnn(features, rows, 0):
        numbers = series[fold.test]
        yield fold.name, fold.train, [fold.test[numbers == number] for number in np.unique(numbers)]


def _nearest_to_middle(features: pd.DataFrame, members: Positions) -> int:
    """The row of a series whose batch size is nearest to 64, as a ratio; of two the smaller."""
    batch = features["batch_size"].to_numpy()[members]
    return int(members[np.lexsort((batch, np.abs(np.log2(batch / _MIDDLE_BATCH_SIZE))))[0]])


def unseen_gpu(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one chip with all that was measured on it."""
    chips = chips_of(features)
    for name, test, _ in leave_one_out(chips, rows):
        yield Fold(name, _all_but(chips == name), _NOTHING, test)


def unseen_gpu_anchored(features: pd.DataFrame, rows: Positions, seed: int) -> Iterator[Fold]:
    """Hold out one chip, and a third of the CNNs everywhere; these CNNs' runs on other chips are anchors."""
    chips, cnns = chips_of(features), cnns_of(features)
    groups = deal_into_groups(sorted(set(cnns[rows])), _N_CNN_GROUPS, seed)
    for chip, held_out, rest in leave_one_out(chips, rows):
        for names in groups:
            out = np.isin(cnns, names)
            train = _all_but(out | (chips == chip))
            if _kind(features)[train].tolist().count("target"):  # operators without CNNs are another question
                yield Fold(f"{chip} | {', '.join(names)}", train, rest[out[rest]], held_out[out[held_out]])


def problem_and_hardware_scaling(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one chip, and the interior batch size nearest to 64 everywhere."""
    chips = chips_of(features)
    size, gone = _middle_batch_size(features, rows)
    for chip, test, _ in leave_one_out(chips, rows[gone[rows]]):
        out = gone | (chips == chip)
        yield Fold(f"{chip} | batch size {size}", _all_but(out), rows[~out[rows]], test)


def epoch_time(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one chip, then one CNN, among the rows whose epoch was timed."""
    if not set(_EPOCH_COLUMNS) <= set(features.columns):
        return
    rows = rows[features[_EPOCH_COLUMNS].notna().all(axis=1).to_numpy()[rows]]
    for column, groups in (("gpu", chips_of(features)), ("cnn", _column(features, "cnn"))):
        for name, test, rest in leave_one_out(groups, rows):
            yield Fold(f"{column} {name}", rest, _NOTHING, test)


def layers_measured(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one CNN whose operators were measured; all operators are known."""
    operators = _layer_rows(features)
    timed = _rows_in_measured_modes(features, rows)
    whole = timed[_layers_are_measured(features, timed, operators)]
    if not whole.size:
        raise DataError("no CNN had its layers measured: `epochcast profile --preset zoo` does.")
    for name, test, rest in leave_one_out(_column(features, "cnn"), timed):
        if np.isin(test, whole).any():
            yield Fold(name, np.union1d(rest, operators), _NOTHING, test[np.isin(test, whole)])


def preset_library(features: pd.DataFrame, rows: Positions, _seed: int, *, largest: str) -> Iterator[Fold]:
    """Hold out one CNN with the operators that no other CNN has; known are only those of a designed library."""
    operators = _layer_rows(features)
    libraries = library_of(features)[operators]
    chosen = operators[np.isin(libraries, LIBRARIES[: LIBRARIES.index(largest) + 1])]
    if not chosen.size:
        raise DataError(
            f"no operator is of the library {largest}: none has library={largest} in its notes. "
            f"Measure it with `epochcast profile --preset {largest}`."
        )
    return _without_own(features, rows, chosen)


def same_chip(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one GPU with all its measurements; known are other cards of its chip, in the modes measured there."""
    operators, gpus, chip_of = _layer_rows(features), _column(features, "gpu"), chips_of(features)
    timed = rows[_is_timed(features)[rows]]
    for name, test, rest in leave_one_out(gpus, timed):
        elsewhere = operators[(gpus[operators] != name) & (chip_of[operators] == chip_of[test[0]])]
        test = test[_in_modes_of(features, test, elsewhere)]
        if test.size:
            yield Fold(name, np.union1d(rest, operators[gpus[operators] != name]), _NOTHING, test)


def same_chip_quick(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one CNN everywhere; known are operators of its GPU and, in the same mode, of other cards of its chip."""
    operators, gpus, chip_of = _layer_rows(features), _column(features, "gpu"), chips_of(features)
    timed, cnn = rows[_is_timed(features)[rows]], _column(features, "cnn")
    targets = target_rows(features)
    for gpu, tested, _ in leave_one_out(gpus, timed):
        elsewhere = operators[(gpus[operators] != gpu) & (chip_of[operators] == chip_of[tested[0]])]
        own = operators[gpus[operators] == gpu]
        tested = tested[
            _in_modes_of(features, tested, elsewhere) & _in_modes_of(features, tested, own, own=True)
        ]
        for name, test, _ in leave_one_out(cnn, tested):
            others = targets[(gpus[targets] != gpu) & (cnn[targets] != name)]
            yield Fold(f"{gpu} | {name}", np.union1d(others, operators), _NOTHING, test)


def _is_timed(features: pd.DataFrame) -> NDArray[np.bool_]:
    """Whether a row's GPU time and layers are known, shape (n_rows,)."""
    if "gpu_time_ms" not in features:
        raise DataError("no row has gpu_time_ms, which measured layers add up to.")
    found: NDArray[np.bool_] = (features["gpu_time_ms"].notna() & features["layer_table"].notna()).to_numpy()
    return found


def _in_modes_of(
    features: pd.DataFrame, rows: Positions, operators: Positions, *, own: bool = False
) -> NDArray[np.bool_]:
    """Whether these operators were measured in each row's mode, on any GPU or (`own`) on the row's."""
    modes = _modes(features)
    measured = {modes[i] if own else modes[i][1:] for i in operators}
    return np.array([(modes[i] if own else modes[i][1:]) in measured for i in rows], dtype=bool)


def fine_grid(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Know five batch sizes of every long series, geometrically apart, and all operators; predict the others."""
    rows = _rows_in_measured_modes(features, rows)
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
    train = np.union1d(np.union1d(anchors, rows[~long]), _layer_rows(features))
    yield Fold("five batch sizes", train, anchors, test)


def study_problem(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """On each device by itself: hold out every fourth batch size of CNNs, their smallest and largest apart."""
    gpus, proxies = _column(features, "gpu"), _proxies(features)
    for gpu, own, _ in leave_one_out(gpus, rows):
        inner = interior_rows(features, own)
        beside = proxies[gpus[proxies] == gpu]
        for turn in range(_N_SIZE_GROUPS):
            test = [part for k, part in inner.items() if k % _N_SIZE_GROUPS == turn]
            if test:
                out = np.sort(np.concatenate(test))
                known = np.union1d(np.setdiff1d(own, out), beside)
                yield Fold(f"{gpu} | every 4th batch size, from {turn}", known, np.setdiff1d(own, out), out)


def study_hardware(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out all CNNs of one device; it gives its proxies to predictors that carry a law over by them."""
    for gpu, test, train, proxies in _other_devices(features, rows):
        yield Fold(gpu, train, _NOTHING, test, proxies)


def study_both(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """As `study_hardware`, with every fourth batch size held out on all devices."""
    batch, is_target = features["batch_size"].to_numpy(), _kind(features) == "target"
    place = np.searchsorted(np.unique(batch[rows]), batch) % _N_SIZE_GROUPS
    for gpu, test, train, proxies in _other_devices(features, rows):
        for turn in range(_N_SIZE_GROUPS):
            known = train[~is_target[train] | (place[train] != turn)]
            if is_target[known].any():
                label = f"{gpu} | every 4th batch size, from {turn}"
                yield Fold(label, known, _NOTHING, test[place[test] == turn], proxies)


def _other_devices(
    features: pd.DataFrame, rows: Positions
) -> Iterator[tuple[str, Positions, Positions, Positions]]:
    """Of each device: its name, its CNNs, the CNNs and proxies of all others, and its own proxies."""
    gpus, proxies = _column(features, "gpu"), _proxies(features)
    known = sorted(set(gpus[rows]))
    if len(known) < 2:
        raise DataError(
            f"scaling from one GPU to another needs CNNs on two, and the table's are on {', '.join(known) or 'none'}. "
            "Give the tables of both: `epochcast evaluate FIRST.csv SECOND.csv --scaling hardware`."
        )
    for gpu, test, rest in leave_one_out(gpus, rows):
        own = gpus[proxies] == gpu
        yield gpu, test, np.union1d(rest, proxies[~own]), proxies[own]


def _proxies(features: pd.DataFrame) -> Positions:
    return np.flatnonzero(_kind(features) == "proxy")


def _layer_rows(features: pd.DataFrame) -> Positions:
    """Rows of single layers that give their whole shape: published ones of a single pass are left out."""
    found = _kind(features) == "operator"
    if "n_tensors" in features:
        found = found & features["n_tensors"].notna().to_numpy()
    if not found.any():
        raise DataError(
            "no single layers are among the rows: measure them with `epochcast profile --preset library`."
        )
    return np.flatnonzero(found)


def _rows_in_measured_modes(
    features: pd.DataFrame, rows: Positions, operators: Positions | None = None
) -> Positions:
    """Rows whose GPU time and layers are known, in a mode in which (these) operators were measured."""
    timed = rows[_is_timed(features)[rows]]
    known = _layer_rows(features) if operators is None else operators
    return timed[_in_modes_of(features, timed, known, own=True)]


def _layers_are_measured(features: pd.DataFrame, rows: Positions, operators: Positions) -> NDArray[np.bool_]:
    """Whether nearly all operators of each row's CNN were measured in its mode, shape (n_rows,)."""
    modes = _modes(features)
    names = features["cnn"].to_numpy()
    measured: dict[object, set[str]] = {}
    for i in operators:
        measured.setdefault(modes[i], set()).add(str(names[i]))
    shares: dict[tuple[object, ...], float] = {}
    for i in rows:
        table = features["layer_table"].iloc[i]
        cell = (modes[i], id(table))
        if cell not in shares:
            counted, counts = counted_operators(table)
            named = [each.name in measured[modes[i]] for each in operators_in(counted, modes[i])]
            shares[cell] = float(counts @ np.array(named)) / float(counts.sum())
    return np.array(
        [shares[modes[i], id(features["layer_table"].iloc[i])] >= _WHOLE for i in rows], dtype=bool
    )


def _modes(features: pd.DataFrame) -> list[DeviceMode]:
    """Mode of every row, in which its operators are measured; scikit-learn is imported with it."""
    from predictor.models.layer_times.estimator import modes_of

    return modes_of(features)


def _without_own(features: pd.DataFrame, rows: Positions, operators: Positions) -> Iterator[Fold]:
    """Hold out each CNN with the operators that no other CNN has, among these operators."""
    groups = _column(features, "cnn")
    rows = _rows_in_measured_modes(features, rows, operators)
    records: list[dict[Any, Any]] = features.iloc[operators].to_dict("records")
    names = np.array([operator_from_row(row).name for row in records], dtype=np.str_)
    having = _names_by_group(features, rows, groups)
    for name, test, rest in leave_one_out(groups, rows):
        elsewhere = set().union(*(found for group, found in having.items() if group != name))
        own = sorted(having[name] - elsewhere)
        yield Fold(name, np.union1d(rest, operators[~np.isin(names, own)]), _NOTHING, test)


def _names_by_group(features: pd.DataFrame, rows: Positions, groups: NDArray[np.str_]) -> dict[str, set[str]]:
    """Names of the operators of each group's CNNs, as they run in any mode."""
    found: dict[str, set[str]] = {}
    modes = [*product(MEMORY_FORMATS, ("tf32", "amp_bf16"))]
    for group, table in {(str(groups[i]), features["layer_table"].iloc[i]) for i in rows}:
        run = (as_run(each, "pytorch", *mode) for each in operators_of(table) for mode in modes)
        found.setdefault(group, set()).update(operator.name for operator in run)
    return found


def _spread(sizes: NDArray[np.int64]) -> list[int]:
    """The known batch sizes of a fine grid, about equal ratios apart."""
    evenly = np.geomspace(sizes[0], sizes[-1], N_KNOWN_BATCH_SIZES)
    return [int(sizes[np.argmin(np.abs(np.log(sizes / each)))]) for each in evenly]
