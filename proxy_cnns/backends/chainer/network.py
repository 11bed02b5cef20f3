"""A CNN built from only its layer table, as a Chainer chain: the target CNN or proxy that is measured."""

from functools import partial
from typing import Any

from predictor.cnns.layer_table import Layer, LayerTable
from proxy_cnns.backends.chainer.layers import layer_function, shuffle_channels
from proxy_cnns.backends.graph import MAP_LAST, Functions, Graph


def network(table: LayerTable, *, static: bool = False) -> Any:
    """Build the CNN of a layer table.

    `static`: whether Chainer traces it once and repeats the schedule (`chainer.static_graph`; dropout then keeps the
    mask of its first iteration). The network is on the CPU. Its input is images, its output the last layer's output.
    Its links are named by the position of their layer in the table: ``layer0`` is the first. SchemaError if the table
    holds a layer that Chainer cannot run, or its layers do not fit together.
    """
    import chainer

    graph = Graph(table, _functions())

    class Network(chainer.Chain):  # type: ignore[misc]
        def forward(self, image: Any) -> Any:
            return graph.run(image)

    class StaticNetwork(chainer.Chain):  # type: ignore[misc]
        @chainer.static_graph  # type: ignore[untyped-decorator]
        def forward(self, image: Any) -> Any:
            return graph.run(image)

    chain = StaticNetwork() if static else Network()
    for step in graph.steps:
        if isinstance(step.function, chainer.Link):
            chain.add_link(f"layer{step.layer}", step.function)
    return chain


def _functions() -> Functions:
    import chainer.functions as F  # noqa: N812

    return Functions(
        _layer,
        concat=lambda *parts: F.concat(parts, axis=1),
        split=_split,
        flatten=lambda x: F.reshape(x, (x.shape[0], -1)),
        to_map=partial(F.transpose, axes=(0, 3, 1, 2)),
        to_map_last=partial(F.transpose, axes=(0, 2, 3, 1)),
        shuffle=shuffle_channels,
    )


def _layer(layer: Layer, form: str, _in_place: bool) -> Any:
    return layer_function(layer, positionwise=form == MAP_LAST)


def _split(x: Any, sizes: list[int]) -> Any:
    import chainer.functions as F  # noqa: N812
    import numpy as np

    return F.split_axis(x, np.cumsum(sizes)[:-1], axis=1)
