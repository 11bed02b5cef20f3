"""CNNs in Chainer from layer tables alone: parameters, sizes, refusals by name."""

import numpy as np
import pytest

from predictor.cnns.layer_table import Layer, LayerTable
from predictor.cnns.zoo import zoo_cnn
from proxy_cnns.backends.chainer.training import network

torch = pytest.importorskip("torch")

_AT_32 = "lenet5 resnet18_cifar mobilenet_v2 googlenet efficientnet_b0 convnext_tiny shufflenet_v2_x0_5"
CNNS = dict.fromkeys(_AT_32.split(), 32) | {"mnist_cnn": 28, "squeezenet1_1": 64}
"""One CNN for each way in which layers are joined."""


@pytest.mark.parametrize("name", CNNS)
def test_a_zoo_cnn_has_its_parameters_and_trains(chainer, name):
    table = zoo_cnn(name, CNNS[name])
    chain = network(table)
    first, last = table.layers[0], table.layers[-1]
    images = np.random.default_rng(0).random((2, first.in_channels or 3, CNNS[name], CNNS[name]), np.float32)
    chain.cleargrads()
    logits = chain(images)
    chainer.functions.softmax_cross_entropy(logits, np.zeros(2, np.int32)).backward()
    assert logits.shape == (2, last.out_channels)
    assert sum(param.size for param in chain.params()) == table.parameters
    assert all(param.grad is not None and np.isfinite(param.grad).all() for param in chain.params())


@pytest.mark.parametrize(("name", "size"), [("resnet18_cifar", 32), ("shufflenet_v2_x0_5", 64)])
def test_chainer_and_pytorch_agree_on_a_cnn_of_the_same_parameters(chainer, name, size):
    from proxy_cnns.backends.torch.layers import network as torch_network

    table = zoo_cnn(name, size)
    chain, module = network(table), torch_network(table, "cpu")
    ours = sorted(chain.children(), key=lambda link: int(link.name.removeprefix("layer")))
    theirs = [module_layer for module_layer in module.children() if [*module_layer.parameters()]]
    with torch.no_grad():
        for link, module_layer in zip(ours, theirs, strict=True):
            weight, bias = ("W", "b") if hasattr(link, "W") else ("gamma", "beta")
            names = {"weight": weight, "bias": bias}
            for own, parameter in module_layer.named_parameters():
                parameter.copy_(torch.tensor(getattr(link, names[own]).array))
            if hasattr(module_layer, "eps"):
                module_layer.eps = float(link.eps)
    images = np.random.default_rng(0).random((8, 3, size, size), np.float32)
    expected = module(torch.tensor(images)).detach().numpy()
    np.testing.assert_allclose(chain(images).array, expected, rtol=1e-3, atol=1e-3)


def test_a_static_graph_gives_the_same_gradients(chainer):
    table = zoo_cnn("lenet5", 32)
    eager, static = network(table), network(table, static=True)
    static.copyparams(eager)
    images = np.random.default_rng(0).random((4, 1, 32, 32), np.float32)
    for _ in range(3):
        for chain in (eager, static):
            chain.cleargrads()
            chainer.functions.softmax_cross_entropy(chain(images), np.zeros(4, np.int32)).backward()
    for eager_parameter, static_parameter in zip(eager.params(), static.params(), strict=True):
        np.testing.assert_array_equal(eager_parameter.grad, static_parameter.grad)


def test_a_single_pixel_is_pooled_to_a_larger_map(chainer):
    layer = Layer(0, "it", "avg_pool", None, (-1,), 3, 1, 1, 3, 6, 6, 1, 1, 0, 0, 0, 0, 1, 1)
    pixel = np.array([[[[1.0]], [[2.0]], [[3.0]]]], np.float32)
    pooled = network(LayerTable("single", 8, (layer,)))(pixel).array
    assert (pooled == np.broadcast_to(pixel, (1, 3, 6, 6))).all()
