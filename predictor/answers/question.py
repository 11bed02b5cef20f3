"""The question: CNNs, GPUs, batch sizes, training mode, and measurements to predict from.

`Question` declares every option once, with its kind, and ``options.json`` what it is; command line, REST schema, Python
and bulk tables derive theirs from `options_of` (`predictor.answers.options`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

from predictor.answers.options import Option, check_known, check_options, options_of, renewed, worded
from predictor.catalogue.data_sets import find_training_set
from predictor.catalogue.grids import find_grid
from predictor.catalogue.links import find_link
from predictor.catalogue.loading_rates import LOADERS, SOURCES
from predictor.catalogue.modes import (
    CAPTURES,
    FIXED_EPOCHS,
    FLOAT32_MATMUL_PRECISIONS,
    FRAMEWORKS,
    LOOPS,
    MAX_PER_GPU,
    MEMORY_FORMATS,
    OPTIMIZERS,
    PARALLELS,
    PRECISIONS,
    USUAL_WORKSPACE_MIB,
    Habits,
    unread_by,
)
from predictor.catalogue.offers import Offer
from predictor.checks import LONGEST_MS, MAX_BATCH_SIZE, MAX_IMAGE_SIZE, MAX_SAMPLES, as_list, batch_sizes_of
from predictor.cnns.layer_table import LayerTable, Step
from predictor.cnns.resolve import is_chainer, is_compiled, is_layer_csv, resolve_cnn
from predictor.errors import OutOfRangeError, SchemaError
from predictor.models.forecast import Anchor
from predictor.models.registry import METHODS, WHOLE_METHODS

if TYPE_CHECKING:
    from predictor.models.served import Model

MAX_WORKERS = 1024
MAX_WORKSPACE_MIB = 16_384.0

MAX_N_GPUS = 1024
"""Most GPUs of a question: larger teams train otherwise than by one ring."""

MAX_PARTS = 4096
"""Most parts of an accumulated mini-batch."""

RANKINGS = ("cost", "time")
"""Ranking criteria of a comparison: `total_cost_usd` or `total_time_h`."""


# Which answers read an option (`predictor.answers.options.ANSWERS`).
_COSTS = ("predict", "compare", "bulk")
_OFFERS = (*_COSTS, "watch", "parallel")
_EPOCHS = (*_COSTS, "cell")
_LOADED = (*_EPOCHS, "watch")
_TEAMS = (*_LOADED, "parallel")
_TIMES = (*_TEAMS, "explain")
_MEMORY = (*_TIMES, "memory")
_KNOWN = (*_COSTS, "watch", "parallel", "explain")

_ANCHOR = "A measurement of this CNN, to predict from"

_trained, _of_prices = partial(worded, panel="How it is trained"), partial(worded, panel="Prices")
_timed = partial(_trained, answers=_TIMES)
_shared = partial(_trained, answers=_TEAMS)
_loaded = partial(worded, panel="Loading of images", answers=_LOADED)
_of_model = partial(worded, panel="Model", answers=_KNOWN)
_FOLLOWED = (
    *("framework", "precision", "memory_format", "optimizer", "capture", "parallel"),
    *Habits._fields,
    "drop_last",
)
"""Options that follow from a recorded step."""

OF_EPOCHS = ("validation_samples", "drop_last", "framework_loop")
"""Options that only an epoch has, and so only a question with samples or a data set."""

_BY_CNN = (
    ("framework", is_chainer, "chainer", "CNNs are Chainer's"),
    ("capture", is_compiled, "compile", "modules are compiled"),
)
"""Options that follow from the CNN's own class where they are not given."""

_planned = partial(worded, panel="The training", answers=("compare",))

# fmt: off
ANCHOR_FIELDS = {
    declared.name: replace(declared, flag=declared.flag or f"--anchor-{declared.name.replace('_', '-')}")
    for declared in (
        Option("gpu", "GPU on which it was measured.", "word", None, _ANCHOR),
        Option("batch_size", "Batch size of the measurement.", "whole", None, _ANCHOR, 1, MAX_BATCH_SIZE),
        Option("iteration_time_ms", "Milliseconds of one iteration.", "number", None, _ANCHOR, 0.0, LONGEST_MS),
        Option("epoch_time_s", "Or seconds of an epoch, with its samples.", "number", None, _ANCHOR),
        Option("samples", "Training samples of that epoch.", "whole", None, _ANCHOR, 1, MAX_SAMPLES),
        Option("images_per_s", "Or images a second.", "number", None, _ANCHOR),
        Option("image_size", "Its image size, if it differs from the table's.", "whole", None, _ANCHOR, 1,
               MAX_IMAGE_SIZE),
        Option("workers",
               "Workers of the loader, where its time holds the waits for them: of as many it is the answer.", "whole",
               None, _ANCHOR, 0, MAX_WORKERS),
        Option("throughput_samples_per_s", "An old name.", "number", None, _ANCHOR, flag="--anchor-throughput",
               now=("images_per_s", "{}")),
    )
}
# fmt: on
"""Options of an anchor: its GPU, its batch size and exactly one time."""

