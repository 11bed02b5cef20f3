"""The operators of the preset `trainings`: those of training steps that designed libraries and the zoo lack.

They lie in datasets/profiles/trainings.json, in lists for similar trainings, each with the batch sizes and modes it is
measured in; shapes are those of common repositories' defaults and their neighbours.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import product, zip_longest
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.files import data_file
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES, VOLUME_TYPES
from predictor.operators.operators import Operator
from proxy_cnns.configuration import mode_of
from proxy_cnns.designs import conv, from_to

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
