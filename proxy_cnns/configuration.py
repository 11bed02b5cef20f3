"""What is measured, before any framework: a subject, and the mode and batch size in which it runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.operators.operators import Operator


def mode_of(words: str) -> Mode:
    """Mode in PyTorch of a preset's words, ``PRECISION`` or ``PRECISION/MEMORY_FORMAT``: ``amp_bf16/channels_last``."""
    precision, _, memory_format = words.partition("/")
    return Mode(precision=precision, memory_format=memory_format or "nchw")


MEASURE_WHOLE = "Measure the CNN whole: --preset targets:FILE.py:make_model."
"""The next step where a layer cannot be built from a layer table."""


class Builder(NamedTuple):
    """A function of the user's own file that takes no arguments and returns a CNN."""

    path: Path
    function: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A proxy CNN, an operator, a target CNN or an all-reduce; one of `table`, `operator`, `builder`, `message_bytes`.

    `kind` is ``proxy``, ``operator``, ``target`` or ``all_reduce``. `image_size` is in pixels; of an operator, the
    height of its input; of an all-reduce 1.
    """

    kind: str
    name: str
    image_size: int
    table: LayerTable | None = None
    operator: Operator | None = None
    builder: Builder | None = None
    message_bytes: int | None = None

    @property
    def is_whole_cnn(self) -> bool:
        """Whether it is a CNN, of which an iteration trains all layers."""
        return self.operator is None and self.message_bytes is None


@dataclass(frozen=True, slots=True)
class Replicas:
    """Copies of a CNN, one on each of `n_gpus` GPUs, that add up their gradients in buckets of `bucket_mib` MiB.

    `bucket_view`: gradients are views of the buckets (PyTorch's ``gradient_as_bucket_view``). `sync_batch_norm`: batch
    norms take the statistics of all GPUs' images.
    """

    n_gpus: int = 1
    bucket_mib: float = 25.0
    bucket_view: bool = False
    sync_batch_norm: bool = False


ALONE = Replicas()
"""One GPU, which shares its gradients with no other."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """A subject in one mode at one batch size. Measuring it gives one row of the table.

    `batch_size` is that of one GPU; the row holds the mini-batch of all of them.
    """

    subject: Subject
    mode: Mode
    batch_size: int
    replicas: Replicas = ALONE

    @property
    def global_batch_size(self) -> int:
        """Images of one iteration on all GPUs."""
        return self.batch_size * self.replicas.n_gpus

    @property
    def words(self) -> str:
        """Name for messages."""
        words = f"{self.subject.name} at batch size {self.batch_size} in {self.mode.precision}"
        words += ", compiled" * (self.mode.capture == "compile")
        return words if self.replicas == ALONE else f"{words} on each of {self.replicas.n_gpus} GPUs"
