"""A question with all that it names looked up, each thing once: an answer reads it here and asks nobody again."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property, lru_cache
from itertools import product
from operator import attrgetter
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from warnings import warn

from predictor.answers.options import check_read, renewed
from predictor.answers.question import (
    ANCHOR_FIELDS,
    MAX_WORKERS,
    LoadingOptions,
    MiniBatch,
    Question,
    TeamOptions,
    named,
)
from predictor.catalogue.data_sets import TrainingSet, find_training_set
from predictor.catalogue.devices import (
    Gpu,
    all_gpus,
    check_precision,
    compiles,
    default_memory_format,
    default_precision,
    device_of,
    find_gpu,
    is_cpu,
    precisions_of,
)
from predictor.catalogue.modes import (
    COMPILED,
    FIXED_EPOCHS,
    FLOAT32_MATMUL_PRECISIONS,
    MAX_PER_GPU,
    PARALLELS,
    USUAL_WORKSPACE_MIB,
    Habits,
    Mode,
    products_in_fp32,
)
from predictor.catalogue.offers import Offer, Prices, hourly_usd, load_offers
from predictor.catalogue.providers import chosen_offers
from predictor.checks import MAX_BATCH_SIZE, MAX_SAMPLES, as_list, number_within, of_kind, whole_number
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.resolve import has_own_image_size, name_and_size, other_form_in_words, resolve_cnn
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError, EpochcastError, LeftOutWarning, OutOfRangeError, SchemaError
from predictor.measurements.hosts import HostMeasurement, is_host_file, read_host
from predictor.measurements.inputs import InputMeasurement, read_input
from predictor.measurements.shortest import check_not_too_short, check_rows_not_too_short
from predictor.models.forecast import Anchor, Reason

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.served import Model

Options = TypeVar("Options", LoadingOptions, TeamOptions, "Training")

Device = tuple[Gpu, Mode]
"""A GPU, and how it trains."""


@dataclass(frozen=True, slots=True)
class Training:
    """How a question trains; None leaves a field to the framework on each GPU."""

    framework: str = "pytorch"
    precision: str | None = None
    memory_format: str | None = None
    autotune: bool = False
    capture: str = "eager"
    optimizer: str = "momentum"
    float32_matmul_precision: str | None = None

    def on(self, gpu: Gpu) -> Mode:
        """The mode on a GPU."""
        return self.in_precision(self.precision or default_precision(gpu, self.framework))

    def in_precision(self, precision: str) -> Mode:
        """The mode in a precision."""
        return _mode(
            self.framework,
            precision,
            self.memory_format or default_memory_format(self.framework, precision),
            self.autotune,
            self.capture,
            self.optimizer,
            float32_matmul_precision=self.float32_matmul_precision or FLOAT32_MATMUL_PRECISIONS[0],
        )

    def on_each(self, gpus: Sequence[Gpu]) -> list[Device]:
        """Each GPU with its mode, which follows from the compute capability."""
        modes: dict[float, Mode] = {}
        for gpu in gpus:
            if gpu.compute_capability not in modes:
                modes[gpu.compute_capability] = self.on(gpu)
        return [(gpu, modes[gpu.compute_capability]) for gpu in gpus]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A GPU that was named and lacks the precision, where another one has it; `why` says what it has."""

    gpu: str
    precision: str
    why: str

    def __str__(self) -> str:
        return f"{self.gpu} is left out in {self.precision}: {self.why}"


class Known(NamedTuple):
    """What an answer predicts from: the model, the anchors given, and the user's own measurements."""

    model: Model
    anchors: tuple[Anchor, ...]
    own: OwnMeasurements | None


