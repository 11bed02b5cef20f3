"""Made-up tables of the published ones' form, a few rows each."""

import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

PROFET = {
    "gpu": "Tesla K80", "instance": "p2.xlarge", "framework": "tensorflow-2.5", "precision": "fp32",
    "cnn": "LeNet5", "image_size": 32, "samples_per_epoch": 50000, "batch_size": 16, "repeat": 1,
    "iteration_time_s": 0.010, "epoch_time_s": 40.0,
}  # fmt: skip
JUSTUS = {
    "gpu": "Tesla K80", "framework": "tensorflow-1.10", "precision": "fp32", "batch_size": 8, "in_size": 32,
    "in_channels": 16, "out_channels": 64, "kernel_size": 3, "stride": 1, "padding": "same",
    "activation": "none", "use_bias": True, "optimizer": "none", "time_ms_median": 1.5,
}  # fmt: skip
DEEPBENCH = {
    "gpu": "Tesla T4", "framework": "cudnn", "precision": "mixed", "batch_size": 8, "in_height": 161,
    "in_width": 700, "in_channels": 1, "out_channels": 32, "kernel_height": 5, "kernel_width": 20,
    "pad_height": 0, "pad_width": 0, "stride_vertical": 2, "stride_horizontal": 2, "forward_time_ms": 0.2,
    "backward_input_time_ms": 0.4, "backward_weight_time_ms": 0.3, "forward_algorithm": "WINOGRAD",
}  # fmt: skip
LAMBDA = {
    "framework": "tensorflow-1.15-xla", "gpu": "GeForce RTX 3090", "cnn": "alexnet", "image_size": 224,
    "batch_size": 96, "precision": "fp16_mixed", "phase": "fwd_bwd_update", "time_ms": 50.0,
    "n_samples": 100, "optimizer": "SGD", "extra": "machine=3970X-GeForce_RTX_3090_XLA;run=1",
}  # fmt: skip
TIMM = {
    "gpu": "GeForce RTX 3090", "framework": "pytorch-1.12", "precision": "amp", "memory_format": "nhwc",
    "cnn": "mobilenetv2_100", "image_size": 224, "batch_size": 512, "iteration_time_ms": 200.0,
    "samples_per_s": 2550.0, "parameters_m": 3.5,
}  # fmt: skip
TIMM_FORWARD = {
    "gpu": "RTX 4090", "framework": "pytorch 2.4.0 cu124 eager", "precision": "amp_fp16", "memory_format": "nchw",
    "cnn": "resnet50", "image_size": 224, "batch_size_per_gpu": 1024, "iteration_time_ms": 300.0, "url": "results.csv",
}  # fmt: skip
PYTORCH = {
    "source": "lambda_pytorch", "gpu": "RTX A4000", "framework": "pytorch-ngc-v0", "precision": "tf32",
    "cnn": "resnet50_v1.5", "image_size": 224, "batch_size": 64, "pass": "training",
    "iteration_time_ms": 200.0, "n_samples": 1, "input_data": "synthetic", "notes": "logs_year=2022",
}  # fmt: skip

_ROWS: dict[str, list[dict[str, Any]]] = {
    "profet_target_cnns.csv.gz": [
        {**PROFET, "repeat": i, "iteration_time_s": t, "epoch_time_s": 4000 * t}
        for i, t in enumerate((0.010, 0.012, 0.011), start=1)
    ],
    "justus_single_conv.csv.gz": [
        JUSTUS,
        {**JUSTUS, "stride": 2, "kernel_size": 2, "optimizer": "adam", "activation": "relu"},
        {**JUSTUS, "kernel_size": 4},
        {**JUSTUS, "padding": "valid", "use_bias": False},
    ],
    "deepbench_conv_training.csv.gz": [DEEPBENCH, {**DEEPBENCH, "backward_input_time_ms": None}],
    "lambda_tf_training.csv.gz": [
        *[{**LAMBDA, "time_ms": time, "batch_size": 96} for time in (50.0, 51.0, 52.0)],
        {**LAMBDA, "gpu": "Radeon Pro VII", "precision": "fp32"},
        {**LAMBDA, "time_ms": 600.0, "framework": "tensorflow-2.3"},
    ],
    "timm_training_rtx3090.csv.gz": [TIMM, {**TIMM, "cnn": "vit_tiny_patch16_224"}],
    "timm_forward.csv.gz": [TIMM_FORWARD, {**TIMM_FORWARD, "framework": "pytorch 2.4.0 cu124 torch.compile"}],
    "pytorch_training.csv.gz": [
        PYTORCH,
        {**PYTORCH, "source": "pytorch_gpu_benchmark", "cnn": "vgg11", "pass": "forward_backward",
         "framework": "pytorch", "notes": "h2d_copy_in_time=1;cudnn.benchmark=1", "n_samples": 50},
        {**PYTORCH, "source": "sia"},
    ],
}  # fmt: skip


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write rows as a (gzipped) CSV."""
    pd.DataFrame(rows).to_csv(path, index=False)


@pytest.fixture
def published(tmp_path: Path) -> Path:
    """A folder that holds every published table's form with made-up numbers."""
    for name, rows in _ROWS.items():
        write_rows(tmp_path / name, rows)
    return tmp_path


@pytest.fixture
def profet_row() -> dict[str, Any]:
    return dict(PROFET)


@pytest.fixture(scope="session")
def real_tables() -> Path:
    """The folder of real published tables; without it, a skip that says so."""
    folder = os.environ.get("EPOCHCAST_PUBLISHED_DATA")
    if not folder:
        pytest.skip("$EPOCHCAST_PUBLISHED_DATA is not set: the published tables are not part of epochcast")
    return Path(folder)
