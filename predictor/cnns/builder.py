"""Writes a CNN's layer table layer by layer, without a deep-learning framework."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from predictor.cnns.layer_table import IMAGE, Layer, LayerTable
from predictor.errors import OutOfRangeError

Pair = int | tuple[int, int]
"""One number for both dimensions, or (height, width)."""


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """Output of one row, per image; `index` is that row, or IMAGE for the CNN's input."""

    index: int
    channels: int
    height: int
    width: int

    def part(self, channels: int) -> FeatureMap:
        """Return some of its channels, as a view of the same row."""
        return replace(self, channels=channels)


def pair(value: Pair) -> tuple[int, int]:
    """Return (height, width) of a number or pair."""
    return (value, value) if isinstance(value, int) else value


def window_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Output size of a convolution or pooling; below 1 where the window does not fit."""
    return (size + 2 * padding - kernel) // stride + 1


def ceil_window_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """Output size of a pooling that rounds up; its last window begins inside the input or left padding."""
    out = (size + 2 * padding - kernel + stride - 1) // stride + 1
    return out - 1 if (out - 1) * stride >= size + padding else out


_Window = tuple[
    int | None, int | None, int | None, int | None, int | None, int | None, int | None, int | None
]
"""Kernel, stride and padding (height and width), dilation, groups: the order of Layer's fields."""

_NO_WINDOW: _Window = (None, None, None, None, None, None, None, None)


