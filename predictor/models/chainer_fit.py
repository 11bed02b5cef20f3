"""Fits the law of Chainer on the project's tables of an H200: CNNs, proxies and operators beside PyTorch's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from predictor.catalogue.devices import Gpu, find_gpu
from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.proxies import proxy_table
from predictor.cnns.zoo import zoo_cnn
from predictor.files import data_root
from predictor.models.chainer import CONVOLUTIONS, LAW, PRODUCTS, ChainerLaw, windowed_share

if TYPE_CHECKING:
    import pandas as pd

    from predictor.models.served import Model

__all__ = [
    "ChainerPair",
    "fit_chainer_law",
    "held_out_chainer_laws",
    "measured_chainer_pairs",
    "shipped_chainer_law",
]

_CNNS = ("h200_chainer_resnet50", "h200_chainer_vgg_cifar")
_PROXIES = ("h200_chainer_founding_proxies", "h200_chainer_founding_more_proxies")
_PROXIES_OF_PYTORCH = "h200_pytorch_founding_fp32_proxies"
_HOSTS_OF_PYTORCH = "h200_pytorch_founding_proxies"  # on the host of `_PROXIES`
_OPERATORS = "h200_chainer_resnet50_layers"
_OPERATORS_OF_PYTORCH = "h200_pytorch_*tf32*_operators.csv.gz"
_LADDER = {"tf32": (1 / 21.79, 2 / 5.60), "half": (1 / 13.09, 1 / 2.34)}
"""Seconds an iteration of ResNet-50 at 32 and 256 images (TF32 twice 128), from the ladder of docs/chainer.md."""


@dataclass(frozen=True, eq=False)
class ChainerPair:
    """A GPU time of Chainer in fp32 or TF32, and PyTorch's in fp32 by kind of operators, in ms.

    `group` is what is held out together: a CNN, or all proxies. `pytorch_ms` is what PyTorch takes for pointwise
    and for larger convolutions, matrix products and the rest: measured for proxies, whose split is predicted, and
    predicted for CNNs. `host_ratio` is Chainer's host time over PyTorch's on the same machine.
    """

    group: str
    cnn: str
    batch_size: int
    precision: str
    gpu_ms: float
    pytorch_ms: tuple[float, float, float, float]
    host_ratio: float

    def predicted_ms(self, law: ChainerLaw) -> float:
        """GPU time by the law."""
        pointwise, windowed, products, rest = self.pytorch_ms
        return pointwise + law.windowed * windowed + products + law.rest * rest

    def log_error(self, law: ChainerLaw) -> float:
        """Ln(predicted / measured) of the GPU time."""
        return math.log(self.predicted_ms(law) / self.gpu_ms)


def _table(name: str) -> pd.DataFrame:
    from predictor.measurements.table import read_measurements

    return read_measurements(data_root() / "measurements" / f"{name}.csv.gz")


def measured_chainer_pairs(model: Model) -> list[ChainerPair]:
    """Chainer's rows of the project's tables of an H200 that have one of PyTorch beside them."""
    key = ["cnn", "batch_size"]
    beside = _table(_PROXIES_OF_PYTORCH).drop_duplicates(key).set_index(key)["gpu_time_ms"]
    hosts = _table(_HOSTS_OF_PYTORCH).drop_duplicates(key).set_index(key)["host_time_ms"]
    found = []
    for name in (*_CNNS, *_PROXIES):
        for row in _table(name).to_dict("records"):
            is_proxy, cnn, size = row["kind"] == "proxy", str(row["cnn"]), int(row["batch_size"])
            if is_proxy and (cnn, size) not in beside.index:
                continue
            table = proxy_table(cnn) if is_proxy else zoo_cnn(cnn, int(row["image_size"]))
            gpu, precision = find_gpu(str(row["gpu"])), str(row["precision"])
            parts = _parts_ms(model, table, gpu, size)
            if is_proxy:
                parts *= beside[cnn, size] / parts.sum()
            host_ms = hosts.get((cnn, size), math.nan) if is_proxy else _host_ms(model, table, gpu, precision)
            found.append(
                ChainerPair(
                    "proxies" if is_proxy else cnn, cnn, size, precision, float(row["gpu_time_ms"]),
                    tuple(parts.tolist()), float(row["host_time_ms"]) / host_ms,
                )
            )  # fmt: skip
    return found


def _parts_ms(model: Model, table: LayerTable, gpu: Gpu, batch_size: int) -> np.ndarray:
    forecast = model.forecast(table, gpu, Mode("pytorch", "fp32"), [batch_size])
    class_ms = {name: float(ms[0]) for name, ms in forecast.class_ms.items()}
    convolutions, products = (
        sum(class_ms.get(name, 0.0) for name in names) for names in (CONVOLUTIONS, PRODUCTS)
    )
    share = windowed_share(table)
    rest = float(forecast.gpu_time_ms[0]) - convolutions - products
    return np.array([convolutions * (1.0 - share), convolutions * share, products, rest])


def _host_ms(model: Model, table: LayerTable, gpu: Gpu, precision: str) -> float:
    return float(model.forecast(table, gpu, Mode("pytorch", precision), [1]).host_time_ms[0])


def measured_rest() -> float:
    """Time of ResNet-50's operators that are neither convolutions nor products, over PyTorch's; mean of batch sizes."""
    import pandas as pd

    from predictor.measurements.table import read_measurements

    key = ["cnn", "batch_size", "pass"]
    paths = sorted((data_root() / "measurements").glob(_OPERATORS_OF_PYTORCH))
    beside = pd.concat([read_measurements(path) for path in paths], ignore_index=True)
    beside = beside[(beside["precision"] == "tf32") & (beside["memory_format"] == "nchw")]
    operators = _table(_OPERATORS).merge(beside.drop_duplicates(key), on=key, suffixes=("", "_pytorch"))
    operators = operators[~operators["type"].isin(["conv2d", "linear"])]
    sums = operators.groupby("batch_size")[["gpu_time_ms", "gpu_time_ms_pytorch"]].sum()
    return float((sums["gpu_time_ms"] / sums["gpu_time_ms_pytorch"]).mean())


def fit_chainer_law(pairs: Sequence[ChainerPair]) -> ChainerLaw:
    """The law that fits these pairs best, without its spreads; `rest` and `half`, which they do not tell, as shipped.

    Notes
    -----
    `windowed` minimises the squares of ln(predicted / measured), `host` is the mean of ln of the CNNs' medians, each
    group counting the same. Proxies are no part of `host`: what an iteration costs beside its layers is most of theirs.
    """
    from scipy.optimize import minimize_scalar

    groups = _groups(pairs)

    def lost(windowed: float) -> float:
        law = replace(LAW, windowed=windowed)
        return sum(float(np.mean([pair.log_error(law) ** 2 for pair in own])) for own in groups.values())

    best = minimize_scalar(lost, bounds=(0.5, 5.0), method="bounded").x
    cnns = [own for name, own in groups.items() if name != "proxies"]
    host = math.exp(float(np.mean([_log_host(own) for own in cnns])))
    return ChainerLaw(round(float(best), 2), LAW.rest, LAW.half, round(host, 2))


def _groups(pairs: Sequence[ChainerPair]) -> dict[str, list[ChainerPair]]:
    found: dict[str, list[ChainerPair]] = {}
    for pair in pairs:
        found.setdefault(pair.group, []).append(pair)
    return found


def _log_host(pairs: Sequence[ChainerPair]) -> float:
    ratios = np.log([pair.host_ratio for pair in pairs])
    return float(np.median(ratios[np.isfinite(ratios)]))


def held_out_chainer_laws(pairs: Sequence[ChainerPair]) -> dict[str, ChainerLaw]:
    """Laws by group (each CNN, and all proxies), fitted without it."""
    return {
        group: fit_chainer_law([pair for pair in pairs if pair.group != group]) for group in _groups(pairs)
    }


def shipped_chainer_law(pairs: Sequence[ChainerPair]) -> ChainerLaw:
    """The law of all pairs, with the spreads of groups held out.

    Notes
    -----
    `rest` is the ratio of sums of single operators, `half` the geometric mean of two ratios of the ladder. `spread` is
    the largest 0.9 quantile of |ln(predicted / measured)| of a group held out, `host_spread` the largest |ln| of the
    median of one.
    """
    laws, groups = held_out_chainer_laws(pairs), _groups(pairs)
    errors = {name: [abs(pair.log_error(laws[name])) for pair in own] for name, own in groups.items()}
    ratios = [half / full for half, full in zip(_LADDER["half"], _LADDER["tf32"], strict=True)]
    return replace(
        fit_chainer_law(pairs),
        rest=round(measured_rest(), 2),
        half=round(math.prod(ratios) ** 0.5, 2),
        spread=round(max(float(np.quantile(each, 0.9)) for each in errors.values()), 2),
        host_spread=round(
            max(abs(_log_host(own) - math.log(laws[name].host)) for name, own in groups.items()), 2
        ),
    )
