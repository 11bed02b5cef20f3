"""Twenty-four steps of kinds that people start: detectors, segmenters, recurrent heads, attention, loops.

Each function makes a step at the size that it is trained at, or a tiny one; models are torchvision's or written here.
"""

import copy
import itertools
from collections.abc import Callable
from typing import Any

import torch  # noqa: TID253 - made of it
import yolo
from torch import nn  # noqa: TID253 - made of it
from torch.nn import functional  # noqa: TID253 - made of it

Step = Callable[[], object]
STEPS: dict[str, Callable[[bool], Step]] = {}
"""Makers of the steps; with True, of tiny ones."""


def named(make: Callable[[bool], Step]) -> Callable[[bool], Step]:
    STEPS[make.__name__] = make
    return make


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 1e-4, 0.9)


def trained_by(loss: Callable[[], Any], optimizer: torch.optim.Optimizer, amp: Any = None) -> Step:
    """The usual loop: autocast where `amp` names a type, with a GradScaler in float16."""
    scaler = torch.amp.GradScaler("cuda", enabled=amp is torch.float16)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", amp or torch.bfloat16, enabled=amp is not None):
            value = loss()
        scaler.scale(value).backward()
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


# Detectors


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


@named
def faster_rcnn(tiny: bool) -> Step:
    return detector("fasterrcnn_resnet50_fpn", 4, 800, 1066, tiny)


@named
def mask_rcnn(tiny: bool) -> Step:
    return detector("maskrcnn_resnet50_fpn", 2, 800, 1066, tiny)


@named
def mask_rcnn_amp(tiny: bool) -> Step:
    return detector("maskrcnn_resnet50_fpn_v2", 4, 800, 1066, tiny, torch.float16)


@named
def keypoint_rcnn(tiny: bool) -> Step:
    return detector("keypointrcnn_resnet50_fpn", 2, 800, 1066, tiny)


@named
def retinanet(tiny: bool) -> Step:
    return detector("retinanet_resnet50_fpn", 4, 800, 1066, tiny)


@named
def fcos(tiny: bool) -> Step:
    return detector("fcos_resnet50_fpn", 4, 800, 1066, tiny)


@named
def ssd300(tiny: bool) -> Step:
    return detector("ssd300_vgg16", 32, 300, 300, tiny)


@named
def ssdlite(tiny: bool) -> Step:
    return detector("ssdlite320_mobilenet_v3_large", 32, 320, 320, tiny)


@named
def yolo_task_aligned(tiny: bool) -> Step:
    more = {} if tiny else {"n_images": 16, "size": 640, "objects": 8, "width": 8, "depth": 3}
    return yolo.step_of("task aligned", **more)


@named
def yolo_anchors(tiny: bool) -> Step:
    more = {} if tiny else {"n_images": 16, "size": 640, "objects": 8, "width": 8, "depth": 3}
    return yolo.step_of("anchors", **more)


# Segmenters


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
    optimizer = torch.optim.SGD(model.parameters(), 1e-3, 0.99, nesterov=True, weight_decay=3e-5)
    scaler = torch.amp.GradScaler("cuda")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            pairs = zip(model(patches), targets, strict=False)
            loss = sum(
                dice_and_cross_entropy(scores, target) / 2**i for i, (scores, target) in enumerate(pairs)
            )
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 12)
        scaler.step(optimizer)
        scaler.update()

    return step


@named
def nn_unet_3d(tiny: bool) -> Step:
    return nn_unet(3, 2, 16, (4, 8, 16, 16)) if tiny else nn_unet(3, 2, 128, (32, 64, 128, 256, 320, 320))


@named
def nn_unet_2d(tiny: bool) -> Step:
    return nn_unet(2, 2, 32, (4, 8, 16)) if tiny else nn_unet(2, 12, 512, (32, 64, 128, 256, 512, 512, 512))


def segmenter(name: str, n: int, side: int, amp: Any) -> Step:
    from torchvision.models import segmentation

    model = getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=21)
    images, labels = torch.rand(n, 3, side, side), torch.randint(21, (n, side, side))
    return trained_by(lambda: functional.cross_entropy(model(images)["out"], labels), sgd(model.train()), amp)


@named
def deeplabv3(tiny: bool) -> Step:
    return segmenter("deeplabv3_resnet50", 2 if tiny else 8, 64 if tiny else 520, torch.bfloat16)


# Recurrent heads


