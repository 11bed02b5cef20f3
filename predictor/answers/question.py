"""The question: CNNs, GPUs, batch sizes, training mode, and measurements to predict from.

`Question` declares every option once, with its help text and its kind; command line, REST schema, Python and bulk
tables derive theirs from `options_of`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import cache
from os import PathLike
from typing import TYPE_CHECKING, Any

from predictor.catalogue.devices import (
    Gpu,
    all_gpus,
    check_precision,
    default_precision,
    device_of,
    find_gpu,
    precisions_of,
)
from predictor.catalogue.modes import (
    CAPTURES,
    FRAMEWORKS,
    MEMORY_FORMATS,
    OPTIMIZERS,
    PRECISIONS,
    Mode,
)
from predictor.catalogue.offers import Offer, load_offers
from predictor.checks import (
    MAX_BATCH_SIZE,
    MAX_IMAGE_SIZE,
    MAX_SAMPLES,
    as_list,
    batch_sizes_of,
    positive_number,
    whole_number,
    yes_or_no,
)
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import resolve_cnn
from predictor.errors import DataError, SchemaError, nearest
from predictor.models.forecast import Anchor, Reason
from predictor.models.registry import METHODS

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.served import Model

__all__ = [
    "ANCHOR_FIELDS",
    "RANKINGS",
    "Option",
    "OwnMeasurements",
    "Plan",
    "Question",
    "gpus_of",
    "load_model",
    "option",
    "options_of",
]


RANKINGS = ("cost", "time")
"""Ranking criteria of a comparison: `total_cost_usd` or `total_time_h`."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a question, as every face declares it.

    `kind` is ``whole``, ``number``, ``choice``, ``word``, ``flag``, ``file`` or ``anchors``; `low` and `high` bound
    numbers, `choices` lists words. `flag` is the name on the command line if it differs from `name`; `usual` describes
    a default of None. `remote` is False if a service uses its own value.
    """

    name: str
    help: str
    kind: str
    default: Any
    panel: str
    low: float = 0
    high: float = math.inf
    choices: tuple[str, ...] = ()
    flag: str = ""
    usual: str = ""
    remote: bool = True

    def checked(self, value: Any) -> Any:
        """Check `value`, or its text from a table's cell, and convert it to this option's type.

        Raises
        ------
        SchemaError, OutOfRangeError
            If it is of another kind or outside the range; the message names the option.
        """
        if value is None or (isinstance(value, str) and not value.strip()):
            return self.default
        if self.kind == "number" and str(value) in (str(self.default), "0") and self.default is not None:
            return self.default
        return _CHECKS[self.kind](self, value)


def _whole(known: Option, value: Any) -> int:
    return whole_number(known.name, value, low=int(known.low), high=int(known.high))


def _number(known: Option, value: Any) -> float:
    return positive_number(known.name, value)


def _choice(known: Option, value: Any) -> str:
    word = str(value).strip()
    if word not in known.choices:
        raise SchemaError(
            f"{known.name} {value!r} is not known. Nearest: {nearest(word, known.choices)}; "
            f"known: {', '.join(known.choices)}."
        )
    return word


def _word(_known: Option, value: Any) -> str:
    return str(value).strip()


def _flag(known: Option, value: Any) -> bool:
    return value if isinstance(value, bool) else yes_or_no(known.name, str(value))


def _as_given(_known: Option, value: Any) -> Any:
    return value


def _anchors(_known: Option, value: Any) -> tuple[Any, ...]:
    return tuple(value)


_CHECKS: dict[str, Callable[[Option, Any], Any]] = {
    "whole": _whole,
    "number": _number,
    "choice": _choice,
    "word": _word,
    "flag": _flag,
    "file": _as_given,
    "anchors": _anchors,
}


def option(default: Any, help_: str, kind: str = "word", panel: str = "", **more: Any) -> Any:
    """Declare an option of a question as a dataclass field with a default."""
    return field(default=default, metadata={"help": help_, "kind": kind, "panel": panel, **more})


def options_of(kind: type[Any]) -> Mapping[str, Option]:
    """The options that a dataclass declares with `option`, by name, in order."""
    declared: Any = kind
    return _declared(declared)


@cache
def _declared(kind: Any) -> dict[str, Option]:
    return {each.name: _option_of(each) for each in fields(kind) if each.metadata}


def _option_of(each: Field[Any]) -> Option:
    known = dict(each.metadata)
    default = None if each.default is MISSING else each.default
    return Option(each.name, known.pop("help"), known.pop("kind"), default, known.pop("panel"), **known)


_TRAINING = "How it is trained"
_PRICES = "Prices"
_MODEL = "Model"
_PLAN = "The training"
_ANCHOR = "A measurement of this CNN, to predict from"

ANCHOR_FIELDS = {
    each.name: each
    for each in (
        Option("gpu", "GPU on which it was measured.", "word", None, _ANCHOR),
        Option("batch_size", "Batch size of the measurement.", "whole", None, _ANCHOR, 1, MAX_BATCH_SIZE),
        Option("iteration_time_ms", "Milliseconds of one iteration.", "number", None, _ANCHOR),
        Option("epoch_time_s", "Or seconds of an epoch, with its samples.", "number", None, _ANCHOR),
        Option("samples", "Training samples of that epoch.", "whole", None, _ANCHOR, 1, MAX_SAMPLES),
        Option(
            "throughput_samples_per_s",
            "Or samples per second.",
            "number",
            None,
            _ANCHOR,
            flag="--anchor-throughput",
        ),
        Option(
            "image_size",
            "Its image size, if it differs from the table's.",
            "whole",
            None,
            _ANCHOR,
            1,
            MAX_IMAGE_SIZE,
        ),
    )
}
"""Options of an anchor: its GPU, its batch size and exactly one time."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question, checked when it is made.

    Parameters
    ----------
    cnn : str, path, LayerTable, PyTorch module, Chainer chain, or a list of them
        What is trained: a zoo name, a layer-table CSV, an ONNX file, or the object itself.
    gpus : str, Gpu, or a list of them
        Names as drivers and people write them; ``"all"`` for every GPU that has the precision.
    batch_sizes : int, str, or a list of them
    image_size, data_set, ... :
        See each option's help; without `samples` or `data_set` there are no epoch times.

    Raises
    ------
    SchemaError, OutOfRangeError
        If an option is of the wrong kind, unknown, or outside its range.
    """

    cnn: object
    gpus: object
    batch_sizes: Any
    image_size: int | None = option(
        None, "Side of the square images in pixels.", "whole", low=1, high=MAX_IMAGE_SIZE,
        usual="the data set's or the CNN's",
    )  # fmt: skip
    data_set: str | None = option(None, "A known data set, such as cifar100 or imagenet.", flag="--dataset")
    samples: int | None = option(
        None, "Training samples per epoch, instead of a data set.", "whole", low=1, high=MAX_SAMPLES
    )
    validation_samples: int = option(
        0, "Add a forward pass over N samples to each epoch.", "whole", low=0, high=MAX_SAMPLES
    )
    precision: str | None = option(
        None, f"{', '.join(PRECISIONS)}.", "choice", _TRAINING, choices=PRECISIONS,
        usual="what the framework does: tf32 where the GPU has it, else fp32",
    )  # fmt: skip
    memory_format: str = option(
        "nchw", f"{', '.join(MEMORY_FORMATS)}.", "choice", _TRAINING, choices=MEMORY_FORMATS
    )
    framework: str = option("pytorch", f"{', '.join(FRAMEWORKS)}.", "choice", _TRAINING, choices=FRAMEWORKS)
    autotune: bool = option(False, "cuDNN times its algorithms and takes the fastest.", "flag", _TRAINING)
    capture: str = option("eager", f"{', '.join(CAPTURES)}.", "choice", _TRAINING, choices=CAPTURES)
    optimizer: str = option("momentum", f"{', '.join(OPTIMIZERS)}.", "choice", _TRAINING, choices=OPTIMIZERS)
    host: str | None = option(
        None,
        "The machine around the GPU, which enqueues its kernels.",
        panel=_TRAINING,
        usual="the reference host",
    )
    offers: str | PathLike[str] | Sequence[Offer] | None = option(
        None, "Your own price file, with the columns of offers.csv.", "file", _PRICES,
        usual="the shipped prices", remote=False,
    )  # fmt: skip
    spot: bool = option(False, "Use spot prices.", "flag", _PRICES)
    anchors: Iterable[Anchor | Mapping[str, Any]] = option(
        (), "Measurements of this CNN to predict from.", "anchors", _ANCHOR
    )
    measurements: pd.DataFrame | OwnMeasurements | str | PathLike[str] | None = option(
        None, "A measurement table of your own (epochcast profile): its operators are summed, its CNNs are anchors.",
        "file", _MODEL,
    )  # fmt: skip
    method: str = option("auto", f"{', '.join(METHODS)}.", "choice", _MODEL, choices=METHODS)
    model: Model | str | PathLike[str] | None = option(
        None, "A model that `epochcast fit` wrote.", "file", _MODEL, usual="the shipped one", remote=False
    )

    def __post_init__(self) -> None:
        for name, known in options_of(Question).items():
            object.__setattr__(self, name, known.checked(getattr(self, name)))
        object.__setattr__(self, "batch_sizes", batch_sizes_of(self.batch_sizes))
        if self.samples is not None and self.data_set is not None:
            raise SchemaError(
                f"both samples {self.samples!r} and data set {self.data_set!r} are given. Pass one of them."
            )
        if self.validation_samples and self.samples is None and self.data_set is None:
            raise SchemaError(
                f"validation_samples {self.validation_samples} needs an epoch to follow. "
                "Pass samples or a data set, too."
            )

    @classmethod
    def of(cls, cnn: object, gpus: object, batch_sizes: Any, options: Mapping[str, Any]) -> Question:
        """Make a question from options by name; SchemaError with the nearest names for an unknown one."""
        _check_names(options, options_of(Question))
        return cls(cnn, gpus, batch_sizes, **options)

    def mode_on(self, gpu: Gpu) -> Mode:
        """Training mode on a GPU; without a given precision, the framework's default on that GPU."""
        precision = self.precision or default_precision(gpu, self.framework)
        return Mode(
            self.framework, precision, self.memory_format, self.autotune, self.capture, self.optimizer
        )

    def devices(self) -> list[tuple[Gpu, Mode]]:
        """Each GPU with its mode; errors as of `gpus_of`."""
        return [(gpu, self.mode_on(gpu)) for gpu in gpus_of(self.gpus, self.precision)]

    def epoch_samples(self) -> int | None:
        """Training samples per epoch: as given, or those of the data set; None if neither is given."""
        return _data_set(self.data_set).samples if self.data_set is not None else self.samples

    def layer_tables(self) -> list[LayerTable]:
        """Layer table of each CNN at the image size given, else the data set's, else its own."""
        return [resolve_cnn(each, self.image_size_of(each)) for each in as_list(self.cnn)]

    def knowledge(self) -> Knowledge:
        """The model, with the measurements and anchors of this question."""
        model = load_model(self.model)
        anchors = tuple(
            each if isinstance(each, Anchor) else _anchor_from(dict(each), model, self)
            for each in self.anchors
        )
        own = _fitted(self.measurements, model)
        return Knowledge(own.model if own else model, anchors, own)

    def prices(self) -> tuple[Offer, ...]:
        """The offers themselves, those of a price file, or the shipped ones."""
        if self.offers is None or isinstance(self.offers, str | PathLike):
            return load_offers(self.offers)
        return tuple(self.offers)

    def image_size_of(self, cnn: object) -> int | None:
        """Image size at which `cnn` is trained: as given, else the data set's; None leaves it to the CNN.

        A layer table and a file have a size of their own; a CNN of the zoo takes the data set's images as they are,
        but its own usual size where the data set's images vary (ImageNet); a module is given the data set's size.
        """
        if self.image_size is not None or self.data_set is None:
            return self.image_size
        found = _data_set(self.data_set)
        if isinstance(cnn, LayerTable) or str(cnn).casefold().endswith((".csv", ".onnx")):
            return None
        return None if found.resized and isinstance(cnn, str) else found.image_size


