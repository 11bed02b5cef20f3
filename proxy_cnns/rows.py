"""One measured configuration as a row of the measurement table, and as an entry of its sidecar."""

from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.measurements.schema import FORMAT_VERSION
from predictor.operators.operators import operator_row
from proxy_cnns.order_statistics import median, quantile
from proxy_cnns.profiler import Measured
from proxy_cnns.work import Setting

__all__ = ["Key", "key_of", "measurement_row", "repeats_of", "series_of", "setting_key", "sort_key"]

Key = tuple[str, ...]
"""What tells one row of a run from another."""

_KEYS = ("kind", "cnn", "image_size", "precision", "memory_format", "autotune", "capture", "batch_size")
_DIGITS = 6
_MOST_REPEATS = 30


def setting_key(setting: Setting) -> Key:
    """Key of the row that a configuration ends in."""
    work, mode = setting.work, setting.mode
    words = (mode.precision, mode.memory_format, mode.autotune, mode.capture)
    return tuple(str(each) for each in (work.kind, work.name, work.image_size, *words, setting.batch_size))


def key_of(row: Mapping[str, Any]) -> Key:
    """Key of a row."""
    return tuple(str(row[name]) for name in _KEYS)


def series_of(key: Key) -> Key:
    """Key without its batch size: rows that differ in nothing else are a series."""
    return key[:-1]


def sort_key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """Order of a table's rows, the same however and by how many processes they were measured."""
    *words, batch_size = key_of(row)
    return (*words[3:], *words[:2], int(words[2]), int(batch_size))


def measurement_row(setting: Setting, measured: Measured, about: Mapping[str, Any]) -> dict[str, Any]:
    """Columns of the measurement table; what is not known is left out.

    Parameters
    ----------
    setting : Setting
    measured : Measured
    about : mapping
        Columns that all rows of the run share: ``gpu``, ``framework_version``, ``host``, ...
    """
    row = {
        "format_version": FORMAT_VERSION,
        "source": "epochcast",
        **about,
        **_work_columns(setting),
        "image_size": setting.work.image_size,
        "batch_size": setting.batch_size,
        **_mode_columns(setting.mode),
        **_time_columns(measured),
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "notes": "; ".join(measured.notes),
    }
    return {name: value for name, value in row.items() if value not in (None, "")}


def repeats_of(measured: Measured, kind: str) -> dict[str, Any]:
    """Every repeat in ms; of an operator its least, quartiles and most."""
    times = {
        "iteration_times_ms": measured.iteration_times_ms,
        "gpu_times_ms": measured.gpu_times_ms or (),
        "host_times_ms": measured.host_times_ms,
    }
    if kind == "operator":
        quartiles = (quantile(measured.times_ms, share / 4) for share in range(5))
        return {"quantiles_ms": [_rounded(each) for each in quartiles]}
    kept = {name: [_rounded(each) for each in some[:_MOST_REPEATS]] for name, some in times.items() if some}
    return kept | {"iterations_per_wall_time": measured.chunk}


def _work_columns(setting: Setting) -> dict[str, Any]:
    work = setting.work
    if work.operator is not None:
        return operator_row(work.operator)
    return {"kind": work.kind, "cnn": work.name, "pass": "training"}


def _mode_columns(mode: Mode) -> dict[str, Any]:
    return asdict(mode) | {"n_gpus": 1, "loader_workers": 0}


def _time_columns(measured: Measured) -> dict[str, Any]:
    wall, gpu, host = measured.iteration_times_ms, measured.gpu_times_ms, measured.host_times_ms
    return {
        "iteration_time_ms": _rounded(median(wall)),
        "gpu_time_ms": _rounded(median(gpu)) if gpu else None,
        "host_time_ms": _rounded(median(host)) if host else None,
        "peak_memory_mib": _rounded(measured.peak_memory_mib),
        "conv_algorithms": measured.conv_algorithms,
        "n_warmup": measured.n_warmup,
        "n_repeats": len(wall),
        "iteration_time_ms_iqr": _rounded(quantile(wall, 0.75) - quantile(wall, 0.25)),
    }


def _rounded(value: float | None) -> float | None:
    """Six significant digits: more than any clock gives, and a third of the file."""
    return None if value is None else float(f"{value:.{_DIGITS}g}")
