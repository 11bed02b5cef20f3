"""A Chainer chain as a layer table: run once on two blank images on the CPU, its functions taken as they run.

Called by `predictor.sources.resolve_cnn` and by tests; calls `chainer_compat`, `chainer_functions` for what
each function is in PyTorch's words, and `recorder`. The user's chain is copied first.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.errors import EpochcastError, OutOfRangeError, SchemaError
from predictor.layers import LayerTable
from predictor.sources.chainer_compat import install
from predictor.sources.chainer_functions import operator_of
from predictor.sources.recorder import Recorder

if TYPE_CHECKING:
    import chainer

__all__ = ["from_chainer"]

_TOO_SMALL = "should be positive"  # what Chainer says of an output size


def from_chainer(
    chain: chainer.Chain, image_size: int, cnn: str | None = None, in_channels: int = 3, batch: int = 2
) -> LayerTable:
    """Layer table of what a training forward pass of `chain` runs.

    Parameters
    ----------
    chain : chainer.Chain
        Neither changed nor run: a copy is. Of a `chainer.links.Classifier`, its predictor is taken.
    image_size : int
        Height and width of the images, in pixels.
    cnn : str, optional
        Name of the CNN; the class's by default.
    in_channels : int
        Channels of the images.
    batch : int
        Images of the trial run, >= 2; the table does not depend on it.

    Raises
    ------
    BackendUnavailableError
        If Chainer is not installed.
    OutOfRangeError
        If the image is too small for the chain.
    SchemaError
        If it is no chain, or does not run on one batch of such images.
    """
    chainer = install()
    if isinstance(chain, chainer.links.Classifier):
        chain = chain.predictor
    if not isinstance(chain, chainer.Link):
        raise SchemaError(f"{type(chain).__name__} is not a chainer.Chain.")
    if isinstance(image_size, bool) or not isinstance(image_size, int) or image_size < 1:
        raise OutOfRangeError(f"image_size {image_size!r} is not a whole number of pixels of at least 1.")
    name = cnn or type(chain).__name__
    copy = deepcopy(chain)
    copy.to_device("@numpy")
    image = chainer.Variable(np.zeros((batch, in_channels, image_size, image_size), np.float32))
    ran, _result = _run(copy, image, chainer, name)  # what nobody holds, Chainer forgets
    recorder = _record(ran, copy, image, batch, name)
    unknown = ", ".join(sorted(recorder.unknown))
    warnings = (f"operators of unknown cost: {unknown}",) if unknown else ()
    return LayerTable(name, image_size, tuple(recorder.rows), "chainer", warnings)


@dataclass(slots=True)
class _Ran:
    """One function that ran, in which link."""

    function: Any
    path: str
    is_leaf: bool


@dataclass(eq=False, slots=True)
class _Tensor:
    """A variable as the recorder sees it."""

    shape: tuple[int, ...]
    ndim: int = field(init=False)

    def __post_init__(self) -> None:
        self.ndim = len(self.shape)

    def is_contiguous(self) -> bool:
        """Say that it lies in memory as it is read: Chainer's functions see to that."""
        return True


def _run(chain: Any, image: Any, chainer: Any, name: str) -> tuple[list[_Ran], Any]:
    """Run the chain forward and return its functions in their order, and its result."""
    ran: list[_Ran] = []
    function_hook, link_hook = _hooks(chainer, ran, {id(link): path for path, link in chain.namedlinks()})
    try:
        with (
            _kept_random_state(),
            chainer.using_config("train", True),
            chainer.using_config("enable_backprop", True),
            function_hook,
            link_hook,
        ):
            result = chain(image)
    except Exception as error:
        size = "x".join(map(str, image.shape))
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        text = f"{name} does not run on a batch of {size}: {' '.join(lines[-3:])}"
        if _TOO_SMALL in str(error):
            raise OutOfRangeError(f"{text} Give a larger image_size.") from error
        raise SchemaError(f"{text} Check image_size and in_channels.") from error
    return ran, result


def _hooks(chainer: Any, ran: list[_Ran], paths: dict[int, str]) -> tuple[Any, Any]:
    """Build the hooks that note every function, and the link in which it runs."""
    inside: list[tuple[str, bool]] = []

    class Functions(chainer.FunctionHook):
        name = "epochcast functions"

        def forward_postprocess(self, function: Any, _in_data: Any) -> None:
            path, is_leaf = inside[-1] if inside else ("", False)
            ran.append(_Ran(function, path, is_leaf))

    class Links(chainer.LinkHook):
        name = "epochcast links"

        def forward_preprocess(self, args: Any) -> None:
            path = paths.get(id(args.link), "").strip("/").replace("/", ".")
            inside.append((path, not isinstance(args.link, chainer.Chain | chainer.ChainList)))

        def forward_postprocess(self, _args: Any) -> None:
            inside.pop()

    return Functions(), Links()


@contextmanager
def _kept_random_state() -> Iterator[None]:
    """Leave numpy's global random numbers, which Chainer's dropout and initializers draw, as they were."""
    state = np.random.get_state()  # noqa: NPY002  # the very state that Chainer uses
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _record(ran: list[_Ran], chain: Any, image: Any, batch: int, name: str) -> Recorder:
    recorder, tensors = Recorder(batch), {}
    for parameter in chain.params():
        if parameter.array is not None:
            tensors[id(parameter.node)] = _Tensor(parameter.shape)
            recorder.parameter(tensors[id(parameter.node)])
    tensors[id(image.node)] = _Tensor(image.shape)
    recorder.image(tensors[id(image.node)])
    try:
        for one in ran:
            _record_one(one, recorder, tensors)
    except EpochcastError as error:
        raise type(error)(f"{name}: {error}") from error
    if not recorder.rows:
        raise SchemaError(f"{name} runs no function on its image.")
    return recorder


def _record_one(one: _Ran, recorder: Recorder, tensors: dict[int, _Tensor]) -> None:
    function = one.function
    if function.inputs is None:  # nothing that it reads comes from the image or a parameter
        return
    inputs = [_tensor(node, tensors) for node in function.inputs]
    nodes = [reference() for reference in function.outputs]
    outputs = [_tensor(node, tensors) for node in nodes if node is not None]
    operator, arguments, is_view = operator_of(function, inputs)
    recorder.path[:] = [(one.path, one.is_leaf)] if one.path else []
    recorder.record(operator, arguments, outputs, is_view)


def _tensor(node: Any, tensors: dict[int, _Tensor]) -> _Tensor:
    return tensors.setdefault(id(node), _Tensor(tuple(node.shape)))