class NetBuilder:
    """Rows of one CNN at one image size, appended in the order in which they run.

    Every operator takes the feature map it reads and the row's name, and returns the feature map it writes.
    OutOfRangeError if the image is too small for an output of at least one pixel.

    Parameters
    ----------
    cnn : str
        Name that the table will carry.
    image_size : int
        Height and width of the (square) images, pixels.
    in_channels : int
        Channels of the CNN's input.
    source : str
        Source of the table; ``zoo`` for CNNs of the zoo.

    Attributes
    ----------
    image, vector : FeatureMap
        The CNN's input: as an image, or (for a CNN that makes images) as a vector.

    Examples
    --------
    >>> net = NetBuilder("tiny", image_size=32)
    >>> x = net.conv_norm(net.image, "conv", 16, kernel=3)
    >>> x = net.linear(net.flatten(net.adaptive_avg_pool(x)), "classes", 10)
    >>> [layer.type for layer in net.table()]
    ['conv2d', 'batch_norm', 'activation', 'avg_pool', 'flatten', 'linear']
    """

    def __init__(self, cnn: str, image_size: int, in_channels: int = 3, source: str = "python") -> None:
        self.cnn = cnn
        self.image_size = image_size
        self.source = source
        self.image = FeatureMap(IMAGE, in_channels, image_size, image_size)
        self.vector = FeatureMap(IMAGE, in_channels, 1, 1)
        self._layers: list[Layer] = []

    def table(self) -> LayerTable:
        """Return the rows so far as a layer table."""
        return LayerTable(self.cnn, self.image_size, tuple(self._layers), source=self.source)

    def conv(
        self,
        x: FeatureMap,
        name: str,
        out_channels: int,
        kernel: Pair,
        stride: int = 1,
        padding: Pair = 0,
        groups: int = 1,
        bias: bool = True,
    ) -> FeatureMap:
        """2-D convolution."""
        (kh, kw), (ph, pw) = pair(kernel), pair(padding)
        out = (out_channels, window_size(x.height, kh, stride, ph), window_size(x.width, kw, stride, pw))
        trained = out_channels * (x.channels // groups) * kh * kw + bias * out_channels
        window = _window(kernel, stride, padding, dilation=1, groups=groups)
        return self._row("conv2d", name, (x,), x, out, window, parameters=trained)

    def conv_transpose(
        self, x: FeatureMap, name: str, out_channels: int, kernel: int, stride: int = 1, padding: int = 0
    ) -> FeatureMap:
        """2-D transposed convolution without bias."""
        height, width = ((size - 1) * stride - 2 * padding + kernel for size in (x.height, x.width))
        trained = x.channels * out_channels * kernel * kernel
        window = _window(kernel, stride, padding, dilation=1, groups=1)
        out = (out_channels, height, width)
        return self._row("conv_transpose2d", name, (x,), x, out, window, parameters=trained)

    def linear(self, x: FeatureMap, name: str, out_features: int, bias: bool = True) -> FeatureMap:
        """Dense layer over the channels, at every position that `x` has."""
        out = (out_features, x.height, x.width)
        return self._row("linear", name, (x,), x, out, parameters=out_features * (x.channels + bias))

    def batch_norm(self, x: FeatureMap, name: str) -> FeatureMap:
        """Batch normalization with scale and shift."""
        return self._same_shape("batch_norm", x, name, parameters=2 * x.channels)

    def layer_norm(self, x: FeatureMap, name: str) -> FeatureMap:
        """Layer normalization over the channels, with scale and shift."""
        return self._same_shape("layer_norm", x, name, parameters=2 * x.channels)

    def activation(self, x: FeatureMap, name: str, kind: str = "relu") -> FeatureMap:
        """Activation of a `kind` of `predictor.operator_types.ACTIVATION_KINDS`, which is not checked here."""
        return self._same_shape("activation", x, name, kind=kind)

    def conv_norm(
        self,
        x: FeatureMap,
        name: str,
        out_channels: int,
        kernel: Pair,
        stride: int = 1,
        padding: Pair | None = None,
        groups: int = 1,
        activation: str | None = "relu",
    ) -> FeatureMap:
        """Convolution without bias, batch norm, activation (or None); padding keeps the size by default."""
        if padding is None:
            kh, kw = pair(kernel)
            padding = (kh // 2, kw // 2)
        x = self.conv(x, name, out_channels, kernel, stride, padding, groups, bias=False)
        x = self.batch_norm(x, f"{name}.norm")
        return x if activation is None else self.activation(x, f"{name}.{activation}", activation)

    def max_pool(
        self, x: FeatureMap, name: str, kernel: int, stride: int, padding: int = 0, ceil: bool = False
    ) -> FeatureMap:
        """Max pooling; `ceil` rounds the output size up."""
        size_of = ceil_window_size if ceil else window_size
        height, width = (size_of(size, kernel, stride, padding) for size in (x.height, x.width))
        out = (x.channels, height, width)
        return self._row("max_pool", name, (x,), x, out, _window(kernel, stride, padding))

    def avg_pool(self, x: FeatureMap, name: str, kernel: int, stride: int, padding: int = 0) -> FeatureMap:
        """Average pooling."""
        height, width = (window_size(size, kernel, stride, padding) for size in (x.height, x.width))
        out = (x.channels, height, width)
        return self._row("avg_pool", name, (x,), x, out, _window(kernel, stride, padding))

    def adaptive_avg_pool(self, x: FeatureMap, name: str = "avgpool", size: int = 1) -> FeatureMap:
        """Average pooling to `size` x `size`, written as kernel ceil(in / out) and stride floor(in / out)."""
        kernel, stride = (-(-x.height // size), -(-x.width // size)), (x.height // size, x.width // size)
        return self._row("avg_pool", name, (x,), x, (x.channels, size, size), _window(kernel, stride, 0))

    def add(self, x: FeatureMap, y: FeatureMap, name: str) -> FeatureMap:
        """Sum of two feature maps, with the shape of `x`; that of `y` is not checked."""
        return self._row("add", name, (x, y), x, (x.channels, x.height, x.width))

    def multiply(self, x: FeatureMap, factors: FeatureMap, name: str) -> FeatureMap:
        """Product of a feature map and one computed factor for each of its channels."""
        return self._row("multiply", name, (factors, x), x, (x.channels, x.height, x.width))

    def layer_scale(self, x: FeatureMap, name: str) -> FeatureMap:
        """Product with one learned factor for each channel."""
        return self._same_shape("multiply", x, name, parameters=x.channels)

    def concat(self, xs: Sequence[FeatureMap], name: str) -> FeatureMap:
        """Channels of all `xs`, one after the other."""
        joined = replace(xs[0], channels=sum(x.channels for x in xs))
        return self._row("concat", name, xs, joined, (joined.channels, joined.height, joined.width))

    def dropout(self, x: FeatureMap, name: str) -> FeatureMap:
        """Dropout of single numbers, with a probability above 0."""
        return self._same_shape("dropout", x, name)

    def stochastic_depth(self, x: FeatureMap, name: str) -> FeatureMap:
        """Dropout of whole images of a mini-batch, with a probability above 0."""
        return self._same_shape("stochastic_depth", x, name)

    def permute(self, x: FeatureMap, name: str) -> FeatureMap:
        """Change of order that moves every number, such as a channel shuffle or NCHW to NHWC."""
        return self._same_shape("permute", x, name)

    def flatten(self, x: FeatureMap, name: str = "flatten") -> FeatureMap:
        """All numbers of an image as one vector."""
        return self._row("flatten", name, (x,), x, (x.channels * x.height * x.width, 1, 1))

    def _same_shape(
        self, type_: str, x: FeatureMap, name: str, kind: str | None = None, parameters: int = 0
    ) -> FeatureMap:
        out = (x.channels, x.height, x.width)
        return self._row(type_, name, (x,), x, out, kind=kind, parameters=parameters)

    def _row(
        self,
        type_: str,
        name: str,
        inputs: Sequence[FeatureMap],
        shape: FeatureMap,
        out: tuple[int, int, int],
        window: _Window = _NO_WINDOW,
        kind: str | None = None,
        parameters: int = 0,
    ) -> FeatureMap:
        index, (channels, height, width) = len(self._layers), out
        if height < 1 or width < 1:
            raise OutOfRangeError(
                f"image_size {self.image_size} is too small for {self.cnn}: {name!r} would have no output. "
                "Pass a larger image_size."
            )
        read = tuple([x.index for x in inputs])
        before = (shape.channels, shape.height, shape.width)
        self._layers.append(Layer(index, name, type_, kind, read, *before, *out, *window, parameters))
        return FeatureMap(index, channels, height, width)


def _window(
    kernel: Pair, stride: Pair, padding: Pair, dilation: int | None = None, groups: int | None = None
) -> _Window:
    return (*pair(kernel), *pair(stride), *pair(padding), dilation, groups)


def make_divisible(channels: float, divisor: int = 8) -> int:
    """Multiple of `divisor` nearest to `channels`, but at least `divisor` and 0.9 `channels`.

    The rounding of MobileNet's width multiplier (Howard et al., arXiv:1704.04861, and its reference code).
    """
    rounded = max(divisor, int(channels + divisor / 2) // divisor * divisor)
    return rounded if rounded >= 0.9 * channels else rounded + divisor


def squeeze_excitation(
    net: NetBuilder, x: FeatureMap, name: str, squeezed: int, activation: str = "relu", gate: str = "sigmoid"
) -> FeatureMap:
    """Rescale channels by a two-layer bottleneck of their means (Hu et al., arXiv:1709.01507)."""
    factors = net.adaptive_avg_pool(x, f"{name}.avgpool")
    factors = net.conv(factors, f"{name}.fc1", squeezed, 1)
    factors = net.activation(factors, f"{name}.{activation}", activation)
    factors = net.conv(factors, f"{name}.fc2", x.channels, 1)
    factors = net.activation(factors, f"{name}.{gate}", gate)
    return net.multiply(x, factors, f"{name}.multiply")


def inverted_bottleneck(
    net: NetBuilder,
    x: FeatureMap,
    name: str,
    inner: int,
    channels: int,
    kernel: int,
    stride: int,
    activation: str = "relu",
    excitation: tuple[int, str, str] | None = None,
) -> FeatureMap:
    """Expansion to `inner` channels, a depthwise convolution, and a projection to `channels` (arXiv:1801.04381).

    `excitation`: squeezed channels, activation and gate of a squeeze-and-excitation before the projection.
    """
    y = x if inner == x.channels else net.conv_norm(x, f"{name}.expand", inner, 1, activation=activation)
    y = net.conv_norm(y, f"{name}.depthwise", inner, kernel, stride, groups=inner, activation=activation)
    if excitation is not None:
        y = squeeze_excitation(net, y, f"{name}.se", *excitation)
    return net.conv_norm(y, f"{name}.project", channels, 1, activation=None)


def classify(net: NetBuilder, x: FeatureMap, classes: int, dropout: bool = False) -> FeatureMap:
    """Global average, as a vector, with dropout if asked for, through one dense layer."""
    x = net.flatten(net.adaptive_avg_pool(x))
    if dropout:
        x = net.dropout(x, "dropout")
    return net.linear(x, "fc", classes)
