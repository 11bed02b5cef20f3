"""Ways to train one CNN on several GPUs: each with a part of the mini-batch, the channels, the layers or the rows.

Only the first was measured. The others are arithmetic: as much work on each GPU as with a part of the mini-batch, and
the activations that they exchange at every layer, while nothing else can run.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from predictor.answers.knowledge import Knowledge
from predictor.answers.question import Question
from predictor.answers.rentals import rentals_of
from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.errors import SchemaError
from predictor.models.data_parallel import LAW, Gradients, Team, together
from predictor.models.forecast import IterationForecast
from predictor.models.roofline.terms import join_host

__all__ = ["ParallelWay", "parallel_ways"]

_WEIGHTED = ("conv2d", "conv3d", "conv_transpose2d", "linear")
_CALL_MS = 0.03
"""Host time of one exchange: the least that an all-reduce of some bytes took in our tables, the call included."""


@dataclass(frozen=True, slots=True)
class ParallelWay:
    """One way to share an iteration of `batch_size` images among `n_gpus`; times in ms, `exchanged_mb` in 10^6 bytes.

    `way` is one of one, data, channels, rows, layers. `ratio` is its iteration over that of one GPU with the whole
    mini-batch, below 1 where it is faster; `exchanged_mb` what each GPU sends in `exchanges`; `why` what decides.
    """

    cnn: str
    gpu: str
    batch_size: int
    n_gpus: int
    link: str
    way: str
    iteration_time_ms: float
    ratio: float
    exchanged_mb: float
    exchanges: int
    why: str


def parallel_ways(question: Question) -> list[ParallelWay]:
    """Every way for each CNN, GPU and batch size of a question, whose `n_gpus` is at least 2.

    Raises
    ------
    SchemaError, OutOfRangeError, UnknownCnnError, UnknownGpuError
        If the question makes no sense.
    """
    if question.n_gpus < 2:
        raise SchemaError(f"n_gpus {question.n_gpus}: several GPUs share an iteration. Pass 2 or more.")
    known, devices = Knowledge.of(question), question.devices()
    rentals = rentals_of(question, [gpu for gpu, _ in devices])
    sizes = sorted({*question.batch_sizes, *question.local_batch_sizes})
    found: list[ParallelWay] = []
    for table in question.layer_tables():
        forecasts = known.model.forecasts(
            table, devices, sizes, known.anchors(table, question), question.method, question.host
        )
        for (gpu, mode), rental, one in zip(devices, rentals, forecasts, strict=True):
            if rental.team is not None:
                for batch_size in question.batch_sizes:
                    shared = _Shared(table, gpu, mode, rental.team, one, sizes, batch_size)
                    found += shared.ways()
    return found


@dataclass(frozen=True)
class _Shared:
    """An iteration of one mini-batch that a team shares."""

    table: LayerTable
    gpu: Gpu
    mode: Mode
    team: Team
    one: IterationForecast
    sizes: list[int]
    batch_size: int

    def ways(self) -> list[ParallelWay]:
        """One GPU, then the ways from the one that is most used."""
        alone = float(self.one.iteration_time_ms[self._at(self.batch_size)])
        return [
            ParallelWay(
                self.table.cnn,
                self.gpu.name,
                self.batch_size,
                self.team.n_gpus,
                self.team.link.name,
                way,
                time_ms,
                time_ms / alone,
                megabytes,
                exchanges,
                why,
            )
            for way, time_ms, megabytes, exchanges, why in (
                ("one", alone, 0.0, 0, ""),
                self._data(),
                self._channels(),
                self._rows(),
                self._layers(),
            )
        ]

    def _data(self) -> tuple[str, float, float, int, str]:
        team = together(self.one, self.table, self.gpu, self.mode, self.team)
        time_ms = float(team.iteration_time_ms[self._at(self._part)])
        gradients = Gradients.of(self.table)
        added_ms = time_ms - float(self.one.iteration_time_ms[self._at(self._part)])
        megabytes, why = self._ring * gradients.n_bytes / 1e6, f"sums of gradients add {added_ms:.3g} ms"
        return "data", time_ms, megabytes, gradients.n_buckets, why

    def _channels(self) -> tuple[str, float, float, int, str]:
        """Each GPU has a part of the output channels: it gathers activations, and sums gradients of its inputs."""
        layers = [layer for layer in self.table if layer.type in _WEIGHTED]
        gathered = self._ring / 2 * sum(map(self._out_bytes, layers))
        summed = self._ring * sum(map(self._in_bytes, layers[1:]))
        return self._exchanging("channels", gathered + summed, 2 * len(layers) - 1, 0.0)

    def _rows(self) -> tuple[str, float, float, int, str]:
        """Each GPU has a part of the rows: it sends the edges of maps, and sums gradients and statistics of norms."""
        edges = [self._edge_bytes(layer) for layer in self.table if (layer.kernel_height or 1) > 1]
        norms = sum(layer.type == "batch_norm" for layer in self.table)
        part = np.array([self.one.gpu_time_ms[self._at(self._part)]])
        gradients_ms = float(LAW.added_gpu_ms(part, Gradients.of(self.table), self.gpu, self.team)[0])
        return self._exchanging("rows", 2 * sum(edges), 2 * (len(edges) + norms), gradients_ms)

    def _layers(self) -> tuple[str, float, float, int, str]:
        """Each GPU has some of the layers: one waits for the other."""
        cuts = list(self._cuts())
        megabytes = 2 * sum(cuts) / 1e6
        wire_ms = megabytes / self._gb_per_s + 2 * len(cuts) * self._latency_ms
        time_ms = float(self.one.iteration_time_ms[self._at(self.batch_size)]) + wire_ms
        return "layers", time_ms, megabytes, 2 * len(cuts), "one GPU works at a time; it only adds memory"

    def _exchanging(
        self, way: str, n_bytes: float, exchanges: int, more_ms: float
    ) -> tuple[str, float, float, int, str]:
        """An iteration whose exchanges nothing hides, with the work of a part of the mini-batch on each GPU."""
        at, megabytes = self._at(self._part), n_bytes / 1e6
        wire_ms = megabytes / self._gb_per_s + exchanges * self._latency_ms
        busy_ms = float(self.one.gpu_time_ms[at]) + more_ms + wire_ms
        host_ms = (
            float(self.one.host_time_ms[at]) + exchanges * _CALL_MS if self.mode.capture == "eager" else 0.0
        )
        time_ms = float(join_host(np.array([busy_ms]), np.array([host_ms]))[0])
        why = f"every layer waits for activations: {wire_ms:.3g} ms that nothing hides"
        return way, time_ms, megabytes, exchanges, why

    def _at(self, batch_size: int) -> int:
        return self.sizes.index(batch_size)

    @property
    def _part(self) -> int:
        return self.batch_size // self.team.n_gpus

    @property
    def _ring(self) -> float:
        """Share of its bytes that a GPU sends in an all-reduce; half of it in a gather."""
        return 2 * (self.team.n_gpus - 1) / self.team.n_gpus

    @property
    def _gb_per_s(self) -> float:
        return self.team.link.bandwidth_gb_per_s(self.team.joined)

    @property
    def _latency_ms(self) -> float:
        return self.team.link.latency_us / 1000

    @property
    def _number_bytes(self) -> int:
        return 2 if self.mode.precision.startswith(("amp", "fp16")) else 4

    def _out_bytes(self, layer: Layer) -> float:
        elements = (layer.out_channels or 1) * (layer.out_height or 1) * (layer.out_width or 1)
        return float(self.batch_size * layer.repeats * elements * self._number_bytes)

    def _in_bytes(self, layer: Layer) -> float:
        elements = (layer.in_channels or 1) * (layer.in_height or 1) * (layer.in_width or 1)
        return float(self.batch_size * layer.repeats * elements * self._number_bytes)

    def _edge_bytes(self, layer: Layer) -> float:
        """Rows that a window reads beyond its part of the map."""
        rows = (layer.kernel_height or 1) - 1
        return self._in_bytes(layer) / max(1, layer.in_height or 1) * rows

    def _cuts(self) -> Iterator[float]:
        """Bytes of the activations where the layers are cut into parts of as many layers each."""
        layers = list(self.table)
        for part in range(1, self.team.n_gpus):
            position = part * len(layers) // self.team.n_gpus
            if 0 < position < len(layers):
                yield self._out_bytes(layers[position - 1])
