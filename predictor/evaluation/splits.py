"""Splits of a feature table into rows that a fit sees and rows that judge it: groups are held out whole.

Rows are chosen and grouped first; then comes one split per question, of whole CNNs and of CNNs whose single layers were
measured. `predictor.evaluation.scenarios` names the questions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import device_of
from predictor.catalogue.modes import MODE_COLUMNS
from predictor.errors import DataError, SchemaError
from predictor.operators.operators import operator_from_row, operators_of

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.layer_times.times import DeviceMode

__all__ = [
    "LIBRARIES",
    "N_KNOWN_BATCH_SIZES",
    "N_PROXIES",
    "Fold",
    "Positions",
    "chips",
    "deal_into_groups",
    "epoch_time",
    "fine_grid",
    "general_library",
    "hardware_scaling",
    "interior_rows",
    "layers_measured",
    "leave_one_out",
    "library_of",
    "middle_rows",
    "one_run_folds",
    "operator_configurations",
    "operator_rows",
    "ordered_pair_folds",
    "preset_library",
    "problem_and_hardware_scaling",
    "problem_scaling",
    "same_chip",
    "same_chip_quick",
    "series_of",
    "target_rows",
    "unseen_cnn",
    "unseen_cnn_one_run",
    "unseen_gpu",
    "unseen_gpu_anchored",
    "unseen_gpu_proxies",
]

Positions = NDArray[np.intp]

N_PROXIES = 20
"""Convolutions timed alone on the new GPU in the scenario with proxies."""

N_KNOWN_BATCH_SIZES = 5
"""Batch sizes of the CNN itself that are known on a fine grid: smallest, largest, and three between."""

LIBRARIES = ("quick", "library")
"""Libraries that were designed before any CNN was timed, smallest first; each holds the ones before it."""

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
_EPOCH_COLUMNS = ["epoch_time_s", "samples_per_epoch", "iteration_time_ms"]
_MIDDLE_BATCH_SIZE = 64
_N_CNN_GROUPS = 4
_WHOLE = 0.95  # of a CNN's operators, for its layers to count as measured
_FINE = 12  # batch sizes that make a grid fine
_FAMILY = re.compile(
    r"(wide_resnet|resnext|resnet|vgg|densenet|efficientnet|convnext|mobilenet|regnet|shufflenet|[a-z]+)"
)
_NOTHING = np.empty(0, dtype=np.intp)


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


def _fp32_convolutions(features: pd.DataFrame) -> Positions:
    rows = operator_rows(features)
    chosen = features.iloc[rows]
    keep = (chosen["precision"] == "fp32").to_numpy()
    if "type" in chosen:
        keep = keep & (chosen["type"] == "conv2d").to_numpy()
    return rows[keep]


def _operators_of_other_chips(features: pd.DataFrame, chip_of: NDArray[np.str_], chip: str) -> Positions:
    operators = operator_rows(features)
    elsewhere: Positions = operators[chip_of[operators] != chip]
    return elsewhere


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
    names = [str(name) for name in features["gpu"].unique()]
    chip_of = {name: device_of(name).chip for name in names}
    return features["gpu"].map(chip_of).to_numpy().astype(str)


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


def _groups(features: pd.DataFrame, family: bool) -> NDArray[np.str_]:
    """Label of every row: its CNN, or the family that the CNN's name begins with."""
    names = [str(name) for name in features["cnn"]]
    matches = [_FAMILY.match(name) if family else None for name in names]
    labels = [match.group(1) if match else name for match, name in zip(matches, names, strict=True)]
    return np.array(labels, dtype=np.str_)


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


def middle_rows(features: pd.DataFrame, rows: Positions, batch_size: int = _MIDDLE_BATCH_SIZE) -> Positions:
    """Of each series in `rows` the row whose batch size is nearest to `batch_size`, as a ratio."""
    series, batch = series_of(features)[rows], features["batch_size"].to_numpy()[rows]
    distance = np.abs(np.log2(batch / batch_size))
    order = np.lexsort((batch, distance, series))
    first = np.unique(series[order], return_index=True)[1]
    return np.sort(rows[order][first])


def deal_into_groups(names: list[str], n_groups: int, seed: int) -> list[list[str]]:
    """`names` shuffled with `seed` and dealt into `n_groups` groups whose sizes differ by one at most."""
    shuffled = np.random.default_rng(seed).permutation(sorted(names))
    return [[str(name) for name in shuffled[i::n_groups]] for i in range(min(n_groups, len(names)))]


def _union(*parts: Positions) -> Positions:
    joined: Positions = np.unique(np.concatenate(parts))
    return joined


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


def hardware_scaling(features: pd.DataFrame, rows: Positions, seed: int) -> Iterator[Fold]:
    """From each GPU to each other one, with a group of CNNs held out on the second."""
    deal = partial(deal_into_groups, n_groups=_N_CNN_GROUPS, seed=seed)
    return ordered_pair_folds(features, rows, deal)


