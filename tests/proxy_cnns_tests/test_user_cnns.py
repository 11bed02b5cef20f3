"""The user's own CNN from a file: found, run, or refused with the reason."""

from pathlib import Path

import pytest

from predictor.errors import SchemaError
from proxy_cnns.configuration import Builder
from proxy_cnns.user_cnns import builder_of, make_model, user_table

_CODE = """
from helper_of_the_users_file import width

def make_model():
    from torch import nn
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True))

def broken():
    raise RuntimeError("no weights here")

def needs(argument):
    return argument

class Made:
    def __call__(self, images):
        return images

made = Made()
"""


@pytest.fixture
def file(tmp_path):
    (tmp_path / "helper_of_the_users_file.py").write_text("width = 8\n")
    path = tmp_path / "mine.py"
    path.write_text(_CODE)
    return path


def test_a_users_function_gives_a_layer_table(file, torch):
    table = user_table(Builder(file, "make_model"), 32)
    assert [layer.type for layer in table] == ["conv2d", "batch_norm", "activation"]
    assert table.layers[0].out_channels == 8


def test_a_name_of_the_zoo_is_no_file():
    assert builder_of("resnet50") is None


def test_a_file_and_function_are_read(file):
    assert builder_of(f"{file}:make_model") == Builder(Path(file), "make_model")


@pytest.mark.parametrize(
    ("text", "why"), [("absent.py:make_model", "not a file"), ("absent.py", "not a file")]
)
def test_a_file_that_is_not_there_is_refused(text, why):
    with pytest.raises(SchemaError, match=why):
        builder_of(text)


def test_a_file_without_a_function_asks_for_one(file):
    with pytest.raises(SchemaError, match="names no function"):
        builder_of(str(file))


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("make_modl", "make_model"),
        ("broken", "no weights here"),
        ("needs", "without arguments"),
        ("made", "is a Made, not a function"),
    ],
)
def test_a_function_that_makes_no_cnn_is_refused_with_the_reason(file, function, why):
    with pytest.raises(SchemaError, match=why):
        make_model(Builder(file, function))


def test_a_file_that_does_not_run_is_refused_with_the_reason(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text("import package_that_does_not_exist\n")
    with pytest.raises(SchemaError, match="package_that_does_not_exist"):
        make_model(Builder(path, "make_model"))
