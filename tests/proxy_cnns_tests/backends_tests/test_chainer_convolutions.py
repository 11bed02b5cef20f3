"""Chainer's convolutions beside PyTorch's, outputs and gradients, in float32 on the CPU."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

CASES = {
    "plain": (8, 6, 3, 1, 1, 1, 1),
    "strided": (3, 8, 7, 2, 3, 1, 1),
    "grouped": (8, 12, 3, 1, 1, 1, 4),
    "depthwise": (8, 8, 3, 2, 1, 1, 8),
    "dilated": (4, 6, 3, 1, 2, 2, 1),
    "grouped, dilated and strided": (8, 4, 3, 2, 2, 2, 2),
    "pointwise": (16, 4, 1, 1, 0, 1, 1),
}
"""Input and output channels, kernel, stride, padding, dilation, groups."""


def _relative(ours: Any, theirs: Any) -> float:
    """Length of the difference beside that of the numbers."""
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_equal_pytorchs(chainer, name):
    c_in, c_out, kernel, stride, pad, dilation, groups = CASES[name]
    draw = np.random.default_rng(0)
    x = draw.standard_normal((4, c_in, 17, 15), np.float32)
    w = draw.standard_normal((c_out, c_in // groups, kernel, kernel), np.float32)
    b = draw.standard_normal(c_out, np.float32)
    theirs = [torch.tensor(array, requires_grad=True) for array in (x, w, b)]
    expected = torch.nn.functional.conv2d(*theirs, stride, pad, dilation, groups)
    gradient = draw.standard_normal(tuple(expected.shape), np.float32)
    expected.backward(torch.tensor(gradient))
    ours = [chainer.Variable(array) for array in (x, w, b)]
    y = chainer.functions.convolution_2d(*ours, stride=stride, pad=pad, dilate=dilation, groups=groups)
    y.grad = gradient
    y.backward()
    assert _relative(y.array, expected.detach().numpy()) < 1e-6
    for mine, yours in zip(ours, theirs, strict=True):
        assert _relative(mine.grad, yours.grad.numpy()) < 1e-6
