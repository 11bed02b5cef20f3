"""Twenty training steps of kinds that people start, each a function of whether it is to be tiny; and nnU-Net's.

Models are torchvision's or written here. Twenty-four others, judged before (`trainings_forecast.csv`), ran once.
"""

import copy
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch  # noqa: TID253 - made of it
from torch import nn  # noqa: TID253 - made of it
from torch.nn import functional  # noqa: TID253 - made of it

Step = Callable[[], object]
STEPS: dict[str, Callable[[bool], Step]] = {}
"""Makers of the steps; with True, of tiny ones."""

FP16, BF16 = torch.float16, torch.bfloat16


def named(make: Callable[[bool], Step]) -> Callable[[bool], Step]:
    STEPS[make.__name__] = make
    return make


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1e-4, 0.9)


def trained_by(
    loss: Callable[[], Any], optimizer: torch.optim.Optimizer, amp: Any = None, clip: float = 0.0
) -> Step:
    """The usual loop: autocast where `amp` names a type, with a GradScaler in float16; `clip` bounds the gradient."""
    scaler = torch.amp.GradScaler("cuda", enabled=amp is torch.float16)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", amp or torch.bfloat16, enabled=amp is not None):
            value = loss()
        scaler.scale(value).backward()
        if clip:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], clip)
        scaler.step(optimizer)
        scaler.update()

    return step


def labelled(
    model: nn.Module, n: int, *shape: int, classes: int = 1000, amp: Any = None, last: bool = False
) -> Step:
    images, labels = torch.rand(n, *shape), torch.randint(classes, (n,))
    if last:
        model, images = (each.to(memory_format=torch.channels_last) for each in (model, images))
    return trained_by(lambda: functional.cross_entropy(model(images), labels), sgd(model), amp)


def detector(name: str, n: int, height: int, width: int, tiny: bool, amp: Any = None) -> Step:
    from torchvision.models import detection

    sizes = {"min_size": 64, "max_size": 96} if tiny and "ssd" not in name else {}
    model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=91 - 89 * tiny, **sizes)
    n, height, width = (2, 64, 80) if tiny else (n, height, width)
    low = torch.rand(8, 2) * torch.tensor([width, height]) * 0.6
    target = {
        "boxes": torch.cat([low, low + torch.rand(8, 2) * 0.3 * height + 8], 1),
        "labels": torch.ones(8).long(),
    }
    target |= {"masks": torch.ones(8, height, width, dtype=torch.uint8)} if "mask" in name else {}
    target |= {"keypoints": torch.rand(8, 17, 3) * 30 + 1} if "keypoint" in name else {}
    images = [torch.rand(3, height, width) for _ in range(n)]
    return trained_by(lambda: sum(model(images, [target] * n).values()), sgd(model.train()), amp)


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
            parts = []
            for a, s in ((inputs, stride), (outputs, 1)):
                parts += [conv(a, outputs, 3, s, 1), norm(outputs, affine=True), nn.LeakyReLU(inplace=True)]
            return nn.Sequential(*parts)

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
    shares, axes = scores.softmax(1), tuple(range(2, scores.ndim))
    with torch.no_grad():
        hot = torch.zeros_like(shares).scatter_(1, target, 1)
    overlap, total = (shares * hot).sum(axes), shares.sum(axes) + hot.sum(axes)
    return functional.cross_entropy(scores, target[:, 0]) - ((2 * overlap + 1e-5) / (total + 1e-5)).mean()