@dataclass(frozen=True, eq=False)
class ResolvedQuestion:
    """A question with what it names, each looked up when it is first needed, and once.

    All raise SchemaError, OutOfRangeError, UnknownCnnError or UnknownGpuError if the question makes no sense.
    """

    question: Question
    answer: str | None = None

    @classmethod
    def of(cls, question: Question, answer: str | None = None) -> ResolvedQuestion:
        """Look a question up, for one of `ANSWERS`, which warns of the GPUs that it leaves out (`LeftOutWarning`).

        SchemaError if it has an option that this answer does not read.
        """
        resolved = cls(question, answer)
        if answer is not None:
            check_read(question, answer)
            for gpu_left_out in resolved.left_out:
                warn(LeftOutWarning(f"{gpu_left_out}."), stacklevel=3)
            for name in ("no_cudnn", "workspace_mib"):
                if question.framework != "chainer" and getattr(question, name) not in (
                    False,
                    USUAL_WORKSPACE_MIB,
                ):
                    raise SchemaError(
                        f"{named(name)} is Chainer's, and {named('framework')} is {question.framework!r}. Pass both."
                    ).about(name)
            if question.per_gpu == "auto" and answer != "compare":
                text = (
                    f"{named('per_gpu')} 'auto' is what costs least of several trials. Compare them, or pass"
                )
                raise SchemaError(f"{text} a number.").about("per_gpu")
            if question.no_cudnn and (question.autotune or question.workspace_mib != USUAL_WORKSPACE_MIB):
                useless = "autotune" if question.autotune else "workspace_mib"
                raise SchemaError(
                    f"{named('no_cudnn')} leaves nothing to choose for {named(useless)}. Pass one of them."
                ).about("no_cudnn")
        return resolved

    @cached_property
    def known(self) -> Known:
        """The model, with the measurements and anchors of the question."""
        question, model = self.question, load_model(self.question.model)
        anchors = tuple(
            anchor if isinstance(anchor, Anchor) else anchor_from(dict(anchor), model, self.training.on)
            for anchor in question.anchors
        )
        for anchor in anchors:
            if anchor.workers is not None and (question.workers, question.n_gpus) != (anchor.workers, 1):
                raise SchemaError(
                    f"{ANCHOR_FIELDS['workers'].shown} {anchor.workers}: the anchor's time includes waits for its "
                    f"loader, so it tells of one GPU with {anchor.workers} workers; asked for are {question.n_gpus} "
                    f"with {question.workers}. Pass {named('workers')} {anchor.workers}, or an iteration's time "
                    "without waits."
                ).about("anchors")
        own = question.measurements
        if own is not None and not isinstance(own, OwnMeasurements):
            own = OwnMeasurements.of(own, model)
        if own is not None and own.proxies_alone and not question.method == "proxy-times":
            raise DataError(
                "the measurements hold only proxies, neither operators nor trained CNNs, which only --method "
                "proxy-times uses. Ask for it, or measure operators with `epochcast profile --preset quick`."
            )
        return Known(own.model if own else model, anchors, own)

    @cached_property
    def training(self) -> Training:
        """Framework, precision and other options with which the question trains."""
        return self._options_of(Training)

    def _options_of(self, kind: type[Options]) -> Options:
        """The question's options of this kind."""
        kind_: Any = kind
        return kind(*_values_of(kind_)(self.question))

    @cached_property
    def habits(self) -> Habits:
        """Switches of PyTorch that are on; SchemaError where it has none, or by a method that knows no GPU's time."""
        question = self.question
        habits = Habits(question.deterministic, question.detect_anomaly)
        how = [question.framework, question.capture, *[question.method] * question.is_whole]
        name = "detect_anomaly" if habits.detect_anomaly else "deterministic"  # the former waits: in no graph
        is_captured = how[1] != "eager" if habits.detect_anomaly else how[1] in COMPILED
        if any(habits) and (how[0] != "pytorch" or is_captured or question.is_whole):
            raise SchemaError(
                f"{named(name)} is a switch of PyTorch's eager mode, and asked is {', '.join(how)}. Leave it out."
            ).about(name)
        return habits

    @cached_property
    def devices(self) -> list[Device]:
        """Each GPU with its mode; errors as of `gpus_of`.

        With several GPUs ``"all"`` are those that an offer has enough of. Compared are, unless some are named, those
        for rent, of marketplaces only if they are asked for.
        """
        question, for_rent = self.question, self.question.gpus is None and self.answer == "compare"
        precision, capture = question.precision, question.capture
        gpus = gpus_of("all" if for_rent else question.gpus, precision, capture)
        if not for_rent and (
            question.n_gpus == 1 or question.link is not None or "all" not in as_list(question.gpus)
        ):
            return self.training.on_each(gpus)
        marketplaces, per_node = self._takes_marketplaces or not for_rent, self.team.per_node
        offered = self.prices.of_each(per_node, spot=question.spot)
        gpus = [
            gpu for gpu in gpus
            if any(marketplaces or not offer.marketplace for offer in offered.get(gpu.name, ()))
        ]  # fmt: skip
        if gpus:
            return self.training.on_each(gpus)
        offers = list(self.prices)
        # fmt: off
        filters: tuple[tuple[str, str, Callable[[Offer], bool]], ...] = (
            ("offers", "has no price of today. Pass a file that has", lambda offer: not offer.historic),
            ("marketplaces", "is not passed, and all offers are a marketplace's. Pass it",
             lambda offer: marketplaces or not offer.marketplace),
            ("precision", f"{precision!r}: no GPU on offer has it. Leave it out, or pass other offers",
             lambda offer: precision is None or precision in precisions_of(find_gpu(offer.gpu))),
            ("capture", f"{capture!r}: PyTorch compiles for no GPU on offer. Leave it out, or pass other offers",
             lambda offer: capture not in COMPILED or compiles(find_gpu(offer.gpu))),
            ("spot", "asks for spot prices, and no offer has one. Leave it out, or pass offers with spot_usd_per_hour",
             lambda offer: hourly_usd(offer, question.spot) < math.inf),
        )
        # fmt: on
        for option, wrong, holds in filters:
            offers = list(filter(holds, offers))
            if not offers:
                raise OutOfRangeError(f"{named(option)} {wrong}.").about(option)
        most = max(offer.gpu_count for offer in offers)
        raise OutOfRangeError(
            f"{named('n_gpus')} {question.n_gpus} takes {per_node} GPUs of one machine, and the largest on offer "
            f"has {most:g}. Pass fewer, more {named('nodes')}, or offers of larger machines."
        ).about("n_gpus")

    @cached_property
    def left_out(self) -> tuple[LeftOut, ...]:
        """The GPUs that were named and are not among `devices`, since they lack the precision; errors as of it."""
        if self.question.gpus is None or self.question.precision is None or not self.devices:
            return ()
        names = _each_name(self.question.gpus)
        if len(names) == len(self.devices) and not any(map(_is_all, names)):  # each name is one of them
            return ()
        return left_out_of(self.question.gpus, self.question.precision)

    @cached_property
    def tables(self) -> list[LayerTable]:
        """Layer table of each CNN at the image size given, else the data set's, else its own."""
        if not as_list(self.question.cnn):
            raise SchemaError(
                "no CNN is given. Pass a name, such as 'resnet50'; `epochcast cnn list` shows them."
            )
        tables = [resolve_cnn(cnn, self.image_size_of(cnn)) for cnn in as_list(self.question.cnn)]
        if self.question.gradient_accumulation > 1:
            tables = [table.accumulated(self.question.gradient_accumulation) for table in tables]
        for table in tables:
            if not table.has_gradients:
                raise SchemaError(
                    f"{table.cnn} computes no gradients: nothing in it is trainable, or it runs without gradients. "
                    "What is predicted is training: give it as it is trained, with loss.backward()."
                )
        return tables

    @cached_property
    def side_by_side(self) -> list[tuple[LayerTable, int]]:
        """Layer table and batch size of the question's training, and of each one `beside` it on the same GPU.

        SchemaError unless the question has one CNN and one batch size and no anchors; UnknownCnnError for a neighbour
        that is not in the zoo: a service takes no path.
        """
        question, sides = self.question, list(product(self.tables, self.question.batch_sizes or []))
        texts = question.side_by_side[1:]
        whole_number(f"the number of trainings {named('beside')}", len(texts), 1, MAX_PER_GPU - 1)
        if len(sides) != 1 or question.anchors:
            raise SchemaError(
                f"{named('beside')} {question.beside} stands beside one training. Pass one CNN and one batch size, "
                "and no anchors."
            ).about("beside")
        for text in texts:
            cnn, _, size = text.strip().rpartition(":")
            own_size = None if "@" in cnn else question.image_size
            try:
                batch_size = whole_number(f"{text!r}: batch size", size, 1, MAX_BATCH_SIZE)
                zoo_cnn(name_and_size(cnn or text)[0])
                neighbour = replace(question, cnn=cnn, image_size=own_size, beside=None)
                sides += product(ResolvedQuestion(neighbour).tables, [batch_size])
            except EpochcastError as error:
                message = f"{named('beside')}: {error} Write CNN:BATCH, such as resnet50:64."
                error_here = type(error)(message)
                error_here.option = "beside"  # not the question's own CNN
                raise error_here from None
        return sides

    def image_size_of(self, cnn: object) -> int | None:
        """Image size at which `cnn` is trained: as given, else the data set's; None leaves it to the CNN.

        A layer table, a file and most Keras models have a size of their own; a CNN of the zoo takes the data set's
        images as they are, but its own usual size where the data set's images vary (ImageNet); a module is given the
        data set's size.
        """
        data_set = self.data_set
        if self.question.image_size is not None or data_set is None:
            return self.question.image_size
        if has_own_image_size(cnn):
            return None
        return None if data_set.resized and isinstance(cnn, str) else data_set.image_size

    @cached_property
    def other_forms(self) -> list[str]:
        """Texts of `other_form_in_words` about the CNNs given by name."""
        cnns = as_list(self.question.cnn)
        return list(filter(None, (other_form_in_words(cnn, self.image_size_of(cnn)) for cnn in cnns)))

    @cached_property
    def data_set(self) -> TrainingSet | None:
        """The data set of that name, or `samples` of its images; None if none is given."""
        if self.question.data_set is None:
            return None
        training_set = find_training_set(self.question.data_set)
        return training_set if self.question.samples is None else training_set.part(self.question.samples)

    @cached_property
    def samples(self) -> int | None:
        """Training samples per epoch: as given, or those of the data set; None if neither is given.

        As many as there may be where the loop fixes an epoch's iterations.
        """
        if self.question.framework_loop in FIXED_EPOCHS:
            return MAX_SAMPLES
        return self.question.samples if self.data_set is None else self.data_set.samples

    @cached_property
    def part_in_words(self) -> str | None:
        """How much of a data set an epoch is: ``10,000 of the 1,281,167 images of imagenet``; None unless a part."""
        if self.question.samples is None or self.question.data_set is None:
            return None
        training_set = find_training_set(self.question.data_set)
        return f"{self.question.samples:,} of the {training_set.samples:,} images of {training_set.name}"

    @property
    def epoch_in_words(self) -> str | None:
        """What an epoch runs: its loop's own iterations, a data set or a part of it; None where neither is named."""
        return self.question.epoch_of_loop or self.part_in_words or self.question.data_set

    @cached_property
    def prices(self) -> Prices:
        """The offers themselves, those of a price file, or the shipped ones; or your own machine.

        Marketplaces stand in where nobody else rents a GPU; with `marketplaces` they count everywhere.
        """
        question, offers = self.question, self.question.offers
        if question.usd_per_hour is not None:
            of_rented = ("spot", "marketplaces", "provider", "offer_region", "offers")
            rented = [name for name in of_rented if getattr(question, name)]
            if rented:
                raise SchemaError(
                    f"{named('usd_per_hour')} is of your own machine, {named(rented[0])} of rented ones. Pass one of "
                    "them."
                ).about("usd_per_hour")
            if question.gpus is None:
                raise SchemaError(
                    f"{named('usd_per_hour')} is of your own machine: name its GPU. To compare it with offers, write "
                    "it into a price file: epochcast offer own."
                ).about("usd_per_hour")
            gpus = gpus_of(question.gpus, question.precision, question.capture)
            count, usd = self.team.per_node, question.usd_per_hour
            return Prices(Offer("own", "machine", gpu.name, count, usd) for gpu in gpus)
        if offers is None or isinstance(offers, str | PathLike):
            offers = load_offers(offers)
        elif not isinstance(offers, Prices):
            right = "a price file, or Offers"
            offers = Prices(of_kind(named("offers"), offer, Offer, right) for offer in offers)
        if question.provider is not None or question.offer_region is not None:
            offers = chosen_offers(offers, question.provider, question.offer_region, named)
        return offers if self._takes_marketplaces else offers.without_marketplaces

    @property
    def _takes_marketplaces(self) -> bool:
        """Whether marketplaces count for every GPU: asked for, or named as the provider."""
        names = (self.question.provider or "!").split(",")
        return self.question.marketplaces or not all(name.startswith("!") for name in names)

    def cheapest_of(self, gpus: Collection[str]) -> dict[str, Offer]:
        """The cheapest machine with enough of each of these GPUs, by the GPU's name."""
        offered = self.prices.of_each(self.team.per_node, spot=self.question.spot)
        return {gpu: offered[gpu][0] for gpu in gpus if gpu in offered}

    @cached_property
    def host(self) -> str | HostMeasurement | None:
        """The host by its name, or as measured: a file of `epochcast host`, or a table of a profile or of watch."""
        host = self.question.host
        return read_host(Path(host)) if host is not None and is_host_file(host) else host

    @cached_property
    def input(self) -> InputMeasurement | None:
        """The rates of the loader's file; None if none is given."""
        loader = self.loading.loader or ""
        return read_input(Path(loader)) if loader.casefold().endswith(".json") else None

    @cached_property
    def loading(self) -> LoadingOptions:
        """How images are loaded; SchemaError where its options contradict each other."""
        return self._options_of(LoadingOptions)

    @cached_property
    def team(self) -> TeamOptions:
        """The GPUs that train together."""
        team, question = self._options_of(TeamOptions), self.question
        if not team.has_replicas:
            return team
        if question.framework != "pytorch" or question.capture != "eager":
            raise SchemaError(
                f"{named('parallel')} 'dp' is PyTorch's nn.DataParallel without capture, and asked for are "
                f"{named('framework')} {question.framework} and {named('capture')} {question.capture}. Pass ddp."
            ).about("parallel")
        # of one GPU a recorded DataParallel runs its module, as any other
        alone = team.n_gpus == 1 and question.followed("parallel")
        return replace(team, parallel=PARALLELS[0]) if alone else team

    @property
    def is_bound_by_default(self) -> bool:
        """Whether a comparison counts loading without being asked: the data set is stored as JPEGs."""
        data_set = self.data_set
        return self.loading.loader != "none" and data_set is not None and data_set.stored == "jpeg"

    @property
    def images_from_host(self) -> bool:
        """Whether loading is counted, so that mini-batches come from the host, and not from the GPU's memory."""
        return self.loading.is_asked or (self.answer == "compare" and self.is_bound_by_default)

    def local_sizes(self, batch_sizes: Sequence[int]) -> list[int]:
        """Images of one GPU at each of these batch sizes; errors as of `TeamOptions.check` and `MiniBatch.check`."""
        question = self.question
        self.team.check(question.method)
        if question.gradient_accumulation > 1 and question.is_whole:
            raise SchemaError(
                f"{named('method')} {question.method!r} predicts an iteration of one mini-batch as a whole, and "
                f"{named('gradient_accumulation')} is {question.gradient_accumulation}. Leave one of them out."
            ).about("method")
        return MiniBatch.locals_of(batch_sizes, question.n_gpus, question.parts)

    def anchors(self, table: LayerTable, training: Training) -> tuple[Anchor, ...]:
        """The measurements of a CNN trained so: in the question's mode those given, and always the user's own.

        OutOfRangeError if one is shorter than its GPU can compute.
        """
        anchors = self.known.anchors if training == self.training else ()
        anchors = tuple(
            self._of_full(anchor, table, training) for anchor in anchors if anchor.workers is None
        )
        all_anchors = anchors + (self.known.own.anchors(table, training.on) if self.known.own else ())
        for anchor in all_anchors:
            gpu = device_of(anchor.gpu)
            precision = anchor.precision or training.on(gpu).precision
            about = f"the anchor's time on {gpu.name}"
            check_not_too_short(anchor.iteration_time_ms, about, table, gpu, precision, anchor.batch_size)
        return all_anchors

    def _of_full(self, anchor: Anchor, table: LayerTable, training: Training) -> Anchor:
        """An epoch's mean iteration as a full one: its last one takes the share of a full one that the model gives."""
        size = anchor.batch_size
        if anchor.samples is None or not anchor.samples % size:
            return anchor
        device, n = training.on_each([device_of(anchor.gpu)])[0], math.ceil(anchor.samples / size)
        if anchor.precision is not None:
            device = device[0], training.in_precision(anchor.precision)
        sizes = [anchor.samples % size, size]
        [forecast] = self.known.model.forecasts(table, [device], sizes, host=self.host)
        last, full = forecast.iteration_time_ms.tolist()
        return replace(anchor, iteration_time_ms=anchor.iteration_time_ms * n / (n - 1 + last / full))


