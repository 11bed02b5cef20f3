"""Notes beside an answer: a text and how much it matters, by which every face chooses what to show."""

from dataclasses import dataclass
from enum import IntEnum

__all__ = ["Note", "Priority"]


class Priority(IntEnum):
    """How much a note matters: the lowest number comes first."""

    CHANGE = 0
    """What another line of the user's code would give; shown beside the verdict."""
    BEWARE = 1
    """The answer may be wrong: a broken CNN, an anchor far from the model."""
    LIMIT = 2
    """What limits the training or rules better offers out."""
    REMEDY = 3
    """What would narrow the interval."""
    DETAIL = 4
    """What is paid for, counted or assumed."""
    VERBOSE = 5
    """Shown only to those who ask for everything."""


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence or two, and how much they matter."""

    priority: Priority
    text: str
