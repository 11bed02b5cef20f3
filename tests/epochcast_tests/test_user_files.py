"""The user's own FILE.py:make_model wherever a command takes a CNN."""

import json
import os
from pathlib import Path

import pytest

import epochcast as face
from epochcast.commands.options import cnn_or_layers
from predictor.errors import BackendUnavailableError

CODE = """
from torch import nn

def make_model():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
"""
ON_T4 = ("--gpu", "T4", "--batch-size", "64")


@pytest.fixture
def own(torch, tmp_path, monkeypatch):
    """The file of a user, in the folder where commands run."""
    (tmp_path / "mine.py").write_text(CODE)
    monkeypatch.chdir(tmp_path)
    return "mine.py:make_model"


def rows(run):
    assert run.code == 0, run.err
    return json.loads(run.out)["rows"]


def test_every_command_takes_the_cnn_that_a_file_makes_and_a_zoo_name_beside_it_stays_one(epochcast, own):
    [row] = rows(epochcast("predict", own, *ON_T4, "--format", "json"))
    assert (row["cnn"], row["image_size"]) == ("mine.make_model", 224)
    [explained] = rows(epochcast("explain", own, *ON_T4, "--format", "json"))
    assert (explained["cnn"], "convolution" in explained["classes"]) == ("mine.make_model", True)
    ranked = rows(epochcast("compare", own, "--batch-size", 64, "--dataset", "cifar10", "--format", "json"))
    assert {row["cnn"] for row in ranked} == {"mine.make_model"}
    layers = rows(epochcast("cnn", "show", f"{own}@32", "--format", "json"))
    assert [row["type"] for row in layers] == ["conv2d", "activation", "avg_pool", "flatten", "linear"]
    predicted = rows(epochcast("predict", own, "lenet5", "--image-size", 32, *ON_T4, "--format", "json"))
    assert [(row["cnn"], row["image_size"]) for row in predicted] == [("mine.make_model", 32), ("lenet5", 32)]


def test_a_cnn_of_a_file_has_one_image_size_and_grey_images_are_asked_about_on_mnist(epochcast, own):
    for words, pixels in (
        ((f"{own}@65",), 65),
        ((own, "--image-size", 48), 48),
        ((own, "--dataset", "cifar10"), 32),
        ((f"{own}@48", "--image-size", 48), 48),
    ):
        [row] = rows(epochcast("predict", *words, *ON_T4, "--format", "json"))
        assert row["image_size"] == pixels
    run = epochcast("predict", f"{own}@65", "--image-size", 48, *ON_T4)
    assert "'mine.py:make_model@65' and image size 48 differ" in run.err
    Path("mine.py").write_text(CODE.replace("Conv2d(3,", "Conv2d(1,"))
    [row] = rows(epochcast("predict", own, "--dataset", "mnist", *ON_T4, "--format", "json"))
    assert (row["image_size"], row["iterations_per_epoch"]) == (28, 938)


def test_without_the_framework_its_extra_is_named(own, tmp_path):
    code = "def make_model():\n    raise ModuleNotFoundError('no', name='chainer')\n"
    (tmp_path / "other.py").write_text(code)
    (tmp_path / "third.py").write_text("raise ModuleNotFoundError('no', name='torch.nn')\n")
    with pytest.raises(BackendUnavailableError, match=r"third.py needs PyTorch.*'epochcast\[torch\]'"):
        cnn_or_layers("third.py:make_model", {})
    with pytest.raises(BackendUnavailableError, match=r"other.py needs Chainer.*'epochcast\[chainer\]'"):
        cnn_or_layers("other.py:make_model", {})


MODEL = """
import keras

def make_model():
    layers = keras.layers
    return keras.Sequential([keras.Input((32, 32, 3)), layers.Conv2D(8, 3), layers.Flatten(), layers.Dense(10)])
"""


@pytest.fixture
def script(tmp_path):
    os.environ["KERAS_BACKEND"] = "torch"
    pytest.importorskip("torch", reason="Keras runs on it")
    pytest.importorskip("keras")
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path / "mine.py"


def test_a_file_a_function_and_an_object_are_one_cnn(epochcast, script):
    namespace = {}
    exec(MODEL, namespace)  # noqa: S102
    model = namespace["make_model"]()
    model.save(script.with_suffix(".keras"))
    times = face.predict(model, "T4", 64, data_set="imagenet")["iteration_time_ms"].tolist()
    for words in ([script.with_suffix(".keras")], [f"{script}:make_model"]):
        run = epochcast("predict", *words, "-g", "T4", "-b", 64, "--data-set", "imagenet", "--json")
        [row] = json.loads(run.out)["rows"]
        assert (row["image_size"], [row["iteration_time_ms"]]) == (32, times)


@pytest.fixture
def export(tmp_path):
    torch = pytest.importorskip("torch", reason="writes the file")
    module = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8)).eval()
    torch.onnx.export(module, torch.zeros(1, 3, 32, 32), tmp_path / "mine.onnx", dynamo=False)
    return tmp_path / "mine.onnx"


@pytest.mark.parametrize("command", [("predict", "-b", 32), ("compare",), ("cnn", "show")])
def test_the_next_step_is_printed(epochcast, export, command):
    options = () if command[0] == "cnn" else ("-g", "T4", "--data-set", "cifar10")
    out = " ".join(epochcast(*command, export, *options).out.split())
    assert "Beware: inference export, batch norms are missing; export for training: torch.onnx.export(" in out