_retired = partial(Option, help="An old name.", default=None, panel="", answers=_LOADED)
RETIRED = {
    declared.name: declared
    for declared in (
        _retired("machine_workers", kind="whole", low=1, high=MAX_WORKERS, now=("workers", "{}/machine")),
        _retired("samples_per_worker_second", kind="number", now=("loader", "{}/worker")),
        _retired("images_per_second", kind="number", now=("loader", "{}/machine")),
        _retired("input", kind="file", remote=False, now=("loader", "{}")),
        _retired("price", kind="usd", remote=False, free=True, answers=_COSTS, now=("usd_per_hour", "{}")),
    )
}
"""Options by the names of the last minor version, which this one still takes."""

_REPLACES = {
    "usd_per_hour": ("spot", "marketplaces", "provider", "offer_region", "offers"),
    "data_set": ("samples",),
}


def replaced_by(options: Mapping[str, Any]) -> set[str]:
    """Options whose defaults have no effect beside these, or would contradict them."""
    replaced = {name for option in options for name in _REPLACES.get(option, ())}
    replaced |= {"workers", "data_source"} if options.get("loader") == "none" else set()
    return replaced.union(unread_by(options.get("framework_loop")))


@dataclass(frozen=True, slots=True)
class Question:
    """A question, checked when it is made.

    `cnn`: what is trained: a zoo name, a layer-table CSV, an ONNX file, or the object itself. `gpus`: names as drivers
    and people write them; ``"all"`` for every GPU that has the precision. `batch_sizes`: if None, the answer searches
    for them (`predictor.answers.grid`). The others: see each option's help; without `samples` or `data_set` there are
    no epoch times. With both, an epoch is `samples` images of the data set. SchemaError or OutOfRangeError if an option
    is of the wrong kind, unknown, or outside its range.
    """

    cnn: object
    gpus: object
    batch_sizes: Any = None
    # fmt: off
    image_size: int | None = worded(None, "whole", low=1, high=MAX_IMAGE_SIZE, answers=_MEMORY)
    data_set: str | None = worded(None, flag="--data-set --dataset", answers=_MEMORY)
    samples: int | None = worded(None, "whole", low=1, high=MAX_SAMPLES, answers=(*_EPOCHS, "explain"))
    validation_samples: int = worded(0, "whole", low=0, high=MAX_SAMPLES, answers=_EPOCHS)
    drop_last: bool = worded(False, "flag", answers=_EPOCHS)
    framework_loop: str | None = worded(None, "choice", choices=LOOPS, answers=_EPOCHS)
    precision: str | None = _trained(None, "choice", choices=PRECISIONS, answers=_MEMORY)
    float32_matmul_precision: str | None = _timed(None, "choice", choices=FLOAT32_MATMUL_PRECISIONS)
    memory_format: str | None = _timed(None, "choice", choices=MEMORY_FORMATS)
    framework: str = _timed("pytorch", "choice", choices=FRAMEWORKS)
    autotune: bool = _timed(False, "flag")
    no_cudnn: bool = _trained(False, "flag", answers=_EPOCHS)
    workspace_mib: float = _trained(USUAL_WORKSPACE_MIB, "number", low=1.0, high=MAX_WORKSPACE_MIB, answers=_EPOCHS)
    capture: str = _timed("eager", "choice", choices=CAPTURES)
    optimizer: str = _trained("momentum", "choice", choices=OPTIMIZERS, answers=(*_LOADED, "explain", "memory"))
    gradient_accumulation: int = _trained(1, "whole", low=1, high=MAX_PARTS, answers=(*_EPOCHS, "explain", "memory"))
    n_gpus: int = _shared(1, "whole", low=1, high=MAX_N_GPUS)
    nodes: int = _shared(1, "whole", low=1, high=MAX_N_GPUS)
    link: str | None = _shared(None)
    sync_batch_norm: bool = _shared(False, "flag")
    parallel: str = _trained("ddp", "choice", choices=PARALLELS, answers=_LOADED)
    deterministic: bool = _trained(False, "flag", answers=(*_LOADED, "explain"))
    detect_anomaly: bool = _trained(False, "flag", answers=(*_LOADED, "explain"))
    per_gpu: int | str = _trained(1, "trainings", low=1, high=MAX_PER_GPU, answers=("predict", "compare", "memory"))
    beside: str | None = _trained(None, "names", answers=("predict",))
    host: str | None = _timed(None)
    workers: int | str | None = _loaded(None, "workers", low=0, high=MAX_WORKERS)
    loader: str | PathLike[str] | None = _loaded(None, "loader", choices=(*LOADERS, "none"))  # noqa: RUF009
    data_source: str | None = _loaded(None, "choice", choices=SOURCES)
    offers: str | PathLike[str] | Sequence[Offer] | None = _of_prices(None, "file", remote=False, answers=_OFFERS)  # noqa: RUF009
    spot: bool = _of_prices(False, "flag", answers=_OFFERS)
    marketplaces: bool = _of_prices(False, "flag", answers=_COSTS)
    usd_per_hour: float | None = _of_prices(None, "usd", free=True, answers=_COSTS)
    provider: str | None = _of_prices(None, "names", answers=_OFFERS)
    offer_region: str | None = _of_prices(None, "names", answers=_OFFERS)
    region: str | None = _of_prices(None, answers=("predict", "compare"))
    anchors: Iterable[Anchor | Mapping[str, Any]] = worded((), "anchors", _ANCHOR, answers=_KNOWN)
    measurements: Any = _of_model(None, "file")  # noqa: RUF009
    method: str = _of_model("auto", "choice", choices=METHODS)
    model: Model | str | PathLike[str] | None = _of_model(None, "file", remote=False)  # noqa: RUF009
    # fmt: on

    def __post_init__(self) -> None:
        check_options(self)
        cnns = as_list(self.cnn)
        if any(map(is_layer_csv, cnns)):  # it may hold a recorded step, which options follow from
            cnns = [resolve_cnn(cnn) if is_layer_csv(cnn) else cnn for cnn in cnns]
            object.__setattr__(self, "cnn", cnns)
        step = self.step
        if step is not None:
            self._follow(step)
            if self.gradient_accumulation not in (1, step.parts):
                raise SchemaError(
                    f"{named('gradient_accumulation')} {self.gradient_accumulation}: the recorded step runs its "
                    f"mini-batch in {step.parts} parts. Leave it out, or record the step as it is to be trained."
                ).about("gradient_accumulation")
        for name, is_so, value, words in _BY_CNN:
            if getattr(self, name) == options_of(type(self))[name].default and any(map(is_so, cnns)):
                if not all(map(is_so, cnns)):
                    raise SchemaError(f"some of these {words}, and others are not. Ask about one at a time.")
                object.__setattr__(self, name, value)
        if self.batch_sizes is not None:
            object.__setattr__(self, "batch_sizes", batch_sizes_of(self.batch_sizes, named("batch_size")))
            if step is not None and step.parts > 1:
                MiniBatch.locals_of(self.batch_sizes, self.n_gpus, self.parts)
        if self.samples is not None and self.data_set is not None:
            find_training_set(self.data_set).part(self.samples)  # refuses more samples than it has
        if self.region is not None:
            find_grid(self.region, named("region"))
        self._check_epoch()
        if self.float32_matmul_precision is not None:
            if self.framework != "pytorch" or self.precision not in (None, "tf32"):
                raise SchemaError(
                    f"{named('float32_matmul_precision')} {self.float32_matmul_precision!r} decides what PyTorch "
                    f"multiplies matrices in in tf32, and does nothing in {self.framework} with precision "
                    f"{self.precision or 'of its own'}. Leave it out, or ask for PyTorch's tf32."
                ).about("float32_matmul_precision")
            object.__setattr__(self, "precision", "tf32")

    def _check_epoch(self) -> None:
        """Refuse options of an epoch without one, and those that the framework's loop does not read; SchemaError."""
        loop, unread = self.framework_loop, unread_by(self.framework_loop)
        needing = () if loop in FIXED_EPOCHS or self.samples or self.data_set else OF_EPOCHS
        for name in ("samples", *OF_EPOCHS):
            value = getattr(self, name)
            if not value or name not in (*unread, *needing) or self.followed(name):
                continue
            text = f"{named(name)}{f' {value}' * (value is not True)}"
            if name not in unread:
                raise SchemaError(
                    f"{text} needs an epoch. Pass {named('samples')} or a data set, too."
                ).about(name)
            words = self.epoch_of_loop
            why = f"whose epochs have {words}" if words else "which drops the last mini-batch by itself"
            text += f" has no effect with {named('framework_loop')} {loop}, {why}. Leave {named(name)} out."
            raise SchemaError(text).about(name)

    @property
    def epoch_of_loop(self) -> str:
        """An epoch in words, where its framework's loop fixes it; else empty."""
        words = "{} iterations and {} of validation, whatever the data"
        loop = self.framework_loop
        return words.format(*FIXED_EPOCHS[loop]) if loop in FIXED_EPOCHS else ""

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

    def followed(self, name: str) -> bool:
        """Whether an option is what the recorded step does."""
        return self.step is not None and getattr(self.step, name, None) == getattr(self, name)

    def _follow(self, step: Step) -> None:
        """Take the recorded step's options where none are given; SchemaError where others are."""
        for name in _FOLLOWED:
            value, usual = getattr(self, name), options_of(type(self))[name].default
            does = "pytorch" if name == "framework" else getattr(step, name)
            if does is None and (name != "precision" or value in (None, "fp32", "tf32")):
                continue
            if value not in (usual, does):
                raise SchemaError(
                    f"{named(name)} {value!r}: the recorded step trains in {does or 'float32'}. Leave it out, or "
                    "record the step as it is to be trained."
                ).about(name)
            object.__setattr__(self, name, does)
        if self.samples is None and self.data_set is None:
            object.__setattr__(self, "samples", step.samples)
        if self.batch_sizes is None:
            # DataParallel spreads the batch that was recorded
            shared = self.n_gpus if step.parallel is None else 1
            object.__setattr__(self, "batch_sizes", [step.batch_size * shared])

    @property
    def side_by_side(self) -> list[str]:
        """The question's training, as an empty text, and those `beside` it, as they were named."""
        return ["", *self.beside.split(",")] if self.beside else [""]

    @property
    def is_whole(self) -> bool:
        """Whether its method predicts whole iterations on one GPU, in modes that it was fitted in."""
        return self.method in WHOLE_METHODS

    @property
    def parts(self) -> int:
        """Parts of a mini-batch that each GPU runs one after the other: as asked for, or as recorded."""
        step = self.step
        return self.gradient_accumulation if step is None else step.parts

    @classmethod
    def of(cls, cnn: object, gpus: object, batch_sizes: Any, options: Mapping[str, Any]) -> Question:
        """Make a question from options by name; SchemaError with the nearest names for an unknown one."""
        options = renewed(options, OPTIONS)
        check_names(options, options_of(cls))
        return cls(cnn, gpus, batch_sizes, **options)