@dataclass(frozen=True, slots=True)
class Plan:
    """The training that GPUs are compared for, checked when it is made.

    Rows that miss the budget or the deadline are marked, not dropped; set-up minutes are billed.
    """

    epochs: int = option(1, "Epochs to train.", "whole", _PLAN, low=1, high=1_000_000)
    budget_usd: float | None = option(
        None, "US$ that the training may cost.", "number", _PLAN, flag="--budget"
    )
    deadline_h: float | None = option(None, "Hours that it may take.", "number", _PLAN, flag="--deadline")
    setup_minutes: float = option(0.0, "Minutes that are paid before training starts.", "number", _PLAN)
    relative_to: str | None = option(None, "GPU to compare the others with.", panel=_PLAN)
    rank_by: str = option("cost", f"{', '.join(RANKINGS)}.", "choice", _PLAN, choices=RANKINGS)
    all_offers: bool = option(False, "Rank every offer, not only the cheapest of each GPU.", "flag", _PLAN)

    def __post_init__(self) -> None:
        for name, known in options_of(Plan).items():
            object.__setattr__(self, name, known.checked(getattr(self, name)))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> tuple[Plan, dict[str, Any]]:
        """Split options by name into a plan and the remaining options."""
        _check_names(options, {**options_of(Question), **options_of(Plan)})
        own = {name: value for name, value in options.items() if name in options_of(Plan)}
        return cls(**own), {name: value for name, value in options.items() if name not in own}

    @property
    def setup_h(self) -> float:
        """Hours of set-up."""
        return self.setup_minutes / 60.0


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """The model, the anchors and the user's own measurements for a question."""

    model: Model
    given: tuple[Anchor, ...]
    own: OwnMeasurements | None

    def unused_on(self, gpu: Gpu, mode: Mode) -> tuple[Reason, ...]:
        """That one's own measurements of a GPU are of other modes, where they are."""
        reason = self.own.unused_on(gpu, mode) if self.own else None
        return (reason,) if reason else ()

    def anchors(self, table: LayerTable, question: Question) -> tuple[Anchor, ...]:
        """The given anchors, and those from the user's own measurements of this CNN."""
        return self.given + (self.own.anchors(table, question) if self.own else ())


