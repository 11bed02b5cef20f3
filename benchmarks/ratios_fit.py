"""Fits the ratios of compiled, Chainer's and several GPUs' iterations on the project's own tables.

Every fit is the same: pairs of a measured time and what is known of it, numbers that bring the two together, and
spreads from the pairs of a group (a CNN, all proxies) by numbers that were fitted without the group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from zipfile import ZipFile

import numpy as np

from predictor.catalogue.devices import Gpu, find_gpu
from predictor.catalogue.hosts import REFERENCE_CNN
from predictor.catalogue.links import usual_link
from predictor.catalogue.modes import Mode
from predictor.catalogue.offers import load_offers
from predictor.cnns.layer_csv import zipped_layer_table
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import proxy_table
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError
from predictor.files import data_file, data_root
from predictor.models.chainer import (
    CHAINER_BY_PYTORCH,
    CONVOLUTIONS,
    PRODUCTS,
    windowed_ratio,
    windowed_share,
    windowed_size,
)
from predictor.models.compiled import COMPILED, changes_products, eager_mode, eager_parts_ms, elementwise_of
from predictor.models.data_parallel import Exchange, Gradients, Team, team_iteration_ms
from predictor.models.forecast import COVERAGE, IterationForecast
from predictor.models.hosts import autocast_host, enqueued
from predictor.models.intervals import interval_factor
from predictor.models.ratios import Ratios, ratios_of
from predictor.models.replicas import compiled_convolutions, replicas_host_ms, replicas_iteration_ms
from predictor.operators.operators import parameter_tensors

if TYPE_CHECKING:
    import pandas as pd
    from numpy.typing import NDArray

    from predictor.models.served import Model

    Array = NDArray[np.float64]

LAYERS = "measurements/layers.zip"
"""Layer tables of CNNs that the zoo lacks, as ``FAMILY/NAME@IMAGE_SIZE.csv``."""

Pair = TypeVar("Pair")


@dataclass(frozen=True)
class RatioFit(Generic[Pair]):
    """A recipe that fits one entry of ``ratios.json``.

    `entry`: its name in ``ratios.json``. `group`: pair -> what is held out together. `numbers`: pairs -> the numbers
    that fit them best. `spreads`: (pairs, ratios by the group left out) -> `spread` and `host_spread`.
    """

    entry: str
    group: Callable[[Pair], str]
    numbers: Callable[[Sequence[Pair]], dict[str, float]]
    spreads: Callable[[Sequence[Pair], Mapping[str, Ratios]], tuple[float, float]]

    def fitted(self, pairs: Sequence[Pair]) -> Ratios:
        """Ratios that fit these pairs best; spreads, and the place of measurement, are the shipped entry's."""
        shipped = ratios_of(self.entry)
        return replace(shipped, numbers={**shipped.numbers, **self.numbers(pairs)})

    def held_out(
        self, pairs: Sequence[Pair], group: Callable[[Pair], str] | None = None
    ) -> dict[str, Ratios]:
        """Ratios by group, fitted without the pairs of that group."""
        group = group or self.group
        return {
            name: self.fitted([pair for pair in pairs if group(pair) != name])
            for name in dict.fromkeys(map(group, pairs))
        }

    def shipped(self, pairs: Sequence[Pair]) -> Ratios:
        """Ratios of all pairs, with the spreads of groups held out."""
        spread, host_spread = self.spreads(pairs, self.held_out(pairs))
        return replace(self.fitted(pairs), spread=spread, host_spread=host_spread)


def nine_in_ten(error: Callable[[Any, Ratios], float]) -> Callable[..., tuple[float, float]]:
    """Spreads of a fit whose group is the CNN: the 0.9 quantile of errors of pairs held out, NaN left out; no host's.

    `error`: (pair, ratios) -> how far the prediction by these ratios lies from the measurement.
    """

    def spreads(pairs: Sequence[Any], without: Mapping[str, Ratios]) -> tuple[float, float]:
        wrong = [error(pair, without[pair.cnn]) for pair in pairs]
        return round(float(np.nanquantile(wrong, 0.9)), 2), 0.0

    return spreads


