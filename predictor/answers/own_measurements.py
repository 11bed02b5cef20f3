"""What a user gives to predict from: a model, anchors, and a measurement table of his own."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from predictor.answers.question import ANCHOR_FIELDS, MAX_WORKERS
from predictor.catalogue.devices import Gpu, check_precision, device_of, find_gpu
from predictor.catalogue.modes import COMPILED, Mode, products_in_fp32
from predictor.checks import MAX_BATCH_SIZE, of_kind, positive_number, whole_number
from predictor.cnns.layer_table import LayerTable
from predictor.errors import DataError, SchemaError
from predictor.measurements.shortest import check_rows_not_too_short
from predictor.models.forecast import Anchor, Reason

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.served import Model


def load_model(model: Model | str | PathLike[str] | None) -> Model:
    """Return the model itself, the one in a JSON file, or the default that comes with epochcast."""
    if model is None or isinstance(model, str | PathLike):
        from predictor.models.served import Model

        return Model.load(model)
    return model


def anchor_from(given: dict[str, Any], model: Model, mode_on: Callable[[Gpu], Mode]) -> Anchor:
    """An anchor from a mapping; SchemaError if it has other keys or not exactly one time."""
    given = {key: value for key, value in given.items() if value not in (None, "")}
    missing = [key for key in ("gpu", "batch_size") if key not in given]
    unknown = sorted(set(given) - set(ANCHOR_FIELDS))
    if missing or unknown:
        wrong = [f"lacks {', '.join(ANCHOR_FIELDS[key].shown for key in missing)}"] * bool(missing)
        wrong += [f"has the unknown {', '.join(unknown)}"] * bool(unknown)
        raise SchemaError(f"the anchor {' and '.join(wrong)}. Give its gpu, its batch_size and one time.")
    gpu = find_gpu(str(given["gpu"]))
    mode = mode_on(gpu)
    check_precision(gpu, mode.precision)
    batch_size = whole_number(_named("batch_size"), given["batch_size"], high=MAX_BATCH_SIZE)
    size, workers = given.get("image_size"), given.get("workers")
    return Anchor(
        gpu=gpu.name,
        batch_size=batch_size,
        iteration_time_ms=_anchor_time_ms(given, batch_size, model, mode),
        image_size=None if size is None else whole_number(_named("image_size"), size),
        precision=mode.precision,
        workers=None
        if workers is None
        else whole_number(_named("workers"), workers, low=0, high=MAX_WORKERS),
    )


def _named(name: str) -> str:
    """A field of an anchor in messages."""
    shown = ANCHOR_FIELDS[name].shown
    return f"anchor {name}" if shown == name else shown


def _anchor_time_ms(given: dict[str, Any], batch_size: int, model: Model, mode: Mode) -> float:
    shown = {name: known.shown for name, known in ANCHOR_FIELDS.items()}
    times = [key for key in ("iteration_time_ms", "epoch_time_s", "throughput_samples_per_s") if key in given]
    if len(times) != 1:
        raise SchemaError(
            f"the anchor has {len(times)} times ({', '.join(times) or 'none'}). Give exactly one: "
            f"{shown['iteration_time_ms']}, {shown['epoch_time_s']} with {shown['samples']}, or "
            f"{shown['throughput_samples_per_s']}."
        )
    value = positive_number(_named(times[0]), given[times[0]], high=ANCHOR_FIELDS[times[0]].high)
    if "samples" in given and times[0] != "epoch_time_s":
        raise SchemaError(
            f"the anchor's {shown['samples']} belongs to {shown['epoch_time_s']}, and {shown[times[0]]} is given. "
            "Leave it out."
        )
    if times[0] == "iteration_time_ms":
        return value
    if times[0] == "throughput_samples_per_s":
        return 1000.0 * batch_size / value
    if "samples" not in given:
        raise SchemaError(
            f"the anchor's {shown['epoch_time_s']} needs {shown['samples']}, the training samples of that epoch. "
            "Give both."
        )
    iterations = math.ceil(whole_number(_named("samples"), given["samples"]) / batch_size)
    return _iteration_time_ms_of_epoch(value, iterations, model, mode)


def _iteration_time_ms_of_epoch(epoch_time_s: float, iterations: int, model: Model, mode: Mode) -> float:
    """Find the iteration time whose predicted epoch is the measured one, by fixed-point steps.

    The overhead per epoch is a few percent, so t <- t * measured / predicted(t) converges in a few steps.
    """
    time_ms = 1000.0 * epoch_time_s / iterations
    for _ in range(50):
        predicted = float(model.epoch_time_s([iterations], [time_ms], mode)[0])
        time_ms *= epoch_time_s / predicted
        if abs(predicted / epoch_time_s - 1.0) < 1e-9:
            break
    return time_ms


@dataclass(frozen=True, slots=True, eq=False)
class OwnMeasurements:
    """A user's own measurement table: a model with its operators and proxies, and its whole CNNs as records."""

    model: Model
    targets: tuple[Mapping[Any, Any], ...]
    proxies_alone: bool = False

    @classmethod
    def of(cls, table: pd.DataFrame | str | PathLike[str], model: Model) -> OwnMeasurements:
        """Read a measurement table, and add layer models fitted on its operators to `model`.

        DataError or SchemaError if the table cannot be read, or holds neither operators nor CNNs as trained.
        """
        import pandas as pd

        from predictor.measurements.table import check_measurements, read_measurements
        from predictor.models.fit import fit_layer_models

        of_kind("measurements", table, (str, PathLike, pd.DataFrame), "a table, or its path")
        frame = (
            read_measurements(table)
            if isinstance(table, str | PathLike)
            else check_measurements(table, "the measurements given")
        )
        check_rows_not_too_short(frame, "the measurements given")
        trained = (frame["pass"].fillna("training") == "training") & (frame["n_gpus"].fillna(1) == 1)
        targets = frame[(frame["kind"].fillna("target") == "target") & trained].to_dict("records")
        models = fit_layer_models(frame, model.layers)
        proxies = bool((frame["kind"] == "proxy").any())
        if not (models or targets or proxies):
            raise DataError(
                "the measurements hold neither operators nor proxies nor trained CNNs, so no prediction can use them. "
                "Measure some with `epochcast profile --preset quick`."
            )
        methods = model.named_methods().with_measurements(frame) if proxies else model.methods
        layers = model.layers.with_more(models)
        alone = not (models or targets)
        return cls(replace(model, layers=layers, methods=methods), tuple(targets), alone)

    def unused_on(self, gpu: Gpu, mode: Mode, parts: int = 1) -> Reason | None:
        """Why an answer uses none of the measurements of this GPU; None where it uses one, or there are none.

        Measured iterations are of one mini-batch, and say nothing of one in several `parts`.
        """
        from predictor.models.layer_times.files import library_mode

        libraries = [each for each in self.model.layers.added if each.gpu == gpu.name]
        rows = [row for row in self.targets if str(row["gpu"]) == gpu.name]
        used = library_mode(gpu, mode) in libraries or any(
            parts == 1 and _in_mode(row, mode) and _measured_ms(row, mode) is not None for row in rows
        )
        if used or not (libraries or rows):
            return None
        measured = {f"{library.precision}, {library.memory_format}" for library in libraries}
        measured |= {
            f"{row['precision']}, {_known(row.get('memory_format'), 'nchw')}{_compiled(row.get('capture'))}"
            for row in rows
        }
        return Reason(
            "measurements",
            f"yours on {gpu.name} are not used: they are of {' and '.join(sorted(measured))}, the answer is of "
            f"{mode.precision}, {mode.memory_format}{_compiled(mode.capture)}"
            f"{f', in {parts} parts' * (parts > 1)}; ask for the mode that you measured",
        )

    def runs_of(self, table: LayerTable) -> list[tuple[str, int]]:
        """GPU and batch size of each measurement of this CNN at its image size, in any mode."""
        return [
            (str(row["gpu"]), int(row["batch_size"]))
            for row in self.targets
            if (row["cnn"], row["image_size"]) == (table.cnn, table.image_size)
        ]

    def anchors(self, table: LayerTable, mode_on: Callable[[Gpu], Mode]) -> tuple[Anchor, ...]:
        """The table's measurements of this CNN at its image size, each in the mode asked for on its GPU.

        None of a CNN whose mini-batch is accumulated in parts, or of which blocks are recomputed: they are of
        iterations that do neither.
        """
        if table.parts > 1 or table is not table.without_recomputing():
            return ()
        rows = (
            row for row in self.targets if (row["cnn"], row["image_size"]) == (table.cnn, table.image_size)
        )
        found = (_own_anchor(row, mode_on) for row in rows)
        return tuple(anchor for anchor in found if anchor is not None)


