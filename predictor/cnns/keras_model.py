"""Reads a Keras 3 model into a layer table, through its PyTorch backend.

The model runs on PyTorch's *meta* device, as a PyTorch module does (`predictor.cnns.torch_module`), and stays as it is:
its variables are replaced for the time of the call. Three things are read as all frameworks compute them, not as
Keras spells them out on PyTorch: a batch norm is one operator, a bias belongs to its convolution or product, and the
order of a map's dimensions costs nothing, since kernels take channels first and last.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

from predictor.cnns.layer_table import Layer, LayerTable, with_frozen
from predictor.cnns.recorder import Recorder, recurrent_refusal
from predictor.cnns.torch_module import read_runs
from predictor.errors import BackendUnavailableError, OutOfRangeError, SchemaError
from predictor.operator_types import OPERATOR_TYPES

_INSTALL = "Keras with PyTorch is not installed: pip install 'epochcast[keras]'"


def from_keras(model: Any, image_size: int | None = None, cnn: str | None = None) -> LayerTable:
    """Layer table of a training pass of a Keras 3 model, whose backend must be PyTorch.

    `model`: built, with one input of images; neither changed nor moved. `image_size`: height and width of the images,
    in pixels; needed where the model takes any. `cnn`: name of the CNN; the model's by default. Layers that are not
    trainable say which passes run. Its warnings are those of `predictor.cnns.torch_module.from_torch`.
    BackendUnavailableError if Keras runs on another backend; OutOfRangeError if the model is made for images of another
    size, or they are too small for it; SchemaError if it is not built, has several inputs or recurrent layers, does not
    run on a batch of such images, or parameters remain that no operator reads.
    """
    keras = _keras()
    name = cnn or str(model.name)
    if not model.built:
        raise SchemaError(
            f"{name} has no weights yet. Give it a keras.Input, or run it once, before it is read."
        )
    for layer in _layers(model):
        if type(layer).__name__ in _RECURRENT:
            raise SchemaError(f"{name}, layer {layer.name!r}: {recurrent_refusal(type(layer).__name__)}")
    channels_last, shape = _image_shape(model, name, image_size)
    values = [(variable, _meta(variable)) for variable in model.variables]
    layers = _layers(model)
    trained = {id(own): layer.trainable for layer in layers for own in layer._trainable_variables}

    def run(images: Any) -> None:
        with keras.device(_Meta("meta")), keras.StatelessScope(state_mapping=values):
            try:
                model(images, training=True)
            except Exception as error:  # one line of it, without Keras's colours
                lines = [re.sub(r"\x1b\[\d*m", "", line).strip() for line in str(error).splitlines()]
                raise RuntimeError(": ".join([line.rstrip(".:") for line in lines if line][:2])) from error

    recorder = Recorder(2, 3, either_layout=True)
    for variable, value in values:
        if id(variable) in trained:
            recorder.parameter(value, frozen=not trained[id(variable)])
    with _followed(model, recorder.path):
        read_runs(recorder, run, shape, name, channel_dim=-1 if channels_last else 1)
    rows = _with_biases(with_frozen(recorder.rows, recorder.frozen_rows))
    if recorder.uncounted_parameters():
        raise SchemaError(
            f"{recorder.uncounted_parameters():,} parameters of {model.name} are read by no operator that can be "
            "followed. Export it to ONNX, model.export('mine.onnx', format='onnx'), and give that file."
        )
    return LayerTable(name, shape[0 if channels_last else 1], rows, "keras", tuple(recorder.warnings()))


def from_keras_file(path: str | PathLike[str], image_size: int | None = None) -> LayerTable:
    """`from_keras` of a ``.keras`` file, under the file's name; no code of the file is run.

    BackendUnavailableError if Keras or PyTorch is not installed, or Keras runs on another backend already. SchemaError
    if the file cannot be read, or has classes of its own; and as `from_keras`. OutOfRangeError as `from_keras`.
    """
    path = Path(path)
    if not path.is_file():
        raise SchemaError(
            f"there is no file {path}. Give the path of a .keras file, which model.save writes."
        )
    keras = _keras()
    try:
        model = keras.models.load_model(path, compile=False)
    except Exception as error:  # classes, versions and damages, each with an exception of its own
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise SchemaError(
            f"{path} cannot be read as a Keras model: {reason}. A model with classes of its own is given "
            "as FILE.py:make_model, a function that returns it."
        ) from error
    return from_keras(model, image_size, path.stem)


def image_size_of_keras(model: Any) -> int | None:
    """Height of the images that a Keras model is made for; None if it takes any, or is no Keras model."""
    shape = getattr(model, "input_shape", None)
    if not isinstance(shape, tuple) or len(shape) != 4:
        return None
    size = shape[1] if _is_channels_last(model) else shape[2]
    return size if isinstance(size, int) else None


def _keras() -> Any:
    """Keras on PyTorch, which is chosen when it is imported."""
    if "keras" not in sys.modules:
        os.environ["KERAS_BACKEND"] = "torch"
    try:
        import keras
    except ImportError as error:
        raise BackendUnavailableError(_INSTALL) from error
    if keras.backend.backend() != "torch":
        raise BackendUnavailableError(
            f"Keras runs on {keras.backend.backend()} here, and a model is read on its PyTorch backend. Save it, "
            "model.save('mine.keras'), and give the file to the command: epochcast predict mine.keras --gpu T4; or set "
            "KERAS_BACKEND=torch before Keras is imported."
        )
    return keras


def _image_shape(model: Any, name: str, image_size: int | None) -> tuple[bool, tuple[int, int, int]]:
    """Whether channels come last, and an image's dimensions."""
    last = _is_channels_last(model)
    shape = getattr(model, "input_shape", None) or (None,) * 4  # a subclass of keras.Model does not say
    if not isinstance(shape, tuple) or len(shape) != 4:
        raise SchemaError(
            f"{name} reads {shape}, not one batch of images. Give the part of it that reads images."
        )
    height, width, channels = shape[1:] if last else (*shape[2:], shape[1])
    for side in (height, width):
        if image_size is not None and side not in (None, image_size):
            raise OutOfRangeError(
                f"image_size {image_size}: {name} is made for images of {height}x{width}. Leave it out."
            )
    sides = [side or image_size for side in (height, width)]
    if None in sides:
        raise SchemaError(f"image_size is needed: {name} takes images of any size.")
    if sides[0] != sides[1]:
        raise SchemaError(
            f"{name} reads images of {height}x{width}, and only square ones are read. Give image_size."
        )
    rows, columns, depth = int(sides[0] or 0), int(sides[1] or 0), int(channels or 3)
    return last, (rows, columns, depth) if last else (depth, rows, columns)


