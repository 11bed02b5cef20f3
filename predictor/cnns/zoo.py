"""The zoo: one line for each known CNN, and the look-up of its layer table by name and image size."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import index

from predictor.cnns.builder import NetBuilder
from predictor.cnns.families.airbench import airbench94
from predictor.cnns.families.alexnet import alexnet
from predictor.cnns.families.convnext import convnext
from predictor.cnns.families.dcgan import dcgan_discriminator, dcgan_generator
from predictor.cnns.families.densenet import densenet
from predictor.cnns.families.efficientnet import efficientnet, efficientnet_v2
from predictor.cnns.families.googlenet import googlenet
from predictor.cnns.families.inception import inception_v3, inception_v4
from predictor.cnns.families.mnasnet import mnasnet
from predictor.cnns.families.mnist import lenet5, mnist_cnn
from predictor.cnns.families.mobilenet import mobilenet_v2, mobilenet_v3_large, mobilenet_v3_small
from predictor.cnns.families.regnet import regnet
from predictor.cnns.families.resnet import resnet, resnet9, resnet_cifar, resnet_preactivated
from predictor.cnns.families.shufflenet import shufflenet_v2
from predictor.cnns.families.squeezenet import squeezenet
from predictor.cnns.families.vgg import vgg, vgg_cifar
from predictor.cnns.layer_table import LayerTable
from predictor.errors import OutOfRangeError, UnknownCnnError, nearest


@dataclass(frozen=True, slots=True)
class ZooCnn:
    """How to write one CNN's layer table. Image sizes in pixels (square images); `maximum` None: no limit.

    The minimum leaves at least one pixel at every layer; batch norm on a single pixel also needs mini-batches of two
    images or more.
    """

    build: Callable[[NetBuilder], None]
    usual_image_size: int
    minimum_image_size: int
    in_channels: int = 3
    maximum_image_size: int | None = None


_VGG11, _VGG13, _VGG16, _VGG19 = (1, 1, 2, 2, 2), (2, 2, 2, 2, 2), (2, 2, 3, 3, 3), (2, 2, 4, 4, 4)
_RESNET18, _RESNET50, _RESNET101 = (2, 2, 2, 2), (3, 4, 6, 3), (3, 4, 23, 3)


def _regnet(
    blocks: tuple[int, ...],
    channels: tuple[int, ...],
    group_width: int,
    size: int = 224,
    excited: bool = False,
) -> ZooCnn:
    return ZooCnn(
        partial(regnet, blocks=blocks, channels=channels, group_width=group_width, excited=excited), size, 1
    )


_regnet_y = partial(_regnet, excited=True)


def _resnet_cifar(blocks: int) -> ZooCnn:
    """He et al.'s narrow ResNet of 6 `blocks` + 2 layers, with projected shortcuts."""
    return ZooCnn(partial(resnet_cifar, blocks=(blocks,) * 3, channels=(16, 32, 64)), 32, 1)


