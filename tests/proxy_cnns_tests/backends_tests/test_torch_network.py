"""A CNN built in PyTorch from its layer table is the CNN that torchvision writes by hand."""

from types import ModuleType
from typing import Any

import pytest

from predictor.cnns.layer_table import LayerTable
from predictor.cnns.zoo import ZOO, zoo_cnn, zoo_names
from proxy_cnns.backends.graph import image_shape
from proxy_cnns.backends.torch.layers import network

_COMPARED = (
    "alexnet", "convnext_tiny", "densenet121", "efficientnet_b0", "googlenet", "inception_v3", "mobilenet_v2",
    "mobilenet_v3_small", "regnet_y_400mf", "resnet18", "shufflenet_v2_x1_0", "squeezenet1_0",
)  # fmt: skip


def small_table(name: str) -> LayerTable:
    return zoo_cnn(name, max(64, ZOO[name].minimum_image_size))


def images(torch: ModuleType, table: LayerTable, device: str = "cpu") -> Any:
    return torch.randn(2, *image_shape(table), device=device)


def layers_in_order(torch: ModuleType, module: Any, image: Any) -> list[Any]:
    """Submodules with parameters of their own, in the order in which they run."""
    ran: list[Any] = []
    hooks = [
        submodule.register_forward_hook(lambda ran_module, *_: ran.append(ran_module))
        for submodule in module.modules()
        if list(submodule.parameters(recurse=False))
    ]
    with torch.no_grad():
        module(image)
    for hook in hooks:
        hook.remove()
    return ran


def in_torchvisions_order(table: LayerTable, modules: list[Any]) -> list[Any]:
    """Modules of a table's learning layers; Inception's branches, which the zoo interleaves, one by one."""
    names = [layer.name for layer in table if layer.parameters]
    blocks = [name.split(".")[0] for name in names]
    branches = [_BRANCHES.get(name.split(".")[1], 0) if "." in name else 0 for name in names]
    keys = [
        (blocks.index(block), branch if block.startswith("mixed") else 0, i)
        for i, (block, branch) in enumerate(zip(blocks, branches, strict=True))
    ]
    return [modules[i] for *_, i in sorted(keys)] if table.cnn == "inception_v3" else modules


_BRANCHES = {"3x3": 1, "5x5": 1, "7x7": 1, "3x3dbl": 2, "7x7dbl": 2, "7x7x3": 2, "pool_conv": 3}


def give_weights(torch: ModuleType, table: LayerTable, source: Any, target: Any, image: Any) -> None:
    """Copy parameters layer by layer as they run; the small constants of norms go the other way."""
    mine = in_torchvisions_order(table, layers_in_order(torch, source, image))
    for source_module, target_module in zip(mine, layers_in_order(torch, target, image), strict=True):
        for own_parameter, target_parameter in zip(
            source_module.parameters(recurse=False), target_module.parameters(recurse=False), strict=True
        ):
            target_parameter.data.copy_(own_parameter.data)
        if hasattr(target_module, "reset_running_stats"):
            target_module.reset_running_stats()
        if hasattr(target_module, "eps"):
            source_module.eps = target_module.eps


@pytest.mark.parametrize(
    ("name", "trains"),
    [*((name, False) for name in _COMPARED), ("resnet18", True), ("shufflenet_v2_x0_5", True)],
)
def test_it_computes_what_torchvision_computes_and_its_gradients(name, trains, torch, torchvision_cnn):
    table = small_table(name)
    mine, torchvisions = network(table, "cpu").train(trains), torchvision_cnn(name).to_empty(device="cpu")
    image = images(torch, table)
    give_weights(torch, table, mine, torchvisions.train(trains), image)
    if not trains:
        with torch.no_grad():
            torch.testing.assert_close(mine(image), torchvisions(image), rtol=1e-3, atol=1e-4)
        return
    mine(image).square().sum().backward()
    torchvisions(image).square().sum().backward()
    first, torchvision_gradient = next(mine.parameters()).grad, next(torchvisions.parameters()).grad
    assert float((first - torchvision_gradient).norm() / torchvision_gradient.norm()) < 1e-2


def test_cnns_of_every_set_of_layer_types_train_at_their_smallest_image(torch):
    """Of CNNs with the same types of layers, the one with the fewest layers."""
    smallest: dict[frozenset[Any], LayerTable] = {}
    for table in sorted((zoo_cnn(name, ZOO[name].minimum_image_size) for name in zoo_names()), key=len):
        smallest.setdefault(frozenset((layer.type, layer.kind) for layer in table), table)
    assert len(smallest) >= 22
    assert [table.cnn for table in smallest.values() if not trains(torch, table)] == []


def trains(torch: ModuleType, table: LayerTable) -> bool:
    """Whether output and gradients have the sizes that the table says."""
    module, last = network(table, "meta"), table.layers[-1]
    output = module(images(torch, table, "meta"))
    output.sum().backward()
    size = 2 * (last.out_channels or 0) * (last.out_height or 0) * (last.out_width or 0)
    gradients = sum(parameter.grad.numel() for parameter in module.parameters())
    return bool(output.numel() == size and gradients == table.parameters)


def test_activations_run_in_place_where_the_operators_say_so(torch):
    modules = network(zoo_cnn("resnet18"), "meta").modules()
    assert [module.inplace for module in modules if hasattr(module, "inplace")] == [True] * 17


def test_convnext_runs_channels_last_behind_its_stem_whatever_the_mode(torch):
    def is_channels_last(x: Any) -> bool:
        return bool(x.is_contiguous(memory_format=torch.channels_last) and not x.is_contiguous())

    table = zoo_cnn("convnext_tiny", 64)
    module, are_channels_last = network(table, "cpu"), []
    for submodule in module.modules():
        if isinstance(submodule, torch.nn.Conv2d):
            submodule.register_forward_pre_hook(
                lambda _, inputs: are_channels_last.append(is_channels_last(inputs[0]))
            )

    module(images(torch, table))
    assert are_channels_last == [False] + [True] * (len(are_channels_last) - 1)


def test_nothing_is_dropped_when_evaluating(torch):
    table = zoo_cnn("convnext_tiny", 32)
    module, image = network(table, "cpu").eval(), images(torch, table)
    with torch.no_grad():
        assert torch.equal(module(image), module(image))
