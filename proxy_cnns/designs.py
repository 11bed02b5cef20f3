"""Operators in words: those of the presets `quick`, `library` and `trainings`.

datasets/profiles/designed.json holds families of shapes that no CNN of the zoo has, spread evenly over the space where
CNNs live: `quick` measures the first of each family, `library` all. Convolutions get most of a library because their
efficiency changes with every side of their shape (which kernels cuDNN takes). The time of the other operators follows
their bytes, so a ladder of sizes is enough. A library has a second part: the convolutions of a few common CNNs, for
whose shapes cuDNN has kernels of their own. So it covers any other CNN of the zoo as well as a user's own.

Operators of training steps lie in datasets/profiles/trainings.json, in lists for similar trainings, each with the batch
sizes and modes it is measured in; shapes are those of common repositories' defaults and their neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import chain, product, zip_longest
from math import prod
from typing import Any, TypeVar

from predictor.catalogue.modes import Mode
from predictor.cnns.zoo import zoo_cnn
from predictor.files import data_file
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES, VOLUME_TYPES
from predictor.operators.operators import Operator, alone, operators_of
from proxy_cnns.configuration import mode_of

_T = TypeVar("_T")

_GOLDEN = 0.6180339887498949


def spread_order(values: Sequence[_T]) -> list[_T]:
    """Reorder by golden-ratio steps: every first part of the list is then spread over the whole of it."""
    ranks = [(position * _GOLDEN) % 1 for position in range(len(values))]
    return [values[position] for position in sorted(range(len(values)), key=ranks.__getitem__)]


def designed_operators(*, quick: bool) -> tuple[Operator, ...]:
    """Designed shapes of the preset ``quick``, or of ``library``, which holds the former."""
    families = json.loads(data_file("profiles/designed.json").read_text(encoding="utf-8"))
    shapes = (operators_in(family["operators"])[: family["quick"] if quick else None] for family in families)
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
        operators = operators_in(training["operators"])
        if training["in_turns"]:
            turns.append([((mode,), (size,), operators) for size, mode in product(batch_sizes, modes)])
        else:
            yield modes, batch_sizes, operators
    yield from (training_part for turn in zip_longest(*turns) for training_part in turn if training_part)


def operators_in(lines: Sequence[str]) -> list[Operator]:
    """Operators of lines such as ``conv2d 3/2 plain: 64@56 64@56x28>128``.

    A type, its kernel/stride and marks, then shapes: channels@sides, and behind ``>`` those of the output where they
    differ and do not follow; one side stands for all. Marks: ``gN`` groups (``apart``: one for each channel), ``dN``
    dilation, ``nN`` tensors, a kind of activation; ``plain`` without bias; ``loose`` without padding, which otherwise
    keeps the size at stride 1, and of a transposed convolution multiplies it by the stride; patches (kernel = stride)
    are never padded; ``image``: the first layer; ``scale``: a learned factor for each channel; ``wide``, ``forward``
    and ``in_place``: fields of `Operator`. An optimizer is tensors@numbers.
    """
    operators = []
    for line in lines:
        words, _, shapes = line.partition(":")
        type_, *marks = words.split()
        window = marks.pop(0) if marks and marks[0][0].isdigit() else ""
        operators += [_of_words(type_, window, marks, *shape.split(">")) for shape in shapes.split()]
    return operators


def _of_words(type_: str, window: str, marks: Sequence[str], of: str, to: str = "") -> Operator:
    entry, dimensions = OPERATOR_TYPES[type_], 2 + (type_ in VOLUME_TYPES)
    (ins, *sides), (outs, *ends) = (_sizes(shape, dimensions) for shape in (of, to or of.partition("@")[0]))
    if type_ == "optimizer":
        return Operator(type_, n_tensors=ins, parameters=sides[0])
    counts = {mark[0]: int(mark[1:]) for mark in marks if mark[1:].isdigit()}
    groups = ins if "apart" in marks else counts.get("g", 1 if entry.is_convolution else None)
    transposed, dilation, kernel = entry.product == "transposed", counts.get("d", 1), [1]
    columns: dict[str, Any] = {"dilation": dilation} if entry.is_convolution else {}
    if window:
        kernel, stride = (_sizes(f"0@{size or 1}", dimensions)[1:] for size in window.partition("/")[::2])
        reaches = [dilation * (k - 1) + 1 for k in kernel]
        padded = [k != s and "loose" not in marks for k, s in zip(kernel, stride, strict=True)]
        beyond = [
            (reach + (1 - s if transposed else -1)) // 2 * is_padded
            for reach, s, is_padded in zip(reaches, stride, padded, strict=True)
        ]
        moved = zip(sides, reaches, stride, beyond, strict=True)
        if transposed:
            ends = [n * s if p else (n - 1) * s + reach for n, reach, s, p in moved]
        ends = ends or [(n + 2 * p - reach) // s + 1 for n, reach, s, p in moved]
        for name, sizes in (("kernel", kernel), ("stride", stride), ("padding", beyond)):
            axes = zip(("width", "height", "depth"), reversed(sizes), strict=False)
            columns |= {f"{name}_{axis}": size for axis, size in axes}
        if dimensions == 3:  # heights are those of all depths together
            columns |= {"kernel_height": kernel[0] * kernel[1], "stride_height": stride[0] * stride[1]}
    elif type_ == "attention":
        columns |= {"kernel_height": sides[0], "kernel_width": 1}
    ends = ends or sides
    if dimensions == 3:
        columns |= {"in_depth": sides[0], "out_depth": ends[0]}
    if type_ != "loss":
        columns |= {"out_channels": outs, "out_height": prod(ends[:-1]), "out_width": ends[-1]}
    parameters = ins * ("scale" in marks) + 2 * ins * (entry.weights == "scale_and_shift")
    if entry.weights == "filters":
        has_bias = "plain" not in marks and dimensions == 2
        parameters = ins // (groups or 1) * outs * prod(kernel) + has_bias * outs
    elif entry.gates and groups:
        parameters = entry.gates * outs * (ins + outs // groups + 2)
    return Operator(
        type_,
        kind=next((mark for mark in marks if mark in ACTIVATIONS), None),
        in_channels=ins,
        in_height=prod(sides[:-1]),
        in_width=sides[-1],
        groups=groups,
        n_tensors=counts.get("n", 1),
        parameters=parameters,
        passes="forward" if "forward" in marks else "forward_backward",
        input_gradient="image" not in marks,
        in_place="in_place" in marks,
        wide_input="wide" in marks or "image" in marks,
        **columns,
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
