"""Any CNN of a layer table as a PyTorch module, without its source code: the layers run one after another.

Called by `torch_backend`; calls `torch_layers` for each layer and `predictor.operators` for what runs in place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from predictor.layers import IMAGE, LayerTable
from predictor.operators import is_channel_shuffle, layer_inputs, layer_operators
from proxy_cnns.backends.torch_layers import layer_callable

__all__ = ["network_of"]


@dataclass(frozen=True, slots=True)
class _Step:
    """One layer: what it reads (position, and which half of a split tensor), what runs, what is read no more."""

    sources: tuple[tuple[int, int | None], ...]
    run: Any
    finished: tuple[int, ...]


def network_of(table: LayerTable) -> Any:
    """Make a torch.nn.Module of a layer table, on PyTorch's default device, with its default initial weights.

    Raises
    ------
    SchemaError
        If PyTorch cannot run a layer; the message names it.

    Notes
    -----
    A layer that reads fewer channels than its input has reads the second half of it (ShuffleNet's unit); the
    concat behind it takes the first half.
    """
    from torch import nn

    steps = _steps(table)

    class Network(nn.Module):
        """Runs the steps; keeps a tensor no longer than it is read."""

        def __init__(self) -> None:
            super().__init__()
            self.learned = nn.ModuleList([step.run for step in steps if isinstance(step.run, nn.Module)])

        def forward(self, images: Any) -> Any:
            values: dict[int, Any] = {IMAGE: images}
            for position, step in enumerate(steps):
                values[position] = step.run(*(_read(values, *source) for source in step.sources))
                for done in step.finished:
                    del values[done]
            return values[len(steps) - 1]

    return Network()


def _read(values: dict[int, Any], position: int, half: int | None) -> Any:
    if half is None:
        return values[position]
    if not isinstance(values[position], tuple):
        values[position] = values[position].chunk(2, dim=1)
    return values[position][half]


def _steps(table: LayerTable) -> list[_Step]:
    operators, inputs = layer_operators(table), layer_inputs(table)
    split = _split_tensors(table, inputs)
    last = {source: position for position, sources in enumerate(inputs) for source in sources}
    channels_last = _channels_last(table, inputs)
    steps = []
    for position, layer in enumerate(table.layers):
        half = 0 if layer.type == "concat" else 1
        sources = tuple((source, half if source in split else None) for source in inputs[position])
        in_place = position in operators and operators[position].in_place
        run = _layout_change(channels_last[position]) if _changes_layout(table, position) else None
        operator = operators.get(position)
        shape = operator if operator is not None and layer.type == "permute" else layer
        run = run or layer_callable(shape, in_place=in_place)
        steps.append(_Step(sources, run, tuple(s for s in set(inputs[position]) if last[s] == position)))
    return steps


def _split_tensors(table: LayerTable, inputs: list[tuple[int, ...]]) -> set[int]:
    return {
        source
        for layer, sources in zip(table.layers, inputs, strict=True)
        for source in sources
        if source != IMAGE
        and layer.type == "conv2d"
        and 2 * (layer.in_channels or 0) == table.layers[source].out_channels
    }


def _changes_layout(table: LayerTable, position: int) -> bool:
    return table.layers[position].type == "permute" and not is_channel_shuffle(table, position)


def _channels_last(table: LayerTable, inputs: list[tuple[int, ...]]) -> list[bool]:
    """Whether each layer's output has its channels in the last dimension: layer norms and dense layers want that."""
    found: list[bool] = []
    for position, sources in enumerate(inputs):
        before = any(found[source] for source in sources if source != IMAGE)
        found.append(not before if _changes_layout(table, position) else before)
    return found


def _layout_change(to_last: bool) -> Any:
    """A view; whoever reads it copies where it must, as in ConvNeXt's own code."""
    order = (0, 2, 3, 1) if to_last else (0, 3, 1, 2)
    return lambda x: x.permute(order)
