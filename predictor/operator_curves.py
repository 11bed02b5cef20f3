"""What is known of many operators over batch sizes, and what follows at others: linear in ln of the batch size.

Called by operator_library, with numpy alone. Operators known at the same batch sizes are interpolated together;
which those are is found once, since a library is asked far more often than it changes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Curves", "between", "needed"]

Array = NDArray[np.float64]

_ROUNDING = 1e-9  # of ln of a batch size


@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """Which batch sizes operators are known at: `at` is ln of them all, ascending.

    `patterns` (n_patterns, n_batches) are the sets of batch sizes at which some operator is known, `member`
    (n_operators,) says which of them is an operator's.
    """

    at: Array
    patterns: NDArray[np.bool_]
    member: NDArray[np.intp]

    @classmethod
    def of(cls, batch_sizes: Array, known: NDArray[np.bool_]) -> Curves:
        """Curves of operators that are `known`, (n_operators, n_batches), at these batch sizes."""
        number: dict[bytes, int] = {}
        member = [number.setdefault(each.tobytes(), len(number)) for each in np.packbits(known, axis=1)]
        found = np.array(member, dtype=np.intp)
        _, first = np.unique(found, return_index=True)
        return cls(np.log(batch_sizes), known[first], found)

    def of_rows(self, kept: NDArray[np.bool_]) -> Curves:
        """Those of some operators alone."""
        return Curves(self.at, self.patterns, self.member[kept])

    def along(
        self, rows: NDArray[np.intp], values: Array, batch_sizes: Array
    ) -> tuple[Array, NDArray[np.bool_]]:
        """Values of some operators at these batch sizes, and whether that is beyond what is known of them.

        `values` (n_rows, n_batches) has theirs where they are known. Beyond the ends a curve stays as it was there;
        where nothing is known it is 0.
        """
        asked, member = np.log(batch_sizes), self.member[rows]
        found = np.zeros((rows.size, asked.size))
        beyond = np.zeros(found.shape, dtype=bool)
        for number in np.flatnonzero(np.bincount(member, minlength=len(self.patterns))):
            alike, known = np.flatnonzero(member == number), np.flatnonzero(self.patterns[number])
            if not known.size:
                continue
            own = self.at[known]
            used = known[needed(own, asked)]
            found[alike] = between(self.at[used], asked, values[np.ix_(alike, used)])
            beyond[alike] = (asked < own[0] - _ROUNDING) | (asked > own[-1] + _ROUNDING)
        return found, beyond


def between(at: Array, asked: Array, values: Array) -> Array:
    """Piecewise linear, constant beyond the ends; values (n, len(at)) -> (n, len(asked))."""
    if at.size == 1:
        return np.repeat(values, asked.size, axis=1)
    right = np.clip(np.searchsorted(at, asked), 1, at.size - 1)
    share = np.clip((asked - at[right - 1]) / (at[right] - at[right - 1]), 0.0, 1.0)
    joined: Array = values[:, right - 1] * (1.0 - share) + values[:, right] * share
    return joined


def needed(at: Array, asked: Array) -> NDArray[np.intp]:
    """Positions in `at`, ascending, without which `between` would answer otherwise."""
    right = np.clip(np.searchsorted(at, asked), 0, at.size - 1)
    left = np.where((asked >= at[right]) | (right == 0), right, right - 1)
    return np.union1d(left, right)
