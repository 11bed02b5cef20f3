"""Small CNNs of each framework are read as the rows of `small_cnns.csv`, with the FLOPs that were worked out by hand.

`python tests/predictor_tests/cnns_tests/test_small_cnns.py` writes that file again, where a change is meant.
"""

import csv
import json
from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from onnx_files import onnx_model
from own_module import own_chain, own_module

from api.layer_tables import LayerTableIn, inline_table
from predictor.cnns.chainer_compat import install
from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.layer_table import LayerTable, layer_complaint, table_complaint
from predictor.cnns.onnx_file import from_onnx
from predictor.cnns.torch_module import from_torch
from predictor.errors import OutOfRangeError, SchemaError
from predictor.operators.work import PASSES, layer_bytes, layer_flops

EXPECTED = Path(__file__).with_name("small_cnns.csv")
GRAPHS = json.loads(Path(__file__).with_name("onnx_graphs.json").read_text(encoding="utf-8"))
CNNS_OF: dict[str, Callable[[ModuleType], dict[str, LayerTable]]] = {}
"""Makers of the tables by framework."""

CONTRADICTORY = {"LSTM", "GRU", "RNN"}
"""CNNs whose rows hold two directions as groups of an odd number of channels, which readers of CSV refuse."""

pytestmark = pytest.mark.filterwarnings("ignore")


def of_framework(make: Callable[[ModuleType], dict[str, LayerTable]]) -> None:
    CNNS_OF[make.__name__] = make


