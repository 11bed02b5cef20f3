"""What each type of layer computes, reads and writes in the three passes of training: one row per type.

Read by `predictor.work` alone; calls nothing of ours. The counts are those of the textbook algorithms, as if
running sums alone stayed in cache; what a framework does better or worse, the predictors learn.
"""

from typing import NamedTuple

__all__ = ["LEARNED_SCALE", "WORK", "Traffic", "Work"]


class Traffic(NamedTuple):
    """How often one pass of a layer reads and writes what is as large as its input, output and weights."""

    read_input: int = 0
    read_output: int = 0
    read_weights: int = 0
    written_input: int = 0
    written_output: int = 0
    written_weights: int = 0


class Work(NamedTuple):
    """FLOPs and traffic of the passes: forward, input's and weights' gradients.

    `flops` is per output number (a pooling: and per number of its window), None where it is multiply-adds.
    """

    flops: tuple[float, float, float] | None
    forward: Traffic
    backward_input: Traffic
    backward_weight: Traffic = Traffic()


_READ_WRITE = Traffic(read_input=1, written_output=1)
_READ_WRITE_BACK = Traffic(read_output=1, written_input=1)
_COPY = Work((0, 0, 0), _READ_WRITE, _READ_WRITE_BACK)
_PRODUCT = Work(
    None,
    Traffic(read_input=1, read_weights=1, written_output=1),
    Traffic(read_output=1, read_weights=1, written_input=1),
    Traffic(read_input=1, read_output=1, written_weights=1),
)

# Batch norm reads its input for the statistics, then to normalize; backward sums dy and dy x, then makes dx
# from x and dy: 8 tensors in all. A layer norm's statistics fit in registers: it reads its input once. The
# gradient of an addition passes unchanged, but where its branches began, gradients are added: counted here.
WORK: dict[str, Work] = {
    "conv2d": _PRODUCT,
    "conv_transpose2d": _PRODUCT,
    "linear": _PRODUCT,
    "batch_norm": Work(
        (5, 4, 3),
        Traffic(read_input=2, read_weights=1, written_output=1),
        Traffic(read_input=1, read_output=1, read_weights=1, written_input=1),
        Traffic(read_input=1, read_output=1, written_weights=1),
    ),
    "layer_norm": Work(
        (5, 7, 3),
        Traffic(read_input=1, read_weights=1, written_output=1),
        Traffic(read_input=1, read_output=1, read_weights=1, written_input=1),
        Traffic(read_input=1, read_output=1, written_weights=1),
    ),
    "activation": Work((1, 1, 0), _READ_WRITE, Traffic(read_output=2, written_input=1)),
    "max_pool": Work((1, 0, 0), _READ_WRITE, _READ_WRITE_BACK),
    "avg_pool": Work((1, 1, 0), _READ_WRITE, _READ_WRITE_BACK),
    "add": Work((1, 1, 0), Traffic(read_input=2, written_output=1), Traffic(read_output=2, written_input=1)),
    "multiply": Work((1, 3, 0), _READ_WRITE, Traffic(read_input=1, read_output=2, written_input=1)),
    "concat": _COPY,
    "dropout": Work((2, 1, 0), _READ_WRITE, _READ_WRITE_BACK),
    "stochastic_depth": Work((1, 1, 0), _READ_WRITE, _READ_WRITE_BACK),
    "permute": _COPY,
    "pad": _COPY,
    "flatten": Work((0, 0, 0), Traffic(), Traffic()),  # a view
    "other": Work((1, 1, 0), _READ_WRITE, _READ_WRITE_BACK),
}

# A learned scale: dx from dy and the weights, then the weights' gradients from x and dy.
LEARNED_SCALE = Work(
    (1, 1, 2),
    Traffic(read_input=1, read_weights=1, written_output=1),
    Traffic(read_output=1, read_weights=1, written_input=1),
    Traffic(read_input=1, read_output=1, written_weights=1),
)
