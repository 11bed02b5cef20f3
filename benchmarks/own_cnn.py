"""A CNN that is in no zoo and in no measurement: the one of our own that `real_epochs.py` forecasts and trains.

An hourglass for 96-pixel images: residual blocks of 7 x 7 depthwise convolutions down to 12 pixels, a transposed
convolution up to 24, where the maps of the way down are concatenated, then a classifier.
"""

from typing import Any

from torch import nn  # noqa: TID253 - a user's file, loaded where it is trained

_CLASSES = 10
_WIDTHS = (48, 96, 192)
_EXPANSION = 3


class Block(nn.Module):
    """A residual block: depthwise 7 x 7, batch norm, three times as many channels and back."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels)
        self.widen = nn.Conv2d(channels, _EXPANSION * channels, 1)
        self.activation = nn.SiLU()
        self.narrow = nn.Conv2d(_EXPANSION * channels, channels, 1)

    def forward(self, x: Any) -> Any:
        return x + self.narrow(self.activation(self.widen(self.norm(self.depthwise(x)))))


class Hourglass(nn.Module):
    """Three stages down, one up, one more block, the mean over positions, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = _WIDTHS
        self.stem = nn.Sequential(
            nn.Conv2d(3, first, 5, stride=2, padding=2, bias=False), nn.BatchNorm2d(first), nn.SiLU()
        )
        self.high = nn.Sequential(Block(first), Block(first))
        self.down = nn.Sequential(nn.Conv2d(first, second, 2, stride=2), nn.BatchNorm2d(second))
        self.middle = nn.Sequential(Block(second), Block(second))
        self.further_down = nn.Sequential(nn.Conv2d(second, third, 2, stride=2), nn.BatchNorm2d(third))
        self.low = nn.Sequential(Block(third), Block(third), Block(third))
        self.up = nn.ConvTranspose2d(third, second, 2, stride=2)
        self.joined = nn.Sequential(nn.Conv2d(2 * second, 2 * second, 3, padding=1, groups=4), nn.SiLU())
        self.last = Block(2 * second)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classify = nn.Linear(2 * second, _CLASSES)

    def forward(self, x: Any) -> Any:
        import torch

        middle = self.middle(self.down(self.high(self.stem(x))))
        low = self.low(self.further_down(middle))
        joined = self.last(self.joined(torch.cat((middle, self.up(low)), 1)))
        return self.classify(self.flatten(self.pool(joined)))


def make_model() -> nn.Module:
    return Hourglass()
