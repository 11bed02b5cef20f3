"""The operators of the preset `trainings`: those of training steps that designed libraries and the zoo lack.

Each list says at which batch sizes and in which modes it is measured; shapes are those of common repositories' defaults
and their neighbours.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from math import prod
from typing import Any

from predictor.catalogue.modes import Mode
from predictor.operator_types import ACTIVATIONS, OPERATOR_TYPES, VOLUME_TYPES
from predictor.operators.operators import Operator
from proxy_cnns.designs import conv_3d, from_to

_TF32, _BF16 = Mode(precision="tf32"), Mode(precision="amp_bf16")
_LAST = replace(_BF16, memory_format="channels_last")
_PLAIN = (_BF16, _TF32)
_THREE = (*_PLAIN, _LAST)
_ALL = (*_THREE, replace(_TF32, memory_format="channels_last"))

Part = tuple[Sequence[Mode], Sequence[int], list[Operator]]
"""Modes, batch sizes and operators."""


def training_operators() -> Iterator[Part]:
    """Parts of the preset, those least known first; `_STEPS` each in its first mode and size, then in the next."""
    yield from ((modes, sizes, [*_written(text)]) for modes, sizes, text in _LISTS)
    lists = [
        (modes, sizes, [*_written(text)])
        for modes, sizes, text in (*_STEPS, ((_BF16,), (64, 16), _ATTENTION))
    ]
    turns = (
        [((mode,), (size,), operators) for size in sizes for mode in modes]
        for modes, sizes, operators in lists
    )
    yield from (part for turn in zip_longest(*turns) for part in turn if part)


_ATTENTION = """
avg_pool 2/2: 64@112 256@56 512@28 1024@14 128@48
avg_pool 3/2: 96@112 256@56 512@28
conv2d 3/2 plain apart: 64@113 128@57 256@57 512@29 1024@15
group_norm g32: 64@112 128@56 256@56 512@28 1024@14 2048@7
matmul g4: 256@4096x1
matmul g8: 256@196x1>1568 1568@196x1>256
matmul g12: 768@197x1>2364 2364@197x1>768
matmul g16: 256@1024x1>16384
matmul g192: 6144@49x1>9408 9408@49x1>6144
attention g4: 256@1024x1
attention g8: 256@196x1
attention g12: 768@197x1
attention g192: 6144@49x1
"""
_Texts = tuple[tuple[Sequence[Mode], Sequence[int], str], ...]
_LISTS: _Texts = (
    # Windows of ConvNeXt and larger
    (_ALL, (16, 64), """
conv2d 7 apart: 96@56 192@28 384@14 768@7 64@64
conv2d 11 apart: 96@56 192@28 384@14 768@7 64@64
conv2d 9 apart: 96@56 192@28 384@14 768@7 64@64
conv2d 13 apart: 192@28 384@14
conv2d 31 apart: 192@28 384@14
"""),
    # Atrous pyramids and the stages before them, whose maps have odd sides; classes of each pixel
    (_THREE, (4, 16), """
conv2d 3 d12 plain: 2048@65>256 2048@33>256 960@33>256
conv2d 3 d24 plain: 2048@65>256
conv2d 3 d36 plain: 2048@65>256
conv2d 3 d6 plain: 2048@33>256 512@64>256
conv2d 3 d18 plain: 2048@33>256
conv2d 3 d2 plain: 512@65 256@65 512@33 64@128
conv2d 3 d4 plain: 512@65 256@65 256@32
conv2d 1 plain: 256@65>1024 1024@65>256 512@65>2048 2048@65>512 1024@65>512 1280@65>256
conv2d 1 plain: 64@130>256 256@130>64 256@130>128
batch_norm: 256@65 1024@65 2048@65 64@130
activation softmax: 2@256 4@512 19@128 21@520 150@128 64@64
"""),
    # 3-D U-Nets; a row of a volume holds depth x height as height
    (_PLAIN, (2, 4), """
batch_norm: 32@16384x128 16@9216x96 64@4096x64 32@4096x64 48@2304x48 128@1024x32 320@256x16
instance_norm: 32@16384x128 16@9216x96 64@4096x64 32@4096x64 48@2304x48 128@1024x32 320@256x16
activation leaky_relu in_place: 32@16384x128 16@9216x96 64@4096x64 32@4096x64 48@2304x48 128@1024x32 320@256x16
activation relu in_place: 32@16384x128 16@9216x96 64@4096x64 32@4096x64 48@2304x48 128@1024x32 320@256x16
concat n2: 64@16384x128 32@9216x96 128@4096x64 64@4096x64 96@2304x48 256@1024x32 640@256x16
activation leaky_relu: 32@16384x128 16@9216x96 64@4096x64 32@4096x64
activation softmax: 3@16384x128 2@9216x96 4@4096x64
conv3d 3: 32@64 32@128 64@64 128@64>64 128@32
conv_transpose3d 2/2: 64@64>32 128@32>64 256@16>128
"""),
    (_PLAIN, (2**13, 2**17), "activation softmax: 49@1 64@1 197@1 1024@1"),
    # Generators, decoders and cells of gates
    (_PLAIN, (4, 16), """
