"""Rows of a feature table laid out for a fit: their kernels as one flat array, and the matrix of the law's terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from predictor.catalogue.devices import Rates, find_gpu, rates_of
from predictor.catalogue.modes import products_in_fp32
from predictor.cnns.layer_table import PASS_COLUMNS, Layer
from predictor.errors import OutOfRangeError
from predictor.measurements.schema import is_set
from predictor.models.join import sharpness_of
from predictor.models.roofline.features import (
    FAMILY_OF,
    FEATURES_OF_FAMILY,
    is_gaining,
    kernel_base_ms,
    kernel_features,
    kernel_gain,
)
from predictor.models.roofline.terms import (
    KernelContext,
    Term,
    TermTable,
    conditions_of,
    terms_under,
)
from predictor.operators.kernels import (
    KERNEL_CLASSES,
    Kernels,
    forward_kernels_of,
    kernels_of,
    kernels_of_operator,
)

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

_FORWARD, _PASSES = "forward", ("forward", "backward_input", "backward_weight")
_BOTH_PASSES = "forward_backward"  # how a framework's operators are timed
_NOT_SHAPE = (
    *("index", "name", "type", "kind", "inputs", "repeats"),
    *("overwrites", "derived", "old_gradient"),
    *PASS_COLUMNS,
)
_SHAPE_COLUMNS = tuple(f.name for f in fields(Layer) if f.name not in _NOT_SHAPE)
_READ = {
    *("gpu", "cnn", "image_size", "batch_size", "precision", "layer_table", "pass", "type"),
    *("source", "host", "framework", "memory_format", "float32_matmul_precision", *_SHAPE_COLUMNS),
}


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Measured iterations, or single layers, one entry per row of the feature table that they came from.

    `machines` name the source and the host (the GPU where no host is named), `levels` the source;
    `copies` and `waits` say whether an iteration copies its images, and waits for a loader.
    """

    kernels: list[Kernels]
    contexts: list[KernelContext]
    batch_sizes: list[int]
    machines: list[str]
    levels: list[str]
    copies: NDArray[np.bool_]
    waits: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.kernels)

    def flat_kernels(self) -> FlatKernels:
        """Every kernel of every row."""
        return FlatKernels.of(self)

    def sharpness(self) -> Array:
        """Exponent by which each row's framework joins GPU and host time, shape (n_rows,)."""
        return np.array([sharpness_of(context.framework) for context in self.contexts])

    def kernel_counts(self) -> Array:
        """Kernels that the host enqueues in each iteration, shape (n_rows,)."""
        return np.array([float(kernels.count.sum()) for kernels in self.kernels])

    def image_megabytes(self) -> Array:
        """Megabytes (10^6) of each row's images in fp32, shape (n_rows,)."""
        elements = [kernels.image_elements for kernels in self.kernels]
        return np.asarray(4e-6 * np.array(elements) * np.array(self.batch_sizes, dtype=float))


def rows_of(X: pd.DataFrame) -> Rows:
    """Whole CNNs of a feature table.

    OutOfRangeError if a CNN has no layer table; the message names it.
    """
    records = _records(X)
    kernels = [_kernels_of(row) for row in records]
    contexts = [_context(row, bool(xla)) for row, xla in zip(records, is_set(X, "xla"), strict=True)]
    return _rows(records, kernels, contexts, is_set(X, "copies_input"), is_set(X, "waits_for_loader"))


def pass_rows_of(X: pd.DataFrame) -> Rows:
    """Single passes of single layers, whose framework is unknown, and forward passes of whole CNNs."""
    records, alone = _records(X), _of_layers(X)
    kernels = [
        kernels_of_operator(_layer(row), str(row["pass"])) if single else _kernels_of(row)
        for row, single in zip(records, alone, strict=True)
    ]
    contexts = [
        KernelContext(find_gpu(row["gpu"]), str(row["precision"]), "")
        if single and row["pass"] != _BOTH_PASSES
        else _context(row, False)
        for row, single in zip(records, alone, strict=True)
    ]
    nothing = np.zeros(len(records), dtype=bool)
    return _rows(records, kernels, contexts, nothing, nothing)


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


def _records(X: pd.DataFrame) -> list[dict[Any, Any]]:
    """The rows, of the columns that are read here."""
    records: list[dict[Any, Any]] = X[[name for name in X if name in _READ]].to_dict("records")
    return records


