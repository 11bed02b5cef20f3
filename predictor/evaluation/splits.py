"""Splits of a feature table into rows that a fit sees and rows that judge it: groups are held out whole.

A fit sees all rows of all sources but those of the group that is judged, as the shipped default does. Rows are chosen
and grouped first; then comes one split per question, of whole CNNs and of CNNs whose single layers were measured.
`predictor.evaluation.scenarios` names the questions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.modes import MEMORY_FORMATS, MODE_COLUMNS
from predictor.errors import DataError, SchemaError
from predictor.measurements.groups import chips_of, cnns_of
from predictor.models.layer_times.law import operators_in
from predictor.operators.operators import as_run, counted_operators, operator_from_row, operators_of

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
        for name in ("train", "anchors", "proxies"):
            shared = np.intersect1d(getattr(self, name), self.test)
            if shared.size:
                raise SchemaError(
                    f"fold {self.name!r} tests {shared.size} rows that are in its {name}, e.g. {shared[0]}."
                )


@dataclass(eq=False)
class SplitTable:
    """A feature table that a scenario splits: positions of the rows that it is about, and labels of every row.

    `seed` decides what is drawn at random. Labels are arrays of shape (n_rows,): `kinds` (``target``, ``operator`` or
    ``proxy``), `gpus` and `cnn_names` as measured, `chips`, `cnns` each by the first of its names, the number of each
    row's `series` (`series_of`), and `batch_sizes`.
    """

    features: pd.DataFrame
    rows: Positions
    seed: int = 0

    kinds = cached_property(lambda table: _kinds(table.features))
    gpus = cached_property(lambda table: table.features["gpu"].to_numpy().astype(str))
    chips = cached_property(lambda table: chips_of(table.features))
    cnn_names = cached_property(lambda table: table.features["cnn"].to_numpy().astype(str))
    cnns = cached_property(lambda table: cnns_of(table.features))
    series = cached_property(lambda table: series_of(table.features))
    batch_sizes = cached_property(lambda table: table.features["batch_size"].to_numpy())

    @cached_property
    def is_timed(self) -> NDArray[np.bool_]:
        """Whether a row's GPU time and layers are known; DataError if the table has no GPU times."""
        if "gpu_time_ms" not in self.features:
            raise DataError("no row has gpu_time_ms, which measured layers add up to.")
        timed = self.features["gpu_time_ms"].notna() & self.features["layer_table"].notna()
        return timed.to_numpy()

    @cached_property
    def operators(self) -> Positions:
        """Positions of single layers that give their whole shape; published ones of a single pass are left out.

        DataError if there are none.
        """
        is_operator = self.kinds == "operator"
        if "n_tensors" in self.features:
            is_operator = is_operator & self.features["n_tensors"].notna().to_numpy()
        if not is_operator.any():
            raise DataError(
                "no single layers are among the rows: measure them with `epochcast profile --preset library`."
            )
        return np.flatnonzero(is_operator)

    @cached_property
    def proxies(self) -> Positions:
        """Positions of proxy CNNs."""
        return np.flatnonzero(self.kinds == "proxy")

    @cached_property
    def modes(self) -> list[DeviceMode]:
        """GPU and training mode of each row; the first use imports scikit-learn."""
        from predictor.models.layer_times.estimator import modes_of

        return modes_of(self.features)

    def members(self, rows: Positions) -> Iterator[Positions]:
        """Positions of each series among `rows`, one array per series."""
        numbers = self.series[rows]
        for number in np.unique(numbers):
            yield rows[numbers == number]

    def in_modes_of(
        self, rows: Positions, operators: Positions, *, on_own_gpu: bool = True
    ) -> NDArray[np.bool_]:
        """For each of `rows`, whether any of these operators was measured in its mode, on its GPU or on any."""
        first = 0 if on_own_gpu else 1  # a mode's first field is its GPU
        measured = {self.modes[i][first:] for i in operators}
        return np.array([self.modes[i][first:] in measured for i in rows], dtype=bool)

    def in_measured_modes(self, operators: Positions | None = None) -> Positions:
        """Positions of timed rows with any of `operators` (default: all) measured on their GPU in their mode."""
        timed = self.rows[self.is_timed[self.rows]]
        return timed[self.in_modes_of(timed, self.operators if operators is None else operators)]

    def middle_batch_size(self) -> tuple[int, NDArray[np.bool_]]:
        """Interior batch size nearest to 64 by ratio, and whether a row is a whole CNN at it; DataError if none is."""
        sizes = np.unique(self.batch_sizes[self.rows])[1:-1]
        if not sizes.size:
            raise DataError(
                "no batch size lies between others. Measure the CNNs at three batch sizes or more."
            )
        size = int(sizes[np.argmin(np.abs(np.log(sizes / _MIDDLE_BATCH_SIZE)))])
        return size, (self.batch_sizes == size) & (self.kinds == "target")