ZOO: dict[str, ZooCnn] = {
    "airbench94": ZooCnn(airbench94, 32, 25),
    "alexnet": ZooCnn(alexnet, 224, 63),
    "convnext_base": ZooCnn(partial(convnext, blocks=(3, 3, 27, 3), channels=128), 224, 32),
    "convnext_large": ZooCnn(partial(convnext, blocks=(3, 3, 27, 3), channels=192), 224, 32),
    "convnext_small": ZooCnn(partial(convnext, blocks=(3, 3, 27, 3), channels=96), 224, 32),
    "convnext_tiny": ZooCnn(partial(convnext, blocks=(3, 3, 9, 3), channels=96), 224, 32),
    "dcgan_discriminator": ZooCnn(dcgan_discriminator, 64, 64, maximum_image_size=79),
    "dcgan_generator": ZooCnn(dcgan_generator, 64, 64, in_channels=100, maximum_image_size=64),
    "densenet121": ZooCnn(partial(densenet, layers=(6, 12, 24, 16)), 224, 29),
    "densenet161": ZooCnn(
        partial(densenet, layers=(6, 12, 36, 24), growth_rate=48, stem_channels=96), 224, 29
    ),
    "densenet169": ZooCnn(partial(densenet, layers=(6, 12, 32, 32)), 224, 29),
    "densenet201": ZooCnn(partial(densenet, layers=(6, 12, 48, 32)), 224, 29),
    "densenet_bc_cifar": ZooCnn(
        partial(densenet, layers=(16, 16, 16), growth_rate=12, stem_channels=24, cifar=True, classes=10),
        32,
        4,
    ),
    "efficientnet_b0": ZooCnn(partial(efficientnet, width=1.0, depth=1.0), 224, 1),
    "efficientnet_b1": ZooCnn(partial(efficientnet, width=1.0, depth=1.1), 240, 1),
    "efficientnet_b2": ZooCnn(partial(efficientnet, width=1.1, depth=1.2), 288, 1),
    "efficientnet_b3": ZooCnn(partial(efficientnet, width=1.2, depth=1.4), 300, 1),
    "efficientnet_b4": ZooCnn(partial(efficientnet, width=1.4, depth=1.8), 380, 1),
    "efficientnet_b5": ZooCnn(partial(efficientnet, width=1.6, depth=2.2), 456, 1),
    "efficientnet_b6": ZooCnn(partial(efficientnet, width=1.8, depth=2.6), 528, 1),
    "efficientnet_b7": ZooCnn(partial(efficientnet, width=2.0, depth=3.1), 600, 1),
    "efficientnet_v2_l": ZooCnn(partial(efficientnet_v2, size="l"), 480, 1),
    "efficientnet_v2_m": ZooCnn(partial(efficientnet_v2, size="m"), 480, 1),
    "efficientnet_v2_s": ZooCnn(partial(efficientnet_v2, size="s"), 384, 1),
    "googlenet": ZooCnn(googlenet, 224, 15),
    "inception_v3": ZooCnn(inception_v3, 299, 75),
    "inception_v4": ZooCnn(inception_v4, 299, 75),
    "lenet5": ZooCnn(lenet5, 28, 12, in_channels=1),
    "mnasnet0_5": ZooCnn(partial(mnasnet, width=0.5), 224, 1),
    "mnasnet0_75": ZooCnn(partial(mnasnet, width=0.75), 224, 1),
    "mnasnet1_0": ZooCnn(partial(mnasnet, width=1.0), 224, 1),
    "mnasnet1_3": ZooCnn(partial(mnasnet, width=1.3), 224, 1),
    "mnist_cnn": ZooCnn(mnist_cnn, 28, 6, in_channels=1),
    "mobilenet_v2": ZooCnn(mobilenet_v2, 224, 1),
    "mobilenet_v3_large": ZooCnn(mobilenet_v3_large, 224, 1),
    "mobilenet_v3_small": ZooCnn(mobilenet_v3_small, 224, 1),
    "regnet_x_12gf": _regnet((2, 5, 11, 1), (224, 448, 896, 2240), 112),
    "regnet_x_16gf": _regnet((2, 6, 13, 1), (256, 512, 896, 2048), 128),
    "regnet_x_1_6gf": _regnet((2, 4, 10, 2), (72, 168, 408, 912), 24),
    "regnet_x_200mf": _regnet((1, 1, 4, 7), (24, 56, 152, 368), 8),
    "regnet_x_32gf": _regnet((2, 7, 13, 1), (336, 672, 1344, 2520), 168),
    "regnet_x_3_2gf": _regnet((2, 6, 15, 2), (96, 192, 432, 1008), 48),
    "regnet_x_400mf": _regnet((1, 2, 7, 12), (32, 64, 160, 400), 16),
    "regnet_x_4gf": _regnet((2, 5, 14, 2), (80, 240, 560, 1360), 40),
    "regnet_x_600mf": _regnet((1, 3, 5, 7), (48, 96, 240, 528), 24),
    "regnet_x_6_4gf": _regnet((2, 4, 10, 1), (168, 392, 784, 1624), 56),
    "regnet_x_800mf": _regnet((1, 3, 7, 5), (64, 128, 288, 672), 16),
    "regnet_x_8gf": _regnet((2, 5, 15, 1), (80, 240, 720, 1920), 120),
    "regnet_y_128gf": _regnet_y((2, 7, 17, 1), (528, 1056, 2904, 7392), 264, size=384),
    "regnet_y_12gf": _regnet_y((2, 5, 11, 1), (224, 448, 896, 2240), 112),
    "regnet_y_16gf": _regnet_y((2, 4, 11, 1), (224, 448, 1232, 3024), 112),
    "regnet_y_1_6gf": _regnet_y((2, 6, 17, 2), (48, 120, 336, 888), 24),
    "regnet_y_200mf": _regnet_y((1, 1, 4, 7), (24, 56, 152, 368), 8),
    "regnet_y_32gf": _regnet_y((2, 5, 12, 1), (232, 696, 1392, 3712), 232),
    "regnet_y_3_2gf": _regnet_y((2, 5, 13, 1), (72, 216, 576, 1512), 24),
    "regnet_y_400mf": _regnet_y((1, 3, 6, 6), (48, 104, 208, 440), 8),
    "regnet_y_4gf": _regnet_y((2, 6, 12, 2), (128, 192, 512, 1088), 64),
    "regnet_y_600mf": _regnet_y((1, 3, 7, 4), (48, 112, 256, 608), 16),
    "regnet_y_6_4gf": _regnet_y((2, 7, 14, 2), (144, 288, 576, 1296), 72),
    "regnet_y_800mf": _regnet_y((1, 3, 8, 2), (64, 144, 320, 784), 16),
    "regnet_y_8gf": _regnet_y((2, 4, 10, 1), (224, 448, 896, 2016), 56),
    "resnet101": ZooCnn(partial(resnet, blocks=_RESNET101), 224, 1),
    "resnet110_cifar": _resnet_cifar(18),
    "resnet152": ZooCnn(partial(resnet, blocks=(3, 8, 36, 3)), 224, 1),
    "resnet164_cifar": ZooCnn(partial(resnet_preactivated, blocks=18), 32, 1),
    "resnet18": ZooCnn(partial(resnet, blocks=_RESNET18, bottleneck=False), 224, 1),
    "resnet18_cifar": ZooCnn(partial(resnet_cifar, blocks=_RESNET18), 32, 1),
    "resnet200": ZooCnn(partial(resnet, blocks=(3, 24, 36, 3)), 224, 1),
    "resnet20_cifar": _resnet_cifar(3),
    "resnet34": ZooCnn(partial(resnet, blocks=_RESNET50, bottleneck=False), 224, 1),
    "resnet50": ZooCnn(partial(resnet, blocks=_RESNET50), 224, 1),
    "resnet56_cifar": _resnet_cifar(9),
    "resnet9": ZooCnn(resnet9, 32, 32),
    "resnext101_32x8d": ZooCnn(partial(resnet, blocks=_RESNET101, groups=32, width_per_group=8), 224, 1),
    "resnext101_64x4d": ZooCnn(partial(resnet, blocks=_RESNET101, groups=64, width_per_group=4), 224, 1),
    "resnext50_32x4d": ZooCnn(partial(resnet, blocks=_RESNET50, groups=32, width_per_group=4), 224, 1),
    "shufflenet_v2_cifar": ZooCnn(
        partial(shufflenet_v2, stage_channels=(116, 232, 464), cifar=True, classes=10), 32, 1
    ),
    "shufflenet_v2_x0_5": ZooCnn(partial(shufflenet_v2, stage_channels=(48, 96, 192)), 224, 1),
    "shufflenet_v2_x1_0": ZooCnn(partial(shufflenet_v2, stage_channels=(116, 232, 464)), 224, 1),
    "shufflenet_v2_x1_5": ZooCnn(partial(shufflenet_v2, stage_channels=(176, 352, 704)), 224, 1),
    "shufflenet_v2_x2_0": ZooCnn(
        partial(shufflenet_v2, stage_channels=(244, 488, 976), last_channels=2048), 224, 1
    ),
    "squeezenet1_0": ZooCnn(
        partial(squeezenet, stem_channels=96, stem_kernel=7, pool_before=(2, 5, 9)), 224, 21
    ),
    "squeezenet1_1": ZooCnn(
        partial(squeezenet, stem_channels=64, stem_kernel=3, pool_before=(2, 4, 6)), 224, 17
    ),
    "vgg11": ZooCnn(partial(vgg, convolutions=_VGG11), 224, 32),
    "vgg11_bn": ZooCnn(partial(vgg, convolutions=_VGG11, norm=True), 224, 32),
    "vgg13": ZooCnn(partial(vgg, convolutions=_VGG13), 224, 32),
    "vgg13_bn": ZooCnn(partial(vgg, convolutions=_VGG13, norm=True), 224, 32),
    "vgg16": ZooCnn(partial(vgg, convolutions=_VGG16), 224, 32),
    "vgg16_bn": ZooCnn(partial(vgg, convolutions=_VGG16, norm=True), 224, 32),
    "vgg19": ZooCnn(partial(vgg, convolutions=_VGG19), 224, 32),
    "vgg19_bn": ZooCnn(partial(vgg, convolutions=_VGG19, norm=True), 224, 32),
    "vgg_cifar": ZooCnn(vgg_cifar, 32, 1),
    "wide_resnet101_2": ZooCnn(partial(resnet, blocks=_RESNET101, width_per_group=128), 224, 1),
    "wide_resnet50_2": ZooCnn(partial(resnet, blocks=_RESNET50, width_per_group=128), 224, 1),
}


