import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from predictor.catalogue.devices import find_gpu, peak_tflop_per_s
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.cnns.proxies import proxy_name
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import SchemaError, UnknownGpuError
from predictor.measurements import features
from predictor.measurements.schema import column

CASES = json.loads(Path(__file__).with_name("cases.json").read_text("utf-8"))
"""Peaks of precisions, and names of proxies by what a convolution changes."""


def _layer(index=0, type_="conv2d", side=16, channels=(128, 128), kernel=(3, 3), stride=(1, 1), **columns):
    return Layer(
        index=index, name=f"layer{index}", type=type_, inputs=(index - 1 if index else IMAGE,),
        in_channels=channels[0], in_height=side, in_width=side, out_channels=channels[1],
        out_height=side // stride[0], out_width=side // stride[1], kernel_height=kernel[0], kernel_width=kernel[1],
        stride_height=stride[0], stride_width=stride[1], padding_height=kernel[0] // 2, padding_width=kernel[1] // 2,
        **{"dilation": 1, "groups": 1, "parameters": channels[0] * channels[1] * kernel[0] * kernel[1], **columns},
    )  # fmt: skip


@pytest.fixture
def small_cnn():
    layers = (
        _layer(0, channels=(3, 64)),
        _layer(1, channels=(64, 64)),
        _layer(2, channels=(64, 64)),
        Layer(3, "relu", "activation", "relu", (2,), 64, 16, 16, 64, 16, 16),
    )
    return LayerTable("small", 16, layers, source="csv")


@pytest.fixture
def measurements():
    return pd.DataFrame(
        {
            "gpu": ["NVIDIA H200", "Tesla K80", "NVIDIA H200"],
            "cnn": ["small", "small", "nobody/knows"],
            "image_size": 16,
            "batch_size": [8, 8, 32],
            "precision": ["amp_bf16", "fp32", "tf32"],
            "iteration_time_ms": [1.0, 9.0, 4.0],
        },
        index=[7, 3, 5],
    )


@pytest.fixture
def table(measurements, small_cnn):
    tables = {("small", 16): small_cnn}
    return features.feature_table(measurements, lambda *key: tables[key])


def test_rows_index_and_columns_of_the_measurements_are_kept(table, measurements):
    pd.testing.assert_frame_equal(table[measurements.columns], measurements)


def test_an_unknown_gpu_is_refused_and_a_cpu_is_none(measurements):
    with pytest.raises(UnknownGpuError):
        features.feature_table(measurements.assign(gpu="Radeon Pro VII"), lambda *_: None)
    table = features.feature_table(measurements.assign(gpu="cpu:EPYC 7763"), lambda *_: None)
    assert set(table["gpu"]) == {"cpu:EPYC 7763"}


def test_a_layer_table_stands_beside_each_row_of_a_known_cnn(table, small_cnn):
    assert [layer_table is small_cnn for layer_table in table["layer_table"]] == [True, True, False]
    assert table["layer_table"].iloc[2] is None


def test_each_cnn_is_looked_up_once_per_image_size(measurements, small_cnn):
    lookups = []
    features.feature_table(measurements, lambda *key: lookups.append(key) or small_cnn)
    assert sorted(lookups) == [("nobody/knows", 16), ("small", 16)]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        *(
            (lambda table, name=name: table.drop(columns=name), f"no column '{name}'")
            for name in ("gpu", "cnn", "image_size", "batch_size")
        ),
        (
            lambda table: table.assign(batch_size=[8, np.nan, 32]),
            "'batch_size' is empty in 1 rows, the first is 3",
        ),
        (lambda table: table.head(0), "no rows"),
        (lambda table: features.feature_table(table, lambda *_: None), "is made by the feature table"),
    ],
)
def test_what_is_no_table_of_measurements_is_refused(change, words, measurements):
    with pytest.raises(SchemaError, match=words):
        features.feature_table(change(measurements), lambda *_: None)


@pytest.mark.parametrize(("gpu", "precision", "peak"), CASES["peaks"])
def test_the_peak_is_that_of_the_precision_if_the_gpu_has_it(gpu, precision, peak):
    expected = np.nan if peak is None else getattr(find_gpu(gpu), peak)
    np.testing.assert_equal(peak_tflop_per_s(find_gpu(gpu), precision), expected)


@pytest.mark.parametrize(("changes", "name"), CASES["proxies"])
def test_a_proxy_is_named_after_its_convolution(changes, name):
    assert proxy_name(_layer(**changes)) == name


@pytest.mark.parametrize(
    ("layer", "words"),
    [
        (_layer(type_="linear"), "only convolutions have proxies"),
        (replace(_layer(), in_channels=None), "has no in_channels: it cannot be named"),
    ],
)
def test_what_is_no_whole_convolution_has_no_proxy(layer, words):
    with pytest.raises(SchemaError, match=words):
        proxy_name(layer)


def _described(**row):
    usual = {"gpu": "Tesla T4", "cnn": "16_128_128", "image_size": 16, "batch_size": 32, "kind": "proxy"}
    row = usual | {"precision": "fp32", "iteration_time_ms": 3.0} | row
    return features.described(features.feature_table(pd.DataFrame([row])))


def test_a_table_to_open_has_specifications_of_gpus_a_proxy_s_shape_and_counts():
    (row,) = _described().to_dict("records")
    assert (row["cuda_cores"], row["peak_tflop_per_s"]) == (2560, find_gpu("Tesla T4").peak_fp32_tflop_per_s)
    assert (row["in_height"], row["in_channels"], row["kernel_height"]) == (16, 128, 3)
    assert (row["n_16_128_128"], row["n_32_3_64"]) == (1, 0)
    assert _described(gpu="cpu:AMD EPYC")["cuda_cores"].isna().all()


def test_a_cnn_has_counts_of_proxies_and_no_shape_of_its_own():
    (row,) = _described(cnn="vgg_cifar", image_size=32, kind="target").to_dict("records")
    assert row["n_16_128_128"] == 1
    assert np.isnan(row["in_height"])
    layers = [layer for layer in zoo_cnn("vgg_cifar") if layer.type in ("conv2d", "linear")]
    assert sum(value for name, value in row.items() if name.startswith("n_")) == len(layers)


def test_every_column_of_the_table_is_described_with_its_unit():
    names = {entry.name for entry in features.DESCRIBING_COLUMNS} | {*features.MEASURED_COLUMNS}
    assert {*_described().columns} <= names
    assert all(column(name) for name in features.MEASURED_COLUMNS)
