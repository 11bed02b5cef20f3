"""What is measured, before any framework: one thing to run, and one way to run it.

Calls nothing of ours but layers, modes and operators.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.operators.operators import Operator

__all__ = ["MEASURE_WHOLE", "Builder", "Setting", "Work"]

MEASURE_WHOLE = "Measure the CNN whole: --preset targets:FILE.py:make_model."
"""What to do about a layer that cannot be built from a layer table."""


class Builder(NamedTuple):
    """A function of the user's own file that takes no arguments and returns a CNN."""

    path: Path
    function: str


@dataclass(frozen=True, slots=True)
class Work:
    """One thing to run: exactly one of `table`, `operator` and `builder` says what.

    `kind` is ``proxy``, ``operator`` or ``target``; `image_size` is in pixels, of an operator its input's height.
    """

    kind: str
    name: str
    image_size: int
    table: LayerTable | None = None
    operator: Operator | None = None
    builder: Builder | None = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One configuration, and one row of the table it ends in."""

    work: Work
    mode: Mode
    batch_size: int