def ordered_pair_folds(
    features: pd.DataFrame, rows: Positions, groups: Callable[[list[str]], list[list[str]]]
) -> Iterator[Fold]:
    """From one GPU to another: all of the first is known, and of the second the CNNs not held out."""
    gpu, cnn = features["gpu"].to_numpy().astype(str), features["cnn"].to_numpy().astype(str)
    names = sorted(set(gpu[rows]))
    for first, second in ((a, b) for a in names for b in names if a != b):
        known, target = rows[gpu[rows] == first], rows[gpu[rows] == second]
        both = sorted(set(cnn[known]) & set(cnn[target]))
        for held_out in groups(both):
            test = target[np.isin(cnn[target], held_out)]
            train = np.concatenate([known, target[~np.isin(cnn[target], held_out)]])
            anchors = known[np.isin(cnn[known], held_out)]
            yield Fold(f"{first} -> {second} | {', '.join(held_out)}", np.sort(train), anchors, test)


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


def layers_measured(
    features: pd.DataFrame, rows: Positions, _seed: int, *, family: bool = False
) -> Iterator[Fold]:
    """Hold out one CNN, or one family, whose operators were measured; all operators are known."""
    operators = _layer_rows(features)
    timed = _rows_in_measured_modes(features, rows)
    whole = timed[_layers_are_measured(features, timed, operators)]
    if not whole.size:
        raise DataError("no CNN had its layers measured: `epochcast profile --preset zoo` does.")
    for name, test, rest in leave_one_out(_groups(features, family), timed):
        if np.isin(test, whole).any():
            yield Fold(name, np.union1d(rest, operators), _NOTHING, test[np.isin(test, whole)])


def general_library(
    features: pd.DataFrame, rows: Positions, _seed: int, *, family: bool = False
) -> Iterator[Fold]:
    """Hold out one CNN, or one family, with the operators that no other CNN has."""
    return _without_own(features, rows, _layer_rows(features), _groups(features, family))


def preset_library(features: pd.DataFrame, rows: Positions, _seed: int, *, largest: str) -> Iterator[Fold]:
    """Hold out one CNN with the operators that no other CNN has; known are those of a designed library alone."""
    operators = _layer_rows(features)
    libraries = library_of(features)[operators]
    chosen = operators[np.isin(libraries, LIBRARIES[: LIBRARIES.index(largest) + 1])]
    if not chosen.size:
        raise DataError(
            f"no operator is of the library {largest}: none has library={largest} in its notes. "
            f"Measure it with `epochcast profile --preset {largest}`."
        )
    return _without_own(features, rows, chosen, _groups(features, family=False))


def same_chip(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one GPU with all its measurements; known are other cards of its chip, in the modes measured there."""
    operators, gpus, chip_of = _layer_rows(features), _column(features, "gpu"), chips(features)
    timed = rows[_is_timed(features)[rows]]
    for name, test, rest in leave_one_out(gpus, timed):
        elsewhere = operators[(gpus[operators] != name) & (chip_of[operators] == chip_of[test[0]])]
        test = test[_in_modes_of(features, test, elsewhere)]
        if test.size:
            yield Fold(name, np.union1d(rest, operators[gpus[operators] != name]), _NOTHING, test)


def same_chip_quick(features: pd.DataFrame, rows: Positions, _seed: int) -> Iterator[Fold]:
    """Hold out one CNN everywhere; known are operators of its GPU and, in the same mode, of other cards of its chip."""
    operators, gpus, chip_of = _layer_rows(features), _column(features, "gpu"), chips(features)
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
            counted = operators_of(table)
            known = sum(n for operator, n in counted.items() if operator.name in measured[modes[i]])
            shares[cell] = known / sum(counted.values())
    return np.array(
        [shares[modes[i], id(features["layer_table"].iloc[i])] >= _WHOLE for i in rows], dtype=bool
    )


def _modes(features: pd.DataFrame) -> list[DeviceMode]:
    """Mode of every row, in which its operators are measured; scikit-learn is imported with it."""
    from predictor.models.layer_times.estimator import modes_of

    return modes_of(features)


def _without_own(
    features: pd.DataFrame, rows: Positions, operators: Positions, groups: NDArray[np.str_]
) -> Iterator[Fold]:
    """Hold out each group with the operators that it alone has, among these operators."""
    rows = _rows_in_measured_modes(features, rows, operators)
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
    """The known batch sizes of a fine grid, about equal ratios apart."""
    evenly = np.geomspace(sizes[0], sizes[-1], N_KNOWN_BATCH_SIZES)
    return [int(sizes[np.argmin(np.abs(np.log(sizes / each)))]) for each in evenly]
