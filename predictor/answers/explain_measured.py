"""Explains measured iterations: times by operator class and by layer, from measurement tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.answers.bounds import (
    Switch,
    bounding_ms,
    bounds_of,
    switches_of_algorithms,
    switches_of_library,
    switches_of_times,
)
from predictor.answers.explain import (
    MEASURED_METHOD,
    OF_A_MODE,
    Explanation,
    Numbers,
    OtherMode,
    plain_numbers,
    small_batch_law,
)
from predictor.answers.notes import REMEDIES, Reason
from predictor.catalogue.devices import device_of
from predictor.catalogue.modes import COMPILED, Mode, products_in_fp32
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import resolve_cnn
from predictor.errors import DataError, EpochcastError, SchemaError
from predictor.measurements.table import disturbed_rows, noise_by_batch_size
from predictor.models.forecast import Kind
from predictor.models.layer_times.law import CLASSES, OperatorTotals, layer_sums
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.times import NEAR, DeviceMode
from predictor.operators.kernels import operator_classes_of
from predictor.table_files import STANDARD, SUFFIXES, open_table

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

_LEAST_KNOWN = 0.9  # of the operators' time: below it, classes are left out
_NEGLIGIBLE = 0.005


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredClasses:
    """Time of each operator class, its reasons for caution and its source; empty without operators."""

    classes: dict[str, Array]
    about: str
    reasons: tuple[Reason, ...]
    switches: tuple[Switch, ...]


def zoo_layers(cnn: str, image_size: int) -> LayerTable | None:
    """Layer table of a zoo CNN; None for other CNNs and for image sizes that the zoo refuses."""
    try:
        return None if Path(cnn).suffix else resolve_cnn(cnn, image_size)
    except EpochcastError:
        return None


def measured_classes(
    table: LayerTable | None,
    library: OperatorLibrary | None,
    sizes: Array,
    busy: Array,
    fp32_products: bool = False,
) -> MeasuredClasses:
    """Time of each class, scaled to the measured GPU time, and the switches of the CNN's operators.

    `busy` is the GPU's time in ms, NaN where not measured. Without a layer table, or operators of this device and mode,
    there are none.
    """
    if table is None or library is None:
        return MeasuredClasses({}, "", (), ())
    sums = layer_sums(library, table, np.asarray(sizes, dtype=float), fp32_products)
    switches = switches_of_library(library, table, _alone_ms(library, table, fp32_products))
    strange, near = _worst(sums, strange=True), _worst(sums, strange=False)
    if strange > 1.0 - _LEAST_KNOWN:
        left_out = f"left out, since {100 * strange:.0f} % of the time is of operators unlike any measured"
        return MeasuredClasses({}, "", (_reason("classes", left_out),), switches)
    alone = sums.class_ms.sum(axis=0)
    scale = np.where(np.isfinite(busy), busy / alone, 1.0)
    classes = {name: ms * scale for name, ms in zip(CLASSES, sums.class_ms, strict=True) if ms.any()}
    ratio = np.median((alone / busy)[np.isfinite(busy)]) if np.isfinite(busy).any() else math.nan
    guessed = near + strange
    return MeasuredClasses(
        operator_classes_of(classes),
        f"; classes from {len(library)} operators, whose own times add up to {ratio:.2f} x the GPU time",
        (_reason("classes", f"{100 * guessed:.0f} % of the time is of operators near to those measured"),)
        if guessed > _NEGLIGIBLE
        else (),
        switches,
    )


def _reason(kind: Kind, text: str) -> Reason:
    return Reason(kind, text, REMEDIES[kind])


def _alone_ms(library: OperatorLibrary, table: LayerTable, fp32_products: bool) -> dict[float, float]:
    """Sum of the operators' times, measured one by one, by the library's batch sizes."""
    alone = layer_sums(library, table, library.batch_sizes, fp32_products).class_ms.sum(axis=0)
    return dict(zip(library.batch_sizes.tolist(), alone.tolist(), strict=True))


def _worst(sums: OperatorTotals, *, strange: bool) -> float:
    """Largest share over batch sizes of the time in interpolated (or, if `strange`, extrapolated) operators."""
    shares = [share for kind, share in sums.shares.items() if (kind == NEAR) != strange]
    return float(max(np.sum(shares, axis=0))) if shares else 0.0


def measured_bounds(
    table: LayerTable | None,
    mode: DeviceMode,
    sizes: Array,
    busy: Array,
    classes: dict[str, Array],
    fp32_products: bool,
) -> dict[str, Array]:
    """GPU time by what bounds it: from the classes' times, else from scaled roofline times."""
    if table is None:
        return {}
    gpu = device_of(mode.gpu)
    try:
        found = bounding_ms(table, gpu, mode.precision, sizes, classes or None, fp32_products)
    except EpochcastError:  # a precision without rates, such as fp32_or_tf32
        return {}
    total = sum(found.values(), np.zeros(len(sizes)))
    return {name: ms * busy / total for name, ms in found.items()}


_SERIES = ("gpu", "framework", "cnn", "image_size", "autotune", "capture", "optimizer", "host")
_MODE = ("precision", "memory_format", "float32_matmul_precision")
_TIMES = ("iteration_time_ms", "gpu_time_ms", "host_time_ms")


def is_measurement_table(what: object) -> bool:
    """Whether this is the path of a measurement table: a table with times, any gzipped CSV, or ``-``.

    DataError if it is the path of a CSV or Parquet file that does not exist or is none.
    """
    if not isinstance(what, str | PathLike):
        return False
    path = Path(fspath(what))
    if str(path) == STANDARD or path.name.casefold().endswith(".csv.gz"):
        return True
    if path.suffix.casefold() not in SUFFIXES:
        return False
    if not path.is_file():
        raise DataError(f"there is no file {path}. Give a measurement table, a layer table or a CNN's name.")
    with open_table(path) as table:
        return "iteration_time_ms" in table.header