def load_model(model: Model | str | PathLike[str] | None) -> Model:
    """Return the model itself, the one in a JSON file, or the default that comes with epochcast."""
    if model is None or isinstance(model, str | PathLike):
        from predictor.models.served import Model

        return Model.load(model)
    return model


def gpus_of(gpus: object, precision: str | None = None) -> list[Gpu]:
    """Find GPUs by name, each able to train in `precision`.

    Parameters
    ----------
    gpus : str, Gpu, or a sequence of them
        Names as of `find_gpu`, or ``cpu:<model>`` for a CPU whose operators were measured; ``"all"`` for every GPU
        that has the precision.
    precision : str, optional

    Raises
    ------
    UnknownGpuError
        If a name is unknown or fits several GPUs.
    OutOfRangeError
        If a GPU that was asked for lacks the precision; the message lists those it has.
    """
    chosen: dict[str, Gpu] = {}
    for gpu in as_list(gpus):
        if isinstance(gpu, str) and gpu.strip().casefold() == "all":
            chosen |= {each.name: each for each in all_gpus() if precision in (None, *precisions_of(each))}
            continue
        found = gpu if isinstance(gpu, Gpu) else device_of(str(gpu))
        if precision is not None:
            check_precision(found, precision)
        chosen[found.name] = found
    if not chosen:
        raise SchemaError("no GPU is given. Pass names, or 'all'; `epochcast gpu list` shows them.")
    return list(chosen.values())


