"""Rows of a feature table laid out for a fit: their kernels as one flat array, and the matrix of the law's terms."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise, starmap
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from predictor.arrays import Array
from predictor.catalogue.devices import find_gpu
from predictor.catalogue.modes import UNKNOWN, mode_words
from predictor.cnns.layer_table import MEMORY_COLUMNS, PASS_COLUMNS, Layer
from predictor.measurements.groups import is_set
from predictor.models.base import cases_of
from predictor.models.roofline.features import FAMILY_OF, FEATURES_OF_FAMILY, FamilyKernels
from predictor.models.roofline.terms import (
    Contexts,
    KernelContext,
    Term,
    TermTable,
    conditions_of,
    kernels_of_case,
    mapped_rates,
    terms_under,
)
from predictor.operators.kernels import KERNEL_CLASSES, Kernels, kernels_of_operator

if TYPE_CHECKING:
    import pandas as pd

_PASSES = ("forward", "backward_input", "backward_weight")
_BOTH_PASSES = "forward_backward"  # how a framework's operators are timed
_NOT_SHAPE = (
    *("index", "name", "type", "kind", "inputs", "repeats"), *MEMORY_COLUMNS, *PASS_COLUMNS,
)  # fmt: skip
_SHAPE_COLUMNS = tuple(f.name for f in fields(Layer) if f.name not in _NOT_SHAPE)


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Measured iterations, or single layers, one entry per row of the feature table that they came from.

    `machines` name the source and the host (the GPU where no host is named), `levels` the source;
    `copies` and `waits` say whether an iteration copies its images, and waits for a loader.
    """

    kernels: list[Kernels]
    contexts: Contexts
    batch_sizes: list[int]
    machines: list[str]
    levels: list[str]
    copies: NDArray[np.bool_]
    waits: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.kernels)


def rows_of(X: pd.DataFrame) -> Rows:
    """Rows of whole CNNs of a feature table; OutOfRangeError names a CNN without a layer table."""
    kernels: dict[int, Kernels] = {}
    contexts: dict[int, KernelContext] = {}
    for case, positions in cases_of(X):
        kernels |= dict.fromkeys(positions.tolist(), kernels_of_case(case))
        contexts |= dict.fromkeys(positions.tolist(), KernelContext.of(case))
    return _rows(X, kernels, contexts, is_set(X, "copies_input"), is_set(X, "waits_for_loader"))


def pass_rows_of(X: pd.DataFrame) -> Rows:
    """Single passes of single layers, whose framework is unknown, and forward passes of whole CNNs."""
    of_layers = _of_layers(X)
    is_single = of_layers & (X["pass"] != _BOTH_PASSES).to_numpy()
    kernels: dict[int, Kernels] = {}
    contexts: dict[int, KernelContext] = {}
    of_modes = np.flatnonzero(~is_single)
    for case, positions in cases_of(X.iloc[of_modes]):
        contexts |= dict.fromkeys(of_modes[positions].tolist(), KernelContext.of(case))
        if case.table is not None:
            kernels |= dict.fromkeys(of_modes[positions].tolist(), kernels_of_case(case))
    columns = ["gpu", "cnn", "type", "precision", "pass", *_SHAPE_COLUMNS]
    layers: list[dict[Any, Any]] = X.loc[of_layers, columns].to_dict("records")
    for position, row in zip(np.flatnonzero(of_layers).tolist(), layers, strict=True):
        cells = {name: row[name] for name in _SHAPE_COLUMNS if row[name] == row[name]}
        shape: dict[str, Any] = {"parameters": 0} | {name: int(value) for name, value in cells.items()}
        layer = Layer(index=0, name=str(row["cnn"]), type=str(row["type"]), **shape)
        kernels[position] = kernels_of_operator(layer, str(row["pass"]))
        if is_single[position]:
            contexts[position] = KernelContext(find_gpu(row["gpu"]), str(row["precision"]), "")
    nothing = np.zeros(len(X), dtype=bool)
    return _rows(X, kernels, contexts, nothing, nothing)


def whole_iterations(X: pd.DataFrame) -> pd.DataFrame:
    """Rows of whole CNNs that time an iteration, with or without the optimizer."""
    alone = X["pass"].isin(_PASSES).to_numpy() if "pass" in X else np.zeros(len(X), dtype=bool)
    return X[~_of_layers(X) & ~alone]


def single_passes(X: pd.DataFrame) -> pd.DataFrame:
    """Rows that time one pass: of single layers, whose whole steps update their inputs, too, or of whole CNNs."""
    if "pass" not in X:
        return X.iloc[:0]
    return X[X["pass"].isin(_PASSES) | (_of_layers(X) & (X["pass"] == _BOTH_PASSES))]


def _of_layers(X: pd.DataFrame) -> NDArray[np.bool_]:
    """Which rows are single layers."""
    return (X["kind"] == "operator").to_numpy() if "kind" in X else np.zeros(len(X), dtype=bool)


def _rows(
    X: pd.DataFrame, kernels: dict[int, Kernels], contexts: dict[int, KernelContext], *fed: NDArray[np.bool_]
) -> Rows:
    """Rows of a table from kernels and contexts by position; `fed`: `Rows.copies` and `Rows.waits`."""
    words = mode_words(X, ("source", "host"))
    in_order = Contexts(contexts[position] for position in range(len(X)))
    levels = ["" if source == UNKNOWN else source for source in words["source"]]
    machines = [
        f"{level}: {context.gpu.name if host == UNKNOWN else host}"
        for level, host, context in zip(levels, words["host"], in_order, strict=True)
    ]
    sizes = [int(size) for size in X["batch_size"]]
    return Rows([kernels[position] for position in range(len(X))], in_order, sizes, machines, levels, *fed)


