"""What an optimizer keeps, reads and writes for each number that it updates: bytes, of which its time follows."""

from typing import NamedTuple

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable


class Update(NamedTuple):
    """An optimizer's work for each number: what it keeps, its reads and writes, and what it holds for a moment.

    `form`: one call for lists of tensors (``foreach``), one kernel (``fused``), or tensor by tensor (``loop``).
    """

    states: float
    passes: float
    copies: float = 0.0
    form: str = "foreach"


UPDATES: dict[str, Update] = {
    "sgd": Update(0, 3),
    "momentum": Update(1, 8),
    "adam": Update(2, 18, 1),
    "adamw": Update(2, 20, 1),
    "nadam": Update(2, 22, 1),
    "rmsprop": Update(1, 13, 1),
    "adadelta": Update(2, 27.5, 2),
    "adagrad": Update(1, 13, 2),
    "lamb": Update(2, 34, 0, "loop"),
}
"""PyTorch's optimizers as it runs them on a GPU by default, and timm's LAMB."""

_USUAL = "momentum"
_MEASURED = {"pytorch": UPDATES[_USUAL].passes, "tensorflow": 3.0, "chainer": 5.0}
"""Passes of the updates in each framework's training data: momentum, TensorFlow's SGD, Chainer's momentum."""

_PASSES_OF_A_KERNEL, _KERNEL_US = 2.6, 1.7
"""Reads and writes of a kernel on one tensor, and its shortest time on an H100."""


def update_of(table: LayerTable, mode: Mode) -> Update:
    """Update of a CNN in a mode; of a recorded step whose optimizer is the mode's, as it was recorded.

    Frameworks other than PyTorch run one kernel for each tensor: it reads number, gradient and states, and writes all
    but the gradient.
    """
    step = table.step
    if (
        step is not None
        and step.optimizer_passes is not None
        and mode.optimizer == (step.optimizer or _USUAL)
    ):
        form = step.optimizer_form or "foreach"
        return Update(step.optimizer_states or 0.0, step.optimizer_passes, step.optimizer_copies or 0.0, form)
    update = UPDATES[mode.optimizer]
    if mode.framework == "pytorch":
        return update
    return Update(update.states, 3.0 + 2.0 * update.states, form="fused")


def passes_over_measured(update: Update, framework: str) -> float:
    """Passes of an update over those of the updates that a framework's times were measured with."""
    return update.passes / _MEASURED[framework]


def loop_ms(update: Update, n_tensors: float) -> float:
    """Shortest time of an update on the GPU, in ms: that of its kernels where it goes from tensor to tensor, else 0."""
    kernels = n_tensors * update.passes / _PASSES_OF_A_KERNEL
    return kernels * _KERNEL_US / 1000.0 if update.form == "loop" else 0.0
