"""Keras models are read as the layers that every framework runs, with the counts of their makers."""

import os
import sys
import types
from math import prod

import pytest
from case_tables import table as cases

from predictor.answers.question import Question
from predictor.answers.resolved import ResolvedQuestion
from predictor.cnns.keras_model import from_keras, from_keras_file
from predictor.cnns.resolve import has_own_image_size, resolve_cnn
from predictor.cnns.torch_module import from_torch
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import BackendUnavailableError, OutOfRangeError, SchemaError
from predictor.operators.work import layer_flops


@pytest.fixture(scope="module")
def keras():
    os.environ["KERAS_BACKEND"] = "torch"
    pytest.importorskip("torch", reason="Keras runs on it")
    return pytest.importorskip("keras")


@pytest.fixture
def small(keras):
    """A model with what Keras spells out in its own way: biases, pads, noise, batch norms, nested models."""
    layers = keras.layers
    stem = keras.Sequential(
        [
            layers.Input((32, 32, 3)),
            layers.Conv2D(8, 3, padding="same", name="conv"),
            layers.BatchNormalization(name="norm"),
        ],
        name="stem",
    )
    image = keras.Input((32, 32, 3))
    maps = layers.ReLU(name="relu")(stem(image))
    maps = layers.MaxPooling2D(3, 2, padding="same", name="pool")(maps)
    branch = layers.Dropout(0.2, noise_shape=(None, 1, 1, 1), name="drop")(
        layers.DepthwiseConv2D(3, padding="same", name="depthwise")(maps)
    )
    maps = layers.Add(name="sum")([maps, branch])
    maps = layers.Dropout(0.5, name="dropout")(layers.GlobalAveragePooling2D(name="mean")(maps))
    return keras.Model(image, layers.Dense(10, name="head")(maps), name="small")


