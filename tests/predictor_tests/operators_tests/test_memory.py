"""Peak memory: known facts within a factor, and how it grows."""

from dataclasses import replace

import pytest
from own_module import own_module

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.cnns.torch_module import from_torch
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.operators import memory

LIBRARIES = 64 * 2**20  # cuBLAS's workspace
SIDES = ("in_height", "in_width", "out_height", "out_width")
SHAPE = {"in_channels": 4, "out_channels": 4, **dict.fromkeys(SIDES, 8)}
MAP = 4 * 8 * 8  # numbers of one


def kept_bytes_per_image(table, precision="fp32"):
    """What the whole forward pass keeps for the backward pass."""
    return float(memory._kept(table, precision)[-1])


@pytest.mark.parametrize(
    ("name", "size", "low", "high"), [("resnet50", 32, 2.0, 4.5), ("vgg16", 64, 4.5, 10.5)]
)
def test_cnns_fit_beside_the_context_as_people_train_them(name, size, low, high):
    assert low < memory.peak_memory_gib(zoo_cnn(name), size) - memory.CONTEXT_GIB < high


def test_weights_gradients_and_momentum_are_four_bytes_per_parameter_each():
    table = zoo_cnn("alexnet")
    estimate = memory.peak_memory(table, 1, Mode(optimizer="momentum"))
    assert estimate.weights == estimate.optimizer_state == 4 * table.parameters
    assert 0.9 * estimate.weights < estimate.gradients <= estimate.weights  # the first layer follows the peak


def test_at_a_large_batch_the_peak_comes_before_the_weights_have_gradients():
    table = zoo_cnn("vgg16")
    estimate = memory.peak_memory(table, 256)
    assert 0 < estimate.gradients < 4 * table.parameters
    assert estimate.activations > 0.9 * 256 * kept_bytes_per_image(table)


def test_the_optimizer_keeps_its_states():
    table = zoo_cnn("alexnet")
    states = {"sgd": 0, "momentum": 1, "adam": 2, "adamw": 2, "rmsprop": 1, "adagrad": 1, "adadelta": 2}
    kept = {name: memory.peak_memory(table, 1, Mode(optimizer=name)).optimizer_state for name in states}
    assert kept == {name: 4 * n * table.parameters for name, n in states.items()}


def three_layers():
    """Convolution, ReLU, convolution: maps of 4 x 8 x 8 numbers, 4-byte ones, and 144 weights each."""
    layers = (
        Layer(0, "a", "conv2d", inputs=(IMAGE,), parameters=144, **SHAPE),
        Layer(1, "b", "activation", "relu", inputs=(0,), **SHAPE),
        Layer(2, "c", "conv2d", inputs=(1,), parameters=144, **SHAPE),
    )
    return LayerTable("three", 8, layers)


def test_the_peak_of_three_layers_is_where_it_was_worked_out_by_hand():
    map_bytes, weights_bytes = 4 * MAP, 4 * 144
    estimate = memory.peak_memory(three_layers(), 100, Mode(optimizer="sgd"))
    # the image, and the ReLU's result, which the second convolution keeps as well
    assert kept_bytes_per_image(three_layers()) == 2 * map_bytes
    # at the last convolution: image and ReLU's result kept, gradients of its output and input, workspace of two maps
    assert estimate.activations == 100 * 2 * map_bytes
    assert estimate.activation_gradients == 100 * 2 * map_bytes
    assert estimate.workspace - LIBRARIES == 100 * 2 * map_bytes
    assert (estimate.weights, estimate.gradients) == (2 * weights_bytes, weights_bytes)


def test_a_gradient_lives_until_the_layer_that_wrote_the_tensor():
    chain = [
        Layer(i, str(i), "activation", "relu", inputs=(i - 1 if i else IMAGE,), **SHAPE) for i in range(5)
    ]
    skip = replace(chain[-1], type="add", kind=None, inputs=(3, 0))
    plain, skipping = (LayerTable("x", 8, (*chain[:4], last)) for last in (chain[-1], skip))
    longer, usual = (memory.peak_memory(table, 1).activation_gradients for table in (skipping, plain))
    assert longer == usual + 4 * MAP


def test_many_batch_sizes_give_what_each_gives():
    table, mode = zoo_cnn("resnet18"), Mode(precision="amp_bf16")
    sizes = [1, 7, 64, 512]
    peaks = [memory.peak_memory_gib(table, n, mode) for n in sizes]
    assert memory.peak_memories_gib(table, sizes, mode) == pytest.approx(peaks)


def test_mixed_precision_halves_the_activations_but_not_the_pools_indices():
    full, mixed = (kept_bytes_per_image(zoo_cnn("vgg11"), precision) for precision in ("fp32", "amp_fp16"))
    assert 0.5 < mixed / full < 0.7


def test_every_cnn_of_the_zoo_needs_more_memory_at_a_larger_batch():
    gib = {name: memory.peak_memories_gib(zoo_cnn(name), [8, 16]) for name in zoo_names()}
    assert {name: sizes for name, sizes in gib.items() if not memory.CONTEXT_GIB < sizes[0] < sizes[1]} == {}