def zoo_names() -> list[str]:
    """Names of all CNNs of the zoo, sorted."""
    return sorted(ZOO)


def zoo_cnn(name: str, image_size: int | None = None) -> LayerTable:
    """Layer table of a CNN of the zoo; cached.

    `name`: one of `zoo_names`. `image_size`: height and width of the images, pixels; the CNN's usual one by default.
    For `dcgan_generator` the size of the images that it makes. UnknownCnnError if the zoo has no CNN of this name;
    OutOfRangeError if the image size is not a whole number, or smaller (larger) than the architecture allows.

    >>> table = zoo_cnn("resnet50")
    >>> table.parameters
    25557032
    >>> table.layers[0].out_height
    112
    """
    spec = _spec(name)
    size = spec.usual_image_size if image_size is None else _checked_size(name, spec, image_size)
    return _table(name, size)


def usual_image_size(name: str) -> int:
    """Image size at which the CNN is usually trained or was published, pixels; UnknownCnnError if unknown."""
    return _spec(name).usual_image_size


def minimum_image_size(name: str) -> int:
    """Smallest image size that the architecture allows, pixels; UnknownCnnError if unknown."""
    return _spec(name).minimum_image_size


def _spec(name: str) -> ZooCnn:
    try:
        return ZOO[name]
    except (KeyError, TypeError):
        raise UnknownCnnError(
            f"no CNN of the zoo is called {name!r}. Nearest: {nearest(str(name), ZOO)}. "
            f"`epochcast cnn list` shows all {len(ZOO)}."
        ) from None


def _checked_size(name: str, spec: ZooCnn, image_size: int) -> int:
    usual = f"its usual image size is {spec.usual_image_size}"
    try:
        size = index(image_size)
    except TypeError:
        raise OutOfRangeError(
            f"image_size {image_size!r} is not a whole number of pixels. "
            f"Pass one, such as {spec.usual_image_size}."
        ) from None
    if isinstance(image_size, bool) or size < spec.minimum_image_size:
        raise OutOfRangeError(
            f"image_size {image_size} is below {spec.minimum_image_size}, the least that {name} allows. "
            f"Pass {spec.minimum_image_size} or more; {usual}."
        )
    if spec.maximum_image_size is not None and size > spec.maximum_image_size:
        raise OutOfRangeError(
            f"image_size {size} is above {spec.maximum_image_size}, the most that {name} allows. "
            f"Pass {spec.minimum_image_size}..{spec.maximum_image_size}; {usual}."
        )
    return size


@lru_cache(maxsize=256)
def _table(name: str, image_size: int) -> LayerTable:
    spec = ZOO[name]
    net = NetBuilder(name, image_size, spec.in_channels, source="zoo")
    spec.build(net)
    return net.table()
