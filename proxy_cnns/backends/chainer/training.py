"""One training iteration of a whole CNN in Chainer, built from its layer table or by the user's own function.

It trains with softmax cross-entropy on random labels, SGD with momentum, random images that lie on the
device.
"""

from typing import Any

from predictor.catalogue.modes import Mode
from predictor.errors import SchemaError
from proxy_cnns.backends.base import LEARNING_RATE, MOMENTUM, USER_CHANNELS, Program, user_cnn
from proxy_cnns.backends.chainer.modes import numpy_dtype
from proxy_cnns.backends.chainer.network import network
from proxy_cnns.backends.graph import image_shape
from proxy_cnns.configuration import Configuration


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
