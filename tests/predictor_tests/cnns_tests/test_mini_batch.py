"""Work of maps that a layer repeats, such as the tiles of an image, is counted in kernels, operators and memory."""

from dataclasses import replace
from typing import Any

import pytest
from own_module import own_module

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.cnns.onnx_file import from_onnx
from predictor.cnns.torch_module import from_torch
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.kernels import kernels_of
from predictor.operators.memory import peak_memory
from predictor.operators.operators import operators_of
from predictor.operators.work import PASSES, layer_flops, operator_work


@pytest.fixture
def trunk(torch: Any) -> Any:
    nn = torch.nn
    layers = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    return nn.Sequential(*layers, nn.Linear(8, 10))


def test_kernels_operators_and_memory_count_every_repeat(trunk):
    table = from_torch(trunk, 8)
    repeated = LayerTable("tiles", 8, tuple(replace(layer, repeats=16) for layer in table))
    once, often = (kernels_of(count) for count in (table, repeated))
    for column in ("flops", "elements"):
        assert (often.count * often[column]).sum() == 16 * (once.count * once[column]).sum()
    assert often.parameters == once.parameters
    single, multiple = (
        {o.type: operator_work(o) for o in operators_of(count)} for count in (table, repeated)
    )
    assert multiple["conv2d"][:2] == tuple(16 * count for count in single["conv2d"][:2])
    assert multiple["conv2d"][2] == single["conv2d"][2]  # weights are read once
    kept = [peak_memory(count, 1000, Mode()).activations for count in (table, repeated)]
    assert kept[1] == 16 * kept[0]


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("open_batch", [True, False])
def test_tiles_in_an_onnx_file_count_as_in_the_module(torch, onnx, trunk, tmp_path, open_batch):
    def forward(self: Any, x: Any) -> Any:
        tiles = x.reshape(x.shape[0], 3, 4, 8, 4, 8).permute(0, 2, 4, 1, 3, 5)
        return self.trunk(tiles.reshape(-1, 3, 8, 8))

    tiles, path = own_module(torch, forward, trunk=trunk), tmp_path / "tiles.onnx"
    axes = {"dynamic_axes": {"x": {0: "n"}}} if open_batch else {}
    options = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, "dynamo": False}
    torch.onnx.export(tiles, torch.zeros(2, 3, 32, 32), path, input_names=["x"], **axes, **options)
    types = ("conv2d", "batch_norm", "activation", "linear")
    work = [
        [(layer.type, layer_flops(layer, "forward", 1)) for layer in table if layer.type in types]
        for table in (from_onnx(path), from_torch(tiles, 32))
    ]
    assert work[0] == work[1]


@pytest.mark.parametrize("type_", [name for name, entry in OPERATOR_TYPES.items() if entry.product])
def test_kernels_multiply_as_often_as_layers_do(type_):
    first = Layer(0, "first", "dropout", None, (IMAGE,), 8, 4, 4, 8, 4, 4)
    layer = Layer(
        1, "x", type_, None, (0,), 8, 4, 4, 16, 4, 4, 3, 3, 1, 1, 1, 1, 1, 2, parameters=5, repeats=3
    )
    kernels = kernels_of(LayerTable("two", 4, (first, layer)), update=0.0)
    assert (kernels.count * kernels["flops"]).sum() == sum(layer_flops(layer, pass_, 1) for pass_ in PASSES)
