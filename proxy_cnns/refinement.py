"""More batch sizes where a series bends: convolution algorithms switch there, and times jump."""

from collections.abc import Iterable, Iterator
from math import exp, log, sqrt

from proxy_cnns.rows import Key, series_of, setting_key
from proxy_cnns.run_file import Run
from proxy_cnns.work import Setting

__all__ = ["refined"]

_DISAGREEMENT = 0.03
_CLOSEST = 1.1
"""Batch sizes nearer than this ratio are not divided further."""

Point = tuple[int, float]
"""Batch size and time in ms."""


def refined(settings: Iterable[Setting], run: Run) -> list[Setting]:
    """Batch sizes to add to the series of whole CNNs.

    Where a measured time differs by more than 3 % from the line between its neighbours, logarithm of time over
    logarithm of batch size, the batch sizes halfway to both of them are added.
    """
    first: dict[Key, Setting] = {}
    for setting in settings:
        if setting.work.kind != "operator":
            first.setdefault(series_of(setting_key(setting)), setting)
    points: dict[Key, list[Point]] = {series: [] for series in first}
    for key, row in run.rows.items():
        if series_of(key) in points:
            time = float(row.get("gpu_time_ms") or row["iteration_time_ms"])
            points[series_of(key)].append((int(key[-1]), time))
    return [
        Setting(setting.work, setting.mode, batch_size)
        for series, setting in first.items()
        for batch_size in _between(sorted(points[series]))
    ]


def _between(points: list[Point]) -> list[int]:
    """Batch sizes to add, ascending."""
    found: set[int] = set()
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        if abs(here[1] / _on_line(before, after, here[0]) - 1) > _DISAGREEMENT:
            found |= set(_halfway(before[0], here[0])) | set(_halfway(here[0], after[0]))
    return sorted(found)


def _on_line(one: Point, other: Point, batch_size: int) -> float:
    share = log(batch_size / one[0]) / log(other[0] / one[0])
    return exp((1 - share) * log(one[1]) + share * log(other[1]))


def _halfway(low: int, high: int) -> Iterator[int]:
    middle = round(sqrt(low * high))
    if low < middle < high and high / low > _CLOSEST:
        yield middle
