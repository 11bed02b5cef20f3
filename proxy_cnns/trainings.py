"""The operators of the preset `trainings`: those of segmenters, volumes, large windows, attention and recurrent heads.

Designed libraries and the zoo hold few of them. Each list says at which batch sizes and in which modes it is measured;
shapes are those of common repositories' defaults and their neighbours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.operator_types import OPERATOR_TYPES
from predictor.operators.operators import Operator
from proxy_cnns.designs import conv, conv_3d, from_to, pool, same_shape

_TF32, _BF16 = Mode(precision="tf32"), Mode(precision="amp_bf16")
_LAST = replace(_BF16, memory_format="channels_last")
_PLAIN = (_BF16, _TF32)
_ALL = (*_PLAIN, _LAST, replace(_TF32, memory_format="channels_last"))

_CUBES = ((32, 128), (16, 96), (64, 64), (32, 64), (48, 48), (128, 32), (320, 16))
_MAPS = ((64, 256), (128, 128), (256, 64), (512, 32))

Part = tuple[Sequence[Mode], Sequence[int], list[Operator]]
"""Modes, batch sizes and operators."""


def training_operators() -> Iterator[Part]:
    """Parts of the preset, those least known first."""
    yield _ALL, (16, 64), [*_depthwise()]
    yield (*_PLAIN, _LAST), (4, 16), [*_dilated(), *_softmax()]
    yield _PLAIN, (2, 4), [*_volumes()]
    yield _PLAIN, (2**13, 2**17), [_activation("softmax", n, 1) for n in (49, 64, 197, 1024)]
    yield _PLAIN, (4, 16), [*_of_maps()]
    yield (_TF32, _LAST), (64, 16), [*_of_attention(), *_recurrent()]


def _activation(kind: str, channels: int, side: int, in_place: bool = False) -> Operator:
    return same_shape("activation", channels, side, kind=kind, in_place=in_place)


def _volume(type_: str, channels: int, side: int, **more: Any) -> Operator:
    """A row of a volume holds depth x height as height."""
    parameters = 2 * channels if OPERATOR_TYPES[type_].weights else 0
    shape = (channels, side * side, side)
    return from_to(type_, shape, shape, parameters=parameters, **more)


def _depthwise() -> Iterator[Operator]:
    """Windows of ConvNeXt and larger."""
    for window in (7, 11, 9, 13, 31):
        for channels, side in ((96, 56), (192, 28), (384, 14), (768, 7), (64, 64)):
            if window < 13 or side in (28, 14):
                yield conv(channels, side, channels, (window, window), groups=channels, bias=True)


def _dilated() -> Iterator[Operator]:
    """Atrous pyramids and the stages before them, whose maps have odd sides."""
    for ins, side, outs, dilation in (
        *((2048, 65, 256, d) for d in (12, 24, 36)),
        *((2048, 33, 256, d) for d in (6, 12, 18)),
        *((512, 65, 512, d) for d in (2, 4)),
        *((256, 65, 256, d) for d in (2, 4)),
        *((512, 33, 512, 2), (960, 33, 256, 12), (64, 128, 64, 2), (256, 32, 256, 4), (512, 64, 256, 6)),
    ):
        yield conv(ins, side, outs, (3, 3), dilation=dilation)
    for ins, outs in ((256, 1024), (1024, 256), (512, 2048), (2048, 512), (1024, 512), (1280, 256)):
        yield conv(ins, 65, outs, (1, 1))
    for ins, outs in ((64, 256), (256, 64), (256, 128)):
        yield conv(ins, 130, outs, (1, 1))
    yield from (same_shape("batch_norm", *size) for size in ((256, 65), (1024, 65), (2048, 65), (64, 130)))


def _softmax() -> Iterator[Operator]:
    """Over the classes of each pixel."""
    for classes, side in ((2, 256), (4, 512), (19, 128), (21, 520), (150, 128), (64, 64)):
        yield _activation("softmax", classes, side)


def _volumes() -> Iterator[Operator]:
    """Of 3-D U-Nets."""
    for channels, side in _CUBES:
        yield _volume("batch_norm", channels, side)
        yield _volume("instance_norm", channels, side)
        yield _volume("activation", channels, side, kind="leaky_relu", in_place=True)
        yield _volume("activation", channels, side, kind="relu", in_place=True)
        yield _volume("concat", 2 * channels, side, n_tensors=2)
    for channels, side in _CUBES[:4]:
        yield _volume("activation", channels, side, kind="leaky_relu")
    for classes, side in ((3, 128), (2, 96), (4, 64)):
        yield _volume("activation", classes, side, kind="softmax")
    for ins, side, outs in ((32, 64, 32), (32, 128, 32), (64, 64, 64), (128, 64, 64), (128, 32, 128)):
        yield conv_3d(ins, (side,) * 3, outs, (3, 3, 3))
    for ins, side in ((64, 64), (128, 32), (256, 16)):
        yield conv_3d(ins, (side,) * 3, ins // 2, (2, 2, 2), (2, 2, 2), transposed=True)


def _of_maps() -> Iterator[Operator]:
    """Of generators, decoders and cells of gates."""
    for channels, side in _MAPS:
        yield _activation("leaky_relu", channels, side, in_place=True)
        yield _activation("leaky_relu", channels, side)
        yield same_shape("concat", 2 * channels, side, n_tensors=2)
        yield same_shape("instance_norm", channels, side)
        yield same_shape("batch_norm", channels, side)
        yield from_to("upsample", (channels, side // 2, side // 2), (channels, side, side))
        yield from_to("pad", (channels, side, side), (channels, side + 2, side + 2))
    yield from_to("upsample", (21, 65, 65), (21, 520, 520))
    yield from_to("upsample", (19, 128, 128), (19, 512, 512))
    for kind in ("sigmoid", "tanh"):
        yield from (_activation(kind, *size) for size in ((64, 64), (32, 128), (128, 16)))
    for ins, side, outs in ((65, 64, 256), (128, 64, 256), (96, 32, 256), (64, 96, 256), (64, 48, 64)):
        yield conv(ins, side, outs, (3, 3), bias=True)
    for channels, side in ((64, 64), (1, 512), (21, 128)):
        yield same_shape("clamp", channels, side)


def _of_attention() -> Iterator[Operator]:
    """Of CNNs with attention, blurred strides and group norms."""
    for kernel, padding, sizes in (
        (2, 0, ((64, 112), (256, 56), (512, 28), (1024, 14), (128, 48))),
        (3, 1, ((96, 112), (256, 56), (512, 28))),
    ):
        yield from (pool("avg_pool", *size, kernel, 2, padding) for size in sizes)
    for channels, side in ((64, 113), (128, 57), (256, 57), (512, 29), (1024, 15)):
        yield conv(channels, side, channels, (3, 3), 2, groups=channels)
    for channels, side in ((64, 112), (128, 56), (256, 56), (512, 28), (1024, 14), (2048, 7)):
        yield same_shape("group_norm", channels, side, groups=32)
    for groups, inner, rows, columns in (
        *((8, 32, 196, 196), (8, 196, 196, 32), (12, 64, 197, 197), (12, 197, 197, 64)),
        *((192, 32, 49, 49), (192, 49, 49, 32), (16, 16, 1024, 1024), (4, 64, 4096, 64)),
    ):
        yield from_to("matmul", (groups * inner, rows, 1), (groups * columns, rows, 1), groups=groups)
    for heads, width, rows in ((8, 32, 196), (12, 64, 197), (4, 64, 1024), (192, 32, 49)):
        shape = (heads * width, rows, 1)
        yield from_to("attention", shape, shape, groups=heads, kernel_height=rows, kernel_width=1)


def _recurrent() -> Iterator[Operator]:
    """Inputs, units, positions, directions."""
    for type_, layers in {
        "lstm": (
            *((512, 256, 32, 2), (512, 256, 64, 2), (256, 256, 64, 2), (512, 512, 32, 1), (512, 512, 128, 1)),
            *((1024, 1024, 32, 1), (128, 128, 64, 2), (64, 64, 128, 1), (2048, 512, 16, 1)),
            *((256, 128, 256, 2), (512, 256, 8, 1), (96, 48, 24, 2)),
        ),
        "gru": (
            *((512, 256, 16, 1), (512, 256, 64, 2), (1024, 512, 32, 1), (128, 128, 128, 2)),
            *((256, 256, 32, 1), (64, 64, 64, 2), (2048, 1024, 16, 1), (512, 512, 128, 1)),
        ),
    }.items():
        for ins, units, positions, directions in layers:
            weights = directions * OPERATOR_TYPES[type_].gates * units * (ins + units + 2)
            ends = (ins, positions, 1), (directions * units, positions, 1)
            yield from_to(type_, *ends, groups=directions, parameters=weights)
