"""Reads a Chainer chain into a layer table, by forward passes at two batch sizes whose function calls are recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from inspect import Parameter, signature
from operator import attrgetter as _of
from typing import TYPE_CHECKING, Any

import numpy as np

from predictor.cnns.chainer_compat import install
from predictor.cnns.layer_table import LayerTable
from predictor.cnns.recorder import Recorder, recurrent_refusal
from predictor.errors import EpochcastError, OutOfRangeError, SchemaError
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES

if TYPE_CHECKING:
    import chainer


def operator_of(function: Any, inputs: Sequence[Any]) -> tuple[str, dict[str, Any], bool]:
    """Return PyTorch's operator for a Chainer function, its arguments by name, and whether it is a view.

    `function`: having run forward. `inputs`: its inputs, as recorded. A function of an unknown class keeps its own
    name, which the recorder counts as an operator of unknown cost.
    """
    name = type(getattr(function, "function", function)).__name__
    if name in _VIEWS:
        return "view", {"self": inputs[0]}, True
    if name in _RULES:
        operator, names, attributes = _RULES[name]
        arguments = dict(zip(names, inputs, strict=False))
        arguments |= {key: of(function) for key, of in attributes.items()}
        if operator == "permute":
            dims = arguments["dims"] or [*reversed(range(inputs[0].ndim))]
            return operator, arguments | {"dims": dims}, True
        return operator.format(len(getattr(function, "ksize", ()))), arguments, False
    return _OPERATORS.get(name, name), {"inputs": list(inputs)}, False


_VIEWS = {"Broadcast", "BroadcastTo", "ExpandDims", "GetItem", "Reshape", "SplitAxis", "Squeeze"}


_LAYER = ("input", "weight", "bias")  # inputs behind them are no parameters
_Attributes = dict[str, Callable[[Any], Any]]
_CONVOLVES: _Attributes = {
    "transposed": lambda f: "Deconvolution" in type(f).__name__,
    "groups": _of("groups"),
}
_OF_IMAGES: _Attributes = {"stride": _of("sy", "sx"), "padding": _of("ph", "pw"), "dilation": _of("dy", "dx")}
_OF_VOLUMES: _Attributes = {"stride": _of("stride"), "padding": _of("pad"), "dilation": _of("dilate")}
_RULES: dict[str, tuple[str, tuple[str, ...], _Attributes]] = {
    **dict.fromkeys(
        ("Convolution2DFunction", "Deconvolution2DFunction"), ("convolution", _LAYER, _CONVOLVES | _OF_IMAGES)
    ),
    **dict.fromkeys(("ConvolutionND", "DeconvolutionND"), ("convolution", _LAYER, _CONVOLVES | _OF_VOLUMES)),
    **{
        f"{name}PoolingND": (
            f"{kind}_pool{{}}d",
            ("self",),
            {"kernel_size": _of("ksize"), "stride": _of("stride"), "padding": _of("pad")},
        )
        for name, kind in (("Max", "max"), ("Average", "avg"))
    },
    "AveragePooling2D": (
        "avg_pool2d",
        ("self",),
        {"kernel_size": _of("kh", "kw"), "stride": _of("sy", "sx"), "padding": _of("ph", "pw")},
    ),
    "FixedBatchNormalization": ("batch_norm", _LAYER, {}),
    "ClippedReLU": ("clamp", ("self",), {"min": lambda _: 0, "max": _of("cap")}),
    "Clip": ("clamp", ("self",), {"min": _of("x_min"), "max": _of("x_max")}),
    "MatMul": ("matmul", ("self", "other"), {"transposed_first": _of("transa")}),
    **dict.fromkeys(("Mean", "Sum"), ("mean", ("self",), {"dim": _of("axis")})),
    "Dropout": ("dropout", ("input",), {"p": _of("dropout_ratio")}),
    "Transpose": ("permute", ("self",), {"dims": _of("axes")}),
}
"""Classes of functions whose operator depends on their attributes: the operator, the names of its inputs, and how its
other arguments follow from the function."""

_OPERATORS = {
    **{name: entry.torch[0] for entry in OPERATOR_TYPES.values() for name in entry.chainer},
    **{name: entry.torch[0] for entry in ACTIVATIONS.values() for name in entry.chainer},
    **dict.fromkeys(("Mul", "MulConstant"), "mul"),
    **{name: name.lower() for name in ("ELU", "Exp", "Log", "Neg", "Softplus", "Sqrt")},
    **{"Absolute": "abs", "PowVarConst": "pow"},
}
"""Classes of functions that are always the same PyTorch operator."""


_CROSS_CHANNEL_NORM = "LocalResponseNormalization"
"""Class of a function that squares, sums over channels, raises to a power and multiplies, a kernel each or two."""

_RECURRENT = "NStepRNNBase"  # class of recurrent links over all positions

_CHANNELS = 3
"""Channels of the images that a chain is first run on."""

_TOO_SMALL = "should be positive"  # in Chainer's error about an output size


def from_chainer(
    chain: chainer.Chain,
    image_size: int,
    cnn: str | None = None,
    in_channels: int | None = None,
    batch: int = 2,
) -> LayerTable:
    """Layer table of a training forward pass of `chain`.

    `chain`: neither changed nor run: a copy is. Of a `chainer.links.Classifier`, its predictor is taken; one whose
    `forward` takes labels, too, gets zeros, and what reads them (loss, accuracy) is no layer. `image_size`:
    height and width of the images, in pixels. `cnn`: name of the CNN; the class's by default. `in_channels`: channels
    of the images; by default 3, or what the first link with weights reads. `batch`: images of the trial run, >= 2, and
    one more in the second; the table does not depend on it. BackendUnavailableError if Chainer is not installed;
    OutOfRangeError if the image is too small for the chain; SchemaError if it is no chain, does not run on a batch of
    such images, runs other functions on a larger one, or has recurrent links.
    """
    chainer = install()
    if isinstance(chain, chainer.links.Classifier):
        chain = chain.predictor
    if not isinstance(chain, chainer.Link):
        raise SchemaError(f"{type(chain).__name__} is not a chainer.Chain.")
    if isinstance(image_size, bool) or not isinstance(image_size, int) or image_size < 1:
        raise OutOfRangeError(f"image_size {image_size!r} is not a whole number of pixels of at least 1.")
    name = cnn or type(chain).__name__
    for path, link in chain.namedlinks():
        if any(class_.__name__ == _RECURRENT for class_ in type(link).__mro__):
            where = path.strip("/").replace("/", ".")
            raise SchemaError(f"{name}, link {where!r}: {recurrent_refusal(type(link).__name__)}")
    copy = deepcopy(chain)
    copy.to_device("@numpy")
    channels = in_channels or _CHANNELS

    def run(n: int) -> tuple[Any, list[_Ran], Any]:
        image = chainer.Variable(np.zeros((n, channels, image_size, image_size), np.float32))
        labels = [np.zeros(n, np.int32)] if takes_labels else []
        return image, *_run(copy, image, labels, chainer, name, started)

    takes_labels = _takes_labels(chain)
    started: list[Any] = []
    try:
        image, ran, _result = run(batch)  # the result keeps Chainer's graph alive
    except SchemaError:
        channels = channels if in_channels else _channels_read(started, image_size)
        if channels == (in_channels or _CHANNELS):
            raise
        image, ran, _result = run(batch)
    _larger, again, _larger_result = run(batch + 1)
    recorder = _record(ran, again, copy, image, batch, name)
    return LayerTable(name, image_size, tuple(recorder.rows), "chainer", tuple(recorder.warnings()))


def _takes_labels(chain: Any) -> bool:
    """Whether calling a chain needs a second argument, as that of Chainer's ImageNet example does."""
    call = getattr(chain, "forward", None) or chain.__call__
    parameters = signature(call).parameters.values()
    positional = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    needed = [own for own in parameters if own.kind in positional and own.default is Parameter.empty]
    return len(needed) == 2


