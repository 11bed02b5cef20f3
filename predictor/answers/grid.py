"""Iterations of a CNN on a grid of devices x batch sizes: all that no offer changes, and the only caller of the model.

A device is a GPU in a mode, so that usual, fast, compiled and autotuned iterations lie on one axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import product, repeat
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from predictor.answers.coded import Coded
from predictor.answers.question import Question, named
from predictor.answers.resolved import Device, ResolvedQuestion, Training
from predictor.arrays import Array
from predictor.catalogue.devices import Gpu, device_of, is_cpu, rates_of
from predictor.catalogue.modes import FIXED_EPOCHS, Mode
from predictor.checks import MAX_BATCH_SIZE
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError, SchemaError
from predictor.measurements.hosts import HostMeasurement
from predictor.models.chainer import with_convolutions
from predictor.models.data_parallel import Gradients, Team, team_reasons, team_times
from predictor.models.epoch_start import first_calls_of_each_s
from predictor.models.epochs import last_mini_batch, run_samples
from predictor.models.extrapolation import of_warning
from predictor.models.forecast import TIMES, Anchor, IterationForecast, Reason
from predictor.models.forecasts import Forecasts, positions_of_modes
from predictor.models.habits import with_habits
from predictor.models.packed import packed_reasons, packed_times
from predictor.models.power import PowerOfGpus
from predictor.models.ratios import ratios_of
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.memory import largest_batches_within, more_context_gib, peak_memories_gib, usable_gib
from predictor.operators.operators import counted_operators
from predictor.operators.work import roofline_ms, share_of_types

if TYPE_CHECKING:
    from predictor.models.served import Model


NEAR_BEST = 1.05
"""Batch sizes within this factor of the best epoch time are equally good; the smallest is recommended."""

MOST_COMPARED = 256
"""Largest batch size at which GPUs are compared if none is given: much larger ones need another learning rate and cost
accuracy."""

LARGEST_TRIED = 4096
"""Largest batch size that comparisons try: beyond it nothing was measured."""

NOT_ONE_IMAGE = (
    "the CNN does not fit in the memory of any of these GPUs, not even with one image. "
    "Ask for GPUs with more memory, smaller images, or a precision such as amp_bf16."
)

_FEWEST_COMPARED = 32  # a GPU that holds fewer images is not compared at what it holds


def largest_local_batch_sizes(
    table: LayerTable,
    devices: Sequence[tuple[Gpu, Mode]],
    n_gpus: int = 1,
    per_gpu: int = 1,
    others_gib: Iterable[float] = repeat(0.0),
) -> list[int | None]:
    """Largest batch size on each GPU whose estimated peak fits in its memory, of which others have `others_gib`.

    Of `n_gpus` GPUs together, each with `per_gpu` such trainings; for one, a multiple of the parts of the mini-batch,
    at most 65,536. None where not even one image fits.
    """
    usable = _usable_gib(tuple(gpu for gpu, _ in devices), per_gpu)
    rooms = [room_gib - taken_gib for room_gib, taken_gib in zip(usable, others_gib, strict=False)]
    largest: list[int | None] = [None] * len(rooms)
    for mode, positions in positions_of_modes(devices).items():
        distinct = dict.fromkeys(rooms[position] for position in positions)
        limits = dict(zip(distinct, largest_batches_within(table, tuple(distinct), mode), strict=True))
        for position in positions:
            limit = limits[rooms[position]]
            largest[position] = n_gpus * (limit - limit % table.parts) or None
    return largest


@lru_cache(maxsize=256)
def _usable_gib(gpus: tuple[Gpu, ...], per_gpu: int = 1) -> tuple[float, ...]:
    """`usable_gib` of each GPU; cached: the same GPUs are asked about one CNN after another."""
    return tuple(usable_gib(gpu, per_gpu) for gpu in gpus)


def batch_sizes_to_try(largest: Iterable[int | None], samples: int | None, n_gpus: int = 1) -> list[int]:
    """Powers of two, for each GPU, up to the largest batch size that fits anywhere, and the epoch's samples.

    Where GPUs run their share in several parts, `n_gpus` counts the parts of all. OutOfRangeError if no GPU holds a
    single image.
    """
    holding = [size for size in largest if size is not None]
    if not holding:
        raise OutOfRangeError(NOT_ONE_IMAGE).about("gpus")
    most = min(max(holding), samples or MAX_BATCH_SIZE)
    return [n_gpus * 2**i for i in range(max(1, most // n_gpus).bit_length())]


def common_batch_size(largest: Sequence[int | None], samples: int | None, n_gpus: int = 1) -> int:
    """The batch size at which GPUs are compared: the largest power of two up to 256 that more than half of them hold.

    GPUs that hold fewer than 32 images are not counted, unless all hold fewer. Of several GPUs that train together it
    is the mini-batch of all of them.
    """
    holding = [size for size in largest if size is not None]
    enough = sorted((size for size in holding if size >= _FEWEST_COMPARED), reverse=True)
    most = enough[len(enough) // 2] if enough else max(holding)
    return batch_sizes_to_try([min(most, max(n_gpus, MOST_COMPARED))], samples, n_gpus)[-1]


def usual_batch_size(*questions: Question) -> int:
    """The batch size at which the GPUs of questions about one CNN each are compared: the least of theirs."""
    sizes = []
    for resolved in map(ResolvedQuestion.of, questions):
        question, [table] = resolved.question, resolved.tables
        largest = largest_local_batch_sizes(table, resolved.devices, question.n_gpus, resolved.team.trainings)
        sizes.append(common_batch_size(largest, resolved.samples, question.n_gpus * question.parts))
    return min(sizes)


def compared_batch_sizes(common: int, largest: Sequence[int | None], n_gpus: int = 1) -> list[int]:
    """The batch size at which each GPU is compared: the common one, or the largest power of two that it holds.

    A GPU that does not hold 32 images stays at the common size, which does not fit.
    """
    return [
        common
        if most is None or most >= common or most < _FEWEST_COMPARED
        else batch_sizes_to_try([most], None, n_gpus)[-1]
        for most in largest
    ]


def best_of_gpus(time_s: Array, fits: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether each batch size is the smallest of its GPU that fits and lies within 5 % of the best that fits.

    `time_s`, `fits`, shape (n_gpus, n_batches): time of an epoch, or of an image.
    """
    fitting = np.where(fits, time_s, np.inf)
    near = fits & (fitting <= NEAR_BEST * fitting.min(axis=1, keepdims=True))
    best: NDArray[np.bool_] = near & (np.arange(near.shape[1]) == near.argmax(axis=1)[:, None])
    return best


