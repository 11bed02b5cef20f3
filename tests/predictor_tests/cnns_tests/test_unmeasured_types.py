"""Types that were never measured: found in every framework that has them, and counted as worked out by hand."""

from collections.abc import Callable
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from own_module import own_module

from api.layer_tables import LayerTableIn, inline_table
from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.layer_table import DIMENSIONS, Layer, LayerTable, layer_complaint, side
from predictor.cnns.onnx_file import FUSED_EXPORT, from_onnx
from predictor.cnns.torch_module import from_torch
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.kernels import kernels_of
from predictor.operators.memory import peak_memory
from predictor.operators.work import PASSES, layer_bytes, layer_flops


@pytest.fixture
def rows(torch: ModuleType) -> Callable[..., tuple[Layer, ...]]:
    """Rows of a module with this forward and these children, on images of 8 channels and 16 x 16 pixels."""

    def build(forward: Any, **children: Any) -> tuple[Layer, ...]:
        table = from_torch(own_module(torch, forward, **children), 16, in_channels=8)
        assert table.warnings == ()
        assert [complaint for layer in table if (complaint := layer_complaint(layer))] == []
        return table.layers

    return build


def shape(layer: Layer) -> tuple[int | None, ...]:
    return layer.out_channels, layer.out_height, layer.out_width


def test_group_norm_trains_two_numbers_per_channel_and_moves_eight_tensors(torch, rows):
    (layer,) = rows(lambda self, x: self.norm(x), norm=torch.nn.GroupNorm(4, 8))
    assert (layer.type, layer.parameters, shape(layer)) == ("group_norm", 16, (8, 16, 16))
    one_image = [layer_bytes(layer, pass_, 2, 1) - layer_bytes(layer, pass_, 1, 1) for pass_ in PASSES]
    assert one_image[0] + one_image[2] == 5 * 8 * 16 * 16


def test_each_is_a_type_of_its_own(torch, rows):
    interpolate, norm = torch.nn.functional.interpolate, torch.nn.InstanceNorm2d(8, affine=True)
    modes = ("nearest", "bilinear", "bicubic")
    for forward, types, sizes in (
        (lambda self, x: self.norm(x), ["instance_norm"], (8, 16, 16)),
        (lambda _, x: x.clamp(-1, 1).clamp(0, 6), ["clamp", "activation"], (8, 16, 16)),
        (lambda _, x: torch.roll(x, (2, 2), (2, 3)), ["roll"], (8, 16, 16)),
        (lambda _, x: x.mean((2, 3)), ["avg_pool"], (8, 1, 1)),
        *((lambda _, x, mode=m: interpolate(x, None, 2, mode), ["upsample"], (8, 32, 32)) for m in modes),
    ):
        layers = rows(forward, **({"norm": norm} if types == ["instance_norm"] else {}))
        assert ([layer.type for layer in layers], shape(layers[-1])) == (types, sizes)
        assert sum(layer.parameters for layer in layers) == 16 * (types == ["instance_norm"])


def test_a_mean_over_channels_reads_every_number_once(rows):
    (layer,) = rows(lambda _self, x: x.mean(1, keepdim=True))
    assert (layer.type, shape(layer)) == ("mean", (1, 16, 16))
    assert layer_flops(layer, "forward", 1) == 8 * 16 * 16


def test_an_einsum_of_two_maps_is_the_product_that_it_does(torch, rows):
    layers = rows(lambda _self, x: torch.einsum("bchw,bdhw->bcd", x, x))
    assert [layer_flops(layer, "forward", 1) for layer in layers if layer.type == "matmul"] == [
        2 * 8 * 8 * 16 * 16
    ]


def test_a_convolution_along_a_line_is_one_of_height_1(torch, rows):
    (layer,) = rows(lambda self, x: self.conv(x.flatten(2)), conv=torch.nn.Conv1d(8, 4, 5, 2, 2))
    assert (layer.type, layer.kernel_height, layer.kernel_width) == ("conv2d", 1, 5)
    assert (layer.in_height, layer.in_width, shape(layer)) == (1, 256, (4, 1, 128))
    assert layer_flops(layer, "forward", 1) == 2 * 128 * 4 * 8 * 5