OPTIONS = {**options_of(Question), **RETIRED}
"""Options of a question, those with retired names too."""


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """The images of an iteration, which `n_gpus` share evenly, each in `parts`; nobody else divides them."""

    images: int
    n_gpus: int = 1
    parts: int = 1

    @property
    def is_even(self) -> bool:
        """Whether every GPU, and every part of its share, has as many images."""
        return self.images % (self.n_gpus * self.parts) == 0

    @property
    def local(self) -> int:
        """Images of one GPU."""
        return self.images // self.n_gpus

    @property
    def part(self) -> int:
        """Images of one GPU in one part."""
        return self.local // self.parts

    @property
    def possible_parts(self) -> list[int]:
        """Numbers of parts of equal size that the share of each GPU has; none where the GPUs cannot share evenly."""
        local = 0 if self.images % self.n_gpus else self.local
        return [parts for parts in range(1, local + 1) if local % parts == 0]

    @classmethod
    def even(cls, sizes: Sequence[int], n_gpus: int, parts: int = 1) -> dict[int, int]:
        """Images of one GPU by those of these batch sizes that are shared evenly."""
        mini_batches = (cls(size, n_gpus, parts) for size in sizes)
        return {mini_batch.images: mini_batch.local for mini_batch in mini_batches if mini_batch.is_even}

    @classmethod
    def locals_of(cls, sizes: Sequence[int], n_gpus: int = 1, parts: int = 1) -> list[int]:
        """Images of one GPU at each of these batch sizes; OutOfRangeError if one cannot be shared evenly."""
        if n_gpus * parts == 1:
            return list(sizes)
        mini_batches = [cls(size, n_gpus, parts) for size in sizes]
        for mini_batch in mini_batches:
            mini_batch.check()
        return [mini_batch.local for mini_batch in mini_batches]

    def check(self) -> None:
        """Refuse a mini-batch that cannot be shared evenly; OutOfRangeError with the nearest that can."""
        if self.is_even:
            return
        share = self.n_gpus * self.parts
        near = max(1, round(self.images / share)) * share
        whose = f"that of all GPUs, and {self.n_gpus} GPUs cannot share it evenly"
        if self.parts > 1:
            whose = f"that of a whole step, whose {self.parts} parts cannot share it evenly"
            whose += f" on each of {self.n_gpus} GPUs" * (self.n_gpus > 1)
        raise OutOfRangeError(f"{named('batch_size')} {self.images} is {whose}. Nearest: {near}.").about(
            "batch_sizes"
        )


