"""Operators as matrix products see them: sizes, how many tiles and waves they make, by what powers of two they divide.

Called by operator_trees alone; calls operators. cuDNN runs convolutions as implicit matrix products, cut into tiles
that are dealt to the multiprocessors, and has other kernels where sizes divide by 8 or 16: what these columns tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from predictor.operators import Operator

__all__ = ["N_TILE_COLUMNS", "tile_columns"]

Array = NDArray[np.float64]

N_TILE_COLUMNS = 17

_TILE_ROWS, _TILE_COLUMNS = 128, 64
_USUAL_SM_COUNT = 128  # where a GPU's is unknown; the number scales waves alone
_NOT_FEATURES = 5  # of what `_sizes` gives: those that tiles are counted by
_CHANNELS_DIVIDE, _MAPS_DIVIDE = 6, 4  # powers of two beyond which kernels do not tell sizes apart


def tile_columns(operators: Sequence[Operator], batch_sizes: Array, sm_count: int | None) -> Array:
    """Columns of every operator at every batch size, of shape (n_operators, n_batches, N_TILE_COLUMNS).

    Notes
    -----
    Per image and group: forward (positions x output channels, inner size input channels x kernel), weight gradient
    (input channels x kernel x output channels, inner size positions). A wave is one tile on each multiprocessor.
    """
    n, m = len(operators), batch_sizes.size
    shape = np.array([_sizes(operator) for operator in operators], dtype=float).reshape(n, -1)
    positions, ins, outs, inner, groups = (column[:, None] for column in shape[:, :_NOT_FEATURES].T)
    rows = positions * batch_sizes
    across = np.ceil(outs / _TILE_COLUMNS) * groups
    tiles = np.ceil(rows / _TILE_ROWS) * across
    waves = tiles / (sm_count or _USUAL_SM_COUNT)
    by_batch = [
        np.log2(rows),
        np.log2(tiles),
        waves / np.ceil(waves),
        np.log2(rows * outs * groups),
        np.log2(rows * ins * groups),
        np.log2(np.broadcast_to(np.ceil(inner / _TILE_ROWS) * across, (n, m))),
    ]
    by_shape = np.broadcast_to(shape[:, None, _NOT_FEATURES:], (n, m, shape.shape[1] - _NOT_FEATURES))
    joined: Array = np.concatenate([by_shape, np.stack(by_batch, axis=2)], axis=2)
    return joined


@lru_cache(maxsize=65536)
def _sizes(operator: Operator) -> tuple[float, ...]:
    groups = operator.groups or 1
    ins = max(1, (operator.in_channels or 1) // groups)
    outs = max(1, (operator.out_channels or operator.in_channels or 1) // groups)
    height, width = operator.out_height or 1, operator.out_width or 1
    kernel_height, kernel_width = operator.kernel_height or 1, operator.kernel_width or 1
    inner, outer = ins * kernel_height * kernel_width, outs * kernel_height * kernel_width
    return (
        height * width,
        ins,
        outs,
        inner,
        groups,
        _twos(ins, _CHANNELS_DIVIDE),
        _twos(outs, _CHANNELS_DIVIDE),
        _twos(width, _MAPS_DIVIDE),
        _twos(height * width, _MAPS_DIVIDE),
        width,
        kernel_height,
        kernel_width,
        float(np.log2(inner)),
        float(np.log2(outer)),
        ins * groups,
        outs * groups,
    )


def _twos(number: int, most: int) -> int:
    """How often a number divides by two, at most `most` times."""
    return min(most, (number & -number).bit_length() - 1)
