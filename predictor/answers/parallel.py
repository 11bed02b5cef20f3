"""Ways to train one CNN on several GPUs: each with a part of the mini-batch, the channels, the layers or the rows.

Only the first was measured, on H100 and H200 under PyTorch. The others are arithmetic: the work of each GPU as the
model has it for its part, the activations that they exchange at every layer while nothing else can run, and the
copies that put them together. A program that drives all GPUs from one process, as models split by hand usually do,
also enqueues the kernels of all.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, prod
from typing import TYPE_CHECKING

import numpy as np

from predictor.answers.grid import forecasts_of
from predictor.answers.offers import rentals_of
from predictor.answers.question import MiniBatch, Question, named
from predictor.answers.resolved import ResolvedQuestion
from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.errors import SchemaError
from predictor.models.data_parallel import Exchange, Gradients, Team, add_data_parallelism, added_gpu_ms
from predictor.models.forecast import IterationForecast
from predictor.models.join import join_host
from predictor.operator_types import OPERATOR_TYPES

if TYPE_CHECKING:
    from numpy.typing import NDArray

_WEIGHTED = tuple(name for name, entry in OPERATOR_TYPES.items() if entry.weights == "filters")
_SHARED_COUNTS = ("out_channels", "parameters", "in_channels", "groups")
_CALL_MS = 0.03
"""Host time of one exchange: the least that an all-reduce of some bytes took in our tables, the call included."""


@dataclass(frozen=True, slots=True)
class ParallelWay:
    """One way to share an iteration of `batch_size` images among `n_gpus`; times in ms, `exchanged_mb` in 10^6 bytes.

    `way` is one of one, data, channels, rows, layers. `ratio` is its iteration over that of one GPU with the whole
    mini-batch, below 1 where it is faster; `exchanged_mb` what each GPU sends in `exchanges`; `why` what decides.
    `one_process_ratio` is the ratio where one process enqueues the kernels of all GPUs.
    """

    cnn: str
    gpu: str
    batch_size: int
    n_gpus: int
    link: str
    way: str
    iteration_time_ms: float
    ratio: float
    one_process_ratio: float
    exchanged_mb: float
    exchanges: int
    why: str


def parallel_ways(question: Question) -> list[ParallelWay]:
    """Every way for each CNN, GPU and batch size of a question, whose `n_gpus` is at least 2.

    SchemaError, OutOfRangeError, UnknownCnnError or UnknownGpuError if the question makes no sense.
    """
    resolved = ResolvedQuestion.of(question, "parallel")
    if question.n_gpus < 2:
        text = f"{named('n_gpus')} {question.n_gpus}: several GPUs share an iteration. Pass 2 or more."
        raise SchemaError(text)
    if question.batch_sizes is None:
        text = f"{named('batch_size')} is missing: ways are compared at given ones."
        raise SchemaError(text).about("batch_sizes")
    devices = resolved.devices
    local_sizes = resolved.local_sizes(question.batch_sizes)
    rentals = rentals_of(resolved, [gpu for gpu, _ in devices])
    sizes = sorted({*question.batch_sizes, *local_sizes})
    rows: list[ParallelWay] = []
    for table in resolved.tables:
        forecasts = forecasts_of(resolved, table, devices, sizes, resolved.anchors(table, resolved.training))
        shares = _shares(resolved, table, sizes)
        for (gpu, mode), rental, forecast, share in zip(devices, rentals, forecasts, shares, strict=True):
            if rental.team is not None:
                for batch_size in question.batch_sizes:
                    shared = _Shared(table, gpu, mode, rental.team, forecast, share, sizes, batch_size)
                    rows += shared.ways()
    return rows


def split_channels(table: LayerTable, n: int) -> LayerTable:
    """The layers of one of `n` GPUs that share the output channels of every layer.

    Convolutions and linear layers read all channels and write a part of them; grouped ones read only their groups.
    All other layers work on a part.
    """
    layers = []
    for layer in table:
        reads_all = layer.type in _WEIGHTED and (layer.groups or 1) == 1
        shared = ("out_channels", "parameters") if reads_all else _SHARED_COUNTS
        counts = {name: getattr(layer, name) for name in shared}
        parts = {name: ceil(count / n) for name, count in counts.items() if count is not None}
        layers.append(replace(layer, **parts))
    return replace(table, cnn=f"{table.cnn} of 1/{n} channels", layers=tuple(layers))


def _shares(resolved: ResolvedQuestion, table: LayerTable, sizes: list[int]) -> list[NDArray[np.float64]]:
    """GPU time of a part of the channels as a share of that of all of them, on each GPU at each batch size."""
    method = "auto" if resolved.question.method == "anchored" else None
    all_channels, own_channels = (
        forecasts_of(resolved, cnn, resolved.devices, sizes, (), method)
        for cnn in (table, split_channels(table, resolved.question.n_gpus))
    )
    return [
        own_forecast.gpu_time_ms / all_forecast.gpu_time_ms
        for all_forecast, own_forecast in zip(all_channels, own_channels, strict=True)
    ]


_Exchanged = tuple[str, float, float, int, str]
"""Name of a way, its iteration in ms, 10^6 bytes and number of its exchanges, and why."""


@dataclass(frozen=True)
class _Shared:
    """An iteration of one mini-batch that a team shares."""

    table: LayerTable
    gpu: Gpu
    mode: Mode
    team: Team
    forecast: IterationForecast
    share: NDArray[np.float64]
    sizes: list[int]
    batch_size: int

    def ways(self) -> list[ParallelWay]:
        """One GPU, then the ways from the one that is most used."""
        alone, n_gpus = float(self.forecast.iteration_time_ms[self._at(self.batch_size)]), self.team.n_gpus
        about = self.table.cnn, self.gpu.name, self.batch_size, n_gpus, self.team.link.name
        shared = self._data(), self._channels(), self._rows(), self._layers()
        ways = []
        for way, time_ms, megabytes, exchanges, why in (("one", alone, 0.0, 0, ""), *shared):
            # one process enqueues for all GPUs; where they take turns it does so anyway
            host_ms = 0.0 if way in ("one", "layers") else n_gpus * self._host_ms(exchanges)
            ratios = time_ms / alone, max(time_ms, host_ms) / alone
            ways.append(ParallelWay(*about, way, time_ms, *ratios, megabytes, exchanges, why))
        return ways

    def _data(self) -> _Exchanged:
        team = add_data_parallelism(self.forecast, self.table, self.gpu, self.mode, self.team)
        time_ms = float(team.iteration_time_ms[self._at(self._part)])
        gradients = Gradients.of(self.table)
        added_ms = time_ms - float(self.forecast.iteration_time_ms[self._at(self._part)])
        megabytes, why = self._ring * gradients.n_bytes / 1e6, f"sums of gradients add {added_ms:.3g} ms"
        return "data", time_ms, megabytes, gradients.n_buckets, why

    def _channels(self) -> _Exchanged:
        """Each GPU has a part of the output channels: it gathers activations, and sums gradients of its inputs."""
        layers = [layer for layer in self.table if layer.type in _WEIGHTED]
        written = sum(self._bytes(layer, "out") for layer in layers)
        gathered = self._ring / 2 * written
        summed = self._ring * sum(self._bytes(layer, "in") for layer in layers[1:])
        # the gathered parts are put together
        copies_ms = 2 * written / (1e6 * self.gpu.memory_bandwidth_gb_per_s)
        at = self._at(self.batch_size)
        work_ms = float(self.share[at] * self.forecast.gpu_time_ms[at]) + copies_ms
        return self._exchanging("channels", gathered + summed, 2 * len(layers) - 1, work_ms)

    def _rows(self) -> _Exchanged:
        """Each GPU has a part of the rows: it sends the edges of maps, and sums gradients and statistics of norms."""
        edges = [  # rows that a window reads beyond its part of the map
            self._bytes(layer, "in") / max(1, layer.in_height or 1) * (layer.kernel_height - 1)
            for layer in self.table
            if layer.kernel_height and layer.kernel_height > 1
        ]
        norms = sum(layer.type == "batch_norm" for layer in self.table)
        own_ms = np.array([self.forecast.gpu_time_ms[self._at(self._part)]])
        exchange = Exchange.of(Gradients.of(self.table), self.gpu, self.team)
        gradients_ms = float(added_gpu_ms(own_ms, exchange)[0])
        exchanges, work_ms = 2 * (len(edges) + norms), float(own_ms[0]) + gradients_ms
        return self._exchanging("rows", 2 * sum(edges), exchanges, work_ms)

    def _layers(self) -> _Exchanged:
        """Each GPU has some of the layers: one waits for the other."""
        layers = list(self.table)
        positions = (cut * len(layers) // self.team.n_gpus for cut in range(1, self.team.n_gpus))
        cuts = [self._bytes(layers[cut - 1], "out") for cut in positions if 0 < cut < len(layers)]
        megabytes = 2 * sum(cuts) / 1e6
        time_ms = float(self.forecast.iteration_time_ms[self._at(self.batch_size)])
        time_ms += self._wire_ms(megabytes, 2 * len(cuts))
        return "layers", time_ms, megabytes, 2 * len(cuts), "one GPU works at a time; it only adds memory"

    def _exchanging(self, way: str, n_bytes: float, exchanges: int, work_ms: float) -> _Exchanged:
        """An iteration whose exchanges nothing hides, each GPU with `work_ms` of its own."""
        megabytes = n_bytes / 1e6
        wire_ms = self._wire_ms(megabytes, exchanges)
        busy, host = np.array([work_ms + wire_ms]), np.array([self._host_ms(exchanges)])
        time_ms = float(join_host(busy, host, self.forecast.sharpness)[0])
        why = f"every layer waits for activations: {wire_ms:.3g} ms that nothing hides"
        return way, time_ms, megabytes, exchanges, why

    def _host_ms(self, exchanges: int) -> float:
        """Time of a process to enqueue the kernels of one GPU and its exchanges; none where they are captured."""
        if self.mode.replays:
            return 0.0
        return float(self.forecast.host_time_ms[self._at(self._part)]) + exchanges * _CALL_MS

    def _at(self, batch_size: int) -> int:
        return self.sizes.index(batch_size)

    @property
    def _part(self) -> int:
        return MiniBatch(self.batch_size, self.team.n_gpus).local

    @property
    def _ring(self) -> float:
        """Share of its bytes that a GPU sends in an all-reduce; half of it in a gather."""
        return 2 * (self.team.n_gpus - 1) / self.team.n_gpus

    def _wire_ms(self, megabytes: float, exchanges: int) -> float:
        link = self.team.link
        return megabytes / link.bandwidth_gb_per_s(self.team.joined) + exchanges * link.latency_us / 1000

    def _bytes(self, layer: Layer, map_: str) -> float:
        """Bytes of a layer's maps, ``in`` or ``out``, of the whole mini-batch."""
        sides = (getattr(layer, f"{map_}_{side}") or 1 for side in ("channels", "height", "width"))
        number_bytes = 2 if self.mode.precision.startswith(("amp", "fp16")) else 4
        return float(self.batch_size * layer.repeats * prod(sides) * number_bytes)
