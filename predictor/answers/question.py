"""The question: CNNs, GPUs, batch sizes, training mode, and measurements to predict from.

`Question` declares every option once, with its help text and its kind; command line, REST schema, Python and bulk
tables derive theirs from `options_of` (`predictor.answers.options`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from predictor.answers.options import Option, check_known, option, options_of
from predictor.catalogue.data_sets import TrainingSet, find_training_set
from predictor.catalogue.devices import (
    Gpu,
    all_gpus,
    check_precision,
    compiles,
    default_memory_format,
    default_precision,
    device_of,
    precisions_of,
)
from predictor.catalogue.links import find_link
from predictor.catalogue.loading_rates import LOADERS, SOURCES
from predictor.catalogue.modes import (
    CAPTURES,
    FLOAT32_MATMUL_PRECISIONS,
    FRAMEWORKS,
    MEMORY_FORMATS,
    OPTIMIZERS,
    PRECISIONS,
    Mode,
)
from predictor.catalogue.offers import Offer, cheapest_offers, load_offers
from predictor.checks import (
    MAX_BATCH_SIZE,
    MAX_IMAGE_SIZE,
    MAX_SAMPLES,
    as_list,
    batch_sizes_of,
)
from predictor.cnns.layer_table import LayerTable, Step
from predictor.cnns.resolve import has_own_image_size, is_layer_csv, other_form_in_words, resolve_cnn
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.hosts import HostMeasurement, read_host
from predictor.measurements.inputs import InputMeasurement, read_input
from predictor.models.forecast import Anchor
from predictor.models.registry import METHODS, WHOLE_METHODS

if TYPE_CHECKING:
    from predictor.models.served import Model

MAX_WORKERS = 1024

MAX_N_GPUS = 1024
"""Most GPUs of a question: larger teams train otherwise than by one ring."""

RANKINGS = ("cost", "time")
"""Ranking criteria of a comparison: `total_cost_usd` or `total_time_h`."""


# Which answers read an option (`predictor.answers.options.ANSWERS`).
_COSTS = ("predict", "compare", "bulk")
_EPOCHS = (*_COSTS, "cell")
_LOADED = (*_EPOCHS, "watch")
_TEAMS = (*_LOADED, "parallel")
_TIMES = (*_TEAMS, "explain")
_MEMORY = (*_TIMES, "memory")
_KNOWN = (*_COSTS, "watch", "parallel", "explain")
_PLANS = ("compare",)

_TRAINING = "How it is trained"
_LOADING = "Loading of images"
_PRICES = "Prices"
_MODEL = "Model"
_PLAN = "The training"
_ANCHOR = "A measurement of this CNN, to predict from"

ANCHOR_FIELDS = {
    each.name: replace(each, flag=each.flag or f"--anchor-{each.name.replace('_', '-')}")
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
    batch_sizes : int, str, or a list of them, optional
        If None, the answer searches for them (`predictor.answers.sizes`).
    image_size, data_set, ... :
        See each option's help; without `samples` or `data_set` there are no epoch times. With both, an epoch is
        `samples` images of the data set.

    Raises
    ------
    SchemaError, OutOfRangeError
        If an option is of the wrong kind, unknown, or outside its range.
    """

    cnn: object
    gpus: object
    batch_sizes: Any = None
    image_size: int | None = option(
        None, "Side of the square images in pixels.", "whole", low=1, high=MAX_IMAGE_SIZE,
        usual="the data set's or the CNN's",
        answers=_MEMORY,
    )  # fmt: skip
    data_set: str | None = option(
        None,
        "A known data set, such as cifar100 or imagenet.",
        flag="--data-set --dataset",
        answers=_MEMORY,
    )
    samples: int | None = option(
        None,
        "Training samples per epoch; of a data set, if one is given.",
        "whole",
        low=1,
        high=MAX_SAMPLES,
        usual="all of the data set's",
        answers=(*_EPOCHS, "explain"),
    )
    validation_samples: int = option(
        0,
        "Add a forward pass over N samples to each epoch.",
        "whole",
        low=0,
        high=MAX_SAMPLES,
        answers=_EPOCHS,
    )
    precision: str | None = option(
        None, f"{', '.join(PRECISIONS)}.", "choice", _TRAINING, choices=PRECISIONS,
        usual="what the framework does: tf32 where the GPU has it, else fp32",
        answers=_MEMORY,
    )  # fmt: skip
    float32_matmul_precision: str | None = option(
        None,
        "PyTorch's matrix products in tf32: highest computes them in fp32, high in TF32.",
        "choice", _TRAINING, choices=FLOAT32_MATMUL_PRECISIONS,
        usual="highest, as PyTorch does", hint="On a GPU, PyTorch computes medium as high. Pass high.",
        answers=_TIMES,
    )  # fmt: skip
    memory_format: str | None = option(
        None, f"{', '.join(MEMORY_FORMATS)}.", "choice", _TRAINING, choices=MEMORY_FORMATS,
        usual="what the framework does: channels_last in TensorFlow's AMP, else nchw",
        answers=_TIMES,
    )  # fmt: skip
    framework: str = option(
        "pytorch", f"{', '.join(FRAMEWORKS)}.", "choice", _TRAINING, choices=FRAMEWORKS, answers=_TIMES
    )
    autotune: bool = option(
        False, "cuDNN times its algorithms and takes the fastest.", "flag", _TRAINING, answers=_TIMES
    )
    capture: str = option(
        "eager", f"{', '.join(CAPTURES)}.", "choice", _TRAINING, choices=CAPTURES, answers=_TIMES
    )
    optimizer: str = option(
        "momentum",
        f"{', '.join(OPTIMIZERS)}.",
        "choice",
        _TRAINING,
        choices=OPTIMIZERS,
        answers=(*_LOADED, "explain", "memory"),
    )
    n_gpus: int = option(
        1, "GPUs that train together; the batch size is that of all of them.", "whole", _TRAINING,
        low=1, high=MAX_N_GPUS,
        answers=_TEAMS,
    )  # fmt: skip
    nodes: int = option(
        1,
        "Machines that these GPUs are spread over evenly.",
        "whole",
        _TRAINING,
        low=1,
        high=MAX_N_GPUS,
        answers=_TEAMS,
    )
    link: str | None = option(
        None, "What joins the GPUs, or the machines: a name of links.csv, such as nvlink4 or ethernet_25g.",
        panel=_TRAINING, usual="the offer's, else the usual one of the GPU",
        answers=_TEAMS,
    )  # fmt: skip
    sync_batch_norm: bool = option(
        False,
        "Batch norms take the statistics of all GPUs' images.",
        "flag",
        _TRAINING,
        answers=_TEAMS,
    )
    host: str | None = option(
        None,
        "The machine around the GPU, which enqueues its kernels: a name, or the file of `epochcast host`.",
        panel=_TRAINING,
        usual="a usual machine",
        answers=_TIMES,
    )
    workers: int | None = option(
        None, "Processes that load images for each GPU (num_workers of a DataLoader); 0 loads between iterations.",
        "whole", _LOADING, low=0, high=MAX_WORKERS,
        usual="loading is not counted; if another of these options is given, as many as the offer's vCPUs keep busy",
        answers=_LOADED,
    )  # fmt: skip
    machine_workers: int | None = option(
        None, "Processes that load images on each machine, shared by its GPUs: 6 for 4 GPUs.", "whole", _LOADING,
        low=1, high=MAX_WORKERS, usual="by the workers of each GPU",
        answers=_LOADED,
    )  # fmt: skip
    loader: str | None = option(
        None, f"What decodes images: {', '.join(LOADERS)}; none leaves loading out, as with images on the GPU.",
        "choice", _LOADING,
        choices=(*LOADERS, "none"), usual="torchvision",
        answers=_LOADED,
    )  # fmt: skip
    samples_per_worker_second: float | None = option(
        None, "Images that one worker reads, decodes and augments in a second.", "number", _LOADING,
        usual="by the loader and the data set",
        answers=_LOADED,
    )  # fmt: skip
    images_per_second: float | None = option(
        None, "Images that all workers of a machine deliver in a second, however many they are.", "number", _LOADING,
        usual="by the workers",
        answers=_LOADED,
    )  # fmt: skip
    data_source: str | None = option(
        None, f"Where images are read from: {', '.join(SOURCES)}.", "choice", _LOADING, choices=SOURCES,
        usual="reading is taken as faster than decoding",
        answers=_LOADED,
    )  # fmt: skip
    input: str | PathLike[str] | None = option(
        None, "Rates measured on this machine: the file of `epochcast profile input`.", "file", _LOADING,
        remote=False,
        answers=_LOADED,
    )  # fmt: skip
    offers: str | PathLike[str] | Sequence[Offer] | None = option(
        None, "Your own price file, with the columns of offers.csv.", "file", _PRICES,
        usual="the shipped prices", remote=False,
        answers=(*_COSTS, "watch", "parallel"),
    )  # fmt: skip
    spot: bool = option(False, "Use spot prices.", "flag", _PRICES, answers=(*_COSTS, "watch", "parallel"))
    anchors: Iterable[Anchor | Mapping[str, Any]] = option(
        (),
        "Measurements of this CNN to predict from.",
        "anchors",
        _ANCHOR,
        answers=_KNOWN,
    )
    measurements: Any = option(
        None, "A measurement table of your own (epochcast profile): its operators are summed, its CNNs are anchors.",
        "file", _MODEL,
        answers=_KNOWN,
    )  # fmt: skip
    method: str = option("auto", f"{', '.join(METHODS)}.", "choice", _MODEL, choices=METHODS, answers=_KNOWN)
    model: Model | str | PathLike[str] | None = option(
        None,
        "A model that `epochcast fit` wrote.",
        "file",
        _MODEL,
        usual="the shipped one",
        remote=False,
        answers=_KNOWN,
    )

    def __post_init__(self) -> None:
        for name, known in options_of(type(self)).items():
            object.__setattr__(self, name, known.checked(getattr(self, name)))
        if any(
            map(is_layer_csv, as_list(self.cnn))
        ):  # it may hold a recorded step, which options follow from
            tables = [resolve_cnn(cnn) if is_layer_csv(cnn) else cnn for cnn in as_list(self.cnn)]
            object.__setattr__(self, "cnn", tables)
        if self.step is not None:
            self._follow(self.step)
        if self.batch_sizes is not None:
            object.__setattr__(self, "batch_sizes", batch_sizes_of(self.batch_sizes, named("batch_size")))
            self._check_parts()
        if self.samples is not None:
            self.training_set()  # refuses more samples than it has
        if self.validation_samples and self.samples is None and self.data_set is None:
            raise SchemaError(
                f"{named('validation_samples')} {self.validation_samples} needs an epoch to follow. "
                f"Pass {named('samples')} or a data set, too."
            ).about("validation_samples")
        if self.float32_matmul_precision is not None:
            if self.framework != "pytorch" or self.precision not in (None, "tf32"):
                raise SchemaError(
                    f"{named('float32_matmul_precision')} {self.float32_matmul_precision!r} decides what PyTorch "
                    f"multiplies matrices in in tf32, and does nothing in {self.framework} with precision "
                    f"{self.precision or 'of its own'}. Leave it out, or ask for PyTorch's tf32."
                ).about("float32_matmul_precision")
            object.__setattr__(self, "precision", "tf32")

    @property
    def step(self) -> Step | None:
        """The recorded step that it is about; None if no CNN of it was recorded."""
        steps = {cnn.step if isinstance(cnn, LayerTable) else None for cnn in as_list(self.cnn)}
        if len(steps) > 1:
            raise SchemaError(
                "a recorded step brings its own batch size, precision and optimizer, and these CNNs differ. "
                "Ask about one at a time."
            )
        return next(iter(steps), None)

    def in_mode(self, gpus: Sequence[Gpu], precision: str, memory_format: str) -> Question:
        """The question in another mode, as if its step had been recorded in it."""
        cnns = [
            replace(cnn, step=replace(cnn.step, precision=precision, memory_format=memory_format))
            if isinstance(cnn, LayerTable) and cnn.step is not None
            else cnn
            for cnn in as_list(self.cnn)
        ]
        return replace(self, cnn=cnns, gpus=gpus, precision=precision, memory_format=memory_format)

    def followed(self, name: str) -> bool:
        """Whether an option is what the recorded step does."""
        return self.step is not None and getattr(self.step, name, None) == getattr(self, name)

    def _follow(self, step: Step) -> None:
        """Take the recorded step's options where none are given; SchemaError where others are."""
        for name in ("framework", "precision", "memory_format", "optimizer"):
            given, usual = getattr(self, name), options_of(type(self))[name].default
            does = "pytorch" if name == "framework" else getattr(step, name)
            if does is None and (name != "precision" or given in (None, "fp32", "tf32")):
                continue
            if given not in (usual, does):
                raise SchemaError(
                    f"{named(name)} {given!r}: the recorded step trains in {does or 'float32'}. Leave it out, or "
                    "record the step as it is to be trained."
                ).about(name)
            object.__setattr__(self, name, does)
        if self.batch_sizes is None:
            object.__setattr__(self, "batch_sizes", [step.batch_size * self.n_gpus])

    def _check_parts(self) -> None:
        parts = 1 if self.step is None else self.step.parts
        for size in self.batch_sizes:
            if size % (parts * self.n_gpus) and parts > 1:
                near = max(1, round(size / parts / self.n_gpus)) * parts * self.n_gpus
                raise OutOfRangeError(
                    f"{named('batch_size')} {size} is that of a whole step, whose {parts} parts cannot share it "
                    f"evenly. Nearest: {near}."
                ).about("batch_sizes")

    def check_team(self) -> None:
        """Refuse GPUs or mini-batches that cannot be shared evenly, and a link that joins nothing here.

        It is called with the answer, not when the question is made: options that apply to many rows are checked
        before the rows' own.

        Raises
        ------
        SchemaError, OutOfRangeError
        """
        if self.n_gpus > 1 and self.is_whole:
            raise SchemaError(
                f"{named('method')} {self.method!r} predicts an iteration on one GPU, and {named('n_gpus')} is "
                f"{self.n_gpus}. "
                "Leave the method out: several GPUs need the GPU's time apart from the host's."
            ).about("method")
        if self.n_gpus % self.nodes:
            raise OutOfRangeError(
                f"{named('n_gpus')} {self.n_gpus} cannot be spread evenly over {named('nodes')} {self.nodes}. "
                "Pass a multiple."
            ).about("n_gpus")
        if self.link is not None:
            find_link(self.link, "gpu" if self.nodes == 1 else "node")
            if self.n_gpus == 1:
                raise SchemaError(
                    f"{named('link')} {self.link!r} joins several GPUs, and {named('n_gpus')} is 1. Pass both."
                ).about("link")
        if self.sync_batch_norm and self.n_gpus == 1:
            raise SchemaError(
                f"{named('sync_batch_norm')} joins several GPUs, and {named('n_gpus')} is 1. Pass both."
            ).about("sync_batch_norm")
        for size in self.batch_sizes:
            check_share(size, self.n_gpus)

    @property
    def is_whole(self) -> bool:
        """Whether its method predicts whole iterations on one GPU, in modes that it was fitted in."""
        return self.method in WHOLE_METHODS

    @property
    def local_batch_sizes(self) -> list[int]:
        """Batch sizes of each GPU."""
        return [size // self.n_gpus for size in self.batch_sizes]

    @property
    def gpus_per_node(self) -> int:
        """GPUs that each machine needs."""
        return self.n_gpus // self.nodes

    @classmethod
    def of(cls, cnn: object, gpus: object, batch_sizes: Any, options: Mapping[str, Any]) -> Question:
        """Make a question from options by name; SchemaError with the nearest names for an unknown one."""
        check_names(options, options_of(cls))
        return cls(cnn, gpus, batch_sizes, **options)

    def mode_on(self, gpu: Gpu) -> Mode:
        """Training mode on a GPU; without a given precision, the framework's default on that GPU."""
        return self.mode_in(self.precision or default_precision(gpu, self.framework))

    def mode_in(self, precision: str) -> Mode:
        """Training mode in a precision, all else as asked or as the framework does."""
        return _mode(
            self.framework,
            precision,
            self.memory_format or default_memory_format(self.framework, precision),
            self.autotune,
            self.capture,
            self.optimizer,
            float32_matmul_precision=self.float32_matmul_precision or FLOAT32_MATMUL_PRECISIONS[0],
        )

    def machine(self) -> str | HostMeasurement | None:
        """The host by its name, or as measured: a name that ends in ``.json`` is the file of `epochcast host`."""
        if self.host is None or not self.host.casefold().endswith(".json"):
            return self.host
        return read_host(Path(self.host))

    def input_measurement(self) -> InputMeasurement | None:
        """The rates of the file `input`; None if none is given."""
        return None if self.input is None else read_input(Path(self.input))

    def training_set(self) -> TrainingSet | None:
        """The data set of that name, or `samples` of its images; None if none is given."""
        if self.data_set is None:
            return None
        whole = find_training_set(self.data_set)
        return whole if self.samples is None else whole.part(self.samples)

    def devices(self) -> list[tuple[Gpu, Mode]]:
        """Each GPU with its mode; errors as of `gpus_of`.

        With several GPUs ``"all"`` are those of which an offer has enough.
        """
        found = gpus_of(self.gpus, self.precision, self.capture)
        if self.n_gpus > 1 and self.link is None and "all" in as_list(self.gpus):
            enough = cheapest_offers(self.prices(), self.spot, self.gpus_per_node)
            found = [gpu for gpu in found if gpu.name in enough]
        return [(gpu, self.mode_on(gpu)) for gpu in found]

    def epoch_samples(self) -> int | None:
        """Training samples per epoch: as given, or those of the data set; None if neither is given."""
        found = self.training_set()
        return self.samples if found is None else found.samples

    def part_in_words(self) -> str | None:
        """How much of a data set an epoch is: ``10,000 of the 1,281,167 images of imagenet``; None unless a part."""
        if self.samples is None or self.data_set is None:
            return None
        whole = find_training_set(self.data_set)
        return f"{self.samples:,} of the {whole.samples:,} images of {whole.name}"

    def layer_tables(self) -> list[LayerTable]:
        """Layer table of each CNN at the image size given, else the data set's, else its own."""
        tables = [resolve_cnn(each, self.image_size_of(each)) for each in as_list(self.cnn)]
        for table in tables:
            if not table.has_gradients:
                raise SchemaError(
                    f"{table.cnn} computes no gradients: nothing in it is trainable, or it runs without gradients. "
                    "What is predicted is training: give it as it is trained, with loss.backward()."
                )
        return tables

    def other_forms(self) -> list[str]:
        """What `other_form_in_words` says of the CNNs that are given by name."""
        said = (other_form_in_words(cnn, self.image_size_of(cnn)) for cnn in as_list(self.cnn))
        return list(filter(None, said))

    def prices(self) -> tuple[Offer, ...]:
        """The offers themselves, those of a price file, or the shipped ones."""
        if self.offers is None or isinstance(self.offers, str | PathLike):
            return load_offers(self.offers)
        return tuple(self.offers)

    def image_size_of(self, cnn: object) -> int | None:
        """Image size at which `cnn` is trained: as given, else the data set's; None leaves it to the CNN.

        A layer table, a file and most Keras models have a size of their own; a CNN of the zoo takes the data set's
        images as they are, but its own usual size where the data set's images vary (ImageNet); a module is given the
        data set's size.
        """
        found = self.training_set()
        if self.image_size is not None or found is None:
            return self.image_size
        if has_own_image_size(cnn):
            return None
        return None if found.resized and isinstance(cnn, str) else found.image_size


@dataclass(frozen=True, slots=True)
class Plan:
    """The training that GPUs are compared for, checked when it is made.

    Rows that miss the budget or the deadline are ranked below those that hold both; set-up minutes are billed.
    """

    epochs: int = option(1, "Epochs to train.", "whole", _PLAN, low=1, high=1_000_000, answers=_PLANS)
    budget_usd: float | None = option(
        None,
        "US$ that the training may cost.",
        "usd",
        _PLAN,
        flag="--budget",
        answers=_PLANS,
    )
    deadline_h: float | None = option(
        None,
        "Hours that it may take; 90min, 1h30m, 2d and 3 weeks are understood, too.",
        "hours",
        _PLAN,
        flag="--deadline",
        answers=_PLANS,
    )
    trials: int = option(
        1, "Trainings of a parameter search; each GPU of an offer works on one at a time.", "whole", _PLAN,
        low=1, high=1_000_000,
        answers=_PLANS,
    )  # fmt: skip
    setup_minutes: float = option(
        0.0, "Minutes that are paid before training starts.", "number", _PLAN, answers=_PLANS
    )
    relative_to: str | None = option(None, "GPU to compare the others with.", panel=_PLAN, answers=_PLANS)
    rank_by: str = option(
        "cost", f"{', '.join(RANKINGS)}.", "choice", _PLAN, choices=RANKINGS, answers=_PLANS
    )
    all_offers: bool = option(
        False, "Rank every offer, not only the cheapest of each GPU.", "flag", _PLAN, answers=_PLANS
    )

    def __post_init__(self) -> None:
        for name, known in options_of(Plan).items():
            object.__setattr__(self, name, known.checked(getattr(self, name)))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> tuple[Plan, dict[str, Any]]:
        """Split options by name into a plan and the remaining options."""
        check_names(options, {**options_of(Question), **options_of(Plan)})
        own = {name: value for name, value in options.items() if name in options_of(Plan)}
        return cls(**own), {name: value for name, value in options.items() if name not in own}

    @property
    def setup_h(self) -> float:
        """Hours of set-up."""
        return self.setup_minutes / 60.0


def named(name: str) -> str:
    """An option's name in messages, or that of the CNN, GPU or batch size; see `named_by_flags`."""
    known = {**options_of(Question), **options_of(Plan)}.get(name)
    return (known or Option(name, "", "word", None, "")).shown


def check_share(batch_size: int, n_gpus: int) -> None:
    """Refuse a mini-batch that GPUs cannot share evenly; OutOfRangeError with the nearest that they can."""
    if batch_size % n_gpus:
        near = max(1, round(batch_size / n_gpus)) * n_gpus
        raise OutOfRangeError(
            f"{named('batch_size')} {batch_size} is that of all GPUs, and {n_gpus} GPUs cannot share it evenly. "
            f"Nearest: {near}."
        ).about("batch_sizes")


def gpus_of(gpus: object, precision: str | None = None, capture: str = "eager") -> list[Gpu]:
    """Find GPUs by name, each able to train in `precision`.

    Parameters
    ----------
    gpus : str, Gpu, or a sequence of them
        Names as of `find_gpu`, or ``cpu:<model>`` for a CPU whose operators were measured; ``"all"`` for every GPU
        that has the precision, and that `capture` works on.
    precision : str, optional
    capture : str

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
            chosen |= {
                each.name: each
                for each in all_gpus()
                if precision in (None, *precisions_of(each)) and (capture != "compile" or compiles(each))
            }
            continue
        found = gpu if isinstance(gpu, Gpu) else device_of(str(gpu))
        if precision is not None:
            check_precision(found, precision)
        chosen[found.name] = found
    if not chosen:
        raise SchemaError("no GPU is given. Pass names, or 'all'; `epochcast gpu list` shows them.").about(
            "gpus"
        )
    return list(chosen.values())


def check_names(given: Iterable[str], options: Mapping[str, Option]) -> None:
    """Refuse names that are no options, with the nearest that are, or with the answer that reads them."""
    known = ("cnn", "gpu", "batch_size", *options)
    for name in given:
        if name not in known and name in options_of(Plan):
            raise SchemaError(
                f"{named(name)} is an option of `compare`, which answers for a whole training. "
                "Pass it there, with the same other options."
            )
        check_known(name, known)


_mode = lru_cache(maxsize=256)(Mode)  # GPUs share a few
