"""Forms of operators that counters of operations miss: modules of maps of 64 x 16 x 16, with their multiply-adds."""

from collections.abc import Callable

import torch
from torch import nn

CHANNELS, SIDE = 64, 16
_POSITIONS = SIDE**2


def convolution(groups: int = 1) -> Callable[[], nn.Module]:
    """Maker of a 3 x 3 convolution."""
    return lambda: nn.Sequential(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, bias=False, groups=groups))


class Attention(nn.Module):
    """Self-attention of four heads over the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(CHANNELS, 4, bias=False, batch_first=True)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        tokens = maps.flatten(2).mT
        return self.attention(tokens, tokens, tokens, need_weights=False)[0]


class Dense(nn.Module):
    """A linear layer over the positions of a map, as in a ConvNeXt."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(CHANNELS, CHANNELS, bias=False)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.linear(maps.permute(0, 2, 3, 1))


class Recurrent(nn.Module):
    """An LSTM that reads the positions one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(CHANNELS, CHANNELS, batch_first=True, bias=False)

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.lstm(maps.flatten(2).mT)[0]


class Functional(nn.Module):
    """A convolution called as a function."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.Parameter(torch.rand(CHANNELS, CHANNELS, 3, 3))

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return nn.functional.conv2d(maps, self.filters, padding=1)


class Shared(nn.Module):
    """One convolution that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = convolution()()

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        return self.convolution(self.convolution(maps))


class Gram(nn.Module):
    """Products of a map's channels, written as `@`."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.rand(1))

    def forward(self, maps: torch.Tensor) -> torch.Tensor:
        rows = (maps * self.scale).flatten(2)
        return rows @ rows.mT


FORMS: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "convolution": (convolution(), _POSITIONS * CHANNELS**2 * 9),
    "8 groups": (convolution(8), _POSITIONS * CHANNELS**2 // 8 * 9),
    "depthwise": (convolution(CHANNELS), _POSITIONS * CHANNELS * 9),
    "transposed": (
        lambda: nn.Sequential(nn.ConvTranspose2d(CHANNELS, CHANNELS, 2, 2, bias=False)),
        _POSITIONS * CHANNELS**2 * 4,
    ),
    "linear over a map": (Dense, _POSITIONS * CHANNELS**2),
    "attention": (Attention, 4 * _POSITIONS * CHANNELS**2 + 2 * _POSITIONS**2 * CHANNELS),
    "LSTM": (Recurrent, _POSITIONS * 4 * CHANNELS * 2 * CHANNELS),
    "functional": (Functional, _POSITIONS * CHANNELS**2 * 9),
    "shared module": (Shared, 2 * _POSITIONS * CHANNELS**2 * 9),
    "product `@`": (Gram, _POSITIONS * CHANNELS**2),
}
"""Makers of modules, and the multiply-adds of a forward pass of one map, by name."""