def _is_channels_last(model: Any) -> bool:
    """Where the channels of a model's maps lie, by its first layer that says so, else by Keras's default."""
    formats = (getattr(layer, "data_format", None) for layer in _layers(model))
    format_of_model = next(filter(None, formats), None) or _keras().config.image_data_format()
    return bool(format_of_model == "channels_last")


def _layers(model: Any) -> list[Any]:
    return list(model._flatten_layers(include_self=False, recursive=True))


def _meta(variable: Any) -> Any:
    """A tensor of a variable's shape and type without numbers."""
    import torch

    empty = torch.empty(tuple(variable.shape), dtype=variable.value.dtype, device="meta")
    return torch.nn.Parameter(empty, requires_grad=False)


class _Meta(str):
    """Name of the meta device, equal to PyTorch's own object, as which tensors report it.

    Keras compares the two, and by a plain name it would make another tensor of each that lies there already: the
    operators that run could not be followed from one to the next.
    """

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, device: object) -> bool:
        return str(self) == str(device)

    def __ne__(self, device: object) -> bool:
        return not self == device

    def __str__(self) -> str:
        return "meta"

    def lower(self) -> str:
        """Itself: Keras takes names of devices in lower case."""
        return self


class _MetaOfPools(_Meta):
    """A meta device that is unequal to its name: Keras pools a real tensor where the two are equal."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, device: object) -> bool:
        return not isinstance(device, str) and str(self) == str(device)


@contextmanager
def _followed(model: Any, path: list[tuple[str, bool]]) -> Iterator[None]:
    """Track the running layer in `path`, and let batch norms be one operator."""
    layers = _layers(model)
    names = _names(model)
    try:
        for layer in layers:
            call = _READ_AS[type(layer).__name__](layer) if type(layer).__name__ in _READ_AS else layer.call
            leaf = not list(layer._flatten_layers(include_self=False, recursive=False))
            # Past Keras's own setter, which would track the function; an attribute of the object hides the method.
            object.__setattr__(layer, "call", _following(call, (names[id(layer)], leaf), path))
        yield
    finally:
        for layer in layers:
            vars(layer).pop("call", None)


def _names(model: Any, prefix: str = "") -> dict[int, str]:
    """Names of layers with those of the models that they lie in: ``stem/conv1``."""
    names = {}
    for layer in model._flatten_layers(include_self=False, recursive=False):
        names[id(layer)] = f"{prefix}{layer.name}"
        names |= _names(layer, f"{prefix}{layer.name}/")
    return names


def _following(
    call: Callable[..., Any], layer: tuple[str, bool], path: list[tuple[str, bool]]
) -> Callable[..., Any]:
    def followed(*args: Any, **kwargs: Any) -> Any:
        path.append(layer)
        try:
            return call(*args, **kwargs)
        finally:
            path.pop()

    return followed


def _batch_norm(layer: Any) -> Callable[..., Any]:
    """A batch norm of a training pass as PyTorch's operator, without its running statistics."""
    import torch

    def call(inputs: Any, **_: Any) -> Any:
        axis = layer.axis % inputs.ndim
        order = [0, axis, *(i for i in range(1, inputs.ndim) if i != axis)]
        inverse = [order.index(i) for i in range(inputs.ndim)]
        weight, bias = (
            getattr(layer, name).value if used else None
            for name, used in (("gamma", layer.scale), ("beta", layer.center))
        )
        normed = torch.nn.functional.batch_norm(
            inputs.permute(order), None, None, weight, bias, training=True, eps=layer.epsilon
        )
        return normed.permute(inverse)

    return call


