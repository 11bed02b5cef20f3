"""A training step of nnU-Net's plain network as its trainer does it: patches, deep supervision, autocast, clipping."""

import itertools
from collections.abc import Callable
from typing import Any

import torch  # noqa: TID253 - made of it
from torch import nn  # noqa: TID253 - made of it
from torch.nn import functional  # noqa: TID253 - made of it


class NnUnet(nn.Module):
    """The plain convolutional U-Net of nnU-Net (Isensee et al., Nature Methods 2021), in 2 or 3 dimensions."""

    def __init__(
        self, dimensions: int, features: tuple[int, ...], channels: int = 1, classes: int = 3
    ) -> None:
        super().__init__()
        conv, norm, up = (
            getattr(nn, f"{kind}{dimensions}d") for kind in ("Conv", "InstanceNorm", "ConvTranspose")
        )

        def stage(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
            layers = []
            for a, s in ((inputs, stride), (outputs, 1)):
                layers += [conv(a, outputs, 3, s, 1), norm(outputs, affine=True), nn.LeakyReLU(inplace=True)]
            return nn.Sequential(*layers)

        pairs = list(itertools.pairwise(features))
        self.down = nn.ModuleList([stage(channels, features[0]), *(stage(a, b, 2) for a, b in pairs)])
        self.up = nn.ModuleList(up(b, a, 2, 2) for a, b in pairs)
        self.decode = nn.ModuleList(stage(2 * a, a) for a, _ in pairs)
        self.heads = nn.ModuleList(conv(a, classes, 1) for a, _ in pairs)

    def forward(self, maps: Any) -> list[Any]:
        skips, scores = [], []
        for stage in self.down:
            maps = stage(maps)
            skips.append(maps)
        for i in reversed(range(len(self.up))):
            maps = self.decode[i](torch.cat([self.up[i](maps), skips[i]], 1))
            scores.append(self.heads[i](maps))
        return scores[::-1]


def dice_and_cross_entropy(scores: Any, target: Any) -> Any:
    """Loss of one resolution."""
    shares, axes = scores.softmax(1), tuple(range(2, scores.ndim))
    with torch.no_grad():
        hot = torch.zeros_like(shares).scatter_(1, target, 1)
    overlap, total = (shares * hot).sum(axes), shares.sum(axes) + hot.sum(axes)
    return functional.cross_entropy(scores, target[:, 0]) - ((2 * overlap + 1e-5) / (total + 1e-5)).mean()


def step_of(dimensions: int, n: int, side: int, features: tuple[int, ...]) -> Callable[[], None]:
    """Deep supervision: each resolution but the lowest has a loss of half the weight of the one above it."""
    model = NnUnet(dimensions, features)
    patches = torch.rand(n, 1, *[side] * dimensions)
    targets = [torch.randint(3, (n, 1, *[side // 2**i] * dimensions)) for i in range(len(features) - 2)]
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, 0.99, nesterov=True, weight_decay=3e-5)
    scaler = torch.amp.GradScaler("cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            pairs = zip(model(patches), targets, strict=False)
            losses = [
                dice_and_cross_entropy(scores, target) / 2**i for i, (scores, target) in enumerate(pairs)
            ]
        scaler.scale(sum(losses)).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 12.0)
        scaler.step(optimizer)
        scaler.update()

    return step
