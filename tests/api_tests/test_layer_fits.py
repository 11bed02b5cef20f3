"""Layers that cannot follow one another, or are not of the image size given, are no CNN and get no answer."""

import json

import pytest

from api.layer_tables import LayerTableIn, as_sent, inline_table
from predictor.cnns.zoo import ZOO, zoo_cnn
from predictor.errors import SchemaError

QUESTION = {"gpus": ["T4"], "batch_sizes": [32]}


def read(table):
    return LayerTableIn.model_validate_json(json.dumps(table))


def sent(table, **changes):
    return read(as_sent(table) | changes)


def changed(row, **columns):
    """resnet18's layers with one row edited."""
    table = as_sent(zoo_cnn("resnet18", 64))
    table["layers"][row] |= columns
    return table


@pytest.mark.parametrize("name", sorted(ZOO))
def test_every_cnn_of_the_zoo_fits_together(name):
    table = zoo_cnn(name)
    assert inline_table(sent(table)).layers == table.layers


def test_layers_made_at_another_image_size_are_refused():
    with pytest.raises(SchemaError, match=r"layers\[0\].in_height: it is 64, .* image_size is 224"):
        inline_table(sent(zoo_cnn("resnet18", 64), image_size=224))


def test_a_layer_that_reads_more_or_fewer_channels_than_there_are_is_refused(client):
    for inputs in ([0], None):
        table = {"name": "mine", "image_size": 8, "layers": [
            {"type": "conv2d", "in_channels": 3, "out_channels": 128, "parameters": 0},
            {"type": "conv2d", "in_channels": 64, "out_channels": 64, "parameters": 0, "inputs": inputs},
        ]}  # fmt: skip
        answer = client.post("/v1/predictions", json=QUESTION | {"layer_table": table})
        assert answer.status_code == 422
        assert "layer_table.layers[1].in_channels: conv2d '' reads 64, but row 0" in answer.json()["detail"]


def test_a_layer_that_reads_another_height_is_refused():
    with pytest.raises(SchemaError, match=r"layers\[1\].in_height"):
        inline_table(read(changed(1, in_height=31, out_height=31)))


def test_half_of_a_tensor_is_read_where_others_read_it_too():
    split = {"type": "activation", "kind": "relu", "in_channels": 64, "out_channels": 64, "inputs": [0]}
    layers = [{"type": "conv2d", "in_channels": 3, "out_channels": 128, "parameters": 0}, split, split]
    inline_table(read({"image_size": 8, "layers": layers}))


def test_a_view_of_the_same_numbers_is_no_contradiction():
    image = {"in_channels": 3, "in_height": 8, "in_width": 8}
    conv = {"type": "conv2d", **image, "out_channels": 16, "out_height": 8, "out_width": 8, "parameters": 0}
    linear = {"type": "linear", "in_channels": 1024, "in_height": 1, "in_width": 1, "parameters": 0}
    inline_table(read({"image_size": 8, "layers": [conv, linear]}))
