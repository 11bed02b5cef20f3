"""A model that answers by a formula, so that tests of what is built on models need no fit."""

# ruff: noqa: ARG002 - the fake takes what the model takes

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest

from predictor.catalogue.devices import Gpu
from predictor.catalogue.modes import Mode
from predictor.catalogue.offers import Offer
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.models.forecast import IterationForecast, Reason
from predictor.models.join import join_host
from predictor.models.layer_times.estimator import libraries_of
from predictor.models.layer_times.library import OperatorLibrary
from predictor.models.layer_times.times import DeviceMode
from predictor.operators.operators import Operator, operator_row, operators_of
from predictor.operators.work import (
    SHAPE_COLUMNS,
    copies_between,
    device_rates,
    in_cnn_ms,
    operator_class,
    roofline_ms,
    shape_columns,
)


class FakeModel:
    """Time = 5 ms + batch size x layers / peak; 10 % of it host; every other generation extrapolates."""

    card: dict[str, Any] = {"name": "fake", "trained_on": "a formula"}  # noqa: RUF012

    fed_frameworks: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, list[int]]] = []

    def forecasts(
        self,
        table: LayerTable,
        devices: Sequence[tuple[Gpu, Mode]],
        batch_sizes: Sequence[int],
        *more: Any,
        from_host: bool = False,
    ) -> list[Any]:
        return [self.forecast(table, gpu, batch_sizes, *more) for gpu, _ in devices]

    def forecast(
        self,
        table: LayerTable,
        gpu: Gpu,
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
        reasons = () if gpu.generation in ("kepler", "turing", "volta") else (Reason("gpu", "not measured"),)
        return IterationForecast(
            iteration_time_ms=times,
            gpu_time_ms=times * 0.9,
            gpu_low_ms=times * 0.7,
            gpu_high_ms=times * 1.2,
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


class MadeUpGpu:
    """An H200 whose operators take a known multiple of their roofline time, smooth in shape and batch size."""

    host_ms_of_operator = 0.06

    def log_ratio(self, operator: Operator, batch_sizes: Any) -> Any:
        columns = dict(zip(SHAPE_COLUMNS, shape_columns([operator])[0], strict=True))
        slow = 0.9 if operator.type in ("conv2d", "linear") else 0.3
        bent = 0.04 * (10.0 - columns["in_channels"]) + 0.03 * columns["kernel"] + 0.02 * columns["groups"]
        return slow + bent + 0.05 * np.tanh(6.0 - np.log2(batch_sizes))

    def operator_ms(self, operator: Operator, batch_sizes: Sequence[int], precision: str = "tf32") -> Any:
        batches = np.asarray(batch_sizes, dtype=float)
        least = roofline_ms([operator], batches, device_rates("NVIDIA H200", precision))[0]
        return least * np.exp(self.log_ratio(operator, batches))

    def target_ms(self, table: LayerTable, batch_sizes: Sequence[int], weights: dict[str, float]) -> Any:
        counted, batches = operators_of(table), np.asarray(batch_sizes, dtype=float)
        own_ms = np.array([self.operator_ms(operator, batch_sizes) for operator in counted])
        ms = in_cnn_ms(own_ms, copies_between(list(counted), "tf32", "nchw"), batches, "NVIDIA H200", "tf32")
        return np.array([weights.get(operator_class(op), 1.0) * n for op, n in counted.items()]) @ ms

    def operator_rows(
        self, operators: Iterable[Operator], batch_sizes: Sequence[int], **mode: Any
    ) -> list[dict[str, Any]]:
        return [
            operator_row(operator)
            | {"gpu": "NVIDIA H200", "source": "made up", "image_size": operator.in_height or 1}
            | {"batch_size": size, "precision": "tf32", "framework": "pytorch", "memory_format": "nchw"}
            | {"iteration_time_ms": ms, "gpu_time_ms": ms, "host_time_ms": self.host_ms_of_operator}
            | mode
            for operator in operators
            for size, ms in zip(batch_sizes, self.operator_ms(operator, batch_sizes), strict=True)
        ]

    def target_rows(
        self, cnns: Iterable[str], batch_sizes: Sequence[int], weights: dict[str, float] | None = None
    ) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        for cnn in cnns:
            table = zoo_cnn(cnn)
            host = self.host_ms_of_operator * sum(operators_of(table).values())
            busy = self.target_ms(table, batch_sizes, weights or {})
            rows += [
                {"gpu": "NVIDIA H200", "source": "made up", "kind": "target", "cnn": cnn, "batch_size": size}
                | {"image_size": table.image_size, "precision": "tf32", "framework": "pytorch"}
                | {"memory_format": "nchw", "pass": "training", "gpu_time_ms": ms, "host_time_ms": host}
                | {"iteration_time_ms": float(join_host(np.float64(ms), np.float64(host)))}
                for size, ms in zip(batch_sizes, busy, strict=True)
            ]
        return rows

    def library_of(self, mode: DeviceMode, rows: list[dict[str, Any]]) -> OperatorLibrary:
        """The library of these rows, taken to be of one mode."""
        frame = pd.DataFrame(rows).assign(**mode._asdict(), float32_matmul_precision="high")
        return libraries_of(frame)[mode]


@pytest.fixture(scope="session")
def made_up_gpu() -> MadeUpGpu:
    return MadeUpGpu()
