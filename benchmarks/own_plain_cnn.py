"""Another CNN that is in no zoo and in no measurement, without grouped convolutions: of `real_epochs.py`'s second set.

For 96-pixel images: stages from 48 down to 12 pixels, whose blocks join three ways side by side (3 x 3, 1 x 5 then
5 x 1, pooling).
"""

from typing import Any

from torch import nn  # noqa: TID253 - a user's file, loaded where it is trained

_CLASSES = 10
_WIDTHS = (64, 128, 256)


class Way(nn.Sequential):
    """Convolutions of given kernels one after another, a batch norm and an activation."""

    def __init__(self, channels: int, out_channels: int, *kernels: tuple[int, int]) -> None:
        layers: list[nn.Module] = []
        for height, width in kernels:
            layers.append(
                nn.Conv2d(
                    channels, out_channels, (height, width), padding=(height // 2, width // 2), bias=False
                )
            )
            channels = out_channels
        super().__init__(*layers, nn.BatchNorm2d(out_channels), nn.ReLU())


class Block(nn.Module):
    """Three ways side by side, concatenated."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        quarter = out_channels // 4
        self.square = Way(channels, out_channels - 2 * quarter, (3, 3))
        self.cross = Way(channels, quarter, (1, 5), (5, 1))
        self.pool = nn.MaxPool2d(3, stride=1, padding=1)
        self.pooled = Way(channels, quarter, (1, 1))

    def forward(self, x: Any) -> Any:
        import torch

        return torch.cat((self.square(x), self.cross(x), self.pooled(self.pool(x))), 1)


class Ways(nn.Module):
    """A stem, three stages of two blocks with a max pooling between, the mean over positions, a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        first, second, third = _WIDTHS
        self.stem = Way(3, first // 2, (5, 5))
        self.halve = nn.MaxPool2d(2)
        self.high = nn.Sequential(Block(first // 2, first), Block(first, first))
        self.halve_again = nn.MaxPool2d(2)
        self.middle = nn.Sequential(Block(first, second), Block(second, second))
        self.halve_once_more = nn.MaxPool2d(2)
        self.low = nn.Sequential(Block(second, third), Block(third, third))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.classify = nn.Linear(third, _CLASSES)

    def forward(self, x: Any) -> Any:
        x = self.high(self.halve(self.stem(x)))
        x = self.middle(self.halve_again(x))
        x = self.low(self.halve_once_more(x))
        return self.classify(self.flatten(self.pool(x)))


def make_model() -> nn.Module:
    return Ways()