activation leaky_relu in_place: 64@256 128@128 256@64 512@32
activation leaky_relu: 64@256 128@128 256@64 512@32
concat n2: 128@256 256@128 512@64 1024@32
instance_norm: 64@256 128@128 256@64 512@32
batch_norm: 64@256 128@128 256@64 512@32
upsample: 64@128>64@256 128@64>128@128 256@32>256@64 512@16>512@32 21@65>21@520 19@128>19@512
pad: 64@256>64@258 128@128>128@130 256@64>256@66 512@32>512@34
activation sigmoid: 64@64 32@128 128@16
activation tanh: 64@64 32@128 128@16
conv2d 3: 65@64>256 128@64>256 96@32>256 64@96>256 64@48>64
clamp: 64@64 1@512 21@128
"""),
    # Attention, blurred strides and group norms; recurrent layers of one and both directions
    ((_TF32, _LAST), (64, 16), f"""{_ATTENTION}
lstm g2: 512@32x1>512 512@64x1>512 256@64x1>512 128@64x1>256 256@256x1>256 96@24x1>96
lstm g1: 512@32x1 512@128x1 1024@32x1 64@128x1 2048@16x1>512 512@8x1>256
gru g1: 512@16x1>256 1024@32x1>512 256@32x1 2048@16x1>1024 512@128x1
gru g2: 512@64x1>512 128@128x1>256 64@64x1>128
"""),
)  # fmt: skip
"""Modes, batch sizes and operators, which `_written` reads."""

_STEPS: _Texts = (
    # Generators: reflected borders, strides, few channels at the ends
    (_PLAIN, (2, 8), """
conv2d 7 loose: 64@262>3 32@262>3 64@134>3 64@262>1
conv2d 7 loose image: 3@262>64 3@134>64 3@262>32
conv2d 3 loose: 256@66 128@130 64@258 512@34
conv2d 3/2: 64@256>128 128@128>256 32@256>64 256@64>512
conv_transpose2d 3/2: 256@64>128 128@128>64 512@32>256 64@128>32
conv2d 4/2: 64@128>128 128@64>256 256@32>512 64@32>128 128@16>256 256@8>512
conv2d 4: 256@32>512 512@31>1
conv2d 4/2 image: 3@256>64 6@256>64 3@64>64
conv_transpose2d 4/2: 512@4>256 256@8>128 128@16>64 64@32>3 256@64>128 128@128>64
concat n2 forward: 64@256 128@128 256@64 512@32
instance_norm: 512@31 256@32 64@128
pad: 3@256>3@262 64@256>64@262 128@128>128@130
"""),
    # Volumes: 5 x 5 x 5 filters, few channels, strides
    (_PLAIN, (2, 4), """
conv3d 5: 16@96 32@96>16 16@64 32@48 64@48>32 64@24 128@24>64
conv3d 5 image: 1@96>16 1@64>16
conv3d 3 image: 1@128>32 1@96>16 4@96>32
conv3d 3: 64@128>32 16@96 32@96 64@32 256@16 512@16>256 320@8 640@8>320
conv3d 3/2: 32@128>64 64@64>128 128@32>256 320@8
conv3d 2/2: 16@96>32 32@48>64 64@24>128
conv_transpose3d 2/2: 32@48>16 64@24>32 128@12>64 320@8>256
conv3d 1: 16@96>2 32@128>3 32@96>14
concat n2 forward: 4096@128 1536@96
activation leaky_relu in_place: 4096@128
"""),
    # Detectors: pyramids of maps that are not square, rows of boxes
    (_PLAIN, (4, 2), """
