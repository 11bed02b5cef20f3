"""The CNNs of the zoo that torchvision lacks: their published facts, and the same CNN built in PyTorch."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import fields
from typing import Any

import pytest
from case_tables import each_row

from predictor.cnns.builder import NetBuilder
from predictor.cnns.families.vgg import vgg_cifar
from predictor.cnns.layer_table import Layer
from predictor.cnns.torch_module import from_torch
from predictor.cnns.zoo import zoo_cnn
from predictor.operators.work import multiply_adds

COMPARED = [field.name for field in fields(Layer) if field.name not in ("index", "name", "inputs")]


def contents(layers: Any) -> Counter[tuple[Hashable, ...]]:
    return Counter(tuple(getattr(layer, name) for name in COMPARED) for layer in layers)


def test_vgg_cifar_takes_its_number_of_classes():
    net = NetBuilder("vgg_cifar", 32)
    vgg_cifar(net, classes=10)
    assert zoo_cnn("vgg_cifar").parameters - net.table().parameters == 90 * 512


@each_row
def test_a_small_cnn_has_its_published_number_of_parameters(name, parameters):
    assert zoo_cnn(name).parameters == parameters


@each_row
def test_a_cnn_of_timm_has_its_parameters_and_multiply_adds(name, parameters_e6, products_e9):
    """As timm's results tables have them, which count some of the batch norms."""
    products = sum(multiply_adds(row) for row in zoo_cnn(name) if row.type in ("conv2d", "linear"))
    assert round(zoo_cnn(name).parameters / 1e6, 2) == parameters_e6
    assert products / 1e9 == pytest.approx(products_e9, rel=0.01, abs=0.01)


def test_the_generator_ends_in_an_image_of_its_image_size():
    last = zoo_cnn("dcgan_generator").layers[-1]
    assert (last.out_channels, last.out_height, last.out_width) == (3, 64, 64)


def lenet5_module(nn: Any) -> Any:
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.Tanh(), nn.AvgPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.Tanh(), nn.AvgPool2d(2), nn.Flatten()),
        *(nn.Linear(400, 120), nn.Tanh(), nn.Linear(120, 84), nn.Tanh(), nn.Linear(84, 10)),
    )


def mnist_cnn_module(nn: Any) -> Any:
    return nn.Sequential(
        *(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Dropout(0.25)),
        *(nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5), nn.Linear(128, 10)),
        nn.LogSoftmax(dim=1),
    )


def generator_module(nn: Any) -> Any:
    rows: list[Any] = []
    for channels, (into, stride, padding) in zip(
        (100, 512, 256, 128), ((512, 1, 0), (256, 2, 1), (128, 2, 1), (64, 2, 1)), strict=True
    ):
        rows += [
            nn.ConvTranspose2d(channels, into, 4, stride, padding, bias=False),
            nn.BatchNorm2d(into),
            nn.ReLU(),
        ]
    return nn.Sequential(*rows, nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=False), nn.Tanh())


def discriminator_module(nn: Any) -> Any:
    rows: list[Any] = [nn.Conv2d(3, 64, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, True)]
    for channels in (64, 128, 256):
        rows += [nn.Conv2d(channels, 2 * channels, 4, 2, 1, bias=False), nn.BatchNorm2d(2 * channels)]
        rows += [nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*rows, nn.Conv2d(512, 1, 4, bias=False), nn.Sigmoid(), nn.Flatten())


@pytest.mark.parametrize(
    ("name", "module_of", "image_size", "in_channels"),
    [
        ("lenet5", lenet5_module, 28, 1),
        ("mnist_cnn", mnist_cnn_module, 28, 1),
        ("dcgan_generator", generator_module, 1, 100),
        ("dcgan_discriminator", discriminator_module, 64, 3),
    ],
)
def test_a_small_cnn_runs_the_operators_of_the_same_cnn_in_pytorch(
    name, module_of, image_size, in_channels, torch
):
    module = module_of(torch.nn)
    assert contents(zoo_cnn(name)) == contents(from_torch(module, image_size, in_channels=in_channels))


def test_resnet18_cifar_is_torchvisions_with_a_small_stem_and_without_pooling(torch, torchvision_cnn):
    module = torchvision_cnn("resnet18")
    module.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
    module.maxpool, module.fc = torch.nn.Identity(), torch.nn.Linear(512, 10)
    assert contents(zoo_cnn("resnet18_cifar")) == contents(from_torch(module, 32))