def own_tables(kind: str) -> pd.DataFrame:
    """The project's own tables ``*_<kind>.csv.gz``: ``compiled`` or ``ddp``; DataError if there are none."""
    from predictor.measurements.table import read_own_tables

    commands = {
        "compiled": "epochcast profile --preset targets --capture eager,compile",
        "ddp": "epochcast profile --preset ddp",
        "ddp_small": "epochcast profile --preset ddp --batch-size 4,16",
        "ddp_synchronised": "epochcast profile --preset ddp",
    }
    return read_own_tables(kind, commands[kind])


def measured_cnn(cnn: str, image_size: int) -> tuple[LayerTable, str]:
    """Layer table of a CNN of the project's own tables, and its family.

    `cnn`: a zoo name, or one of `LAYERS`. `image_size`: in pixels. DataError if `LAYERS` lacks it.
    """
    if "." not in cnn:
        return zoo_cnn(cnn, image_size), _zoo_family(cnn)
    with ZipFile(data_file(LAYERS)) as layers:
        member = next((name for name in layers.namelist() if name.endswith(f"/{cnn}@{image_size}.csv")), "")
    table = zipped_layer_table(data_file(LAYERS), member, cnn)
    if table is None:
        raise DataError(f"{LAYERS} lacks {cnn} at {image_size} pixels: add its layer table to it.")
    return table, member.partition("/")[0]


def _zoo_family(cnn: str) -> str:
    """First letters of a zoo name: ``vgg`` of vgg16 and vgg_cifar."""
    return re.split("[^a-z]", cnn)[0]


_SAME = ("gpu", "host", "cnn", "image_size", "precision", "memory_format")


@dataclass(frozen=True, eq=False)
class CompiledPair:
    """A compiled iteration as measured, and the eager one that the model predicts for it, in ms.

    `eager` is in the memory format that the compiler chooses; `eager_host_ms` was measured beside the compiled
    iteration, in the memory format of the model; NaN if it was not, or other CNNs compiled meanwhile, and so is
    `compile_s`. `host_share` is as of `Way.forecast`.
    """

    family: str
    table: LayerTable
    gpu: Gpu
    mode: Mode
    batch_size: int
    gpu_ms: float
    host_ms: float
    compile_s: float
    eager_host_ms: float
    eager: IterationForecast
    host_share: float

    @property
    def cnn(self) -> str:
        """Name of the CNN with its image size."""
        return f"{self.table.cnn}@{self.table.image_size}"

    @cached_property
    def parts_ms(self) -> tuple[float, ...]:
        """Parts of the eager iteration in ms (`eager_parts_ms`)."""
        sizes = np.array([float(self.batch_size)])
        times = eager_parts_ms(self.eager, self.table, self.gpu, self.mode.precision, sizes)
        return tuple(float(ms[0]) for ms in times)

    def forecast(self, ratios: Ratios | None = None) -> IterationForecast:
        """Forecast of the compiled iteration by these ratios."""
        sizes = np.array([float(self.batch_size)])
        return COMPILED.forecast(self.eager, self.table, self.gpu, self.mode, sizes, self.host_share, ratios)


def compiled_pairs(measurements: pd.DataFrame, model: Model) -> list[CompiledPair]:
    """Compiled CNNs of a checked measurement table that have a GPU time, with what `model` says of them."""
    key = [*_SAME, "batch_size"]
    targets = measurements[measurements["kind"] == "target"]
    targets = targets.assign(disturbed=targets["disturbed"].fillna(False).astype(bool))
    eager = targets[targets["capture"] == "eager"].drop_duplicates(key).set_index(key)
    rows = targets[(targets["capture"] == "compile") & targets["gpu_time_ms"].notna()]
    pairs = []
    for row in rows.to_dict("records"):
        configuration = tuple(row[name] for name in key)
        table, family = measured_cnn(str(row["cnn"]), int(row["image_size"]))
        gpu, batch_size = find_gpu(str(row["gpu"])), int(row["batch_size"])
        setting = row["float32_matmul_precision"] or Mode().float32_matmul_precision
        words = ("pytorch", str(row["precision"]), str(row["memory_format"]))
        mode = Mode(*words, capture="compile", float32_matmul_precision=str(setting))
        eager_answer = model.forecast(table, gpu, eager_mode(table, mode), [batch_size])
        own = model.forecast(table, gpu, replace(mode, capture="eager"), [batch_size])
        times = [float(row[name]) for name in ("gpu_time_ms", "host_time_ms", "compile_s")]
        beside = configuration in eager.index
        times.append(float(eager.loc[configuration]["host_time_ms"]) if beside else math.nan)
        if row["disturbed"]:
            times[2:] = math.nan, math.nan
        host_share = float(own.host_time_ms[0] / eager_answer.host_time_ms[0])
        pairs.append(CompiledPair(family, table, gpu, mode, batch_size, *times, eager_answer, host_share))
    return pairs


