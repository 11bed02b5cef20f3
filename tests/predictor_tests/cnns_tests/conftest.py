"""One CNN written for two frameworks, so that its layer tables can be compared."""

from types import ModuleType
from typing import Any

import pytest
from own_module import own_chain

collect_ignore = ["recorded_steps"]  # programs that `test_corpus.py` imports


@pytest.fixture(scope="session")
def onnx() -> ModuleType:
    return pytest.importorskip("onnx", reason="onnx is not installed here: ONNX files cannot be made")


BLOCKS = [
    (width, i == n) for width, n in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)) for i in range(1, n + 1)
]
"""Channels of each block of Chainer's VGG for CIFAR, and whether a pooling layer follows rather than a dropout."""


@pytest.fixture(scope="session")
def torch_vgg_cifar(torch: ModuleType) -> Any:
    """Chainer's VGG for CIFAR, in PyTorch."""
    nn, layers, channels = torch.nn, [], 3
    for width, is_last in BLOCKS:
        layers += [nn.Conv2d(channels, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(True)]
        layers.append(nn.MaxPool2d(2, 2, ceil_mode=True) if is_last else nn.Dropout(0.3))
        channels = width
    head = nn.Dropout(), nn.Flatten(), nn.Linear(512, 512, bias=False), nn.BatchNorm1d(512), nn.ReLU(True)
    return nn.Sequential(*layers, *head, nn.Dropout(), nn.Linear(512, 100, bias=False))


@pytest.fixture(scope="session")
def chainer_vgg_cifar(chainer: ModuleType) -> Any:
    """Chainer's VGG for CIFAR, in Chainer."""
    F, L = chainer.functions, chainer.links

    def block(width: int) -> Any:
        conv, bn = L.Convolution2D(None, width, 3, pad=1, nobias=True), L.BatchNormalization(width)
        return own_chain(chainer, lambda self, x: F.relu(self.bn(self.conv(x))), conv=conv, bn=bn)

    def forward(self: Any, x: Any) -> Any:
        for (_, is_last), block in zip(BLOCKS, self.blocks, strict=True):
            x = F.max_pooling_2d(block(x), 2, stride=2) if is_last else F.dropout(block(x), 0.3)
        x = F.relu(self.bn_fc1(self.fc1(F.dropout(x, 0.5))))
        return self.fc2(F.dropout(x, 0.5))

    links = {
        "blocks": chainer.ChainList(*(block(width) for width, _ in BLOCKS)),
        "bn_fc1": L.BatchNormalization(512),
    }
    links |= {"fc1": L.Linear(None, 512, nobias=True), "fc2": L.Linear(None, 100, nobias=True)}
    return own_chain(chainer, forward, **links)