@cache
def _values_of(kind: Any) -> attrgetter[tuple[Any, ...]]:
    """Gives the values that a question has of the fields of a dataclass, in their order."""
    return attrgetter(*(column.name for column in fields(kind)))


def gpus_of(gpus: object, precision: str | None = None, capture: str = "eager") -> list[Gpu]:
    """GPUs among `gpus` that train in `precision`; only ``"all"`` leaves out those that lack `capture`.

    A named GPU that lacks `capture` is returned: `predictor.models.compiled.check_compiles` refuses it in the answer.
    They are named as of `find_gpu`, or ``cpu:<model>`` for a CPU whose operators were measured. SchemaError if none is
    given; UnknownGpuError if a name is unknown or fits several GPUs; OutOfRangeError if all lack the precision, with
    those that the first has.
    """
    chosen: dict[str, Gpu] = {}
    for gpu in _each_name(gpus):
        able_gpus = filter(compiles, all_gpus()) if capture in COMPILED else all_gpus()
        chosen |= {named_gpu.name: named_gpu for named_gpu in (able_gpus if _is_all(gpu) else [_named(gpu)])}
    if not chosen:
        lacking = SchemaError("no GPU is given. Pass names, or 'all'; `epochcast gpu list` shows them.")
        raise lacking.about("gpus")
    able = [gpu for gpu in chosen.values() if precision is None or precision in precisions_of(gpu)]
    if precision is not None and not able:
        check_precision(next(iter(chosen.values())), precision)
    return able


