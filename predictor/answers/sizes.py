"""Which batch sizes fit on a GPU by the estimate of peak memory, and which are compared if none is given."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError
from predictor.operators.memory import USABLE_SHARE, largest_batches_within

if TYPE_CHECKING:
    from predictor.answers.question import Question

MOST_COMPARED = 256
"""Largest batch size at which GPUs are compared if none is given: much larger ones need another learning rate and cost
accuracy."""

NOT_ONE_IMAGE = (
    "the CNN does not fit in the memory of any of these GPUs, not even with one image. "
    "Ask for GPUs with more memory, smaller images, or a precision such as amp_bf16."
)

_FEWEST_COMPARED = 32  # a GPU that holds fewer images is not compared at what it holds
_LARGEST_TRIED = 4096  # beyond it nothing was measured


def largest_batch_size(table: LayerTable, gpu: Gpu, mode: Mode) -> int | None:
    """Largest batch size whose estimated peak fills at most `USABLE_SHARE` of the GPU's memory.

    Returns
    -------
    int or None
        At most 65,536; None where not even one image fits, or the memory is not known.
    """
    return largest_local_batch_sizes(table, [(gpu, mode)])[0]


def largest_batch_sizes(
    question: Question, table: LayerTable, devices: Sequence[tuple[Gpu, Mode]]
) -> list[int | None]:
    """`largest_batch_size` on each GPU, times the GPUs that train together."""
    largest = largest_local_batch_sizes(table, devices)
    return [None if size is None else size * question.n_gpus for size in largest]


def largest_local_batch_sizes(table: LayerTable, devices: Sequence[tuple[Gpu, Mode]]) -> list[int | None]:
    """`largest_batch_size` on each GPU: only its memory and mode decide."""
    limits: dict[Mode, set[float]] = {}
    for gpu, mode in devices:
        if gpu.memory_gib is not None:
            limits.setdefault(mode, set()).add(gpu.memory_gib)
    of_memory: dict[tuple[float | None, Mode], int] = {}
    for mode, gib in limits.items():
        sizes = largest_batches_within(table, [USABLE_SHARE * memory for memory in gib], mode)
        of_memory |= {(memory, mode): size for memory, size in zip(gib, sizes, strict=True)}
    return [of_memory.get((gpu.memory_gib, mode)) or None for gpu, mode in devices]


def batch_sizes_to_try(largest: Iterable[int | None], samples: int | None, n_gpus: int = 1) -> list[int]:
    """Powers of two, for each GPU, up to the largest batch size that fits anywhere, the epoch's samples, and 4,096.

    Raises
    ------
    OutOfRangeError
        If no GPU holds a single image.
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


def compared_batch_size(common: int, largest: int | None, n_gpus: int = 1) -> int:
    """The batch size at which a GPU is compared: the common one, or the largest power of two that it holds.

    A GPU that does not hold 32 images stays at the common size, which does not fit.
    """
    if largest is None or largest >= common or largest < _FEWEST_COMPARED:
        return common
    return batch_sizes_to_try([largest], None, n_gpus)[-1]
