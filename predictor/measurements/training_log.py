"""The speed of a training from what it printed: progress bars, lines and tables of well-known scripts, CSV logs."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median

from predictor.errors import SchemaError

_Reading = tuple[str, float, float | None]
"""What is read (a name of `predictor.answers.check.TIMES`), its value, and the share that waits for data."""

_NUMBER = r"(\d+(?:[.,]\d+)*)"
_NUMBER_UNREAD = r"\d+(?:[.,]\d+)*"


@dataclass(frozen=True, slots=True)
class LoggedSpeed:
    """The median of a log's readings of one form, the first left out where there are more than two.

    `name` is what is read: ``iteration_time_ms``, ``images_per_s`` or ``epoch_time_s``. `waiting_share` is
    the share of the time in which the loop waits for data, None where the log does not tell. `switches` are options of
    a question that the log shows to be on.
    """

    name: str
    value: float
    waiting_share: float | None
    switches: tuple[str, ...] = ()


_WARNINGS = {
    "deterministic": "does not have a deterministic implementation, but you set 'torch.use_deterministic_algorithms(",
    "detect_anomaly": "Anomaly Detection has been enabled",
}
"""What PyTorch warns of where a switch is on."""


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def _with_data(match: re.Match[str], order: tuple[int, int] = (1, 2)) -> _Reading:
    """Time of an iteration and the share of its wait for data, whose groups in the match are `order`."""
    seconds, data_s = (_value(match[group]) for group in order)
    return "iteration_time_ms", 1000.0 * seconds, min(data_s / seconds, 0.999) if seconds else None


def _in_unit(match: re.Match[str]) -> _Reading:
    ms, value = {"us": 1e-3, "ms": 1.0}.get(match[2], 1000.0), _value(match[1])
    return "iteration_time_ms", 1000.0 * (1.0 / value) if match[2] == "it/s" else value * ms, None


# fmt: off
FORMS: dict[str, tuple[str, Callable[[re.Match[str]], _Reading]]] = {
    "timm": (rf"Time: {_NUMBER}s,.*?/s\).*?Data: {_NUMBER} \(", _with_data),
    "torchvision": (rf"\btime: {_NUMBER}\s+data: {_NUMBER}", _with_data),
    "PyTorch's ImageNet example": (rf"\bTime\s+{_NUMBER} \(.*?\)\s+Data\s+{_NUMBER} \(", _with_data),
    "OpenMMLab and detectron2": (
        rf"^(?!.*\((?:val|test)\)).*?\btime: {_NUMBER},?\s+(?:last_time: {_NUMBER_UNREAD},?\s+)?data_time: {_NUMBER}",
        _with_data,
    ),
    "their JSON lines": (rf'"data_time": {_NUMBER}.*?"time": {_NUMBER}', partial(_with_data, order=(2, 1))),
    "NVIDIA's ImageNet examples (apex, DALI)": (
        rf"Epoch: \[.*?\bTime\s+{_NUMBER} \(.*?\)\s+Speed\s",
        lambda match: ("iteration_time_ms", 1000.0 * _value(match[1]), None),
    ),
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

    `path`: text that a training printed, or the file of a logger (CSV, Chainer's JSON). SchemaError if no line has a
    form that is known; the message lists these.
    """
    text = path.read_text(encoding="utf-8", errors="replace")
    lines = re.split(r"[\r\n]+", text)
    readings = _of_columns(text) or _of_rows(_rows_of_json(text) or _rows_of_table(lines))
    for pattern, reading in () if readings else FORMS.values():
        matches = (re.search(pattern, line) for line in lines)
        readings = readings or [reading(match) for match in matches if match and _value(match[1])]
    if not readings:
        raise SchemaError(
            f"{path} has no line that tells a speed. Known: {', '.join(FORMS)}, tables of fastai and of Chainer's "
            "PrintReport (with elapsed_time), Chainer's LogReport, and Lightning's CSV with its throughput monitor. "
            "Pass the speed itself: images/s, or the time of an iteration."
        )
    # libraries load and algorithms are chosen in the first
    counted = readings[1:] if len(readings) > 2 else readings
    shares = [share for _, _, share in counted if share is not None]
    value = median(value for _, value, _ in counted)
    switches = tuple(name for name, warning in _WARNINGS.items() if warning in text)
    return LoggedSpeed(counted[0][0], value, median(shares) if shares else None, switches)


def _rows_of_json(text: str) -> list[dict[str, str]]:
    """Rows of the file of Chainer's LogReport; none where the text is another."""
    with suppress(json.JSONDecodeError):
        if text.lstrip().startswith("["):
            rows = json.loads(text)
            dicts = [row for row in rows if isinstance(row, dict)]
            return [{name: str(value) for name, value in row.items()} for row in dicts]
    return []


def _rows_of_table(lines: Sequence[str]) -> list[dict[str, str]]:
    """Rows below a heading of fastai or of Chainer's PrintReport, whose columns begin where their names do."""
    for position, heading in enumerate(lines):
        columns = {match[0]: match.start() for match in re.finditer(r"\S+", heading)}
        if {"epoch", "iteration"} & columns.keys() and {"time", "elapsed_time"} & columns.keys():
            ends = [*columns.values(), None]
            slices = {name: slice(*span) for name, span in zip(columns, pairwise(ends), strict=True)}
            below = lines[position + 1 :]
            return [{name: line[own].strip() for name, own in slices.items()} for line in below]
    return []


def _of_rows(rows: Sequence[dict[str, str]]) -> list[_Reading]:
    """Times of epochs as fastai states them, or of iterations or epochs as Chainer's elapsed time grows."""
    clocks = [re.fullmatch(r"(?:(\d+):)?(\d+):(\d\d)", row.get("time", "")) for row in rows]
    stated = [3600.0 * int(clock[1] or 0) + 60 * int(clock[2]) + int(clock[3]) for clock in clocks if clock]
    if stated:
        return [("epoch_time_s", seconds, None) for seconds in stated if seconds]
    for counter, name, unit in (("iteration", "iteration_time_ms", 1000.0), ("epoch", "epoch_time_s", 1.0)):
        cells = [(row.get(counter, ""), row.get("elapsed_time", "")) for row in rows]
        ends = [(float(n), _value(s)) for n, s in cells if n.isdecimal() and re.fullmatch(_NUMBER, s)]
        spans = [(n - before, s - start) for (before, start), (n, s) in pairwise([(0.0, 0.0), *ends])]
        timed = [(n, seconds) for n, seconds in spans if n > 0 and seconds > 0]
        readings: list[_Reading] = [(name, unit * seconds / n, None) for n, seconds in timed]
        if readings:
            return readings
    return []


def _of_columns(text: str) -> list[_Reading]:
    """The speeds of a CSV log that has a column for them; none of another."""
    rows = list(csv.reader(text.splitlines()))
    for ending, name in _COLUMNS.items():
        heading = rows[0] if rows else []
        positions = [position for position, column in enumerate(heading) if column.endswith(ending)][:1]
        cells = [row[position] for position in positions for row in rows[1:] if len(row) > position]
        values = [_value(cell) for cell in cells if re.fullmatch(r"[\d.]+(e[-+]\d+)?", cell)]
        if positive := [value for value in values if value > 0]:
            return [(name, value if name == "images_per_s" else 1000 / value, None) for value in positive]
    return []
