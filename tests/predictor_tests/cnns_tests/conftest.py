"""One CNN written for two frameworks, so that its layer tables can be compared."""

from types import ModuleType
from typing import Any

import pytest

collect_ignore = ["recorded_steps"]  # programs that `test_corpus.py` imports


@pytest.fixture(scope="session")
def onnx() -> ModuleType:
    return pytest.importorskip("onnx", reason="onnx is not installed here: ONNX files cannot be made")


@pytest.fixture(scope="session")
def torch_vgg_cifar(torch: ModuleType) -> Any:
    """Chainer's VGG for CIFAR, in PyTorch."""
    nn = torch.nn
    layers: list[Any] = []
    channels = 3
    for width, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for i in range(count):
            layers += [
                nn.Conv2d(channels, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.ReLU(True),
            ]
            layers += [nn.Dropout(0.3)] if i + 1 < count else []
            channels = width
        layers.append(nn.MaxPool2d(2, 2, ceil_mode=True))
    layers += [
        nn.Dropout(),
        nn.Flatten(),
        nn.Linear(512, 512, bias=False),
        nn.BatchNorm1d(512),
        nn.ReLU(True),
    ]
    return nn.Sequential(*layers, nn.Dropout(), nn.Linear(512, 100, bias=False))


@pytest.fixture(scope="session")
def chainer_vgg_cifar(chainer: ModuleType) -> Any:
    """Chainer's VGG for CIFAR, in Chainer."""
    F, L = chainer.functions, chainer.links

    class Block(chainer.Chain):  # type: ignore[misc,name-defined]
        def __init__(self, width: int) -> None:
            super().__init__()
            with self.init_scope():
                self.conv = L.Convolution2D(None, width, 3, pad=1, nobias=True)
                self.bn = L.BatchNormalization(width)

        def forward(self, x: Any) -> Any:
            return F.relu(self.bn(self.conv(x)))

    class Vgg(chainer.Chain):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            stages = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))
            with self.init_scope():
                self.stages = chainer.ChainList(
                    *(chainer.ChainList(*(Block(width) for _ in range(count))) for width, count in stages)
                )
                self.fc1 = L.Linear(None, 512, nobias=True)
                self.bn_fc1 = L.BatchNormalization(512)
                self.fc2 = L.Linear(None, 100, nobias=True)

        def forward(self, x: Any) -> Any:
            for blocks in self.stages:
                for i, block in enumerate(blocks):
                    x = block(x)
                    x = F.dropout(x, 0.3) if i + 1 < len(blocks) else x
                x = F.max_pooling_2d(x, 2, stride=2)
            x = F.relu(self.bn_fc1(self.fc1(F.dropout(x, 0.5))))
            return self.fc2(F.dropout(x, 0.5))

    return Vgg()