@dataclass(frozen=True, slots=True)
class TeamOptions:
    """Options of GPUs that train together, which are checked together; of one GPU by default."""

    n_gpus: int = 1
    nodes: int = 1
    link: str | None = None
    sync_batch_norm: bool = False
    parallel: str = PARALLELS[0]
    per_gpu: int | str = 1
    beside: str | None = None

    @property
    def trainings(self) -> int:
        """Trainings on each GPU; 1 where a comparison chooses them."""
        return self.per_gpu if isinstance(self.per_gpu, int) else 1

    @property
    def has_replicas(self) -> bool:
        """Whether `torch.nn.DataParallel` spreads the mini-batch."""
        return self.parallel == "dp"

    @property
    def per_node(self) -> int:
        """GPUs that each machine needs."""
        return self.n_gpus // self.nodes

    def check(self, method: str) -> None:
        """Refuse GPUs that cannot be spread evenly, options that join nothing, and methods of one GPU.

        It is called with the answer, not when the question is made: options that apply to many rows are checked before
        the rows' own. SchemaError or OutOfRangeError.
        """
        if self.n_gpus > 1 and method in WHOLE_METHODS:
            raise SchemaError(
                f"{named('method')} {method!r} predicts an iteration on one GPU, and {named('n_gpus')} is "
                f"{self.n_gpus}. "
                "Leave the method out: several GPUs need the GPU's time apart from the host's."
            ).about("method")
        shared, is_shared = "beside" if self.beside else "per_gpu", self.beside or self.per_gpu != 1
        # fmt: off
        clashes = (
            ("n_gpus", self.n_gpus, self.n_gpus > 1, "spreads a training over several GPUs"),
            ("method", repr(method), method in WHOLE_METHODS, "predicts a training that has its GPU to itself"),
            ("per_gpu", self.per_gpu, self.per_gpu != 1, "is of trainings that are all alike"),
        )
        # fmt: on
        for name, value, is_given, does in clashes if is_shared else ():
            if is_given and name != shared:
                raise SchemaError(
                    f"{named(shared)} {getattr(self, shared)} has several trainings share one GPU, and {named(name)} "
                    f"{value} {does}. Leave out {named(name)}, or {named(shared)}."
                ).about(shared)
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
        unfit = {"n_gpus": self.n_gpus == 1, "nodes": self.nodes > 1, "sync_batch_norm": self.sync_batch_norm}
        if self.has_replicas and any(unfit.values()):
            name = next(name for name, is_unfit in unfit.items() if is_unfit)
            raise SchemaError(
                f"{named('parallel')} 'dp' is nn.DataParallel, which spreads a mini-batch over several GPUs of one "
                f"machine without synchronised batch norms, and {named(name)} is {getattr(self, name)}. Pass ddp, or "
                f"another {named(name)}."
            ).about("parallel")
        if self.sync_batch_norm and self.n_gpus == 1:
            raise SchemaError(
                f"{named('sync_batch_norm')} joins several GPUs, and {named('n_gpus')} is 1. Pass both."
            ).about("sync_batch_norm")


