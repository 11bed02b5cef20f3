"""Proxy CNNs: a name gives a CNN whose one convolution has that name."""

import pytest
from case_tables import each_row

from predictor.cnns.proxies import FOUNDING_PROXIES, proxy_name, proxy_table
from predictor.cnns.zoo import zoo_cnn
from predictor.errors import SchemaError

_OTHERS = ("56_64_256_k1_s1_g1", "28_96_96_k5_s2_g96", "17_128_192_k1x7_s1_g1", "224_3_64_k7_s2_g1", "1_8_8")


def convolutions(table):
    """Names of a CNN's convolutions."""
    return [proxy_name(layer) for layer in table if layer.type == "conv2d"]


@pytest.mark.parametrize("name", [*FOUNDING_PROXIES, *_OTHERS])
def test_a_proxys_only_convolution_has_its_name(name):
    assert convolutions(proxy_table(name)) == [name]


def test_a_proxy_is_convolution_norm_relu_pooling_and_a_linear_layer_to_ten_classes():
    layers = proxy_table("16_128_128").layers
    assert [layer.type for layer in layers] == [
        "conv2d",
        "batch_norm",
        "activation",
        "max_pool",
        "flatten",
        "linear",
    ]
    assert (layers[0].out_height, layers[3].out_height, layers[5].in_channels) == (16, 8, 128 * 8 * 8)
    assert layers[5].out_channels == 10


def test_pooling_is_left_out_where_one_row_is_left():
    assert "max_pool" not in [layer.type for layer in proxy_table("2_8_8_k3_s2_g1")]


def test_the_founding_proxies_hold_every_convolution_of_the_cifar_vgg_and_the_slides_eight():
    slides = {f"{side}_{i}_{o}" for side in (2, 4) for i in (256, 512) for o in (256, 512)}
    assert set(FOUNDING_PROXIES) == set(convolutions(zoo_cnn("vgg_cifar"))) | slides


@each_row
def test_a_name_that_means_no_proxy_is_refused_with_the_reason(name, why):
    with pytest.raises(SchemaError, match=why):
        proxy_table(name)