def target_rows(features: pd.DataFrame, sources: tuple[str, ...] = ()) -> Positions:
    """Positions of the CNNs as trained (kind ``target``), of the named sources or of all if none is named."""
    chosen = _kinds(features) == "target"
    if sources:
        chosen &= features["source"].isin(sources).to_numpy()
    return np.flatnonzero(chosen)


def _kinds(features: pd.DataFrame) -> NDArray[np.str_]:
    if "kind" not in features:
        return np.full(len(features), "target")
    return features["kind"].fillna("target").to_numpy().astype(str)


def series_of(features: pd.DataFrame) -> NDArray[np.intp]:
    """Give every row the number of its series (all but the batch size equal), of shape (n_rows,)."""
    columns = [column for column in _SERIES_COLUMNS if column in features]
    return features.groupby(columns, dropna=False, sort=False).ngroup().to_numpy().astype(np.intp)


def leave_one_out(groups: NDArray[np.str_], rows: Positions) -> Iterator[tuple[str, Positions, Positions]]:
    """Yield each group's name, its positions among `rows`, and the other positions; `groups` labels all table rows."""
    for name in sorted(set(groups[rows])):
        inside = groups[rows] == name
        yield str(name), rows[inside], rows[~inside]


def interior_rows(table: SplitTable, rows: Positions) -> dict[int, Positions]:
    """Positions by k: rows at the k-th smallest batch size (k from 1) between the smallest and largest of a series."""
    held_out: dict[int, list[Positions]] = {}
    for members in table.members(rows):
        sizes = table.batch_sizes[members]
        for k, batch_size in enumerate(np.unique(sizes)[1:-1], start=1):
            held_out.setdefault(k, []).append(members[sizes == batch_size])
    return {k: np.sort(np.concatenate(runs)) for k, runs in sorted(held_out.items())}


def deal_into_groups(names: list[str], n_groups: int, seed: int) -> list[list[str]]:
    """`names` shuffled with `seed`, dealt into at most `n_groups` groups, none empty, of sizes one apart at most."""
    shuffled = np.random.default_rng(seed).permutation(sorted(names))
    return [[str(name) for name in shuffled[i::n_groups]] for i in range(min(n_groups, len(names)))]


def problem_scaling(table: SplitTable) -> Iterator[Fold]:
    """Hold out the k-th interior batch size of every series; a fit sees all other rows."""
    for k, test in interior_rows(table, table.rows).items():
        train = np.setdiff1d(np.arange(len(table.features)), test)
        yield Fold(f"interior batch size {k}", train, np.setdiff1d(table.rows, test), test)


def unseen_batch_size(table: SplitTable) -> Iterator[Fold]:
    """Hold out the interior batch size nearest to 64 of whole CNNs everywhere; DataError if none is interior."""
    size, gone = table.middle_batch_size()
    yield Fold(f"batch size {size}", np.flatnonzero(~gone), _NOTHING, table.rows[gone[table.rows]])


def unseen_cnn(table: SplitTable) -> Iterator[Fold]:
    """Hold out one CNN on all GPUs, under all its names."""
    for name, test, _ in leave_one_out(table.cnns, table.rows):
        yield Fold(name, np.flatnonzero(table.cnns != name), _NOTHING, test)


def unseen_cnn_one_run(table: SplitTable) -> Iterator[Fold]:
    """Hold out one CNN on all GPUs; test one of its series a fold, with the run nearest to batch 64 as anchor."""
    for fold in unseen_cnn(table):
        for members in table.members(fold.test):
            run = _nearest_to_middle(table, members)
            test, first = members[members != run], table.features.iloc[run]
            if test.size:
                label = f"{fold.name} | {first['gpu']} | {first['image_size']} px"
                yield Fold(label, fold.train, np.array([run]), test)


