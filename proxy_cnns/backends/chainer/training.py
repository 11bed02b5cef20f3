"""One training iteration of a whole CNN in Chainer, built from its layer table or by the user's own function.

It trains with softmax cross-entropy on random labels, SGD with momentum, random images that lie on the
device.
"""

from functools import partial
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.cnns.layer_table import LayerTable
from predictor.errors import SchemaError
from proxy_cnns.backends.base import LEARNING_RATE, MOMENTUM, USER_CHANNELS, Program, user_cnn
from proxy_cnns.backends.chainer.layers import layer_function, shuffle_channels
from proxy_cnns.backends.chainer.modes import numpy_dtype
from proxy_cnns.backends.graph import MAP_LAST, Functions, Graph, image_shape
from proxy_cnns.configuration import Configuration


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


def training_program(configuration: Configuration, device: str) -> Program:
    """Build a CNN and what trains it; nothing runs yet. Call it within `modes.configured`.

    `device`: chainer's name: ``@numpy`` or ``@cupy:0``. SchemaError if the layer table or the user's module cannot be
    run.
    """
    import chainer

    model, shape = _model(configuration)
    target = chainer.get_device(device)
    model.to_device(target)
    target.use()
    images = target.xp.random.rand(configuration.batch_size, *shape).astype(numpy_dtype(configuration.mode))
    trained = _Trained(model, images, make_optimizer(model, configuration.mode))
    return Program((trained.forward, trained.backward, trained.update))


def make_optimizer(model: Any, mode: Mode) -> Any:
    """Make the optimizer of a model; with float32 copies of float16 parameters in mixed precision."""
    import chainer

    momentum, kinds = MOMENTUM[mode.optimizer], chainer.optimizers
    optimizer = kinds.MomentumSGD(LEARNING_RATE, momentum) if momentum else kinds.SGD(LEARNING_RATE)
    optimizer.setup(model)
    if mode.precision == "amp_fp16":
        optimizer.use_fp32_update()
    return optimizer


class _Trained:
    """A model under training; the graph of an iteration is let go of before the update, as Chainer's trainer does."""

    def __init__(self, model: Any, images: Any, optimizer: Any) -> None:
        self._model, self._images, self._optimizer = model, images, optimizer
        self._labels: Any = (
            None  # as many classes as the output has logits: known after the first forward pass
        )
        self._loss: Any = None

    def forward(self) -> None:
        import chainer

        logits = self._model(self._images)
        if not isinstance(logits, chainer.Variable):
            raise SchemaError(
                f"the CNN's output is a {type(logits).__name__}, no chainer.Variable of logits."
            )
        if self._labels is None:
            xp, n_classes = logits.xp, logits.size // len(logits)
            self._labels = xp.random.randint(0, n_classes, size=len(logits)).astype(xp.int32)
        if logits.ndim != 2:
            logits = chainer.functions.reshape(logits, (len(logits), -1))
        self._loss = chainer.functions.softmax_cross_entropy(logits, self._labels)

    def backward(self) -> None:
        self._model.cleargrads()
        self._loss.backward()
        self._loss = None

    def update(self) -> None:
        self._optimizer.update()


def _model(configuration: Configuration) -> tuple[Any, tuple[int, int, int]]:
    import chainer

    subject = configuration.subject
    if subject.table is not None:
        chain = network(subject.table, static=configuration.mode.capture == "static_graph")
        return chain, image_shape(subject.table)
    if configuration.mode.capture == "static_graph":
        raise SchemaError(
            "capture 'static_graph' of your own chain: decorate its forward with chainer.static_graph."
        )
    model = user_cnn(subject, chainer.Link, "Chainer", "chainer.Chain")
    if isinstance(model, chainer.links.Classifier):
        model = model.predictor
    return model, (USER_CHANNELS, subject.image_size, subject.image_size)
