"""Tests of the groups that fits are left without."""

from dataclasses import replace

import pandas as pd
import pytest

from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import UnknownGpuError
from predictor.measurements.groups import chips_of, cnns_of


def test_cards_with_the_same_chip_are_one_chip_and_a_cpu_is_its_own():
    names = ["GeForce RTX 2080 Ti", "Quadro RTX 8000", "Tesla T4", "cpu:Xeon"]
    first, second, third, cpu = chips_of(pd.DataFrame({"gpu": names}))
    assert first == second != third
    assert cpu == "cpu:Xeon"
    with pytest.raises(UnknownGpuError):
        chips_of(pd.DataFrame({"gpu": ["Voodoo 3"]}))


def _rows(*cnns: tuple[str, LayerTable | None]) -> pd.DataFrame:
    return pd.DataFrame([{"cnn": name, "layer_table": table} for name, table in cnns])


def test_a_cnn_under_another_name_is_the_same_where_its_products_and_norms_are():
    ours = zoo_cnn("resnet18")
    layers = tuple(replace(layer, name=f"theirs {layer.index}", padding_height=None) for layer in ours)
    theirs = LayerTable("theirs", ours.image_size, layers, "csv")
    small = zoo_cnn("resnet18", 64)
    labels = cnns_of(_rows(("resnet18", small), ("resnet18", ours), ("theirs/net", theirs), ("none", None)))
    assert labels.tolist() == ["resnet18", "resnet18", "resnet18", "none"]


def test_a_cnn_with_norms_and_one_of_the_same_convolutions_without_are_two():
    labels = cnns_of(_rows(("vgg11", zoo_cnn("vgg11")), ("vgg11_bn", zoo_cnn("vgg11_bn"))))
    assert labels.tolist() == ["vgg11", "vgg11_bn"]
