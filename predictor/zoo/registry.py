"""Every CNN of the zoo: one line each. Adding one is its line here and its table in datasets/cnns.

Called by `predictor.zoo`; calls the families. The names are torchvision's where it has the CNN, and so
are the usual image sizes: those of its published weights.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from predictor.zoo.alexnet import alexnet
from predictor.zoo.builder import NetBuilder
from predictor.zoo.convnext import convnext
from predictor.zoo.dcgan import dcgan_discriminator, dcgan_generator
from predictor.zoo.densenet import densenet
from predictor.zoo.efficientnet import efficientnet, efficientnet_v2
from predictor.zoo.googlenet import googlenet
from predictor.zoo.inception import inception_v3
from predictor.zoo.mnasnet import mnasnet
from predictor.zoo.mnist import lenet5, mnist_cnn
from predictor.zoo.mobilenet import mobilenet_v2, mobilenet_v3_large, mobilenet_v3_small
from predictor.zoo.regnet import regnet
from predictor.zoo.resnet import resnet, resnet_cifar
from predictor.zoo.shufflenet import shufflenet_v2
from predictor.zoo.squeezenet import squeezenet
from predictor.zoo.vgg import vgg, vgg_cifar

__all__ = ["ZOO", "ZooCnn"]


@dataclass(frozen=True, slots=True)
class ZooCnn:
    """How to write one CNN's layer table. Image sizes in pixels (square images); `maximum` None: no limit.

    The minimum is what the architecture leaves something of; batch norm on a single pixel also needs
    mini-batches of two images or more.
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


ZOO: dict[str, ZooCnn] = {
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
    "lenet5": ZooCnn(lenet5, 28, 12, in_channels=1),
    "mnasnet0_5": ZooCnn(partial(mnasnet, width=0.5), 224, 1),
    "mnasnet0_75": ZooCnn(partial(mnasnet, width=0.75), 224, 1),
    "mnasnet1_0": ZooCnn(partial(mnasnet, width=1.0), 224, 1),
    "mnasnet1_3": ZooCnn(partial(mnasnet, width=1.3), 224, 1),
    "mnist_cnn": ZooCnn(mnist_cnn, 28, 6, in_channels=1),
    "mobilenet_v2": ZooCnn(mobilenet_v2, 224, 1),
    "mobilenet_v3_large": ZooCnn(mobilenet_v3_large, 224, 1),
    "mobilenet_v3_small": ZooCnn(mobilenet_v3_small, 224, 1),
    "regnet_x_16gf": _regnet((2, 6, 13, 1), (256, 512, 896, 2048), 128),
    "regnet_x_1_6gf": _regnet((2, 4, 10, 2), (72, 168, 408, 912), 24),
    "regnet_x_32gf": _regnet((2, 7, 13, 1), (336, 672, 1344, 2520), 168),
    "regnet_x_3_2gf": _regnet((2, 6, 15, 2), (96, 192, 432, 1008), 48),
    "regnet_x_400mf": _regnet((1, 2, 7, 12), (32, 64, 160, 400), 16),
    "regnet_x_800mf": _regnet((1, 3, 7, 5), (64, 128, 288, 672), 16),
    "regnet_x_8gf": _regnet((2, 5, 15, 1), (80, 240, 720, 1920), 120),
    "regnet_y_128gf": _regnet_y((2, 7, 17, 1), (528, 1056, 2904, 7392), 264, size=384),
    "regnet_y_16gf": _regnet_y((2, 4, 11, 1), (224, 448, 1232, 3024), 112),
    "regnet_y_1_6gf": _regnet_y((2, 6, 17, 2), (48, 120, 336, 888), 24),
    "regnet_y_32gf": _regnet_y((2, 5, 12, 1), (232, 696, 1392, 3712), 232),
    "regnet_y_3_2gf": _regnet_y((2, 5, 13, 1), (72, 216, 576, 1512), 24),
    "regnet_y_400mf": _regnet_y((1, 3, 6, 6), (48, 104, 208, 440), 8),
    "regnet_y_800mf": _regnet_y((1, 3, 8, 2), (64, 144, 320, 784), 16),
    "regnet_y_8gf": _regnet_y((2, 4, 10, 1), (224, 448, 896, 2016), 56),
    "resnet101": ZooCnn(partial(resnet, blocks=_RESNET101), 224, 1),
    "resnet152": ZooCnn(partial(resnet, blocks=(3, 8, 36, 3)), 224, 1),
    "resnet18": ZooCnn(partial(resnet, blocks=_RESNET18, bottleneck=False), 224, 1),
    "resnet18_cifar": ZooCnn(partial(resnet_cifar, blocks=_RESNET18), 32, 1),
    "resnet34": ZooCnn(partial(resnet, blocks=_RESNET50, bottleneck=False), 224, 1),
    "resnet50": ZooCnn(partial(resnet, blocks=_RESNET50), 224, 1),
    "resnext101_32x8d": ZooCnn(partial(resnet, blocks=_RESNET101, groups=32, width_per_group=8), 224, 1),
    "resnext101_64x4d": ZooCnn(partial(resnet, blocks=_RESNET101, groups=64, width_per_group=4), 224, 1),
    "resnext50_32x4d": ZooCnn(partial(resnet, blocks=_RESNET50, groups=32, width_per_group=4), 224, 1),
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