def _compiled_numbers(pairs: Sequence[CompiledPair]) -> dict[str, float]:
    """Non-negative least squares of relative errors of GPU times; the median of hosts; seconds of compiling.

    Without autocast convolutions and products take what they do in eager iterations.
    """
    from scipy.optimize import nnls

    parts, measured = np.array([pair.parts_ms for pair in pairs]), np.array([pair.gpu_ms for pair in pairs])
    shares = parts.T / measured
    is_cast = np.array([changes_products(pair.mode) for pair in pairs])
    is_last = np.array([elementwise_of(pair.table, pair.mode) == "elementwise" for pair in pairs])
    design = shares[0] * is_cast, shares[1] * is_last, shares[1] * ~is_last, shares[2]
    ratios = nnls(np.column_stack(design), 1.0 - shares[3] - shares[0] * ~is_cast)[0]
    names = ("products", "elementwise", "elementwise_nchw", "bytes")
    return {
        **{name: round(float(ratio), 3) for name, ratio in zip(names, ratios, strict=True)},
        "host": round(float(np.exp(np.median(_log_host_ratios(pairs)))), 3),
        **graph_hosts(),
        **_compile_seconds(pairs),
    }


def graph_hosts() -> dict[str, float]:
    """Host time of ``reduce-overhead``, in passes of a mean layer: least squares of relative errors."""
    import pandas as pd

    rows = pd.read_csv(Path(__file__).with_name("compiled_hosts_h100_2.csv"))
    rows = rows[(rows["how"] == "reduce-overhead") & (rows["cnn"] != "unet")]
    unit = enqueued(zoo_cnn(*REFERENCE_CNN), Mode().optimizer)
    layers = unit * (rows["enqueue_ms"] / rows["reference_ms"]).to_numpy()
    tensors = [sum(map(parameter_tensors, zoo_cnn(cnn))) for cnn in rows["cnn"]]
    design = np.column_stack([np.ones(len(rows)), tensors]) / layers[:, None]
    fixed, of_tensor = np.linalg.lstsq(design, np.ones(len(rows)), rcond=None)[0]
    return {"graph_layers": round(float(fixed), 1), "graph_tensor": round(float(of_tensor), 3)}


def _compile_seconds(pairs: Sequence[CompiledPair]) -> dict[str, float]:
    """Least squares of the ln of seconds; their spread is the 0.9 quantile of families left out."""
    from scipy.optimize import least_squares

    def errors(numbers: Sequence[float], pairs: Sequence[CompiledPair]) -> list[float]:
        """Ln(predicted / measured) seconds."""
        return [math.log((numbers[0] + numbers[1] * len(pair.table)) / pair.compile_s) for pair in pairs]

    def fitted(pairs: Sequence[CompiledPair]) -> list[float]:
        solution = least_squares(errors, [5.0, 0.2], bounds=(1e-3, np.inf), args=(pairs,))
        return list(map(float, solution.x))

    timed = [pair for pair in pairs if math.isfinite(pair.compile_s)]
    wrong: list[float] = []
    for family in {pair.family for pair in timed}:
        numbers = fitted([pair for pair in timed if pair.family != family])
        wrong += errors(numbers, [pair for pair in timed if pair.family == family])
    first_s, layer_s = fitted(timed)
    return {
        "compile_s": round(first_s, 1),
        "compile_layer_s": round(layer_s, 3),
        "compile_spread": round(float(np.quantile(np.abs(wrong), 0.9)), 2),
    }


