"""Layer tables of tf_cnn_benchmarks' six CNNs, which Lambda's TensorFlow benchmark trains.

They differ from the zoo's. Facts from scripts/tf_cnn_benchmarks of https://github.com/tensorflow/benchmarks
(models/alexnet_model.py, vgg_model.py, resnet_model.py, inception_model.py, convnet_builder.py): 1001 classes;
ResNet v1 strides in a block's first 1x1 convolution; Inception's batch norms have no scale; AlexNet sees 227 pixels
and has 384 channels in its fourth convolution.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from predictor.cnns.builder import FeatureMap, NetBuilder
from predictor.cnns.layer_table import LayerTable

_CLASSES = 1001

# A module is a list of branches; a branch is steps "channels HxW" with "/2" for stride 2 and "!" for no
# padding (a stride of 2 is never padded), or a pool; "|" ends a branch in several convolutions of one input.
_V3_A = ("64 1x1", "48 1x1 > 64 5x5", "64 1x1 > 96 3x3 > 96 3x3", "avg > {0} 1x1")
_V3_B = ("384 3x3/2", "64 1x1 > 96 3x3 > 96 3x3/2", "max/2")
_V3_C = (
    "192 1x1",
    "{0} 1x1 > {0} 1x7 > 192 7x1",
    "{0} 1x1 > {0} 7x1 > {0} 1x7 > {0} 7x1 > 192 1x7",
    "avg > 192 1x1",
)
_V3_D = ("192 1x1 > 320 3x3/2", "192 1x1 > 192 1x7 > 192 7x1 > 192 3x3/2", "max/2")
_V3_E = ("320 1x1", "384 1x1 > 384 1x3 | 384 3x1", "448 1x1 > 384 3x3 > 384 1x3 | 384 3x1", "{0} > 192 1x1")

_V4_STEM = (
    ("max/2", "96 3x3/2"),
    ("64 1x1 > 96 3x3!", "64 1x1 > 64 7x1 > 64 1x7 > 96 3x3!"),
    ("192 3x3/2", "max/2"),
)
_V4_A = ("avg > 96 1x1", "96 1x1", "64 1x1 > 96 3x3", "64 1x1 > 96 3x3 > 96 3x3")
_V4_TO_B = ("max/2", "384 3x3/2", "192 1x1 > 224 3x3 > 256 3x3/2")
_V4_B = (
    "avg > 128 1x1",
    "384 1x1",
    "192 1x1 > 224 1x7 > 256 7x1",
    "192 1x1 > 192 1x7 > 224 7x1 > 224 1x7 > 256 7x1",
)
_V4_TO_C = ("max/2", "192 1x1 > 192 3x3/2", "256 1x1 > 256 1x7 > 320 7x1 > 320 3x3/2")
_V4_C = (
    "avg > 256 1x1",
    "256 1x1",
    "384 1x1 > 256 1x3 | 256 3x1",
    "384 1x1 > 448 1x3 > 512 3x1 > 256 3x1 | 256 1x3",
)


def tf_cnn(name: str, image_size: int) -> LayerTable:
    """Layer table of a CNN of `TF_CNNS`, named ``lambda/<name>``; AlexNet's images have 3 pixels more."""
    net = NetBuilder(f"lambda/{name}", image_size + (3 if name == "alexnet" else 0))
    net.linear(TF_CNNS[name](net), "logits", _CLASSES)
    table = replace(net.table(), source="tf_cnn_benchmarks")
    if not name.startswith("inception"):
        return table
    layers = tuple(  # batch norms that learn a shift but no scale: one trainable parameter per channel
        replace(layer, parameters=layer.out_channels or 0) if layer.type == "batch_norm" else layer
        for layer in table.layers
    )
    return replace(table, layers=layers)


def _conv_relu(
    net: NetBuilder, x: FeatureMap, name: str, channels: int, kernel: int, stride: int = 1
) -> FeatureMap:
    padding = kernel // 2 if stride == 1 else 0
    return net.activation(net.conv(x, name, channels, kernel, stride, padding), f"{name}.relu")


def _classifier(net: NetBuilder, x: FeatureMap) -> FeatureMap:
    x = net.flatten(x)
    for name in ("affine0", "affine1"):
        x = net.dropout(net.activation(net.linear(x, name, 4096), f"{name}.relu"), f"{name}.dropout")
    return x


def _alexnet(net: NetBuilder) -> FeatureMap:
    x = net.max_pool(_conv_relu(net, net.image, "conv0", 64, 11, 4), "mpool0", 3, 2)
    x = net.max_pool(_conv_relu(net, x, "conv1", 192, 5), "mpool1", 3, 2)
    for index, channels in enumerate((384, 384, 256), start=2):
        x = _conv_relu(net, x, f"conv{index}", channels, 3)
    return _classifier(net, net.max_pool(x, "mpool2", 3, 2))


