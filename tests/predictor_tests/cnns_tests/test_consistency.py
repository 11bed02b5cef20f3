"""Layers that cannot follow one another, or are not of the image size given, make no CNN."""

from dataclasses import replace

import pytest

from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.layer_table import Layer, LayerTable, layer_complaint, table_complaint
from predictor.cnns.zoo import ZOO, zoo_cnn
from predictor.errors import SchemaError


def table(*layers, image_size=8):
    return LayerTable("mine", image_size, tuple(replace(layer, index=i) for i, layer in enumerate(layers)))


def changed(row, cnn="resnet18", image_size=64, **columns):
    """Layers of a CNN with one row edited."""
    whole = zoo_cnn(cnn, image_size)
    layers = [replace(layer, **columns) if i == row else layer for i, layer in enumerate(whole)]
    return replace(whole, layers=tuple(layers))


def test_every_cnn_of_the_zoo_is_consistent():
    assert {name: complaint for name in ZOO if (complaint := table_complaint(zoo_cnn(name)))} == {}


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


def row(type_, reads=(), writes=(), **columns):
    """A layer that reads and writes maps of these channels, heights and widths."""
    sides = ("channels", "height", "width")
    sizes = {f"in_{side}": size for side, size in zip(sides, reads, strict=False)}
    sizes |= {f"out_{side}": size for side, size in zip(sides, writes, strict=False)}
    return Layer(0, "", type_, **sizes, **columns)


def test_parts_crops_and_views_of_what_a_layer_writes_are_consistent():
    conv, linear = row("conv2d", (3,), (8, 8, 8)), row("linear", (3,), (256,))
    half, most, few = (row("activation", (n,), (n,), kind="relu", inputs=(0,)) for n in (64, 128, 48))
    attention = row("attention", (2048,), (2048, 64, 1))
    windows = row("permute", (32, 64, 1), inputs=(0,), repeats=64)
    of_three = row("linear", (), (192, 64, 49))
    third = row("permute", (32, 64, 98), inputs=(0,))  # in another shape
    tiles = row("conv2d", (3, 2, 2), (8,), repeats=16)
    with_parameters = row("layer_norm", (), (64, 196, 1)), row("concat", (64, 197, 1), inputs=(0,))
    consistent = (
        (conv, row("conv2d", (8, 7, 8))),
        (row("conv2d", (3,), (128,)), half, half),
        (linear, most, few),
        (attention, windows),
        with_parameters,
        (of_three, third, third, third),
        (tiles,),
        (replace(tiles, in_channels=48, repeats=1),),
        (conv, replace(tiles, in_channels=8)),
        (row("conv2d", (3, 8, 8), (16, 8, 8)), row("linear", (1024, 1, 1))),
    )
    assert [table_complaint(table(*layers)) for layers in consistent] == [None] * len(consistent)
    for layers in ((linear, few), (attention, replace(windows, repeats=32)), (of_three, third)):
        assert table_complaint(table(*layers))[:2] == (1, "in_channels")


def test_an_inconsistent_csv_is_refused_by_row_and_column(tmp_path):
    changed(1, in_height=33, out_height=33).to_csv(tmp_path / "mine.csv")
    with pytest.raises(SchemaError, match=r"mine.csv, row 2, column in_height: .* reads 33, but row 0"):
        read_layer_table_csv(tmp_path / "mine.csv")


def test_depths_that_contradict_heights_are_refused():
    depths = {"in_depth": 4, "out_depth": 2, "kernel_depth": 3, "stride_depth": 1, "padding_depth": 0}
    window = {"kernel_height": 9, "kernel_width": 3, "stride_height": 1, "stride_width": 1}
    layer = row("conv3d", (2, 64, 16), (4, 28, 14), padding_height=0, padding_width=0, **window, **depths)
    assert layer_complaint(layer) is None
    assert "not a multiple of in_depth 3" in layer_complaint(replace(layer, in_depth=3))
    assert "out_depth 1 does not follow" in layer_complaint(replace(layer, out_depth=1))
    assert "in_depth is given" in layer_complaint(replace(layer, type="conv2d"))


FIRST = Layer(0, "", "conv2d", in_channels=3, out_channels=128)
CONTRADICTIONS = (
    (
        *(replace(zoo_cnn("resnet18", 64), image_size=224), 0, "in_height"),
        "it is 64, but the layer reads the image, and image_size is 224",
    ),
    (
        *(table(FIRST, Layer(1, "", "conv2d", in_channels=64, inputs=(0,))), 1, "in_channels"),
        "conv2d '' reads 64, but row 0, conv2d '', gives 128 as out_channels",
    ),
    (changed(1, in_height=33, out_height=33), 1, "in_height", "reads 33"),
    (changed(3, "lenet5", 28, backward_after=1), 3, "backward_after", ""),
    (changed(3, "lenet5", 28, old_gradient=99), 3, "old_gradient", ""),
    (changed(3, "lenet5", 28, overwrites=0), 3, "overwrites", ""),
    (changed(1, "lenet5", 28, overwrites=3), 1, "overwrites", ""),
)


@pytest.mark.parametrize(("whole", "position", "column", "words"), CONTRADICTIONS)
def test_rows_that_contradict_each_other_are_told_by_position_column_and_reason(
    whole, position, column, words
):
    complaint = table_complaint(whole)
    assert complaint[:2] == (position, column)
    assert words in complaint[2]
