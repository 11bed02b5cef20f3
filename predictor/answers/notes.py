"""What is said beside an answer, as data: reasons for caution with their remedies, and notes by how much they matter.

Faces choose by kind and priority, and never read a text.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal

from predictor.models import forecast
from predictor.models.forecast import Kind

MEASURE_IT = (
    "measure 3 minutes on this GPU (epochcast profile --preset quick), or give one run on it as an anchor"
)
_MEASURE_LAYERS = (
    "measure the CNN's own layers (epochcast profile --preset cnn:NAME), or give one run as an anchor"
)
_MEASURE_TOGETHER = "measure these GPUs training together (epochcast profile --preset ddp)"

REMEDIES: dict[Kind, str | None] = {
    "gpu": MEASURE_IT,
    "layers": MEASURE_IT,
    "framework": MEASURE_IT,
    "precision": MEASURE_IT,
    "memory_format": MEASURE_IT,
    "mode": MEASURE_IT,
    "xla": MEASURE_IT,
    "operator": _MEASURE_LAYERS,
    "shape": _MEASURE_LAYERS,
    "batch": "measure the CNN's own layers at this batch size (epochcast profile --preset cnn:NAME --batch-size N)",
    "capture": "give one run of the CNN in this mode as an anchor",
    "autotune": "give one run of the CNN in this mode as an anchor",
    "cudnn": "give one run of the CNN in this mode as an anchor",
    "optimizer": "give one run of the CNN with this optimizer as an anchor",
    "edges": "say in the table's column inputs which rows every layer reads",
    "frozen": "give one run of the CNN with its parts frozen as an anchor",
    "anchor": "give a run of the CNN nearer to this question as an anchor",
    "host": "name the machine around the GPU (--host), or measure 3 minutes on it (epochcast profile --preset quick)",
    "link": _MEASURE_TOGETHER,
    "nodes": _MEASURE_TOGETHER,
    "sync_batch_norm": _MEASURE_TOGETHER,
    "measurements": "ask for the mode that was measured",
    "classes": _MEASURE_LAYERS,
    "noise": "measure again while nothing else runs",
    "second_derivatives": "give one run of the CNN as an anchor",
    "cnn": None,  # the reason itself says what to change
    "method": None,  # the reason itself names the errors of both
}
"""What to do about each kind of reason; None where nothing but the reason itself helps."""


@dataclass(frozen=True, slots=True)
class Reason:
    """Why an answer extrapolates, and what would narrow its interval; `remedy` is None where only the text helps."""

    kind: Kind
    text: str
    remedy: str | None

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def reason_of(kind: Kind, text: str) -> Reason:
    """A reason with the remedy of its kind."""
    return Reason(kind, text, REMEDIES[kind])


def as_answered(reasons: Iterable[forecast.Reason]) -> tuple[Reason, ...]:
    """The reasons of a forecast as answers show them: those first that widen the interval most."""
    widest_first = sorted(reasons, key=lambda reason: -reason.widens)
    return tuple(reason_of(reason.kind, reason.text) for reason in widest_first)


def remedy_of(reasons: Iterable[Reason]) -> str | None:
    """What would narrow the interval of an answer with these reasons most."""
    return next((reason.remedy for reason in reasons if reason.remedy is not None), None)


@dataclass(frozen=True, slots=True)
class EnergyBasis:
    """What the energy on a GPU rests on, or why it is unknown."""

    kind: Literal["measured", "estimated", "unknown"]
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Co2Basis:
    """The grid that CO2 is counted of, with its grams a kilowatt-hour, or why it is unknown."""

    kind: Literal["published", "unknown"]
    text: str

    def __str__(self) -> str:
        return self.text


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

    def __str__(self) -> str:
        return self.text


def notes_of(priority: Priority, *texts: str) -> list[Note]:
    """A note of this priority for each text that is not empty."""
    return [Note(priority, text) for text in texts if text]