conv2d 3: 256@200x272 256@100x136 256@50x68 256@25x34 256@13x17 256@176x240
conv2d 3: 256@100x136>819 256@50x68>819 256@100x136>36 256@100x136>91
conv2d 1: 256@200x272>3 256@200x272 512@100x136>256 1024@50x68>256 2048@25x34>256
conv2d 1 plain: 64@200x272>256 256@200x272>64 128@100x136>512 512@100x136>128
conv2d 1/2 plain: 256@200x272>512 512@100x136>1024
conv2d 3 plain: 64@200x272 128@100x136 256@50x68
conv2d 3/2 plain: 128@200x272 256@100x136
conv2d 7/2 plain image: 3@800x1088>64 3@704x960>64
linear: 12544@512x1>1024 1024@512x1>1024 1024@512x1>364 12544@1024x1>1024
max_pool 3/2: 64@400x544
batch_norm: 64@400x544 256@200x272 512@100x136
activation relu in_place: 64@400x544 256@200x272 512@100x136
add: 256@200x272 256@100x136
add forward: 256@200x272 256@100x136
group_norm g32: 256@100x136 256@50x68
upsample: 256@100x136>256@200x272 256@50x68>256@100x136
"""),
    # Frames: all gates of a convolutional LSTM at once
    (_PLAIN, (8, 32), """
conv2d 5: 65@64>256 96@64>128 64@32>256 128@32>256 128@64>256
conv2d 3: 128@32>256 128@64>256 192@16>512
activation sigmoid: 32@64 64@32
activation tanh: 32@64 64@32
concat n2 forward: 256@64 128@64
concat n2: 65@64 96@64 128@32
"""),
    # Super-resolution: without norms
    (_THREE, (16, 4), """
conv2d 3: 64@96 64@192 64@48 64@96>256 64@192>256 256@48 64@128 32@192
conv2d 3: 64@384>3 64@192>3 32@256>3
conv2d 3 image: 3@96>64 3@192>64
conv2d 9: 64@96>3
conv2d 9 image: 3@96>64
activation relu in_place: 64@96 64@384
add: 64@96
"""),
    # Depth: decoders with reflected borders, windows of structure
    (_PLAIN, (12, 4), """
conv2d 3 loose: 16@194x642 96@98x322>32 32@98x322>16 128@50x162>64 64@50x162>32 256@26x82>128 512@8x22>256
conv2d 3 loose: 16@194x642>1 32@98x322>1 64@50x162>1 16@258>1
conv2d 3: 16@256 32@256>16 16@512
conv2d 3 plain: 64@48x160 128@24x80 256@12x40 512@6x20
conv2d 7/2 plain image: 3@192x640>64 3@256x832>64
upsample: 16@96x320>16@192x640 32@48x160>32@96x320 64@24x80>64@48x160 128@12x40>128@24x80 1@96x320>1@192x640
clamp: 16@192x640 16@96x320 32@96x320 1@192x640
pad: 16@192x640>16@194x642 32@96x320>32@98x322 64@48x160>64@50x162
avg_pool 3/1 loose: 1@192x640 3@192x640
"""),
    # Flow: updates from volumes of correlations
    (_PLAIN, (4, 8), """
conv2d 3: 242@46x62>96 146@46x62>96 96@46x62>64 64@46x62>32 128@46x62>256 128@46x62>2 256@46x62>2
conv2d 3: 8@184x248 64@184x248 96@92x124 2@48x64
conv2d 1: 196@46x62>96 324@46x62>256 256@46x62>576 8@184x248>32 32@184x248>8
conv2d 1x5: 384@46x62>128
conv2d 5x1: 384@46x62>128
conv2d 7: 2@46x62>64 2@46x62>128
conv2d 7/2 image: 3@368x496>32 3@368x496>64 6@384x512>64
conv_transpose2d 4/2: 1024@6x8>512 512@12x16>256 770@24x32>128
instance_norm: 8@184x248 32@184x248 64@184x248 96@92x124
concat n3: 242@46x62 770@24x32 384@46x62
upsample: 2@46x62>2@368x496 2@96x128>2@384x512
matmul g1: 128@2852x1>2852 256@1024x1>1024
"""),
    # Trackers: no borders, two sizes of images
    (_PLAIN, (32, 8), """
conv2d 11/2 loose plain image: 3@255>96 3@127>96
conv2d 5 loose plain: 96@61>256 96@29>256
conv2d 3 loose plain: 256@28>384 256@12>384 384@26 384@24>256
conv2d 5 loose plain apart: 256@31
"""),
    # Adapters of low rank
    (_THREE, (64, 16), """
