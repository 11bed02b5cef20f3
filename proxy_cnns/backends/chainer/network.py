"""A CNN built from its layer table alone, as a Chainer chain: the target CNN or proxy that is measured.

Layers that read a part of what another wrote (ShuffleNet's split) are refused by name, never run in another
way.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.errors import SchemaError
from predictor.operators.operators import is_channel_shuffle, layer_inputs
from proxy_cnns.backends.chainer.layers import layer_function, shuffle_channels
from proxy_cnns.configuration import MEASURE_WHOLE

__all__ = ["network"]

_MAP, _MAP_LAST, _VECTOR = "map", "map with channels last", "vector"  # (N, C, H, W), (N, H, W, C), (N, C)
_ANY_FORM = ("activation", "dropout", "stochastic_depth")


def network(table: LayerTable, *, static: bool = False) -> Any:
    """Build the CNN of a layer table.

    Parameters
    ----------
    table : LayerTable
    static : bool
        Whether Chainer traces it once and repeats the schedule (`chainer.static_graph`; dropout then keeps the mask
        of its first iteration).

    Returns
    -------
    chainer.Chain
        On the CPU; takes images and gives what the last layer writes. Its links are named as the table's layers are
        numbered, ``layer0`` being the first.

    Raises
    ------
    SchemaError
        If the table holds a layer that Chainer cannot run, or does not fit together.
    """
    import chainer

    steps = _steps(table)

    class Network(chainer.Chain):  # type: ignore[misc]
        def forward(self, image: Any) -> Any:
            return _run(steps, image)

    class StaticNetwork(chainer.Chain):  # type: ignore[misc]
        @chainer.static_graph  # type: ignore[untyped-decorator]
        def forward(self, image: Any) -> Any:
            return _run(steps, image)

    chain = StaticNetwork() if static else Network()
    for step in steps:
        if isinstance(step.function, chainer.Link):
            chain.add_link(f"layer{step.writes}", step.function)
    return chain


@dataclass(frozen=True, slots=True)
class _Step:
    """One call: the positions of the values that it reads and writes, and those that nobody reads after it."""

    function: Callable[..., Any]
    reads: tuple[int, ...]
    writes: int
    frees: tuple[int, ...]


def _run(steps: Sequence[_Step], image: Any) -> Any:
    values: dict[int, Any] = {IMAGE: image}
    result = image
    for step in steps:
        result = step.function(*[values[position] for position in step.reads])
        values[step.writes] = result
        for position in step.frees:
            del values[position]
    return result


def _steps(table: LayerTable) -> list[_Step]:
    inputs = layer_inputs(table)
    last = {source: position for position, sources in enumerate(inputs) for source in sources}
    forms, steps = {IMAGE: _MAP}, []
    for position, sources in enumerate(inputs):
        _check_channels(table, position, sources)
        function, forms[position] = _function(table, position, forms[sources[0]])
        frees = tuple(source for source in dict.fromkeys(sources) if last[source] == position)
        steps.append(_Step(function, sources, position, frees))
    return steps


def _function(table: LayerTable, position: int, form: str) -> tuple[Callable[..., Any], str]:
    """What runs a layer, and the form of what it writes; `form` is that of its first input."""
    layer, several = table.layers[position], len(layer_inputs(table)[position]) > 1
    if layer.type == "permute":
        return _permute(table, position, form)
    if layer.type == "flatten":
        return _flatten, _VECTOR
    if several or layer.type == "concat":
        return _combination(layer), form
    if layer.type in _ANY_FORM or (form, layer.type) == (_VECTOR, "batch_norm"):
        return layer_function(layer), form
    if layer.type == "linear":
        last = form == _MAP_LAST
        return layer_function(layer, positionwise=last), _MAP_LAST if last else _VECTOR
    wanted = _MAP_LAST if layer.type == "layer_norm" else _MAP
    if form != wanted:
        raise SchemaError(
            f"layer {layer.name!r} of type {layer.type!r} reads a {form} where Chainer needs a {wanted}. "
            f"{MEASURE_WHOLE}"
        )
    return layer_function(layer), form


def _permute(table: LayerTable, position: int, form: str) -> tuple[Callable[..., Any], str]:
    import chainer.functions as F  # noqa: N812

    layer = table.layers[position]
    if form == _MAP_LAST:
        return partial(F.transpose, axes=(0, 3, 1, 2)), _MAP
    if not is_channel_shuffle(table, position):
        return partial(F.transpose, axes=(0, 2, 3, 1)), _MAP_LAST
    if (layer.in_channels or 1) % 2:
        raise SchemaError(f"layer {layer.name!r} shuffles {layer.in_channels} channels: no two equal halves.")
    return shuffle_channels, _MAP


def _combination(layer: Layer) -> Callable[..., Any]:
    if layer.type not in _COMBINATIONS:
        raise SchemaError(
            f"layer {layer.name!r} of type {layer.type!r} has several inputs, which cannot be run. {MEASURE_WHOLE}"
        )
    return _COMBINATIONS[layer.type]


def _check_channels(table: LayerTable, position: int, sources: Sequence[int]) -> None:
    """Refuse a layer that reads a part of what it names: which part, the table does not say."""
    layer = table.layers[position]
    known = [table.layers[source].out_channels for source in sources if source != IMAGE]
    offered = [each for each in known if each is not None]
    if layer.type in ("flatten", "linear", "multiply") or layer.in_channels is None or not offered:
        return
    channels = sum(offered) if layer.type == "concat" else max(offered)
    if len(offered) == len(sources) and channels != layer.in_channels:
        raise SchemaError(
            f"layer {layer.name!r} reads {layer.in_channels} of {channels} channels: which ones, the layer table does "
            f"not say. {MEASURE_WHOLE}"
        )


def _sum(first: Any, *others: Any) -> Any:
    for other in others:
        first = first + other
    return first


def _product(first: Any, *others: Any) -> Any:
    for other in others:
        first = first * other
    return first


def _concat(*parts: Any) -> Any:
    import chainer.functions as F  # noqa: N812

    return F.concat(parts, axis=1)


def _flatten(x: Any) -> Any:
    import chainer.functions as F  # noqa: N812

    return F.reshape(x, (x.shape[0], -1))


_COMBINATIONS: dict[str, Callable[..., Any]] = {"add": _sum, "multiply": _product, "concat": _concat}
