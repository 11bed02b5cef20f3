"""A CNN built from only its layer table, as a Chainer chain: the target CNN or proxy that is measured."""

from functools import partial
from typing import Any

from predictor.cnns.layer_table import LayerTable
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
    import chainer.functions as F  # noqa: N812
    import numpy as np

    functions = Functions(
        lambda layer, form, _in_place: layer_function(layer, positionwise=form == MAP_LAST),
        concat=lambda *maps: F.concat(maps, axis=1),
        split=lambda x, sizes: F.split_axis(x, np.cumsum(sizes)[:-1], axis=1),
        flatten=lambda x: F.reshape(x, (x.shape[0], -1)),
        to_map=partial(F.transpose, axes=(0, 3, 1, 2)),
        to_map_last=partial(F.transpose, axes=(0, 2, 3, 1)),
        shuffle=shuffle_channels,
    )
    graph = Graph(table, functions)

    def run(_chain: Any, image: Any) -> Any:
        return graph.run(image)

    class Network(chainer.Chain):  # type: ignore[misc]
        forward = chainer.static_graph(run) if static else run

    chain = Network()
    for step in graph.steps:
        if isinstance(step.function, chainer.Link):
            chain.add_link(f"layer{step.layer}", step.function)
    return chain