def _log_host_ratios(pairs: Sequence[CompiledPair]) -> Array:
    """Ln of compiled host time over the eager one without autocast, of pairs that were measured beside each other."""
    ratios = np.array([pair.host_ms / pair.eager_host_ms * autocast_host(pair.mode) for pair in pairs])
    logs: Array = np.log(ratios[np.isfinite(ratios)])
    return logs


def _compiled_spreads(pairs: Sequence[CompiledPair], without: Mapping[str, Ratios]) -> tuple[float, float]:
    """What intervals need beside those of eager iterations.

    The conformal quantile of sqrt(max(0, ln(predicted / measured)^2 - eager half width^2)), rank ceil(0.9 (n + 1)) of
    n, the largest at most.
    """
    beyond = []
    for pair in pairs:
        wrong = math.log(float(pair.forecast(without[pair.family]).gpu_time_ms[0]) / pair.gpu_ms)
        eager_width = math.log(float(pair.eager.gpu_high_ms[0] / pair.eager.gpu_time_ms[0]))
        beyond.append(math.sqrt(max(0.0, wrong**2 - eager_width**2)))
    hosts = _log_host_ratios(pairs)
    of_hosts = interval_factor(hosts - np.median(hosts), 1.0, COVERAGE)
    return round(interval_factor(beyond, 1.0, COVERAGE), 3), round(of_hosts, 3)


COMPILE = RatioFit[CompiledPair]("compile", lambda pair: pair.family, _compiled_numbers, _compiled_spreads)


_CNNS = ("h200_chainer_resnet50", "h200_chainer_vgg_cifar", "h200_chainer_more", "h100_chainer_more")
_PROXIES = ("h200_chainer_founding_proxies", "h200_chainer_founding_more_proxies")
_PROXIES_OF_PYTORCH = "h200_pytorch_founding_fp32_proxies"
_HOSTS_OF_PYTORCH = "h200_pytorch_founding_proxies"  # on the host of `_PROXIES`
_RENTED = {
    "NVIDIA H200": "Intel Xeon of a rented H200",
    "NVIDIA H100 80GB HBM3": "Intel Xeon of a rented H100",
}  # hosts of `_CNNS`
_OPERATORS = "h200_chainer_resnet50_layers"
_OPERATORS_OF_PYTORCH = "h200_pytorch_fine_tf32_operators"
_NORMAL_90 = 1.645
_LADDER = {"tf32": (1 / 21.79, 2 / 5.60), "half": (1 / 13.09, 1 / 2.34)}
"""Seconds an iteration of ResNet-50 at 32 and 256 images (TF32 twice 128), from the ladder of docs/chainer.md."""


@dataclass(frozen=True, eq=False)
class ChainerPair:
    """A GPU time of Chainer in fp32 or TF32, and PyTorch's in fp32 by kind of operators, in ms.

    `group` is what is held out together: a family of CNNs, or all proxies. `gpu_ms` is NaN where no iteration was
    replayed. `pytorch_ms` is what PyTorch takes for pointwise
    and for larger convolutions, matrix products and the rest: measured for proxies, whose split is predicted, and
    predicted for CNNs. `windowed_size` is as of `predictor.models.chainer.windowed_size`, `host_ratio` Chainer's host
    time over PyTorch's on the same machine, `others_ratio` that of single operators, which is the same in all pairs.
    """

    group: str
    cnn: str
    gpu: str
    batch_size: int
    precision: str
    gpu_ms: float
    pytorch_ms: tuple[float, float, float, float]
    windowed_size: tuple[float, float]
    host_ratio: float
    others_ratio: float

    def predicted_ms(self, ratios: Ratios) -> float:
        """Chainer's GPU time in ms by these ratios."""
        pointwise, windowed, products, others_ms = self.pytorch_ms
        ratio = float(windowed_ratio(self.windowed_size, np.array([self.batch_size]), ratios)[0])
        return pointwise + ratio * windowed + products + ratios["rest"] * others_ms

    def log_error(self, ratios: Ratios) -> float:
        """Ln(predicted / measured) of the GPU time."""
        return math.log(self.predicted_ms(ratios) / self.gpu_ms)


def _table(name: str) -> pd.DataFrame:
    from predictor.measurements.table import read_measurements

    return read_measurements(data_root() / "measurements" / f"{name}.csv.gz")


