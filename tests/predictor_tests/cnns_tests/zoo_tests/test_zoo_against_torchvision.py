"""Operator by operator, the zoo's layer tables are what torchvision's CNNs run when they train."""

from collections import Counter
from collections.abc import Hashable
from dataclasses import fields

import pytest
from peers import product_flops

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable, layer_complaint
from predictor.cnns.torch_module import from_torch
from predictor.cnns.torch_step import record
from predictor.cnns.zoo import ZOO, zoo_cnn, zoo_names
from predictor.errors import OutOfRangeError

OURS_ALONE = {
    *("airbench94", "dcgan_discriminator", "dcgan_generator", "densenet_bc_cifar", "inception_v4", "lenet5"),
    *("mnist_cnn", "regnet_x_12gf", "regnet_x_200mf", "regnet_x_4gf", "regnet_x_600mf", "regnet_x_6_4gf"),
    *("regnet_y_12gf", "regnet_y_200mf", "regnet_y_4gf", "regnet_y_600mf", "regnet_y_6_4gf"),
    *("resnet110_cifar", "resnet164_cifar", "resnet18_cifar", "resnet200", "resnet20_cifar"),
    *("resnet56_cifar", "resnet9", "shufflenet_v2_cifar", "vgg_cifar"),
}
TORCHVISION_NAMES = sorted(set(ZOO) - OURS_ALONE)
TRACED = [
    *("alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "efficientnet_v2_s", "googlenet"),
    *("inception_v3", "mnasnet0_5", "mobilenet_v2", "mobilenet_v3_large", "mobilenet_v3_small"),
    *("regnet_x_400mf", "regnet_y_400mf", "resnet18", "resnet50", "resnext50_32x4d", "shufflenet_v2_x0_5"),
    *("squeezenet1_0", "squeezenet1_1", "vgg11", "vgg11_bn"),
]
"""One CNN of each description in the zoo; the others have other numbers and widths of the same blocks."""

LIMITED = [name for name in TRACED if ZOO[name].minimum_image_size > 1]
ODD_SIZE = 203  # rounds at every stride
COMPARED = [field.name for field in fields(Layer) if field.name not in ("index", "name", "inputs")]


def row_contents(layer: Layer) -> tuple[Hashable, ...]:
    return tuple(getattr(layer, name) for name in COMPARED)


def histories(table: LayerTable) -> Counter[int]:
    """Each row with everything that it was computed from, whatever the order in which branches run."""
    row_of_tensor: dict[int, int] = {IMAGE: 0}
    for layer in table:
        read = sorted(row_of_tensor[i] for i in layer.inputs or ())
        row_of_tensor[layer.index] = hash((row_contents(layer), *read))
    return Counter(row_of_tensor.values())


def differences(ours: LayerTable, theirs: LayerTable) -> list[tuple[Hashable, ...]]:
    counts = Counter(map(row_contents, ours))
    counts.subtract(map(row_contents, theirs))
    return [(count, *row) for row, count in counts.items() if count]


def weights_of(table: LayerTable) -> Counter[tuple[int, ...]]:
    """Shapes of the weights of convolutions and dense layers."""
    windows = {layer: (layer.kernel_height, layer.kernel_width) for layer in table if layer.type == "conv2d"}
    return Counter(
        (layer.out_channels, layer.in_channels // (layer.groups or 1), *windows.get(layer, ()))
        for layer in table
        if layer.type in ("conv2d", "linear")
    )


def test_every_table_has_torchvisions_weights(torchvision_cnn):
    differing = []
    for name in TORCHVISION_NAMES:
        parameters = list(torchvision_cnn(name).parameters())
        weights = Counter(tuple(parameter.shape) for parameter in parameters if parameter.ndim in (2, 4))
        if weights != weights_of(zoo_cnn(name)) or zoo_cnn(name).parameters != sum(
            parameter.numel() for parameter in parameters
        ):
            differing.append(name)
    assert differing == []


@pytest.mark.parametrize("name", TRACED)
def test_a_table_has_the_operators_that_torchvision_runs(name, torchvision_cnn):
    ours, theirs = zoo_cnn(name, ODD_SIZE), from_torch(torchvision_cnn(name), ODD_SIZE)
    assert differences(ours, theirs) == []
    assert histories(ours) == histories(theirs), "the same rows, but connected otherwise"
    assert [complaint for row in theirs if (complaint := layer_complaint(row))] == []


@pytest.mark.parametrize("name", LIMITED)
def test_the_smallest_image_runs_in_torchvision_as_the_table_says(name, torchvision_cnn):
    size = ZOO[name].minimum_image_size
    assert differences(zoo_cnn(name, size), from_torch(torchvision_cnn(name), size)) == []


@pytest.mark.parametrize("name", LIMITED)
def test_one_pixel_less_than_the_smallest_image_fails_in_torchvision(name, torchvision_cnn):
    with pytest.raises(OutOfRangeError):
        from_torch(torchvision_cnn(name), ZOO[name].minimum_image_size - 1)


def test_every_name_of_the_zoo_is_compared_with_torchvision_or_ours_alone(torchvision_models):
    compared = {name for name in zoo_names() if hasattr(torchvision_models, name)}
    assert compared == set(TORCHVISION_NAMES)


def dispatched(torch, net, *shape):
    """Operations of the dispatched products of a forward pass of an image, without any table of ours."""
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry

    class Counter(TorchDispatchMode):
        flops = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **kwargs or {})
            formula = flop_registry.get(func.overloadpacket)
            self.flops += formula(*args, **kwargs or {}, out_val=result) if formula else 0
            return result

    with Counter() as counter:
        net.to("meta")(torch.empty(shape, device="meta"))
    return counter.flops / shape[0]


def counted(table):
    return product_flops(table, ["forward"])


def test_a_cnn_of_the_zoo_has_the_operations_that_torchvisions_dispatches(torch, torchvision_cnn):
    names = ["convnext_tiny", "googlenet", "mobilenet_v3_small", "regnet_y_400mf", "shufflenet_v2_x0_5"]
    ours = {name: counted(zoo_cnn(name, 224)) for name in names}
    assert ours == {name: dispatched(torch, torchvision_cnn(name).train(), 2, 3, 224, 224) for name in names}


def test_forms_that_other_counters_miss_have_their_operations(torch):
    from peers_forms import CHANNELS, FORMS, SIDE

    shape = 2, CHANNELS, SIDE, SIDE
    for form, (make, multiply_adds) in FORMS.items():
        ours = counted(record(make(), torch.zeros(shape)))
        assert ours == dispatched(torch, make(), *shape) == 2 * multiply_adds, form


def shallow_networks(models):
    """Networks outside the zoo, by name, at the least depth that has each form of their blocks."""
    swins, heads, layers = models.swin_transformer, models.segmentation, models._utils.IntermediateLayerGetter
    swin = {"patch_size": [4, 4], "embed_dim": 24, "depths": [2, 1], "num_heads": [3, 6]}
    v2 = {"block": swins.SwinTransformerBlockV2, "downsample_layer": swins.PatchMergingV2}
    trunk = {"block": models.resnet.Bottleneck, "layers": [1] * 4}
    dilated = lambda: models.ResNet(**trunk, replace_stride_with_dilation=[False, True, True])  # noqa: E731
    return {
        "vit": lambda: models.VisionTransformer(
            image_size=224, patch_size=16, num_layers=2, num_heads=3, hidden_dim=48, mlp_dim=96
        ),
        "swin": lambda: models.SwinTransformer(**swin, window_size=[7, 7]),
        "swin_v2": lambda: models.SwinTransformer(**swin, window_size=[8, 8], **v2),
        "deeplabv3": lambda: heads.DeepLabV3(
            layers(dilated(), {"layer4": "out"}), heads.deeplabv3.DeepLabHead(2048, 21)
        ),
        "lraspp": lambda: heads.LRASPP(layers(dilated(), {"layer1": "low", "layer4": "high"}), 256, 2048, 2),
    }


ON_PARAMETERS = {"swin_v2": 0.99}
"""Networks that compute products of parameters alone, once for all images: a row beside the layers has these."""


@pytest.mark.parametrize("name", ["vit", "swin", "swin_v2", "deeplabv3", "lraspp"])
def test_a_recorded_network_has_the_operations_that_it_dispatches(torch, name, torchvision_models):
    make, shape = (lambda: shallow_networks(torchvision_models)[name]().train()), (2, 3, 224, 224)
    share = counted(record(make(), torch.zeros(shape))) / dispatched(torch, make(), *shape)
    assert share == pytest.approx(1.0) if name not in ON_PARAMETERS else ON_PARAMETERS[name] < share < 1.0