def _own_anchor(row: Mapping[Any, Any], mode_on: Callable[[Gpu], Mode]) -> Anchor | None:
    name = str(row["gpu"])
    mode = mode_on(device_of(name))
    time_ms = _measured_ms(row, mode) if _in_mode(row, mode) else None
    if time_ms is None:
        return None
    return Anchor(
        name,
        int(row["batch_size"]),
        time_ms,
        int(row["image_size"]),
        mode.precision,
        of_table=True,
        beside_loader=_known(row.get("loader_workers"), None) != 0,
    )


def _in_mode(row: Mapping[Any, Any], mode: Mode) -> bool:
    """Whether a row was measured in this mode; a missing value counts as the default."""
    usual = Mode()
    words = ("framework", "precision", "memory_format", "autotune", "optimizer", "xla")
    if not all(
        str(_known(row.get(word), getattr(usual, word))) == str(getattr(mode, word)) for word in words
    ):
        return False
    setting = _known(row.get("float32_matmul_precision"), usual.float32_matmul_precision)
    return products_in_fp32(mode.framework, mode.precision, setting) == mode.fp32_products


def _measured_ms(row: Mapping[Any, Any], mode: Mode) -> float | None:
    """Iteration time in this mode; of a captured graph, the GPU time, which compiled iterations do not have."""
    capture = _known(row.get("capture"), "eager")
    if capture == mode.capture:
        return float(row["iteration_time_ms"])
    busy = _known(row.get("gpu_time_ms"), None)
    return float(busy) if busy is not None and mode.replays and capture not in COMPILED else None


def _compiled(capture: Any) -> str:
    return f", {capture}" if capture in COMPILED else ""


def _known(value: Any, default: Any) -> Any:
    missing = value is None or str(value) in ("", "<NA>", "nan")
    return default if missing else value