def unseen_cnn_run_elsewhere(table: SplitTable) -> Iterator[Fold]:
    """Hold out one CNN on all GPUs; test a series a fold, with another GPU's run nearest to batch 64 as anchor."""
    for fold in unseen_cnn(table):
        runs = [(members, _nearest_to_middle(table, members)) for members in table.members(fold.test)]
        for (test, own), (_, anchor) in product(runs, runs):
            here, elsewhere = table.features.iloc[own], table.features.iloc[anchor]
            if here["gpu"] != elsewhere["gpu"] and here["image_size"] == elsewhere["image_size"]:
                label = f"{fold.name} | {elsewhere['gpu']} -> {here['gpu']} | {here['image_size']} px"
                yield Fold(label, fold.train, np.array([anchor]), test)


def _nearest_to_middle(table: SplitTable, members: Positions) -> int:
    """The row of a series whose batch size is nearest to 64, as a ratio; of two the smaller."""
    batch = table.batch_sizes[members]
    return int(members[np.lexsort((batch, np.abs(np.log2(batch / _MIDDLE_BATCH_SIZE))))[0]])


def unseen_gpu(table: SplitTable) -> Iterator[Fold]:
    """Hold out all that was measured on one chip."""
    for name, test, _ in leave_one_out(table.chips, table.rows):
        yield Fold(name, np.flatnonzero(table.chips != name), _NOTHING, test)


def unseen_gpu_anchored(table: SplitTable) -> Iterator[Fold]:
    """Hold out one chip, and a third of the CNNs everywhere; these CNNs' runs on other chips are anchors."""
    cnns, chips = table.cnns, table.chips
    groups = deal_into_groups(sorted(set(cnns[table.rows])), _N_CNN_GROUPS, table.seed)
    for chip, held_out, elsewhere in leave_one_out(chips, table.rows):
        for names in groups:
            out = np.isin(cnns, names)
            train = np.flatnonzero(~out & (chips != chip))
            if (table.kinds[train] == "target").any():  # operators without CNNs are another question
                label = f"{chip} | {', '.join(names)}"
                yield Fold(label, train, elsewhere[out[elsewhere]], held_out[out[held_out]])


def problem_and_hardware_scaling(table: SplitTable) -> Iterator[Fold]:
    """Test one chip at the interior batch size nearest to 64; a fit sees neither the chip nor this batch size.

    The CNNs' runs that a fit sees are anchors. DataError if no batch size lies between others.
    """
    size, gone = table.middle_batch_size()
    for chip, test, _ in leave_one_out(table.chips, table.rows[gone[table.rows]]):
        out = gone | (table.chips == chip)
        label = f"{chip} | batch size {size}"
        yield Fold(label, np.flatnonzero(~out), table.rows[~out[table.rows]], test)


def epoch_time(table: SplitTable) -> Iterator[Fold]:
    """Hold out one chip, then one CNN, among the rows whose epoch was timed."""
    if not set(_EPOCH_COLUMNS) <= set(table.features.columns):
        return
    rows = table.rows[table.features[_EPOCH_COLUMNS].notna().all(axis=1).to_numpy()[table.rows]]
    for column, groups in (("gpu", table.chips), ("cnn", table.cnn_names)):
        for name, test, train in leave_one_out(groups, rows):
            yield Fold(f"{column} {name}", train, _NOTHING, test)


def layers_measured(table: SplitTable) -> Iterator[Fold]:
    """Hold out one CNN whose operators were measured; a fit sees all operators. DataError if no CNN's were."""
    operators, timed = table.operators, table.in_measured_modes()
    measured = timed[_layers_are_measured(table, timed)]
    if not measured.size:
        raise DataError("no CNN had its layers measured: `epochcast profile --preset zoo` does.")
    for name, own, train in leave_one_out(table.cnn_names, timed):
        test = own[np.isin(own, measured)]
        if test.size:
            yield Fold(name, np.union1d(train, operators), _NOTHING, test)