conv2d 3 plain: 64@56>16 128@28>16 256@14>16 512@7>16 64@56>4 256@14>64
conv2d 1 plain: 16@56>64 16@28>128 16@14>256 16@7>512 4@14>256 64@14>256
conv2d 3/2 plain: 128@56>16 256@28>16
linear plain: 768@197x1>4 768@197x1>16 768@197x1>64 16@197x1>768 64@197x1>768
linear plain: 8@56>384 384@56>8 8@28>768 768@28>8 8@14>1536 1536@14>8
"""),
    # Diffusion: group norms, SiLU of float32 maps, attention between all positions
    (_THREE, (32, 8), """
conv2d 3: 128@64 256@64>128 384@64>128 256@32 512@32>128 512@16 1024@16>256 320@64 640@32 1280@16
conv2d 3/2: 128@64 256@32 320@64
conv2d 3 image: 3@64>128 4@64>320
conv2d 3: 128@64>3 320@64>4
conv2d 1: 256@32>768 512@16>1536 256@32
group_norm g8: 128@64 256@64 512@32 256@32 512@16 1024@16
group_norm g32: 320@64 640@32 256@32
activation silu in_place: 128@64 256@64 256@32 320@64
activation silu in_place wide: 128@64 256@64 256@32
upsample: 128@32>128@64 256@16>256@32 512@8>512@16
concat n2: 256@64 512@32
"""),
    # Scores of attention
    (_PLAIN, (32, 8), """
matmul g4: 256@1024x1>4096 4096@1024x1>256 512@256x1>1024 1024@256x1>512
matmul g12: 384@196x1>2352 2352@196x1>384
matmul g24: 768@49x1>1176 1176@49x1>768
attention g4: 256@1024x1 512@256x1
attention g8: 512@64x1 320@4096x1 512@256x1
attention g12: 384@196x1
linear: 384@196x1>1152 384@196x1>1536 768@49x1>3072
"""),
    # Segmenters: stages at an eighth of the image, pyramids, U-Nets
    (_THREE, (8, 4), """
conv2d 3 plain: 2048@64>512 1024@64>256 304@129>256 256@129 512@64 64@512 64@256 128@256>64 128@128
conv2d 3 d2 plain: 512@64 256@64
conv2d 3: 32@512
conv2d 3/2: 32@512>64
concat n2 forward: 32@512
conv2d 1 plain: 2048@64>512 512@64>2048 1280@33>256 256@129>48 2048@1>256
conv2d 1: 512@64>19 256@129>21 64@512>19 32@512>3
conv2d 7/2 plain image: 3@512>64
conv2d 3 image: 3@512>64 1@512>32
conv_transpose2d 2/2: 128@128>64 256@64>128 1024@16>512 64@256>32
batch_norm: 2048@64 64@512
activation relu in_place: 2048@64 64@512
upsample: 256@1>256@64 256@1>256@65 256@1>256@33 256@33>256@129 19@64>19@512
concat n5: 1280@65 1280@33
max_pool 2/2: 64@512 128@128
"""),
    # Detectors of one stage
    (_THREE, (16, 32), """
conv2d 3 plain: 64@320>32 32@320>64 128@160>64 64@160 256@80>128 512@40>256 256@40
conv2d 3/2 plain: 64@320>128 128@160>256 256@80>512
conv2d 3: 64@150>128 256@38>512 512@38>364 1024@19>546 512@38>24
conv2d 3 d6: 512@19>1024
conv2d 1: 128@160>64 256@80>128 512@40>255
activation silu in_place: 64@320 128@160
batch_norm: 64@320 128@160
add: 64@320
max_pool 2/2: 64@300 128@150
"""),
    # Small detectors: depthwise windows on large maps, squeezed channels
    (_THREE, (8, 32), """
conv2d 3 plain apart: 16@400 72@200
conv2d 3/2 plain apart: 64@400
conv2d 5/2 plain apart: 72@200
conv2d 1 plain: 16@400>64 64@200>24 24@200>72 72@100>40
conv2d 1: 72@1>24 480@1>120
conv2d 3/2 plain image: 3@800>16 3@640>32
batch_norm: 16@400 64@400 72@200
activation hardswish in_place: 16@400
activation relu in_place: 64@400
multiply: 72@100 240@25
conv_transpose2d 4/2 plain: 2048@8x6>256 256@32x24
"""),
    # Lines of text and spectrograms: long maps, both directions
    (_PLAIN, (64, 16), """
conv2d 7/2 plain image: 3@32x512>64 3@128x501>64
conv2d 3/2 plain image: 3@128x501>32
conv2d 3 image: 1@32x128>64
conv2d 3 plain: 64@16x256 128@8x128 256@4x128 64@16x64>128 128@8x32>256 256@4x33>512
conv2d 3/2x1 plain: 128@8x128>256
conv2d 3 plain apart: 32@64x251 144@32x126
batch_norm: 64@16x256 32@64x251
activation silu in_place: 32@64x251
gru g2: 256@128x1>512 512@128x1>512 512@32x1>256
lstm g2: 256@128x1>512 512@26x1>512 512@64x1>1024
"""),
    # Clips: frames and times apart, or together
    (_PLAIN, (16, 4), """