@of_framework
def torch(torch: ModuleType) -> dict[str, LayerTable]:
    from torch.utils.checkpoint import checkpoint

    nn, F = torch.nn, torch.nn.functional
    tables = {}

    def of(name: str, forward: Any, size: int = 16, channels: int | None = None, **children: Any) -> None:
        tables[name] = from_torch(own_module(torch, forward, **children), size, name, in_channels=channels)

    def run(name: str, *layers: Any, size: int = 16, channels: int | None = None) -> None:
        tables[name] = from_torch(nn.Sequential(*layers), size, name, in_channels=channels)

    def autocast(x: Any, enabled: bool) -> Any:
        with torch.autocast(x.device.type, torch.bfloat16, enabled=enabled):
            return torch.relu(x)

    def noisy(_self: Any, x: Any) -> Any:
        return x * torch.empty(x.shape[0], 1, 1, 1, device=x.device).bernoulli_(0.8).div_(0.8) + x

    def functions(_self: Any, x: Any) -> Any:
        x = F.max_pool2d(F.relu6(x), 2)
        x = F.adaptive_avg_pool2d(F.hardswish(x), 1) + F.silu(x)
        return torch.flatten(F.dropout(x, 0.2), 1)

    of("views", lambda _, x: [part[:, :, 1:].squeeze() for part in x.chunk(3, 1)] and x.relu())
    of("one position", lambda _, x: x[:, :, 0, 0].relu())
    of("autocast", lambda _, x: autocast(x, True))
    of("autocast that is off", lambda _, x: autocast(x, False))
    of("noise of an image", noisy)
    of("dropout of nothing", lambda self, x: self.drop(x).relu(), drop=nn.Dropout(0.0))
    of("dropout of channels", lambda self, x: self.drop(x), drop=nn.Dropout2d())
    of("outputs", lambda _, x: {"out": x.relu(), "aux": [x.tanh()]})
    of("constants", lambda _, x: x * torch.ones(3, 1, 1) + torch.arange(16.0).sqrt())
    bounds = {name: nn.Parameter(torch.zeros(3, 1, 1)) for name in ("low", "high")}
    of("bounds", lambda self, x: x.clamp(self.low, self.high), **bounds)
    of("one bound", lambda self, x: x.clamp(min=self.low.sum()), **bounds)
    of("bound of maps", lambda _, x: x.clamp(max=x * x))
    of("functions", functions)
    run("transposed", nn.ConvTranspose2d(3, 5, 4, stride=2, padding=1, bias=False))
    run("padding of a name", nn.Conv2d(3, 8, 5, padding="same"))
    rectangle = {"stride": (1, 2), "padding": (0, 2), "dilation": 2, "groups": 3}
    run("grouped, dilated and rectangular", nn.Conv2d(6, 12, (1, 3), **rectangle), channels=6)
    dense = nn.Linear(3, 7)
    of("channels last", lambda self, x: self.fc(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2), fc=dense)
    of("plain product", lambda self, x: x.flatten(1) @ self.w, w=nn.Parameter(torch.zeros(768, 5)))
    shuffle = lambda _, x: x.view(-1, 3, 2, 16, 16).transpose(1, 2).contiguous().view(-1, 6, 16, 16)  # noqa: E731
    of("channel shuffle", shuffle, channels=6)
    of("learned scale", lambda self, x: self.scale * x, scale=nn.Parameter(torch.ones(3, 1, 1)))
    of("shared layer", lambda self, x: self.conv(self.conv(x)), conv=nn.Conv2d(3, 3, 1))
    run("weights computed from parameters", nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 8, 3)))
    of("unknown operator", lambda _, x: torch.cumsum(x, 1))
    of("cosine similarity", lambda _, x: F.cosine_similarity(x.relu().flatten(1), x.sigmoid().flatten(1)))
    of("parameters that nothing reads", lambda _, x: x.relu(), spare=nn.Linear(3, 4))
    of("means of the mini-batch", lambda _, x: x.relu() - x.mean(0), size=32)
    for kind in ("LSTM", "GRU", "RNN"):
        reads = getattr(nn, kind)(3, 8, batch_first=True, bidirectional=True)
        of(kind, lambda self, x: self.reads(x.flatten(2).transpose(1, 2))[0], reads=reads)
    block, stem = nn.Sequential(nn.Conv2d(8, 8, 3), nn.Conv2d(8, 8, 3)), nn.Conv2d(3, 8, 3)
    for again in (False, True):
        forward = lambda self, x, again=again: checkpoint(self.block, self.stem(x), use_reentrant=again)  # noqa: E731
        of(f"checkpoint, {again * 're-entrant'}", forward, stem=stem, block=block)
    norm = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
    layers = *norm, nn.MaxPool2d(2), nn.Flatten(), nn.Dropout(), nn.Linear(8 * 8 * 8, 10)
    run("sequence", *layers)
    run("frozen parameters", *(layer.requires_grad_(layer not in norm) for layer in layers))

    of("group norm", lambda self, x: self.norm(x), channels=8, norm=nn.GroupNorm(4, 8))
    of("instance norm", lambda self, x: self.norm(x), channels=8, norm=nn.InstanceNorm2d(8, affine=True))
    of("clamp and ReLU6", lambda _, x: x.clamp(-1, 1).clamp(0, 6), channels=8)
    of("roll", lambda _, x: torch.roll(x, (2, 2), (2, 3)), channels=8)
    of("mean of pixels", lambda _, x: x.mean((2, 3)), channels=8)
    for mode in ("nearest", "bilinear", "bicubic"):
        of(f"upsample, {mode}", lambda _, x, mode=mode: F.interpolate(x, None, 2, mode), channels=8)
    of("mean over channels", lambda _, x: x.mean(1, keepdim=True), channels=8)
    of("einsum of two maps", lambda _, x: torch.einsum("bchw,bdhw->bcd", x, x), channels=8)
    of("along a line", lambda self, x: self.conv(x.flatten(2)), channels=8, conv=nn.Conv1d(8, 4, 5, 2, 2))
    for name, *convolutions in (
        ("over volumes", nn.Conv3d(2, 4, 3, padding=1), nn.BatchNorm3d(4)),
        ("window of each side", nn.Conv3d(2, 4, (3, 5, 1), (1, 2, 1), (1, 2, 0))),
        ("transposed over volumes", nn.ConvTranspose3d(2, 4, 2, 2)),
    ):
        volumes = nn.Sequential(*convolutions)
        of(name, lambda self, x: self.volumes(x.view(-1, 2, 4, 16, 16)), channels=8, volumes=volumes)

    def attention(self: Any, x: Any) -> Any:  # to images alone nothing would learn
        q = self.conv(x).flatten(2).transpose(1, 2)[:, None].contiguous()
        return F.scaled_dot_product_attention(q, q, q)

    def written_out(self: Any, x: Any) -> Any:
        q, k, v = self.qkv(x.flatten(2).transpose(1, 2)).view(-1, 64, 3, 4, 8).permute(2, 0, 3, 1, 4).unbind()
        return (q @ k.transpose(2, 3)).softmax(-1) @ v

    def transformer(self: Any, x: Any) -> Any:
        x = self.patches(x).flatten(2)
        x = x.transpose(1, 2) if self.attention.batch_first else x.permute(2, 0, 1)
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.narrow(F.gelu(self.wide(x)))

    of("attention", attention, channels=8, conv=nn.Conv2d(8, 8, 1))
    of("attention written out", written_out, size=8, qkv=nn.Linear(3, 96))
    for batch_first in (False, True):
        heads = nn.MultiheadAttention(768, 12, batch_first=batch_first)
        children = {"patches": nn.Conv2d(3, 768, 16, 16), "norm": nn.LayerNorm(768), "attention": heads}
        children |= {"wide": nn.Linear(768, 3072), "narrow": nn.Linear(3072, 768)}
        of(f"transformer, {batch_first * 'batch first'}", transformer, size=224, **children)

    trunk = nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    trunk = nn.Sequential(*trunk, nn.Linear(8, 10))

    def in_tiles(self: Any, x: Any) -> Any:  # as 16 images of the mini-batch
        tiles = x.reshape(len(x), 3, 4, 8, 4, 8).permute(0, 2, 4, 1, 3, 5)
        return self.trunk(tiles.reshape(-1, 3, 8, 8))

    run("tile", *trunk, size=8)
    of("16 tiles", in_tiles, size=32, trunk=trunk)
    of("two images joined", lambda self, x: self.trunk(torch.cat([x, x.flip(3)])), size=8, trunk=trunk)
    small = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten())
    of("strips", lambda self, x: self.trunk(x.reshape(-1, 3, 8, 32)), size=32, trunk=small)
    of("lines", lambda self, x: self.line(x.flatten(2)).relu(), size=32, line=nn.Conv1d(3, 8, 5))
    volume = nn.Conv3d(1, 8, 3, padding=1)
    of("colours as depth", lambda self, x: self.volume(x[:, None]).relu(), size=32, volume=volume)

    def conv() -> Any:
        return nn.Conv2d(3, 8, 3, padding=1)

    of("stack", lambda self, x: torch.stack([self.conv(x), self.conv(x)], 1), size=8, conv=conv())
    of("repeat", lambda self, x: self.conv(x).repeat(1, 2, 1, 1), size=8, conv=conv())
    of("unfold", lambda self, x: F.unfold(self.conv(x), 2, stride=2), size=8, conv=conv())
    of("norm", lambda self, x: torch.linalg.vector_norm(self.conv(x), dim=1), size=8, conv=conv())
    of("max", lambda self, x: self.conv(x).max(dim=1).values, size=8, conv=conv())
    of("addcmul", lambda self, x: torch.addcmul(x, x, self.conv(x)[:, :3]), size=8, conv=conv())
    return tables