def _rows(
    records: Sequence[dict[Any, Any]],
    kernels: list[Kernels],
    contexts: list[KernelContext],
    copies: NDArray[np.bool_],
    waits: NDArray[np.bool_],
) -> Rows:
    gpus = [context.gpu.name for context in contexts]
    return Rows(
        kernels,
        contexts,
        [int(row["batch_size"]) for row in records],
        [
            f"{_word(row, 'source', '')}: {_word(row, 'host', gpu)}"
            for row, gpu in zip(records, gpus, strict=True)
        ],
        [_word(row, "source", "") for row in records],
        copies,
        waits,
    )


def _kernels_of(row: dict[Any, Any]) -> Kernels:
    table = row["layer_table"]
    if table is None:
        raise OutOfRangeError(
            f"{row['cnn']} at image size {row['image_size']} has no layer table, so its kernels are unknown. "
            "Give its layers as a CSV file, or leave the row out."
        )
    if _word(row, "pass", "training") == _FORWARD:
        return forward_kernels_of(table)
    return kernels_of(table, optimizer=_word(row, "pass", "training") == "training")


def _context(row: dict[Any, Any], xla: bool) -> KernelContext:
    framework, memory_format = _word(row, "framework", "pytorch"), _word(row, "memory_format", "nchw")
    forward, precision = _word(row, "pass", "training") == _FORWARD, str(row["precision"])
    fp32_products = products_in_fp32(framework, precision, row.get("float32_matmul_precision"))
    return KernelContext(
        find_gpu(row["gpu"]), precision, framework, memory_format, xla, forward, fp32_products
    )


def _word(row: dict[Any, Any], column: str, default: str) -> str:
    value = row.get(column)
    return default if value is None or value != value else str(value)


def _layer(row: dict[Any, Any]) -> Layer:
    shape: dict[str, Any] = {
        name: None if row[name] != row[name] else int(row[name]) for name in _SHAPE_COLUMNS
    }
    shape["parameters"] = shape["parameters"] or 0
    return Layer(index=0, name=str(row["cnn"]), type=str(row["type"]), **shape)