conv3d 3: 64@8x56x56 128@4x28x28 256@2x14x14
conv3d 3x7x7/1x2x2 image: 3@16x112x112>64 3@16x112x112>45
conv3d 1x3x3: 64@16x56x56>144 128@8x28x28>230
conv3d 3x1x1: 144@16x56x56>64 230@8x28x28>128
conv3d 1: 256@8x56x56>64 64@8x56x56>256
"""),
    # Boxes and scores, heads of discriminators, mixed images
    (_PLAIN, (4, 64), """
add forward: 1@1 102@1 9600@1 240000@1 3700000@1 3@224 64@112
add: 1@1 9600@1 240000@1 3700000@1
clamp: 1@1 9600@1 240000@1 3700000@1
concat n5 forward: 5@1 4800@1
linear: 128@1>8192 8192@1>1 2048@1>4096
multiply: 3@224 64@112
"""),
)  # fmt: skip
"""What recorded training steps use beside these."""


def _written(text: str) -> Iterator[Operator]:
    """Operators: a type, its kernel/stride and marks, then channels@sides > those of the output where they differ."""
    for line in filter(None, text.splitlines()):
        words, _, shapes = line.partition(":")
        type_, *marks = words.split()
        window = marks.pop(0) if marks and marks[0][0].isdigit() else ""
        yield from (_of_words(type_, window, marks, *shape.split(">")) for shape in shapes.split())


def _of_words(type_: str, window: str, marks: Sequence[str], of: str, to: str = "") -> Operator:
    entry, dimensions = OPERATOR_TYPES[type_], 2 + (type_ in VOLUME_TYPES)
    (ins, *sides), (outs, *ends) = (_sizes(each, dimensions) for each in (of, to or of))
    kernel, stride = (_sizes(f"0@{each or 1}", dimensions)[1:] for each in window.partition("/")[::2])
    first, up = "image" in marks, entry.product == "transposed"
    if type_ in VOLUME_TYPES:
        size, across, down = ((a, b, c) for a, b, c in (sides, kernel, stride))
        return conv_3d(ins, size, outs, across, down, transposed=up, first=first)
    counts = {each[0]: int(each[1:]) for each in marks if each[1:].isdigit()}
    groups = ins if "apart" in marks else counts.get("g", 1 if entry.is_convolution else None)
    more: dict[str, Any] = {"groups": groups, "n_tensors": counts.get("n", 1)}
    if window:
        reach = [counts.get("d", 1) * (k - 1) for k in kernel]
        beyond = [
            (r + (2 - s) * up) // 2 * ("loose" not in marks) for r, s in zip(reach, stride, strict=True)
        ]
        moved = zip(sides, reach, stride, beyond, strict=True)
        ends = [n * s if up else (n + 2 * p - r - 1) // s + 1 for n, r, s, p in moved]
        for name, numbers in (("kernel", kernel), ("stride", stride), ("padding", beyond)):
            more |= dict(zip((f"{name}_height", f"{name}_width"), numbers, strict=True))
    elif type_ == "attention":
        more |= {"kernel_height": sides[0], "kernel_width": 1}
    parameters = 2 * ins if entry.weights else 0
    if entry.weights == "filters":
        parameters = ins // (groups or 1) * outs * prod(kernel) + outs * ("plain" not in marks)
    elif entry.gates and groups:
        parameters = entry.gates * outs * (ins + outs // groups + 2)
    return from_to(
        type_,
        (ins, sides[0], sides[1]),
        (outs, (ends or sides)[0], (ends or sides)[1]),
        kind=next((each for each in marks if each in ACTIVATIONS), None),
        dilation=counts.get("d", 1) if entry.is_convolution else None,
        parameters=parameters,
        passes="forward" if "forward" in marks else "forward_backward",
        input_gradient=not first,
        in_place="in_place" in marks,
        wide_input=first or "wide" in marks,
        **more,
    )


def _sizes(word: str, dimensions: int) -> list[int]:
    """Channels, and sides where there are some; one side stands for all."""
    channels, _, sides = word.partition("@")
    found = [int(side) for side in sides.split("x") if side]
    return [int(channels), *(found * dimensions if len(found) == 1 else found)]