def fastest_sizes(rates: Array, held: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The place of the smallest batch size within 5 % of the best throughput of those held; -1 where none is held.

    `rates`, `held`, shape (n_gpus, n_sizes): throughput, and whether a GPU holds the batch size and it is to be tried;
    sizes ascend.
    """
    best = np.where(held, rates, -np.inf).max(axis=1, keepdims=True)
    near = held & (NEAR_BEST * rates >= best)
    return np.where(held.any(axis=1), near.argmax(axis=1), -1)


Places = NDArray[np.int64]
Reasons = tuple[Reason, ...]

_KEPT = 24
"""Grids that are kept, some megabytes each for all GPUs: a comparison needs three."""

_BY_ROW = (
    *("device", "team", "local_batch_size", "one_ms", "memory_gib", "extrapolates"),
    *("beside_loader", "factor", "per_gpu", "per_vcpu"),
)

WORDS = ("host", "method", "trained_on")
"""What a forecast says in words, alike at all batch sizes."""


def forecasts_of(
    resolved: ResolvedQuestion,
    table: LayerTable,
    devices: Sequence[Device],
    local_batch_sizes: Sequence[int] | Array,
    anchors: Sequence[Anchor] = (),
    method: str | None = None,
) -> Forecasts:
    """The model's iterations on one GPU of each device, on the question's host, by its method if no other is given.

    They are kept, but for those on a measured host: the same training with other epochs, prices or wishes asks for the
    same.
    """
    method, options = method or resolved.question.method, resolved.images_from_host
    if isinstance(resolved.host, HostMeasurement):
        anchored_by = anchors, method, resolved.host
        forecasts = Forecasts.of(
            resolved.known.model.forecasts(table, devices, local_batch_sizes, *anchored_by, from_host=options)
        )
    else:
        sizes = tuple(np.asarray(local_batch_sizes).tolist())
        gpus = tuple(gpu for gpu, _ in devices)
        modes = tuple((mode, tuple(positions)) for mode, positions in positions_of_modes(devices).items())
        key = table, gpus, modes, sizes, tuple(anchors), method, resolved.host, options
        forecasts = _kept_forecasts(resolved.known.model, *key)
    if any(resolved.habits):
        batches = np.asarray(local_batch_sizes, dtype=float)

        def in_habit(position: int, forecast: IterationForecast) -> IterationForecast:
            gpu, mode = devices[position]
            if "anchored" in forecast.method or mode.is_compiled:
                return forecast
            return with_habits(forecast, table, gpu, mode, batches, resolved.habits)

        return forecasts.changed(in_habit)
    if resolved.question.framework != "chainer":
        return forecasts
    no_cudnn, workspace_mib = resolved.question.no_cudnn, resolved.question.workspace_mib
    by_chainer = partial(with_convolutions, no_cudnn=no_cudnn, workspace_mib=workspace_mib)
    # an anchor's run holds the effect
    return forecasts.changed(lambda _, own: own if "anchored" in own.method else by_chainer(own))


@lru_cache(maxsize=_KEPT)
def _kept_forecasts(
    model: Model,
    table: LayerTable,
    gpus: tuple[Gpu, ...],
    modes: tuple[tuple[Mode, tuple[int, ...]], ...],
    local_batch_sizes: tuple[float, ...],
    anchors: tuple[Anchor, ...],
    method: str,
    host: str | None,
    from_host: bool,
) -> Forecasts:
    """The model's iterations, whose arrays nobody may change; `modes`: each with the positions of its GPUs."""
    mode_of = {position: mode for mode, positions in modes for position in positions}
    devices = [(gpu, mode_of[position]) for position, gpu in enumerate(gpus)]
    forecasts = Forecasts.of(
        model.forecasts(table, devices, local_batch_sizes, anchors, method, host, from_host=from_host)
    )
    forecasts.times.flags.writeable = False
    return forecasts


@dataclass(frozen=True, eq=False)
class Devices:
    """GPUs in their modes, and what no batch size changes of a CNN on them; arrays have an entry per device.

    `words` maps each of `WORDS` to a list.
    """

    table: LayerTable
    pairs: Sequence[Device]
    words: dict[str, list[str]]
    _largest: dict[int, list[int | None]] = field(default_factory=dict, init=False)

    @cached_property
    def gpus(self) -> list[Gpu]:
        """The GPUs."""
        return [gpu for gpu, _ in self.pairs]

    def largest(self, per_gpu: int = 1) -> list[int | None]:
        """The largest batch size at which this number of trainings fits on one GPU; None where not one image does."""
        if per_gpu not in self._largest:
            self._largest[per_gpu] = largest_local_batch_sizes(self.table, self.pairs, per_gpu=per_gpu)
        return self._largest[per_gpu]

    @cached_property
    def usable_gib(self) -> Array:
        """Memory of each GPU that the estimate may fill."""
        return np.array(_usable_gib(tuple(self.gpus)))

    @cached_property
    def first_calls_s(self) -> Array:
        """Seconds that a training takes longer at first whatever its batch size; NaN where no start was measured."""
        return first_calls_of_each_s(self.table, self.pairs)

    @cached_property
    def power(self) -> PowerOfGpus:
        """Inputs of the law of power, an entry per device."""
        return PowerOfGpus.of(self.table, self.gpus, [mode.precision for _, mode in self.pairs])


@dataclass(frozen=True, eq=False)
class Iterations:
    """Rows of a grid: a device, or a team of its GPUs, at one batch size; arrays have an entry per row.

    `device` is the place of each row's device, `team` that of its team in `teams`, where None is one GPU,
    `local_batch_size` the images of one GPU. `times` are the columns `TIMES` in ms, NaN where unknown; `one_ms` is the
    iteration of one GPU of the team, `memory_gib` the peak of one GPU, `extrapolates` its reasons for caution.
    `beside_loader`: the times follow a training whose host worked beside its loader. `grid` holds one GPU of each
    device at all batch sizes that were computed, device by device, and `factor` is what times were multiplied by.
    `per_gpu` trainings share each GPU: times are of one of them, `memory_gib` is of all; until `on_vcpus` says how many
    hosts work on each vCPU of the machine (`per_vcpu`), times are of one by itself. They are equal, unless `beside` has
    the other ones, a row for each device.
    """

    resolved: ResolvedQuestion
    devices: Devices
    device: Places
    teams: Sequence[Team | None]
    team: Places
    local_batch_size: Places
    times: dict[str, Array]
    one_ms: Array
    memory_gib: Array
    extrapolates: Coded
    beside_loader: NDArray[np.bool_]
    factor: Array
    per_gpu: Places
    per_vcpu: Array
    grid: Iterations | None = None
    beside: Sequence[Iterations] = ()

    @classmethod
    def of(
        cls,
        resolved: ResolvedQuestion,
        table: LayerTable,
        trainings: Sequence[tuple[Training, Sequence[Device]]],
        local_batch_sizes: Sequence[int],
        anchored: bool = True,
        shared_by: Mapping[int, Iterable[int]] | None = None,
    ) -> Iterations:
        """One GPU of each device at each batch size: trainings and their GPUs as given, and within them the sizes.

        `trainings` are the axis of modes: how GPUs train, and these GPUs in their modes. `anchored`: measurements of
        the CNN correct it. `shared_by`: by a number of GPUs, sizes whose `of_epoch` will be asked for.
        """
        asked_sizes = local_batch_sizes
        passes = [n for n in (resolved.samples, resolved.question.validation_samples) if n]
        if resolved.question.framework_loop in FIXED_EPOCHS:  # no last mini-batch of fewer images
            passes = []
        last_sizes = {
            size
            for n_samples, (n_gpus, own) in product(passes, (shared_by or {}).items())
            for size in last_mini_batch(n_samples, np.array([*own]), n_gpus, table.parts).tolist()
        }
        if not last_sizes <= set(asked_sizes):
            local_batch_sizes = sorted(last_sizes.union(asked_sizes))
        by_anchors: dict[tuple[Anchor, ...], list[Training]] = {}
        devices, positions = list[Device](), dict[Training, range]()
        for training, of_training in dict(trainings).items():
            positions[training] = range(len(devices), len(devices) + len(of_training))
            devices += of_training
            by_anchors.setdefault(resolved.anchors(table, training) if anchored else (), []).append(training)
        parts, beside = [], np.zeros(len(devices), dtype=bool)
        extrapolates: list[Sequence[Reasons]] = [()] * len(devices)
        for anchors, trainings_of_anchors in by_anchors.items():
            group = [position for training in trainings_of_anchors for position in positions[training]]
            of_group = [devices[position] for position in group]
            forecasts = forecasts_of(resolved, table, of_group, local_batch_sizes, anchors)
            parts.append((group, forecasts))
            beside[group] = any(anchor.beside_loader for anchor in anchors)
            methods, beyond = forecasts.column("method"), list[Reason]()
            if any("anchored" in method for method in methods):
                beyond = _anchors_beyond(resolved, table, trainings_of_anchors[0], anchors)
            for position, method, own in zip(group, methods, forecasts.column("extrapolates"), strict=True):
                if beyond and "anchored" in method:
                    is_said = any(reason.kind == "anchor" for reasons in own for reason in reasons)
                    own = own if is_said else [(*reasons, *beyond) for reasons in own]
                extrapolates[position] = own
        forecasts = Forecasts.joined(parts)
        sizes = np.array(local_batch_sizes, dtype=np.int64)
        memory_gib = np.empty((len(devices), sizes.size))
        for mode, of_mode in positions_of_modes(devices).items():
            memory_gib[of_mode] = peak_memories_gib(table, local_batch_sizes, mode)
        times = dict(zip(TIMES, forecasts.times.reshape(len(TIMES), -1), strict=True))
        words = {name: forecasts.column(name) for name in WORDS}
        iterations = cls(
            resolved=resolved,
            devices=Devices(table, devices, words),
            device=np.repeat(np.arange(len(devices)), len(sizes)),
            teams=(None,),
            team=np.zeros(len(sizes) * len(devices), dtype=np.int64),
            local_batch_size=sizes[None].repeat(len(devices), axis=0).ravel(),
            times=times,
            one_ms=times["iteration_time_ms"],
            memory_gib=memory_gib.ravel(),
            extrapolates=Coded.of_objects(extrapolates),
            beside_loader=np.repeat(beside, len(sizes)),
            factor=np.ones(len(sizes) * len(devices)),
            per_gpu=np.ones(len(sizes) * len(devices), dtype=np.int64),
            per_vcpu=np.zeros(len(sizes) * len(devices)),
        )
        time_ms = times["iteration_time_ms"]
        bad = np.flatnonzero(~(np.isfinite(time_ms) & (time_ms > 0)))
        if bad.size:
            gpu, _ = devices[iterations.device[bad[0]]]
            raise OutOfRangeError(
                f"the model gives {time_ms[bad[0]]} ms for {table.cnn} on {gpu.name} at batch_size "
                f"{iterations.batch_size[bad[0]]}, which is not a time. Try a batch size nearer to 64, or another "
                "method."
            )
        if local_batch_sizes is asked_sizes:
            return replace(iterations, grid=iterations)
        asked = np.searchsorted(sizes, asked_sizes)
        return iterations.rows((len(sizes) * np.arange(len(devices))[:, None] + asked).ravel())

    @property
    def table(self) -> LayerTable:
        """The CNN."""
        return self.devices.table

    @cached_property
    def waited_ms(self) -> Array:
        """Iterations that anchors measured in their loader; NaN elsewhere."""
        measured_ms = np.full(self.device.shape, math.nan)
        for anchor in self.resolved.known.anchors:
            if anchor.workers is not None:
                names = np.array([gpu.name for gpu in self.devices.gpus])[self.device]
                is_measured = (names == anchor.gpu) & (self.local_batch_size == anchor.batch_size)
                measured_ms[is_measured] = anchor.iteration_time_ms
        return measured_ms

    @cached_property
    def n_gpus(self) -> Places:
        """Number of GPUs that train together in each row."""
        return np.array([1 if team is None else team.n_gpus for team in self.teams])[self.team]

    @cached_property
    def batch_size(self) -> Places:
        """Images of all GPUs of each row."""
        return self.local_batch_size * self.n_gpus

    @cached_property
    def of_epoch(self) -> tuple[Iterations, Iterations, Iterations]:
        """These rows, and the same at the size of the last mini-batch of the training and of the validation pass."""
        if self.resolved.samples is None:
            return self, self, self
        last, validated = (
            self._at(last_mini_batch(n_samples, self.local_batch_size, self.n_gpus, self.table.parts))
            if n_samples.any()
            else self
            for n_samples in self.passes
        )
        return self, last, validated

    @cached_property
    def passes(self) -> tuple[Places, Places]:
        """Samples of the training and of the validation pass that an epoch of each row runs; 0 without samples."""
        question, samples = self.resolved.question, self.resolved.samples
        if samples is None:
            return (np.zeros_like(self.batch_size),) * 2
        more = (self.batch_size, self.n_gpus, question.framework_loop, question.drop_last)
        return run_samples(samples, question.validation_samples, *more)

    def _at(self, local_batch_size: Places) -> Iterations:
        """The same rows with the times of other batch sizes of the grid."""
        if self.grid is None or (local_batch_size == self.local_batch_size).all():
            return self
        sizes = self.grid.local_batch_size[: len(self.grid.device) // len(self.devices.pairs)]
        places = len(sizes) * self.device + np.searchsorted(sizes, local_batch_size)
        times = {name: values[places] for name, values in self.grid.times.items()}
        single = replace(self, local_batch_size=local_batch_size, times=times)
        return single.with_teams(self.teams, self.team).scaled(self.factor).on_vcpus(self.per_vcpu)

    def largest(self, per_gpu: int) -> list[int | None]:
        """Largest batch size on one GPU of each device with this number of equal trainings, or beside the others."""
        if not self.beside:
            return self.devices.largest(per_gpu)
        others_gib: Array = np.sum([neighbour.memory_gib for neighbour in self.beside], axis=0)
        others_gib += per_gpu * np.array(list(map(more_context_gib, self.devices.gpus)))
        return largest_local_batch_sizes(self.table, self.devices.pairs, others_gib=others_gib.tolist())

    @cached_property
    def fits(self) -> NDArray[np.bool_]:
        """Whether each row fits in its GPU's memory."""
        return self.memory_gib <= self.devices.usable_gib[self.device]

    @cached_property
    def most_per_gpu(self) -> Places:
        """Most trainings of each row that the memory of its GPU holds."""
        usable_gib = self.devices.usable_gib[self.device]
        return np.floor(usable_gib * self.per_gpu / self.memory_gib).astype(np.int64)

    def rows(self, places: Sequence[int] | Places) -> Iterations:
        """The rows at these places, with the same `grid`."""
        chosen = np.asarray(places, dtype=np.int64)
        own: dict[str, Any] = {name: getattr(self, name)[chosen] for name in _BY_ROW}
        own["times"] = {name: values[chosen] for name, values in self.times.items()}
        return replace(self, grid=self.grid or self, **own)

    def with_teams(self, teams: Sequence[Team | None], team: Places) -> Iterations:
        """Rows of single GPUs as those of `teams[team]`, with as many images for each of their GPUs."""
        shared = np.flatnonzero(np.array([joined is not None for joined in teams])[team])
        if not shared.size:
            is_same = teams is self.teams and team is self.team
            return self if is_same else replace(self, teams=teams, team=team)
        together = team_times(
            {name: ms[shared] for name, ms in self.times.items()},
            self.table, self.devices.pairs, self.device[shared], teams, team[shared],
        )  # fmt: skip
        times = {name: ms.copy() for name, ms in self.times.items()}
        for name, ms in together.items():
            times[name][shared] = ms
        memory_gib = self.memory_gib.copy()
        memory_gib[shared] += Gradients.of(self.table).gib
        return replace(self, teams=teams, team=team, times=times, memory_gib=memory_gib)

    def scaled(self, factor: Array) -> Iterations:
        """All times x a factor of each row."""
        if (factor == 1.0).all():
            return self
        times = {name: ms * factor for name, ms in self.times.items()}
        return replace(self, times=times, one_ms=self.one_ms * factor, factor=self.factor * factor)

    def packed(self, per_gpu: Places, beside: Sequence[Iterations] = ()) -> Iterations:
        """Rows of a training by itself as those of one of `per_gpu` on the same GPU, whose times `on_vcpus` changes.

        `beside`: the others, where they differ. SchemaError for several on a CPU.
        """
        if (per_gpu == 1).all():
            return self
        if cpu := next((gpu.name for gpu in self.devices.gpus if is_cpu(gpu.name)), None):
            option = "beside" if beside else "per_gpu"
            raise SchemaError(f"{named(option)}: {cpu} is a CPU. Leave it out, or name GPUs.").about(option)
        more_gib = np.array(list(map(more_context_gib, self.devices.gpus)))[self.device]
        processes = np.where(per_gpu > 1, per_gpu, 0)
        memory_gib = self.memory_gib * (1 if beside else per_gpu) + more_gib * processes
        memory_gib += sum(neighbour.memory_gib[self.device] for neighbour in beside)
        return replace(self, memory_gib=memory_gib, per_gpu=per_gpu, beside=beside)

    def on_vcpus(self, per_vcpu: Array) -> Iterations:
        """Rows of `packed` on a machine, by the number of hosts whose work, with their loaders', a vCPU does."""
        if (self.per_gpu == 1).all():
            return self
        spread = np.array(list(map(ratios_of("packed").spread_on, self.devices.gpus)))[self.device]
        neighbours = [{name: ms[self.device] for name, ms in own.times.items()} for own in self.beside]
        times = packed_times(self.times, self.per_gpu, per_vcpu, spread, neighbours)
        return replace(self, times=times, per_vcpu=per_vcpu)

    def reasons(self) -> Coded:
        """Reasons for caution of each row, coded as far as rows share them.

        Those of the forecast, the team, shares of unknown operators, and measurements that are not used.
        """
        mode = self.devices.pairs[0][1]
        reasons_of_teams = [() if team is None else team_reasons(team, mode) for team in self.teams]
        own = self.resolved.known.own
        of_devices = own is not None or has_others(self.table)
        coded, n_teams = self.extrapolates, len(self.teams)
        if any(reasons_of_teams):
            pairs, codes = np.unique(n_teams * coded.codes + self.team, return_inverse=True)
            parts = zip(*map(np.ndarray.tolist, np.divmod(pairs, n_teams)), strict=True)
            coded = Coded([(*coded.words[code], *reasons_of_teams[team]) for code, team in parts], codes)
        if not (of_devices or (self.per_gpu > 1).any()):
            return coded
        reasons_of_rows: list[Reasons] = list(coded)
        for row in np.flatnonzero(self.per_gpu > 1).tolist():
            gpu, mode = self.devices.pairs[self.device[row]]
            packed = packed_reasons(gpu, mode, self.per_vcpu[row])
            reasons_of_rows[row] = (*reasons_of_rows[row], *packed)
        for device in np.unique(self.device).tolist() if of_devices else ():
            gpu, mode = self.devices.pairs[device]
            rows_of_device = np.flatnonzero(self.device == device).tolist()
            sizes = self.local_batch_size[rows_of_device].tolist()
            of_device = [reasons_of_rows[row] for row in rows_of_device]
            with_operators = with_shares(of_device, self.table, gpu, mode, sizes)
            unused = own.unused_on(gpu, mode, self.resolved.question.parts) if own else None
            for row, own_reasons in zip(rows_of_device, with_operators, strict=True):
                reasons_of_rows[row] = own_reasons if unused is None else (*own_reasons, unused)
        return Coded.of_objects([reasons_of_rows])


def _anchors_beyond(
    resolved: ResolvedQuestion, table: LayerTable, training: Training, anchors: Sequence[Anchor]
) -> list[Reason]:
    """A reason for each anchor beyond the interval of an answer without anchors."""
    runs: dict[Device, list[Anchor]] = {}
    for anchor in anchors:
        gpu = device_of(anchor.gpu)
        mode = training.on(gpu) if anchor.precision is None else training.in_precision(anchor.precision)
        runs.setdefault((gpu, mode), []).append(anchor)
    beyond: list[Reason] = []
    for device, own in runs.items():
        [alone] = forecasts_of(resolved, table, [device], [anchor.batch_size for anchor in own], (), "auto")
        times_ms = zip(alone.iteration_time_ms, alone.low_ms, alone.high_ms, strict=True)
        beyond += [
            Reason(
                "anchor",
                f"{anchor.iteration_time_ms / middle:.2g} times the model's own time on {anchor.gpu} at batch "
                f"{anchor.batch_size}, beyond its interval of {low:.3g} to {high:.3g} ms: check its unit and mode",
                1.0,
            )
            for anchor, (middle, low, high) in zip(own, times_ms, strict=True)
            if not low <= anchor.iteration_time_ms <= high
        ]
    return beyond


TRAFFIC = "memory traffic"
"""Class of the operators of unknown cost in an explanation."""

_OTHER = "other"
_CLASS_OF_OTHER = OPERATOR_TYPES[_OTHER].operator_class


def with_shares(
    reasons: Sequence[Reasons], table: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Sequence[int]
) -> list[Reasons]:
    """A forecast's reasons at each batch size, where operators of unknown cost are named with their share of the time.

    The share is that of their roofline times: an operator of type ``other`` reads and writes its maps once.
    """
    if is_cpu(gpu.name) or not has_others(table):
        return list(reasons)
    rates = rates_of(gpu, mode.precision)
    shares = share_of_types(table, np.array(batch_sizes) / table.parts, rates, {_OTHER})
    warnings = [warning for warning in table.warnings if warning.kind == "operator"]
    names = warnings[0].about if warnings else "layers of type other"
    replaced = [of_warning(warning) for warning in warnings]
    rows = []
    for of_size, share in zip(reasons, map(float, shares), strict=True):
        percent = f"{100 * share:.0f} %" if share >= 0.005 else "under 1 %"
        reason = Reason("operator", f"{names} counted as memory traffic: {percent} of this time")
        rows.append((*(kept for kept in of_size if kept not in replaced), reason))
    return rows


@lru_cache(maxsize=256)
def has_others(table: LayerTable) -> bool:
    """Whether a CNN has operators of unknown cost."""
    return any(layer.type == _OTHER for layer in table)


def split_traffic(
    class_ms: dict[str, Array], table: LayerTable, gpu: Gpu, mode: Mode, batch_sizes: Sequence[int] | Array
) -> dict[str, Array]:
    """GPU time by class, with the time of unknown operators as a class of its own, `TRAFFIC`.

    The class that they are counted in is split in proportion to its operators' roofline times.
    """
    operators, counts = counted_operators(table)
    classes = [OPERATOR_TYPES[operator.type].operator_class for operator in operators]
    positions = [position for position, name in enumerate(classes) if name == _CLASS_OF_OTHER]
    in_class = [operators[position] for position in positions]
    unknown = np.array([operator.type == _OTHER for operator in in_class], dtype=bool)
    if is_cpu(gpu.name) or not unknown.any() or _CLASS_OF_OTHER not in class_ms:
        return class_ms
    rates = rates_of(gpu, mode.precision)
    least = counts[positions, None] * roofline_ms(in_class, np.asarray(batch_sizes) / table.parts, rates)
    share = least[unknown].sum(axis=0) / least.sum(axis=0)
    left = class_ms[_CLASS_OF_OTHER] * (1.0 - share)
    split = {name: ms for name, ms in class_ms.items() if name != _CLASS_OF_OTHER}
    split |= {_CLASS_OF_OTHER: left} if not unknown.all() else {}
    return split | {TRAFFIC: class_ms[_CLASS_OF_OTHER] * share}