def _layers_are_measured(table: SplitTable, rows: Positions) -> NDArray[np.bool_]:
    """Whether nearly all operators of each row's CNN were measured in its mode; shape of `rows`."""
    measured: dict[object, set[str]] = {}
    for i in table.operators:
        measured.setdefault(table.modes[i], set()).add(str(table.cnn_names[i]))
    shares: dict[tuple[object, ...], float] = {}
    cells = [(table.modes[i], table.features["layer_table"].iloc[i]) for i in rows]
    for mode, layers in cells:
        if (mode, id(layers)) not in shares:
            counted, counts = counted_operators(layers)
            in_mode = operators_in(counted, mode)
            is_measured = np.array([operator.name in measured[mode] for operator in in_mode])
            shares[mode, id(layers)] = float(counts @ is_measured) / float(counts.sum())
    return np.array([shares[mode, id(layers)] >= _WHOLE for mode, layers in cells], dtype=bool)


def _of_preset(table: SplitTable, *, largest: str) -> Iterator[Fold]:
    """Hold out one CNN with its own operators; a fit sees only the other operators of a designed library.

    An operator's notes name its library: ``library=NAME``. DataError if no operator is of the library `largest`.
    """
    operators = table.operators
    notes = table.features["notes"].iloc[operators].astype(str) if "notes" in table.features else None
    chosen = _NOTHING
    if notes is not None:
        libraries = notes.str.extract(r"library=(\w+)", expand=False).fillna("").to_numpy().astype(np.str_)
        chosen = operators[np.isin(libraries, LIBRARIES[: LIBRARIES.index(largest) + 1])]
    if not chosen.size:
        raise DataError(
            f"no operator is of the library {largest}: none has library={largest} in its notes. "
            f"Measure it with `epochcast profile --preset {largest}`."
        )
    return _without_own(table, chosen)


preset_quick = partial(_of_preset, largest="quick")
preset_library = partial(_of_preset, largest="library")


def _without_own(table: SplitTable, operators: Positions) -> Iterator[Fold]:
    """Hold out each CNN with the operators that no other CNN has, among these operators."""
    groups, rows = table.cnn_names, table.in_measured_modes(operators)
    records: list[dict[Any, Any]] = table.features.iloc[operators].to_dict("records")
    names = np.array([operator_from_row(row).name for row in records], dtype=np.str_)
    names_by_cnn = _operator_names(table, rows)
    for cnn, test, train in leave_one_out(groups, rows):
        elsewhere = set().union(*(of_cnn for name, of_cnn in names_by_cnn.items() if name != cnn))
        own = sorted(names_by_cnn[cnn] - elsewhere)
        yield Fold(cnn, np.union1d(train, operators[~np.isin(names, own)]), _NOTHING, test)


def _operator_names(table: SplitTable, rows: Positions) -> dict[str, set[str]]:
    """Names of the operators of each CNN, as they run in any mode."""
    names: dict[str, set[str]] = {}
    modes = [*product(MEMORY_FORMATS, ("tf32", "amp_bf16"))]
    for cnn, layers in {(str(table.cnn_names[i]), table.features["layer_table"].iloc[i]) for i in rows}:
        run = (as_run(operator, "pytorch", *mode) for operator in operators_of(layers) for mode in modes)
        names.setdefault(cnn, set()).update(operator.name for operator in run)
    return names


def same_chip(table: SplitTable) -> Iterator[Fold]:
    """Hold out all that was measured on one GPU; test its modes in which other cards of its chip have operators."""
    operators, gpus = table.operators, table.gpus
    timed = table.rows[table.is_timed[table.rows]]
    for gpu, own, train in leave_one_out(gpus, timed):
        test = own[table.in_modes_of(own, _operators_of_other_cards(table, gpu, own), on_own_gpu=False)]
        if test.size:
            yield Fold(gpu, np.union1d(train, operators[gpus[operators] != gpu]), _NOTHING, test)


def same_chip_quick(table: SplitTable) -> Iterator[Fold]:
    """Hold out one GPU's whole CNNs, and one CNN on all GPUs; test it on that GPU.

    A fit sees all operators; tested modes have operators of the GPU and of other cards of its chip.
    """
    operators, gpus, cnns = table.operators, table.gpus, table.cnn_names
    timed, targets = table.rows[table.is_timed[table.rows]], target_rows(table.features)
    for gpu, own, _ in leave_one_out(gpus, timed):
        beside = _operators_of_other_cards(table, gpu, own)
        in_both = table.in_modes_of(own, beside, on_own_gpu=False)
        in_both &= table.in_modes_of(own, operators[gpus[operators] == gpu])
        for cnn, test, _ in leave_one_out(cnns, own[in_both]):
            elsewhere = targets[(gpus[targets] != gpu) & (cnns[targets] != cnn)]
            yield Fold(f"{gpu} | {cnn}", np.union1d(elsewhere, operators), _NOTHING, test)