def left_out_of(gpus: object, precision: str | None) -> tuple[LeftOut, ...]:
    """Named GPUs that lack the precision; errors are those of `gpus_of`."""
    names = [gpu for gpu in _each_name(gpus) if not _is_all(gpu)] if precision else []
    named_gpus = dict.fromkeys(map(_named, names))
    return tuple(
        LeftOut(gpu.name, precision, f"the GPU has {', '.join(precisions_of(gpu))}")
        for gpu in named_gpus
        if precision is not None and precision not in precisions_of(gpu)
    )


def _each_name(gpus: object) -> list[object]:
    """Members of a list; a text may hold several names, with commas between, but for a CPU's."""
    several = (gpu.split(",") if isinstance(gpu, str) and not is_cpu(gpu) else [gpu] for gpu in as_list(gpus))
    return [name for names in several for name in names]


def _is_all(gpu: object) -> bool:
    return isinstance(gpu, str) and gpu.strip().casefold() == "all"


def _named(gpu: object) -> Gpu:
    right = "a name such as 'H100 SXM', 'all', or a list of names; `epochcast gpu list` shows them"
    gpu_or_name = of_kind(named("gpu"), gpu, (str, Gpu), right)
    return gpu_or_name if isinstance(gpu_or_name, Gpu) else device_of(gpu_or_name)