@dataclass(frozen=True, slots=True)
class LoadingOptions:
    """Options of loading, which are checked together; any of them has an answer count it, but for ``loader="none"``.

    SchemaError if loading is both asked for and left out, or two options say the same.
    """

    workers: int | str | None = None
    loader: str | None = None
    data_source: str | None = None

    def __post_init__(self) -> None:
        beside = [name for name in ("workers", "data_source") if getattr(self, name) is not None]
        if self.loader == "none" and beside:
            raise SchemaError(
                f"{named('loader')} 'none' leaves loading out, and {named(beside[0])} is given, too. Pass one of them."
            ).about("loader")
        if self.workers is not None and self.rate_of("machine") is not None:
            raise SchemaError(
                f"{named('loader')} {self.loader} is the rate of all workers of a machine, and {named('workers')} is "
                "given, too. Pass one of them, or the rate of one worker: 300/worker."
            ).about("loader")

    @property
    def is_asked(self) -> bool:
        """Whether an option has loading counted."""
        return self.loader != "none" and (self.workers, self.loader, self.data_source) != (None, None, None)

    @property
    def has_number(self) -> bool:
        """Whether a number of workers is given, or the rate of all."""
        return self.workers is not None or self.rate_of("machine") is not None

    @property
    def between(self) -> bool:
        """Whether the training process loads by itself, between iterations."""
        return self.workers == 0

    def workers_of(self, unit: str) -> int | None:
        """Workers of each ``gpu``, or those that the GPUs of a ``machine`` share, where they are given so."""
        number, _, of = str(self.workers).partition("/")
        return int(number) if self.workers is not None and unit == (of or "gpu") else None

    def rate_of(self, unit: str) -> float | None:
        """Images per second of a ``worker`` or of all of a ``machine``, where `loader` is such a rate."""
        number, _, of = (self.loader or "").partition("/")
        return float(number) if of == unit else None


