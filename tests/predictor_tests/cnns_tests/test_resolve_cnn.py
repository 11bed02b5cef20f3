"""A CNN however it is given: by name, path or object."""

import json
from pathlib import Path

import pytest

import epochcast
from predictor.cnns.resolve import resolve_cnn
from predictor.cnns.zoo import ZOO, zoo_cnn
from predictor.errors import BackendUnavailableError, DataError, OutOfRangeError, SchemaError, UnknownCnnError


def test_a_zoo_name_gives_the_zoos_table():
    assert resolve_cnn("resnet18") == zoo_cnn("resnet18")
    assert resolve_cnn("resnet18", 96) == zoo_cnn("resnet18", 96)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_path_ending_in_csv_gives_the_table_of_that_file(tmp_path, kind):
    zoo_cnn("resnet18", 96).to_csv(tmp_path / "mine.CSV")
    table = resolve_cnn(kind(tmp_path / "mine.CSV"))
    assert (table.cnn, table.layers) == ("mine", zoo_cnn("resnet18", 96).layers)


def test_a_table_passes_through():
    table = zoo_cnn("resnet18", 96)
    assert resolve_cnn(table) is resolve_cnn(table, 96) is table


def test_a_module_and_a_chain_are_read(torch, chainer):
    for cnn, source in (
        (torch.nn.Conv2d(3, 4, 1), "torch"),
        (chainer.links.Convolution2D(3, 4, 1), "chainer"),
    ):
        assert resolve_cnn(cnn, 8).source == source


def test_a_module_must_be_told_its_image_size(torch):
    with pytest.raises(SchemaError, match="image_size is needed: a torch Module"):
        resolve_cnn(torch.nn.Conv2d(3, 4, 1))


def test_a_zoo_name_is_found_whatever_its_case_and_dashes():
    assert [resolve_cnn(name, 224).cnn for name in ("ResNet-50", "VGG 16_BN")] == ["resnet50", "vgg16_bn"]


@pytest.mark.parametrize("answer", ["predict", "compare"])
def test_what_an_answer_covers_names_the_form_for_small_images(answer):
    face = getattr(epochcast, answer)
    assert "is resnet18_cifar." in face("ResNet-18", "T4", 64, data_set="cifar10").attrs["covers"]
    assert "resnet18_cifar" not in face("ResNet-18", "T4", 64, data_set="imagenet").attrs["covers"]


@pytest.mark.parametrize("name", ["resnet18@32", " ResNet-18@32 "])
def test_a_name_may_bring_its_image_size(name):
    assert resolve_cnn(name).image_size == 32


def test_the_size_of_a_name_holds_against_that_of_the_data_set():
    answered = epochcast.predict("resnet18@64", "T4", 32, data_set="cifar10")
    answer = epochcast.predict("resnet18", "T4", 32, data_set="cifar10", image_size=64)
    assert answered.equals(answer)
    assert list(answered["cnn"]) == ["resnet18"]


OF_PYTHON = "is Python code, which only the epochcast commands run"
PIXELS = r"after @ comes the image size in pixels, 1\.\.16384"
TOO_SMALL = ZOO["alexnet"].minimum_image_size - 1
REFUSED = (
    (zoo_cnn("resnet18", 96), 224, OutOfRangeError, "the layer table of resnet18 is for 96 pixels"),
    (
        "resnet51",
        None,
        UnknownCnnError,
        r"'resnet50'.* a path must end in .csv \(a layer table\), .onnx or .keras",
    ),
    ("RegNetX-16GF", None, UnknownCnnError, "Say which: 'regnet_x_16gf', 'regnet_x_1_6gf'"),
    ({}, None, UnknownCnnError, "cnn is of type dict, which is not a CNN"),
    *((name, None, UnknownCnnError, OF_PYTHON) for name in ("mine.py", "mine.py:make", "a/mine.py:make")),
    ("alexnet", TOO_SMALL, OutOfRangeError, str(TOO_SMALL)),
    ("none.onnx", 8, DataError, "cannot read the ONNX file"),
    ("resnet18@32", 64, SchemaError, "'resnet18@32' and image_size 64 differ"),
    *((f"resnet18@{size}", None, SchemaError, PIXELS) for size in ("0", "large", "99999", "16385")),
)


@pytest.mark.parametrize(("cnn", "image_size", "error", "words"), REFUSED)
def test_what_names_no_cnn_of_this_size_is_refused(cnn, image_size, error, words):
    with pytest.raises(error, match=words):
        resolve_cnn(cnn, image_size)


@pytest.mark.usefixtures("torchvision_models")
def test_a_cnn_of_torchvision_is_that_of_the_zoo():
    table = resolve_cnn("torchvision:resnet18")
    assert (table.cnn, table.image_size, table.parameters) == ("torchvision:resnet18", 224, 11_689_512)
    assert [row.type for row in table] == [row.type for row in zoo_cnn("resnet18")]
    with pytest.raises(UnknownCnnError, match=r"torchvision has no CNN 'resnet19'\. Nearest: 'resnet18'"):
        resolve_cnn("torchvision:resnet19")


@pytest.mark.usefixtures("torchvision_models")  # transformers imports it, too
def test_a_configuration_of_hugging_face_is_built_from_the_file(torch, tmp_path):
    pytest.importorskip("transformers", reason="transformers is not installed")
    config = {
        "model_type": "resnet",
        "hidden_sizes": [16, 32, 64, 128],
        "depths": [1, 1, 1, 1],
        "num_channels": 1,
    }
    (tmp_path / "config.json").write_text(
        json.dumps(config | {"architectures": ["ResNetForImageClassification"]})
    )
    table = resolve_cnn(f"hf:{tmp_path}/config.json", 64)
    assert (table.layers[0].in_channels, table.image_size) == (1, 64)
    with pytest.raises(SchemaError, match="nothing is fetched"):
        resolve_cnn("hf:microsoft/resnet-50")


def test_a_cnn_of_timm_is_read_at_its_own_size(torch):
    pytest.importorskip("timm", reason="timm is not installed")
    assert resolve_cnn("timm:resnet26d").layers[0].out_channels == 32


def test_a_library_that_is_not_installed_is_named(torch, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "timm", None)
    with pytest.raises(BackendUnavailableError, match="needs timm, which is not installed"):
        resolve_cnn("timm:resnet26d")