_mode = lru_cache(maxsize=256)(Mode)  # GPUs share a few


def load_model(model: Model | str | PathLike[str] | None) -> Model:
    """Return the model itself, the one in a JSON file, or the default that comes with epochcast."""
    if model is None or isinstance(model, str | PathLike):
        from predictor.models.served import Model

        return Model.load(model)
    return model


def anchor_from(cells: dict[str, Any], model: Model, mode_on: Callable[[Gpu], Mode]) -> Anchor:
    """Anchor from a mapping with the keys of `ANCHOR_FIELDS`; SchemaError without GPU, batch size or one time."""
    cells = renewed({key: value for key, value in cells.items() if value not in (None, "")}, ANCHOR_FIELDS)
    missing = [key for key in ("gpu", "batch_size") if key not in cells]
    unknown = sorted(set(cells) - set(ANCHOR_FIELDS))
    if missing or unknown:
        wrong = [f"lacks {', '.join(ANCHOR_FIELDS[key].shown for key in missing)}"] * bool(missing)
        wrong += [f"has the unknown {', '.join(unknown)}"] * bool(unknown)
        raise SchemaError(f"the anchor {' and '.join(wrong)}. Give its gpu, its batch_size and one time.")
    gpu = find_gpu(str(cells["gpu"]))
    mode = mode_on(gpu)
    check_precision(gpu, mode.precision)
    batch_size = whole_number(_shown_in_anchor("batch_size"), cells["batch_size"], high=MAX_BATCH_SIZE)
    shown = {name: anchor_field.shown for name, anchor_field in ANCHOR_FIELDS.items()}
    times = [key for key in ("iteration_time_ms", "epoch_time_s", "images_per_s") if key in cells]
    if len(times) != 1:
        raise SchemaError(
            f"the anchor has {len(times)} times ({', '.join(times) or 'none'}). Give exactly one: "
            f"{shown['iteration_time_ms']}, {shown['epoch_time_s']} with {shown['samples']}, or "
            f"{shown['images_per_s']}."
        )
    [kind], samples = times, None
    time_ms = value = number_within(_shown_in_anchor(kind), cells[kind], high=ANCHOR_FIELDS[kind].high)
    if "samples" in cells and kind != "epoch_time_s":
        raise SchemaError(
            f"the anchor's {shown['samples']} belongs to {shown['epoch_time_s']}, and {shown[kind]} is given. Leave it "
            "out."
        )
    if kind == "images_per_s":
        time_ms = 1000.0 * batch_size / value
    elif kind == "epoch_time_s":
        if "samples" not in cells:
            raise SchemaError(
                f"the anchor's {shown[kind]} needs {shown['samples']}, the training samples of that epoch. Give both."
            )
        samples = whole_number(_shown_in_anchor("samples"), cells["samples"])
        iterations = math.ceil(samples / batch_size)
        time_ms = 1000.0 * value / iterations
        # an epoch's overhead is a few percent: t <- t * measured / predicted(t) converges soon
        for _ in range(50):
            predicted = float(model.epoch_time_s([iterations], [time_ms], mode)[0])
            time_ms *= value / predicted
            if abs(predicted / value - 1.0) < 1e-9:
                break
    image_size, workers = cells.get("image_size"), cells.get("workers")
    if image_size is not None:
        image_size = whole_number(_shown_in_anchor("image_size"), image_size)
    if workers is not None:
        workers = whole_number(_shown_in_anchor("workers"), workers, low=0, high=MAX_WORKERS)
    return Anchor(gpu.name, batch_size, time_ms, image_size, mode.precision, workers=workers, samples=samples)