def read_graph(graph: dict[str, Any], name: str) -> LayerTable:
    return from_onnx(f"{name}.onnx", graph.get("image_size"), onnx_model(graph))


@of_framework
def onnx(onnx: ModuleType) -> dict[str, LayerTable]:
    return {name: read_graph(graph, name) for name, graph in GRAPHS["read"].items()}


@of_framework
def chainer(chainer: ModuleType) -> dict[str, LayerTable]:
    from predictor.cnns.chainer_chain import from_chainer

    F, L = chainer.functions, chainer.links
    tables = {}

    def of(name: str, function: Any, size: int = 16, channels: int | None = None, **links: Any) -> None:
        tables[name] = from_chainer(own_chain(chainer, function, **links), size, name, in_channels=channels)

    def gated(_self: Any, x: Any) -> Any:
        gate = F.sigmoid(F.average(x, axis=(2, 3)))
        return x * F.broadcast_to(gate[:, :, None, None], x.shape) + x

    def reduced(self: Any, x: Any) -> Any:
        x = F.resize_images(F.clip(self.prelu(self.norm(x)), -1.0, 1.0), (32, 32))
        return F.sum(F.matmul(x, x, transa=True), axis=1)

    first = {"conv": L.Convolution2D(3, 8, 3, stride=2, pad=1), "bn": L.BatchNormalization(8)}
    pooled = lambda self, x: self.fc(F.max_pooling_2d(F.relu(self.bn(self.conv(x))), 2))  # noqa: E731
    of("links", pooled, size=32, **first, fc=L.Linear(None, 10))
    of("squeeze and excitation", gated)
    grouped = L.Convolution2D(6, 6, 3, pad=2, dilate=2, groups=6, nobias=True)
    up = L.Deconvolution2D(6, 4, 4, stride=2, pad=1)
    of("grouped and transposed", lambda self, x: self.up(self.dw(x)), channels=6, dw=grouped, up=up)
    volumes = {
        "conv": L.Convolution3D(3, 4, (3, 1, 3), pad=(1, 0, 1)),
        "up": L.Deconvolution3D(4, 5, 2, stride=2),
    }
    of("volumes", lambda self, x: self.up(self.conv(F.reshape(x, (len(x), 3, 4, 4, 16)))), **volumes)
    of("unknown function", lambda _, x: F.cosh(x), size=8)
    of("functions", reduced, channels=8, norm=L.GroupNormalization(2, 8), prelu=L.PReLU((8,)))
    of(
        "tiles",
        lambda self, x: self.conv(x.reshape(-1, 3, 8, 32)),
        size=32,
        conv=L.Convolution2D(3, 4, 3, pad=1),
    )
    return tables