def chainer_pairs(model: Model, cnns: Collection[str] | None = None) -> list[ChainerPair]:
    """Chainer's rows in fp32 and TF32 of the project's own tables: CNNs, and proxies with a row of PyTorch.

    `cnns` are those asked for; None for all.
    """
    key = ["cnn", "batch_size"]
    beside = _table(_PROXIES_OF_PYTORCH).drop_duplicates(key).set_index(key)["gpu_time_ms"]
    hosts = _table(_HOSTS_OF_PYTORCH).drop_duplicates(key).set_index(key)["host_time_ms"]
    pairs, others_ratio = [], round(_measured_others_ratio(), 2)
    for name in (*_CNNS, *_PROXIES):
        rows = _table(name)
        rows = rows[rows["precision"].isin(["fp32", "tf32"])]
        for row in (rows if cnns is None else rows[rows["cnn"].isin(cnns)]).to_dict("records"):
            is_proxy, cnn, size = row["kind"] == "proxy", str(row["cnn"]), int(row["batch_size"])
            if is_proxy and (cnn, size) not in beside.index:
                continue
            table = proxy_table(cnn) if is_proxy else zoo_cnn(cnn, int(row["image_size"]))
            gpu, precision = find_gpu(str(row["gpu"])), str(row["precision"])
            parts = _pytorch_ms(model, table, gpu, size)
            if is_proxy:
                parts *= beside[cnn, size] / parts.sum()
                host_ms = hosts.get((cnn, size), math.nan)
            else:
                rented = model.forecast(table, gpu, Mode("pytorch", precision), [1], host=_RENTED[gpu.name])
                host_ms = float(rented.host_time_ms[0])
            about = "proxies" if is_proxy else _zoo_family(cnn), cnn, gpu.name, size, precision
            of_pytorch, host_ratio = tuple(parts.tolist()), float(row["host_time_ms"]) / host_ms
            ratios = windowed_size(table), host_ratio, others_ratio
            pairs.append(ChainerPair(*about, float(row["gpu_time_ms"]), of_pytorch, *ratios))
    return pairs


def _pytorch_ms(model: Model, table: LayerTable, gpu: Gpu, batch_size: int) -> Array:
    forecast = model.forecast(table, gpu, Mode("pytorch", "fp32"), [batch_size])
    class_ms = {name: float(ms[0]) for name, ms in forecast.class_ms.items()}
    kinds = CONVOLUTIONS, PRODUCTS
    convolutions, products = (sum(class_ms.get(name, 0.0) for name in names) for names in kinds)
    share = windowed_share(table)
    others_ms = float(forecast.gpu_time_ms[0]) - convolutions - products
    return np.array([convolutions * (1.0 - share), convolutions * share, products, others_ms])


def _measured_others_ratio() -> float:
    """Time of ResNet-50's operators that are neither convolutions nor products, over PyTorch's; mean of batch sizes."""
    key, beside = ["cnn", "batch_size", "pass"], _table(_OPERATORS_OF_PYTORCH)
    beside = beside[(beside["precision"] == "tf32") & (beside["memory_format"] == "nchw")]
    operators = _table(_OPERATORS).merge(beside.drop_duplicates(key), on=key, suffixes=("", "_pytorch"))
    operators = operators[~operators["type"].isin(["conv2d", "linear"])]
    sums = operators.groupby("batch_size")[["gpu_time_ms", "gpu_time_ms_pytorch"]].sum()
    return float((sums["gpu_time_ms"] / sums["gpu_time_ms_pytorch"]).mean())


def _by_group(pairs: Sequence[ChainerPair]) -> dict[str, list[ChainerPair]]:
    groups: dict[str, list[ChainerPair]] = {}
    for pair in pairs:
        groups.setdefault(pair.group, []).append(pair)
    return groups


def _weights(pairs: Sequence[ChainerPair]) -> Array:
    """Of each pair, so that groups count the same."""
    sizes = {name: len(own) for name, own in _by_group(pairs).items()}
    return np.array([1.0 / sizes[pair.group] for pair in pairs])


