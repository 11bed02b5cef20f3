"""Chainer's convolutions beside PyTorch's, outputs and gradients, in float32 on the CPU."""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

CASES = {
    "plain": {"c_in": 8, "c_out": 6, "k": 3, "stride": 1, "pad": 1, "dilation": 1, "groups": 1},
    "strided": {"c_in": 3, "c_out": 8, "k": 7, "stride": 2, "pad": 3, "dilation": 1, "groups": 1},
    "grouped": {"c_in": 8, "c_out": 12, "k": 3, "stride": 1, "pad": 1, "dilation": 1, "groups": 4},
    "depthwise": {"c_in": 8, "c_out": 8, "k": 3, "stride": 2, "pad": 1, "dilation": 1, "groups": 8},
    "dilated": {"c_in": 4, "c_out": 6, "k": 3, "stride": 1, "pad": 2, "dilation": 2, "groups": 1},
    "grouped, dilated and strided": {
        "c_in": 8,
        "c_out": 4,
        "k": 3,
        "stride": 2,
        "pad": 2,
        "dilation": 2,
        "groups": 2,
    },
    "pointwise": {"c_in": 16, "c_out": 4, "k": 1, "stride": 1, "pad": 0, "dilation": 1, "groups": 1},
}


def _relative(ours: Any, theirs: Any) -> float:
    """Length of the difference beside that of the numbers."""
    return float(np.linalg.norm(ours - theirs) / np.linalg.norm(theirs))


@pytest.mark.parametrize("name", CASES)
def test_outputs_and_gradients_equal_pytorchs(chainer, name):
    case, draw = CASES[name], np.random.default_rng(0)
    x = draw.standard_normal((4, case["c_in"], 17, 15), np.float32)
    w = draw.standard_normal(
        (case["c_out"], case["c_in"] // case["groups"], case["k"], case["k"]), np.float32
    )
    b = draw.standard_normal(case["c_out"], np.float32)
    theirs = [torch.tensor(array, requires_grad=True) for array in (x, w, b)]
    numbers = (case["stride"], case["pad"], case["dilation"], case["groups"])
    expected = torch.nn.functional.conv2d(*theirs, *numbers)
    gradient = draw.standard_normal(tuple(expected.shape), np.float32)
    expected.backward(torch.tensor(gradient))
    ours = [chainer.Variable(array) for array in (x, w, b)]
    y = chainer.functions.convolution_2d(
        *ours, stride=case["stride"], pad=case["pad"], dilate=case["dilation"], groups=case["groups"]
    )
    y.grad = gradient
    y.backward()
    assert _relative(y.array, expected.detach().numpy()) < 1e-6
    for mine, yours in zip(ours, theirs, strict=True):
        assert _relative(mine.grad, yours.grad.numpy()) < 1e-6
