"""A model that answers by a formula, so that tests of what is built on models need no fit."""

# ruff: noqa: ARG002 - the fake takes what the model takes

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from predictor.gpus import Gpu
from predictor.layers import LayerTable
from predictor.modes import Mode
from predictor.offers import Offer


class FakeModel:
    """Time = 5 ms + batch size x layers / peak; 10 % of it host; every other generation extrapolates."""

    card: dict[str, Any] = {"name": "fake", "trained_on": "a formula"}  # noqa: RUF012

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, list[int]]] = []

    def forecast(
        self,
        table: LayerTable,
        gpu: Gpu,
        mode: Mode,
        batch_sizes: Sequence[int],
        anchors: Sequence[Any] = (),
        method: str = "auto",
        host: str | None = None,
    ) -> Any:
        self.calls.append((table.cnn, gpu.name, list(batch_sizes)))
        sizes = np.asarray(batch_sizes, dtype=float)
        times = 5.0 + sizes * len(table) / gpu.peak_fp32_tflop_per_s / 30.0
        if anchors:
            times = times * (anchors[0].iteration_time_ms / 100.0)
        reasons = () if gpu.generation in ("kepler", "turing", "volta") else ("gpu: not measured",)
        return SimpleNamespace(
            iteration_time_ms=times,
            gpu_time_ms=times * 0.9,
            host_time_ms=times * 0.1,
            low_ms=times * 0.8,
            high_ms=times * 1.25,
            method="anchored" if anchors else "roofline",
            trained_on="a formula",
            host=host or "a desk",
            extrapolates=tuple(reasons for _ in batch_sizes),
        )

    def epoch_time_s(self, iterations: Any, iteration_time_ms: Any, mode: Mode) -> Any:
        """1.1 x the iterations, and half a second."""
        return 1.1e-3 * np.asarray(iterations) * np.asarray(iteration_time_ms) + 0.5


@pytest.fixture
def fake_model() -> FakeModel:
    return FakeModel()


@pytest.fixture
def prices() -> tuple[Offer, ...]:
    """Two T4 offers, an instance of eight A100, an old K80 offer; nothing for the H200."""
    return (
        Offer("cloud", "dear-t4", "Tesla T4", 1, 2.0),
        Offer("cloud", "cheap-t4", "Tesla T4", 1, 0.5, spot_usd_per_hour=0.1),
        Offer("cloud", "eight-a100", "NVIDIA A100-SXM4-40GB", 8, 24.0),
        Offer("cloud", "v100", "Tesla V100-SXM2-16GB", 1, 3.0),
        Offer("cloud", "old-k80", "Tesla K80", 1, 0.1, historic=True),
        Offer("cloud", "half-k80", "Tesla K80", 0.5, 0.2),
    )
