"""Two small CNNs for handwritten digits: LeNet-5 and the CNN of PyTorch's MNIST example.

Their dense layers take what the image size leaves.
"""

from predictor.cnns.builder import NetBuilder


def lenet5(net: NetBuilder, classes: int = 10) -> None:
    """LeNet-5 (LeCun et al. 1998) as it is taught today, 61,706 parameters on MNIST.

    The first convolution pads the 28-pixel digits to the 32 of the paper; tanh, plain average pooling, all
    maps of the second convolution connected, one dense layer instead of the Gaussian connections.
    """
    x = net.activation(net.conv(net.image, "conv1", 6, 5, padding=2), "tanh1", "tanh")
    x = net.avg_pool(x, "pool1", 2, 2)
    x = net.activation(net.conv(x, "conv2", 16, 5), "tanh2", "tanh")
    x = net.flatten(net.avg_pool(x, "pool2", 2, 2))
    x = net.activation(net.linear(x, "fc1", 120), "tanh3", "tanh")
    x = net.activation(net.linear(x, "fc2", 84), "tanh4", "tanh")
    net.linear(x, "fc3", classes)


def mnist_cnn(net: NetBuilder, classes: int = 10) -> None:
    """Write the CNN of PyTorch's MNIST example (pytorch/examples, mnist/main.py), 1,199,882 parameters.

    It ends in a log-softmax of its own. (Chainer's MNIST example trains no CNN.)
    """
    x = net.activation(net.conv(net.image, "conv1", 32, 3), "relu1")
    x = net.activation(net.conv(x, "conv2", 64, 3), "relu2")
    x = net.dropout(net.max_pool(x, "pool", 2, 2), "dropout1")
    x = net.activation(net.linear(net.flatten(x), "fc1", 128), "relu3")
    x = net.linear(net.dropout(x, "dropout2"), "fc2", classes)
    net.activation(x, "log_softmax", "softmax")
