"""Hand-made CNNs and measurements whose law is known, for the tests of predictors."""

from collections.abc import Callable

import pandas as pd
import pytest

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.cnns.proxies import proxy_table
from predictor.measurements.features import feature_table
from predictor.models.ratios import Ratios
from predictor.models.served import Model

GPUS = (
    "Tesla K80", "Tesla M60", "Tesla P100-PCIE-16GB", "Tesla V100-SXM2-16GB", "Tesla T4", "GeForce RTX 3090",
    "NVIDIA A100-SXM4-40GB", "NVIDIA H200",
)  # fmt: skip
BATCH_SIZES = (8, 16, 32, 64, 128)


def _convolution(index: int, height: int, in_channels: int, out_channels: int, kernel: int = 3) -> Layer:
    return Layer(
        index=index, name=f"conv{index}", type="conv2d", inputs=(index - 1 if index else IMAGE,),
        in_channels=in_channels, in_height=height, in_width=height, out_channels=out_channels, out_height=height,
        out_width=height, kernel_height=kernel, kernel_width=kernel, stride_height=1, stride_width=1,
        padding_height=kernel // 2, padding_width=kernel // 2, dilation=1, groups=1,
        parameters=in_channels * out_channels * kernel**2,
    )  # fmt: skip


def cnn_of(name: str, *shapes: tuple[int, ...]) -> LayerTable:
    """A CNN that is nothing but these convolutions: (height, in_channels, out_channels[, kernel])."""
    layers = tuple(_convolution(i, *shape) for i, shape in enumerate(shapes))
    return LayerTable(name, shapes[0][0], layers, source="csv")


CNNS = {
    "narrow": cnn_of("narrow", (32, 3, 64), (32, 64, 64), (32, 64, 64)),
    "wide": cnn_of("wide", (32, 3, 64), (32, 64, 128), (32, 128, 128, 1)),
    "deep": cnn_of("deep", (32, 3, 64), *[(32, 64, 64)] * 7, (32, 64, 128)),
    "stranger": cnn_of("stranger", (32, 3, 64), (32, 64, 96), (32, 96, 96)),
}


def _rows(cnn: str, kind: str, time_ms: Callable[[str, int], float]) -> list[dict[str, object]]:
    of_all = {"framework": "pytorch", "kind": kind, "cnn": cnn, "image_size": 32, "samples_per_epoch": 50_000}
    of_all |= {"pass": "training", "precision": "fp32", "memory_format": "nchw"}
    return [
        of_all
        | {"gpu": gpu, "batch_size": batch_size, "iteration_time_ms": time_ms(gpu, batch_size)}
        | {"epoch_time_s": time_ms(gpu, batch_size) * -(-50_000 // batch_size) / 1000}
        for gpu in GPUS
        for batch_size in BATCH_SIZES
    ]


@pytest.fixture(scope="session")
def features(features_with_proxies: pd.DataFrame) -> pd.DataFrame:
    """Three CNNs on eight GPUs at five batch sizes, the times of two proxies beside them."""
    return features_with_proxies[features_with_proxies["kind"] == "target"].reset_index(drop=True)


@pytest.fixture(scope="session")
def features_with_proxies() -> pd.DataFrame:
    """Three CNNs and two proxies on eight GPUs at five batch sizes."""
    rank = {gpu: 1 + i for i, gpu in enumerate(GPUS)}
    work = {"narrow": 1.0, "wide": 1.4, "deep": 2.9, "32_3_64": 0.3, "32_64_64": 0.7}
    rows: list[dict[str, object]] = []
    for cnn, share in work.items():
        kind = "proxy" if cnn[0].isdigit() else "target"
        rows += _rows(cnn, kind, lambda gpu, b, share=share: 2 + share * b * (1 + b / 900) / rank[gpu])
    return feature_table(pd.DataFrame(rows), lambda cnn, _: CNNS[cnn] if cnn in CNNS else proxy_table(cnn))


@pytest.fixture
def stranger(features: pd.DataFrame) -> pd.DataFrame:
    """A question about a CNN with two convolution shapes that no training CNN has."""
    table = CNNS["stranger"]
    question = features.head(1).copy()
    question["cnn"] = "stranger"
    question["layer_table"] = pd.Series([table], index=question.index, dtype=object)
    return question


@pytest.fixture(scope="session")
def model() -> Model:
    """The shipped model."""
    return Model.load()


@pytest.fixture(scope="session")
def same_ratios() -> Callable[[Ratios, Ratios], None]:
    """Hold refitted ratios against the shipped ones, which rest on predictions of the model of that day."""

    def check(fitted: Ratios, shipped: Ratios) -> None:
        assert dict(fitted.numbers) == pytest.approx(dict(shipped.numbers), rel=0.05, abs=0.001)
        assert (fitted.spread, fitted.host_spread) == pytest.approx(
            (shipped.spread, shipped.host_spread), rel=0.05, abs=0.02
        )

    return check