def test_a_convolution_over_depth_holds_it_as_height(torch, rows):
    (layer,) = rows(
        lambda self, x: self.conv(x.view(-1, 2, 4, 16, 16)), conv=torch.nn.Conv3d(2, 4, 3, padding=1)
    )
    assert (layer.type, layer.kernel_height, layer.kernel_width) == ("conv3d", 9, 3)
    assert shape(layer) == (4, 4 * 16, 16)
    assert [side(layer, "in", dimension) for dimension in DIMENSIONS] == [4, 16, 16]
    assert [side(layer, "padding", dimension) for dimension in DIMENSIONS] == [1, 1, 1]
    assert layer_flops(layer, "forward", 1) == 2 * (4 * 16 * 16) * 4 * 2 * 27
    assert layer.parameters == 4 * 2 * 27 + 4


def test_a_convolution_over_depth_has_the_window_of_each_side(torch, rows):
    conv = torch.nn.Conv3d(2, 4, (3, 5, 1), (1, 2, 1), (1, 2, 0))
    (layer,) = rows(lambda self, x: self.conv(x.view(-1, 2, 4, 16, 16)), conv=conv)
    sides = {
        what: [side(layer, what, dimension) for dimension in DIMENSIONS]
        for what in ("out", "kernel", "stride")
    }
    assert sides == {"out": [4, 8, 16], "kernel": [3, 5, 1], "stride": [1, 2, 1]}
    assert layer_flops(layer, "forward", 1) == 2 * (4 * 8 * 16) * 4 * 2 * 15


def test_a_transposed_convolution_over_depth_is_counted_from_its_input(torch, rows):
    conv = torch.nn.ConvTranspose3d(2, 4, 2, 2)
    (layer,) = rows(lambda self, x: self.conv(x.view(-1, 2, 4, 16, 16)), conv=conv)
    assert (layer.type, shape(layer)) == ("conv_transpose3d", (4, 8 * 32, 32))
    assert [side(layer, "out", dimension) for dimension in DIMENSIONS] == [8, 32, 32]
    assert layer_flops(layer, "forward", 1) == 2 * (4 * 16 * 16) * 4 * 2 * 8


def test_layers_of_a_volume_have_its_channels(torch, rows):
    layers = rows(
        lambda self, x: self.norm(self.conv(x.view(-1, 2, 4, 16, 16))),
        conv=torch.nn.Conv3d(2, 4, 3, padding=1), norm=torch.nn.BatchNorm3d(4),
    )  # fmt: skip
    assert [(layer.type, shape(layer)) for layer in layers] == [
        ("conv3d", (4, 64, 16)),
        ("batch_norm", (4, 64, 16)),
    ]


def test_a_table_of_volumes_is_read_again_from_csv_and_as_sent(torch, rows, tmp_path):
    layers = rows(lambda self, x: self.conv(x.view(-1, 2, 4, 16, 16)), conv=torch.nn.Conv3d(2, 4, (3, 1, 1)))
    table = LayerTable("volumes", 16, tuple(layers), source="csv")
    table.to_csv(tmp_path / "volumes.csv")
    assert read_layer_table_csv(tmp_path / "volumes.csv") == table
    assert inline_table(LayerTableIn.model_validate(table.document())).layers == table.layers


def test_depths_that_contradict_heights_are_refused(torch, rows):
    (layer,) = rows(lambda self, x: self.conv(x.view(-1, 2, 4, 16, 16)), conv=torch.nn.Conv3d(2, 4, 3))
    assert "not a multiple of in_depth 3" in (layer_complaint(replace(layer, in_depth=3)) or "")
    assert "out_depth 1 does not follow" in (layer_complaint(replace(layer, out_depth=1)) or "")
    assert "in_depth is given" in (layer_complaint(replace(layer, type="conv2d")) or "")


def test_attention_keeps_its_inputs_and_never_its_scores(torch, rows):
    def forward(self: Any, x: Any) -> Any:
        q = (
            self.conv(x).flatten(2).transpose(1, 2)[:, None].contiguous()
        )  # to images alone nothing would learn
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)

    layers = rows(forward, conv=torch.nn.Conv2d(8, 8, 1))
    (layer,) = [row for row in layers if row.type == "attention"]
    assert (layer.groups, layer.in_channels, layer.in_height, layer.kernel_height) == (1, 8, 256, 256)
    assert layer_flops(layer, "forward", 1) == 2 * 256 * 256 * 16
    assert sum(layer_flops(layer, pass_, 1) for pass_ in PASSES) == 3.5 * layer_flops(layer, "forward", 1)
    kept = peak_memory(LayerTable("attention", 16, layers), 1000).activations
    assert kept < 1000 * 4 * 256 * 256