def _operators_of_other_cards(table: SplitTable, gpu: str, own: Positions) -> Positions:
    """Operators of other cards with the chip of a GPU, whose rows are `own`."""
    operators = table.operators
    of_chip = table.chips[operators] == table.chips[own[0]]
    cards: Positions = operators[of_chip & (table.gpus[operators] != gpu)]
    return cards


def fine_grid(table: SplitTable) -> Iterator[Fold]:
    """Test all but five geometrically spaced batch sizes of every long series; DataError if no series is long."""
    rows, anchors, series = table.in_measured_modes(), [], table.series
    for members in table.members(rows):
        sizes = np.unique(table.batch_sizes[members])
        if sizes.size >= _FINE:
            anchors.append(members[np.isin(table.batch_sizes[members], _spread(sizes))])
    if not anchors:
        raise DataError(
            f"no CNN was measured at {_FINE} batch sizes or more. Measure one with `epochcast profile`."
        )
    runs = np.sort(np.concatenate(anchors))
    is_long = np.isin(series[rows], series[runs])
    train = np.union1d(np.union1d(runs, rows[~is_long]), table.operators)
    yield Fold("five batch sizes", train, runs, np.setdiff1d(rows[is_long], runs))


def _spread(sizes: NDArray[np.int64]) -> list[int]:
    """The known batch sizes of a fine grid, about equal ratios apart."""
    evenly = np.geomspace(sizes[0], sizes[-1], N_KNOWN_BATCH_SIZES)
    return [int(sizes[np.argmin(np.abs(np.log(sizes / size)))]) for size in evenly]


def study_problem(table: SplitTable) -> Iterator[Fold]:
    """Up to four folds a device, which hold out every fourth interior batch size; a fit sees only this device."""
    for gpu, own, _ in leave_one_out(table.gpus, table.rows):
        inner = interior_rows(table, own)
        beside = table.proxies[table.gpus[table.proxies] == gpu]
        for turn in range(_N_SIZE_GROUPS):
            runs = [rows for k, rows in inner.items() if k % _N_SIZE_GROUPS == turn]
            if runs:
                test = np.sort(np.concatenate(runs))
                anchors = np.setdiff1d(own, test)
                label = f"{gpu} | every 4th batch size, from {turn}"
                yield Fold(label, np.union1d(anchors, beside), anchors, test)


def study_hardware(table: SplitTable) -> Iterator[Fold]:
    """Hold out all CNNs of one device; its proxies are `proxies` of the fold.

    DataError if CNNs were measured on only one device.
    """
    gpus, proxies = table.gpus, table.proxies
    names = sorted(set(gpus[table.rows]))
    if len(names) < 2:
        raise DataError(
            f"scaling from one GPU to another needs CNNs on two, and the table's are on {', '.join(names) or 'none'}. "
            "Give the tables of both: `epochcast evaluate FIRST.csv SECOND.csv --scaling hardware`."
        )
    for gpu, test, elsewhere in leave_one_out(gpus, table.rows):
        own = gpus[proxies] == gpu
        yield Fold(gpu, np.union1d(elsewhere, proxies[~own]), _NOTHING, test, proxies[own])


def study_both(table: SplitTable) -> Iterator[Fold]:
    """Hold out all CNNs of one device and every fourth batch size of CNNs on the others; errors of `study_hardware`."""
    batch, is_target = table.batch_sizes, table.kinds == "target"
    group = np.searchsorted(np.unique(batch[table.rows]), batch) % _N_SIZE_GROUPS
    for fold in study_hardware(table):
        for turn in range(_N_SIZE_GROUPS):
            train = fold.train[~is_target[fold.train] | (group[fold.train] != turn)]
            if is_target[train].any():
                label = f"{fold.name} | every 4th batch size, from {turn}"
                yield Fold(label, train, _NOTHING, fold.test[group[fold.test] == turn], fold.proxies)
