"""A CNN built from its layer table alone, as a PyTorch module: the target CNN or proxy that is measured.

What a table leaves unsaid follows from its neighbours: which layers run channels-last (between permutes,
where a layer norm or linear layer reads maps), which read a part of what another wrote, which permute is a
channel shuffle.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.errors import SchemaError
from predictor.operators.operators import is_channel_shuffle, layer_inputs, layer_operators
from proxy_cnns.backends.torch.layers import layer_module
from proxy_cnns.configuration import MEASURE_WHOLE

__all__ = ["image_shape", "network", "shuffle_channels"]

_MAP, _MAP_LAST, _VECTOR = "map", "map with channels last", "vector"  # (N, C, H, W), (N, H, W, C), (N, C)
_POSITIONWISE = ("layer_norm", "linear")
_WHOLE = ("concat", "flatten", "linear", "multiply")  # in_channels below a source's channels mean no part
_ANY_FORM = ("activation", "dropout", "stochastic_depth", "multiply")


def network(table: LayerTable, device: str) -> Any:
    """Build the CNN of a layer table.

    Parameters
    ----------
    table : LayerTable
    device : str
        ``cpu``, ``cuda:0``, ``meta``, ...

    Returns
    -------
    torch.nn.Module
        In training mode; takes images (or what the first layer reads) and gives what the last layer writes.
        Its parameters are in the table's order.

    Raises
    ------
    SchemaError
        If the table holds a layer that cannot be run, or does not fit together.
    """
    import torch

    plan = _Plan(table, device)
    module = torch.nn.Module()
    modules = [step.function for step in plan.steps if isinstance(step.function, torch.nn.Module)]
    for i, each in enumerate(modules):
        module.add_module(f"layer{i}", each)
    module.forward = partial(_run, tuple(plan.steps), plan.slots)
    return module


def image_shape(table: LayerTable) -> tuple[int, int, int]:
    """Channels, height and width of one image that the CNN reads."""
    position = next(i for i, sources in enumerate(layer_inputs(table)) if IMAGE in sources)
    layer = table.layers[position]
    if layer.in_channels is None or layer.in_height is None or layer.in_width is None:
        raise SchemaError(f"layer {layer.name!r} reads the image, whose size the layer table does not say.")
    return layer.in_channels, layer.in_height, layer.in_width


def shuffle_channels(x: Any, groups: int = 2) -> Any:
    """Channels of `groups` equal parts in turn (Zhang et al., arXiv:1707.01083): a copy, forward and backward."""
    n, channels, height, width = x.shape
    x = x.view(n, groups, channels // groups, height, width)
    return x.transpose(1, 2).contiguous().view(n, channels, height, width)


@dataclass(frozen=True, slots=True)
class _Step:
    """One call: the slots that it reads and writes, and those that nobody reads after it."""

    function: Callable[..., Any]
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    frees: tuple[int, ...] = ()


def _run(steps: Sequence[_Step], slots: int, image: Any) -> Any:
    values: list[Any] = [None] * slots
    values[0] = result = image
    for step in steps:
        result = step.function(*[values[slot] for slot in step.reads])
        parts = (result,) if len(step.writes) == 1 else result
        for slot, part in zip(step.writes, parts, strict=True):
            values[slot] = part
        for slot in step.frees:
            values[slot] = None
    return result


class _Plan:
    """Steps of a table, made in one pass over its layers."""

    def __init__(self, table: LayerTable, device: str) -> None:
        self.steps: list[_Step] = []
        self.slots = 1
        self._table = table
        self._device = device
        self._operators = layer_operators(table)
        self._inputs = layer_inputs(table)
        self._readers: dict[int, list[int]] = defaultdict(list)
        for position, sources in enumerate(self._inputs):
            for source in sources:
                self._readers[source].append(position)
        self._form = {IMAGE: _MAP}
        self._slot = {IMAGE: 0}
        self._part: dict[tuple[int, int], int] = {}  # (source, reader) -> slot, where only a part is read
        for position in range(len(table)):
            self._add_layer(position)
        self._free_early()

    def _add_layer(self, position: int) -> None:
        sources = self._inputs[position]
        function, form, wanted = self._function(position, self._form[sources[0]])
        reads = tuple(self._read(source, position, wanted) for source in sources)
        self._slot[position] = self._step(function, reads)
        self._form[position] = form
        self._split(position)

    def _function(self, position: int, form: str) -> tuple[Callable[..., Any], str, str]:
        """What runs, the form of what it writes, and of what it reads; `form` is that of its first input."""
        layer, flatter = self._table.layers[position], _MAP if form == _MAP_LAST else form
        if layer.type == "permute":
            return self._permute(position, form)
        if layer.type == "flatten":
            return _flatten, _VECTOR, flatter
        if layer.type == "concat":
            return _concat, flatter, flatter
        if len(self._inputs[position]) > 1:
            return _combination(layer), form, form
        if layer.type in _POSITIONWISE:
            form = self._positionwise_form(layer, self._inputs[position][0], form)
            return layer_module(layer, self._device), form, form
        module = layer_module(layer, self._device, self._operators[position].in_place, form == _VECTOR)
        if layer.type in _ANY_FORM or (form, layer.type) == (_VECTOR, "batch_norm"):
            return module, form, form
        return module, _MAP, _MAP

    def _positionwise_form(self, layer: Layer, source: int, form: str) -> str:
        """Where a linear layer or layer norm finds its channels: last, or all that a map holds."""
        if form != _MAP:
            return form
        if layer.type == "layer_norm":
            return _MAP_LAST
        known = None if source == IMAGE else self._table.layers[source]
        single = known is None or (known.out_height, known.out_width) == (1, 1)
        return _VECTOR if single or known is None or layer.in_channels != known.out_channels else _MAP_LAST

    def _permute(self, position: int, form: str) -> tuple[Callable[..., Any], str, str]:
        layer = self._table.layers[position]
        if form == _MAP_LAST:
            return _to_map, _MAP, _MAP_LAST
        if not is_channel_shuffle(self._table, position):
            return _to_map_last, _MAP_LAST, _MAP
        if (layer.in_channels or 1) % 2:
            raise SchemaError(
                f"layer {layer.name!r} permutes {layer.in_channels} channels: it is no shuffle of two halves, "
                f"and no layer norm or linear layer reads it. {MEASURE_WHOLE}"
            )
        return shuffle_channels, _MAP, _MAP

    def _read(self, source: int, reader: int, wanted: str) -> int:
        """Slot to read, behind a change of form where one is needed."""
        slot, form = self._part.get((source, reader), self._slot[source]), self._form[source]
        if form == wanted:
            return slot
        if (form, wanted) not in _CHANGES:
            raise SchemaError(
                f"layer {self._table.layers[reader].name!r} reads a {form} where it needs a {wanted}: "
                "the layer table does not fit together."
            )
        return self._step(_CHANGES[form, wanted], (slot,))

    def _step(self, function: Callable[..., Any], reads: tuple[int, ...], writes: int = 1) -> int:
        first = self.slots
        self.slots += writes
        self.steps.append(_Step(function, reads, tuple(range(first, self.slots))))
        return first

    def _split(self, source: int) -> None:
        """Split what a layer wrote once, if any layer reads a part of it: first what concats take."""
        channels = self._table.layers[source].out_channels or 0
        parts = {reader: self._part_read(reader, channels) for reader in self._readers[source]}
        if all(self._table.layers[each].type in _WHOLE or parts[each] == channels for each in parts):
            return
        order = sorted(parts, key=lambda reader: (self._table.layers[reader].type != "concat", reader))
        sizes = [parts[reader] for reader in order]
        if sum(sizes) != channels:
            names = ", ".join(repr(self._table.layers[reader].name) for reader in order)
            raise SchemaError(
                f"layers {names} read {', '.join(map(str, sizes))} of the {channels} channels of "
                f"{self._table.layers[source].name!r}: which ones, the table does not say. {MEASURE_WHOLE}"
            )
        slot = self._step(partial(_parts, sizes=sizes), (self._slot[source],), len(sizes))
        self._part |= {(source, reader): slot + i for i, reader in enumerate(order)}

    def _part_read(self, reader: int, channels: int) -> int:
        """How many of a source's channels a layer reads; a concat leaves out what its inputs have too many."""
        layer = self._table.layers[reader]
        if layer.in_channels is None or (layer.type in _WHOLE and layer.type != "concat"):
            return channels
        if layer.type != "concat":
            return min(channels, layer.in_channels)
        sources = [self._table.layers[each] for each in self._inputs[reader] if each != IMAGE]
        offered = sum(source.out_channels or 0 for source in sources)
        return channels - max(0, offered - layer.in_channels)

    def _free_early(self) -> None:
        """Let go of every value after its last reader, as local variables of a written CNN do."""
        last = {slot: i for i, step in enumerate(self.steps) for slot in step.reads}
        freed: dict[int, list[int]] = defaultdict(list)
        for slot, i in last.items():
            freed[i].append(slot)
        self.steps = [replace(step, frees=tuple(freed[i])) for i, step in enumerate(self.steps)]


def _combination(layer: Layer) -> Callable[..., Any]:
    if layer.type == "add":
        return _sum
    if layer.type == "multiply":
        return _product
    raise SchemaError(
        f"layer {layer.name!r} of type {layer.type!r} has several inputs, which cannot be run. {MEASURE_WHOLE}"
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
    import torch

    return torch.cat(parts, 1)


def _parts(x: Any, sizes: list[int]) -> Any:
    return x.split(sizes, 1)


def _flatten(x: Any) -> Any:
    return x.flatten(1)


def _to_map(x: Any) -> Any:
    return x.permute(0, 3, 1, 2)


def _to_map_last(x: Any) -> Any:
    return x.permute(0, 2, 3, 1)


_CHANGES: dict[tuple[str, str], Callable[[Any], Any]] = {
    (_MAP, _VECTOR): _flatten,
    (_MAP, _MAP_LAST): _to_map_last,
    (_MAP_LAST, _MAP): _to_map,
}
