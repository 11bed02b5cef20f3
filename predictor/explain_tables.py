"""What measured iterations are made of: the explanations of a measurement table.

Called by the public face; calls measurements, measured_classes, bounds and switches. Nothing is predicted: times,
factors between modes and switches are measured; classes are there where the table measured the CNN's operators.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.bounds import bounds_of
from predictor.errors import DataError, SchemaError
from predictor.explanations import MEASURED_METHOD, Explanation, Numbers, OtherMode, small_batch_law
from predictor.measured_classes import measured_bounds, measured_classes, zoo_layers
from predictor.measurement_noise import disturbed_rows, noise_by_batch_size
from predictor.modes import Mode
from predictor.operator_library import LibraryMode, OperatorLibrary
from predictor.switches import switches_of_algorithms, switches_of_times

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["explain_measurements", "is_measurement_table"]

Array = NDArray[np.float64]

_SERIES = ("gpu", "framework", "cnn", "image_size", "autotune", "capture", "optimizer", "host")
_MODE = ("precision", "memory_format")
_TIMES = ("iteration_time_ms", "gpu_time_ms", "host_time_ms")


def is_measurement_table(what: object) -> bool:
    """Whether this is the path of a measurement table: a CSV with times, not a layer table; gzipped ones always are.

    Raises
    ------
    DataError
        If it is the path of a CSV that does not exist.
    """
    if not isinstance(what, str | PathLike):
        return False
    path = Path(fspath(what))
    if path.name.casefold().endswith(".csv.gz"):
        return True
    if path.suffix.casefold() != ".csv":
        return False
    if not path.is_file():
        raise DataError(f"there is no file {path}. Give a measurement table, a layer table or a CNN's name.")
    with path.open(newline="", encoding="utf-8", errors="replace") as file:
        header = next(csv.reader(file), [])
    return "iteration_time_ms" in [name.strip() for name in header]


def explain_measurements(
    tables: object, cnns: Sequence[str] = (), samples: int | None = None, **only: Any
) -> list[Explanation]:
    """What measured iterations are made of, for each CNN, device and mode of measurement tables.

    Parameters
    ----------
    tables : path, DataFrame, or a list of them
        Measurement tables, taken together: operators may be in another file than CNNs.
    cnns : list of str
        Only these CNNs; all by default.
    samples : int, optional
        Of an epoch, for the law's constant; by default the table's samples_per_epoch.
    **only
        Columns with the values wanted, such as ``precision="tf32"`` or ``batch_size=[16, 64]``; None means all.

    Returns
    -------
    list of Explanation
        By CNN, image size, device and mode; `method` is ``measured``. Where a batch size was measured repeatedly, the
        median counts. `classes` are the times of the table's operators, scaled so that they add up to the GPU's time.

    Raises
    ------
    DataError, SchemaError, UnknownGpuError
        If a table cannot be read, or holds no whole CNN as trained that fits.
    """
    frame = _joined(tables)
    libraries, noise = _libraries(frame), _noise_of_operators(frame)
    wanted = _chosen(_whole_cnns(frame), cnns, only)
    series = [
        _series(rows, libraries, samples, noise)
        for _, rows in wanted.groupby([*_SERIES, *_MODE], dropna=False)
    ]
    found = sorted(series, key=lambda each: (each.cnn, each.image_size, each.gpu, each.precision))
    return [replace(each, other_modes=_other_modes(each, found)) for each in found]


def _joined(tables: object) -> pd.DataFrame:
    import pandas as pd

    from predictor.measurements import check_measurements, read_measurements

    many: list[Any] = list(tables) if isinstance(tables, list | tuple) else [tables]
    frames = [
        read_measurements(each) if isinstance(each, str | PathLike) else check_measurements(each, "the table")
        for each in many
    ]
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def _libraries(frame: pd.DataFrame) -> dict[LibraryMode, OperatorLibrary]:
    if not (frame["kind"] == "operator").any():
        return {}
    from predictor.predictors.layer_times import libraries_of

    return libraries_of(frame)


def _noise_of_operators(frame: pd.DataFrame) -> str:
    operators = frame[frame["kind"] == "operator"]
    n = disturbed_rows(operators)
    return (
        f"; {n:,} of {len(operators):,} measurements of operators were disturbed by other work" if n else ""
    )


def _whole_cnns(frame: pd.DataFrame) -> pd.DataFrame:
    trained = (frame["pass"].fillna("training") == "training") & (frame["n_gpus"].fillna(1) == 1)
    rows = frame[(frame["kind"].fillna("target") != "operator") & trained & ~frame["xla"].fillna(False)]
    if rows.empty:
        raise DataError(
            "the table holds no whole CNN as trained on one GPU. Ask about a CNN and pass the table as "
            "measurements: `epochcast explain resnet50 --gpu GPU --measurements FILE`."
        )
    usual = Mode()
    rows = rows.assign(
        **{
            name: rows[name].fillna(getattr(usual, name))
            for name in ("framework", "precision", "memory_format", "autotune", "capture", "optimizer")
        }
    )
    return rows.assign(autotune=rows["autotune"].astype(bool), host=rows["host"].fillna(""))


def _chosen(rows: pd.DataFrame, cnns: Sequence[str], only: dict[str, Any]) -> pd.DataFrame:
    wishes = {name: value for name, value in only.items() if value is not None} | (
        {"cnn": list(cnns)} if cnns else {}
    )
    for name, value in wishes.items():
        values = list(value) if isinstance(value, list | tuple | set) else [value]
        there = rows[name].unique().tolist()
        missing = [each for each in values if each not in there]
        if missing:
            known = ", ".join(str(each) for each in sorted(there, key=str)[:40])
            raise SchemaError(
                f"the table has no {name} {missing[0]!r}"
                + (f" with the rest that was asked for. It has: {known}.")
            )
        rows = rows[rows[name].isin(values)]
    return rows


def _series(
    rows: pd.DataFrame, libraries: dict[LibraryMode, OperatorLibrary], samples: int | None, noise: str = ""
) -> Explanation:
    """The explanation of one CNN on one device in one mode, other modes left out."""
    first, by_size = rows.iloc[0], rows.groupby("batch_size")
    times = by_size[list(_TIMES)].median()
    sizes = np.array(times.index, dtype=int)
    wall, busy, host = (times[name].to_numpy(dtype=float) for name in _TIMES)
    gpu, framework, precision, memory_format = (str(first[name]) for name in ("gpu", "framework", *_MODE))
    mode = LibraryMode(gpu, framework, precision, memory_format, bool(first["autotune"]))
    table = zoo_layers(str(first["cnn"]), int(first["image_size"]))
    known = measured_classes(table, libraries.get(mode), sizes, busy)
    by_bound = measured_bounds(table, mode, sizes, busy, known.classes)
    bound = bounds_of(busy, host, by_bound, wall)
    algorithms = by_size["conv_algorithms"].last().tolist()
    noisy = noise_by_batch_size(rows)
    n_samples = samples if samples is not None else _samples(rows)
    unknown = (math.nan,) * sizes.size
    return Explanation(
        str(first["cnn"]),
        int(first["image_size"]),
        mode.gpu,
        mode.precision,
        mode.memory_format,
        mode.framework,
        mode.autotune,
        str(first["capture"]),
        str(first["optimizer"]),
        tuple(int(size) for size in sizes),
        _plain(wall),
        unknown,
        unknown,
        _plain(busy),
        _plain(host),
        {name: _plain(ms) for name, ms in known.classes.items()},
        bound,
        {name: _plain(ms) for name, ms in by_bound.items()},
        small_batch_law(sizes, wall, bound, None if n_samples is None else lambda ms: n_samples * ms / 1e3),
        (
            *switches_of_times(str(first["cnn"]), sizes.tolist(), busy.tolist()),
            *known.switches,
            *switches_of_algorithms(sizes.tolist(), algorithms),
        ),
        (),
        str(first["host"]) or "a host that the table does not name",
        MEASURED_METHOD,
        f"{len(rows)} measurements{known.about}{noise if known.about else ''}",
        tuple((*known.reasons, *noisy.get(int(size), ())) for size in sizes),
    )


def _samples(rows: pd.DataFrame) -> int | None:
    known = rows["samples_per_epoch"].dropna().unique().tolist()
    return int(known[0]) if len(known) == 1 else None


def _other_modes(one: Explanation, all_: Sequence[Explanation]) -> tuple[OtherMode, ...]:
    """The same CNN measured in other precisions and memory formats, where batch sizes are common."""
    return tuple(
        OtherMode(
            other.precision,
            other.memory_format,
            _ratios(one, other, "iteration_time_ms"),
            (math.nan,) * len(one.batch_sizes),
            (math.nan,) * len(one.batch_sizes),
            _ratios(one, other, "gpu_time_ms"),
            MEASURED_METHOD,
            (),
        )
        for other in all_
        if _same_but_mode(one, other) and set(one.batch_sizes) & set(other.batch_sizes)
    )


def _same_but_mode(one: Explanation, other: Explanation) -> bool:
    alike = all(getattr(one, name) == getattr(other, name) for name in _SERIES)
    return alike and any(getattr(one, name) != getattr(other, name) for name in _MODE)


def _ratios(one: Explanation, other: Explanation, name: str) -> Numbers:
    there = dict(zip(other.batch_sizes, getattr(other, name), strict=True))
    return tuple(
        there.get(size, math.nan) / ms for size, ms in zip(one.batch_sizes, getattr(one, name), strict=True)
    )


def _plain(values: Array) -> Numbers:
    return tuple(float(value) for value in values)