COMPARED = (
    "vgg11_bn", "resnet50", "squeezenet1_0", "densenet121", "googlenet", "inception_v3", "mobilenet_v2",
    "mobilenet_v3_large", "shufflenet_v2_x1_0", "efficientnet_b0", "regnet_y_400mf", "convnext_tiny",
)  # fmt: skip


@pytest.mark.parametrize("name", COMPARED)
def test_kept_activations_are_what_pytorch_saves(name, torch, torchvision_cnn):
    table = zoo_cnn(name)
    saved = bytes_saved_by_pytorch(torch, torchvision_cnn(name), table.image_size)
    assert kept_bytes_per_image(table) == pytest.approx(saved, rel=0.02)


def scaled_residual_block(torch):
    nn = torch.nn

    def block():
        first, second = (nn.Conv2d(16, 16, 3, padding=1) for _ in range(2))
        body = nn.Sequential(first, nn.ReLU(inplace=True), second)
        return own_module(torch, lambda self, x: x + 0.1 * self.body(x), body=body)

    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), block(), block(), nn.Conv2d(16, 3, 3, padding=1))


def frozen_layers_behind_a_trained_one(torch):
    nn = torch.nn
    frozen = (
        nn.Conv2d(16, 16, 3, padding=1), nn.GroupNorm(4, 16), nn.Conv2d(16, 8, 1), nn.Flatten(),
        nn.Linear(8 * 32 * 32, 32), nn.GELU(), nn.Linear(32, 10),
    )  # fmt: skip
    return nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *(layer.requires_grad_(False) for layer in frozen))


def map_times_what_has_no_gradient(torch):
    nn = torch.nn
    gate, conv = nn.Conv2d(3, 16, 1).requires_grad_(False), nn.Conv2d(3, 16, 3, padding=1)
    masked = lambda self, x: self.conv(x) * self.gate(x).sigmoid()  # noqa: E731 - the gate alone is kept
    return own_module(torch, masked, gate=gate, conv=conv)


def pads_and_norms(torch):
    nn, functional = torch.nn, torch.nn.functional

    def forward(self, x):
        maps = functional.pad(functional.pad(self.first(x), (1,) * 4, mode="reflect"), (1,) * 4)
        maps = functional.normalize(maps.exp() + maps.amax(1, keepdim=True))
        return self.last(maps.sum(1, keepdim=True) + maps.sqrt().flip(2))

    first, last = (nn.Conv2d(n, 16, 3, padding=1) for n in (3, 16))
    return own_module(torch, forward, first=first, last=last)


@pytest.mark.parametrize(
    "of",
    [
        scaled_residual_block,
        frozen_layers_behind_a_trained_one,
        map_times_what_has_no_gradient,
        pads_and_norms,
    ],
)
def test_kept_of_parts_that_are_scaled_or_frozen_is_what_pytorch_saves(of, torch):
    module = of(torch).to("meta")
    saved = bytes_saved_by_pytorch(torch, module, 32)
    assert kept_bytes_per_image(from_torch(module, 32)) == pytest.approx(saved, rel=0.01)


@pytest.mark.parametrize(
    ("norm", "activation", "overwrites", "kept"),
    [
        # the loop's image (4 bytes), a copy (2), the norm's input (4), ReLU's result (4) and the copy of it (2)
        ("group_norm", "relu", None, 4 + 2 + 4 + 4 + 2),
        # the loop's image, a copy of it, and the inputs of the norm, of the activation and of the convolution behind it
        ("instance_norm", "leaky_relu", 0, 4 + 4 * 2),
    ],
)
def test_under_mixed_precision_a_group_norm_keeps_32_bits_and_an_instance_norm_16(
    norm, activation, overwrites, kept
):
    layers = (
        Layer(0, "a", "conv2d", inputs=(IMAGE,), **SHAPE),
        Layer(1, "b", norm, inputs=(0,), parameters=8, **SHAPE),
        Layer(2, "c", "activation", activation, inputs=(1,), overwrites=overwrites, **SHAPE),
        Layer(3, "d", "conv2d", inputs=(2,), **SHAPE),
    )
    assert kept_bytes_per_image(LayerTable("normed", 8, layers), "amp_bf16") == kept * MAP


def bytes_saved_by_pytorch(torch, cnn, image_size, batch_size=2):
    """Bytes per image of all storages but weights that autograd saves in a forward pass."""
    for module in cnn.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # on a CPU its mask is of floats, on a GPU of bytes
    own = {tensor.untyped_storage()._cdata for tensor in (*cnn.parameters(), *cnn.buffers())}
    saved = {}

    def keep(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            saved[storage._cdata] = (storage.nbytes(), tensor)  # alive, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = cnn.train()(torch.empty(batch_size, 3, image_size, image_size, device="meta"))
    assert result is not None
    return sum(size for size, _ in saved.values()) / batch_size
