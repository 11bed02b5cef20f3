"""The types of operators: one entry a type, with its work, its memory and its names in each framework.

To add a type: one entry of `OPERATOR_TYPES`, and a function in each backend of `proxy_cnns` that measures it. Until
the model was fitted on its measurements, `is_measured` stays False.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import sqrt
from typing import Literal, NamedTuple

Product = Literal["convolution", "transposed", "linear", "matmul", "attention", "recurrent"]


class Traffic(NamedTuple):
    """Reads and writes of one pass of a layer, in multiples of the size of its input, output and weights."""

    read_input: float = 0
    read_output: float = 0
    read_weights: float = 0
    written_input: float = 0
    written_output: float = 0
    written_weights: float = 0


class Work(NamedTuple):
    """FLOPs and traffic of the passes: forward, input's and weights' gradients.

    `flops` is per output number (where `OperatorType.has_window`: and per number of its window), None where the work
    is multiply-adds.
    """

    flops: tuple[float, float, float] | None
    forward: Traffic
    backward_input: Traffic
    backward_weight: Traffic = Traffic()


class Loops(NamedTuple):
    """What PyTorch's kernels of few threads take for an image beside the operator's traffic.

    A thread loops over images, and perhaps channels: `us_nchw` and `us_last` are microseconds of its steps for one
    image in each memory format, 0 where no kernel loops. They wait for memory, on an H100 as on other GPUs. `threads`
    run side by side. `added`: numbers whose pass in float32 takes as long as atomic additions of gradients.
    """

    us_nchw: float = 0.0
    us_last: float = 0.0
    threads: float = 1.0
    added: float = 0.0


def _bilinear(channels: float, inputs: float, outputs: float) -> Loops:
    """A thread for each position; backward each number adds four gradients, to fewer numbers the more a map widens."""
    return Loops(0.35 * channels, 0.0, outputs, 4.0 * max(1.0, sqrt(outputs / inputs)) * channels * outputs)


def _nearest(channels: float, inputs: float, outputs: float) -> Loops:
    """A thread for each number of the input, which sums the gradients that the number had."""
    return Loops(0.7 + 0.085 * outputs / inputs, 0.0, channels * inputs)


def _over_positions(us_nchw: float, us_last: float) -> Callable[[float, float, float], Loops]:
    """A thread for each position, forward and backward, with these steps over channels."""
    return lambda channels, _, outputs: Loops(us_nchw * channels, us_last * channels, outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorType:
    """One type of operator.

    Parameters
    ----------
    operator_class : str or None
        Class whose times are added up with one weight; None for a view, which runs no kernel.
    kernel_class : str
        Class of the fitted roofline that its kernels belong to; empty where it has none.
    work : Work
    work_with_weights : Work, optional
        Work with trainable numbers, if it differs.
    element_passes : (float, float)
        Reads and writes of a whole iteration, in passes over (input, output), of textbook algorithms; the
        fit corrects for each framework's implementation.
    product : str, optional
        Shape of its matrix products; None where it does a few operations per number.
    weights : {"filters", "scale_and_shift"}, optional
        Trainable numbers: filters and perhaps a bias, or two numbers per channel.
    is_layer : bool
        False for the loss and the optimizer, which are no rows of a layer table.
    keeps_input, keeps_output : bool
        Whether the backward pass needs its input, its output (for an activation, its kind decides).
    kept_bytes_per_output : float
        Further bytes kept per output: indices of max pooling (8), mask of dropout (1).
    amp_output : {"narrow", "wide", "input"}
        Type of its output under automatic mixed precision: 16 bits, 32 bits, or that of its input. A wide type keeps a
        32-bit copy of its input.
    same_shape : bool
        Whether its output has the shape of its input.
    has_window : bool
        Whether it reads a window of numbers for each number that it writes.
    positionwise : bool
        Whether it reads channels at each position, with channels last.
    gates : int
        Products of each position of a recurrent layer, such as the four gates of an LSTM; 0 for all others.
    loops : callable, optional
        `Loops` of a layer's channels, and of the positions of its input and output.
    has_depth : bool
        Whether it slides over volumes: depth, height and width.
    is_measured : bool
        Whether single operators of the type were measured and the model was fitted on them: its trees know the type.
    torch, onnx, chainer : tuple of str
        Names of operators, node types and function classes that are this type whatever their arguments; those
        whose arguments decide have a rule in `predictor.cnns`. The first of `torch` is what readers translate to.
    """

    operator_class: str | None
    kernel_class: str
    work: Work
    work_with_weights: Work | None = None
    element_passes: tuple[float, float] = (0.0, 0.0)
    product: Product | None = None
    weights: Literal["filters", "scale_and_shift"] | None = None
    is_layer: bool = True
    keeps_input: bool = False
    keeps_output: bool = False
    kept_bytes_per_output: float = 0.0
    amp_output: Literal["narrow", "wide", "input"] = "input"
    same_shape: bool = False
    has_window: bool = False
    positionwise: bool = False
    gates: int = 0
    loops: Callable[[float, float, float], Loops] | None = None
    has_depth: bool = False
    is_measured: bool = False
    torch: tuple[str, ...] = ()
    onnx: tuple[str, ...] = ()
    chainer: tuple[str, ...] = ()

    def work_of(self, parameters: int) -> Work:
        """Work of an operator, by its number of parameters."""
        return self.work_with_weights if self.work_with_weights and parameters else self.work

    @property
    def is_view(self) -> bool:
        """Whether operators of the type run no kernel."""
        return self.operator_class is None

    @property
    def is_recurrent(self) -> bool:
        """Whether operators of the type run through positions one after the other."""
        return self.gates > 0

    @property
    def is_convolution(self) -> bool:
        """Whether operators of the type slide trained filters over maps."""
        return self.product in ("convolution", "transposed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """One kind of activation: `in_place` if CNNs usually run it in place, `wide` if float32 under AMP.

    The backward pass needs its output if it `keeps_output`, or if it `keeps_output_in_place` and runs so; else it needs
    what it reads, in place a copy of it.
    """

    in_place: bool = False
    keeps_output: bool = False
    keeps_output_in_place: bool = False
    wide: bool = False
    torch: tuple[str, ...]
    onnx: tuple[str, ...] = ()
    chainer: tuple[str, ...] = ()


def _names(text: str) -> tuple[str, ...]:
    """The names in a text."""
    return tuple(text.split())


# fmt: off
ACTIVATIONS: dict[str, Activation] = {
    "relu": Activation(in_place=True, keeps_output=True, torch=("relu",), onnx=("Relu",), chainer=("ReLU",)),
    "relu6": Activation(in_place=True, torch=("relu6",)),
    "leaky_relu": Activation(
        in_place=True, keeps_output_in_place=True, torch=("leaky_relu",), onnx=("LeakyRelu",), chainer=("LeakyReLU",),
    ),
    "silu": Activation(in_place=True, torch=("silu",), onnx=("Swish",), chainer=("Swish",)),
    "gelu": Activation(torch=("gelu",), onnx=("Gelu",)),
    "hardswish": Activation(in_place=True, torch=("hardswish",), onnx=("HardSwish",)),
    "hardsigmoid": Activation(torch=("hardsigmoid",), onnx=("HardSigmoid",), chainer=("HardSigmoid",)),
    "sigmoid": Activation(keeps_output=True, torch=("sigmoid",), onnx=("Sigmoid",), chainer=("Sigmoid",)),
    "tanh": Activation(keeps_output=True, torch=("tanh",), onnx=("Tanh",), chainer=("Tanh",)),
    "softmax": Activation(
        keeps_output=True, wide=True, torch=("softmax", "_softmax", "log_softmax", "_log_softmax"),
        onnx=("Softmax", "LogSoftmax"), chainer=("Softmax", "LogSoftmax"),
    ),
}
# fmt: on
"""Kinds of activations."""

_READ_WRITE = Traffic(read_input=1, written_output=1)
_READ_WRITE_BACK = Traffic(read_output=1, written_input=1)
_COPY = Work((0, 0, 0), _READ_WRITE, _READ_WRITE_BACK)
_NOTHING = Work((0, 0, 0), Traffic(), Traffic())
_WEIGHTS_GRADIENT = Traffic(read_input=1, read_output=1, written_weights=1)
_PRODUCT = Work(
    None,
    Traffic(read_input=1, read_weights=1, written_output=1),
    Traffic(read_output=1, read_weights=1, written_input=1),
    _WEIGHTS_GRADIENT,
)
_NORM_BACK = Traffic(read_input=1, read_output=1, read_weights=1, written_input=1)
# Statistics are read from memory before the numbers are normalized, so the input is read twice.
_NORM_OF_MAPS = Traffic(read_input=2, read_weights=1, written_output=1)
_POINTWISE = Work((1, 1, 0), _READ_WRITE, Traffic(read_output=2, written_input=1))
_REDUCTION = Work((1, 1, 0), _READ_WRITE, _READ_WRITE_BACK)

# Each of the two gradients reads the output's gradient and one factor, and writes the other factor's gradient; the
# input is both factors together, so a half of it is read and a half is written.
_HALF = Traffic(read_input=0.5, read_output=1, written_input=0.5)

_CONVOLUTION = OperatorType(
    operator_class="convolution", kernel_class="conv", work=_PRODUCT, product="convolution", weights="filters",
    keeps_input=True, amp_output="narrow", is_measured=True,
)  # fmt: skip

# Backward sums dy and dy x, then makes dx from x and dy: with forward 8 tensors in all.
_BATCH_NORM = OperatorType(
    operator_class="batch_norm", kernel_class="batch_norm",
    work=Work((5, 4, 3), _NORM_OF_MAPS, _NORM_BACK, _WEIGHTS_GRADIENT), element_passes=(8.0, 0.0),
    weights="scale_and_shift", keeps_input=True, same_shape=True,
)  # fmt: skip

# By a learned scale: dx from dy and the weights, then the weights' gradients from x and dy.
_MULTIPLY = OperatorType(
    operator_class="multiply", kernel_class="multiply",
    work=Work((1, 3, 0), _READ_WRITE, Traffic(read_input=1, read_output=2, written_input=1)),
    work_with_weights=Work(
        (1, 1, 2), Traffic(read_input=1, read_weights=1, written_output=1),
        Traffic(read_output=1, read_weights=1, written_input=1), _WEIGHTS_GRADIENT,
    ),
    element_passes=(8.0, 0.0), keeps_input=True, same_shape=True,
)  # fmt: skip

# One layer of a recurrent network over all its positions. Of each it keeps the gates, and the state behind them.
_RECURRENT = OperatorType(
    operator_class="linear", kernel_class="matmul", work=_PRODUCT, product="recurrent", keeps_input=True,
    keeps_output=True, amp_output="narrow",
)  # fmt: skip

# Like a pooling run backwards; autocast computes it in float32.
_RESIZED = OperatorType(
    operator_class="pooling", kernel_class="avg_pool", work=Work((7, 7, 0), _READ_WRITE, _READ_WRITE_BACK),
    element_passes=(2.0, 2.0), amp_output="wide",
)  # fmt: skip

# fmt: off
OPERATOR_TYPES: dict[str, OperatorType] = {
    "conv2d": _CONVOLUTION,
    "conv_transpose2d": replace(_CONVOLUTION, product="transposed"),
    "linear": OperatorType(
        operator_class="linear", kernel_class="matmul", work=_PRODUCT, product="linear", weights="filters",
        keeps_input=True, amp_output="narrow", positionwise=True, torch=("linear",), onnx=("Gemm",),
        chainer=("LinearFunction",), is_measured=True,
    ),
    "batch_norm": replace(
        _BATCH_NORM, torch=("batch_norm", "native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"),
        onnx=("BatchNormalization",), chainer=("BatchNormalization",), is_measured=True,
    ),
    # The statistics of one position's channels fit in registers, so the input is read once.
    "layer_norm": OperatorType(
        operator_class="layer_norm", kernel_class="layer_norm",
        work=Work((5, 7, 3), Traffic(read_input=1, read_weights=1, written_output=1), _NORM_BACK, _WEIGHTS_GRADIENT),
        element_passes=(8.0, 0.0), weights="scale_and_shift", keeps_input=True, amp_output="wide", same_shape=True,
        positionwise=True, torch=("layer_norm", "native_layer_norm"), onnx=("LayerNormalization",),
        chainer=("LayerNormalization",), is_measured=True,
    ),
    "activation": OperatorType(
        operator_class="activation", kernel_class="activation", work=_POINTWISE, element_passes=(5.0, 0.0),
        same_shape=True, is_measured=True,
    ),
    "max_pool": OperatorType(
        operator_class="pooling", kernel_class="max_pool", work=Work((1, 0, 0), _READ_WRITE, _READ_WRITE_BACK),
        element_passes=(2.0, 3.0), keeps_input=True, kept_bytes_per_output=8.0, has_window=True, is_measured=True,
    ),
    "avg_pool": OperatorType(
        operator_class="pooling", kernel_class="avg_pool", work=_REDUCTION, element_passes=(2.0, 2.0), keeps_input=True,
        has_window=True, is_measured=True,
    ),
    # Its gradient passes unchanged, but where its branches began, gradients are added: counted here.
    "add": OperatorType(
        operator_class="add", kernel_class="add",
        work=Work((1, 1, 0), Traffic(read_input=2, written_output=1), Traffic(read_output=2, written_input=1)),
        element_passes=(3.0, 0.0), same_shape=True, torch=("add", "sub", "rsub"), onnx=("Add", "Sub", "Sum"),
        chainer=("Add", "AddConstant", "MultiAdd", "Sub", "SubFromConstant"), is_measured=True,
    ),
    "multiply": replace(_MULTIPLY, torch=("div", "addcmul"), onnx=("Div",), chainer=("Div",), is_measured=True),
    "concat": OperatorType(
        operator_class="concat", kernel_class="concat", work=_COPY, element_passes=(4.0, 0.0), same_shape=True,
        torch=("cat", "stack"), onnx=("Concat",), chainer=("Concat",), is_measured=True,
    ),
    "dropout": OperatorType(
        operator_class="dropout", kernel_class="dropout", work=Work((2, 1, 0), _READ_WRITE, _READ_WRITE_BACK),
        element_passes=(5.0, 0.0), kept_bytes_per_output=1.0, same_shape=True, is_measured=True,
    ),
    "stochastic_depth": OperatorType(
        operator_class="dropout", kernel_class="dropout", work=_REDUCTION, element_passes=(4.0, 0.0), same_shape=True,
        is_measured=True,
    ),
    "permute": OperatorType(
        operator_class="permute", kernel_class="permute", work=_COPY, element_passes=(4.0, 0.0), same_shape=True,
        torch=("channel_shuffle", "pixel_shuffle", "pixel_unshuffle"), is_measured=True,
    ),
    "pad": OperatorType(
        operator_class="permute", kernel_class="pad", work=_COPY, element_passes=(2.0, 2.0),
        torch=_names(
            "constant_pad_nd reflection_pad2d replication_pad2d repeat index index_put index_select gather scatter "
            "flip grid_sampler_2d grid_sampler_3d im2col col2im roi_align"
        ),
        chainer=("Pad",), is_measured=True,
    ),
    "flatten": OperatorType(operator_class=None, kernel_class="", work=_NOTHING, is_measured=True),
    "other": OperatorType(
        operator_class="permute", kernel_class="other", work=_REDUCTION, element_passes=(4.0, 2.0), keeps_input=True,
        keeps_output=True, is_measured=True,
    ),
    "loss": OperatorType(operator_class="loss", kernel_class="", work=_NOTHING, is_layer=False, is_measured=True),
    "optimizer": OperatorType(
        operator_class="optimizer", kernel_class="optimizer", work=_NOTHING, is_layer=False, is_measured=True,
    ),
    # The types below were never measured: each follows the kernels of the class most like it.
    # Convolutions over depth, height and width, measured without trees; rows hold depth x height as height.
    "conv3d": replace(_CONVOLUTION, has_depth=True, is_measured=False),
    "conv_transpose3d": replace(_CONVOLUTION, product="transposed", has_depth=True, is_measured=False),
    # Its statistics span positions, as batch norm's do.
    "group_norm": OperatorType(
        operator_class="layer_norm", kernel_class="layer_norm",
        work=Work((5, 7, 3), _NORM_OF_MAPS, _NORM_BACK, _WEIGHTS_GRADIENT), element_passes=(8.0, 0.0),
        weights="scale_and_shift", keeps_input=True, amp_output="wide", same_shape=True,
        torch=("group_norm", "native_group_norm"), onnx=("GroupNormalization",), chainer=("GroupNormalization",),
    ),
    # PyTorch runs it as a batch norm of one image with the channels of all.
    "instance_norm": replace(_BATCH_NORM, torch=("instance_norm",), onnx=("InstanceNormalization",)),
    # Multiplies what is negative by a learned scale; autocast narrows its input and its scale.
    "prelu": replace(
        _MULTIPLY, amp_output="narrow", torch=("_prelu_kernel",), onnx=("PRelu",), chainer=("PReLUFunction",),
    ),
    # Bilinear, or linear along a line: four products and three sums for each number.
    "upsample": replace(
        _RESIZED, loops=_bilinear, torch=("upsample_bilinear2d", "upsample_linear1d"), chainer=("ResizeImages",),
    ),
    "upsample_nearest": replace(
        _RESIZED, work=_COPY, loops=_nearest,
        torch=_names(
            "upsample_nearest2d upsample_nearest1d upsample_nearest3d _upsample_nearest_exact2d "
            "_upsample_nearest_exact1d _upsample_nearest_exact3d"
        ),
        onnx=("Resize", "Upsample"), chainer=("Unpooling2D", "UnpoolingND"),
    ),
    # Sixteen products and fifteen sums for each number.
    "upsample_bicubic": replace(
        _RESIZED, work=Work((31, 31, 0), _READ_WRITE, _READ_WRITE_BACK), loops=_over_positions(2.8, 6.0),
        torch=("upsample_bicubic2d",),
    ),
    # Of volumes: eight products and seven sums.
    "upsample_trilinear": replace(
        _RESIZED, work=Work((15, 15, 0), _READ_WRITE, _READ_WRITE_BACK), loops=_over_positions(1.8, 1.8),
        torch=("upsample_trilinear3d",),
    ),
    # Bilinear or bicubic over a window that widens as the map shrinks.
    "upsample_antialias": replace(
        _RESIZED, element_passes=(16.0, 26.0), torch=("_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"),
    ),
    # A product of two feature maps, `groups` of them for each image; its input is both factors.
    "matmul": OperatorType(
        operator_class="linear", kernel_class="matmul", work=Work(None, _READ_WRITE, _HALF, _HALF), product="matmul",
        keeps_input=True, amp_output="narrow",
    ),
    # softmax(q k') v in one operator: forward two products, backward five, of which one is computed again.
    "attention": OperatorType(
        operator_class="linear", kernel_class="matmul",
        work=Work(None, _READ_WRITE, Traffic(read_input=1, read_output=2, written_input=1)), product="attention",
        keeps_input=True, keeps_output=True, amp_output="narrow",
    ),
    "lstm": replace(_RECURRENT, gates=4, kept_bytes_per_output=20.0),
    "gru": replace(_RECURRENT, gates=3, kept_bytes_per_output=16.0),
    "rnn": replace(_RECURRENT, gates=1),
    # A function of each number.
    "clamp": OperatorType(
        operator_class="activation", kernel_class="activation", work=_POINTWISE, element_passes=(5.0, 0.0),
        keeps_input=True, same_shape=True,
        torch=_names(
            "acos asin ceil cos floor log2 maximum minimum remainder round sin atan atan2 bitwise_and bitwise_not "
            "bitwise_or bitwise_xor logical_and logical_or logical_xor binary_cross_entropy_with_logits huber_loss "
            "l1_loss mse_loss smooth_l1_loss abs exp log log1p neg pow reciprocal rsqrt sign sqrt xlogy elu softplus "
            "mish eq ge gt le lt ne logical_not masked_fill where"
        ),
        onnx=("Abs", "Elu", "Exp", "Log", "Mish", "Neg", "Pow", "Reciprocal", "Sign", "Softplus", "Sqrt", "Where"),
    ),
    "roll": OperatorType(
        operator_class="permute", kernel_class="permute", work=_COPY, element_passes=(4.0, 0.0), same_shape=True,
        torch=("roll",),
    ),
    # A sum or mean over channels or positions: a pooling whose window is all that it reduces.
    "mean": OperatorType(
        operator_class="pooling", kernel_class="avg_pool", work=_REDUCTION, element_passes=(2.0, 2.0), has_window=True,
    ),
}
# fmt: on
"""Every type of operator."""

LAYER_TYPES = tuple(name for name, entry in OPERATOR_TYPES.items() if entry.is_layer)
"""Types of rows of a layer table."""

ACTIVATION_KINDS = tuple(ACTIVATIONS)

RUNNING = "running"
"""Kind of a batch norm that takes its running statistics, as in eval mode: a scale and a shift of each number."""

KINDS = {
    "activation": ACTIVATION_KINDS,
    "batch_norm": (None, RUNNING),
    "permute": (None, "nchw", "channels_last"),
}
"""Kinds of the layers of a type that has some; a permute's is the memory format in which it leaves a map whose
dimensions keep their order."""

FILLED = {
    "batch_norm": (1, 1, 8),  # with statistics, what cuDNN keeps, and gradients of both weights
    "layer_norm": (1, 1, 6),
    "group_norm": (1, 1, 6),
    "permute": (1, 1, 2),
    "concat": (0, 1, 1),  # the slices of its gradient
    "dropout": (1.25, 0, 2),
    "depthwise": (1, 1, 3),  # PyTorch's own kernels, which run all in NCHW
    "clamp": (0, 1, 1),  # the gradient of relu6 and its like
    "weights": (0, 0, 1),  # their gradient, where cuDNN or a matrix product does the rest
}
"""What layers allocate by `torch.empty` in both passes: maps like the output, maps like the input, all tensors."""

UNLIKE_KEEPERS = ("clamp", "mean", "other", "pad")
"""Types whose operators do not all keep the same for their backward pass."""
"""Kinds of a row of type ``activation``."""

OPERATOR_CLASSES = {
    name: entry.operator_class for name, entry in OPERATOR_TYPES.items() if entry.operator_class is not None
}
"""Type of an operator -> its class; depthwise convolutions are a separate class."""

VOLUME_TYPES = tuple(name for name, entry in OPERATOR_TYPES.items() if entry.has_depth)
"""Types that slide over volumes."""

RECURRENT_TYPES = tuple(name for name, entry in OPERATOR_TYPES.items() if entry.is_recurrent)
"""Types that run through positions one after the other."""

RESIZING_TYPES = tuple(name for name in OPERATOR_TYPES if name.startswith("upsample"))
"""Types that give a map another size, by the values between its pixels."""

VIEW_TYPES = frozenset(name for name, entry in OPERATOR_TYPES.items() if entry.is_view)
"""Types that run no kernel."""

FUNCTION_TYPES = ("activation", "add", "clamp", "concat", "mean", "multiply", "pad")
"""Functions that training code calls on lists of boxes and scores, too."""
