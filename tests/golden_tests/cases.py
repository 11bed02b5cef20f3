"""The questions whose answers are held: plain data, so that any way to compute the answers can be asked them.

Every question names its GPUs and its precision and, where a default could change, the rest of what it depends on: a GPU
or a CNN that is added changes no answer. They are few, so that a person can read what a change moves.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = [
    "BULK_ROWS", "EVALUATIONS", "MEASURED", "QUESTIONS", "Question", "own_cnn",
]  # fmt: skip

INPUTS = Path(__file__).parent / "inputs"


@dataclass(frozen=True)
class Question:
    """A question to `predict`, `compare` or `explain`, and the faces that answer it."""

    name: str
    verb: str
    cnn: Any
    gpu: Any
    batch_size: Any
    precision: str
    options: dict[str, Any] = field(default_factory=dict)
    faces: tuple[str, ...] = ("python",)
    needs: str = ""


# fmt: off
CNNS = [
    "alexnet",
    "convnext_base", "convnext_large", "convnext_small", "convnext_tiny",
    "dcgan_discriminator", "dcgan_generator",
    "densenet121", "densenet161", "densenet169", "densenet201",
    "efficientnet_b0", "efficientnet_b1", "efficientnet_b2", "efficientnet_b3", "efficientnet_b4",
    "efficientnet_b5", "efficientnet_b6", "efficientnet_b7", "efficientnet_v2_l", "efficientnet_v2_m",
    "efficientnet_v2_s",
    "googlenet",
    "inception_v3",
    "lenet5",
    "mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3",
    "mnist_cnn",
    "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small",
    "regnet_x_16gf", "regnet_x_1_6gf", "regnet_x_32gf", "regnet_x_3_2gf", "regnet_x_400mf",
    "regnet_x_800mf", "regnet_x_8gf", "regnet_y_128gf", "regnet_y_16gf", "regnet_y_1_6gf",
    "regnet_y_32gf", "regnet_y_3_2gf", "regnet_y_400mf", "regnet_y_800mf", "regnet_y_8gf",
    "resnet101", "resnet152", "resnet18", "resnet18_cifar", "resnet34", "resnet50",
    "resnext101_32x8d", "resnext101_64x4d", "resnext50_32x4d",
    "shufflenet_v2_x0_5", "shufflenet_v2_x1_0", "shufflenet_v2_x1_5", "shufflenet_v2_x2_0",
    "squeezenet1_0", "squeezenet1_1",
    "vgg11", "vgg11_bn", "vgg13", "vgg13_bn", "vgg16", "vgg16_bn", "vgg19", "vgg19_bn", "vgg_cifar",
    "wide_resnet101_2", "wide_resnet50_2",
]
# fmt: on
FEW_CNNS = ["resnet50", "mobilenet_v2"]

WITHOUT_HALF = ["Tesla K80", "Tesla M60"]
WITH_HALF = [
    "Tesla P100-PCIE-16GB",
    "GeForce GTX 1080 Ti",
    "Tesla V100-SXM2-16GB",
    "Tesla T4",
    "GeForce RTX 2080 Ti",
]
WITH_BFLOAT = [
    "NVIDIA A100-SXM4-40GB",
    "GeForce RTX 4090",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA H200",
    "NVIDIA B200",
]
GPUS = {
    "fp32": WITHOUT_HALF + WITH_HALF + WITH_BFLOAT,
    "tf32": WITH_BFLOAT,
    "amp_fp16": WITH_HALF + WITH_BFLOAT,
    "amp_bf16": WITH_BFLOAT,
}
COMPARED = ["Tesla T4", "L4", "NVIDIA A100-SXM4-40GB", "NVIDIA H100 80GB HBM3"]
FEW_GPUS = ["Tesla V100-SXM2-16GB", "Tesla T4", "NVIDIA H200"]

MODES = (
    ("fp32", "nchw"), ("tf32", "nchw"), ("amp_fp16", "nchw"), ("amp_bf16", "nchw"), ("amp_fp16", "channels_last"),
    ("amp_bf16", "channels_last"),
)  # fmt: skip
ALL_FACES = ("python", "cli", "rest")
IMAGENET = {"data_set": "imagenet"}


def _of_the_zoo() -> list[Question]:
    """Each CNN once; modes, GPUs and batch sizes in turn."""
    found = []
    for place, cnn in enumerate(CNNS):
        turn, mode = divmod(place, len(MODES))
        precision, memory_format = MODES[mode]
        gpu, batch_size = GPUS[precision][turn % len(GPUS[precision])], (1, 7, 32, 256)[(turn + mode) % 4]
        options = {"memory_format": memory_format, "samples": 50_000}
        name = f"zoo {precision} {memory_format} {cnn}"
        found.append(Question(name, "predict", [cnn], [gpu], [batch_size], precision, options))
    return found


def _of_options() -> list[Question]:
    """A few CNNs with each option changed on its own, by every face."""
    changes: dict[str, dict[str, Any]] = {
        "usual": {},
        "tensorflow": {"framework": "tensorflow"},
        "chainer": {"framework": "chainer"},
        "graph": {"capture": "graph"},
        "static graph": {"capture": "static_graph"},
        "adam": {"optimizer": "adam"},
        "plain sgd": {"optimizer": "sgd"},
        "channels last": {"memory_format": "channels_last"},
        "validation": {"validation_samples": 50_000},
        "roofline": {"method": "roofline"},
        "spot": {"spot": True},
        "another host": {"host": "p3.2xlarge"},
        "larger images": {"image_size": 288},
    }
    found = [
        Question(
            f"few fp32 {name}", "predict", ["resnet50"], ["Tesla T4", "NVIDIA H200"], [16], "fp32", IMAGENET | change,
            ALL_FACES,
        )
        for name, change in changes.items()
    ]  # fmt: skip
    for name, precision, change in (
        ("layer times", "tf32", {"method": "layer-times"}),
        ("roofline", "tf32", {"method": "roofline"}),
        ("graph", "amp_bf16", {"capture": "graph", "memory_format": "channels_last"}),
        ("adam", "amp_bf16", {"optimizer": "adam"}),
        ("compile", "tf32", {"capture": "compile"}),
        ("half", "fp16", {}),
    ):
        question = f"few {precision} {name}"
        found.append(
            Question(
                question, "predict", FEW_CNNS, ["NVIDIA H200"], [100], precision, IMAGENET | change, ALL_FACES,
            )
        )  # fmt: skip
    found += [
        Question("no samples", "predict", ["lenet5"], FEW_GPUS, [8], "fp32", {}, ALL_FACES),
        Question("cifar", "predict", ["vgg_cifar"], FEW_GPUS, [128], "fp32", {"data_set": "cifar100"}),
    ]
    return found


def _with_anchors() -> list[Question]:
    anchors: dict[str, list[dict[str, Any]]] = {
        "on the gpu": [{"gpu": "Tesla T4", "batch_size": 32, "iteration_time_ms": 300.5}],
        "on another gpu": [{"gpu": "Tesla P100-PCIE-16GB", "batch_size": 64, "iteration_time_ms": 410.0}],
        "of an epoch": [{"gpu": "Tesla T4", "batch_size": 32, "epoch_time_s": 12_000, "samples": 1_281_167}],
        "as throughput": [{"gpu": "NVIDIA H200", "batch_size": 16, "throughput_samples_per_s": 555.5}],
        "with an image size": [
            {"gpu": "Tesla T4", "batch_size": 32, "iteration_time_ms": 290.0, "image_size": 224}
        ],
        "two batch sizes": [
            {"gpu": "Tesla T4", "batch_size": 16, "iteration_time_ms": 160.0},
            {"gpu": "Tesla T4", "batch_size": 64, "iteration_time_ms": 590.0},
        ],
        "three gpus": [
            {"gpu": "Tesla T4", "batch_size": 16, "iteration_time_ms": 160.0},
            {"gpu": "Tesla V100-SXM2-16GB", "batch_size": 64, "iteration_time_ms": 190.0},
            {"gpu": "Tesla P100-PCIE-16GB", "batch_size": 32, "iteration_time_ms": 210.0},
        ],
    }
    found = [
        Question(
            f"anchors {name}", "predict", ["resnet50"], ["Tesla T4", "Tesla K80"], [32], "fp32",
            IMAGENET | {"anchors": given},
            ALL_FACES if len(given) == 1 and "image_size" not in given[0] else ("python", "rest"),
        )
        for name, given in anchors.items()
    ]  # fmt: skip
    found.append(
        Question(
            "anchors beside measured layers", "predict", ["resnet50"], ["NVIDIA H200", "NVIDIA A100-SXM4-40GB"],
            [8, 64], "tf32",
            {"samples": 1000, "anchors": [{"gpu": "H200", "batch_size": 64, "iteration_time_ms": 40.0}]}, ALL_FACES,
        )
    )  # fmt: skip
    return found


def _with_own_measurements() -> list[Question]:
    """Made-up operators (a formula of each shape) of an L40S and a CPU, with and without whole CNNs."""
    found = [
        Question(
            f"own {file} {cnn}", "predict", [cnn], ["NVIDIA L40S", "NVIDIA H200"], [100], "tf32",
            {"samples": 50_000, "measurements": str(INPUTS / f"own_{file}.csv.gz")}, ALL_FACES,
        )
        for file in ("operators", "measurements")
        for cnn in ("resnet34", "convnext_tiny")
    ]  # fmt: skip
    found.append(
        Question(
            "own cpu operators", "predict", ["lenet5"], ["cpu:Xeon"], [50], "fp32",
            {"samples": 50_000, "measurements": str(INPUTS / "own_cpu_operators.csv.gz")}, ("python", "cli"),
        )
    )  # fmt: skip
    return found


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


def _of_own_cnns() -> list[Question]:
    ways: dict[str, tuple[Any, dict[str, Any], tuple[str, ...], str]] = {
        "layer table": (str(INPUTS / "own_layers.csv"), {}, ("python", "cli"), ""),
        "onnx": (str(INPUTS / "own_cnn.onnx"), {}, ALL_FACES, "onnx"),
        "torch": (own_cnn, {"image_size": 32}, ("python",), "torch"),
    }
    return [
        Question(
            f"own cnn {name} {precision}", "predict", cnn, ["NVIDIA H200", "NVIDIA A100-SXM4-40GB"], [64], precision,
            {"samples": 50_000} | options, faces, needs,
        )
        for name, (cnn, options, faces, needs) in ways.items()
        for precision in ("fp32", "amp_bf16")
    ]  # fmt: skip


def _comparisons() -> list[Question]:
    plans: dict[str, dict[str, Any]] = {
        "usual": {},
        "plan": {"epochs": 90, "budget_usd": 400.0, "deadline_h": 24.0, "setup_minutes": 10.0},
        "relative": {"relative_to": "Tesla T4", "epochs": 3},
        "by time": {"rank_by": "time"},
        "every offer": {"all_offers": True},
        "spot": {"spot": True, "all_offers": True, "rank_by": "time"},
        "anchored": {"anchors": [{"gpu": "T4", "batch_size": 32, "throughput_samples_per_s": 100.0}]},
    }
    return [
        Question(
            f"compare {cnn} {precision} {name}", "compare", cnn, ["Tesla T4"] if "all_offers" in plan else COMPARED,
            [32, 64, 128], precision, IMAGENET | plan, ALL_FACES,
        )
        for place, (name, plan) in enumerate(plans.items())
        for cnn, precision in [(("resnet50", "fp32"), ("vgg16", "amp_fp16"))[place % 2]]
    ]  # fmt: skip


def _explanations() -> list[Question]:
    asked: tuple[tuple[str, Any, list[str], str, dict[str, Any]], ...] = (
        ("roofline", "resnet50", ["T4"], "fp32", IMAGENET),
        ("measured layers", "resnet50", ["H200"], "tf32", IMAGENET),
        ("anchored", "resnet50", ["T4"], "fp32", {
            "anchors": [{"gpu": "T4", "batch_size": 64, "iteration_time_ms": 777.0}]
        }),
    )  # fmt: skip
    found = [
        Question(
            f"explain {name}", "explain", cnn, gpus, [4], precision, options,
            ("python", "rest") if "anchors" in options else ALL_FACES,
        )
        for name, cnn, gpus, precision, options in asked
    ]  # fmt: skip
    found.append(
        Question(
            "explain a table", "explain", str(INPUTS / "own_measurements.csv.gz"), ["L40S"], [64], "tf32", {},
            ("python", "cli"),
        )
    )  # fmt: skip
    return found


QUESTIONS = (
    *_of_the_zoo(), *_of_options(), *_with_anchors(), *_with_own_measurements(), *_of_own_cnns(), *_comparisons(),
    *_explanations(),
)  # fmt: skip

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
        "gpu": gpu,
        "cnn": cnn,
        "image_size": 224,
        "batch_size": batch_size,
        "precision": "fp32",
        "iteration_time_ms": time_ms,
        "samples_per_epoch": 50_000,
        "epoch_time_s": round(time_ms * 1.05 * 50_000 / batch_size / 1000 + 2.0, 6),
    }


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
