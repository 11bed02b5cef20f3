"""Measured rows laid out for fitting: every kernel of every row, its roofline time and its terms.

Called by `fitting` and `rows`; calls kernels, rates, features and situations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from predictor.kernels import KERNEL_CLASSES, Kernels
from predictor.roofline.features import FAMILY_OF, kernel_base_ms, kernel_features
from predictor.roofline.rates import rates_of
from predictor.roofline.situations import Situation, Term, tags_of, terms_of

__all__ = ["Design"]

Array = NDArray[np.float64]


@dataclass(slots=True, eq=False)
class Design:
    """Items (kernels of rows) and their terms. `row_of`, `class_of`, `log_base`, `count`: shape (n_items,).

    `entries` holds, per term, the items and values of its column; rows are numbered as they were added.
    """

    n_rows: int
    row_of: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    class_of: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    log_base: Array = field(default_factory=lambda: np.empty(0))
    count: Array = field(default_factory=lambda: np.empty(0))
    entries: dict[Term, list[tuple[NDArray[np.int64], Array]]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, kernels: Sequence[Kernels], situations: Sequence[Situation], batch_sizes: Sequence[int]
    ) -> Design:
        """Lay out rows; the three sequences have one entry per row."""
        design = cls(n_rows=len(kernels))
        alike: dict[Situation, list[int]] = defaultdict(list)
        for row, situation in enumerate(situations):
            alike[situation].append(row)
        blocks: list[_Block] = []
        offset = 0
        for situation, rows in alike.items():
            for block in _blocks(
                design, [kernels[r] for r in rows], situation, rows, [batch_sizes[r] for r in rows], offset
            ):
                blocks.append(block)
                offset += block[0].size
        parts = list(zip(*blocks, strict=True))
        design.row_of, design.class_of = np.concatenate(parts[0]), np.concatenate(parts[1])
        design.log_base, design.count = np.concatenate(parts[2]), np.concatenate(parts[3])
        return design

    def matrix(self, terms: Sequence[Term]) -> sp.csr_matrix:
        """Values of the terms, shape (n_items, n_terms)."""
        rows, columns, values = [np.empty(0, int)], [np.empty(0, int)], [np.empty(0)]
        for number, term in enumerate(terms):
            for items, value in self.entries.get(term, ()):
                rows.append(items)
                columns.append(np.full(items.size, number))
                values.append(value)
        shape = (self.row_of.size, len(terms))
        return sp.csr_matrix((np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))), shape)

    def sums(self) -> sp.csr_matrix:
        """Matrix of shape (n_rows, n_items) that adds up each row's kernels."""
        items = np.arange(self.row_of.size)
        return sp.csr_matrix((self.count, (self.row_of, items)), (self.n_rows, self.row_of.size))


_Block = tuple[NDArray[np.int64], NDArray[np.int64], Array, Array]


def _blocks(
    design: Design,
    kernels: Sequence[Kernels],
    situation: Situation,
    rows: Sequence[int],
    batch_sizes: Sequence[int],
    offset: int,
) -> Iterator[_Block]:
    """Items of rows in one situation, a block for each class of kernels; their terms go into `design.entries`."""
    rates, tags = rates_of(situation.gpu, situation.precision), tags_of(situation)
    sizes = [each.count.size for each in kernels]
    row_of, class_of = np.repeat(rows, sizes), np.concatenate([each.kernel_class for each in kernels])
    count = np.concatenate([each.count for each in kernels])
    batches = np.repeat(np.asarray(batch_sizes, dtype=float), sizes)[:, None]
    columns = {name: np.concatenate([k[name] for k in kernels])[:, None] for name in kernels[0].columns}
    for number in np.unique(class_of):
        name, chosen = KERNEL_CLASSES[number], class_of == number
        of_class = {key: values[chosen] for key, values in columns.items()}
        base = kernel_base_ms(FAMILY_OF[name], of_class, batches[chosen], rates)
        items = np.arange(offset, offset + base.size)
        for feature, value in kernel_features(name, of_class, batches[chosen], rates).items():
            flat = np.broadcast_to(value, base.shape).ravel()
            used = np.flatnonzero(flat)
            for term in terms_of(name, feature, tags):
                design.entries.setdefault(term, []).append((items[used], flat[used]))
        yield row_of[chosen], np.full(base.size, number), np.log(base).ravel(), count[chosen]
        offset += base.size
