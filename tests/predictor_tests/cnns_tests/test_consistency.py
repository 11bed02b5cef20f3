"""Layers that cannot follow one another, or are not of the image size given, make no CNN."""

from dataclasses import replace

import pytest

from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.layer_table import (
    Layer,
    LayerTable,
    table_complaint,
)
from predictor.cnns.zoo import ZOO, zoo_cnn
from predictor.errors import SchemaError


def table(*layers, image_size=8):
    return LayerTable("mine", image_size, tuple(replace(layer, index=i) for i, layer in enumerate(layers)))


def changed(row, **columns):
    """resnet18's layers with one row edited."""
    resnet = zoo_cnn("resnet18", 64)
    layers = list(resnet)
    layers[row] = replace(layers[row], **columns)
    return replace(resnet, layers=tuple(layers))


def test_every_cnn_of_the_zoo_is_consistent():
    assert {name: complaint for name in ZOO if (complaint := table_complaint(zoo_cnn(name)))} == {}


def test_layers_made_at_another_image_size_are_inconsistent():
    position, column, why = table_complaint(replace(zoo_cnn("resnet18", 64), image_size=224))
    assert (position, column) == (0, "in_height")
    assert "it is 64, but the layer reads the image, and image_size is 224" in why


def test_a_layer_that_reads_more_or_fewer_channels_than_there_are_is_inconsistent():
    first = Layer(0, "", "conv2d", in_channels=3, out_channels=128)
    complaint = table_complaint(table(first, Layer(1, "", "conv2d", in_channels=64, inputs=(0,))))
    assert complaint[:2] == (1, "in_channels")
    assert "conv2d '' reads 64, but row 0, conv2d '', gives 128 as out_channels" in complaint[2]


def test_layers_that_do_not_say_what_they_read_may_be_on_branches():
    first = Layer(0, "", "conv2d", in_channels=3, in_height=8, out_channels=128)
    follows, branches = (Layer(1, "", "conv2d", in_channels=channels) for channels in (128, 64))
    assert [rows.has_unknown_edges for rows in (table(first, follows), table(first, branches))] == [
        False,
        True,
    ]
    assert table_complaint(table(first, branches)) is None
    assert table_complaint(table(replace(first, in_height=9), branches))[:2] == (0, "in_height")
    assert table_complaint(table(replace(first, inputs=(-1,)), branches))[:2] == (1, "in_channels")


def test_a_csv_without_inputs_is_read(tmp_path):
    path = tmp_path / "flat.csv"
    zoo_cnn("resnet18", 64).to_csv(path)
    rows = [line.split(",") for line in path.read_text().splitlines()]
    at = rows[0].index("inputs")
    path.write_text("\n".join(",".join(row[:at] + row[at + 1 :]) for row in rows))
    flat = read_layer_table_csv(path)
    assert {layer.inputs for layer in flat} == {None}
    assert (flat.has_unknown_edges, flat.parameters) == (True, zoo_cnn("resnet18").parameters)


def test_a_layer_that_reads_a_larger_map_than_there_is_is_inconsistent():
    assert table_complaint(changed(1, in_height=33, out_height=33))[:2] == (1, "in_height")


def test_a_crop_is_consistent():
    first = Layer(0, "", "conv2d", in_channels=3, out_channels=8, out_height=8, out_width=8)
    crop = Layer(1, "", "conv2d", in_channels=8, in_height=7, in_width=8)
    assert table_complaint(table(first, crop)) is None


def test_half_of_a_tensor_is_read_where_others_read_it_too():
    split = Layer(1, "", "activation", "relu", (0,), in_channels=64, out_channels=64)
    assert (
        table_complaint(table(Layer(0, "", "conv2d", in_channels=3, out_channels=128), split, split)) is None
    )


def test_unequal_parts_are_read_where_others_read_it_too():
    first = Layer(0, "", "linear", in_channels=3, out_channels=256)
    parts = [Layer(1, "", "activation", "relu", (0,), in_channels=n, out_channels=n) for n in (128, 48)]
    assert table_complaint(table(first, *parts)) is None
    assert table_complaint(table(first, parts[1]))[:2] == (1, "in_channels")


def test_windows_of_attention_are_read_as_as_many_maps():
    attention = Layer(0, "", "attention", in_channels=2048, out_channels=2048, out_height=64, out_width=1)
    maps = Layer(1, "", "permute", inputs=(0,), in_channels=32, in_height=64, in_width=1, repeats=64)
    assert table_complaint(table(attention, maps)) is None
    assert table_complaint(table(attention, replace(maps, repeats=32)))[:2] == (1, "in_channels")


def test_a_concat_of_one_map_joins_it_to_parameters():
    tokens = Layer(0, "", "layer_norm", out_channels=64, out_height=196, out_width=1)
    joined = Layer(1, "", "concat", inputs=(0,), in_channels=64, in_height=197, in_width=1)
    assert table_complaint(table(tokens, joined)) is None


def test_a_third_in_another_shape_is_read_where_others_read_it_too():
    shape = {"out_channels": 192, "out_height": 64, "out_width": 49}
    sizes = {"in_channels": 32, "in_height": 64, "in_width": 98}
    parts = [Layer(1, "", "permute", inputs=(0,), **sizes)] * 3
    assert table_complaint(table(Layer(0, "", "linear", **shape), *parts)) is None
    assert table_complaint(table(Layer(0, "", "linear", **shape), parts[0]))[:2] == (1, "in_channels")


def test_tiles_of_an_image_or_a_map_are_consistent():
    side = {"in_height": 2, "in_width": 2, "repeats": 16}
    tiles = Layer(0, "", "conv2d", in_channels=3, out_channels=8, **side)
    first = Layer(0, "", "conv2d", in_channels=3, out_channels=8, out_height=8, out_width=8)
    assert table_complaint(table(tiles)) is None
    assert table_complaint(table(replace(tiles, in_channels=48, repeats=1))) is None
    assert table_complaint(table(first, replace(tiles, in_channels=8))) is None


def test_a_view_of_the_same_numbers_is_no_contradiction():
    image = {"in_channels": 3, "in_height": 8, "in_width": 8}
    conv = Layer(0, "", "conv2d", **image, out_channels=16, out_height=8, out_width=8)
    linear = Layer(1, "", "linear", in_channels=1024, in_height=1, in_width=1)
    assert table_complaint(table(conv, linear)) is None


def test_an_inconsistent_csv_is_refused_by_row_and_column(tmp_path):
    changed(1, in_height=33, out_height=33).to_csv(tmp_path / "mine.csv")
    with pytest.raises(SchemaError, match=r"mine.csv, row 2, column in_height: .* reads 33, but row 0"):
        read_layer_table_csv(tmp_path / "mine.csv")


def test_a_backward_pass_that_begins_before_its_layer_ran_is_refused():
    layers = zoo_cnn("lenet5").layers
    early = replace(layers[3], backward_after=1)
    complaint = table_complaint(LayerTable("mine", 28, (*layers[:3], early, *layers[4:])))
    assert complaint is not None
    assert complaint[:2] == (3, "backward_after")


@pytest.mark.parametrize(
    ("position", "cell"), [(3, {"old_gradient": 99}), (3, {"overwrites": 0}), (1, {"overwrites": 3})]
)
def test_what_changes_memory_is_refused_where_it_says_nothing(position, cell):
    layers = list(zoo_cnn("lenet5").layers)
    layers[position] = replace(layers[position], **cell)
    complaint = table_complaint(LayerTable("mine", 28, tuple(layers)))
    assert complaint is not None
    assert complaint[:2] == (position, *cell)