def _channels_read(started: list[Any], image_size: int) -> int:
    """Channels that the first link with weights reads, if a run on images of the usual channels stopped there."""
    link = next((candidate for candidate in started if getattr(candidate, "W", None) is not None), None)
    if link is None or link is not started[-1] or link.W.array is None:
        return _CHANNELS
    if link.W.ndim == 2:  # a linear link reads flattened images
        channels, remainder = divmod(link.W.shape[1], image_size**2)
        return _CHANNELS if remainder or not channels else int(channels)
    return int(link.W.shape[1] * getattr(link, "groups", 1))


@dataclass(slots=True)
class _Ran:
    """A function that ran, and the path of its link."""

    function: Any
    path: str
    is_leaf: bool
    reads_labels: bool


@dataclass(eq=False, slots=True)
class _Tensor:
    """Shape of a variable, for the recorder."""

    shape: tuple[int, ...]
    ndim: int = field(init=False)

    def __post_init__(self) -> None:
        self.ndim = len(self.shape)

    def is_contiguous(self) -> bool:
        """Return True: Chainer's functions make their inputs contiguous."""
        return True


def _run(
    chain: Any, image: Any, labels: list[Any], chainer: Any, name: str, started: list[Any]
) -> tuple[list[_Ran], Any]:
    """Run the chain forward and return its functions in their order, and its result; `started` gets its links.

    `labels`: none, or an array of them.
    """
    ran: list[_Ran] = []
    paths = {id(link): path for path, link in chain.namedlinks()}
    function_hook, link_hook = _hooks(chainer, ran, paths, started, labels)
    try:
        with (
            _kept_random_state(),
            chainer.using_config("train", True),
            chainer.using_config("enable_backprop", True),
            function_hook,
            link_hook,
        ):
            result = chain(image, *labels)
    except Exception as error:
        size = "x".join(map(str, image.shape))
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        beside = " and as many labels" if labels else ""
        text = f"{name} does not run on a batch of {size}{beside}: {' '.join(lines[-3:])}"
        if _TOO_SMALL in str(error):
            raise OutOfRangeError(f"{text} Give a larger image_size.") from error
        raise SchemaError(f"{text} Check image_size.") from error
    return ran, result


