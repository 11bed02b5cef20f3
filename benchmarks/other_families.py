"""CNNs of families that no table has: those of `other_families.csv`, by their names in timm, and a U-Net of our own.

A user's file: `epochcast profile --preset targets:benchmarks/other_families.py:repvgg_a0@224`.
"""

from collections.abc import Callable
from typing import Any

from torch import nn  # noqa: TID253 - a user's file, loaded where it is trained

_GROUPS = 8
_CLASSES = 10
_WIDTHS = (48, 96, 192, 384)


def __getattr__(name: str) -> Callable[[], nn.Module]:
    if name.startswith("_"):
        raise AttributeError(name)

    def make() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False)

    return make


class Twice(nn.Sequential):
    """Two 3 x 3 convolutions, each with a group norm and SiLU."""

    def __init__(self, channels: int, out_channels: int) -> None:
        layers: list[nn.Module] = []
        for width in (channels, out_channels):
            layers += [
                nn.Conv2d(width, out_channels, 3, padding=1, bias=False),
                nn.GroupNorm(_GROUPS, out_channels),
                nn.SiLU(),
            ]
        super().__init__(*layers)


class UNet(nn.Module):
    """Four stages down, three up with the maps of the stages down beside them; logits are means over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList(
            Twice(before, width) for before, width in zip((3, *_WIDTHS), _WIDTHS, strict=False)
        )
        self.pool = nn.MaxPool2d(2)
        upwards = list(zip(_WIDTHS[:0:-1], _WIDTHS[-2::-1], strict=True))
        self.widen = nn.ModuleList(nn.ConvTranspose2d(below, width, 2, stride=2) for below, width in upwards)
        self.up = nn.ModuleList(Twice(2 * width, width) for _, width in upwards)
        self.classify = nn.Conv2d(_WIDTHS[0], _CLASSES, 1)

    def forward(self, x: Any) -> Any:  # noqa: D102 - PyTorch's
        import torch

        kept = []
        for i, stage in enumerate(self.down):
            x = stage(x if i == 0 else self.pool(x))
            kept.append(x)
        for widen, stage, beside in zip(self.widen, self.up, kept[-2::-1], strict=True):
            x = stage(torch.cat((beside, widen(x)), 1))
        return self.classify(x).mean((2, 3))


def unet_group_norm() -> nn.Module:
    return UNet()
