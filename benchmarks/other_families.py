"""CNNs of families that no table has: those of `other_families.csv`, by their names in timm, and two of our own.

A user's file: `epochcast profile --preset targets:benchmarks/other_families.py:repvgg_a0@224`. Run as a program it
writes the layer tables of all of them for those that have neither PyTorch nor timm.
"""

import csv
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

from torch import nn  # noqa: TID253 - a user's file, loaded where it is trained

_GROUPS = 8
_CLASSES = 10
_SIZE_OF_EPOCHS = 96
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

    def forward(self, x: Any) -> Any:
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


class Squeezed(nn.Module):
    """A residual block: two 3 x 3 convolutions with group norms and SiLU, squeeze and excitation, a projection."""

    def __init__(self, channels: int, out_channels: int) -> None:
        super().__init__()
        self.twice = Twice(channels, out_channels)
        self.squeeze = nn.AdaptiveAvgPool2d(1)
        self.narrow = nn.Conv2d(out_channels, out_channels // 4, 1)
        self.activation = nn.SiLU()
        self.widen = nn.Conv2d(out_channels // 4, out_channels, 1)
        self.gate = nn.Sigmoid()
        self.shortcut = nn.Identity() if channels == out_channels else nn.Conv2d(channels, out_channels, 1)

    def forward(self, x: Any) -> Any:
        y = self.twice(x)
        scale = self.gate(self.widen(self.activation(self.narrow(self.squeeze(y)))))
        return y * scale + self.shortcut(x)


def group_norm_se() -> nn.Module:
    """A CNN of one's own: 48, 96 and 192 channels, group norms, squeeze and excitation."""
    layers: list[nn.Module] = [nn.Conv2d(3, _WIDTHS[0], 3, stride=2, padding=1, bias=False)]
    layers += [nn.GroupNorm(_GROUPS, _WIDTHS[0]), nn.SiLU()]
    for before, width in zip((_WIDTHS[0], *_WIDTHS), _WIDTHS[:3], strict=False):
        layers += [Squeezed(before, width), Squeezed(width, width), nn.MaxPool2d(2)]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(_WIDTHS[2], _CLASSES))
    return nn.Sequential(*layers, *head)


def main() -> None:
    """Write the layers of every CNN of `other_families.csv`, at its image size and at those of whole epochs."""
    from predictor.files import data_root
    from predictor.models.ratios_fit import LAYERS
    from proxy_cnns.user_cnns import named_table

    here = Path(__file__)
    with (
        here.with_suffix(".csv").open(newline="", encoding="utf-8") as file,
        ZipFile(data_root() / LAYERS, "w", ZIP_DEFLATED, compresslevel=9) as layers,
    ):
        for row in csv.DictReader(file):
            for size in {int(row["image_size"]), _SIZE_OF_EPOCHS}:
                table = named_table(f"{here}:{row['cnn']}@{size}")
                layers.writestr(f"{row['family']}/{table.cnn}@{size}.csv", _as_csv(table))
        for cnn in ("own_cnn", "own_plain_cnn"):
            table = named_table(f"{here.with_name(cnn)}.py:make_model@{_SIZE_OF_EPOCHS}")
            layers.writestr(f"own/{table.cnn}@{_SIZE_OF_EPOCHS}.csv", _as_csv(table))


def _as_csv(table: Any) -> str:
    from predictor.cnns.layer_csv import csv_rows

    rows, text = csv_rows(table), StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


if __name__ == "__main__":
    main()
