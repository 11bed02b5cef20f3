"""The operators of the presets `quick`, `library` and `trainings`: designed, or those that designs and the zoo lack.

A family of designed shapes is one line of datasets/profiles/families.json: how its shapes are drawn, and how many of
them the smallest library has. Every draw gives the same numbers on every machine, so the code defines the library.
Convolutions get most of a library because their efficiency changes with every side of their shape (which kernels
cuDNN takes). The time of the other operators follows their bytes, so a ladder of sizes is enough.

A library has two parts: designed shapes, which no CNN of the zoo has, and the convolutions of a few common CNNs, for
whose shapes cuDNN has kernels of their own. So a library covers any other CNN of the zoo as well as
a user's own.

Operators of training steps lie in datasets/profiles/trainings.json, in lists for similar trainings, each with the batch
sizes and modes it is measured in; shapes are those of common repositories' defaults and their neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache, lru_cache, partial
from itertools import chain, count, islice, product, zip_longest
from math import prod
from random import Random
from typing import Any, TypeVar

from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn, zoo_names
from predictor.files import data_file
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES, VOLUME_TYPES
from predictor.operators.operators import Operator, alone, operators_of
from proxy_cnns.configuration import mode_of

_T = TypeVar("_T")

_USUAL_SIDES = (1, 2, 4, 7, 8, 14, 16, 28, 32, 56, 64, 112, 128, 224)
_SHARE_OF_USUAL_SIDES = 0.55
_GOLDEN = 0.6180339887498949


class Draw:
    """One point of the space of shapes: its first coordinates fill the space evenly, the rest are random.

    `point`: coordinates in 0..1, taken one by one by `between`. `random`: seeded; decides kinds, such as a bias or
    none, rather than sizes.
    """

    def __init__(self, point: Sequence[float], random: Random) -> None:
        self._left = iter(point)
        self._random = random

    def between(self, low: float, high: float) -> float:
        """Return a number of low..high; equal steps of the coordinate are equal ratios."""
        return float(low * (high / low) ** next(self._left))

    def side(self, low: int, high: int) -> int:
        """Height and width of a feature map: any, and half the time one that image sizes halve to."""
        side = self.between(low, high)
        usual = [usual_side for usual_side in _USUAL_SIDES if low <= usual_side <= high]
        if usual and self.happens(_SHARE_OF_USUAL_SIDES):
            return min(usual, key=lambda usual_side: max(usual_side / side, side / usual_side))
        return round(side)

    def channels(self, width: float) -> int:
        """Round to a number of channels: mostly multiples of 8 (above 256 of 32), some of 2, some odd."""
        kind = self._random.random()
        step = 8 if kind < 0.72 and width >= 12 else 2 if kind < 0.88 else 1
        if width > 256 and kind < 0.4:
            step = 32
        return max(step, round(width / step) * step) if step > 1 else max(1, round(width) // 2 * 2 + 1)

    def happens(self, share: float) -> bool:
        """Return True in this share of the draws."""
        return self._random.random() < share

    def one_of(self, choices: Sequence[_T]) -> _T:
        """Return one of the choices, each as likely."""
        return choices[int(self._random.random() * len(choices))]


def draws(seed: str, dimensions: int = 3) -> Iterator[Draw]:
    """Endless draws; the first n of them fill the space about as evenly as n points can.

    Additive recurrence with the generalized golden ratio, x^(d+1) = x + 1 (M. Roberts, "The unreasonable effectiveness
    of quasirandom sequences", 2018), shifted by the seed.
    """
    random = Random(seed)  # noqa: S311 - shapes, no secrets
    ratio = 2.0
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (dimensions + 1))
    steps = [ratio ** -(axis + 1) for axis in range(dimensions)]
    starts = [random.random() for _ in steps]
    for number in count():
        point = [(start + number * step) % 1 for start, step in zip(starts, steps, strict=True)]
        yield Draw(point, random)


def spread_order(values: Sequence[_T]) -> list[_T]:
    """Reorder by golden-ratio steps: every first part of the list is then spread over the whole of it."""
    ranks = [(position * _GOLDEN) % 1 for position in range(len(values))]
    return [values[position] for position in sorted(range(len(values)), key=ranks.__getitem__)]


Make = Callable[[Draw], Operator | None]
"""Makes the shape at one point of the space; None where it is larger than layers of CNNs."""


def from_to(type_: str, of: tuple[int, int, int], to: tuple[int, int, int], **more: Any) -> Operator:
    """Operator from one shape (channels, height, width) to another."""
    names = ("in_channels", "in_height", "in_width", "out_channels", "out_height", "out_width")
    return Operator(type_, **more | dict(zip(names, of + to, strict=True)))


def _window(kernel: tuple[int, int], stride: int, padding: tuple[int, int]) -> dict[str, Any]:
    names = ("kernel", "stride", "padding")
    sizes = dict(zip(names, (kernel, (stride, stride), padding), strict=True))
    sides = enumerate(("height", "width"))
    return {f"{name}_{side}": sizes[name][axis] for axis, side in sides for name in names}


_POINT, _CUBE = (1, 1, 1), (3, 3, 3)


def conv(
    in_channels: int, side: int | tuple[int, ...], out_channels: int, kernel: tuple[int, ...],
    stride: int | tuple[int, ...] = 1, groups: int = 1, dilation: int = 1, padded: bool = True, bias: bool = False,
    first: bool = False, wide: bool = False, transposed: bool = False,
) -> Operator:  # fmt: skip
    """Convolution over (height, width) or (depth, height, width); one `side` or `stride` stands for all.

    `padded` keeps the size at stride 1, and a transposed one multiplies it by its stride; patches (kernel = stride) are
    never padded.
    """
    sides, strides = (size if isinstance(size, tuple) else (size,) * len(kernel) for size in (side, stride))
    paddings, outs = [], []
    for size, k, s in zip(sides, kernel, strides, strict=True):
        reach = dilation * (k - 1) + 1
        paddings.append((reach + 1 - s if transposed else reach - 1) // 2 * (padded and k != s))
        if transposed:
            outs.append(size * s if padded else (size - 1) * s + reach)
        else:
            outs.append((size + 2 * paddings[-1] - reach) // s + 1)
    columns = {
        f"{name}_{axis}": size
        for name, sizes in (("kernel", kernel), ("stride", strides), ("padding", paddings))
        for axis, size in zip(("width", "height", "depth"), reversed(sizes), strict=False)
    }
    if len(kernel) == 3:  # heights are those of all depths together
        columns |= {"in_depth": sides[0], "out_depth": outs[0]}
        columns |= {"kernel_height": kernel[0] * kernel[1], "stride_height": strides[0] * strides[1]}
    return from_to(
        f"conv{'_transpose' * transposed}{len(kernel)}d",
        (in_channels, prod(sides[:-1]), sides[-1]),
        (out_channels, prod(outs[:-1]), outs[-1]),
        **columns,
        dilation=dilation,
        groups=groups,
        parameters=in_channels // groups * out_channels * prod(kernel) + bias * out_channels,
        input_gradient=not first,
        wide_input=wide or first,
    )


def linear(in_channels: int, out_channels: int, side: int = 1, wide: bool = False) -> Operator:
    """Linear layer with bias over the channels, at each position of a map; side 1: on vectors."""
    shapes = (in_channels, side, side), (out_channels, side, side)
    return from_to("linear", *shapes, parameters=(in_channels + 1) * out_channels, wide_input=wide)


def pool(type_: str, channels: int, side: int, kernel: int, stride: int, padding: int = 0) -> Operator:
    """``max_pool`` or ``avg_pool``; a global one has kernel = stride = side."""
    out = (side + 2 * padding - kernel) // stride + 1
    window = _window((kernel, kernel), stride, (padding, padding))
    return from_to(type_, (channels, side, side), (channels, out, out), **window)


def adaptive_pool(channels: int, side: int, out: int) -> Operator:
    """``avg_pool`` to a fixed size, which may be larger than its input; kernel and stride as in layer tables."""
    kernel = -(-side // out)
    window = _window((kernel, kernel), side // out, (0, 0))
    return from_to("avg_pool", (channels, side, side), (channels, out, out), **window)


def same_shape(type_: str, channels: int, side: int, **more: Any) -> Operator:
    """Operator whose output has the shape of its input: norms, activations, sums, products, concats."""
    parameters = 2 * channels if OPERATOR_TYPES[type_].weights == "scale_and_shift" else 0
    shape = (channels, side, side)
    return replace(from_to(type_, shape, shape, parameters=parameters), **more)


def optimizer(n_tensors: int, parameters: int) -> Operator:
    """Update of `n_tensors` tensors with `parameters` numbers in all."""
    return Operator("optimizer", n_tensors=n_tensors, parameters=parameters)


_MOST_CHANNELS = 8192
_MOST_NUMBERS_OF_CONVOLUTIONS = 6_000_000  # of a map of one image
_MOST_WEIGHTS = 60_000_000


def _convolution(
    draw: Draw, *, kernels: Sequence[tuple[int, int]], strides: Sequence[int] = (1,), dilations: Sequence[int] = (1,),
    sides: tuple[int, int] = (7, 150), spans: tuple[float, float] = (400, 40_000), ratios: tuple[float, float] = (1, 1),
    group_widths: Sequence[int] = (), channels: Sequence[int] = (), outputs: tuple[float, float] = (0, 0),
    bias: float = 0.0, wide: float = 0.0, unpadded: float = 0.0,
) -> Operator | None:  # fmt: skip
    """A shape that cuDNN runs with kernels of one kind, or None if it is larger than layers of CNNs.

    `sides` are heights of the input, `spans` its channels x height (in CNNs channels grow as maps shrink), `ratios`
    output over input channels: each the least and the most. `group_widths` are input channels of a group: () dense,
    (1,) depthwise. `channels`, `outputs`: of a first layer, in place of spans and ratios. `bias`, `wide`, `unpadded`:
    shares of the shapes that have it.
    """
    kernel, stride = draw.one_of(kernels), draw.one_of(strides)
    side = draw.side(*sides)
    first = bool(channels)
    width = draw.between(*spans) / side
    in_channels = draw.one_of(channels) if first else draw.channels(width)
    out_width = draw.between(*outputs) if first else in_channels * draw.between(*ratios)
    if group_widths:
        group_width = draw.one_of(group_widths)
        groups = max(2, round(in_channels / group_width))
        in_channels = out_channels = groups * group_width
    else:
        out_channels, groups = draw.channels(out_width), 1
    dilation, padded = draw.one_of(dilations), not draw.happens(unpadded)
    flags = {"bias": draw.happens(bias), "first": first, "wide": draw.happens(wide)}
    operator = conv(in_channels, side, out_channels, kernel, stride, groups, dilation, padded, **flags)
    out_side = operator.out_height or 0
    numbers = max(in_channels * side * side, out_channels * out_side * out_side)
    small = max(in_channels, out_channels) <= _MOST_CHANNELS and numbers <= _MOST_NUMBERS_OF_CONVOLUTIONS
    is_usual = small and operator.parameters <= _MOST_WEIGHTS and min(out_side, operator.out_width or 0) > 0
    return operator if is_usual else None


def _transposed(draw: Draw) -> Operator:
    """Upsampling, as generators do it."""
    side, kernel = draw.side(4, 64), draw.one_of((2, 4, 4))
    in_channels = draw.channels(draw.between(1000, 4000) / side)
    out_channels = draw.channels(in_channels * draw.between(0.04, 1))
    return conv(in_channels, side, out_channels, (kernel, kernel), 2, transposed=True)


def _transposed_vectors(draw: Draw) -> Operator:
    """First layer of a generator: a random vector becomes a small map."""
    ins = draw.channels(draw.between(50, 200))
    outs = draw.channels(draw.between(100, 1000))
    return conv(ins, 1, outs, (4, 4), padded=False, first=True, transposed=True)


_MOST_NUMBERS = 20_000_000  # of a map of one image; of convolutions fewer


def _size(
    draw: Draw, low: int = 4, high: int = 240, spans: tuple[float, float] = (350, 60_000)
) -> tuple[int, int]:
    """Channels and side of a map; `spans`: the least and most of their product."""
    side = draw.side(low, high)
    return draw.channels(min(7500, draw.between(*spans) / side)), side


def _map(
    draw: Draw, operator_type: str, low: int = 4, high: int = 240, spans: tuple[float, float] = (350, 60_000),
    even: bool = False, wide: float | None = None, vectors: float | None = None, **more: Any,
) -> Operator:  # fmt: skip
    """On a map, or in the share `vectors` of the shapes on a vector; `wide`: the share that reads float32 always."""
    if vectors is not None and draw.happens(vectors):
        return _channels_of(draw, operator_type, 3, 7000, **more)
    channels, side = _size(draw, low, high, spans)
    more |= {} if wide is None else {"wide_input": draw.happens(wide)}
    return same_shape(operator_type, channels + channels % 2 * even, side, **more)


def _channels_of(
    draw: Draw, operator_type: str, low: float, high: float, sides: tuple[int, int] | None = None,
    scale: bool = False, **more: Any,
) -> Operator:  # fmt: skip
    """On `low` to `high` channels whatever the side, 1 without `sides`; `scale`: a learned factor for each channel."""
    channels = draw.channels(draw.between(low, high))
    more |= {"parameters": channels} if scale else {}
    return same_shape(operator_type, channels, draw.side(*sides) if sides else 1, **more)


def _concat(
    draw: Draw,
    sides: tuple[int, int],
    tensors: tuple[float, float],
    widths: tuple[float, float],
    shared: bool = False,
) -> Operator:
    """Tensors of one width each, as dense blocks and branches join them: up to 49 in DenseNet, narrow on small maps.

    `widths` are the channels of a tensor, or, if `shared`, these times the side and the number of tensors.
    """
    side, n, width = draw.side(*sides), round(draw.between(*tensors)), draw.between(*widths)
    return same_shape(
        "concat", n * max(8, draw.channels(width / side / n if shared else width)), side, n_tensors=n
    )


def _concat_forward(draw: Draw) -> Operator:
    channels, side = _size(draw, 7, 60)
    return same_shape("concat", channels // 2 * 2 or 2, side, n_tensors=2, passes="forward")


def _linear_vectors(draw: Draw) -> Operator:
    wide = draw.happens(0.2)
    return linear(draw.channels(draw.between(64, 26_000)), draw.channels(draw.between(8, 4500)), wide=wide)


def _linear_maps(draw: Draw) -> Operator:
    """Linear layers on maps widen or narrow them four times, in CNNs that borrow from transformers."""
    side, widen = draw.side(7, 60), draw.happens(0.5)
    narrow = draw.channels(draw.between(4500, 12_000) / side)
    return linear(narrow, 4 * narrow, side, wide=True) if widen else linear(4 * narrow, narrow, side)


def _pool(draw: Draw, operator_type: str, low: int = 8, high: int = 230, **window: int) -> Operator:
    return pool(operator_type, *_size(draw, low, high), **window)


def _pool_up(draw: Draw) -> Operator:
    """An adaptive pool that widens: a classifier made for larger images reads a small map."""
    side, out = round(draw.between(1, 3.4)), draw.one_of((6, 7))
    return adaptive_pool(draw.channels(draw.between(128, 1024)), side, out)


def _global_pool(draw: Draw, low: int = 4, high: int = 300) -> Operator:
    channels, side = _size(draw, low, high)
    return replace(pool("avg_pool", channels, side, side, side), wide_input=draw.happens(0.1))


def _optimizer(draw: Draw) -> Operator:
    n_tensors = round(draw.between(7, 1000))
    return optimizer(n_tensors, max(100 * n_tensors, round(draw.between(4e4, 4e8))))


def _loss(draw: Draw) -> Operator:
    without_output = dict.fromkeys(("out_channels", "out_height", "out_width"))
    return same_shape("loss", draw.channels(draw.between(1, 22_000)), 1, **without_output)


_HEAD_WIDTHS = (16, 32, 32, 64, 64, 96)
_HEADS = (1, 2, 3, 4, 6, 8, 12, 16)


def _map_size(draw: Draw, low: int = 4, high: int = 128, most: int = 2048) -> tuple[int, int]:
    """Channels, a multiple of 8, and side of a map."""
    side = draw.side(low, high)
    return max(8, round(min(most, draw.between(500, 20_000) / side) / 8) * 8), side


def _same(draw: Draw, operator_type: str, wide: float = 0.0) -> Operator:
    channels, side = _map_size(draw)
    return same_shape(operator_type, channels, side, wide_input=wide > 0 and draw.happens(wide))


def _upsample(draw: Draw) -> Operator:
    """Mostly by two, as decoders and feature pyramids do."""
    channels, side = _map_size(draw, 4, 64, 1024)
    factor = draw.one_of((2, 2, 2, 4))
    return from_to("upsample", (channels, side, side), (channels, factor * side, factor * side))


def _mean(draw: Draw) -> Operator:
    """Over channels, as spatial attention has it, or over rows."""
    channels, side = _map_size(draw)
    reduced = (1, side, side) if draw.happens(0.7) else (channels, 1, side)
    return from_to("mean", (channels, side, side), reduced)


def _attention(draw: Draw, product: str | None = None) -> Operator:
    """Attention between all positions of a map of 4 to 32 pixels a side, or one of its products.

    `product`: ``scores`` of queries and keys, or ``values``, weighted by scores.
    """
    rows, heads, width = int(draw.side(4, 32)) ** 2, draw.one_of(_HEADS), draw.one_of(_HEAD_WIDTHS)
    queries, scores = (heads * width, rows, 1), (heads * rows, rows, 1)
    if product is not None:
        shapes = (queries, scores) if product == "scores" else (scores, queries)
        return from_to("matmul", *shapes, groups=heads)
    return from_to("attention", queries, queries, groups=heads, kernel_height=rows, kernel_width=1)


def _convolution_1d(draw: Draw) -> Operator:
    """Along a line of samples: one row of a map."""
    length, kernel = round(draw.between(64, 4096)), draw.one_of((3, 3, 5, 7, 9))
    ins = max(4, draw.channels(min(1024, draw.between(15_000, 250_000) / length)))
    outs = max(4, draw.channels(min(1024, ins * draw.between(0.5, 2))))
    return conv(ins, (1, length), outs, (1, kernel))


def _convolution_3d(draw: Draw) -> Operator:
    """Over depth, height and width; a row holds depth x height as height."""
    side, depth, kernel = draw.side(4, 56), draw.one_of((4, 8, 16)), draw.one_of((_POINT, _CUBE, _CUBE))
    ins = max(4, round(min(256, draw.between(200, 2000) / side) / 4) * 4)
    outs = max(4, round(ins * draw.between(0.5, 2) / 4) * 4)
    return conv(ins, (depth, side, side), outs, kernel)


def _factored_3d(draw: Draw) -> Operator:
    """Over height and width or only over depth, and strided cubes, of widths that video CNNs have."""
    side, depth = draw.one_of((7, 14, 28, 56)), draw.one_of((4, 8, 16))
    kernel, stride = draw.one_of((((1, 3, 3), _POINT), ((3, 1, 1), _POINT), (_CUBE, (2, 2, 2))))
    ins = draw.one_of((16, 32, 64)) * max(1, 56 // side)
    return conv(ins, (depth, side, side), ins * draw.one_of((1, 2)), kernel, stride)


def _transposed_3d(draw: Draw) -> Operator:
    side, ins = draw.one_of((4, 8, 16, 32)), draw.one_of((64, 128, 256))
    kernel = draw.one_of((2, 4))
    return conv(ins, (side, side, side), ins // 2, (kernel, kernel, kernel), (2, 2, 2), transposed=True)


_SHAPES: dict[str, Callable[..., Operator | None]] = {
    shape.__name__.removeprefix("_"): shape
    for shape in (
        _convolution, _transposed, _transposed_vectors, _map, _channels_of, _concat, _concat_forward,
        _linear_vectors, _linear_maps, _pool, _pool_up, _global_pool, _loss, _optimizer, _upsample, _same, _mean,
        _attention, _convolution_1d, _convolution_3d, _factored_3d, _transposed_3d,
    )
}  # fmt: skip
"""The functions that make a shape from a draw, by their names in families.json."""


@cache
def families() -> dict[str, tuple[int, Make]]:
    """Name of a family -> number of its shapes in the smallest library, and what makes one from a draw.

    Read from datasets/profiles/families.json: `draw` names the function, all but `count` are its arguments.
    """
    rows = json.loads(data_file("profiles/families.json").read_text(encoding="utf-8"))
    return {name: (row.pop("count"), partial(_SHAPES[row.pop("draw")], **row)) for name, row in rows.items()}


def _new_shapes(name: str, make: Make) -> Iterator[Operator]:
    """Endless shapes of a family, neither a CNN's of the zoo nor repeated."""
    drawn: set[Operator] = set(_real_shapes())
    for operator in filter(None, map(make, draws(name))):
        sizes = (operator.in_channels or 1, operator.in_height or 1, operator.in_width or 1)
        shape = same_work(operator)
        if prod(sizes) <= _MOST_NUMBERS and operator.parameters <= 7e8 and shape not in drawn:
            drawn.add(shape)
            yield operator


@lru_cache(maxsize=4)
def designed_operators(scale: float = 1.0) -> tuple[Operator, ...]:
    """Designed shapes, none of them a shape of a CNN of the zoo.

    `scale`: 1 for the smallest library; a larger one holds the shapes of every smaller one.
    """
    sizes = {name: (make, round(count * scale)) for name, (count, make) in families().items()}
    shapes = (islice(_new_shapes(name, make), count) for name, (make, count) in sizes.items())
    return tuple(dict.fromkeys(chain.from_iterable(shapes)))  # families touch where small maps begin


Part = tuple[Sequence[Mode], Sequence[int], list[Operator]]
"""Modes, batch sizes and operators."""


def training_operators() -> Iterator[Part]:
    """Parts of the preset, those least known first.

    Lists in turns come after the rest: each in its first mode at its first batch size, then each in its next.
    """
    turns = []
    for training in json.loads(data_file("profiles/trainings.json").read_text(encoding="utf-8")):
        modes, batch_sizes = tuple(map(mode_of, training["modes"])), tuple(training["batch_sizes"])
        operators = []
        for line in training["operators"]:
            # a type, its kernel/stride and marks, then channels@sides > those of the output where they differ
            words, _, shapes = line.partition(":")
            type_, *marks = words.split()
            window = marks.pop(0) if marks and marks[0][0].isdigit() else ""
            operators += [_of_words(type_, window, marks, *shape.split(">")) for shape in shapes.split()]
        if training["in_turns"]:
            turns.append([((mode,), (size,), operators) for size, mode in product(batch_sizes, modes)])
        else:
            yield modes, batch_sizes, operators
    yield from (training_part for turn in zip_longest(*turns) for training_part in turn if training_part)


def _of_words(type_: str, window: str, marks: Sequence[str], of: str, to: str = "") -> Operator:
    entry, dimensions = OPERATOR_TYPES[type_], 2 + (type_ in VOLUME_TYPES)
    (ins, *sides), (outs, *ends) = (_sizes(shape, dimensions) for shape in (of, to or of))
    kernel, stride = (_sizes(f"0@{size or 1}", dimensions)[1:] for size in window.partition("/")[::2])
    counts = {mark[0]: int(mark[1:]) for mark in marks if mark[1:].isdigit()}
    groups, padded = ins if "apart" in marks else counts.get("g"), "loose" not in marks
    flags = {"first": "image" in marks, "wide": "wide" in marks, "padded": padded}
    if entry.is_convolution:
        flags |= {
            "bias": "plain" not in marks and dimensions == 2,
            "transposed": entry.product == "transposed",
        }
        size, across, down = map(tuple, (sides, kernel, stride))
        return conv(ins, size, outs, across, down, groups or 1, counts.get("d", 1), **flags)
    more: dict[str, Any] = {"groups": groups, "n_tensors": counts.get("n", 1)}
    if window:
        beyond = [(k - 1) // 2 * padded for k in kernel]
        moved = zip(sides, kernel, stride, beyond, strict=True)
        ends = [(n + 2 * p - k) // s + 1 for n, k, s, p in moved]
        for name, numbers in (("kernel", kernel), ("stride", stride), ("padding", beyond)):
            more |= dict(zip((f"{name}_height", f"{name}_width"), numbers, strict=True))
    elif type_ == "attention":
        more |= {"kernel_height": sides[0], "kernel_width": 1}
    parameters = 2 * ins if entry.weights else 0
    if entry.weights == "filters":
        parameters = ins * outs + outs * ("plain" not in marks)
    elif entry.gates and groups:
        parameters = entry.gates * outs * (ins + outs // groups + 2)
    return from_to(
        type_,
        (ins, sides[0], sides[1]),
        (outs, (ends or sides)[0], (ends or sides)[1]),
        kind=next((mark for mark in marks if mark in ACTIVATIONS), None),
        parameters=parameters,
        passes="forward" if "forward" in marks else "forward_backward",
        in_place="in_place" in marks,
        wide_input="wide" in marks,
        **more,
    )


def _sizes(word: str, dimensions: int) -> list[int]:
    """Channels, and sides where there are some; one side stands for all."""
    channels, _, sides = word.partition("@")
    lengths = [int(side) for side in sides.split("x") if side]
    return [int(channels), *(lengths * dimensions if len(lengths) == 1 else lengths)]


def common_operators(cnns: Sequence[str]) -> tuple[Operator, ...]:
    """Distinct convolutions of named CNNs of the zoo at their usual image size."""
    operators = chain.from_iterable(operators_of(zoo_cnn(name)) for name in cnns)
    return tuple(dict.fromkeys(alone(operator) for operator in operators if operator.type == "conv2d"))


def same_work(operator: Operator) -> Operator:
    """Return the shape without flags that hardly change its time: operators that are equal here count as one shape."""
    if operator.type in ("optimizer", "loss"):
        return operator
    return replace(alone(operator), parameters=0, input_gradient=True, in_place=False, wide_input=False)


@lru_cache(maxsize=1)
def _real_shapes() -> frozenset[Operator]:
    tables = map(zoo_cnn, zoo_names())
    return frozenset(same_work(operator) for table in tables for operator in operators_of(table))