def explain_measurements(
    tables: object, cnns: Sequence[str] = (), samples: int | None = None, **only: Any
) -> list[Explanation]:
    """Explain the measured iterations of each CNN, device and mode of measurement tables.

    `tables`: measurement tables, taken together: operators may be in another file than CNNs. `cnns`: only these CNNs;
    all by default. `samples`: of an epoch, for the law's constant; by default the table's samples_per_epoch. `**only`:
    columns with the values wanted, such as ``precision="tf32"`` or ``batch_size=[16, 64]``; None means all. In the
    order of CNN, image size, device and mode; `method` is ``measured``. Where a batch size was measured repeatedly, the
    median counts. `classes` are the times of the table's operators, scaled to sum to the GPU time. DataError,
    SchemaError or UnknownGpuError if a table cannot be read, or holds no whole CNN as trained that fits.
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

    from predictor.measurements.table import check_measurements, read_measurements

    many: list[Any] = list(tables) if isinstance(tables, list | tuple) else [tables]
    frames = [
        read_measurements(each) if isinstance(each, str | PathLike) else check_measurements(each, "the table")
        for each in many
    ]
    return frames[0] if len(frames) == 1 else pd.concat(frames, ignore_index=True)


def _libraries(frame: pd.DataFrame) -> dict[DeviceMode, OperatorLibrary]:
    if not (frame["kind"] == "operator").any():
        return {}
    from predictor.models.layer_times.estimator import libraries_of

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
            for name in ("framework", *_MODE, "autotune", "capture", "optimizer")
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
        missing = [value for value in values if value not in there]
        if missing:
            known = ", ".join(str(each) for each in sorted(there, key=str)[:40])
            raise SchemaError(
                f"the table has no {name} {missing[0]!r}"
                + (f" with the rest that was asked for. It has: {known}.")
            )
        rows = rows[rows[name].isin(values)]
    return rows


def _series(
    rows: pd.DataFrame, libraries: dict[DeviceMode, OperatorLibrary], samples: int | None, noise: str = ""
) -> Explanation:
    """The explanation of one CNN on one device in one mode, other modes left out."""
    first, by_size = rows.iloc[0], rows.groupby("batch_size")
    times = by_size[list(_TIMES)].median()
    sizes = np.array(times.index, dtype=int)
    wall, busy, host = (times[name].to_numpy(dtype=float) for name in _TIMES)
    gpu, framework, precision, memory_format, setting = (
        str(first[name]) for name in ("gpu", "framework", *_MODE)
    )
    mode = DeviceMode(gpu, framework, precision, memory_format, bool(first["autotune"]))
    fp32_products = products_in_fp32(framework, precision, setting)
    table = zoo_layers(str(first["cnn"]), int(first["image_size"]))
    library = None if first["capture"] in COMPILED else libraries.get(mode)  # of operators that are not fused
    known = measured_classes(table, library, sizes, busy, fp32_products)
    by_bound = measured_bounds(table, mode, sizes, busy, known.classes, fp32_products)
    bound = bounds_of(busy, host, by_bound, wall)
    algorithms = by_size["conv_algorithms"].last().tolist()
    noisy = noise_by_batch_size(rows)
    n_samples = samples if samples is not None else _samples(rows)
    about: dict[str, Any] = {name: str(first[name]) for name in ("cnn", "capture", "optimizer")}
    about |= {name: getattr(mode, name) for name in ("gpu", *OF_A_MODE[:4])}
    about |= dict.fromkeys(("low_ms", "high_ms", "gpu_low_ms", "gpu_high_ms"), (math.nan,) * sizes.size)
    return Explanation(
        **about,
        image_size=int(first["image_size"]),
        float32_matmul_precision=setting if (framework, precision) == ("pytorch", "tf32") else None,
        batch_sizes=tuple(sizes.tolist()),
        iteration_time_ms=plain_numbers(wall),
        gpu_time_ms=plain_numbers(busy),
        host_time_ms=plain_numbers(host),
        classes={name: plain_numbers(ms) for name, ms in known.classes.items()},
        bound=bound,
        bound_ms={name: plain_numbers(ms) for name, ms in by_bound.items()},
        rung_ms={},
        pass_ms={},
        parts=(),
        small_batch_law=small_batch_law(
            sizes, wall, bound, None if n_samples is None else lambda ms: n_samples * ms / 1e3
        ),
        switches=(
            *switches_of_times(str(first["cnn"]), sizes.tolist(), busy.tolist()),
            *known.switches,
            *switches_of_algorithms(sizes.tolist(), algorithms),
        ),
        other_modes=(),
        host=str(first["host"]) or "a host that the table does not name",
        method=MEASURED_METHOD,
        trained_on=f"{len(rows)} measurements{known.about}{noise if known.about else ''}",
        extrapolates=tuple(
            (*known.reasons, *(_reason("noise", text) for text in noisy.get(int(size), ()))) for size in sizes
        ),
    )


def _samples(rows: pd.DataFrame) -> int | None:
    known = rows["samples_per_epoch"].dropna().unique().tolist()
    return int(known[0]) if len(known) == 1 else None


def _other_modes(one: Explanation, all_: Sequence[Explanation]) -> tuple[OtherMode, ...]:
    """The same CNN measured in other precisions and memory formats, where batch sizes are common."""
    return tuple(
        OtherMode(
            other.precision,
            other.float32_matmul_precision,
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
