"""A small made-up world: times follow a known law, so that the right answers are known exactly."""

from itertools import product
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, RegressorMixin

from predictor.errors import OutOfRangeError

GPU_RATES = {"Tesla K80": 1.0, "Tesla M60": 1.7, "Tesla T4": 2.6, "Tesla V100-SXM2-16GB": 8.0}
CNN_WORK = {f"profet/Cnn{i}": 0.5 + i for i in range(6)}
BATCH_SIZES = (16, 32, 64, 128, 256)


def law_ms(gpu: str, cnn: str, batch_size: int) -> float:
    return (2.0 + CNN_WORK[cnn] * batch_size) / GPU_RATES[gpu]


def target_table() -> pd.DataFrame:
    rows = [
        {"gpu": gpu, "cnn": cnn, "image_size": 32, "batch_size": b, "iteration_time_ms": law_ms(gpu, cnn, b)}
        for gpu, cnn, b in product(GPU_RATES, CNN_WORK, BATCH_SIZES)
    ]
    table = pd.DataFrame(rows).assign(source="profet", kind="target", precision="fp32", layer_table=None)
    table["iteration_time_ms_iqr"] = 0.02 * table["iteration_time_ms"]
    table["samples_per_epoch"], table["validation_samples"], table["framework"] = 50_000, 10_000, "tensorflow"
    iterations = np.ceil(50_000 / table["batch_size"])
    table["epoch_time_s"] = (iterations * table["iteration_time_ms"] * 1.06 + iterations * 0.3) / 1000
    return table


def operator_table() -> pd.DataFrame:
    rows = [
        {
            "gpu": gpu,
            "cnn": f"justus/{i}",
            "image_size": 8 + i,
            "batch_size": 4,
            "iteration_time_ms": i / rate,
        }
        for (gpu, rate), i in product(GPU_RATES.items(), range(1, 31))
    ]
    return pd.DataFrame(rows).assign(
        source="justus", kind="operator", precision="fp32", type="conv2d", **{"pass": "forward"}
    )


class Lawful(RegressorMixin, BaseEstimator):
    """Answers with the law of the made-up world, times a factor; learns nothing."""

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor

    def fit(self, _X: pd.DataFrame, _y: NDArray[np.float64]) -> "Lawful":
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        rows = zip(X["gpu"], X["cnn"], X["batch_size"], strict=True)
        return self.factor * np.array([law_ms(gpu, cnn, batch_size) for gpu, cnn, batch_size in rows])


class LawfulWithInterval(Lawful):
    """The same with an interval of 10 % to both sides."""

    def predict_interval(self, X: pd.DataFrame, **_options: Any) -> tuple[Any, Any]:
        return self.predict(X) * 0.9, self.predict(X) * 1.1


class NoisyMean(RegressorMixin, BaseEstimator):
    """Mean training time per image with random factors: repeats itself only with its seed."""

    def __init__(self, random_state: int | None = None) -> None:
        self.random_state = random_state

    def fit(self, X: pd.DataFrame, y: NDArray[np.float64]) -> "NoisyMean":
        random = np.random.default_rng(self.random_state)
        self.per_image_ = float(np.mean(y / X["batch_size"])) * random.uniform(0.9, 1.1)
        return self

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        return self.per_image_ * X["batch_size"].to_numpy(dtype=float)


class Refusing(NoisyMean):
    """Refuses one CNN, as a predictor does that lacks what it needs."""

    def predict(self, X: pd.DataFrame) -> NDArray[np.float64]:
        if (X["cnn"] == "profet/Cnn0").any():
            raise OutOfRangeError("profet/Cnn0 is not for me")
        return super().predict(X)


@pytest.fixture(scope="session")
def made_up_table() -> pd.DataFrame:
    """The whole CNNs of the made-up world; tests that change rows take `features`."""
    return target_table()


@pytest.fixture
def features(made_up_table: pd.DataFrame) -> pd.DataFrame:
    return made_up_table.copy()


@pytest.fixture
def features_with_operators() -> pd.DataFrame:
    return pd.concat([target_table(), operator_table()], ignore_index=True)


@pytest.fixture(scope="session")
def world() -> SimpleNamespace:
    """What the made-up world is: its law, and predictors that know it, or fail in a known way."""
    return SimpleNamespace(
        law_ms=law_ms,
        lawful=Lawful,
        lawful_with_interval=LawfulWithInterval,
        noisy_mean=NoisyMean,
        refusing=Refusing,
    )
