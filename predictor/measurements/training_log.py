"""The speed of a training from what it printed: progress bars, lines of well-known training scripts, CSV logs."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from predictor.errors import SchemaError

_Reading = tuple[str, float, float | None]
"""What is read (a name of `predictor.answers.check.TIMES`), its value, and the share that waits for data."""

_NUMBER = r"(\d+(?:[.,]\d+)*)"


@dataclass(frozen=True, slots=True)
class LoggedSpeed:
    """The median of a log's readings of one form, the first left out where there are more than two.

    `name` is what is read: ``iteration_time_ms``, ``images_per_s`` or ``epoch_time_s``. `waiting_share` is
    the share of the time in which the loop waits for data, None where the log does not tell.
    """

    name: str
    value: float
    waiting_share: float | None


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _with_data(match: re.Match[str]) -> _Reading:
    seconds = _value(match[1])
    return "iteration_time_ms", 1000.0 * seconds, min(_value(match[2]) / seconds, 0.999) if seconds else None


def _in_unit(match: re.Match[str]) -> _Reading:
    ms, value = {"us": 1e-3, "ms": 1.0}.get(match[2], 1000.0), _value(match[1])
    return "iteration_time_ms", 1000.0 * (1.0 / value) if match[2] == "it/s" else value * ms, None


# fmt: off
FORMS: dict[str, tuple[str, Callable[[re.Match[str]], _Reading]]] = {
    "timm": (rf"Time: {_NUMBER}s,.*?/s\).*?Data: {_NUMBER} \(", _with_data),
    "torchvision": (rf"\btime: {_NUMBER}\s+data: {_NUMBER}", _with_data),
    "PyTorch's ImageNet example": (rf"\bTime\s+{_NUMBER} \(.*?\)\s+Data\s+{_NUMBER} \(", _with_data),
    "Keras": (rf"{_NUMBER}(us|ms|s)/step", _in_unit),
    "nnU-Net": (rf"Epoch time: {_NUMBER} s", lambda match: ("epoch_time_s", _value(match[1]), None)),
    "images/s": (
        rf"(?i){_NUMBER} ?(?:images?|imgs?|samples|examples)/s", lambda match: ("images_per_s", _value(match[1]), None)
    ),
    "a progress bar": (rf"{_NUMBER} ?(s/it|it/s)", _in_unit),
}
# fmt: on
"""Programs whose lines are understood, the ones that say most first: the lines' pattern, and what a match says."""

_COLUMNS = {"samples_per_sec": "images_per_s", "batches_per_sec": "iteration_time_ms"}
"""Endings of the columns of Lightning's throughput monitor; batches per second become milliseconds."""


def read_training_log(path: Path) -> LoggedSpeed:
    """Median speed in a training's log.

    `path`: text that a training printed, or the CSV file of a logger. SchemaError if no line has a form that is known;
    the message lists these.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    if (speed := _of_columns(text)) is not None:
        return speed
    lines = re.split(r"[\r\n]+", text)
    for pattern, reading in FORMS.values():
        matches = (re.search(pattern, line) for line in lines)
        readings = [reading(match) for match in matches if match and _value(match[1])]
        if readings:
            return _median(readings)
    raise SchemaError(
        f"{path} has no line that tells a speed. Known: {', '.join(FORMS)}, and Lightning's CSV with its throughput "
        "monitor. Pass the speed itself: images/s, or the time of an iteration."
    )


def _median(readings: Sequence[_Reading]) -> LoggedSpeed:
    # libraries load and algorithms are chosen in the first
    counted = readings[1:] if len(readings) > 2 else readings
    shares = [share for _, _, share in counted if share is not None]
    value = median(value for _, value, _ in counted)
    return LoggedSpeed(counted[0][0], value, median(shares) if shares else None)


def _of_columns(text: str) -> LoggedSpeed | None:
    """The speed of a CSV log that has a column for it; None if it has none."""
    rows = list(csv.reader(text.splitlines()))
    for ending, name in _COLUMNS.items():
        positions = [
            position for position, column in enumerate(rows[0] if rows else []) if column.endswith(ending)
        ]
        cells = [
            row[positions[0]]
            for row in rows[1:]
            if positions and len(row) > positions[0] and row[positions[0]]
        ]
        values = [_value(cell) for cell in cells if re.fullmatch(r"[\d.]+(e[-+]\d+)?", cell)]
        if positive := [value for value in values if value > 0]:
            readings = [(name, value if name == "images_per_s" else 1000 / value, None) for value in positive]
            return _median(readings)
    return None
