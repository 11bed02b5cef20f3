"""Layer tables of published CNNs: PROFET's converted, tf_cnn_benchmarks' built, the rest from the zoo."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from case_tables import each_row

from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.errors import DataError, SchemaError
from predictor.measurements.published import published_layer_tables
from predictor.measurements.published.reader import smallest_padding
from predictor.measurements.published.sources import tf_cnn, timm_cnns

_ROWS = json.loads(Path(__file__).with_name("profet_layers.json").read_text("utf-8"))
(_COLUMNS,), _VGG, _RESIDUAL = _ROWS["columns"], _ROWS["vgg"], _ROWS["residual"]


def write_layers(folder: Path, cnn: str, rows: list[tuple[Any, ...]]) -> None:
    table = pd.DataFrame(rows, columns=_COLUMNS)
    table.insert(0, "index", range(len(rows)))
    table.assign(cnn=cnn, image_size=8).to_csv(folder / "profet_cnn_layers.csv.gz", index=False)


def profet_table(folder: Path, cnn: str, rows: list[tuple[Any, ...]]) -> LayerTable:
    write_layers(folder, cnn, rows)
    return published_layer_tables(folder)[(f"profet/{cnn}", 8)]


class TestProfetsTables:
    def test_activations_inside_keras_layers_get_rows_and_a_chain_reads_the_layer_before(self, tmp_path):
        table = profet_table(tmp_path, "VGG11", _VGG)
        assert [layer.type for layer in table] == [
            "conv2d", "activation", "max_pool", "flatten", "linear", "activation",
        ]  # fmt: skip
        assert [layer.kind for layer in table if layer.type == "activation"] == ["relu", "softmax"]
        assert [layer.inputs for layer in table][:3] == [(-1,), (0,), (1,)]

    def test_branches_and_uneven_padding_are_unknown_and_norms_and_pools_are_whole(self, tmp_path):
        table = profet_table(tmp_path, "MobileNetV2", _RESIDUAL)
        assert {layer.inputs for layer in table} == {None}
        assert table.layers[0].padding_height is None
        by_type = {layer.type: layer for layer in table}
        assert by_type["batch_norm"].parameters == 32  # what is trained of 64
        pool = by_type["avg_pool"]  # a global one covers the whole map
        assert (pool.kernel_height, pool.stride_height, pool.padding_height) == (4, 4, 0)

    def test_a_batch_norm_of_other_size_is_refused(self, tmp_path):
        rows = [*_RESIDUAL[:2], [*_RESIDUAL[2][:-1], 65], *_RESIDUAL[3:]]
        with pytest.raises(SchemaError, match="batch norm 'bn' of MobileNetV2 has 65 parameters"):
            profet_table(tmp_path, "MobileNetV2", rows)

    def test_a_pool_that_its_shapes_contradict_stays_unknown(self, tmp_path):
        rows = [_VGG[0], ("pool", "max_pool", 16, 8, 8, 16, 3, 3, 0, 0, 0, 1, 0), _VGG[3]]
        assert profet_table(tmp_path, "VGG11", rows).layers[2].kernel_height is None

    def test_the_branches_of_inception_resnet_are_scaled(self, tmp_path):
        types = [layer.type for layer in profet_table(tmp_path, "InceptionResNetV2", _RESIDUAL)]
        assert types[3:5] == ["multiply", "add"]


@each_row
def test_the_smallest_padding_reproduces_the_size(size_in, size_out, kernel, stride, padding):
    assert smallest_padding(size_in, size_out, kernel, stride) == padding


class TestTfCnnBenchmarks:
    # Published: torchvision's counts, plus one class; a batch norm without scale has C fewer parameters.
    @each_row
    def test_have_the_published_parameters_and_one_class_more_and_no_scale(self, cnn, size, parameters):
        table = tf_cnn(cnn, size)
        norms = (layer.out_channels for layer in table if layer.type == "batch_norm")
        scales = sum(norms) if cnn.startswith("inception") else 0
        assert table.parameters + scales == parameters + table.layers[-1].in_channels + 1

    def test_inception_v3_has_the_zoos_convolutions(self):
        assert convolutions(tf_cnn("inception_v3", 299)) == convolutions(zoo_cnn("inception_v3", 299))

    def test_resnet_v1_strides_in_the_first_convolution_of_a_block(self):
        strided = [row for row in tf_cnn("resnet50", 224) if row.type == "conv2d" and row.stride_height == 2]
        assert {row.kernel_height for row in strided} == {1, 7}

    def test_alexnet_sees_227_pixels(self):
        first = tf_cnn("alexnet", 224).layers[0]
        assert (first.in_height, first.out_height, first.out_channels) == (227, 55, 64)

    def test_other_cnns_and_sizes_have_none(self):
        assert tf_cnn("resnet50", 225) is None


def convolutions(table: LayerTable) -> Counter[tuple[int | None, ...]]:
    names = ("in_channels", "in_height", "out_channels", "out_height", "kernel_height", "kernel_width")
    return Counter(tuple(getattr(row, name) for name in names) for row in table if row.type == "conv2d")


class TestNamesOfTheZoo:
    def test_timm_names_lead_to_cnns_of_the_zoo(self):
        assert set(timm_cnns().values()) <= set(zoo_names())

    def test_the_zoos_tables_are_timms_without_dropout_and_nvidias_resnet(self, published):
        tables = published_layer_tables(published)
        table = tables["timm/mobilenetv2_100", 224]
        assert "dropout" not in {layer.type for layer in table}
        assert [layer.index for layer in table] == list(range(len(table)))
        assert table.layers[-1].inputs == (len(table) - 2,)
        assert ("timm/vit_tiny_patch16_224", 224) not in tables  # of unknown structure
        resnet = tables["pytorch/resnet50", 224]
        assert (resnet.parameters, resnet.cnn) == (25_557_032, "pytorch/resnet50")

    def test_an_empty_folder_is_refused(self, tmp_path):
        with pytest.raises(DataError, match="holds no published table"):
            published_layer_tables(tmp_path)