def nn_unet(dimensions: int, n: int, side: int, features: tuple[int, ...]) -> Step:
    """Deep supervision: each resolution but the lowest has a loss of half the weight of the one above it."""
    model = NnUnet(dimensions, features)
    patches = torch.rand(n, 1, *[side] * dimensions)
    targets = [torch.randint(3, (n, 1, *[side // 2**i] * dimensions)) for i in range(len(features) - 2)]

    def loss() -> Any:
        pairs = zip(model(patches), targets, strict=False)
        return sum(dice_and_cross_entropy(scores, target) / 2**i for i, (scores, target) in enumerate(pairs))

    optimizer = torch.optim.SGD(model.parameters(), 1e-3, 0.99, nesterov=True, weight_decay=3e-5)
    return trained_by(loss, optimizer, torch.float16, clip=12.0)


def classifier(name: str, tiny: bool, small: str = "resnet18", **more: Any) -> nn.Module:
    from torchvision import models

    made: nn.Module = getattr(models, small if tiny else name)(**more)
    return made


def images_of(tiny: bool, n: int, side: int, classes: int = 1000) -> tuple[Any, Any]:
    n, side = (2, 32) if tiny else (n, side)
    return torch.rand(n, 3, side, side), torch.randint(classes, (n,))


def norm_act(conv: nn.Module, norm: nn.Module, act: nn.Module | None = None) -> nn.Sequential:
    return nn.Sequential(conv, norm, act or nn.ReLU(inplace=True))


# Generators and what maps images to images


@named
def spectral_gan(tiny: bool) -> Step:
    """Spectral norms (Miyato et al., arXiv:1802.05957): power iterations on the weights of each pass."""
    n, width = (4, 8) if tiny else (64, 64)
    spectral = nn.utils.parametrizations.spectral_norm
    widths, judge, maker = [3, *(width * 2**i for i in range(4))], [], []
    for a, b in itertools.pairwise(widths):
        judge += [spectral(nn.Conv2d(a, b, 4, 2, 1)), nn.LeakyReLU(0.1, inplace=True)]
    discriminator = nn.Sequential(*judge, nn.Flatten(), spectral(nn.Linear(widths[-1] * 16, 1)))
    for b, a in itertools.pairwise(widths[:0:-1]):
        maker += [nn.ConvTranspose2d(b, a, 4, 2, 1), nn.BatchNorm2d(a), nn.ReLU(inplace=True)]
    first = [nn.Linear(128, widths[-1] * 16), nn.Unflatten(1, (widths[-1], 4, 4))]
    generator = nn.Sequential(*first, *maker, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())
    of_judge, of_maker = (
        torch.optim.Adam(each.parameters(), 2e-4, (0.0, 0.9)) for each in (discriminator, generator)
    )
    real = torch.rand(n, 3, 64, 64)

    def step() -> None:
        of_judge.zero_grad()
        made = generator(torch.randn(n, 128, device=real.device))
        (
            functional.relu(1 - discriminator(real)) + functional.relu(1 + discriminator(made.detach()))
        ).mean().backward()
        of_judge.step()
        of_maker.zero_grad()
        (-discriminator(made).mean()).backward()
        of_maker.step()

    return step


class Residual(nn.Module):
    """Some layers beside their input."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, maps: Any) -> Any:
        return maps + self.layers(maps)


@named
def super_resolution(tiny: bool) -> Step:
    """EDSR's baseline (Lim et al., arXiv:1707.02921), four times as many pixels, in 16 bits with a scaler."""
    n, width, depth, side = (2, 8, 2, 16) if tiny else (16, 64, 16, 96)

    def conv(ins: int, outs: int) -> nn.Conv2d:
        return nn.Conv2d(ins, outs, 3, padding=1)

    body = [Residual(conv(width, width), nn.ReLU(inplace=True), conv(width, width)) for _ in range(depth)]
    up = [conv(width, 4 * width), nn.PixelShuffle(2)]
    model = nn.Sequential(
        conv(3, width), Residual(*body, conv(width, width)), *up, *copy.deepcopy(up), conv(width, 3)
    )
    small, large = torch.rand(n, 3, side, side), torch.rand(n, 3, 4 * side, 4 * side)
    return trained_by(
        lambda: functional.l1_loss(model(small), large), torch.optim.Adam(model.parameters(), 1e-4), FP16
    )


@named
def cycle_gan(tiny: bool) -> Step:
    """Two generators and two discriminators (Zhu et al., arXiv:1703.10593): instance norms, reflected borders."""
    n, side, width, depth = (1, 32, 4, 1) if tiny else (4, 256, 64, 9)

    def conv(ins: int, outs: int, kernel: int = 3, stride: int = 1) -> nn.Sequential:
        layer = nn.Conv2d(
            ins, outs, kernel, stride, kernel // 2, padding_mode="reflect" if stride == 1 else "zeros"
        )
        return norm_act(layer, nn.InstanceNorm2d(outs))

    def generator() -> nn.Sequential:
        body = [
            Residual(conv(4 * width, 4 * width), *list(conv(4 * width, 4 * width))[:2]) for _ in range(depth)
        ]
        ups = [
            norm_act(nn.ConvTranspose2d(a, a // 2, 3, 2, 1, 1), nn.InstanceNorm2d(a // 2))
            for a in (4 * width, 2 * width)
        ]
        last = nn.Conv2d(width, 3, 7, padding=3, padding_mode="reflect")
        down = conv(3, width, 7), conv(width, 2 * width, 3, 2), conv(2 * width, 4 * width, 3, 2)
        return nn.Sequential(*down, *body, *ups, last, nn.Tanh())

    def discriminator() -> nn.Sequential:
        parts: list[nn.Module] = [nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2, True)]
        for a, stride in ((width, 2), (2 * width, 2), (4 * width, 1)):
            parts += [nn.Conv2d(a, 2 * a, 4, stride, 1), nn.InstanceNorm2d(2 * a), nn.LeakyReLU(0.2, True)]
        return nn.Sequential(*parts, nn.Conv2d(8 * width, 1, 4, 1, 1))

    to_b, to_a, judge_a, judge_b = generator(), generator(), discriminator(), discriminator()
    makers, judges = (
        torch.optim.Adam([p for each in some for p in each.parameters()], 2e-4, (0.5, 0.999))
        for some in ((to_b, to_a), (judge_a, judge_b))
    )
    a, b = torch.rand(2, n, 3, side, side)

    def like(scores: Any, goal: float) -> Any:
        return functional.mse_loss(scores, torch.full_like(scores, goal))

    def step() -> None:
        for judge in (judge_a, judge_b):
            judge.requires_grad_(False)
        makers.zero_grad()
        fake_b, fake_a = to_b(a), to_a(b)
        cycle = functional.l1_loss(to_a(fake_b), a) + functional.l1_loss(to_b(fake_a), b)
        (like(judge_b(fake_b), 1) + like(judge_a(fake_a), 1) + 10 * cycle).backward()
        makers.step()
        for judge in (judge_a, judge_b):
            judge.requires_grad_(True)
        judges.zero_grad()
        for judge, real, fake in ((judge_a, a, fake_a), (judge_b, b, fake_b)):
            ((like(judge(real), 1) + like(judge(fake.detach()), 0)) / 2).backward()
        judges.step()

    return step


class TimedBlock(nn.Module):
    """A residual block of a diffusion U-Net: group norms, SiLU, and the time step added to each channel."""

    def __init__(self, ins: int, outs: int, times: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.GroupNorm(8, ins), nn.SiLU(), nn.Conv2d(ins, outs, 3, padding=1))
        self.time = nn.Linear(times, outs)
        self.second = nn.Sequential(nn.GroupNorm(8, outs), nn.SiLU(), nn.Conv2d(outs, outs, 3, padding=1))
        self.skip = nn.Conv2d(ins, outs, 1) if ins != outs else nn.Identity()

    def forward(self, maps: Any, time: Any) -> Any:
        return self.skip(maps) + self.second(self.first(maps) + self.time(time)[..., None, None])


class MapAttention(nn.Module):
    """Attention between all positions of a map."""

    def __init__(self, channels: int, heads: int = 4) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, maps: Any) -> Any:
        n, c, h, w = maps.shape
        q, k, v = self.qkv(self.norm(maps)).view(n, 3, self.heads, c // self.heads, h * w).mT.unbind(1)
        mixed = functional.scaled_dot_product_attention(q, k, v).mT.reshape(n, c, h, w)
        return maps + self.out(mixed)


class DiffusionNet(nn.Module):
    """A U-Net that is told the time step, with attention on its smaller maps (Ho et al., arXiv:2006.11239)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths, times = [width, width, 2 * width, 4 * width], 4 * width
        self.times = nn.Sequential(nn.Linear(width, times), nn.SiLU(), nn.Linear(times, times))
        self.width, self.first, self.last = (
            width,
            nn.Conv2d(3, width, 3, padding=1),
            nn.Conv2d(width, 3, 3, padding=1),
        )
        pairs = list(itertools.pairwise(widths))
        self.down = nn.ModuleList(TimedBlock(a, b, times) for a, b in pairs)
        self.narrow = nn.ModuleList(nn.Conv2d(b, b, 3, 2, 1) for _, b in pairs)
        self.attend = nn.ModuleList([nn.Identity(), MapAttention(2 * width), MapAttention(4 * width)])
        self.middle = TimedBlock(widths[-1], widths[-1], times)
        self.up = nn.ModuleList(TimedBlock(2 * b, a, times) for a, b in pairs)

    def forward(self, maps: Any, t: Any) -> Any:
        rates = torch.exp(torch.arange(self.width // 2, device=t.device) * (-9.2 / (self.width // 2)))
        time = self.times(torch.cat([(t[:, None] * rates).sin(), (t[:, None] * rates).cos()], 1))
        maps, skips = self.first(maps), []
        for block, attend, narrow in zip(self.down, self.attend, self.narrow, strict=True):
            skips.append(attend(block(maps, time)))
            maps = narrow(skips[-1])
        maps = self.middle(maps, time)
        for i in reversed(range(len(self.up))):
            maps = functional.interpolate(maps, scale_factor=2.0, mode="nearest")
            maps = self.up[i](torch.cat([maps, skips[i]], 1), time)
        return self.last(maps)


@named
def diffusion(tiny: bool) -> Step:
    """Predicts the noise; AMP, clipping, and an average of the weights by one call on lists."""
    n, side, width = (2, 16, 16) if tiny else (32, 64, 128)
    model = DiffusionNet(width)
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer, clean = torch.optim.AdamW(model.parameters(), 1e-4), torch.rand(n, 3, side, side)
    kept = torch.linspace(0.99, 0.01, 1000)

    def step() -> None:
        optimizer.zero_grad()
        t, noise = torch.randint(1000, (n,), device=clean.device), torch.randn_like(clean)
        share = kept[t][:, None, None, None]
        with torch.autocast("cuda", BF16):
            loss = functional.mse_loss(
                model(share.sqrt() * clean + (1 - share).sqrt() * noise, t.float()), noise
            )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.001)

    return step


# Positions, pairs and pixels


@named
def keypoint_heatmaps(tiny: bool) -> Step:
    """Transposed convolutions behind a ResNet (Xiao et al., arXiv:1804.06208), channels-last in AMP."""
    n, sides = (2, (64, 64)) if tiny else (64, (256, 192))
    backbone = classifier("resnet50", tiny)
    channels = 512 if tiny else 2048
    ups = [
        norm_act(nn.ConvTranspose2d(a, 256, 4, 2, 1, bias=False), nn.BatchNorm2d(256))
        for a in (channels, 256, 256)
    ]
    model = nn.Sequential(*list(backbone.children())[:-2], *ups, nn.Conv2d(256, 17, 1))
    model, images = (each.to(memory_format=torch.channels_last) for each in (model, torch.rand(n, 3, *sides)))
    goals, seen = torch.rand(n, 17, sides[0] // 4, sides[1] // 4), torch.ones(n, 17, 1, 1)

    def loss() -> Any:
        return ((model(images).float() - goals).square() * seen).mean()

    return trained_by(loss, torch.optim.Adam(model.parameters(), 1e-3), BF16)


@named
def siamese_tracker(tiny: bool) -> Step:
    """A template slid over a search region (Bertinetto et al., arXiv:1606.09549): maps are the filters."""
    n, width = (2, 8) if tiny else (32, 96)
    sizes = ((3, width, 11, 2, 1), (width, 256, 5, 1, 1), (256, 384, 3, 1, 1), (384, 384, 3, 1, 1))
    parts: list[nn.Module] = []
    for i, (a, b, kernel, stride, groups) in enumerate(sizes):
        parts += norm_act(nn.Conv2d(a, b, kernel, stride, groups=groups, bias=False), nn.BatchNorm2d(b))
        parts += [nn.MaxPool2d(3, 2)] if i < 2 else []
    model = nn.Sequential(*parts, nn.Conv2d(384, 256, 3))
    template, region = torch.rand(n, 3, 127, 127), torch.rand(n, 3, 255, 255)

    def loss() -> Any:
        patches, maps = model(template), model(region)
        scores = functional.conv2d(maps.flatten(0, 1)[None], patches, groups=n)[0]
        return functional.binary_cross_entropy_with_logits(0.001 * scores, torch.zeros_like(scores))

    return trained_by(loss, sgd(model))


class DepthNet(nn.Module):
    """A ResNet-18 and a decoder of four resolutions (Godard et al., arXiv:1806.01260)."""

    def __init__(self) -> None:
        super().__init__()
        net = classifier("resnet18", False)
        self.stem, (_, *self.stages) = nn.Sequential(net.conv1, net.bn1, net.relu), [
            None, nn.Sequential(net.maxpool, net.layer1), net.layer2, net.layer3, net.layer4,
        ]  # fmt: skip
        self.encode = nn.ModuleList(self.stages)
        skips, widths = (0, 64, 64, 128, 256), (16, 32, 64, 128, 256)

        def conv(a: int, b: int) -> nn.Sequential:
            return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, padding_mode="reflect"), nn.ELU(inplace=True))

        self.first = nn.ModuleList(conv(a, b) for a, b in zip((32, 64, 128, 256, 512), widths, strict=True))
        self.second = nn.ModuleList(conv(a + b, b) for a, b in zip(skips, widths, strict=True))
        self.heads = nn.ModuleList(nn.Conv2d(a, 1, 3, padding=1, padding_mode="reflect") for a in widths[:4])

    def forward(self, images: Any) -> list[Any]:
        skips, found = [self.stem(images)], []
        for stage in self.encode:
            skips.append(stage(skips[-1]))
        maps = skips.pop()
        for i in reversed(range(5)):
            maps = functional.interpolate(self.first[i](maps), scale_factor=2.0, mode="nearest")
            maps = self.second[i](torch.cat([maps, skips[i - 1]], 1) if i else maps)
            found += [self.heads[i](maps).sigmoid()] if i < 4 else []
        return found


def structural(a: Any, b: Any) -> Any:
    """1 less the structural similarity in windows of 3 x 3 (Wang et al., 2004)."""
    mean_a, mean_b = (functional.avg_pool2d(each, 3, 1) for each in (a, b))
    var_a, var_b = (functional.avg_pool2d(x * x, 3, 1) - m * m for x, m in ((a, mean_a), (b, mean_b)))
    both = functional.avg_pool2d(a * b, 3, 1) - mean_a * mean_b
    top = (2 * mean_a * mean_b + 1e-4) * (2 * both + 9e-4)
    return 1 - top / ((mean_a**2 + mean_b**2 + 1e-4) * (var_a + var_b + 9e-4))


@named
def monocular_depth(tiny: bool) -> Step:
    """Depth from single images, by structure and absolute difference at four scales."""
    n, height, width = (2, 64, 64) if tiny else (12, 192, 640)
    model, images, depths = DepthNet(), torch.rand(n, 3, height, width), torch.rand(n, 1, height, width)

    def loss() -> Any:
        total: Any = 0
        for depth in model(images):
            whole = functional.interpolate(depth, (height, width), mode="bilinear", align_corners=False)
            total = total + 0.85 * structural(whole, depths).mean() + 0.15 * (whole - depths).abs().mean()
        return total

    return trained_by(loss, torch.optim.Adam(model.parameters(), 1e-4))


@named
def optical_flow(tiny: bool) -> Step:
    """RAFT's small model (Teed and Deng, arXiv:2003.12039): lookups in a volume of correlations, twelve updates."""
    from torchvision.models.optical_flow import raft_small

    n, height, width, updates = (1, 128, 128, 2) if tiny else (4, 368, 496, 12)
    model, (first, second) = raft_small(), torch.rand(2, n, 3, height, width)
    flow = torch.rand(n, 2, height, width)

    def loss() -> Any:
        found = model(first, second, num_flow_updates=updates)
        return sum(0.8 ** (updates - i) * (each - flow).abs().mean() for i, each in enumerate(found))

    return trained_by(loss, torch.optim.AdamW(model.parameters(), 1e-4))


@named
def fully_convolutional(tiny: bool) -> Step:
    """A dilated ResNet with an auxiliary head."""
    from torchvision.models.segmentation import fcn_resnet50

    n, side = (2, 64) if tiny else (8, 512)
    model = fcn_resnet50(weights=None, weights_backbone=None, num_classes=19, aux_loss=True)
    images, labels = torch.rand(n, 3, side, side), torch.randint(19, (n, side, side))

    def loss() -> Any:
        found = model(images)
        return functional.cross_entropy(found["out"], labels) + 0.4 * functional.cross_entropy(
            found["aux"], labels
        )

    return trained_by(loss, sgd(model), BF16)


@named
def mobile_faster_rcnn(tiny: bool) -> Step:
    return detector("fasterrcnn_mobilenet_v3_large_fpn", 8, 640, 640, tiny, FP16)


# Volumes, sounds, lines and frames


class VNet(nn.Module):
    """Residual stages of 5 x 5 x 5 filters (Milletari et al., arXiv:1606.04797), narrowed by strides."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()

        def conv(a: int, b: int) -> nn.Sequential:
            return norm_act(nn.Conv3d(a, b, 5, padding=2), nn.BatchNorm3d(b), nn.PReLU(b))

        widths = [width * 2**i for i in range(depth)]
        self.first = conv(1, width)
        self.stages = nn.ModuleList(Residual(conv(w, w), conv(w, w)) for w in widths)
        self.narrow = nn.ModuleList(nn.Conv3d(a, 2 * a, 2, 2) for a in widths[:-1])
        self.widen = nn.ModuleList(nn.ConvTranspose3d(2 * a, a, 2, 2) for a in widths[:-1])
        self.join = nn.ModuleList(conv(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv3d(width, 2, 1)

    def forward(self, maps: Any) -> Any:
        maps, skips = self.first(maps), []
        for i, stage in enumerate(self.stages):
            maps = stage(maps)
            if i < len(self.narrow):
                skips.append(maps)
                maps = self.narrow[i](maps)
        for i in reversed(range(len(self.narrow))):
            maps = self.join[i](torch.cat([self.widen[i](maps), skips[i]], 1))
        return self.head(maps)


@named
def v_net(tiny: bool) -> Step:
    n, side = (2, 16) if tiny else (2, 96)
    model = VNet(4, 2) if tiny else VNet(16, 4)
    patches, target = torch.rand(n, 1, side, side, side), torch.randint(2, (n, 1, side, side, side))
    return trained_by(
        lambda: dice_and_cross_entropy(model(patches).float(), target),
        torch.optim.Adam(model.parameters()),
        BF16,
    )


@named
def spectrograms(tiny: bool) -> Step:
    """Waves to mel bands on the GPU, with bands masked at random, and an EfficientNet."""
    n, samples = (2, 16_000) if tiny else (32, 160_000)
    model = classifier("efficientnet_b0", tiny, num_classes=527)
    waves, labels = torch.rand(n, samples) - 0.5, torch.randint(2, (n, 527)).float()
    window, bands = torch.hann_window(1024), torch.rand(128, 513)

    def loss() -> Any:
        power = torch.stft(waves, 1024, 320, window=window, return_complex=True).abs().square()
        mel = (bands @ power + 1e-5).log()
        kept = torch.rand(n, 128, 1, device=mel.device) > 0.1
        with torch.autocast("cuda", BF16):
            scores = model((mel * kept)[:, None].expand(-1, 3, -1, -1))
        return functional.binary_cross_entropy_with_logits(scores.float(), labels)

    return trained_by(loss, torch.optim.AdamW(model.parameters(), 1e-3))


@named
def text_lines_by_gru(tiny: bool) -> Step:
    """A ResNet's first stages along a line of text, two GRUs, CTC; in 16 bits with a scaler."""
    n, width = (4, 64) if tiny else (64, 512)
    net = classifier("resnet18", False)
    net.layer3[0].conv1.stride = net.layer3[0].downsample[0].stride = (2, 1)
    maps = nn.Sequential(
        net.conv1, net.bn1, net.relu, net.layer1, net.layer2, net.layer3, nn.AdaptiveAvgPool2d((1, None))
    )
    reads, head = nn.GRU(256, 256, 2, bidirectional=True), nn.Linear(512, 80)
    lines, texts = torch.rand(n, 3, 32, width), torch.randint(1, 80, (n, 8))
    lengths = (width // 4,) * n, (8,) * n

    def loss() -> Any:
        scores = head(reads(maps(lines)[:, :, 0].permute(2, 0, 1))[0])
        return functional.ctc_loss(scores.float().log_softmax(2), texts, *lengths)

    return trained_by(loss, torch.optim.AdamW(nn.ModuleList([maps, reads, head]).parameters(), 1e-3), FP16)


class Cell(nn.Module):
    """One cell of a convolutional LSTM (Shi et al., arXiv:1506.04214)."""

    def __init__(self, ins: int, width: int) -> None:
        super().__init__()
        self.width, self.gates = width, nn.Conv2d(ins + width, 4 * width, 5, padding=2)

    def forward(self, frames: Sequence[Any]) -> list[Any]:
        n, _, *sides = frames[0].shape
        state = memory = frames[0].new_zeros(n, self.width, *sides)
        states = []
        for frame in frames:
            a, b, c, d = self.gates(torch.cat([frame, state], 1)).chunk(4, 1)
            memory = b.sigmoid() * memory + a.sigmoid() * c.tanh()
            state = d.sigmoid() * memory.tanh()
            states.append(state)
        return states


@named
def stacked_convolutional_lstm(tiny: bool) -> Step:
    n, frames, side, widths = (2, 3, 16, (8, 4)) if tiny else (8, 12, 64, (64, 32))
    first, second, head = Cell(1, widths[0]), Cell(*widths), nn.Conv2d(widths[1], 1, 1)
    clips = torch.rand(n, frames + 1, 1, side, side)

    def loss() -> Any:
        states = second(first(clips[:, :-1].unbind(1)))
        return functional.mse_loss(head(torch.cat(states)), clips[:, 1:].transpose(0, 1).flatten(0, 1))

    return trained_by(loss, torch.optim.Adam(nn.ModuleList([first, second, head]).parameters()), BF16)


# Loops


@named
def hints_by_closure(tiny: bool) -> Step:
    """Features and scores of a teacher, in a closure that the optimizer runs, as Lightning does it."""
    teacher = classifier("resnet101", tiny).eval().requires_grad_(False)
    student = classifier("resnet18", tiny)
    adapter = nn.Conv2d(512, 512 if tiny else 2048, 1)
    images, labels = images_of(tiny, 64, 224)
    optimizer = torch.optim.AdamW([*student.parameters(), *adapter.parameters()], 1e-3)

    def both(model: nn.Module) -> tuple[Any, Any]:
        maps = nn.Sequential(*list(model.children())[:-2])(images)
        return maps, model.fc(maps.mean((2, 3)))

    def closure() -> Any:
        with torch.autocast("cuda", BF16):
            with torch.no_grad():
                hints, taught = both(teacher)
            maps, scores = both(student)
            loss = functional.cross_entropy(scores, labels) + functional.mse_loss(adapter(maps), hints)
            loss = loss + functional.kl_div(
                functional.log_softmax(scores / 4, 1),
                functional.softmax(taught / 4, 1),
                reduction="batchmean",
            )
        optimizer.zero_grad()
        loss.backward()
        return loss

    return lambda: optimizer.step(closure)


@named
def bootstrapped_views(tiny: bool) -> Step:
    """BYOL (Grill et al., arXiv:2006.07733): two views, a predictor, an average of the weights one by one."""

    def head(ins: int) -> nn.Sequential:
        return nn.Sequential(*norm_act(nn.Linear(ins, 4096), nn.BatchNorm1d(4096)), nn.Linear(4096, 256))

    online = classifier("resnet50", tiny)
    online.fc = head(512 if tiny else 2048)
    target, predictor = copy.deepcopy(online).requires_grad_(False), head(256)
    one, _ = images_of(tiny, 64, 160)
    other = one.flip(3)
    optimizer = torch.optim.SGD([*online.parameters(), *predictor.parameters()], 0.1, 0.9, weight_decay=1e-6)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", BF16):
            with torch.no_grad():
                goals = [functional.normalize(target(each).float(), dim=1) for each in (other, one)]
            given = [functional.normalize(predictor(online(each)).float(), dim=1) for each in (one, other)]
            loss = sum((2 - 2 * (a * b).sum(1)).mean() for a, b in zip(given, goals, strict=True))
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), online.parameters(), strict=True):
                slow.mul_(0.996).add_(fast, alpha=0.004)

    return step


@named
def adaptive_sharpness(tiny: bool) -> Step:
    """Sharpness-aware steps scaled by the weights (Kwon et al., arXiv:2102.11600), by functions on lists, in AMP."""
    model = classifier("regnet_x_1_6gf", tiny)
    images, labels = images_of(tiny, 64, 224)
    optimizer, weights = (
        torch.optim.SGD(model.parameters(), 0.1, 0.9, nesterov=True),
        list(model.parameters()),
    )

    def backward() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", BF16):
            loss = functional.cross_entropy(model(images), labels, label_smoothing=0.1)
        loss.backward()

    def step() -> None:
        backward()
        with torch.no_grad():
            scales = torch._foreach_abs(weights)
            moves = torch._foreach_mul(torch._foreach_mul(scales, scales), [p.grad for p in weights])
            norm = torch.stack(torch._foreach_norm(moves)).norm()
            torch._foreach_mul_(moves, 0.5 / (norm + 1e-12))
            torch._foreach_add_(weights, moves)
        backward()
        with torch.no_grad():
            torch._foreach_sub_(weights, moves)
        optimizer.step()

    return step


class LowRankConv(nn.Module):
    """A frozen convolution, and two small trained ones beside it."""

    def __init__(self, conv: nn.Conv2d, rank: int = 16) -> None:
        super().__init__()
        self.conv = conv
        self.down = nn.Conv2d(conv.in_channels, rank, conv.kernel_size, conv.stride, conv.padding, bias=False)
        self.up = nn.Conv2d(rank, conv.out_channels, 1, bias=False)

    def forward(self, maps: Any) -> Any:
        return self.conv(maps) + self.up(self.down(maps))


@named
def low_rank_convolutions(tiny: bool) -> Step:
    """Adapters beside the 3 x 3 convolutions of a frozen ResNet, whose norms are frozen, too."""
    model = classifier("resnet50", tiny, small="resnet50").requires_grad_(False)
    for block in [each for each in model.modules() if hasattr(each, "conv2")]:
        block.conv2 = LowRankConv(block.conv2)
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm2d):
            norm.eval()
    n, side = (2, 32) if tiny else (64, 224)
    return labelled(model, n, 3, side, side, amp=BF16, last=True)


@named
def recipe_of_timm(tiny: bool) -> Step:
    """MixUp and CutMix, soft targets, a scaler, clipping and averaged weights, channels-last."""
    from torchvision.transforms.v2 import CutMix, MixUp

    model = classifier("regnet_y_1_6gf", tiny).to(memory_format=torch.channels_last)
    average = copy.deepcopy(model).requires_grad_(False)
    images, labels = images_of(tiny, 128, 224)
    images = images.contiguous(memory_format=torch.channels_last)
    with torch.device("cpu"):
        mix, cut = MixUp(num_classes=1000), CutMix(num_classes=1000)
    optimizer, scaler = (
        torch.optim.RMSprop(model.parameters(), 1e-3, 0.9, momentum=0.9),
        torch.amp.GradScaler("cuda"),
    )

    def step() -> None:
        x, y = cut(*mix(images, labels)[:1], labels)
        with torch.autocast("cuda", FP16):
            loss = functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        scaler.step(optimizer)
        scaler.update()
        with torch.no_grad():
            torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 0.0002)
            for slow, fast in zip(average.buffers(), model.buffers(), strict=True):
                slow.copy_(fast)

    return step


class Relative(nn.Module):
    """Attention with a bias for each offset, behind a layer norm."""

    def __init__(self, channels: int, side: int) -> None:
        super().__init__()
        self.heads, self.norm = channels // 32, nn.LayerNorm(channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.bias = nn.Parameter(torch.zeros((2 * side - 1) ** 2, self.heads))
        places = torch.stack(torch.meshgrid(*[torch.arange(side)] * 2, indexing="ij")).flatten(1)
        offsets = places[:, :, None] - places[:, None] + side - 1
        self.register_buffer("offsets", offsets[0] * (2 * side - 1) + offsets[1])

    def forward(self, rows: Any) -> Any:
        n, p, c = rows.shape
        q, k, v = self.qkv(self.norm(rows)).view(n, p, 3, self.heads, 32).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) * 32**-0.5 + self.bias[self.offsets].permute(2, 0, 1)
        return rows + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(n, p, c))


