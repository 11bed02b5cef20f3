"""Operator by operator, the zoo's layer tables are what torchvision's CNNs run when they train."""

from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import fields
from types import ModuleType
from typing import Any

import pytest

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.cnns.torch_module import from_torch
from predictor.cnns.zoo import ZOO, minimum_image_size, zoo_cnn, zoo_names
from predictor.errors import OutOfRangeError

OURS_ALONE = {
    *("airbench94", "dcgan_discriminator", "dcgan_generator", "densenet_bc_cifar", "inception_v4", "lenet5"),
    *("mnist_cnn", "regnet_x_12gf", "regnet_x_200mf", "regnet_x_4gf", "regnet_x_600mf", "regnet_x_6_4gf"),
    *("regnet_y_12gf", "regnet_y_200mf", "regnet_y_4gf", "regnet_y_600mf", "regnet_y_6_4gf"),
    *("resnet110_cifar", "resnet164_cifar", "resnet18_cifar", "resnet200", "resnet20_cifar"),
    *("resnet56_cifar", "resnet9", "shufflenet_v2_cifar", "vgg_cifar"),
}
TORCHVISION_NAMES = sorted(set(ZOO) - OURS_ALONE)
LIMITED = [name for name in TORCHVISION_NAMES if minimum_image_size(name) > 1]
ODD_SIZE = 203  # rounds at every stride
COMPARED = [field.name for field in fields(Layer) if field.name not in ("index", "name", "inputs")]


def row_contents(layer: Layer) -> tuple[Hashable, ...]:
    return tuple(getattr(layer, name) for name in COMPARED)


def histories(table: LayerTable) -> Counter[int]:
    """Each row with everything that it was computed from, whatever the order in which branches run."""
    known: dict[int, int] = {IMAGE: 0}
    for layer in table:
        read = sorted(known[i] for i in layer.inputs or ())
        known[layer.index] = hash((row_contents(layer), *read))
    return Counter(known.values())


def differences(ours: LayerTable, theirs: LayerTable) -> list[tuple[Hashable, ...]]:
    counts = Counter(map(row_contents, ours))
    counts.subtract(map(row_contents, theirs))
    return [(count, *row) for row, count in counts.items() if count]


@pytest.mark.parametrize("name", TORCHVISION_NAMES)
def test_a_table_has_the_operators_and_parameters_that_torchvision_runs(
    name: str, torchvision_cnn: Callable[[str], Any]
) -> None:
    module = torchvision_cnn(name)
    ours, theirs = zoo_cnn(name, ODD_SIZE), from_torch(module, ODD_SIZE)
    assert differences(ours, theirs) == []
    assert histories(ours) == histories(theirs), "the same rows, but connected otherwise"
    assert ours.parameters == sum(parameter.numel() for parameter in module.parameters())


@pytest.mark.parametrize("name", LIMITED)
def test_the_smallest_image_runs_in_torchvision_as_the_table_says(
    name: str, torchvision_cnn: Callable[[str], Any]
) -> None:
    size = minimum_image_size(name)
    assert differences(zoo_cnn(name, size), from_torch(torchvision_cnn(name), size)) == []


@pytest.mark.parametrize("name", LIMITED)
def test_one_pixel_less_than_the_smallest_image_fails_in_torchvision(
    name: str, torchvision_cnn: Callable[[str], Any]
) -> None:
    with pytest.raises(OutOfRangeError):
        from_torch(torchvision_cnn(name), minimum_image_size(name) - 1)


def test_every_name_of_the_zoo_is_compared_with_torchvision_or_ours_alone(
    torchvision_models: ModuleType,
) -> None:
    known = {name for name in zoo_names() if hasattr(torchvision_models, name)}
    assert known == set(TORCHVISION_NAMES)