class TextReader(nn.Module):
    """A CRNN (Shi et al., arXiv:1507.05717): a CNN along the line, two LSTMs, scores of each position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths, pools, parts = [1, *(width * n for n in (1, 2, 4, 4, 8))], (2, 2, 1, (2, 1), (2, 1)), []
        for (inputs, outputs), pool in zip(itertools.pairwise(widths), pools, strict=True):
            parts += [
                nn.Conv2d(inputs, outputs, 3, padding=1),
                nn.BatchNorm2d(outputs),
                nn.ReLU(inplace=True),
            ]
            parts += [nn.MaxPool2d(pool)] if pool != 1 else []
        w = width
        self.maps = nn.Sequential(*parts, nn.AdaptiveAvgPool2d((1, None)))
        self.reads = nn.LSTM(8 * w, 4 * w, 2, bidirectional=True)
        self.head = nn.Linear(8 * w, 37)

    def forward(self, lines: Any) -> Any:
        return self.head(self.reads(self.maps(lines)[:, :, 0].permute(2, 0, 1))[0]).log_softmax(2)


@named
def text_lines_by_lstm(tiny: bool) -> Step:
    model, n, width = TextReader(8 if tiny else 64), 4 if tiny else 128, 32 if tiny else 256
    lines, texts = torch.rand(n, 1, 32, width), torch.randint(1, 37, (n, 6))
    lengths = torch.full((n,), width // 4), torch.full((n,), 6)
    optimizer = torch.optim.Adam(model.parameters())
    return trained_by(lambda: functional.ctc_loss(model(lines), texts, *lengths), optimizer)


@named
def clips_by_gru(tiny: bool) -> Step:
    from torchvision.models import resnet18

    frames, n, side = (4, 2, 32) if tiny else (16, 16, 112)
    cnn, reads, head = resnet18(), nn.GRU(512, 256, batch_first=True), nn.Linear(256, 101)
    cnn.fc = nn.Identity()
    clips, labels = torch.rand(n, frames, 3, side, side), torch.randint(101, (n,))

    def loss() -> Any:
        maps = cnn(clips.flatten(0, 1)).unflatten(0, (n, frames))
        return functional.cross_entropy(head(reads(maps)[0][:, -1]), labels)

    return trained_by(loss, sgd(nn.ModuleList([cnn, reads, head])), torch.bfloat16)


@named
def frames_by_convolutional_lstm(tiny: bool) -> Step:
    n, frames, side, width = (2, 3, 16, 8) if tiny else (16, 10, 64, 64)
    gates, head = nn.Conv2d(1 + width, 4 * width, 3, padding=1), nn.Conv2d(width, 1, 1)
    clips = torch.rand(n, frames + 1, 1, side, side)

    def loss() -> Any:
        state = memory = clips.new_zeros(n, width, side, side)
        total = 0
        for i in range(frames):
            a, b, c, d = gates(torch.cat([clips[:, i], state], 1)).chunk(4, 1)
            memory = b.sigmoid() * memory + a.sigmoid() * c.tanh()
            state = d.sigmoid() * memory.tanh()
            total = total + functional.mse_loss(head(state), clips[:, i + 1])
        return total

    return trained_by(loss, torch.optim.Adam([*gates.parameters(), *head.parameters()]))


# Attention inside CNNs, blur pools and group norms


@named
def maxvit(tiny: bool) -> Step:
    from torchvision.models import MaxVit, maxvit_t

    if tiny:
        model = MaxVit((64, 64), 8, 2, [8, 16], [1, 1], 8, 0.0, num_classes=10)
        return labelled(model, 2, 3, 64, 64, classes=10)
    return labelled(maxvit_t(), 32, 3, 224, 224, amp=torch.bfloat16)


@named
def swin(tiny: bool) -> Step:
    from torchvision.models import SwinTransformer, swin_t

    if tiny:
        model = SwinTransformer([4, 4], 8, [1, 1], [2, 2], [2, 2], num_classes=10)
        return labelled(model, 2, 3, 32, 32, classes=10)
    return labelled(swin_t(), 64, 3, 224, 224)


class Blur(nn.Module):
    """A binomial filter of stride 2 (Zhang, arXiv:1904.11486)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        row = torch.tensor([1.0, 2.0, 1.0]) / 4
        self.register_buffer("weight", (row[:, None] * row).expand(channels, 1, 3, 3).contiguous())

    def forward(self, maps: Any) -> Any:
        return functional.conv2d(
            functional.pad(maps, (1, 1, 1, 1), "reflect"), self.weight, None, 2, 0, 1, len(self.weight)
        )


