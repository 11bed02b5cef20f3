"""SkyPilot: a time estimator for its optimizer, and the choice of a comparison as a block of its YAML.

Nothing of SkyPilot is imported: its `Resources` are read by their attributes, its YAML is written as text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from predictor.answers.quantities import duration, span, usd
from predictor.catalogue.devices import Gpu, find_gpu
from predictor.catalogue.offers import Offer, load_offers
from predictor.errors import OutOfRangeError, SchemaError

if TYPE_CHECKING:
    import pandas as pd

CLOUDS = ("aws", "azure", "gcp", "lambda", "runpod", "vast")
"""Providers of `offers.csv` that are clouds of SkyPilot, under the same names."""

_BY_INSTANCE = ("aws", "azure")  # whose instances `offers.csv` names as they do

_GPUS = {
    "A100": "NVIDIA A100-SXM4-40GB",
    "A100-80GB": "NVIDIA A100-SXM4-80GB",
    "A100-80GB-SXM": "NVIDIA A100-SXM4-80GB",
    "A6000": "NVIDIA RTX A6000",
    "GH200": "NVIDIA GH200 480GB",
    "H100": "NVIDIA H100 80GB HBM3",
    "H100-MEGA": "NVIDIA H100 80GB HBM3",
    "H100-NVL": "NVIDIA H100 NVL",
    "H100-SXM": "NVIDIA H100 80GB HBM3",
    "H200-SXM": "NVIDIA H200",
    "P100": "Tesla P100-PCIE-16GB",
    "RTX6000": "Quadro RTX 6000",
    "RTX6000-Ada": "NVIDIA RTX 6000 Ada Generation",
    "RTXPRO6000": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "V100": "Tesla V100-SXM2-16GB",
    "V100-32GB": "Tesla V100-SXM2-32GB",
}
"""Names of SkyPilot that stand for several cards, or that `find_gpu` does not know: the card that most clouds rent."""

_GPUS_ON = {
    ("lambda", "A100"): "NVIDIA A100-SXM4-40GB",
    ("runpod", "A100-80GB"): "NVIDIA A100 80GB PCIe",
    ("runpod", "H100"): "NVIDIA H100 PCIe",
}
"""Where a cloud means another card by a name."""

_NAMES_ON = {
    ("runpod", "NVIDIA A100-SXM4-80GB"): "A100-80GB-SXM",
    ("runpod", "NVIDIA H100 80GB HBM3"): "H100-SXM",
    ("runpod", "NVIDIA H200"): "H200-SXM",
    ("lambda", "NVIDIA RTX A6000"): "A6000",
    **{(cloud, gpu): name for (cloud, name), gpu in _GPUS_ON.items()},
}

_INSTANCES = {("lambda", "NVIDIA H100 PCIe"): "gpu_1x_h100_pcie"}
"""Where a cloud has two cards of one name, the instance with the rarer one."""


def time_estimator(
    cnn: object, batch_size: Any = None, *, epochs: int = 1, **options: Any
) -> Callable[[Any], float]:
    """Make the function that SkyPilot's `Task.set_time_estimator` takes: `Resources` -> seconds of the training.

    Parameters
    ----------
    cnn : str, path, LayerTable or PyTorch module
    batch_size : int, str or list, optional
        As of `epochcast.compare`. If None, each GPU trains at the largest power of two up to 256 that fits.
    epochs : int, default 1
    **options
        Of `epochcast.compare`, such as ``data_set="imagenet"``, ``precision="amp_bf16"``, ``setup_minutes=10``.

    Returns
    -------
    callable
        Takes the `Resources` of one candidate. Several GPUs count as in `epochcast.compare`: as many as train fastest
        together. Infinite where the training does not fit in memory, so that the optimizer does not choose it.

    Raises
    ------
    SchemaError
        By the function: if the resources have no accelerator, or several kinds of them.
    UnknownGpuError
        By the function: if the accelerator is not in gpus.csv.

    Examples
    --------
    >>> estimate = time_estimator("resnet50", 256, epochs=90, data_set="imagenet")
    >>> # task.set_time_estimator(estimate)
    """

    @lru_cache(maxsize=256)
    def seconds(gpu: str, gpu_count: float) -> float:
        return _seconds(cnn, batch_size, find_gpu(gpu), gpu_count, {"epochs": epochs, **options})

    def estimate(resources: Any) -> float:
        gpu, count = _accelerator_of(resources)
        return seconds(gpu.name, count)

    return estimate


def resources_yaml(comparison: pd.DataFrame, *, spot: bool = False) -> str:
    """The offer that ranks first, of those that SkyPilot can launch, as the block ``resources`` of a task's YAML.

    Parameters
    ----------
    comparison : DataFrame
        Of `epochcast.compare`.
    spot : bool
        Whether it was asked for spot prices.

    Raises
    ------
    OutOfRangeError
        If no offer that fits is one of a cloud in `CLOUDS`.
    """
    rows = [row for row in comparison.to_dict("records") if row["fits_in_memory"]]
    found = next((row for row in rows if _provider(row) in CLOUDS), None)
    if found is None:
        ranked = ", ".join(dict.fromkeys(str(row["offer"]) for row in rows[:5])) or "none that fits"
        raise OutOfRangeError(
            f"no offer here is one of SkyPilot's {', '.join(CLOUDS)}; ranked first are: {ranked}. Leave --gpu or "
            "--offers out, or take those of --all-offers."
        )
    passed = [str(row["offer"]) for row in rows[: rows.index(found)]]
    lines = [_headline({str(name): value for name, value in found.items()})]
    if passed:
        lines.append(f"# ranked before it, but not launched by SkyPilot: {', '.join(passed)}")
    return "\n".join([*lines, "resources:", *_block(found, spot)]) + "\n"


def _headline(row: Mapping[str, Any]) -> str:
    time_s = 3600.0 * row["total_time_h"]
    interval = span(3600.0 * row["total_low_h"], 3600.0 * row["total_high_h"], time_s)
    epochs = f"{row['epochs']:,} epoch{'s' * (row['epochs'] > 1)}"
    return (
        f"# epochcast: {epochs} of {row['cnn']} on {row['offer']} take {duration(time_s)} ({interval}), "
        f"{usd(row['total_cost_usd'])}"
    )


def _block(row: Mapping[Any, Any], spot: bool) -> list[str]:
    provider, instance = _provider(row), str(row["offer"]).partition(" ")[2]
    region = "" if row["region"] in (None, "", "any") else f"/{row['region']}"
    lines = [f"  infra: {provider}{region}"]
    named = instance if provider in _BY_INSTANCE else _INSTANCES.get((provider, str(row["gpu"])))
    if named is not None:
        lines.append(f"  instance_type: {named}")
    else:
        lines.append(f"  accelerators: {_name_of(provider, str(row['gpu']))}:{int(row['offer_gpu_count'])}")
    return [*lines, *(["  use_spot: true"] if spot else [])]


def _provider(row: Mapping[Any, Any]) -> str:
    return str(row["offer"]).partition(" ")[0]


def _seconds(cnn: object, batch_size: Any, gpu: Gpu, gpu_count: float, options: Mapping[str, Any]) -> float:
    from predictor.answers.compare import compare
    from predictor.answers.question import Plan, Question

    plan, of_question = Plan.of(dict(options))
    offer = Offer("skypilot", "candidate", gpu.name, gpu_count, usd_per_hour=1.0, link=_link(gpu, gpu_count))
    question = Question.of(cnn, gpu, batch_size, {**of_question, "offers": (offer,)})
    [row] = compare(question, plan).rows
    return 3600.0 * row.total_time_h if row.fits_in_memory else math.inf


def _link(gpu: Gpu, gpu_count: float) -> str:
    from predictor.catalogue.links import usual_link

    return usual_link(gpu, load_offers()).name if gpu_count > 1 else ""


def _accelerator_of(resources: Any) -> tuple[Gpu, float]:
    """The GPU of SkyPilot's resources and their number."""
    accelerators = resources.accelerators or {}
    if len(accelerators) != 1:
        raise SchemaError(
            f"resources with the accelerators {accelerators or 'none'} are no GPU to train on. Name one kind, such as "
            "accelerators='A100:1'."
        )
    [(name, count)] = accelerators.items()
    cloud = "" if resources.cloud is None else str(resources.cloud).casefold()
    return _gpu_of(str(name), cloud, str(resources.instance_type or "")), float(count)


def _gpu_of(name: str, cloud: str, instance: str) -> Gpu:
    """The card that a name of SkyPilot stands for; an instance says it exactly where `offers.csv` has it."""
    for offer in load_offers():
        if (offer.provider, offer.instance) == (cloud, instance):
            return find_gpu(offer.gpu)
    if cloud == "lambda" and instance.endswith("_pcie"):
        return find_gpu(f"{name} PCIe")
    return find_gpu(_GPUS_ON.get((cloud, name)) or _GPUS.get(name) or name)


def _name_of(cloud: str, gpu: str) -> str:
    """SkyPilot's name of a GPU on a cloud."""
    names = {of: name for name, of in reversed(_GPUS.items())}  # of several names the first
    plain = gpu.removeprefix("NVIDIA ").removeprefix("Tesla ").removeprefix("GeForce ").replace(" ", "")
    return _NAMES_ON.get((cloud, gpu)) or names.get(gpu) or plain.replace("T4G", "T4g")