def _log_host(pairs: Sequence[ChainerPair]) -> float:
    ratios = np.log([pair.host_ratio for pair in pairs])
    return float(np.median(ratios[np.isfinite(ratios)]))


def _chainer_numbers(pairs: Sequence[ChainerPair]) -> dict[str, float]:
    """Ratios of Chainer to PyTorch.

    `windowed`, `channels` and `pixels` minimise the squares of ln(predicted / measured), `host` is the mean of ln of
    the CNNs' medians, each group counting the same. Proxies are no part of `host`: what an iteration costs beside its
    layers is most of theirs. `rest` is the ratio of sums of single operators, `half` the geometric mean of two ratios
    of the ladder, which lie within `half_spread` of it.
    """
    from scipy.optimize import least_squares

    groups, others_ratio = _by_group(pairs), pairs[0].others_ratio
    names, timed = ("windowed", "channels", "pixels"), [pair for pair in pairs if math.isfinite(pair.gpu_ms)]
    weights = np.sqrt(_weights(timed))

    def errors(numbers: Array) -> Array:
        tried = Ratios({"rest": others_ratio, **dict(zip(names, numbers, strict=True))})
        wrong: Array = weights * [pair.log_error(tried) for pair in timed]
        return wrong

    numbers = least_squares(errors, [1.0, 0.0, 0.0], bounds=([0.1, -2.0, -2.0], [10.0, 2.0, 2.0])).x
    hosts = [_log_host(own) for name, own in groups.items() if name != "proxies"]
    halves = [half / full for half, full in zip(_LADDER["half"], _LADDER["tf32"], strict=True)]
    return {
        **{name: round(float(number), 3) for name, number in zip(names, numbers, strict=True)},
        "rest": others_ratio,
        "half": round(math.prod(halves) ** 0.5, 2),
        "host": round(math.exp(float(np.mean(hosts))), 2),
        "half_spread": round(_NORMAL_90 * abs(math.log(halves[0] / halves[1])) / 2, 2),
    }


def _chainer_spreads(pairs: Sequence[ChainerPair], without: Mapping[str, Ratios]) -> tuple[float, float]:
    """The 0.9 quantile of |ln(predicted / measured)| of groups held out, each group counting the same.

    Of hosts: the largest error of the groups' medians.
    """
    groups, timed = _by_group(pairs), [pair for pair in pairs if math.isfinite(pair.gpu_ms)]
    errors = np.abs([pair.log_error(without[pair.group]) for pair in timed])
    order, weights = np.argsort(errors), _weights(timed)
    within = np.cumsum(weights[order]) / weights.sum()
    hosts = [
        abs(_log_host(own) - math.log(without[name]["host"]))
        for name, own in groups.items()
        if name != "proxies"
    ]
    return round(float(errors[order][np.searchsorted(within, 0.9)]), 2), round(max(hosts), 2)


CHAINER = RatioFit[ChainerPair](
    CHAINER_BY_PYTORCH.entry, lambda pair: pair.group, _chainer_numbers, _chainer_spreads
)


DEFAULT_BUCKETS = (25.0, False)
"""Bucket size in MiB, and whether gradients are views of buckets, as PyTorch has them unless told otherwise."""

_GPU_BOUND = 1.25
_ITERATION_TOLERANCE, _HOST_TOLERANCE, _ADDED_TOLERANCE = 0.02, 0.15, 0.3
_TEAM_NUMBERS = ("tensor_ms", "ring", "wait", "host")


@dataclass(frozen=True)
class TeamPair:
    """An iteration of a team beside that of one GPU at the same local batch size, in ms."""

    cnn: str
    image_size: int
    gpu: Gpu
    team: Team
    local_batch_size: int
    mode: Mode
    one_ms: float
    host_ms: float
    team_ms: float

    @property
    def added_ms(self) -> float:
        """Time in ms that the team's iteration takes longer than that of one GPU."""
        return self.team_ms - self.one_ms

    @property
    def gpu_bound(self) -> bool:
        """Whether the host of one GPU was idle for a fifth of the time, so that it hardly counts."""
        return self.one_ms > _GPU_BOUND * self.host_ms

    @cached_property
    def gradients(self) -> Gradients:
        """Gradients of the pair's CNN, one of the zoo."""
        return Gradients.of(zoo_cnn(self.cnn, self.image_size))

    def predicted_ms(self, ratios: Ratios) -> float:
        """Time in ms of the team's iteration by these ratios, from the measured one of one GPU."""
        exchange = Exchange.of(self.gradients, self.gpu, self.team)
        time_ms = team_iteration_ms(np.array([self.one_ms]), np.array([self.host_ms]), exchange, ratios)
        return float(time_ms[0])


