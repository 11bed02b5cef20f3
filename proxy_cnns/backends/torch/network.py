"""A CNN built from only its layer table, as a PyTorch module: the target CNN or proxy that is measured."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from predictor.cnns.layer_table import Layer, LayerTable
from proxy_cnns.backends.graph import VECTOR, Functions, Graph
from proxy_cnns.backends.torch.layers import layer_module


def network(table: LayerTable, device: str) -> Any:
    """Build the CNN of a layer table.

    `device`: ``cpu``, ``cuda:0``, ``meta``, ... It is in training mode. Its input is images (or the first layer's
    input), its output the last layer's output. Its parameters are in the table's order. SchemaError if the table holds
    a layer that cannot be run, or its layers do not fit together.
    """
    import torch

    def layer_function(layer: Layer, form: str, in_place: bool) -> Any:
        return layer_module(layer, device, in_place, vector=form == VECTOR)

    functions = Functions(
        layer_function,
        concat=lambda *maps: torch.cat(maps, 1),
        split=lambda x, sizes: x.split(sizes, 1),
        flatten=lambda x: x.flatten(1),
        to_map=lambda x: x.permute(0, 3, 1, 2),
        to_map_last=lambda x: x.permute(0, 2, 3, 1),
        shuffle=shuffle_channels,
    )
    graph = Graph(table, functions)
    module = torch.nn.Module()
    for step in graph.steps:
        if isinstance(step.function, torch.nn.Module):
            module.add_module(f"layer{step.layer}", step.function)
    module.graph = graph
    module.forward = partial(graph.run)
    return module


def exchange_layers(model: Any, exchange: Callable[[Any], Any]) -> None:
    """Put what `exchange` makes of each layer's module in its place, in a CNN of `network`."""
    import torch

    steps = model.graph.steps
    for position, step in enumerate(steps):
        if isinstance(step.function, torch.nn.Module):
            steps[position] = replace(step, function=exchange(step.function))
            model.add_module(f"layer{step.layer}", steps[position].function)


def shuffle_channels(x: Any, groups: int = 2) -> Any:
    """Channels of `groups` equal parts in turn (Zhang et al., arXiv:1707.01083): a copy, forward and backward."""
    n, channels, height, width = x.shape
    x = x.view(n, groups, channels // groups, height, width)
    return x.transpose(1, 2).contiguous().view(n, channels, height, width)
