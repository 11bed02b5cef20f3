"""Forms of operators that counters of operations miss: modules of maps of 64 x 16 x 16, with their multiply-adds."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

CHANNELS, SIDE = 64, 16
_POSITIONS = SIDE**2


class Form(nn.Module):
    """A module of these children and parameters with this forward pass."""

    def __init__(self, forward: Callable[..., torch.Tensor], **parts: Any) -> None:
        super().__init__()
        self._run = forward
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self._run(self, maps)


def convolution(groups: int = 1) -> nn.Module:
    """A 3 x 3 convolution."""
    return nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False, groups=groups))


def attention() -> nn.Module:
    """Self-attention of four heads over the positions."""

    def attend(self: Any, maps: torch.Tensor) -> torch.Tensor:
        tokens = maps.flatten(2).mT
        return self.heads(tokens, tokens, tokens, need_weights=False)[0]

    return Form(attend, heads=nn.MultiheadAttention(CHANNELS, 4, bias=False, batch_first=True))


def gram() -> nn.Module:
    """Products of a map's channels, written as `@`."""

    def product(self: Any, maps: torch.Tensor) -> torch.Tensor:
        rows = (maps * self.scale).flatten(2)
        return rows @ rows.mT

    return Form(product, scale=nn.Parameter(torch.rand(1)))


FORMS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "convolution": (convolution, _POSITIONS * CHANNELS**2 * 9),
    "8 groups": (partial(convolution, 8), _POSITIONS * CHANNELS**2 // 8 * 9),
    "depthwise": (partial(convolution, CHANNELS), _POSITIONS * CHANNELS * 9),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(CHANNELS, CHANNELS, 2, 2, bias=False)),
        _POSITIONS * CHANNELS**2 * 4,
    ),
    "linear over a map": (
        lambda: Form(
            lambda self, maps: self.fc(maps.permute(0, 2, 3, 1)), fc=nn.Linear(CHANNELS, CHANNELS, bias=False)
        ),
        _POSITIONS * CHANNELS**2,
    ),
    "attention": (attention, 4 * _POSITIONS * CHANNELS**2 + 2 * _POSITIONS**2 * CHANNELS),
    "LSTM": (
        lambda: Form(
            lambda self, maps: self.lstm(maps.flatten(2).mT)[0],
            lstm=nn.LSTM(CHANNELS, CHANNELS, batch_first=True, bias=False),
        ),
        _POSITIONS * 4 * CHANNELS * 2 * CHANNELS,
    ),
    "functional": (
        lambda: Form(
            lambda self, maps: nn.functional.conv2d(maps, self.filters, padding=1),
            filters=nn.Parameter(torch.rand(CHANNELS, CHANNELS, 3, 3)),
        ),
        _POSITIONS * CHANNELS**2 * 9,
    ),
    "shared module": (
        lambda: Form(lambda self, maps: self.conv(self.conv(maps)), conv=convolution()),
        2 * _POSITIONS * CHANNELS**2 * 9,
    ),
    "product `@`": (gram, _POSITIONS * CHANNELS**2),
}
"""Makers of modules, and the multiply-adds of a forward pass of one map, by name."""