def team_pairs(measurements: pd.DataFrame) -> list[TeamPair]:
    """Teams of a checked measurement table whose CNN was measured on one GPU of the same run, too.

    `measurements`: CNNs of the zoo. The link is the usual one of the GPU, buckets of gradients are the default's.
    """
    key = [*_SAME, "local_batch_size"]
    rows = measurements[measurements["kind"] == "target"].copy()
    rows["local_batch_size"] = (rows["batch_size"] // rows["n_gpus"]).astype(int)
    single = rows[rows["n_gpus"] == 1].set_index(key)
    pairs = []
    for row in rows[rows["n_gpus"] > 1].to_dict("records"):
        configuration = tuple(row[name] for name in key)
        if configuration in single.index and (row["bucket_mib"], bool(row["bucket_view"])) == DEFAULT_BUCKETS:
            alone, gpu = single.loc[configuration], find_gpu(str(row["gpu"]))
            team = Team(int(row["n_gpus"]), 1, usual_link(gpu, load_offers()))
            mode = Mode("pytorch", str(row["precision"]), str(row["memory_format"]))
            work = str(row["cnn"]), int(row["image_size"]), gpu, team, int(row["local_batch_size"]), mode
            one_ms, host_ms = float(alone["iteration_time_ms"]), float(alone["host_time_ms"])
            pairs.append(TeamPair(*work, one_ms, host_ms, float(row["iteration_time_ms"])))
    return pairs


def _team_numbers(pairs: Sequence[TeamPair]) -> dict[str, float]:
    """Least squares with a soft-L1 loss.

    Where the GPU is the bottleneck the iteration counts at 2 % and what is added at 30 %, where the host is, the
    iteration at 15 %: its time varies that much between runs.
    """
    from scipy.optimize import least_squares

    def residuals(numbers: Array) -> list[float]:
        ratios, wrong = Ratios({"sync_norm_ms": 0.0, **dict(zip(_TEAM_NUMBERS, numbers, strict=True))}), []
        for pair in pairs:
            time_ms = pair.predicted_ms(ratios)
            ratio, added = float(np.log(time_ms / pair.team_ms)), time_ms - pair.one_ms
            if pair.gpu_bound:
                size = 0.5 * (abs(pair.added_ms) + added)
                wrong += [ratio / _ITERATION_TOLERANCE, (added - pair.added_ms) / size / _ADDED_TOLERANCE]
            else:
                wrong += [ratio / _HOST_TOLERANCE, 0.0]
        return wrong

    begin, bounds, scale = [0.005, 0.2, 0.02, 1.3], ([0.0, 0.0, 0.0, 1.0], np.inf), [0.01, 1.0, 0.01, 0.1]
    numbers = least_squares(residuals, begin, bounds=bounds, loss="soft_l1", x_scale=scale).x
    return {name: round(float(number), 4) for name, number in zip(_TEAM_NUMBERS, numbers, strict=True)}


def _added_error(pair: TeamPair, ratios: Ratios) -> float:
    """Error as a share of what several GPUs add."""
    time_ms = pair.predicted_ms(ratios)
    return abs(pair.team_ms - time_ms) / (time_ms - pair.one_ms)


def sync_norm_ms(measurements: pd.DataFrame) -> float:
    """Geometric mean of what a synchronised batch norm adds to an iteration that waits for the host.

    Of a checked measurement table that has iterations with and without synchronised batch norms.
    """
    key = [*_SAME, "n_gpus", "batch_size"]
    teams = measurements[(measurements["kind"] == "target") & (measurements["n_gpus"] > 1)]
    synchronised = teams["sync_batch_norm"].fillna(False).astype(bool)
    plain = teams[~synchronised].drop_duplicates(key).set_index(key)["iteration_time_ms"]
    added = []
    for row in teams[synchronised].to_dict("records"):
        configuration = tuple(row[name] for name in key)
        norms = Gradients.of(zoo_cnn(str(row["cnn"]), int(row["image_size"]))).n_batch_norms
        if norms and configuration in plain.index:
            added.append((float(row["iteration_time_ms"]) - float(plain[configuration])) / norms)
    return round(math.exp(float(np.mean(np.log(added)))), 2)


DATA_PARALLEL = RatioFit[TeamPair](
    "data_parallel", lambda pair: pair.cnn, _team_numbers, nine_in_ten(_added_error)
)


REPLICAS_TABLE = Path(__file__).parent / "replicas_h200.csv"
"""Iterations under `torch.nn.DataParallel` on two H200, by two machines of 2026-11-28; `batch_size` is of both GPUs."""


@dataclass(frozen=True, eq=False)
class ReplicasPair:
    """An iteration under DataParallel as measured, and what the model predicts for one GPU's share, in ms."""

    cnn: str
    gpu_ms: float
    host_ms: float
    n_gpus: int
    compiled: int
    measured_ms: float

    def predicted_ms(self, ratios: Ratios) -> float:
        """Time in ms of the iteration by these ratios."""
        host_ms = replicas_host_ms(self.host_ms, self.n_gpus, self.compiled, ratios=ratios)
        return float(replicas_iteration_ms(self.gpu_ms, host_ms, ratios))


def replicas_pairs(model: Model) -> list[ReplicasPair]:
    """The rows of `REPLICAS_TABLE`."""
    import pandas as pd

    pairs = []
    for row in pd.read_csv(REPLICAS_TABLE).itertuples():
        table, mode = zoo_cnn(row.cnn, row.image_size), Mode(precision=row.precision)
        forecast = model.forecast(table, find_gpu(row.gpu), mode, [row.batch_size // row.n_gpus])
        times_ms = float(forecast.gpu_time_ms[0]), float(forecast.host_time_ms[0])
        compiled = compiled_convolutions(table, mode)
        pairs.append(ReplicasPair(row.cnn, *times_ms, row.n_gpus, compiled, row.data_parallel_ms))
    return pairs


def _replicas_numbers(pairs: Sequence[ReplicasPair]) -> dict[str, float]:
    """Least squares of ln time with a soft-L1 loss, without compiled convolutions; then the geometric mean of those."""
    from scipy.optimize import least_squares

    names, shipped = ("host_ms", "host", "before_gpu"), ratios_of("replicas")
    plain = [pair for pair in pairs if not pair.compiled]

    def with_numbers(values: Sequence[float]) -> Ratios:
        return replace(shipped, numbers={**shipped.numbers, **dict(zip(names, values, strict=True))})

    def residuals(values: Sequence[float]) -> list[float]:
        return [math.log(pair.predicted_ms(with_numbers(values)) / pair.measured_ms) for pair in plain]

    bounds = [0.0, 0.0, 0.0], [math.inf, math.inf, 1.0]
    fitted = least_squares(residuals, [10.0, 5.0, 0.6], bounds=bounds, loss="soft_l1", f_scale=0.15).x
    ratios = replace(with_numbers(fitted), numbers={**with_numbers(fitted).numbers, "compiled_ms": 0.0})
    compiled = [pair for pair in pairs if pair.compiled]
    logs = np.log([(pair.measured_ms - pair.predicted_ms(ratios)) / pair.compiled for pair in compiled])
    of_compiled = {"compiled_ms": math.exp(logs.mean()), "compiled_spread": np.abs(logs - logs.mean()).max()}
    numbers = {**dict(zip(names, fitted, strict=True)), **of_compiled}
    return {name: round(float(number), 2) for name, number in numbers.items()}


def _plain_error(pair: ReplicasPair, ratios: Ratios) -> float:
    """Error of ln time; NaN for iterations with compiled convolutions, which have a spread of their own."""
    return math.nan if pair.compiled else abs(math.log(pair.measured_ms / pair.predicted_ms(ratios)))


REPLICAS = RatioFit[ReplicasPair](
    "replicas", lambda pair: pair.cnn, _replicas_numbers, nine_in_ten(_plain_error)
)