@dataclass(frozen=True, slots=True)
class Plan:
    """The training that GPUs are compared for, checked when it is made.

    Rows that miss the budget or the deadline are ranked below those that hold both; set-up minutes are billed.
    """

    # fmt: off
    epochs: int = _planned(1, "whole", low=1, high=1_000_000)
    budget_usd: float | None = _planned(None, "usd", flag="--budget")
    deadline_h: float | None = _planned(None, "hours", flag="--deadline")
    trials: int | None = _planned(None, "whole", low=1, high=1_000_000)
    setup_minutes: float = _planned(0.0, "number")
    interruptions_per_day: float | None = _planned(None, "number")
    checkpoint_seconds: float | None = _planned(None, "number")
    checkpoint_minutes: float | None = _planned(None, "number")
    relative_to: str | None = _planned(None)
    rank_by: str = _planned("cost", "choice", choices=RANKINGS)
    all_offers: bool = _planned(False, "flag")
    # fmt: on

    def __post_init__(self) -> None:
        check_options(self)
        rates = (self.interruptions_per_day, self.checkpoint_seconds)
        if any(value is None for value in rates) and {*rates, self.checkpoint_minutes} != {None}:
            missing = "interruptions_per_day" if rates[0] is None else "checkpoint_seconds"
            raise SchemaError(
                f"{named(missing)} is missing: interruptions cost by how often they come and how long a checkpoint "
                f"takes, neither of which has a usual value. Pass {named(missing)}, too, or leave both out."
            ).about(missing)

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> tuple[Plan, dict[str, Any]]:
        """Split options by name into a plan and the remaining options."""
        options = renewed(options, OPTIONS)
        check_names(options, {**options_of(Question), **options_of(Plan)})
        own = {name: value for name, value in options.items() if name in options_of(Plan)}
        return cls(**own), {name: value for name, value in options.items() if name not in own}

    @property
    def trainings(self) -> int:
        """Trainings of all epochs: the trials, or one where none are given."""
        return self.trials or 1

    @property
    def setup_h(self) -> float:
        """Hours of set-up."""
        return self.setup_minutes / 60.0


def named(name: str) -> str:
    """An option's name in messages, or that of the CNN, GPU or batch size; see `named_by_flags`."""
    declared = options_of(Question).get(name) or options_of(Plan).get(name)
    return (declared or Option(name, "", "word", None, "")).shown


def check_names(names: Iterable[str], options: Mapping[str, Option]) -> None:
    """Refuse names that are no options, with the nearest that are, or with the answer that reads them."""
    all_names = ("cnn", "gpu", "batch_size", *options)
    for name in names:
        if name not in all_names and name in options_of(Plan):
            raise SchemaError(
                f"{named(name)} is an option of `compare`, which answers for a whole training. "
                "Pass it there, with the same other options."
            )
        check_known(name, all_names)