def _hooks(
    chainer: Any, ran: list[_Ran], paths: dict[int, str], started: list[Any], labels: list[Any]
) -> tuple[Any, Any]:
    """Hooks that note every function and its link."""
    inside: list[tuple[str, bool]] = []

    class Functions(chainer.FunctionHook):
        name = "epochcast functions"

        def forward_postprocess(self, function: Any, in_data: Any) -> None:
            path, is_leaf = inside[-1] if inside else ("", False)
            reads_labels = any(array is own for array in in_data for own in labels)
            ran.append(_Ran(function, path, is_leaf, reads_labels))

    class Links(chainer.LinkHook):
        name = "epochcast links"

        def forward_preprocess(self, args: Any) -> None:
            started.append(args.link)
            path = paths.get(id(args.link), "").strip("/").replace("/", ".")
            inside.append((path, not isinstance(args.link, chainer.Chain | chainer.ChainList)))

        def forward_postprocess(self, _args: Any) -> None:
            inside.pop()

    return Functions(), Links()


@contextmanager
def _kept_random_state() -> Iterator[None]:
    """Restore numpy's global random state, which Chainer's dropout and initializers use."""
    state = np.random.get_state()  # noqa: NPY002  # the generator that Chainer uses
    try:
        yield
    finally:
        np.random.set_state(state)  # noqa: NPY002


def _record(ran: list[_Ran], again: list[_Ran], chain: Any, image: Any, batch: int, name: str) -> Recorder:
    if [type(call.function) for call in ran] != [type(call.function) for call in again]:
        raise SchemaError(
            f"{name} runs different functions at batch sizes {batch} and {batch + 1}, so its work for one image is "
            "not known. Write it without loops over the mini-batch and without random branches, or give a layer "
            "table CSV."
        )
    recorder, tensors = Recorder(batch, batch + 1), {}
    for parameter in chain.params():
        if parameter.array is not None:
            tensors[id(parameter.node)] = _Tensor(parameter.shape)
            recorder.parameter(tensors[id(parameter.node)])
    tensors[id(image.node)] = _Tensor(image.shape)
    recorder.image(tensors[id(image.node)])
    of_labels: set[int] = set()  # nodes that follow from labels: losses, accuracies
    try:
        for call, larger_call in zip(ran, again, strict=True):
            if call.reads_labels or any(id(node) in of_labels for node in call.function.inputs or ()):
                of_labels.update(map(id, _outputs(call.function)))
                continue
            _record_one(call, larger_call, recorder, tensors)
    except EpochcastError as error:
        raise type(error)(f"{name}: {error}") from error
    if not recorder.rows:
        raise SchemaError(f"{name} runs no function on its image.")
    return recorder


def _record_one(call: _Ran, larger_call: _Ran, recorder: Recorder, tensors: dict[int, _Tensor]) -> None:
    function = call.function
    if function.inputs is None:  # no input comes from the image or a parameter
        return
    inputs = [_tensor(node, tensors) for node in function.inputs]
    outputs = [_tensor(node, tensors) for node in _outputs(function)]
    recorder.path[:] = [(call.path, call.is_leaf)] if call.path else []
    shapes = [tuple(node.shape) for node in _outputs(larger_call.function)]
    if type(function).__name__ == _CROSS_CHANNEL_NORM and outputs:
        [x], squares, sums, scales = inputs, *(_Tensor(inputs[0].shape) for _ in range(3))
        for operator, read, written in (
            ("mul", [x, x], squares),
            ("pow", [squares], sums),
            ("pow", [sums], scales),
            ("mul", [x, scales], outputs[0]),
        ):
            recorder.record(operator, {"inputs": read}, [written], False, shapes)
        return
    operator, arguments, is_view = operator_of(function, inputs)
    recorder.record(operator, arguments, outputs, is_view, shapes)


def _outputs(function: Any) -> list[Any]:
    """Results that are still referenced."""
    return [node for node in (reference() for reference in function.outputs) if node is not None]


def _tensor(node: Any, tensors: dict[int, _Tensor]) -> _Tensor:
    return tensors.setdefault(id(node), _Tensor(tuple(node.shape)))
