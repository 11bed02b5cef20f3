"""A CNN however it is given: by name, path or object; and nothing heavy imported for it."""

import subprocess
import sys
from pathlib import Path

import pytest

import epochcast
from predictor.cnns.resolve import resolve_cnn
from predictor.cnns.zoo import minimum_image_size, zoo_cnn
from predictor.errors import OutOfRangeError, SchemaError, UnknownCnnError

HEAVY = ("torch", "chainer", "cupy", "onnx", "pandas", "sklearn", "scipy", "matplotlib")
LIGHT = (
    "predictor.cnns.resolve",
    "predictor.cnns.zoo",
    "predictor.operators.work",
    "predictor.cnns.layer_table",
    "predictor.catalogue.devices",
)


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


def test_a_table_for_another_image_size_is_refused():
    with pytest.raises(OutOfRangeError, match="the layer table of resnet18 is for 96 pixels"):
        resolve_cnn(zoo_cnn("resnet18", 96), 224)


def test_a_module_and_a_chain_are_read(torch, chainer):
    for cnn, source in (
        (torch.nn.Conv2d(3, 4, 1), "torch"),
        (chainer.links.Convolution2D(3, 4, 1), "chainer"),
    ):
        assert resolve_cnn(cnn, 8).source == source


def test_a_module_must_be_told_its_image_size(torch):
    with pytest.raises(SchemaError, match="image_size is needed: a torch Module"):
        resolve_cnn(torch.nn.Conv2d(3, 4, 1))


def test_an_unknown_name_is_refused_with_the_nearest_and_a_hint():
    with pytest.raises(UnknownCnnError) as refusal:
        resolve_cnn("resnet51")
    message = str(refusal.value)
    assert "no CNN is called 'resnet51'. Nearest: 'resnet50'" in message or "'resnet50'" in message
    assert "a path must end in .csv (a layer table), .onnx or .keras" in message


def test_an_object_that_is_no_cnn_is_refused():
    with pytest.raises(UnknownCnnError, match="cnn is of type dict, which is not a CNN"):
        resolve_cnn({})


@pytest.mark.parametrize("name", ["mine.py", "mine.py:make_model", "a/mine.py:make_model"])
def test_a_python_file_is_never_run_here(name):
    with pytest.raises(UnknownCnnError, match=r"is Python code, which only the epochcast commands run"):
        resolve_cnn(name)


def test_an_image_below_the_minimum_is_refused():
    below = minimum_image_size("alexnet") - 1
    with pytest.raises(OutOfRangeError, match=str(below)):
        resolve_cnn("alexnet", below)


def test_an_onnx_path_that_does_not_exist_is_said_to_be_unreadable(tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed here")
    with pytest.raises(Exception, match="cannot read the ONNX file"):
        resolve_cnn(tmp_path / "none.onnx", 8)


def test_what_predicting_needs_imports_nothing_heavy():
    code = (
        f"import sys, {', '.join(LIGHT)}\n"
        "predictor.cnns.resolve.resolve_cnn('vgg16')\n"
        f"print(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == ""


def test_a_zoo_name_is_found_whatever_its_case_and_dashes():
    assert [resolve_cnn(name, 224).cnn for name in ("ResNet-50", "VGG 16_BN")] == ["resnet50", "vgg16_bn"]
    with pytest.raises(UnknownCnnError, match=r"Say which: 'regnet_x_16gf', 'regnet_x_1_6gf'"):
        resolve_cnn("RegNetX-16GF")


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


def test_two_image_sizes_are_refused():
    with pytest.raises(SchemaError, match="'resnet18@32' and image_size 64 differ"):
        resolve_cnn("resnet18@32", 64)


@pytest.mark.parametrize("name", ["resnet18@0", "resnet18@large", "resnet18@99999", "resnet18@16385"])
def test_what_follows_the_at_is_a_number_of_pixels(name):
    with pytest.raises(SchemaError, match=r"after @ comes the image size in pixels, 1\.\.16384"):
        resolve_cnn(name)