class Widened(nn.Module):
    """A residual block of a depthwise convolution and squeezed channels (MBConv)."""

    def __init__(self, ins: int, outs: int, stride: int) -> None:
        super().__init__()
        wide = 4 * ins
        self.body = nn.Sequential(
            nn.BatchNorm2d(ins),
            *norm_act(nn.Conv2d(ins, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.GELU()),
            *norm_act(
                nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.GELU()
            ),
        )
        self.squeeze = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(wide, ins, 1), nn.SiLU(), nn.Conv2d(ins, wide, 1), nn.Sigmoid()
        )
        self.last = nn.Conv2d(wide, outs, 1)
        self.skip = nn.Sequential(nn.MaxPool2d(2), nn.Conv2d(ins, outs, 1)) if stride == 2 else nn.Identity()

    def forward(self, maps: Any) -> Any:
        wide = self.body(maps)
        return self.skip(maps) + self.last(wide * self.squeeze(wide))


class Hybrid(nn.Module):
    """Convolutions, then attention (CoAtNet, Dai et al., arXiv:2106.04803); gives its loss, as in `transformers`."""

    def __init__(self, widths: tuple[int, ...], depths: tuple[int, ...], side: int, classes: int) -> None:
        super().__init__()
        stem, *_ = widths
        parts: list[nn.Module] = [
            *norm_act(nn.Conv2d(3, stem, 3, 2, 1), nn.BatchNorm2d(stem)),
            nn.Conv2d(stem, stem, 3, 1, 1),
        ]
        for (a, b), depth in zip(itertools.pairwise(widths[:3]), depths, strict=False):
            parts += [Widened(a, b, 2), *(Widened(b, b, 1) for _ in range(depth - 1))]
        self.convolutions = nn.Sequential(*parts)
        self.narrow, self.attention = nn.ModuleList(), nn.ModuleList()
        for i, ((a, b), depth) in enumerate(zip(itertools.pairwise(widths[2:]), depths[2:], strict=True)):
            self.narrow.append(nn.Conv2d(a, b, 2, 2))
            dense = (
                nn.Sequential(nn.LayerNorm(b), nn.Linear(b, 4 * b), nn.GELU(), nn.Linear(4 * b, b))
                for _ in range(depth)
            )
            self.attention.append(
                nn.Sequential(
                    *(nn.Sequential(Relative(b, side // 16 // 2**i), Residual(each)) for each in dense)
                )
            )
        self.head = nn.Linear(widths[-1], classes)

    def forward(self, pixel_values: Any, labels: Any) -> dict[str, Any]:
        maps = self.convolutions(pixel_values)
        for narrow, attend in zip(self.narrow, self.attention, strict=True):
            maps = narrow(maps)
            maps = attend(maps.flatten(2).mT).mT.reshape(maps.shape)
        scores = self.head(maps.mean((2, 3)))
        return {"loss": functional.cross_entropy(scores, labels), "logits": scores}


@named
def hybrid_in_a_trainers_loop(tiny: bool) -> Step:
    """Two parts of a mini-batch, clipping, AdamW in two groups, a schedule, the loss read: as `Trainer` does it."""
    if tiny:
        model, n, side = Hybrid((8, 8, 16, 32, 32), (1, 1, 1, 1), 32, 10), 2, 32
    else:
        model, n, side = Hybrid((64, 96, 192, 384, 768), (2, 3, 5, 2), 224, 1000), 64, 224
    batches = [
        {"pixel_values": torch.rand(n, 3, side, side), "labels": torch.randint(10, (n,))} for _ in range(2)
    ]
    groups = [
        {"params": [p for p in model.parameters() if (p.ndim > 1) == decays], "weight_decay": 0.05 * decays}
        for decays in (True, False)
    ]
    optimizer = torch.optim.AdamW(groups, 1e-3)
    schedule, logged = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0), []

    def step() -> None:
        total: Any = 0
        for batch in batches:
            with torch.autocast("cuda", BF16):
                loss = model(**batch)["loss"] / 2
            loss.backward()
            total = total + loss.detach()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        logged.append(total.item())

    return step
