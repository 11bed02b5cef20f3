"""Resizing maps: PyTorch's kernels loop over images and channels in some layouts."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from predictor.catalogue.devices import find_gpu
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.models.layer_times.times import DeviceMode
from predictor.models.roofline.terms import KernelContext
from predictor.models.served import Model
from predictor.operators.kernels import kernels_of
from predictor.operators.operators import Operator, as_run, layer_operators
from predictor.operators.work import base_ms, device_rates

H100 = "NVIDIA H100 80GB HBM3"
TYPES = {"nearest": "upsample_nearest", "bilinear": "upsample", "bicubic": "upsample_bicubic"}
MEASURED = pd.read_csv(Path(__file__).parents[3] / "benchmarks" / "resize_h100.csv")
FLOAT32 = MEASURED[(MEASURED["dtype"] == "float32") & MEASURED["mode"].isin(TYPES)]


def _resizing(mode: str, channels: int, side: int, new_side: int) -> Operator:
    sizes = {"in_channels": channels, "out_channels": channels}
    sides = {f"{of}_{name}": n for of, n in (("in", side), ("out", new_side)) for name in ("height", "width")}
    return Operator(TYPES[mode], **sizes, **sides)


def test_an_h100_resizes_as_measured_apart_from_the_model():
    """Twenty shapes, most of which the model's operators lack."""
    layers, off = Model.load().layers, []
    for row in FLOAT32.itertuples():
        library = layers.find(DeviceMode(H100, precision="tf32", memory_format=row.memory_format)).library
        operator = _resizing(row.mode, row.channels, row.side, row.new_side)
        ms = library.times([operator], np.array([float(row.images)])).gpu_ms[0, 0]
        off.append(abs(np.log(ms / row.forward_backward_ms)))
    assert (len(off), np.median(off) < 0.02, np.mean(off) < 0.06, max(off) < 0.3) == (20, True, True, True)


def test_the_law_of_loops_alone_tells_the_modes_and_layouts_apart():
    """Within 3 x, where modes and layouts differ by 400 x."""
    rates = device_rates(H100, "tf32")
    for row in FLOAT32.itertuples():
        operator = _resizing(row.mode, row.channels, row.side, row.new_side)
        [[ms]] = base_ms([operator], np.array([float(row.images)]), rates, row.memory_format)
        assert 0.35 < ms / row.forward_backward_ms < 2.0, row


def _decoder(type_: str, before: str = "conv2d") -> LayerTable:
    """A layer that leaves 120 maps of 14 x 14, and one that doubles them."""
    sides = {"in_height": 14, "in_width": 14, "out_height": 14, "out_width": 14}
    window = dict.fromkeys(("kernel_height", "kernel_width", "stride_height", "stride_width"), 1)
    first = Layer(
        0, "before", before, inputs=(IMAGE,), in_channels=3, out_channels=120, parameters=480, **sides,
        **(window | {"groups": 1} if before == "conv2d" else {}),
    )  # fmt: skip
    grown = sides | {"out_height": 28, "out_width": 28}
    resized = Layer(1, "resized", type_, inputs=(0,), in_channels=120, out_channels=120, **grown)
    return LayerTable("decoder", 14, (first, resized))


@pytest.mark.parametrize("gpu", ["Tesla T4", "NVIDIA A100-SXM4-80GB"])
def test_unmeasured_gpus_loop_in_nchw_alone_and_by_nearest_hardly(gpu):
    law = Model.load().roofline.law_

    def pools_ms(table, memory_format):
        context = KernelContext(find_gpu(gpu), "fp32", "pytorch", memory_format)
        return law.times(kernels_of(table), [context], [64]).class_ms["avg_pool"][0, 0]

    bilinear, nearest = _decoder("upsample"), _decoder("upsample_nearest")
    assert 2.5 < pools_ms(bilinear, "nchw") < 6
    assert pools_ms(bilinear, "nchw") > 3 * pools_ms(bilinear, "channels_last")
    assert pools_ms(bilinear, "nchw") > 4 * pools_ms(nearest, "nchw")


def test_behind_a_dense_layer_on_a_map_resizing_runs_as_in_channels_last():
    """SegFormer's decoder resizes what dense layers leave."""
    behind_dense, behind_conv = (_decoder("upsample", before) for before in ("linear", "conv2d"))
    running = [
        as_run(layer_operators(table)[1], "pytorch", "nchw", "tf32").wide_input
        for table in (behind_dense, behind_conv)
    ]
    assert running == [True, False]
    loops = [kernels_of(table)["loop_us_nchw"].max() for table in (behind_dense, behind_conv)]
    assert loops == [0.0, pytest.approx(0.35 * 120)]
