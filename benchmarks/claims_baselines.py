"""Baselines of docs/benchmark.md: `python benchmarks/claims_baselines.py FOLDER` writes a table of predictions of each.

`epochcast` is the product as it is, `roofline` and `flops-ratio` are its predictors from specifications alone.
`runtime-estimator` is PyTorch's own (`torch.distributed._tools`), which answers for CNNs of torchvision on one GPU
without loading; it is given the peaks of gpus.csv, where it would take those of the GPU that it runs on.
"""

import csv
import math
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from claims import Claim, asked_claims, claims

from predictor.catalogue.devices import Gpu, find_gpu
from predictor.errors import EpochcastError

_LEARNING_RATE = 0.1
_AUTOCAST = {"amp_fp16": "float16", "amp_bf16": "bfloat16"}


def main(folder: Path) -> None:
    """Write every table."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = {
        "epochcast": by_epochcast(),
        "roofline": by_epochcast(method="roofline"),
        "flops-ratio": by_epochcast(method="flops-ratio"),
        "runtime-estimator": by_runtime_estimator(),
    }
    for name, rows in tables.items():
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, lineterminator="\n")
            writer.writerow(("id", "predicted", "low", "high"))
            writer.writerows(rows)


def by_epochcast(**options: Any) -> Iterator[tuple[str, float, float, float]]:
    """What `epochcast.predict` answers, with 90 % intervals; what it refuses is left out."""
    for claim in claims():
        try:
            [row] = asked_claims([claim], **options).to_dict("records")
        except EpochcastError:
            continue
        values = sorted(_published(claim, row[end]) for end in ("low", "high"))
        yield claim["id"], _published(claim, row["predicted"]), *values


def _published(claim: Claim, seconds: float) -> float:
    """A time of `asked_claims` in the unit that was published."""
    if claim["measured"] == "images/s":
        return int(claim["batch_size"]) / seconds
    return 1000 * seconds if claim["measured"] == "iteration_ms" else seconds


def by_runtime_estimator() -> Iterator[tuple[str, float, str, str]]:
    """What PyTorch's estimator answers, by its cost model of operators."""
    from torch._subclasses.fake_tensor import DataDependentOutputException
    from torchvision import models

    known = set(models.list_models(module=models))
    for claim in claims():
        if claim["framework"] != "pytorch" or claim["n_gpus"] != "1" or claim["loading"] == "yes":
            continue
        if claim["cnn"] not in known or claim["precision"] == "fp16":
            continue
        batch, gpu = int(claim["batch_size"]), find_gpu(claim["gpu"])
        try:
            seconds = _estimated_s(
                claim["cnn"], int(claim["image_size"] or 224), batch, claim["precision"], gpu.name
            )
        except DataDependentOutputException:  # its step or its making reads numbers, which such tensors lack
            continue
        if claim["measured"] in ("epoch_s", "total_s"):
            seconds *= float(claim["epochs"] or 1) * math.ceil(int(claim["samples"]) / batch)
        yield claim["id"], _published(claim, seconds), "", ""


@cache
def _estimated_s(cnn: str, image_size: int, batch: int, precision: str, gpu_name: str) -> float:
    """Seconds of a training step, run on tensors without data."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.runtime_estimator import RuntimeEstimator
    from torch.utils import _runtime_estimation
    from torchvision import models

    gpu = find_gpu(gpu_name)
    patched: Any = _runtime_estimation
    patched.get_device_tflops = lambda dtype: _peak(gpu, precision, dtype == torch.float32)
    patched.get_gpu_dram_gbps = lambda: gpu.memory_bandwidth_gb_per_s
    torch.cuda.is_available = lambda: True
    narrow = getattr(torch, _AUTOCAST.get(precision, "bfloat16"))
    with FakeTensorMode():
        model = models.get_model(
            cnn, **({"aux_logits": False} if cnn in ("googlenet", "inception_v3") else {})
        )
        optimizer = torch.optim.SGD(model.parameters(), _LEARNING_RATE, momentum=0.9)
        images, labels = torch.randn(batch, 3, image_size, image_size), torch.zeros(batch, dtype=torch.long)

        def step() -> None:
            with torch.autocast("cpu", narrow, enabled=precision in _AUTOCAST):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()

        step()  # the momentum buffers are made
        estimator = RuntimeEstimator()
        with estimator(estimate_mode_type="operator-level-cost-model"):
            step()
    return float(estimator.total_runtime) / 1000


def _peak(gpu: Gpu, precision: str, is_fp32: bool) -> float:
    """Peak of a data type in a mode, TFLOP/s; that of fp32 where the GPU has no tensor cores."""
    if precision == "tf32" and is_fp32:
        return gpu.peak_tf32_tflop_per_s or gpu.peak_fp32_tflop_per_s
    return (
        gpu.peak_fp32_tflop_per_s
        if is_fp32
        else gpu.peak_fp16_tensor_tflop_per_s or gpu.peak_fp32_tflop_per_s
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