def rows_of(tables: dict[str, LayerTable], framework: str) -> list[dict[str, str]]:
    """Rows as text, with the work of one image, forward and of all passes, and the CNN's warnings in its first."""
    rows = []
    for name, table in tables.items():
        for layer in table:
            row = {
                "cnn": f"{framework}: {name}",
                **asdict(layer),
                "inputs": " ".join(map(str, layer.inputs or ())),
            }
            row["forward_flops"] = layer_flops(layer, "forward", 1)
            row["flops"] = sum(layer_flops(layer, pass_, 1) for pass_ in PASSES)
            row["numbers_moved"] = sum(layer_bytes(layer, pass_, 1, 1) for pass_ in PASSES)
            row["warnings"] = " | ".join(map(str, () if layer.index else table.warnings))
            rows.append({key: "" if cell is None else str(cell) for key, cell in row.items()})
    return rows


@pytest.fixture(params=CNNS_OF, scope="module")
def framework(request: Any) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def tables(framework: str, request: Any) -> dict[str, LayerTable]:
    return CNNS_OF[framework](request.getfixturevalue(framework))


def test_each_small_cnn_has_its_expected_rows_flops_and_warnings(framework, tables):
    with EXPECTED.open(newline="", encoding="utf-8") as file:
        expected = [row for row in csv.DictReader(file) if row["cnn"].startswith(f"{framework}:")]
    assert rows_of(tables, framework) == expected
    assert {(table.cnn, table.source) for table in tables.values()} == {(name, framework) for name in tables}


def test_no_table_of_them_contradicts_itself_and_csv_and_json_keep_it(tables, tmp_path):
    wrong = []
    for name in tables.keys() - CONTRADICTORY:
        table = tables[name]
        table.to_csv(tmp_path / "cnn.csv")
        wrong += [
            f"{name}: {complaint}" for complaint in (*map(layer_complaint, table), table_complaint(table))
        ]
        copies = read_layer_table_csv(tmp_path / "cnn.csv"), inline_table(LayerTableIn(**table.document()))
        wrong += [name for copy in copies if copy.layers != table.layers]
    assert {complaint for complaint in wrong if not complaint.endswith(": None")} == set()


@pytest.mark.parametrize("name", GRAPHS["refused"])
def test_a_graph_that_cannot_be_read_is_refused_with_the_reason(onnx, name):
    graph = GRAPHS["refused"][name]
    error = OutOfRangeError if graph["error"] == "OutOfRangeError" else SchemaError
    with pytest.raises(error, match=graph["words"]):
        read_graph(graph, name)


def write() -> None:
    """Write the expected rows."""
    modules = {"torch": import_module("torch"), "onnx": import_module("onnx"), "chainer": install()}
    rows = [row for name, module in modules.items() for row in rows_of(CNNS_OF[name](module), name)]
    with EXPECTED.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    write()