class FlatKernels:
    """The kernels of all rows, flat, ordered by class; every array but `sums` has shape (n_kernels,).

    `sums`, of shape (n_rows, n_kernels), adds up the kernels of each row.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        class_of = np.concatenate([cnn.kernel_class for cnn in rows.kernels])
        order = np.argsort(class_of, kind="stable")
        self.row = np.repeat(np.arange(len(rows)), [cnn.count.size for cnn in rows.kernels])[order]
        self.class_of = class_of[order]
        count = np.concatenate([cnn.count for cnn in rows.kernels])[order]
        names = rows.kernels[0].columns
        self.columns = {name: np.concatenate([cnn[name] for cnn in rows.kernels])[order] for name in names}
        self.batch_size = np.array(rows.batch_sizes, dtype=float)[self.row]
        self.rates = mapped_rates(rows.contexts.rates, itemgetter(self.row))
        self.autocasts = rows.contexts.autocasts[self.row]
        self.base_ms, self.gain, self.least_ms, self.faster = np.empty((4, self.row.size))
        for _, span, kernels in self._by_class():
            self.base_ms[span], self.gain[span] = kernels.base_ms, kernels.gain()
            self.least_ms[span], self.faster[span] = kernels.least_ms(), kernels.is_gaining()
        self.sums = sp.csr_matrix((count, (self.row, np.arange(self.row.size))), (len(rows), self.row.size))

    def weighted(self, ms: Array, matrix: sp.csr_matrix) -> Array:
        """Sum over each row's kernels of their time x their terms, shape (n_rows, n_terms)."""
        weighted = self.sums.copy()
        weighted.data *= ms[self.sums.indices]
        sums: Array = (weighted @ matrix).toarray()
        return sums

    def matrix(
        self, tables: TermTable, terms: Sequence[Term] | None = None
    ) -> tuple[list[Term], sp.csr_matrix]:
        """Values of these terms, (n_kernels, n_terms); by default of all terms of the tables that the kernels have."""
        column_of: dict[Term, int] = {term: i for i, term in enumerate(terms or ())}
        blocks: list[_Block] = []
        conditions = self._conditions()
        for name, of_class, of_kernels in self._by_class():
            features = of_kernels.features()
            for (kind, label), rows in conditions.items():
                at = np.flatnonzero(rows[self.row[of_class]])
                for kernels, feature in terms_under(tables, name, kind):
                    term = (kernels, feature, f"{kind}:{label}" if kind else "")
                    used = at[features[feature][at] != 0]
                    if used.size and (terms is None or term in column_of):
                        column = column_of.setdefault(term, len(column_of))
                        blocks.append((of_class.start + used, column, features[feature][used]))
        return list(column_of), _sparse(blocks, (self.row.size, len(column_of)))

    def every_feature(self, used: NDArray[np.intp]) -> tuple[list[tuple[str, str]], sp.csr_matrix]:
        """All features of the kernels `used`, once of their class and once of their family, and their values."""
        column_of: dict[tuple[str, str], int] = {}
        blocks: list[_Block] = []
        for name, of_class, of_kernels in self._by_class():
            features = of_kernels.features()
            at = np.flatnonzero((used >= of_class.start) & (used < of_class.stop))
            for feature in FEATURES_OF_FAMILY[FAMILY_OF[name]]:
                value = features[feature][used[at] - of_class.start]
                for kernels in dict.fromkeys((name, FAMILY_OF[name])):
                    if value.any():
                        column = column_of.setdefault((kernels, feature), len(column_of))
                        blocks.append((at, column, value))
        return list(column_of), _sparse(blocks, (used.size, len(column_of)))

    def _by_class(self) -> Iterator[tuple[str, slice, FamilyKernels]]:
        """Name of each class, slice of its kernels, and the kernels."""
        numbers, starts = np.unique(self.class_of, return_index=True)
        spans = pairwise([*starts.tolist(), self.class_of.size])
        for number, span in zip(numbers, starmap(slice, spans), strict=True):
            columns = {key: values[span] for key, values in self.columns.items()}
            rates = mapped_rates(self.rates, itemgetter(span))
            name = KERNEL_CLASSES[number]
            batches, autocasts = self.batch_size[span], self.autocasts[span]
            yield name, span, FamilyKernels(FAMILY_OF[name], columns, batches, rates, autocasts=autocasts)

    def _conditions(self) -> dict[tuple[str, str], NDArray[np.bool_]]:
        """Mask of the rows, (n_rows,), where each condition (kind, label) holds."""
        by_condition: dict[tuple[str, str], NDArray[np.bool_]] = {}
        of = {context: conditions_of(context) for context in set(self.rows.contexts)}
        for row, context in enumerate(self.rows.contexts):
            for condition in of[context]:
                by_condition.setdefault(condition, np.zeros(len(self.rows), dtype=bool))[row] = True
        return dict(sorted(by_condition.items()))


_Block = tuple[NDArray[np.intp], int, Array]  # rows, column, values of a sparse matrix


def _sparse(blocks: Sequence[_Block], shape: tuple[int, int]) -> sp.csr_matrix:
    if not blocks:
        return sp.csr_matrix(shape)
    rows, columns, values = zip(*blocks, strict=True)
    column = np.repeat(columns, [block.size for block in rows])
    return sp.csr_matrix((np.concatenate(values), (np.concatenate(rows), column)), shape)