@pytest.mark.parametrize("type_", [name for name, entry in OPERATOR_TYPES.items() if entry.product])
def test_kernels_multiply_as_often_as_layers_do(type_):
    layer = Layer(
        1, "x", type_, None, (0,), 8, 4, 4, 16, 4, 4, 3, 3, 1, 1, 1, 1, 1, 2, parameters=5, repeats=3
    )
    kernels = kernels_of(LayerTable("one", 4, (layer,)), optimizer=False)
    assert (kernels.count * kernels["flops"]).sum() == sum(layer_flops(layer, pass_, 1) for pass_ in PASSES)


def test_onnx_has_them(onnx, table_of):
    import numpy as np

    pair, flops = {"s": (3,), "b": (3,)}, 2 * 3 * 16**3
    axes, scales = np.array([1], np.int64), np.array([1, 1, 2, 2], np.float32)
    for operator, options, weights, constants, columns in (
        ("GroupNormalization", {"num_groups": 3}, pair, {}, ("group_norm", (3, 16, 16), 6)),
        ("InstanceNormalization", {}, pair, {}, ("instance_norm", (3, 16, 16), 6)),
        ("PRelu", {}, {"slope": (3, 1, 1)}, {}, ("prelu", (3, 16, 16), 3)),
        ("ReduceSum", {}, {}, {"axes": axes}, ("mean", (1, 16, 16), 0)),
        ("Resize", {"mode": "linear"}, {}, {"": None, "scales": scales}, ("upsample", (3, 32, 32), 0)),
        ("MatMul", {}, {}, {"x": None}, ("matmul", (48, 16, 1), 0)),
    ):
        node = onnx.helper.make_node(operator, ["x", *weights, *constants], ["y"], **options)
        arrays = {name: array for name, array in constants.items() if array is not None}
        (layer,) = table_of([node], weights, arrays)
        assert (layer.type, shape(layer), layer.parameters) == columns
    assert (layer.groups, layer_flops(layer, "forward", 1)) == (3, flops)


def test_chainer_has_them(chainer):
    from predictor.cnns.chainer_chain import from_chainer

    F = chainer.functions

    class Net(chainer.Chain):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            with self.init_scope():
                self.norm = chainer.links.GroupNormalization(2, 8)
                self.prelu = chainer.links.PReLU((8,))

        def forward(self, x: Any) -> Any:
            x = F.clip(self.prelu(self.norm(x)), -1.0, 1.0)
            x = F.resize_images(x, (32, 32))
            x = F.matmul(x, x, transa=True)
            return F.sum(x, axis=1)

    table = from_chainer(Net(), 16, in_channels=8)
    assert [layer.type for layer in table] == ["group_norm", "prelu", "clamp", "upsample", "matmul", "mean"]
    assert [layer.parameters for layer in table.layers[:2]] == [16, 8]
    assert layer_flops(table.layers[4], "forward", 1) == 2 * 8 * 32**3


@pytest.fixture
def normalized(torch: ModuleType) -> Any:
    nn = torch.nn
    return nn.Sequential(nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3))


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_batch_norms_that_pytorchs_default_exporter_folds_are_warned_of(torch, onnx, normalized, tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed here: the exporter does not run")
    torch.onnx.export(normalized.train(), (torch.zeros(2, 3, 8, 8),), tmp_path / "folded.onnx")
    table = from_onnx(tmp_path / "folded.onnx")
    assert "batch_norm" not in {layer.type for layer in table}
    assert table.warnings == (FUSED_EXPORT,)


@pytest.mark.filterwarnings("ignore")
def test_the_export_that_the_warning_names_keeps_them(torch, onnx, normalized, tmp_path):
    pytest.importorskip("onnxscript", reason="onnxscript is not installed here: the exporter does not run")
    torch.onnx.export(normalized.train(), (torch.zeros(2, 3, 8, 8),), tmp_path / "kept.onnx", optimize=False)
    table = from_onnx(tmp_path / "kept.onnx")
    assert table.warnings == ()
    own = from_torch(normalized, 8)
    assert [layer.type for layer in table] == [layer.type for layer in own]
    assert [layer.parameters for layer in table] == [layer.parameters for layer in own]
