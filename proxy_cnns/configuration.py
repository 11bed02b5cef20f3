"""What is measured, before any framework: a subject, and the mode and batch size in which it runs."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.operators.operators import Operator

__all__ = ["MEASURE_WHOLE", "Builder", "Configuration", "Subject"]

MEASURE_WHOLE = "Measure the CNN whole: --preset targets:FILE.py:make_model."
"""The next step where a layer cannot be built from a layer table."""


class Builder(NamedTuple):
    """A function of the user's own file that takes no arguments and returns a CNN."""

    path: Path
    function: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A proxy CNN, an operator or a target CNN; exactly one of `table`, `operator` and `builder` is given.

    `kind` is ``proxy``, ``operator`` or ``target``. `image_size` is in pixels; of an operator, the height of its input.
    """

    kind: str
    name: str
    image_size: int
    table: LayerTable | None = None
    operator: Operator | None = None
    builder: Builder | None = None


@dataclass(frozen=True, slots=True)
class Configuration:
    """A subject in one mode at one batch size. Measuring it gives one row of the table."""

    subject: Subject
    mode: Mode
    batch_size: int

    @property
    def words(self) -> str:
        """Name for messages."""
        return f"{self.subject.name} at batch size {self.batch_size} in {self.mode.precision}"
