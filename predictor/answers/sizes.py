"""Which batch sizes fit on a GPU by the estimate of peak memory, and which are compared if none is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.operators.memory import USABLE_SHARE, largest_batches_within

NEAR_BEST = 1.05
"""Batch sizes within this factor of the best epoch time are equally good; the smallest is recommended."""

MOST_COMPARED = 256
"""Largest batch size at which GPUs are compared if none is given: much larger ones need another learning rate and cost
accuracy."""

NOT_ONE_IMAGE = (
    "the CNN does not fit in the memory of any of these GPUs, not even with one image. "
    "Ask for GPUs with more memory, smaller images, or a precision such as amp_bf16."
)

_FEWEST_COMPARED = 32  # a GPU that holds fewer images is not compared at what it holds
_LARGEST_TRIED = 4096  # beyond it nothing was measured


def largest_local_batch_sizes(table: LayerTable, devices: Sequence[tuple[Gpu, Mode]]) -> list[int | None]:
    """Largest batch size on each GPU whose estimated peak fills at most `USABLE_SHARE` of its memory.

    A multiple of the parts of the mini-batch, at most 65,536; None where not even one image fits, or the memory is not
    known.
    """
    parts, limits = table.parts, dict[Mode, set[float]]()
    for gpu, mode in devices:
        if gpu.memory_gib is not None:
            limits.setdefault(mode, set()).add(gpu.memory_gib)
    of_memory: dict[tuple[float | None, Mode], int] = {}
    for mode, gib in limits.items():
        sizes = largest_batches_within(table, [USABLE_SHARE * memory for memory in gib], mode)
        whole = (size - size % parts for size in sizes)
        of_memory |= {(memory, mode): size for memory, size in zip(gib, whole, strict=True)}
    return [of_memory.get((gpu.memory_gib, mode)) or None for gpu, mode in devices]


def batch_sizes_to_try(largest: Iterable[int | None], samples: int | None, n_gpus: int = 1) -> list[int]:
    """Powers of two, for each GPU, up to the largest batch size that fits anywhere, the epoch's samples, and 4,096.

    Where GPUs run their share in several parts, `n_gpus` counts the parts of all. OutOfRangeError if no GPU holds a
    single image.
    """
    holding = [size for size in largest if size is not None]
    if not holding:
        raise OutOfRangeError(NOT_ONE_IMAGE).about("gpus")
    most = min(max(holding), samples or _LARGEST_TRIED, _LARGEST_TRIED)
    return [n_gpus * 2**i for i in range(max(1, most // n_gpus).bit_length())]


def common_batch_size(largest: Sequence[int | None], samples: int | None, n_gpus: int = 1) -> int:
    """The batch size at which GPUs are compared: the largest power of two up to 256 that more than half of them hold.

    GPUs that hold fewer than 32 images are not counted, unless all hold fewer. Of several GPUs that train together it
    is the mini-batch of all of them.
    """
    holding = [size for size in largest if size is not None]
    enough = sorted((size for size in holding if size >= _FEWEST_COMPARED), reverse=True)
    most = enough[len(enough) // 2] if enough else max(holding)
    return batch_sizes_to_try([min(most, max(n_gpus, MOST_COMPARED))], samples, n_gpus)[-1]


def compared_batch_sizes(common: int, largest: Sequence[int | None], n_gpus: int = 1) -> list[int]:
    """The batch size at which each GPU is compared: the common one, or the largest power of two that it holds.

    A GPU that does not hold 32 images stays at the common size, which does not fit.
    """
    return [
        common
        if most is None or most >= common or most < _FEWEST_COMPARED
        else batch_sizes_to_try([most], None, n_gpus)[-1]
        for most in largest
    ]


def best_of_gpus(time_s: NDArray[np.float64], fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each batch size is the smallest of its GPU that fits and lies within 5 % of the best that fits.

    `time_s`, `fits`, shape (n_gpus, n_batches): time of an epoch, or of an image.
    """
    fitting = np.where(fits, time_s, np.inf)
    near = fits & (fitting <= NEAR_BEST * fitting.min(axis=1, keepdims=True))
    best: NDArray[np.bool_] = near & (np.arange(near.shape[1]) == near.argmax(axis=1)[:, None])
    return best


def fastest_sizes(rates: NDArray[np.float64], held: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The place of the smallest batch size within 5 % of the best throughput of those held; -1 where none is held.

    `rates`, `held`, shape (n_gpus, n_sizes): throughput, and whether a GPU holds the batch size and it is to be tried;
    sizes ascend.
    """
    best = np.where(held, rates, -np.inf).max(axis=1, keepdims=True)
    near = held & (NEAR_BEST * rates >= best)
    return np.where(held.any(axis=1), near.argmax(axis=1), -1)
