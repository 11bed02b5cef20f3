"""Work that a module folds into the mini-batch is counted; what cannot be scaled to one image is refused."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from own_module import own_module

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import Layer, LayerTable, TableWarning, layer_complaint, table_complaint
from predictor.cnns.onnx_file import from_onnx
from predictor.cnns.torch_module import from_torch
from predictor.errors import SchemaError
from predictor.operators.kernels import kernels_of
from predictor.operators.memory import peak_memory
from predictor.operators.operators import operators_of
from predictor.operators.work import PASSES, cnn_flops, layer_bytes, layer_flops, operator_work


@pytest.fixture
def read(torch: ModuleType) -> Callable[..., LayerTable]:
    """Layer table of a module with this forward and these children."""

    def build(forward: Any, image_size: int = 32, **children: Any) -> LayerTable:
        return from_torch(own_module(torch, forward, **children), image_size)

    return build


@pytest.fixture
def trunk(torch: ModuleType) -> Any:
    nn = torch.nn
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, stride=2, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 10),
    )


def in_tiles(self: Any, x: Any) -> Any:
    """Run 16 tiles of each image through the trunk, as images of the mini-batch."""
    n, channels, height, width = x.shape
    tiles = x.reshape(n, channels, 4, height // 4, 4, width // 4).permute(0, 2, 4, 1, 3, 5)
    return self.trunk(tiles.reshape(-1, channels, height // 4, width // 4))


def _of(table: LayerTable, *types: str) -> list[Layer]:
    return [layer for layer in table if layer.type in types]


def test_sixteen_tiles_do_sixteen_times_the_work_of_one(read, trunk):
    tiles, tile = read(in_tiles, trunk=trunk), from_torch(trunk, 8)
    types = ("conv2d", "batch_norm", "activation", "avg_pool", "linear")
    for type_ in types:
        (layer,), (alone,) = _of(tiles, type_), _of(tile, type_)
        assert layer_flops(layer, "forward", 3) == 16 * layer_flops(alone, "forward", 3), type_
    assert tiles.parameters == tile.parameters


def test_tiles_are_maps_of_their_own_size_that_repeat(read, trunk):
    table = read(in_tiles, trunk=trunk)
    (conv,) = _of(table, "conv2d")
    assert (conv.repeats, conv.in_height, conv.out_height, conv.kernel_height) == (16, 8, 4, 3)
    assert [complaint for layer in table if (complaint := layer_complaint(layer))] == []


def test_tables_of_tiles_and_of_other_views_of_the_image_fit_together(torch, read):
    def trunk(channels: int) -> Any:
        return torch.nn.Sequential(torch.nn.Conv2d(channels, 8, 3), torch.nn.ReLU(), torch.nn.Flatten())

    tables = [
        read(in_tiles, trunk=trunk(3)),
        read(lambda self, x: self.trunk(x.reshape(-1, 3, 8, 32)), trunk=trunk(3)),
        read(lambda self, x: self.line(x.flatten(2)).relu(), line=torch.nn.Conv1d(3, 8, 5)),
        read(lambda self, x: self.volume(x[:, None]).relu(), volume=torch.nn.Conv3d(1, 8, 3, padding=1)),
    ]
    assert [table_complaint(table) for table in tables] == [None] * 4


def test_kernels_operators_and_memory_count_every_repeat(trunk):
    table = from_torch(trunk, 8)
    repeated = LayerTable("tiles", 8, tuple(_repeated(layer) for layer in table))
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


def _repeated(layer: Layer) -> Layer:
    return replace(layer, repeats=16)


def test_two_images_joined_along_the_mini_batch_are_twice_the_work(torch, read, trunk):
    table = read(lambda self, x: self.trunk(torch.cat([x, x.flip(3)])), image_size=8, trunk=trunk)
    (conv,) = _of(table, "conv2d")
    assert conv.repeats == 2
    assert layer_flops(conv, "forward", 1) == 2 * layer_flops(from_torch(trunk, 8).layers[0], "forward", 1)


def test_a_plain_cnn_repeats_nothing(trunk):
    assert {layer.repeats for layer in from_torch(trunk, 32)} == {1}


@pytest.mark.parametrize("batch_first", [True, False])
def test_a_transformer_block_takes_the_flops_counted_by_hand(torch, read, batch_first):
    width, heads, positions, mlp = 768, 12, 196, 3072
    nn = torch.nn
    block = {
        "patches": nn.Conv2d(3, width, 16, stride=16),
        "norm": nn.LayerNorm(width),
        "attention": nn.MultiheadAttention(width, heads, batch_first=batch_first),
        "wide": nn.Linear(width, mlp),
        "narrow": nn.Linear(mlp, width),
    }

    def forward(self: Any, x: Any) -> Any:
        x = self.patches(x).flatten(2)
        x = x.transpose(1, 2) if batch_first else x.permute(2, 0, 1)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.narrow(nn.functional.gelu(self.wide(x)))

    table = read(forward, image_size=224, **block)
    flops = {
        kind: sum(layer_flops(layer, "forward", 1) for layer in _of(table, kind))
        for kind in ("linear", "attention")
    }
    projections = 2 * positions * width * (3 * width + width)
    assert flops["linear"] == projections + 2 * 2 * positions * width * mlp
    assert flops["attention"] == 2 * 2 * positions * positions * width
    assert table.parameters == sum(p.numel() for module in block.values() for p in module.parameters())


def test_attention_written_out_counts_as_two_products_and_a_softmax(torch, read):
    def forward(self: Any, x: Any) -> Any:
        q, k, v = self.qkv(x.flatten(2).transpose(1, 2)).view(-1, 64, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind()
        return (q @ k.transpose(2, 3)).softmax(-1) @ v

    table = read(forward, image_size=8, qkv=torch.nn.Linear(3, 96))
    first, second = _of(table, "matmul")
    assert layer_flops(first, "forward", 1) == layer_flops(second, "forward", 1) == 2 * 4 * 64 * 64 * 8
    assert (first.groups, first.in_channels, first.out_channels, first.in_height) == (4, 32, 256, 64)
    moved = sum(layer_bytes(second, pass_, 1, 1) for pass_ in PASSES)
    assert moved == 3 * 4 * (64 * 64 + 64 * 8 + 64 * 8)  # scores, values and result, each three times


def test_work_that_cannot_be_scaled_to_one_image_is_refused(torch, read):
    for forward, message in (
        (
            lambda _, x: x.flatten(1) @ x.flatten(1).T,
            "2x2 at batch size 2 but 3x3 at 3.*depends on the batch size",
        ),
        (
            lambda _, x: torch.stack([image.relu() for image in x]),
            "different operators at batch sizes 2 and 3",
        ),
        (lambda _, x: x.view(2, 3, 32, 32).relu(), "fixes no batch size"),
    ):
        with pytest.raises(SchemaError, match=message):
            read(forward)


def test_a_result_that_does_not_grow_with_the_batch_is_warned_of(read):
    table = read(lambda _self, x: x.relu() - x.mean(0))
    assert [layer.type for layer in table] == ["activation", "add"]
    assert table.warnings == (
        TableWarning("cnn", "results that do not grow with the batch size, not counted further: mean"),
    )


@pytest.mark.filterwarnings("ignore")  # the exporter's own
@pytest.mark.parametrize("open_batch", [True, False])
def test_tiles_in_an_onnx_file_count_as_in_the_module(torch, trunk, tmp_path, open_batch):
    pytest.importorskip("onnx", reason="onnx is not installed here: ONNX files cannot be made")

    class Tiles(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.trunk = trunk

        forward = in_tiles

    axes = {"dynamic_axes": {"x": {0: "n"}}} if open_batch else {}
    options = {"training": torch.onnx.TrainingMode.TRAINING, "do_constant_folding": False, "dynamo": False}
    path = tmp_path / "tiles.onnx"
    torch.onnx.export(Tiles(), torch.zeros(2, 3, 32, 32), path, input_names=["x"], **axes, **options)
    types = ("conv2d", "batch_norm", "activation", "linear")
    work = [
        {kind: [layer_flops(layer, "forward", 1) for layer in _of(table, kind)] for kind in types}
        for table in (from_onnx(path), from_torch(Tiles(), 32))
    ]
    assert work[0] == work[1]


def test_chainers_tiles_are_counted(chainer):
    from predictor.cnns.chainer_chain import from_chainer

    class Tiles(chainer.Chain):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.conv = chainer.links.Convolution2D(3, 4, 3, pad=1)

        def forward(self, x: Any) -> Any:
            return self.conv(x.reshape(-1, 3, 8, 32))

    (conv,) = from_chainer(Tiles(), 32).layers
    assert (conv.repeats, conv.in_height, conv.in_width) == (4, 8, 32)
    assert cnn_flops(LayerTable("tiles", 32, (conv,)), 1, ("forward",)) == 2 * 32 * 32 * 3 * 4 * 9