def _vgg16(net: NetBuilder) -> FeatureMap:
    x = net.image
    for stage, (channels, convolutions) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        for index in range(convolutions):
            x = _conv_relu(net, x, f"stage{stage}.conv{index}", channels, 3)
        x = net.max_pool(x, f"mpool{stage}", 2, 2)
    return _classifier(net, x)


def _resnet_v1(*blocks: int) -> Callable[[NetBuilder], FeatureMap]:
    def build(net: NetBuilder) -> FeatureMap:
        x = net.max_pool(net.conv_norm(net.image, "conv0", 64, 7, 2), "mpool0", 3, 2, 1)
        for stage, repeats in enumerate(blocks):
            for index in range(repeats):
                stride = 2 if stage and not index else 1
                x = _bottleneck(net, x, f"stage{stage}.{index}", 64 << stage, stride)
        return net.adaptive_avg_pool(x, "spatial_mean")

    return build


def _bottleneck(net: NetBuilder, x: FeatureMap, name: str, channels: int, stride: int) -> FeatureMap:
    shortcut = x
    if x.channels != 4 * channels:
        shortcut = net.conv_norm(x, f"{name}.shortcut", 4 * channels, 1, stride, activation=None)
    y = net.conv_norm(x, f"{name}.conv1", channels, 1, stride)
    y = net.conv_norm(y, f"{name}.conv2", channels, 3)
    y = net.conv_norm(y, f"{name}.conv3", 4 * channels, 1, activation=None)
    return net.activation(net.add(y, shortcut, f"{name}.add"), f"{name}.relu")


def _inception_v3(net: NetBuilder) -> FeatureMap:
    stem = "32 3x3/2 > 32 3x3! > 64 3x3 > max/2 > 80 1x1 > 192 3x3! > max/2"
    x = _branch(net, net.image, "stem", stem)[0]
    modules = [(_V3_A, 32), (_V3_A, 64), (_V3_A, 64), (_V3_B, 0)]
    modules += [(_V3_C, channels) for channels in (128, 160, 160, 192)]
    modules += [(_V3_D, 0), (_V3_E, "avg"), (_V3_E, "max")]  # type: ignore[list-item]  # both fill the placeholder
    for index, (branches, filling) in enumerate(modules):
        x = _module(net, x, f"mixed{index}", [branch.format(filling) for branch in branches])
    return net.flatten(net.adaptive_avg_pool(x, "apool"))


def _inception_v4(net: NetBuilder) -> FeatureMap:
    x = _branch(net, net.image, "stem", "32 3x3/2 > 32 3x3! > 64 3x3")[0]
    modules = [*_V4_STEM, *[_V4_A] * 4, _V4_TO_B, *[_V4_B] * 7, _V4_TO_C, *[_V4_C] * 3]
    for index, branches in enumerate(modules):
        x = _module(net, x, f"mixed{index}", list(branches))
    return net.dropout(net.adaptive_avg_pool(x, "spatial_mean"), "dropout")


def _module(net: NetBuilder, x: FeatureMap, name: str, branches: list[str]) -> FeatureMap:
    ends = [end for index, steps in enumerate(branches) for end in _branch(net, x, f"{name}.{index}", steps)]
    return net.concat(ends, f"{name}.concat")


def _branch(net: NetBuilder, x: FeatureMap, name: str, steps: str) -> list[FeatureMap]:
    ends = [x]
    for index, step in enumerate(steps.split(" > ")):
        forks = step.split(" | ")
        ends = [_step(net, ends[0], f"{name}.{index}{'ab'[fork]}", text) for fork, text in enumerate(forks)]
    return ends


def _step(net: NetBuilder, x: FeatureMap, name: str, text: str) -> FeatureMap:
    if text == "max/2":
        return net.max_pool(x, name, 3, 2)
    if text in ("max", "avg"):
        return (net.max_pool if text == "max" else net.avg_pool)(x, name, 3, 1, 1)
    channels, kernel = text.split()
    height, width = (int(size) for size in kernel.rstrip("!").removesuffix("/2").split("x"))
    stride, padded = (2, False) if kernel.endswith("/2") else (1, not kernel.endswith("!"))
    padding = (height // 2, width // 2) if padded else 0
    return net.conv_norm(x, name, int(channels), (height, width), stride, padding)


TF_CNNS: dict[str, Callable[[NetBuilder], FeatureMap]] = {
    "alexnet": _alexnet,
    "vgg16": _vgg16,
    "resnet50": _resnet_v1(3, 4, 6, 3),
    "resnet152": _resnet_v1(3, 8, 36, 3),
    "inception_v3": _inception_v3,
    "inception_v4": _inception_v4,
}
"""Builders of everything but the last dense layer, by the names of the published table."""
