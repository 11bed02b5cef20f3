"""Blocks of a CNN that gradient checkpointing may reduce to their inputs: its modules, or else its stages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from predictor.cnns.layer_table import IMAGE, LayerTable

_STAGE = " to "
_COVERED = 0.5  # of the layers, in the blocks of a level at least
_MOST_LEVELS = 3


@dataclass(frozen=True, slots=True)
class Block:
    """Successive layers with one output that others read: the positions `first` to `last` of a table.

    `name` is the module's, or of a stage that is none its first and last layer. `joins`: whether it joins maps first,
    which its module may be given as a list.
    """

    name: str
    first: int
    last: int
    joins: bool = False

    @property
    def positions(self) -> range:
        """Positions of the block's layers."""
        return range(self.first, self.last + 1)

    @property
    def is_module(self) -> bool:
        """Whether the block is one module."""
        return _STAGE not in self.name


def block_levels(table: LayerTable) -> list[tuple[Block, ...]]:
    """Ways to cut a CNN into blocks that do not overlap, coarse to fine; empty where it has none.

    Of modules by their depth: ``layer1``, then ``layer1.0``; a CNN without nested modules is cut where its maps shrink.
    """
    by_depth: dict[int, list[Block]] = {}
    for block in _of_modules(table):
        by_depth.setdefault(block.name.count("."), []).append(block)
    levels: list[tuple[Block, ...]] = []
    for depth in sorted(by_depth):
        finer = by_depth[depth]
        covered = {position for block in finer for position in block.positions}
        # parts without modules of this depth stay whole
        coarser = [block for block in (levels[-1] if levels else ()) if covered.isdisjoint(block.positions)]
        levels.append(tuple(sorted([*coarser, *finer], key=lambda block: block.first)))
    covers = [sum(len(block.positions) for block in level) for level in levels]  # layers that are in a block
    pairs = [*zip(levels, covers, strict=True)]
    by_number = {len(level): level for level, n in reversed(pairs) if n >= _COVERED * len(table)}
    levels_by_size = [by_number[number] for number in sorted(by_number)][:_MOST_LEVELS]
    return levels_by_size or ([stages] if (stages := tuple(_stages(table))) else [])


def _of_modules(table: LayerTable) -> list[Block]:
    positions_by_module: dict[str, list[int]] = {}
    for position, layer in enumerate(table):
        names = layer.name.split(".")
        for depth in range(1, len(names)):
            positions_by_module.setdefault(".".join(names[:depth]), []).append(position)
    leaves = {layer.name for layer in table}
    blocks = (
        Block(name, positions[0], positions[-1], table.layers[positions[0]].type == "concat")
        for name, positions in positions_by_module.items()
        if name not in leaves
    )
    return [block for block in blocks if _is_block(table, block, len(positions_by_module[block.name]))]


def _is_block(table: LayerTable, block: Block, n_layers: int) -> bool:
    """Whether a block is several successive layers with one output that others read."""
    ends_the_table = block.last == len(table) - 1  # and gains nothing
    if n_layers < 2 or n_layers != len(block.positions) or ends_the_table:
        return False
    return len(_outputs(table, block)) == 1 and n_layers < len(table) / 2


def _outputs(table: LayerTable, block: Block) -> set[int]:
    """Indices of a block's layers that layers outside read."""
    own = {table.layers[position].index for position in block.positions}
    behind = range(block.last + 1, len(table))
    return own & {source for position in behind for source in _sources(table, position)}


def _sources(table: LayerTable, position: int) -> Iterable[int]:
    inputs = table.layers[position].inputs
    if inputs is not None:
        return inputs
    return (table.layers[position - 1].index,) if position else (IMAGE,)


def _stages(table: LayerTable) -> Iterator[Block]:
    """Runs of layers that end where maps shrink, and only one tensor goes on."""
    first = 0
    for position, layer in enumerate(table.layers[:-1]):
        heights = layer.in_height, layer.out_height
        if layer.type == "flatten" or None in heights or (heights[1] or 0) >= (heights[0] or 0):
            continue
        block = Block(f"{table.layers[first].name}{_STAGE}{layer.name}", first, position)
        before = Block("", 0, position)
        if position > first and _outputs(table, before) == {layer.index}:
            yield block
            first = position + 1
