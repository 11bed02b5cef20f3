"""The user's own CNN from a file: found, run, or refused with the reason."""

from pathlib import Path

import pytest

from proxy_cnns.configuration import Builder
from proxy_cnns.user_cnns import builder_of, user_table

_CODE = """
from helper_of_the_users_file import width

def make_model():
    from torch import nn
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU(inplace=True))
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


def test_a_file_and_function_are_read_and_a_name_of_the_zoo_is_no_file(file):
    assert builder_of("resnet50") is None
    assert builder_of(f"{file}:make_model") == Builder(Path(file), "make_model")
