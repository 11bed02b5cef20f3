"""The questions whose answers are held: plain data, so that any way to compute the answers can be asked them.

Every question names its GPUs and its precision and, where a default could change, the rest of what it depends on: a GPU
or a CNN that is added changes no answer. They are few, so that a person can read what a change moves.
"""

import json
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["BULK_ROWS", "EVALUATIONS", "MEASURED", "QUESTIONS", "Question", "own_cnn"]

INPUTS = Path(__file__).parent / "inputs"


class Question(NamedTuple):
    """A question to `predict`, `compare` or `explain`, and the faces that answer it."""

    name: str
    verb: str
    cnn: Any
    gpu: Any
    batch_size: Any
    precision: str
    options: dict[str, Any]
    faces: list[str]
    needs: str


def own_cnn() -> Any:
    """A residual CNN of PyTorch that is in no zoo."""
    from torch import nn

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(16, 16, 3, padding=1, bias=False)
            self.norm = nn.BatchNorm2d(16)

        def forward(self, x: Any) -> Any:
            return nn.functional.relu(x + self.norm(self.conv(x)))

    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        Block(),
        nn.MaxPool2d(2),
        Block(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def _question(question: Question) -> Question:
    """A row of questions.json, whose files are those of inputs/."""
    cnn, options, folder = question.cnn, question.options, INPUTS.parent
    if isinstance(cnn, str) and cnn.startswith("inputs/"):
        cnn = f"{folder}/{cnn}"
    if "measurements" in options:
        options = options | {"measurements": f"{folder}/{options['measurements']}"}
    return question._replace(cnn=own_cnn if cnn == "own_cnn" else cnn, options=options)


QUESTIONS = tuple(
    _question(Question(*row))
    for row in json.loads(INPUTS.with_name("questions.json").read_text(encoding="utf-8"))
)

BULK_ROWS: list[dict[str, Any]] = [
    {
        "id": f"{cnn}, {gpu}, {precision}, {batch_size}",
        "cnn": cnn,
        "image_size": "" if cnn == "lenet5" else image_size,
        "gpu": gpu,
        "batch_size": batch_size,
        "precision": precision,
        "memory_format": "channels_last" if precision == "amp_fp16" else "",
        "samples": 50_000 if batch_size % 2 else "",
        "anchor_gpu": "T4" if cnn == "vgg16" else "",
        "anchor_batch_size": 32 if cnn == "vgg16" else "",
        "anchor_iteration_time_ms": 400.0 if cnn == "vgg16" else "",
    }
    for cnn in ("resnet50", "vgg16", "lenet5")
    for gpu, image_size, batch_size in (("T4", 224, 1), ("V100-SXM2-16GB", 256, 32), ("K80", 224, 77))
    for precision in ("fp32", "amp_fp16")  # a K80 has no amp_fp16: its rows fail
]

_WORK = {"resnet18": 1.0, "resnet50": 2.6, "vgg11": 2.9, "mobilenet_v2": 0.9, "alexnet": 0.5}
_SLOWNESS = {"Tesla T4": 3.6, "Tesla V100-SXM2-16GB": 1.2, "Tesla K80": 9.0, "Tesla P100-PCIE-16GB": 2.0}


def _measured(cnn: str, gpu: str, batch_size: int) -> dict[str, Any]:
    uneven = 1.0 + 0.04 * ((len(cnn) * 7 + len(gpu) * 3 + batch_size) % 5 - 2)
    time_ms = round((3.0 + _WORK[cnn] * _SLOWNESS[gpu] * batch_size) * uneven, 6)
    return {
        "gpu": gpu, "cnn": cnn, "image_size": 224, "batch_size": batch_size, "precision": "fp32",
        "iteration_time_ms": time_ms, "samples_per_epoch": 50_000,
        "epoch_time_s": round(time_ms * 1.05 * 50_000 / batch_size / 1000 + 2.0, 6),
    }  # fmt: skip


MEASURED: list[dict[str, Any]] = [
    _measured(cnn, gpu, batch_size) for cnn in _WORK for gpu in _SLOWNESS for batch_size in (16, 32, 64, 128)
]
"""A made-up measurement table, by a formula that no predictor knows."""

EVALUATIONS: dict[str, dict[str, list[str]]] = {
    "plain": {
        "scenarios": ["problem-scaling", "unseen-cnn-one-run", "unseen-gpu-specs", "epoch-time"],
        "predictors": ["gpu-specs", "flops-ratio", "interpolation", "line"],
    },
    "fitted": {"scenarios": ["problem-scaling"], "predictors": ["roofline", "anchored"]},
}