@named
def blurred_resnet_of_group_norms(tiny: bool) -> Step:
    from torchvision.models import ResNet
    from torchvision.models.resnet import Bottleneck

    model = ResNet(
        Bottleneck, [1, 1, 1, 1] if tiny else [3, 4, 6, 3], norm_layer=lambda n: nn.GroupNorm(32, n)
    )
    for block in model.modules():
        if isinstance(block, Bottleneck) and block.conv2.stride == (2, 2):
            block.conv2.stride = (1, 1)
            block.conv2 = nn.Sequential(block.conv2, Blur(block.conv2.out_channels))
            block.downsample[0].stride = (1, 1)
            block.downsample = nn.Sequential(nn.AvgPool2d(2), *block.downsample)
    n, side = (2, 64) if tiny else (64, 224)
    return labelled(model, n, 3, side, side, amp=torch.bfloat16, last=True)


# Loops


def small_or(name: str, tiny: bool) -> nn.Module:
    from torchvision import models

    return models.resnet18(num_classes=1000) if tiny else getattr(models, name)()


@named
def sharpness_aware(tiny: bool) -> Step:
    model, n, side = small_or("resnet50", tiny), 2 if tiny else 64, 32 if tiny else 224
    images, labels, optimizer = torch.rand(n, 3, side, side), torch.randint(1000, (n,)), sgd(model)

    def step() -> None:
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        with torch.no_grad():
            norms = torch.stack([p.grad.norm() for p in model.parameters()])
            moves = [p.grad * (0.05 / (norms.norm() + 1e-12)) for p in model.parameters()]
            for parameter, move in zip(model.parameters(), moves, strict=True):
                parameter.add_(move)
        optimizer.zero_grad()
        functional.cross_entropy(model(images), labels).backward()
        with torch.no_grad():
            for parameter, move in zip(model.parameters(), moves, strict=True):
                parameter.sub_(move)
        optimizer.step()

    return step


@named
def averaged_and_clipped(tiny: bool) -> Step:
    model, n, side = small_or("efficientnet_v2_s", tiny), 2 if tiny else 64, 32 if tiny else 224
    average = torch.optim.swa_utils.AveragedModel(
        model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn()
    )
    images, labels = torch.rand(n, 3, side, side), torch.randint(1000, (n,))
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        average.update_parameters(model)

    return step


class LowRank(nn.Module):
    """A frozen dense layer and the product of two small trained ones beside it (Hu et al., arXiv:2106.09685)."""

    def __init__(self, layer: nn.Linear, rank: int = 8) -> None:
        super().__init__()
        self.layer = layer.requires_grad_(False)
        self.down = nn.Linear(layer.in_features, rank, bias=False)
        self.up = nn.Linear(rank, layer.out_features, bias=False)

    def forward(self, maps: Any) -> Any:
        return self.layer(maps) + self.up(self.down(maps))


@named
def low_rank_adapters(tiny: bool) -> Step:
    from torchvision.models import convnext_tiny

    model = convnext_tiny().requires_grad_(False)
    for block in [each for each in model.modules() if type(each).__name__ == "CNBlock"]:
        for place in (3, 5):
            block.block[place] = LowRank(block.block[place])
    n, side = (2, 32) if tiny else (64, 224)
    return labelled(model, n, 3, side, side, amp=torch.bfloat16)


@named
def mixed_and_accumulated(tiny: bool) -> Step:
    model, n, side = small_or("resnet50", tiny), 2 if tiny else 64, 32 if tiny else 224
    optimizer, parts = torch.optim.AdamW(model.parameters()), 4
    images, labels = torch.rand(parts * n, 3, side, side), torch.randint(1000, (parts * n,))

    def step() -> None:
        optimizer.zero_grad()
        for x, y in zip(images.chunk(parts), labels.chunk(parts), strict=True):
            order = torch.randperm(n, device=x.device)
            goals = functional.one_hot(y, 1000).float()
            with torch.autocast("cuda", torch.bfloat16):
                scores = model(0.7 * x + 0.3 * x[order])
                loss = functional.cross_entropy(scores, 0.7 * goals + 0.3 * goals[order]) / parts
            loss.backward()
        optimizer.step()

    return step


@named
def momentum_encoder(tiny: bool) -> Step:
    model, n, side = small_or("resnet50", tiny), 2 if tiny else 64, 32 if tiny else 224
    encoder, optimizer = copy.deepcopy(model).requires_grad_(False), sgd(model)
    views = torch.rand(2, n, 3, side, side)

    def step() -> None:
        optimizer.zero_grad()
        with torch.no_grad():
            for slow, fast in zip(encoder.parameters(), model.parameters(), strict=True):
                slow.mul_(0.99).add_(fast, alpha=0.01)
            keys = functional.normalize(encoder(views[1]), dim=1)
        queries = functional.normalize(model(views[0]), dim=1)
        functional.cross_entropy(queries @ keys.T / 0.07, torch.arange(n, device=keys.device)).backward()
        optimizer.step()

    return step
