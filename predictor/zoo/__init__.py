"""Layer tables of well-known CNNs at any image size, without any framework.

Called by `predictor.sources` and the commands; `python -m predictor.zoo` rewrites datasets/cnns. A family is
one module, built with `builder`; `registry.ZOO` has one line for each CNN. The tables list what a training
forward pass executes in PyTorch (`vgg_cifar`: in Chainer), operator by operator.
"""

from predictor.zoo.lookup import minimum_image_size, usual_image_size, zoo_cnn, zoo_names
from predictor.zoo.registry import ZOO

__all__ = ["ZOO", "minimum_image_size", "usual_image_size", "zoo_cnn", "zoo_names"]
