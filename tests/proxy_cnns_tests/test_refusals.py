"""What the instrument refuses: one table of calls, errors and the words that say the next step."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from case_tables import each_row
from small_subjects import RARE

from epochcast.profiling import ProfileRequest, request_for
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import DataError, SchemaError
from proxy_cnns.backends.layers import Numbers
from proxy_cnns.configuration import Builder
from proxy_cnns.data_parallel import gpu_counts
from proxy_cnns.device import visible_gpus
from proxy_cnns.input_pipeline import decode, images_of, measure_input, pipeline_of
from proxy_cnns.presets import preset
from proxy_cnns.user_cnns import builder_of, make_model

CALLS = {
    "absent.py:make_model": (builder_of, SchemaError, "not a file"),
    "absent.py": (builder_of, SchemaError, "not a file"),
    "a damaged image": (
        lambda _: decode(b"no JPEG"),
        DataError,
        r"of 7 bytes cannot be decoded .* Take damaged",
    ),
    "nowhere": (lambda name: images_of(Path(name), 9), SchemaError, "is not a folder"),
    "pilow": (lambda name: pipeline_of(name, 224), SchemaError, r"'pilow'\. Nearest: 'pillow'.*known: dali"),
    "workers without one": (
        lambda _: measure_input(workers=(2, 0)),
        SchemaError,
        r"\[0, 2\]: 1 must be among",
    ),
    "one GPU together": (lambda _: gpu_counts(1), SchemaError, "Pass --gpus all"),
    "chainer together": (
        lambda _: request_for(ProfileRequest("ddp", framework="chainer", device="cpu"), Path("t.csv")),
        SchemaError,
        "measured with pytorch, eager",
    ),
    "a volume of unknown depth": (lambda _: _volume(in_depth=None), SchemaError, "in_depth None"),
    "a volume of another size": (
        lambda _: _volume(out_height=8),
        SchemaError,
        "out_height 2 does not follow",
    ),
}
"""What is called with its own name, the error and its words."""


def _volume(**columns: object) -> object:
    return Numbers(replace(RARE["conv3d"].operator, **columns)).volume  # type: ignore[arg-type]


@pytest.mark.parametrize("name", CALLS)
def test_what_is_none_is_refused_with_the_reason(name):
    call, error, words = CALLS[name]
    with pytest.raises(error, match=words):
        call(name)


@each_row
def test_a_preset_that_is_none_is_refused_with_the_nearest_or_what_is_wrong(name, error, words):
    with pytest.raises(error, match=words):
        preset(name)


def test_a_folder_without_images_is_refused_with_the_next_step(tmp_path):
    with pytest.raises(SchemaError, match=r"holds no image \(\.jpg.*Pass a folder of images, or none"):
        images_of(tmp_path, 9)


_CODE = """
def broken():
    raise RuntimeError("no weights here")

def needs(argument):
    return argument

class Made:
    def __call__(self, images):
        return images

def make_model():
    return 7

made = Made()
"""


@each_row
def test_a_users_file_that_makes_no_cnn_is_refused_with_the_reason(tmp_path, code, function, words):
    path = tmp_path / "mine.py"
    path.write_text(code or _CODE)
    with pytest.raises(SchemaError, match=words):
        builder_of(str(path)) if function is None else make_model(Builder(path, function))


def _pool(**columns: object) -> LayerTable:
    layer = Layer(0, "it", "max_pool", None, (-1,), 3, 8, 8, 3, 4, 4, 2, 2, 2, 2, 0, 0, 1, 1)
    return LayerTable("single", 8, (replace(layer, **columns),))  # type: ignore[arg-type]


def _changed(cnn: str, name: str | int, **columns: object) -> LayerTable:
    """A zoo's CNN with other columns of one layer, by its name or position."""
    table = zoo_cnn(cnn)
    layers = [
        replace(layer, **columns) if name in (layer.name, layer.index) else layer  # type: ignore[arg-type]
        for layer in table
    ]
    return replace(table, layers=tuple(layers))


_EVEN = {"kernel_height": 2, "kernel_width": 2, "stride_height": 1, "stride_width": 1}
_ODD = {"in_height": 5, "in_width": 5, "out_height": 3, "out_width": 3}
BOTH, CHAINER = ("torch", "chainer"), ("chainer",)
TABLES = {
    "unknown type": (_pool(type="other"), r"layer 'it' is of type 'other'.*FILE.py:make_model", BOTH),
    "unknown activation": (_pool(type="activation", kind="relu7"), "Nearest: 'relu'", BOTH),
    "size that the window does not give": (_pool(out_height=5, out_width=5), "out_height is 5", BOTH),
    "convolution of another size": (_changed("resnet18", 0, out_height=99), "but out_height is 99", BOTH),
    "pool of another size": (_changed("resnet18", 3, out_height=99), "but out_height is 99", BOTH),
    "missing size": (_changed("lenet5", 0, kernel_height=None), "kernel_height None", BOTH),
    "parts that do not add up": (
        _changed("shufflenet_v2_x0_5", "stage2.1.branch2.expand", in_channels=20),
        "of the 48 channels",
        BOTH,
    ),
    "dilated pool": (_pool(dilation=2, out_height=3, out_width=3), "'it' pools with dilation 2", CHAINER),
    "uneven adaptive pool": (_pool(type="avg_pool", **_EVEN, **_ODD), "multiple of the output", CHAINER),
}
"""Layer tables that frameworks cannot run, the words that say why, and the frameworks."""


@pytest.mark.parametrize(
    ("case", "framework"), [(case, name) for case, (*_, frameworks) in TABLES.items() for name in frameworks]
)
def test_a_layer_that_cannot_be_run_is_refused_by_its_name(request, case, framework):
    request.getfixturevalue("torch")
    from proxy_cnns.backends.chainer.training import network as chainer_network
    from proxy_cnns.backends.torch.layers import network as torch_network

    table, words, _ = TABLES[case]
    if framework == "chainer":
        request.getfixturevalue("chainer")
    with pytest.raises(SchemaError, match=words):
        torch_network(table, "meta") if framework == "torch" else chainer_network(table)


@each_row
def test_gpus_that_are_not_there_or_differ_are_refused(gpus, monkeypatch, names, numbers, error, words):
    if names is None:
        monkeypatch.setitem(sys.modules, "pynvml", None)
    else:
        gpus(*names)
    with pytest.raises(error, match=words):
        visible_gpus(numbers)
