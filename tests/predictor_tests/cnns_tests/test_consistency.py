"""Layers that cannot follow one another, or are not of the image size given, make no CNN."""

from dataclasses import replace

import pytest

from predictor.cnns.layer_table import (
    Layer,
    LayerTable,
    read_layer_table_csv,
    table_complaint,
    write_layer_table_csv,
)
from predictor.cnns.zoo import ZOO, zoo_cnn
from predictor.errors import SchemaError


def table(*layers, image_size=8):
    return LayerTable("mine", image_size, tuple(replace(each, index=i) for i, each in enumerate(layers)))


def changed(row, **columns):
    """resnet18's layers with one row edited."""
    whole = zoo_cnn("resnet18", 64)
    layers = list(whole)
    layers[row] = replace(layers[row], **columns)
    return replace(whole, layers=tuple(layers))


def test_every_cnn_of_the_zoo_is_consistent():
    assert {name: found for name in ZOO if (found := table_complaint(zoo_cnn(name)))} == {}


def test_layers_made_at_another_image_size_are_inconsistent():
    position, column, why = table_complaint(replace(zoo_cnn("resnet18", 64), image_size=224))
    assert (position, column) == (0, "in_height")
    assert "it is 64, but the layer reads the image, and image_size is 224" in why


@pytest.mark.parametrize("inputs", [(0,), None])
def test_a_layer_that_reads_more_or_fewer_channels_than_there_are_is_inconsistent(inputs):
    first = Layer(0, "", "conv2d", in_channels=3, out_channels=128)
    found = table_complaint(table(first, Layer(1, "", "conv2d", in_channels=64, inputs=inputs)))
    assert found[:2] == (1, "in_channels")
    assert "conv2d '' reads 64, but row 0, conv2d '', gives 128 as out_channels" in found[2]


def test_a_layer_that_reads_another_height_is_inconsistent():
    assert table_complaint(changed(1, in_height=31, out_height=31))[:2] == (1, "in_height")


def test_half_of_a_tensor_is_read_where_others_read_it_too():
    split = Layer(1, "", "activation", "relu", (0,), in_channels=64, out_channels=64)
    assert (
        table_complaint(table(Layer(0, "", "conv2d", in_channels=3, out_channels=128), split, split)) is None
    )


def test_a_view_of_the_same_numbers_is_no_contradiction():
    image = {"in_channels": 3, "in_height": 8, "in_width": 8}
    conv = Layer(0, "", "conv2d", **image, out_channels=16, out_height=8, out_width=8)
    linear = Layer(1, "", "linear", in_channels=1024, in_height=1, in_width=1)
    assert table_complaint(table(conv, linear)) is None


def test_an_inconsistent_csv_is_refused_by_row_and_column(tmp_path):
    write_layer_table_csv(changed(1, in_height=31, out_height=31), tmp_path / "mine.csv")
    with pytest.raises(SchemaError, match=r"mine.csv, row 2, column in_height: .* reads 31, but row 0"):
        read_layer_table_csv(tmp_path / "mine.csv")
