"""The speed of a training from what it printed: progress bars, lines of well-known training scripts, CSV logs."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import NamedTuple

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


class _Form(NamedTuple):
    """Lines that a program prints: its name, their pattern, and what a match says."""

    name: str
    pattern: re.Pattern[str]
    reading: Callable[[re.Match[str]], _Reading]


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _with_data(match: re.Match[str]) -> _Reading:
    seconds = _value(match[1])
    return "iteration_time_ms", 1000.0 * seconds, min(_value(match[2]) / seconds, 0.999) if seconds else None


def _per_iteration(match: re.Match[str]) -> _Reading:
    value = _value(match[1])
    return "iteration_time_ms", 1000.0 * (value if match[2].startswith("s/") else 1.0 / value), None


_MS = {"us": 1e-3, "ms": 1.0, "s": 1e3}

FORMS: tuple[_Form, ...] = (
    _Form("timm", re.compile(rf"Time: {_NUMBER}s,.*?/s\).*?Data: {_NUMBER} \("), _with_data),
    _Form("torchvision", re.compile(rf"\btime: {_NUMBER}\s+data: {_NUMBER}"), _with_data),
    _Form(
        "PyTorch's ImageNet example",
        re.compile(rf"\bTime\s+{_NUMBER} \(.*?\)\s+Data\s+{_NUMBER} \("),
        _with_data,
    ),
    _Form(
        "Keras",
        re.compile(rf"{_NUMBER}(us|ms|s)/step"),
        lambda m: ("iteration_time_ms", _value(m[1]) * _MS[m[2]], None),
    ),
    _Form("nnU-Net", re.compile(rf"Epoch time: {_NUMBER} s"), lambda m: ("epoch_time_s", _value(m[1]), None)),
    _Form(
        "images/s",
        re.compile(rf"{_NUMBER} ?(?:images?|imgs?|samples|examples)/s", re.IGNORECASE),
        lambda m: ("images_per_s", _value(m[1]), None),
    ),
    _Form("a progress bar", re.compile(rf"{_NUMBER} ?(s/it|it/s)"), _per_iteration),
)
"""Forms that are understood, the ones that say most first."""

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
    for form in FORMS:
        readings = [
            form.reading(match) for match in map(form.pattern.search, lines) if match and _value(match[1])
        ]
        if readings:
            return _median(readings)
    names = ", ".join(form.name for form in FORMS)
    raise SchemaError(
        f"{path} has no line that tells a speed. Known: {names}, and Lightning's CSV with its throughput monitor. "
        "Pass the speed itself: images/s, or the time of an iteration."
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