def _shown_in_anchor(name: str) -> str:
    """A field of an anchor in messages."""
    shown = ANCHOR_FIELDS[name].shown
    return f"anchor {name}" if shown == name else shown


@dataclass(frozen=True, slots=True, eq=False)
class OwnMeasurements:
    """A user's own measurement table: a model with its operators and proxies, and its whole CNNs as records."""

    model: Model
    targets: tuple[Mapping[Any, Any], ...]
    proxies_alone: bool = False

    @classmethod
    def of(cls, table: pd.DataFrame | str | PathLike[str], model: Model) -> OwnMeasurements:
        """Read a measurement table, and fit its operators and proxies on top of a copy of `model`.

        DataError or SchemaError if the table cannot be read, or holds neither operators, proxies nor CNNs as trained.
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

        libraries = [library for library in self.model.layers.added if library.gpu == gpu.name]
        rows = [row for row in self.targets if str(row["gpu"]) == gpu.name]
        used = library_mode(gpu, mode) in libraries or any(
            parts == 1 and _measured_ms(row, mode) is not None for row in rows
        )
        if used or not (libraries or rows):
            return None
        measured = {f"{library.precision}, {library.memory_format}" for library in libraries}
        measured |= {
            f"{row['precision']}, {_or_default(row.get('memory_format'), 'nchw')}{_compiled(row.get('capture'))}"
            for row in rows
        }
        return Reason(
            "measurements",
            f"yours on {gpu.name} are not used: they are of {' and '.join(sorted(measured))}, the answer is of "
            f"{mode.precision}, {mode.memory_format}{_compiled(mode.capture)}"
            f"{f', in {parts} parts' * (parts > 1)}; ask for the mode that you measured",
        )

    def runs_of(self, table: LayerTable) -> list[tuple[str, int, Mapping[Any, Any]]]:
        """GPU, batch size and all columns of each measurement in any mode, by name and image size of this CNN."""
        cnn = table.cnn, table.image_size
        rows = [row for row in self.targets if (row["cnn"], row["image_size"]) == cnn]
        return [(str(row["gpu"]), int(row["batch_size"]), row) for row in rows]

    def anchors(self, table: LayerTable, mode_on: Callable[[Gpu], Mode]) -> tuple[Anchor, ...]:
        """The table's measurements of this CNN at its image size, each in the mode asked for on its GPU.

        None of a CNN whose mini-batch is accumulated in parts, or of which blocks are recomputed: they are of
        iterations that do neither.
        """
        if table.parts > 1 or table is not table.without_recomputing():
            return ()
        anchors: list[Anchor] = []
        for gpu, batch_size, row in self.runs_of(table):
            mode = mode_on(device_of(gpu))
            time_ms = _measured_ms(row, mode)
            if time_ms is not None:
                beside = _or_default(row.get("loader_workers"), None) != 0
                anchor = Anchor(
                    gpu, batch_size, time_ms, int(row["image_size"]), mode.precision, of_table=True
                )
                anchors.append(replace(anchor, beside_loader=beside))
        return tuple(anchors)


def _measured_ms(row: Mapping[Any, Any], mode: Mode) -> float | None:
    """Iteration time of a row in this mode, whose missing values count as the defaults; None where it has another.

    Of a captured graph the GPU time, which compiled iterations do not have.
    """
    usual = Mode()
    for word in ("framework", "precision", "memory_format", "autotune", "optimizer", "xla"):
        if str(_or_default(row.get(word), getattr(usual, word))) != str(getattr(mode, word)):
            return None
    setting = _or_default(row.get("float32_matmul_precision"), usual.float32_matmul_precision)
    if products_in_fp32(mode.framework, mode.precision, setting) != mode.fp32_products:
        return None
    capture = _or_default(row.get("capture"), "eager")
    if capture == mode.capture:
        return float(row["iteration_time_ms"])
    busy = _or_default(row.get("gpu_time_ms"), None)
    return float(busy) if busy is not None and mode.replays and capture not in COMPILED else None


def _compiled(capture: Any) -> str:
    return f", {capture}" if capture in COMPILED else ""


def _or_default(value: Any, default: Any) -> Any:
    missing = value is None or str(value) in ("", "<NA>", "nan")
    return default if missing else value