def _dropout(layer: Any) -> Callable[..., Any]:
    """A dropout of a training pass, whose factors Keras makes by choosing between two tensors."""
    import torch

    def call(inputs: Any, **_: Any) -> Any:
        if not layer.rate:
            return inputs
        if layer.noise_shape is None:
            return torch.nn.functional.dropout(inputs, layer.rate, training=True)
        sizes = zip(layer.noise_shape, inputs.shape, strict=True)
        shape = [size if wanted is None else wanted for wanted, size in sizes]
        return inputs * torch.rand(shape, device="meta")

    return call


def _max_pool(layer: Any) -> Callable[..., Any]:
    """A pooling that runs on the meta device."""
    call = layer.call

    def pooled(inputs: Any) -> Any:
        with _keras().device(_MetaOfPools("meta")):
            return call(inputs)

    return pooled


_RECURRENT = ("LSTM", "GRU", "SimpleRNN")

_READ_AS = {
    "BatchNormalization": _batch_norm,
    "Dropout": _dropout,
    **dict.fromkeys(("MaxPooling1D", "MaxPooling2D", "MaxPooling3D"), _max_pool),
}
"""Layers that run in another way than Keras runs them, by class."""


def _with_biases(rows: Sequence[Layer]) -> tuple[Layer, ...]:
    """Rows with each bias as parameters of the convolution or product that it is added to."""
    readers = Counter(index for row in rows for index in row.inputs or ())
    new_index = {-1: -1}  # index of a row -> index among those that are kept
    kept: list[Layer] = []
    for row in rows:
        read = tuple(new_index[index] for index in row.inputs or ())
        source = kept[read[0]] if len(read) == 1 and read[0] >= 0 else None
        is_bias = source and row.type == "add" and row.parameters == source.out_channels
        if source and is_bias and OPERATOR_TYPES[source.type].product and readers[(row.inputs or ())[0]] == 1:
            kept[source.index] = replace(source, parameters=source.parameters + row.parameters)
            new_index[row.index] = source.index
        else:
            new_index[row.index] = len(kept)
            kept.append(replace(row, index=len(kept), inputs=read))
    return tuple(kept)