@dataclass(frozen=True, slots=True, eq=False)
class FlatKernels:
    """The kernels of all rows, flat, ordered by class; every array but `sums` has shape (n_items,).

    `sums`, of shape (n_rows, n_items), adds up the kernels of each row.
    """

    rows: Rows
    row: NDArray[np.intp]
    class_of: NDArray[np.int64]
    columns: Mapping[str, Array]
    batch_size: Array
    rates: Rates
    base_ms: Array
    gain: Array
    sums: sp.csr_matrix

    @classmethod
    def of(cls, rows: Rows) -> FlatKernels:
        """Lay out every kernel of every row."""
        sizes = [kernels.count.size for kernels in rows.kernels]
        row = np.repeat(np.arange(len(rows)), sizes)
        class_of = np.concatenate([kernels.kernel_class for kernels in rows.kernels])
        order = np.argsort(class_of, kind="stable")
        row, class_of = row[order], class_of[order]
        count = np.concatenate([kernels.count for kernels in rows.kernels])[order]
        names = rows.kernels[0].columns
        columns = {name: np.concatenate([k[name] for k in rows.kernels])[order] for name in names}
        batch = np.array(rows.batch_sizes, dtype=float)[row]
        rates = _rates(rows.contexts, row)
        base, gain = np.empty((2, row.size))
        for name, rows_of_class in _parts(class_of):
            cut = (
                {k: v[rows_of_class] for k, v in columns.items()},
                batch[rows_of_class],
                _cut(rates, rows_of_class),
            )
            base[rows_of_class], gain[rows_of_class] = (
                of(FAMILY_OF[name], *cut) for of in (kernel_base_ms, kernel_gain)
            )
        sums = sp.csr_matrix((count, (row, np.arange(row.size))), (len(rows), row.size))
        return cls(rows, row, class_of, columns, batch, rates, base, gain, sums)

    def faster(self) -> Array:
        """1 for items in a mode that gains over fp32, else 0."""
        is_faster = np.zeros(self.row.size)
        for name, rows_of_class in _parts(self.class_of):
            is_faster[rows_of_class] = is_gaining(FAMILY_OF[name], _cut(self.rates, rows_of_class))
        return is_faster

    def weighted(self, ms: Array, matrix: sp.csr_matrix) -> Array:
        """Sum over each row's kernels of their time x their terms, shape (n_rows, n_terms)."""
        weighted = self.sums.copy()
        weighted.data *= ms[self.sums.indices]
        sums: Array = (weighted @ matrix).toarray()
        return sums

    def matrix(
        self, tables: TermTable, terms: Sequence[Term] | None = None
    ) -> tuple[list[Term], sp.csr_matrix]:
        """Terms of these tables that the items have, or the `terms` ones, and their values (n_items, n_terms)."""
        column_of: dict[Term, int] = {} if terms is None else {term: i for i, term in enumerate(terms)}
        blocks: list[tuple[NDArray[np.intp], NDArray[np.intp], Array]] = []
        conditions = self._conditions()
        for name, of_class in _parts(self.class_of):
            columns = {key: values[of_class] for key, values in self.columns.items()}
            features = kernel_features(name, columns, self.batch_size[of_class], _cut(self.rates, of_class))
            for (kind, label), rows in conditions.items():
                here = np.flatnonzero(rows[self.row[of_class]])
                for kernels, feature in terms_under(tables, name, kind):
                    term = (kernels, feature, f"{kind}:{label}" if kind else "")
                    value = np.broadcast_to(features[feature], of_class.stop - of_class.start)
                    used = here[value[here] != 0]
                    if used.size and (terms is None or term in column_of):
                        column = column_of.setdefault(term, len(column_of))
                        blocks.append((of_class.start + used, np.full(used.size, column), value[used]))
        if not blocks:
            return list(column_of), sp.csr_matrix((self.row.size, len(column_of)))
        rows_at, places, values = (
            np.concatenate(columns_of_parts) for columns_of_parts in zip(*blocks, strict=True)
        )
        return list(column_of), sp.csr_matrix((values, (rows_at, places)), (self.row.size, len(column_of)))

    def every_feature(self, used: NDArray[np.intp]) -> tuple[list[tuple[str, str]], sp.csr_matrix]:
        """All features of the kernels `used`, once of their class and once of their family, and their values."""
        column_of: dict[tuple[str, str], int] = {}
        blocks: list[tuple[NDArray[np.intp], int, Array]] = []
        for name, of_class in _parts(self.class_of):
            columns = {key: values[of_class] for key, values in self.columns.items()}
            features = kernel_features(name, columns, self.batch_size[of_class], _cut(self.rates, of_class))
            here = np.flatnonzero((used >= of_class.start) & (used < of_class.stop))
            for feature in FEATURES_OF_FAMILY[FAMILY_OF[name]]:
                value = np.broadcast_to(features[feature], of_class.stop - of_class.start)[
                    used[here] - of_class.start
                ]
                for kernels in dict.fromkeys((name, FAMILY_OF[name])):
                    if value.any():
                        column = column_of.setdefault((kernels, feature), len(column_of))
                        blocks.append((here, column, value))
        rows = np.concatenate([here for here, _, _ in blocks])
        columns_of = np.concatenate([np.full(here.size, column) for here, column, _ in blocks])
        values = np.concatenate([value for _, _, value in blocks])
        return list(column_of), sp.csr_matrix((values, (rows, columns_of)), (used.size, len(column_of)))

    def _conditions(self) -> dict[tuple[str, str], NDArray[np.bool_]]:
        """Mask of the rows, (n_rows,), where each condition (kind, label) holds."""
        by_condition: dict[tuple[str, str], NDArray[np.bool_]] = {}
        of = {context: conditions_of(context) for context in set(self.rows.contexts)}
        for row, context in enumerate(self.rows.contexts):
            for condition in of[context]:
                by_condition.setdefault(condition, np.zeros(len(self.rows), dtype=bool))[row] = True
        return dict(sorted(by_condition.items()))


def _parts(class_of: NDArray[np.int64]) -> list[tuple[str, slice]]:
    """Name and slice of each class; kernels are ordered by it."""
    numbers, starts = np.unique(class_of, return_index=True)
    ends = [*starts[1:], class_of.size]
    return [
        (KERNEL_CLASSES[number], slice(int(start), int(end)))
        for number, start, end in zip(numbers, starts, ends, strict=True)
    ]


def _rates(contexts: Sequence[KernelContext], row: NDArray[np.intp]) -> Rates:
    by_context = {
        context: rates_of(context.gpu, context.precision, context.fp32_products) for context in set(contexts)
    }
    columns: dict[str, Any] = {
        field.name: np.array([getattr(by_context[context], field.name) for context in contexts])[row]
        for field in fields(Rates)
    }
    return Rates(**columns)


def _cut(rates: Rates, rows: slice) -> Rates:
    return Rates(**{field.name: getattr(rates, field.name)[rows] for field in fields(Rates)})
