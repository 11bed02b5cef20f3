"""What is asked: which CNN, on which GPUs, at which batch sizes, trained how, and what is known of it already."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.catalogue.devices import (
    Gpu,
    all_gpus,
    check_precision,
    cpu_device,
    find_gpu,
    is_cpu,
    precisions_of,
)
from predictor.catalogue.modes import Mode
from predictor.checks import MAX_BATCH_SIZE, positive_number, texts_of, whole_number
from predictor.cnns.layer_table import LayerTable
from predictor.errors import DataError, SchemaError
from predictor.models.forecast import Anchor

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.served import Anchor, Model

__all__ = ["OwnMeasurements", "anchors_of", "data_image_size", "gpus_of", "load_model", "samples_of"]

_ANCHOR_KEYS = ("gpu", "batch_size", "iteration_time_ms", "epoch_time_s", "samples")
_ANCHOR_OPTIONS = frozenset({*_ANCHOR_KEYS, "throughput_samples_per_s", "image_size"})


def load_model(model: Model | str | PathLike[str] | None) -> Model:
    """Return the model itself, the one in a JSON file, or the default that comes with epochcast."""
    if model is None or isinstance(model, str | PathLike):
        from predictor.models.served import Model

        return Model.load(model)
    return model


def gpus_of(gpus: object, precision: str) -> list[Gpu]:
    """Find the GPUs that are meant, each able to train in `precision`.

    Parameters
    ----------
    gpus : str, Gpu, or a sequence of them
        Any name that `find_gpu` knows, or ``cpu:<model>``, of which operators were measured; ``"all"`` stands for
        every GPU that has the precision.
    precision : str

    Raises
    ------
    UnknownGpuError
        If a name is unknown or fits several GPUs.
    OutOfRangeError
        If a GPU that was asked for lacks the precision; the message lists those it has.
    """
    chosen: dict[str, Gpu] = {}
    for gpu in texts_of(gpus):
        if isinstance(gpu, str) and gpu.strip().casefold() == "all":
            chosen |= {each.name: each for each in all_gpus() if precision in precisions_of(each)}
            continue
        name = str(gpu)
        found = gpu if isinstance(gpu, Gpu) else cpu_device(name) if is_cpu(name) else find_gpu(name)
        check_precision(found, precision)
        chosen[found.name] = found
    if not chosen:
        raise SchemaError("no GPU is given. Pass names, or 'all'; `epochcast gpu list` shows them.")
    return list(chosen.values())


def samples_of(samples: object, data_set: str | None) -> int | None:
    """Training samples per epoch: as given, or those of a known data set; None if neither is given."""
    if samples is not None and data_set is not None:
        raise SchemaError(f"both samples {samples!r} and data set {data_set!r} are given. Pass one of them.")
    if data_set is not None:
        from predictor.catalogue.data_sets import find_training_set

        return int(find_training_set(data_set).samples)
    return None if samples is None else whole_number("samples", samples)


def data_image_size(data_set: str | None, cnn: object) -> int | None:
    """Image size at which `cnn` meets a known data set; None leaves it to the CNN.

    A layer table and a file have a size of their own; a CNN of the zoo takes the data set's images as they
    are, but its own usual size where the data set's images vary (ImageNet); a module is told the data set's
    size.
    """
    if data_set is None:
        return None
    from predictor.catalogue.data_sets import find_training_set

    found = find_training_set(data_set)
    if isinstance(cnn, LayerTable) or str(cnn).casefold().endswith((".csv", ".onnx")):
        return None
    return None if found.resized and isinstance(cnn, str) else found.image_size


def anchors_of(anchors: Iterable[Anchor | Mapping[str, Any]], model: Model, mode: Mode) -> tuple[Anchor, ...]:
    """Measurements of the target itself, as the model wants them.

    An anchor is an `Anchor`, or a mapping with ``gpu, batch_size``, optionally ``image_size``, and one of
    ``iteration_time_ms``; ``epoch_time_s`` with ``samples``; ``throughput_samples_per_s``.

    Raises
    ------
    SchemaError
        If a mapping has other keys or not exactly one time.
    """
    from predictor.models.served import Anchor

    return tuple(
        anchor if isinstance(anchor, Anchor) else _anchor_from(dict(anchor), model, mode)
        for anchor in anchors
    )


def _anchor_from(given: dict[str, Any], model: Model, mode: Mode) -> Anchor:
    from predictor.models.served import Anchor

    given = {key: value for key, value in given.items() if value not in (None, "")}
    missing = [key for key in ("gpu", "batch_size") if key not in given]
    unknown = sorted(set(given) - _ANCHOR_OPTIONS)
    if missing or unknown:
        raise SchemaError(
            f"the anchor lacks {', '.join(missing) or 'nothing'} and has the unknown "
            f"{', '.join(unknown) or 'nothing'}. Give its gpu, its batch_size and one time."
        )
    gpu = find_gpu(str(given["gpu"]))
    check_precision(gpu, mode.precision)
    batch_size = whole_number("anchor batch_size", given["batch_size"], high=MAX_BATCH_SIZE)
    size = given.get("image_size")
    return Anchor(
        gpu=gpu.name,
        batch_size=batch_size,
        iteration_time_ms=_anchor_time_ms(given, batch_size, model, mode),
        image_size=None if size is None else whole_number("anchor image_size", size),
    )


def _anchor_time_ms(given: dict[str, Any], batch_size: int, model: Model, mode: Mode) -> float:
    times = [key for key in ("iteration_time_ms", "epoch_time_s", "throughput_samples_per_s") if key in given]
    if len(times) != 1:
        raise SchemaError(
            f"the anchor has {len(times)} times ({', '.join(times) or 'none'}). Give exactly one: "
            "iteration_time_ms, epoch_time_s with samples, or throughput_samples_per_s."
        )
    value = positive_number(f"anchor {times[0]}", given[times[0]])
    if times[0] == "iteration_time_ms":
        return value
    if times[0] == "throughput_samples_per_s":
        return 1000.0 * batch_size / value
    if "samples" not in given:
        raise SchemaError("the anchor's epoch_time_s needs samples. Give the training samples of that epoch.")
    iterations = math.ceil(whole_number("anchor samples", given["samples"]) / batch_size)
    return _iteration_time_ms_of_epoch(value, iterations, model, mode)


def _iteration_time_ms_of_epoch(epoch_time_s: float, iterations: int, model: Model, mode: Mode) -> float:
    """Find the iteration time whose predicted epoch is the measured one, by fixed-point steps.

    Notes
    -----
    The overhead per epoch is a few percent, so t <- t * measured / predicted(t) settles in some steps.
    """
    time_ms = 1000.0 * epoch_time_s / iterations
    for _ in range(50):
        predicted = float(model.epoch_time_s(np.array([iterations]), np.array([time_ms]), mode)[0])
        time_ms *= epoch_time_s / predicted
        if abs(predicted / epoch_time_s - 1.0) < 1e-9:
            break
    return time_ms


@dataclass(frozen=True, slots=True, eq=False)
class OwnMeasurements:
    """A model that knows the table's operators, and the table's whole CNNs as records."""

    model: Model
    targets: tuple[Mapping[Any, Any], ...]

    @classmethod
    def of(cls, table: pd.DataFrame | str | PathLike[str], model: Model) -> OwnMeasurements:
        """Read a measurement table, and fit what its operators allow on top of `model`.

        Raises
        ------
        DataError, SchemaError
            If the table cannot be read, or holds neither operators nor CNNs as trained.
        """
        from predictor.measurements.table import check_measurements, read_measurements
        from predictor.models.fit import fit_layer_models

        frame = (
            read_measurements(table)
            if isinstance(table, str | PathLike)
            else check_measurements(table, "the measurements given")
        )
        trained = frame["pass"].fillna("training") == "training"
        targets = frame[(frame["kind"].fillna("target") == "target") & trained].to_dict("records")
        models = fit_layer_models(frame, model.layers)
        if not (models or targets):
            raise DataError(
                "the measurements hold neither operators nor CNNs as trained, so that they tell a prediction nothing. "
                "Measure some with `epochcast profile --preset quick`."
            )
        return cls(replace(model, layers=model.layers.with_more(models)), tuple(targets))

    def anchors(self, table: LayerTable, mode: Mode) -> tuple[Anchor, ...]:
        """The table's measurements of this very CNN, at its image size, in this mode."""
        return tuple(
            Anchor(str(row["gpu"]), int(row["batch_size"]), time_ms, int(row["image_size"]))
            for row in self.targets
            if (row["cnn"], row["image_size"]) == (table.cnn, table.image_size)
            and _same(row, mode)
            and (time_ms := _time_ms(row, mode)) is not None
        )


def _same(row: Mapping[Any, Any], mode: Mode) -> bool:
    """Whether a row was measured in this mode; what it does not say is taken as the default."""
    usual = Mode()
    words = ("framework", "precision", "memory_format", "autotune", "optimizer", "xla")
    return all(str(_known(row.get(word), getattr(usual, word))) == str(getattr(mode, word)) for word in words)


def _time_ms(row: Mapping[Any, Any], mode: Mode) -> float | None:
    """The iteration's time as captured or not; a captured one takes the GPU's time."""
    if _known(row.get("capture"), "eager") == mode.capture:
        return float(row["iteration_time_ms"])
    busy = _known(row.get("gpu_time_ms"), None)
    return float(busy) if busy is not None and mode.capture != "eager" else None


def _known(value: Any, default: Any) -> Any:
    missing = value is None or str(value) in ("", "<NA>", "nan")
    return default if missing else value
