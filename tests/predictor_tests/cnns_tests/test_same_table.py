"""The same CNN through different sources gives the same layer table."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from predictor.cnns.chainer_chain import from_chainer
from predictor.cnns.layer_csv import read_layer_table_csv
from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.onnx_file import INFERENCE_EXPORT, from_onnx
from predictor.cnns.torch_module import from_torch
from predictor.cnns.zoo import zoo_cnn, zoo_names

COMPARED = [field.name for field in fields(Layer) if field.name not in ("index", "name", "inputs")]
EXPORTED = [
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "mobilenet_v3_small", "shufflenet_v2_x0_5",
]  # fmt: skip


def rows(table: LayerTable) -> Counter[tuple[Hashable, ...]]:
    return Counter(tuple(getattr(layer, name) for name in COMPARED) for layer in table)


def connections(table: LayerTable) -> Counter[tuple[str, ...]]:
    """For each row its type and the types of what it reads."""
    types = [layer.type for layer in table]
    return Counter(
        (layer.type, *sorted("image" if i < 0 else types[i] for i in layer.inputs or ())) for layer in table
    )


@pytest.fixture
def export(torch: ModuleType, tmp_path: Path) -> Callable[..., Path]:
    """Export a module to ONNX, for training or (with batch norms folded) for inference."""
    pytest.importorskip("onnx", reason="onnx is not installed here: ONNX exports cannot be read")

    def write(module: Any, image_size: int, training: bool = True) -> Path:
        modes, path = torch.onnx.TrainingMode, tmp_path / "exported.onnx"
        if any(tensor.is_meta for tensor in module.state_dict().values()):
            module = module.to_empty(device="cpu")
        torch.onnx.export(
            module.train(training),
            (torch.zeros(2, 3, image_size, image_size),),
            path,
            training=modes.PRESERVE if training else modes.EVAL,
            do_constant_folding=not training,
            dynamo=False,
            opset_version=18,
        )
        return path

    return write


@pytest.mark.parametrize("image_size", [32, 48])
def test_zoo_pytorch_and_chainer_agree_on_vgg_cifar(torch_vgg_cifar, chainer_vgg_cifar, image_size):
    zoo = zoo_cnn("vgg_cifar", image_size)
    by_chainer = from_chainer(chainer_vgg_cifar, image_size)
    assert rows(by_chainer) == rows(zoo)
    assert connections(by_chainer) == connections(zoo)
    if image_size == 32:  # PyTorch's dense layer is built for what a 32-pixel image leaves
        assert rows(from_torch(torch_vgg_cifar, image_size)) == rows(zoo)


@pytest.mark.filterwarnings("ignore")  # the exporter's own
def test_onnx_agrees_with_them_on_vgg_cifar(torch_vgg_cifar, export):
    exported = from_onnx(export(torch_vgg_cifar, 32))
    assert rows(exported) == rows(zoo_cnn("vgg_cifar", 32))
    assert connections(exported) == connections(zoo_cnn("vgg_cifar", 32))
    assert exported.warnings == ()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", EXPORTED)
def test_an_export_for_training_has_the_rows_of_the_zoo(name, torchvision_cnn, export):
    # 224 for AlexNet: the exporter knows adaptive pooling only where its size divides that of its input.
    size = 224 if name == "alexnet" else 64
    exported = from_onnx(export(torchvision_cnn(name), size))
    assert rows(exported) == rows(zoo_cnn(name, size))
    assert connections(exported) == connections(zoo_cnn(name, size))
    assert exported.warnings == ()


@pytest.mark.filterwarnings("ignore")
def test_an_export_for_inference_is_found_out(torchvision_cnn, export):
    exported = from_onnx(export(torchvision_cnn("resnet18"), 64, training=False))
    assert exported.warnings == (INFERENCE_EXPORT,)
    # Its batch norms are gone: legitimately another table than the zoo's, and said to be.
    missing = rows(zoo_cnn("resnet18", 64)) - rows(exported)
    assert {row[COMPARED.index("type")] for row in missing} == {"batch_norm", "conv2d"}


def test_a_zoo_cnn_survives_the_way_through_csv(tmp_path):
    changed = []
    for zoo in map(zoo_cnn, zoo_names()):
        zoo.to_csv(tmp_path / f"{zoo.cnn}.csv")
        back = read_layer_table_csv(tmp_path / f"{zoo.cnn}.csv")
        if (back.cnn, back.image_size, back.layers) != (zoo.cnn, zoo.image_size, zoo.layers):
            changed.append(zoo.cnn)
    assert changed == []