def _check_names(given: Iterable[str], known: Mapping[str, Option]) -> None:
    for name in given:
        if name not in known:
            raise SchemaError(
                f"no option is called {name!r}. Nearest: {nearest(name, known)}; known: {', '.join(known)}."
            )


def _data_set(name: str) -> Any:
    from predictor.catalogue.data_sets import find_training_set

    return find_training_set(name)


def _fitted(
    measurements: pd.DataFrame | OwnMeasurements | str | PathLike[str] | None, model: Model
) -> OwnMeasurements | None:
    if measurements is None or isinstance(measurements, OwnMeasurements):
        return measurements
    return OwnMeasurements.of(measurements, model)


def _anchor_from(given: dict[str, Any], model: Model, question: Question) -> Anchor:
    """An anchor from a mapping; SchemaError if it has other keys or not exactly one time."""
    given = {key: value for key, value in given.items() if value not in (None, "")}
    missing = [key for key in ("gpu", "batch_size") if key not in given]
    unknown = sorted(set(given) - set(ANCHOR_FIELDS))
    if missing or unknown:
        wrong = [f"lacks {', '.join(missing)}"] * bool(missing)
        wrong += [f"has the unknown {', '.join(unknown)}"] * bool(unknown)
        raise SchemaError(f"the anchor {' and '.join(wrong)}. Give its gpu, its batch_size and one time.")
    gpu = find_gpu(str(given["gpu"]))
    mode = question.mode_on(gpu)
    check_precision(gpu, mode.precision)
    batch_size = whole_number("anchor batch_size", given["batch_size"], high=MAX_BATCH_SIZE)
    size = given.get("image_size")
    return Anchor(
        gpu=gpu.name,
        batch_size=batch_size,
        iteration_time_ms=_anchor_time_ms(given, batch_size, model, mode),
        image_size=None if size is None else whole_number("anchor image_size", size),
        precision=mode.precision,
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
    """A user's own measurement table: a model with its operators, and its whole CNNs as records."""

    model: Model
    targets: tuple[Mapping[Any, Any], ...]

    @classmethod
    def of(cls, table: pd.DataFrame | str | PathLike[str], model: Model) -> OwnMeasurements:
        """Read a measurement table, and add layer models fitted on its operators to `model`.

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
                "the measurements hold neither operators nor trained CNNs, so no prediction can use them. "
                "Measure some with `epochcast profile --preset quick`."
            )
        return cls(replace(model, layers=model.layers.with_more(models)), tuple(targets))

    def unused_on(self, gpu: Gpu, mode: Mode) -> Reason | None:
        """Why an answer uses none of the measurements of this GPU; None where it uses one, or there are none."""
        from predictor.models.layer_times.files import library_mode

        libraries = [each for each in self.model.layers.given if each.gpu == gpu.name]
        rows = [row for row in self.targets if str(row["gpu"]) == gpu.name]
        used = library_mode(gpu, mode) in libraries or any(_in_mode(row, mode) for row in rows)
        if used or not (libraries or rows):
            return None
        measured = {f"{each.precision}, {each.memory_format}" for each in libraries}
        measured |= {f"{row['precision']}, {_known(row.get('memory_format'), 'nchw')}" for row in rows}
        return Reason(
            "measurements",
            f"yours on {gpu.name} are not used: they are of {' and '.join(sorted(measured))}, the answer is of "
            f"{mode.precision}, {mode.memory_format}; ask for the mode that you measured",
        )

    def anchors(self, table: LayerTable, question: Question) -> tuple[Anchor, ...]:
        """The table's measurements of this CNN at its image size, each in the question's mode on its GPU."""
        rows = (
            row for row in self.targets if (row["cnn"], row["image_size"]) == (table.cnn, table.image_size)
        )
        found = (_own_anchor(row, question) for row in rows)
        return tuple(anchor for anchor in found if anchor is not None)


def _own_anchor(row: Mapping[Any, Any], question: Question) -> Anchor | None:
    name = str(row["gpu"])
    mode = question.mode_on(device_of(name))
    time_ms = _measured_ms(row, mode) if _in_mode(row, mode) else None
    if time_ms is None:
        return None
    return Anchor(name, int(row["batch_size"]), time_ms, int(row["image_size"]), mode.precision)


def _in_mode(row: Mapping[Any, Any], mode: Mode) -> bool:
    """Whether a row was measured in this mode; a missing value counts as the default."""
    usual = Mode()
    words = ("framework", "precision", "memory_format", "autotune", "optimizer", "xla")
    return all(str(_known(row.get(word), getattr(usual, word))) == str(getattr(mode, word)) for word in words)


def _measured_ms(row: Mapping[Any, Any], mode: Mode) -> float | None:
    """Iteration time in this mode; of a captured graph, the GPU time."""
    if _known(row.get("capture"), "eager") == mode.capture:
        return float(row["iteration_time_ms"])
    busy = _known(row.get("gpu_time_ms"), None)
    return float(busy) if busy is not None and mode.capture != "eager" else None


def _known(value: Any, default: Any) -> Any:
    missing = value is None or str(value) in ("", "<NA>", "nan")
    return default if missing else value
