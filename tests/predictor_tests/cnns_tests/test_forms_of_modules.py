"""Modules over volumes, of several inputs and under autocast of any device are read as they train."""

import pytest
from case_tables import each_row
from own_module import own_module

from predictor.answers.answer import answer
from predictor.answers.question import Question
from predictor.catalogue.modes import Mode
from predictor.cnns.torch_module import from_torch
from predictor.cnns.torch_step import record
from predictor.errors import SchemaError
from predictor.operators.memory import peak_memory
from predictor.operators.operators import wide_outputs


def test_a_network_over_volumes_is_read_on_cubes(torch):
    nn = torch.nn
    table = from_torch(nn.Sequential(nn.Conv3d(1, 8, 3, 2, 1), nn.BatchNorm3d(8), nn.Conv3d(8, 4, 1)), 16)
    assert [(row.type, row.in_channels, row.in_depth, row.in_height) for row in table if row.in_depth] == [
        ("conv3d", 1, 16, 256),
        ("conv3d", 8, 8, 64),
    ]
    assert table.image_in_words == "16 x 16 x 16 px"
    assert any("cubes" in warning.about for warning in table.warnings)


def test_a_module_of_two_inputs_names_the_recorder_that_takes_them(torch):
    class Masked(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = torch.nn.Conv2d(3, 8, 3)

        def forward(self, images, mask, scale=1.0):
            return self.conv(images * mask) * scale

    with pytest.raises(SchemaError, match=r"takes images and mask.*epochcast.record\(module, images, mask\)"):
        from_torch(Masked(), 16)
    assert len(record(Masked(), torch.rand(2, 3, 8, 8), torch.rand(2, 3, 8, 8))) == 3


@pytest.mark.parametrize(("device", "said"), [("cuda", False), ("cpu", True)])
def test_autocast_without_a_type_takes_that_of_a_gpu(torch, device, said):
    module, images = torch.nn.Conv2d(3, 8, 3), torch.rand(4, 3, 8, 8)

    def step():
        with torch.autocast(device):
            loss = module(images).mean()
        loss.backward()

    table = record(step)
    assert table.step.precision == "amp_fp16"
    assert any("autocast names no type" in warning.about for warning in table.warnings) == said
    assert answer(Question(table, "V100-SXM2-16GB")).rows()


@pytest.mark.parametrize("enabled", [False, True])
def test_autocast_of_a_stated_type_and_none_are_as_they_are(torch, enabled):
    module, images = torch.nn.Conv2d(3, 8, 3), torch.rand(4, 3, 8, 8)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            module(images).mean().backward()

    assert record(step).step.precision == ("amp_bf16" if enabled else None)


@each_row
def test_the_mode_of_resizing_is_that_of_the_row(torch, mode, type_):
    resize = torch.nn.functional.interpolate
    conv = torch.nn.Conv2d(3, 8, 3)
    resized = own_module(torch, lambda self, x: resize(self.conv(x), size=8, mode=mode), conv=conv)
    assert [row.type for row in from_torch(resized, 34)] == ["conv2d", type_]


def test_maps_behind_frozen_norms_are_float32_under_autocast_until_the_next_convolution(torch):
    """Bottlenecks of a ResNet-50 keep 38.9 MiB an image in float32 on an H200, and 58.8 under autocast."""
    nn = torch.nn

    def normed(self, maps):
        return maps * self.scale.reshape(1, -1, 1, 1) + self.shift.reshape(1, -1, 1, 1)

    frozen_norm = own_module(torch, normed, scale=nn.Buffer(torch.ones(64)), shift=nn.Buffer(torch.zeros(64)))
    layers = [nn.Conv2d(3, 64, 3, padding=1), frozen_norm, nn.ReLU(inplace=True), nn.Conv2d(64, 64, 1)]
    table = from_torch(nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1)), 32)
    types = {position: row.type for position, row in enumerate(table)}
    wide = wide_outputs(table)[0]
    assert [types[i] for i in types if wide[i]] == ["multiply", "add", "activation"]
    kept = {
        precision: [peak_memory(table, n, Mode(precision=precision)).activations for n in (64, 128)]
        for precision in ("fp32", "amp_fp16")
    }
    grown = {precision: high - low for precision, (low, high) in kept.items()}
    assert grown["amp_fp16"] > 1.2 * grown["fp32"]
