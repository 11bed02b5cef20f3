"""Facts about training times that every model must respect, whatever its error.

Called by tests of the shipped model and by benchmarks; calls nothing of ours. A model comes as a function of
(CNN, GPU, batch size) that gives an epoch's time in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

__all__ = ["EpochTimeOf", "Slower", "Step", "StepCheck", "epoch_time_steps", "slower_on_newer_gpu"]

EpochTimeOf = Callable[[str, str, int], float]

_NEWER, _OLDER = "Tesla V100-SXM2-16GB", "Tesla K80"
_BATCH_SIZES = (32, 64, 128, 256)
_DOUBLING_BATCH_SIZES = (16, *_BATCH_SIZES)


@dataclass(frozen=True, slots=True)
class Slower:
    """A CNN that is said to train no faster on the newer GPU."""

    cnn: str
    batch_size: int
    newer_epoch_time_s: float
    older_epoch_time_s: float


@dataclass(frozen=True, slots=True)
class Step:
    """What doubling the batch size is said to do to the epoch time."""

    cnn: str
    gpu: str
    batch_size: int
    epoch_time_s: float
    doubled_epoch_time_s: float

    @property
    def growth(self) -> float:
        """Relative change of the epoch time: 0.1 is 10 % longer."""
        return self.doubled_epoch_time_s / self.epoch_time_s - 1.0


@dataclass(frozen=True, slots=True)
class StepCheck:
    """How many doublings were checked, and those in which the epoch time rises by more than the tolerance."""

    n_steps: int
    rising: tuple[Step, ...]

    @property
    def share_flat_or_falling(self) -> float:
        """Share of doublings in which the epoch time falls or stays; 0.95 is expected of real CNNs."""
        return 1.0 - len(self.rising) / self.n_steps if self.n_steps else float("nan")


def slower_on_newer_gpu(
    epoch_time_s: EpochTimeOf,
    cnns: Iterable[str],
    batch_sizes: Sequence[int] = _BATCH_SIZES,
    newer: str = _NEWER,
    older: str = _OLDER,
) -> tuple[Slower, ...]:
    """List the CNNs and batch sizes that do not train faster on a V100 than on a K80: there should be none.

    Examples
    --------
    >>> slower_on_newer_gpu(lambda cnn, gpu, batch_size: 1.0 if "V100" in gpu else 8.0, ["resnet50"])
    ()
    """
    pairs = (
        Slower(cnn, batch_size, epoch_time_s(cnn, newer, batch_size), epoch_time_s(cnn, older, batch_size))
        for cnn, batch_size in product(cnns, batch_sizes)
    )
    return tuple(pair for pair in pairs if not pair.newer_epoch_time_s < pair.older_epoch_time_s)


def epoch_time_steps(
    epoch_time_s: EpochTimeOf,
    cnns: Iterable[str],
    gpus: Iterable[str],
    batch_sizes: Sequence[int] = _DOUBLING_BATCH_SIZES,
    tolerance: float = 0.05,
) -> StepCheck:
    """Check that the epoch time falls, or stays within `tolerance`, each time the batch size doubles.

    Examples
    --------
    >>> def epoch_time_s(cnn, gpu, batch_size):
    ...     return 10 + 64 / batch_size
    >>> check = epoch_time_steps(epoch_time_s, ["resnet50"], ["Tesla T4"])
    >>> check.n_steps, check.share_flat_or_falling
    (4, 1.0)
    """
    rising: list[Step] = []
    n_steps = 0
    for cnn, gpu in product(cnns, gpus):
        times = [(batch_size, epoch_time_s(cnn, gpu, batch_size)) for batch_size in batch_sizes]
        steps = [Step(cnn, gpu, first, time, later) for (first, time), (_, later) in pairwise(times)]
        n_steps += len(steps)
        rising += [step for step in steps if not step.growth <= tolerance]
    return StepCheck(n_steps, tuple(rising))