def conv_macs(table):
    return sum(layer_flops(row, "forward", 1) // 2 for row in table if row.type == "conv2d")


def macs_by_keras(model):
    kernels = [layer for layer in model.layers if "Conv2D" in type(layer).__name__]
    return sum(prod(layer.kernel.shape) * prod(layer.output.shape[1:3]) for layer in kernels)


def test_mobilenet_v2_is_torchvisions_with_a_softmax(keras):
    model = keras.applications.MobileNetV2(weights=None)
    ours, theirs = from_keras(model), zoo_cnn("mobilenet_v2")
    assert (ours.image_size, ours.parameters, conv_macs(ours)) == (224, theirs.parameters, conv_macs(theirs))
    assert conv_macs(ours) == macs_by_keras(model)
    free = ("pad", "flatten", "dropout")
    assert [row.type for row in ours if row.type not in free] == [
        *(row.type for row in theirs if row.type not in free),
        "activation",
    ]
    assert ours.warnings == ()


def test_layers_are_named_and_joined_as_in_the_model(small):
    table = from_keras(small)
    assert [[row.name, row.type] for row in table] == cases(__file__, "layers of a small Keras model")
    assert table.layers[7].inputs == (4, 6)
    assert table.parameters == small.count_params() - 2 * 8  # without the statistics of the batch norm


def test_the_model_stays_as_it_was(keras, small):
    before = [variable.numpy().copy() for variable in small.variables]
    attributes = {name: set(vars(layer)) for name, layer in ((layer.name, layer) for layer in small.layers)}
    from_keras(small)
    assert all((a == b.numpy()).all() for a, b in zip(before, small.variables, strict=True))
    assert {layer.name: set(vars(layer)) for layer in small.layers} == attributes


def test_channels_first_is_read_alike(keras):
    tables = []
    for data_format, shape, axis in (("channels_last", (16, 16, 3), -1), ("channels_first", (3, 16, 16), 1)):
        layers = keras.layers
        model = keras.Sequential(
            [
                layers.Input(shape),
                layers.Conv2D(4, 3, data_format=data_format),
                layers.BatchNormalization(axis=axis),
                layers.AveragePooling2D(2, data_format=data_format),
                layers.Flatten(data_format=data_format),
                layers.Dense(2),
            ]
        )
        tables.append(
            [(row.type, row.in_channels, row.out_height, row.parameters) for row in from_keras(model)]
        )
    assert tables[0] == [row for row in tables[1] if row[0] != "permute"]


@pytest.mark.parametrize("n_frozen", [0, 3, 6])
def test_frozen_layers_run_the_passes_that_they_run_in_pytorch(keras, n_frozen):
    from torch import nn

    layers, first = keras.layers, {"data_format": "channels_first"}
    theirs, ours = [keras.Input((4, 64, 64))], []
    for read in (4, 16):
        theirs += [
            layers.Conv2D(16, 3, padding="same", **first),
            layers.BatchNormalization(axis=1),
            layers.ReLU(),
        ]
        ours += [nn.Conv2d(read, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU()]
    theirs = keras.Sequential([*theirs, layers.GlobalAveragePooling2D(**first), layers.Dense(5)])
    ours = nn.Sequential(*ours, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 5))
    for position in range(n_frozen):
        theirs.layers[position].trainable = False
        ours[position].requires_grad_(False)

    def rows(table):
        passes = ("forwards", "input_gradients", "weight_gradients", "recomputed")
        names = ("type", "in_channels", "parameters", *passes)
        return [tuple(getattr(row, name) for name in names) for row in table if row.type != "flatten"]

    assert rows(from_keras(theirs)) == rows(from_torch(ours, 64, in_channels=4))
    assert from_keras(theirs).warnings == ()


def test_a_model_of_any_size_needs_one(keras):
    model = keras.Sequential([keras.Input((None, None, 3)), keras.layers.Conv2D(4, 3)])
    assert not has_own_image_size(model)
    assert resolve_cnn(model, 64).image_size == 64


def test_a_data_set_does_not_change_the_size_that_a_model_is_made_for(small):
    question = Question([small], ["T4"], 8, data_set="imagenet")
    assert ResolvedQuestion.of(question).tables[0].image_size == 32


def test_what_cannot_be_read_says_why(keras, small):
    layers = keras.layers
    unbuilt = keras.Sequential([layers.Conv2D(4, 3)])
    left, right = keras.Input((8, 8, 3)), keras.Input((8, 8, 3))
    twofold = keras.Model([left, right], layers.Add()([left, right]))
    image, conv = keras.Input((16, 16, 3)), layers.Conv2D(4, 3)

    class Odd(layers.Layer):
        def call(self, inputs):
            if inputs.shape[0] == 3:
                raise ValueError("three images\nare too many")
            return inputs

    def reading(layer):
        return keras.Sequential([image, layers.Reshape((256, 3)), layer])

    for model, size, error, message in (
        (unbuilt, 32, SchemaError, "has no weights yet"),
        (twofold, 8, SchemaError, "not one batch of images"),
        (small, 64, OutOfRangeError, "made for images of 32x32"),
        (keras.Sequential([keras.Input((8, 4, 3)), conv]), None, SchemaError, "only square"),
        (keras.Sequential([keras.Input((None, None, 3)), conv]), None, SchemaError, "image_size is needed"),
        (
            keras.Sequential([image, conv, Odd()]),
            None,
            SchemaError,
            r"3x16x16x3: .*Odd.call\(\): three images",
        ),
        *(
            (
                reading(getattr(layers, name)(8, name="reads")),
                None,
                SchemaError,
                f"'reads': {name} layers .* anchor",
            )
            for name in ("LSTM", "GRU", "SimpleRNN")
        ),
    ):
        with pytest.raises(error, match=message):
            from_keras(model, size)


def test_a_file_is_the_model_under_its_own_name(small, tmp_path):
    small.save(tmp_path / "mine.keras")
    ours, theirs = from_keras(small), from_keras_file(tmp_path / "mine.keras")
    assert (theirs.cnn, theirs.layers) == ("mine", ours.layers)
    assert resolve_cnn(tmp_path / "mine.keras").layers == ours.layers


def test_files_that_cannot_be_read_say_why(keras, tmp_path):
    class Own(keras.layers.Layer):
        def call(self, inputs):
            return inputs

    keras.Sequential([keras.Input((8, 8, 3)), Own()]).save(tmp_path / "own.keras")
    (tmp_path / "broken.keras").write_bytes(b"PK no archive")
    for name, message in (
        ("own", "given as FILE.py:make_model"),
        ("broken", "cannot be read"),
        ("none", "no file"),
    ):
        with pytest.raises(SchemaError, match=message):
            from_keras_file(tmp_path / f"{name}.keras")


def test_another_backend_is_refused_with_the_next_step(monkeypatch, small):
    jax = types.SimpleNamespace(backend=types.SimpleNamespace(backend=lambda: "jax"))
    monkeypatch.setitem(sys.modules, "keras", jax)
    with pytest.raises(BackendUnavailableError, match=r"runs on jax here.*epochcast predict"):
        resolve_cnn(small, 32)
