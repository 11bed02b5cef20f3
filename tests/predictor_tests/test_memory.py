"""Peak memory: known facts within a factor, and how it grows."""

import pytest

from predictor.layers import IMAGE, Layer, LayerTable
from predictor.memory import CONTEXT_GIB, activation_bytes_per_image, peak_memory, peak_memory_gib
from predictor.modes import Mode
from predictor.zoo import zoo_cnn, zoo_names


def test_resnet50_at_batch_32_needs_about_three_gib_beside_the_context():
    estimate = peak_memory_gib(zoo_cnn("resnet50"), 32) - CONTEXT_GIB
    assert 3.0 / 1.5 < estimate < 3.0 * 1.5


def test_vgg16_at_batch_64_fits_in_11_gib_as_people_train_it():
    assert 5.0 < peak_memory_gib(zoo_cnn("vgg16"), 64) < 11.0


def test_weights_gradients_and_momentum_are_four_bytes_per_parameter_each():
    table = zoo_cnn("alexnet")
    estimate = peak_memory(table, 1, Mode(optimizer="momentum"))
    assert estimate.weights == estimate.gradients == estimate.optimizer_state == 4 * table.parameters


@pytest.mark.parametrize(("optimizer", "states"), [("sgd", 0), ("momentum", 1), ("adam", 2)])
def test_the_optimizer_keeps_its_states(optimizer, states):
    table = zoo_cnn("alexnet")
    assert peak_memory(table, 1, Mode(optimizer=optimizer)).optimizer_state == states * 4 * table.parameters


def test_a_tensor_that_two_layers_keep_counts_once():
    sides = ("in_height", "in_width", "out_height", "out_width")
    shape = {"in_channels": 4, "out_channels": 4, **dict.fromkeys(sides, 8)}
    layers = (
        Layer(0, "a", "conv2d", inputs=(IMAGE,), **shape),
        Layer(1, "b", "activation", "relu", inputs=(0,), **shape),
        Layer(2, "c", "conv2d", inputs=(1,), **shape),
    )
    # the image, and the ReLU's result, which the second convolution keeps as well
    assert activation_bytes_per_image(LayerTable("two", 8, layers)) == 2 * 4 * 4 * 8 * 8


def test_activations_grow_in_proportion_to_the_batch():
    small, large = (peak_memory(zoo_cnn("resnet18"), size) for size in (8, 64))
    assert large.activations == 8 * small.activations


def test_mixed_precision_halves_the_activations_but_not_the_pools_indices():
    full, mixed = (activation_bytes_per_image(zoo_cnn("vgg11"), each) for each in ("fp32", "amp_fp16"))
    assert 0.5 < mixed / full < 0.7


@pytest.mark.parametrize("name", zoo_names())
def test_every_cnn_of_the_zoo_needs_more_memory_at_a_larger_batch(name):
    table = zoo_cnn(name)
    assert CONTEXT_GIB < peak_memory_gib(table, 8) < peak_memory_gib(table, 16)


@pytest.mark.parametrize(
    "name",
    [
        "vgg11_bn",
        "resnet50",
        "squeezenet1_0",
        "densenet121",
        "googlenet",
        "inception_v3",
        "mobilenet_v2",
        "mobilenet_v3_large",
        "shufflenet_v2_x1_0",
        "efficientnet_b0",
        "regnet_y_400mf",
        "convnext_tiny",
    ],
)
def test_kept_activations_are_what_pytorch_saves(name, torch, torchvision_cnn):
    table = zoo_cnn(name)
    saved = bytes_saved_by_pytorch(torch, torchvision_cnn(name), table.image_size)
    assert activation_bytes_per_image(table) == pytest.approx(saved, rel=0.02)


def bytes_saved_by_pytorch(torch, cnn, image_size, batch_size=2):
    """Bytes per image of all storages but weights that autograd saves in a forward pass."""
    for module in cnn.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0  # on a CPU its mask is of floats, on a GPU of bytes
    own = {each.untyped_storage()._cdata for each in (*cnn.parameters(), *cnn.buffers())}
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
