"""Sixteen further steps that people start, of kinds in no earlier list, chosen without a look at what is forecast.

Models are timm's, torchvision's or written here, sizes and loops those of the repositories that people start from.
"""

import copy
import itertools
from typing import Any

import torch  # noqa: TID253 - made of it
from torch import nn  # noqa: TID253 - made of it
from torch.nn import functional  # noqa: TID253 - made of it
from training_steps import (
    BF16,
    FP16,
    Residual,
    Step,
    classifier,
    images_of,
    labelled,
    named,
    norm_act,
    trained_by,
)


def by_timm(name: str, small: str, tiny: bool, **more: Any) -> nn.Module:
    import timm

    made: nn.Module = timm.create_model(small if tiny else name, pretrained=False, **more)
    return made


def conv_norm(
    a: int, b: int, kernel: int = 3, stride: int = 1, act: nn.Module | None = None
) -> nn.Sequential:
    return norm_act(nn.Conv2d(a, b, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(b), act)


# Segmenters, poses and boxes


class NestedUnet(nn.Module):
    """U-Net++ (Zhou et al., arXiv:1807.10165): each map is made of all to its left and the one below."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        self.rows = nn.ModuleList()
        for i, (above, width) in enumerate(itertools.pairwise((1, *widths))):
            ins = [above, *(width * j + 2 * width for j in range(1, len(widths) - i))]
            row = (nn.Sequential(conv_norm(a, width), conv_norm(width, width)) for a in ins)
            self.rows.append(nn.ModuleList(row))
        self.heads = nn.ModuleList(nn.Conv2d(widths[0], 1, 1) for _ in widths[1:])

    def forward(self, maps: Any) -> list[Any]:
        found: list[list[Any]] = []
        for row in self.rows:
            maps = row[0](functional.max_pool2d(maps, 2) if found else maps)
            found.append([maps])
        for j in range(1, len(found)):
            for here, below, row in zip(found[:-j], found[1:], self.rows, strict=False):
                wide = functional.interpolate(below[j - 1], None, 2, "bilinear", align_corners=True)
                here.append(row[j](torch.cat([*here, wide], 1)))
        return [head(maps) for head, maps in zip(self.heads, found[0][1:], strict=True)]


@named
def nested_unet(tiny: bool) -> Step:
    """Slices of a scan, deep supervision; RMSprop, a scaler and clipping, as in the U-Net most started from."""
    n, side, widths = (2, 32, (4, 8, 16)) if tiny else (8, 512, (32, 64, 128, 256, 512))
    model, slices = NestedUnet(widths), torch.rand(n, 1, side, side)
    masks = torch.rand(n, 1, side, side).round()

    def one(scores: Any) -> Any:
        shares = scores.sigmoid()
        overlap, total = (shares * masks).sum((1, 2, 3)), (shares + masks).sum((1, 2, 3))
        dice = 1 - ((2 * overlap + 1e-5) / (total + 1e-5)).mean()
        return 0.5 * functional.binary_cross_entropy_with_logits(scores, masks) + dice

    optimizer = torch.optim.RMSprop(model.parameters(), 1e-5, weight_decay=1e-8, momentum=0.999, foreach=True)
    return trained_by(lambda: sum(map(one, model(slices))) / len(model.heads), optimizer, FP16, clip=1.0)


@named
def transformer_segmenter(tiny: bool) -> Step:
    """SegFormer (Xie et al., arXiv:2105.15203): attention to shortened maps, a head of linear layers; 150 classes."""
    n, side, width = (2, 64, 16) if tiny else (8, 512, 256)
    encoder = by_timm("pvt_v2_b2", "pvt_v2_b0", tiny, features_only=True)
    linear = nn.ModuleList(nn.Conv2d(channels, width, 1) for channels in encoder.feature_info.channels())
    head = nn.Sequential(conv_norm(4 * width, width, 1), nn.Dropout2d(0.1), nn.Conv2d(width, 150, 1))
    images, labels = torch.rand(n, 3, side, side), torch.randint(150, (n, side, side))

    def loss() -> Any:
        levels = [layer(maps) for layer, maps in zip(linear, encoder(images), strict=True)]
        size = levels[0].shape[2:]
        wide = torch.cat([functional.interpolate(maps, size, mode="bilinear") for maps in levels[::-1]], 1)
        scores = functional.interpolate(head(wide), (side, side), mode="bilinear")
        return functional.cross_entropy(scores, labels, ignore_index=255)

    parts = nn.ModuleList([encoder, linear, head])
    return trained_by(loss, torch.optim.AdamW(parts.parameters(), 6e-5, weight_decay=0.01), BF16)


@named
def high_resolution_pose(tiny: bool) -> Step:
    """HRNet (Sun et al., arXiv:1902.09212), its finest maps; a squared error of each joint, one by one."""
    n, height, width = (2, 64, 64) if tiny else (32, 256, 192)
    net = by_timm("hrnet_w32", "hrnet_w18_small", tiny, features_only=True, feature_location="")
    model = nn.ModuleList([net, nn.Conv2d(16 if tiny else 32, 17, 1)])
    images, goals = torch.rand(n, 3, height, width), torch.rand(n, 17, height // 4, width // 4)

    def loss() -> Any:
        maps = model[1](net(images)[1])
        return sum(0.5 * functional.mse_loss(maps[:, i], goals[:, i]) for i in range(17)) / 17

    return trained_by(loss, torch.optim.Adam(model.parameters(), 1e-3))


@named
def centre_points(tiny: bool) -> Step:
    """CenterNet (Zhou et al., arXiv:1904.07850): deconvolutions, a focal loss on heat maps, sizes read at centres."""
    n, side, classes, objects = (2, 64, 3, 8) if tiny else (32, 512, 80, 128)
    trunk = nn.Sequential(*list(classifier("resnet18", tiny).children())[:-2])
    for a, b in itertools.pairwise((512, 256, 128, 64)):
        trunk.append(norm_act(nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b)))
    heads = nn.ModuleList(
        nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(64, b, 1))
        for b in (classes, 2, 2)
    )
    images, goals = torch.rand(n, 3, side, side), torch.rand(n, classes, side // 4, side // 4) * 0.9
    goals.flatten(1)[:, :7] = 1
    places, sizes = torch.randint((side // 4) ** 2, (n, objects, 1)), torch.rand(2, n, objects, 2)
    real = (torch.arange(objects) < 7).float()[None, :, None].expand(n, -1, 2)

    def focal(shares: Any) -> Any:
        peaks, rest = goals.eq(1).float(), goals.lt(1).float()
        near = (shares.log() * (1 - shares) ** 2 * peaks).sum()
        far = ((1 - shares).log() * shares**2 * (1 - goals) ** 4 * rest).sum()
        return -far if peaks.sum() == 0 else -(near + far) / peaks.sum()

    def read(maps: Any, goal: Any) -> Any:
        rows = maps.permute(0, 2, 3, 1).contiguous().view(n, -1, 2).gather(1, places.expand(-1, -1, 2))
        return functional.l1_loss(rows * real, goal * real, reduction="sum") / (real.sum() + 1e-4)

    def loss() -> Any:
        heat, size, shift = (head(maps) for maps in [trunk(images)] for head in heads)
        shares = heat.sigmoid().clamp(1e-4, 1 - 1e-4)
        return focal(shares) + 0.1 * read(size, sizes[0]) + read(shift, sizes[1])

    return trained_by(loss, torch.optim.Adam([*trunk.parameters(), *heads.parameters()], 1.25e-4))


# Generators and what maps images to images


@named
def quantized_autoencoder(tiny: bool) -> Step:
    """VQ-VAE (van den Oord et al., arXiv:1711.00937): each position takes the nearest of 512 codes."""
    n, side, width, codes = (2, 32, 16, 32) if tiny else (128, 128, 128, 512)

    def residuals() -> list[nn.Module]:
        convs = (nn.Conv2d(width, 32, 3, padding=1, bias=False), nn.Conv2d(32, width, 1, bias=False))
        return [*(Residual(nn.ReLU(), convs[0], nn.ReLU(), convs[1]) for _ in range(2)), nn.ReLU()]

    down = [nn.Conv2d(3, width // 2, 4, 2, 1), nn.ReLU(), nn.Conv2d(width // 2, width, 4, 2, 1), nn.ReLU()]
    encoder = nn.Sequential(
        *down, nn.Conv2d(width, width, 3, padding=1), *residuals(), nn.Conv2d(width, 64, 1)
    )
    up = [
        nn.ConvTranspose2d(width, width // 2, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(width // 2, 3, 4, 2, 1),
    ]
    decoder = nn.Sequential(nn.Conv2d(64, width, 3, padding=1), *residuals(), *up)
    book, images = nn.Embedding(codes, 64), torch.rand(n, 3, side, side)

    def loss() -> Any:
        rows = encoder(images).permute(0, 2, 3, 1).contiguous()
        flat, rate = rows.view(-1, 64), functional.mse_loss
        distances = (
            flat.square().sum(1, keepdim=True) + book.weight.square().sum(1) - 2 * flat @ book.weight.t()
        )
        nearest = distances.argmin(1)[:, None]
        hot = torch.zeros(len(flat), codes, device=flat.device).scatter_(1, nearest, 1)
        taken = (hot @ book.weight).view_as(rows)
        made = decoder((rows + (taken - rows).detach()).permute(0, 3, 1, 2).contiguous())
        return rate(made, images) / 0.06 + rate(taken.detach(), rows) + 0.25 * rate(taken, rows.detach())

    parts = nn.ModuleList([encoder, decoder, book])
    return trained_by(loss, torch.optim.Adam(parts.parameters(), 3e-4, amsgrad=True))


class Modulated(nn.Module):
    """A convolution whose filters each sample's style scales: as many groups as samples."""

    def __init__(self, a: int, b: int, kernel: int, styles: int, demodulates: bool = True) -> None:
        super().__init__()
        self.style, self.demodulates = nn.Linear(styles, a), demodulates
        self.weight = nn.Parameter(torch.randn(b, a, kernel, kernel))
        nn.init.kaiming_normal_(self.weight, a=0, mode="fan_in", nonlinearity="leaky_relu")

    def forward(self, maps: Any, styles: Any) -> Any:
        n, _, h, w = maps.shape
        weights = self.weight[None] * (self.style(styles)[:, None, :, None, None] + 1)
        if self.demodulates:
            weights = weights * torch.rsqrt(weights.square().sum((2, 3, 4), keepdim=True) + 1e-8)
        filters = weights.reshape(-1, *weights.shape[2:])
        made = functional.conv2d(maps.reshape(1, -1, h, w), filters, padding=filters.shape[-1] // 2, groups=n)
        return made.reshape(n, -1, h, w)


class StyleGenerator(nn.Module):
    """At each resolution two modulated convolutions with noise, and what they add to the image."""

    def __init__(self, widths: tuple[int, ...], styles: int) -> None:
        super().__init__()
        layers = (norm_act(nn.Linear(styles, styles), nn.Identity(), nn.LeakyReLU(0.2)) for _ in range(8))
        self.styles, self.first = nn.Sequential(*layers), nn.Parameter(torch.randn(1, widths[0], 4, 4))
        pairs = [pair for a, b in itertools.pairwise((widths[0], *widths)) for pair in ((a, b), (b, b))]
        self.convs = nn.ModuleList(Modulated(a, b, 3, styles) for a, b in pairs)
        self.noises = nn.ParameterList(torch.zeros(1) for _ in pairs)
        self.colours = nn.ModuleList(Modulated(b, 3, 1, styles, demodulates=False) for b in widths)

    def forward(self, latent: Any) -> Any:
        styles, image = self.styles(functional.normalize(latent, dim=1)), None
        maps = self.first.expand(len(latent), -1, -1, -1)
        for i, (conv, scale) in enumerate(zip(self.convs, self.noises, strict=True)):
            if i and i % 2 == 0:
                maps, image = (functional.interpolate(each, None, 2, "bilinear") for each in (maps, image))
            maps = conv(maps, styles)
            maps = functional.leaky_relu(maps + scale * torch.randn_like(maps[:, :1]), 0.2, inplace=True)
            if i % 2:
                colours = self.colours[i // 2](maps, styles)
                image = colours if image is None else image + colours
        return image


@named
def style_gan(tiny: bool) -> Step:
    """StyleGAN2 (Karras et al., arXiv:1912.04958) without the penalty that every sixteenth iteration has."""
    n, widths, styles = (2, (16, 8, 8), 16) if tiny else (16, (512, 512, 512, 256, 128, 64), 512)
    generator, act = StyleGenerator(widths, styles), nn.LeakyReLU(0.2, inplace=True)
    judge = nn.Sequential()
    for a, b in itertools.pairwise((3, *widths[::-1])):
        judge += nn.Sequential(nn.Conv2d(a, b, 3, 1, 1), act, nn.Conv2d(b, b, 3, 1, 1), act, nn.AvgPool2d(2))
    judge += nn.Sequential(nn.Flatten(), nn.Linear(4 * widths[0], 1))
    average = copy.deepcopy(generator).requires_grad_(False)
    of_judge, of_maker = (
        torch.optim.Adam(each.parameters(), 2e-3, (0.0, 0.99)) for each in (judge, generator)
    )
    real = torch.rand(n, 3, 2 ** (len(widths) + 1), 2 ** (len(widths) + 1))

    def step() -> None:
        of_judge.zero_grad()
        made = generator(torch.randn(n, styles, device=real.device)).detach()
        (functional.softplus(judge(made)).mean() + functional.softplus(-judge(real)).mean()).backward()
        of_judge.step()
        of_maker.zero_grad()
        functional.softplus(-judge(generator(torch.randn(n, styles, device=real.device)))).mean().backward()
        of_maker.step()
        for slow, fast in zip(average.parameters(), generator.parameters(), strict=True):
            slow.data.mul_(0.999).add_(fast.data, alpha=0.001)

    return step


@named
def wasserstein_gan(tiny: bool) -> Step:
    """WGAN-GP (Gulrajani et al., arXiv:1704.00028): five steps of the critic, each with a gradient of a gradient."""
    n, width, rounds = (2, 4, 2) if tiny else (64, 64, 5)
    widths, critic, maker = [width * 2**i for i in range(4)], [], []
    for a, b in itertools.pairwise([3, *widths]):
        norm = [nn.InstanceNorm2d(b, affine=True)] if a > 3 else []
        critic += [nn.Conv2d(a, b, 4, 2, 1), *norm, nn.LeakyReLU(0.2, inplace=True)]
    judge = nn.Sequential(*critic, nn.Conv2d(widths[-1], 1, 4))
    for a, b in itertools.pairwise(widths[::-1]):
        maker += norm_act(nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b))
    first = norm_act(nn.ConvTranspose2d(100, widths[-1], 4), nn.BatchNorm2d(widths[-1]))
    generator = nn.Sequential(*first, *maker, nn.ConvTranspose2d(width, 3, 4, 2, 1), nn.Tanh())
    of_judge, of_maker = (
        torch.optim.Adam(each.parameters(), 1e-4, (0.0, 0.9)) for each in (judge, generator)
    )
    real = torch.rand(n, 3, 64, 64)

    def step() -> None:
        for _ in range(rounds):
            made = generator(torch.randn(n, 100, 1, 1, device=real.device)).detach()
            share = torch.rand(n, 1, 1, 1, device=real.device)
            between = (share * real + (1 - share) * made).requires_grad_(True)
            scores = judge(between)
            (slope,) = torch.autograd.grad(
                scores, between, torch.ones_like(scores), create_graph=True, retain_graph=True
            )
            penalty = (slope.view(n, -1).norm(2, dim=1) - 1).square().mean()
            of_judge.zero_grad()
            (judge(made).mean() - judge(real).mean() + 10 * penalty).backward()
            of_judge.step()
        of_maker.zero_grad()
        (-judge(generator(torch.randn(n, 100, 1, 1, device=real.device))).mean()).backward()
        of_maker.step()

    return step


class ChannelAttention(nn.Sequential):
    """Channels scaled by what their means say."""

    def forward(self, maps: Any) -> Any:
        return maps * super().forward(maps)


@named
def attentive_super_resolution(tiny: bool) -> Step:
    """RCAN (Zhang et al., arXiv:1807.02758): ten groups of twenty blocks, twice as many pixels a side."""
    n, side, width, groups, depth = (2, 16, 16, 2, 2) if tiny else (16, 48, 64, 10, 20)

    def conv(a: int = width, b: int = width, kernel: int = 3) -> nn.Conv2d:
        return nn.Conv2d(a, b, kernel, padding=kernel // 2)

    def block() -> nn.Module:
        scale = conv(width, width // 16, 1), nn.ReLU(inplace=True), conv(width // 16, width, 1), nn.Sigmoid()
        attend = ChannelAttention(nn.AdaptiveAvgPool2d(1), *scale)
        return Residual(conv(), nn.ReLU(inplace=True), conv(), attend)

    body = (Residual(*(block() for _ in range(depth)), conv()) for _ in range(groups))
    last = conv(width, 4 * width), nn.PixelShuffle(2), conv(width, 3)
    model = nn.Sequential(conv(3), Residual(*body, conv()), *last)
    small, large = torch.rand(n, 3, side, side), torch.rand(n, 3, 2 * side, 2 * side)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4)
    return trained_by(lambda: functional.l1_loss(model(small), large), optimizer)


# Clips, waves and points


@named
def factored_clips(tiny: bool) -> Step:
    """R(2+1)D (Tran et al., arXiv:1711.11248) on sixteen frames, in 16 bits with a scaler."""
    from torchvision.models.video import r2plus1d_18

    n, frames, side = (1, 4, 32) if tiny else (16, 16, 112)
    return labelled(r2plus1d_18(weights=None), n, 3, frames, side, side, classes=400, amp=FP16)


class Gated(nn.Module):
    """A dilated convolution of WaveNet (van den Oord et al., arXiv:1609.03499): what goes on, and what is summed."""

    def __init__(self, width: int, dilation: int) -> None:
        super().__init__()
        self.conv = nn.Conv1d(width, 2 * width, 3, padding=dilation, dilation=dilation)
        self.on, self.out = nn.Conv1d(width, width, 1), nn.Conv1d(width, width, 1)

    def forward(self, waves: Any) -> tuple[Any, Any]:
        a, b = self.conv(waves).chunk(2, 1)
        gated = a.tanh() * b.sigmoid()
        return waves + self.on(gated), self.out(gated)


@named
def waves_by_dilations(tiny: bool) -> Step:
    """Words of one second by 1-D convolutions on samples, 35 classes."""
    n, samples, width, layers = (2, 800, 8, 3) if tiny else (32, 16_000, 64, 20)
    first = nn.Conv1d(1, width, 1)
    body = nn.ModuleList(Gated(width, 2 ** (i % 10)) for i in range(layers))
    head = nn.Sequential(
        *(nn.ReLU(), nn.Conv1d(width, width, 1), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten()),
        nn.Linear(width, 35),
    )
    waves, words = torch.rand(n, 1, samples) - 0.5, torch.randint(35, (n,))

    def loss() -> Any:
        maps, total = first(waves), 0
        for layer in body:
            maps, out = layer(maps)
            total = total + out
        return functional.cross_entropy(head(total), words)

    return trained_by(loss, torch.optim.Adam(nn.ModuleList([first, body, head]).parameters(), 1e-3))


class Points(nn.Module):
    """Layers on each point, and the largest of all points."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(norm_act(nn.Conv1d(a, b, 1), nn.BatchNorm1d(b)) for a, b in itertools.pairwise(widths))
        )

    def forward(self, points: Any) -> Any:
        return self.layers(points).max(2)[0]


def dense(*widths: int) -> nn.Sequential:
    hidden = (norm_act(nn.Linear(a, b), nn.BatchNorm1d(b)) for a, b in itertools.pairwise(widths[:-1]))
    return nn.Sequential(*hidden, nn.Linear(*widths[-2:]))


@named
def point_clouds(tiny: bool) -> Step:
    """PointNet (Qi et al., arXiv:1612.00593): points and features turned by matrices that it predicts."""
    n, points, wide = (4, 32, 32) if tiny else (32, 2500, 1024)
    turns = nn.ModuleList(
        nn.Sequential(Points(a, 64, 128, wide), dense(wide, wide // 2, wide // 4, a * a)) for a in (3, 64)
    )
    first = norm_act(nn.Conv1d(3, 64, 1), nn.BatchNorm1d(64))
    rest, head = Points(64, 128, wide), dense(wide, wide // 2, wide // 4, 40)
    clouds, labels = torch.rand(n, 3, points), torch.randint(40, (n,))

    def turned(maps: Any, turn: nn.Module) -> tuple[Any, Any]:
        width = maps.shape[1]
        matrix = turn(maps).view(n, width, width) + torch.eye(width, device=maps.device)
        return torch.bmm(maps.transpose(2, 1), matrix).transpose(2, 1), matrix

    def loss() -> Any:
        maps, matrix = turned(first(turned(clouds, turns[0])[0]), turns[1])
        off = torch.bmm(matrix, matrix.transpose(2, 1)) - torch.eye(64, device=maps.device)
        scores = head(functional.dropout(rest(maps), 0.3)).log_softmax(1)
        return functional.nll_loss(scores, labels) + 0.001 * off.norm(dim=(1, 2)).mean()

    parts = nn.ModuleList([turns, first, rest, head])
    return trained_by(loss, torch.optim.Adam(parts.parameters(), 1e-3, (0.9, 0.999)))


# Classes, identities and domains


@named
def tuned_efficientnet(tiny: bool) -> Step:
    """EfficientNetV2-S by timm, channels-last with a scaler; Lion, stochastic depth and averaged weights."""
    from timm.optim import create_optimizer_v2
    from timm.utils import ModelEmaV3

    n, side = (2, 64) if tiny else (64, 300)
    model = by_timm("tf_efficientnetv2_s", "tf_efficientnetv2_b0", tiny, num_classes=120, drop_path_rate=0.2)
    model = model.to(memory_format=torch.channels_last)
    average = ModelEmaV3(model, decay=0.9998)
    images, labels = images_of(tiny, n, side, 120)
    images = images.contiguous(memory_format=torch.channels_last)
    train = trained_by(
        lambda: functional.cross_entropy(model(images), labels, label_smoothing=0.1),
        create_optimizer_v2(model, "lion", lr=3e-5, weight_decay=0.05),
        FP16,
    )
    return lambda: (train(), average.update(model))


@named
def mobile_vit(tiny: bool) -> Step:
    """MobileViT-S (Mehta and Rastegari, arXiv:2110.02178): attention to unfolded maps; AdamW in two groups."""
    from timm.optim import create_optimizer_v2

    model = by_timm("mobilevit_s", "mobilevit_xxs", tiny)
    images, labels = images_of(tiny, 128, 256)
    optimizer = create_optimizer_v2(model, "adamw", lr=2e-3, weight_decay=0.01)
    return trained_by(lambda: functional.cross_entropy(model(images), labels), optimizer, BF16)


@named
def self_distilled_crops(tiny: bool) -> Step:
    """DINO (Caron et al., arXiv:2104.14294): a teacher sees two large crops, its student six small ones, too."""
    n, sides, small, outs = (2, (64, 32), 2, 64) if tiny else (32, (224, 96), 6, 60_000)

    def network() -> nn.Module:
        net = classifier("resnet50", tiny)
        wide = net.fc.in_features
        net.fc = nn.Identity()
        layers = nn.Linear(wide, 2048), nn.GELU(), nn.Linear(2048, 2048), nn.GELU(), nn.Linear(2048, 256)
        last = nn.utils.parametrizations.weight_norm(nn.Linear(256, outs, bias=False))
        return nn.ModuleList([net, nn.Sequential(*layers), last])

    student, teacher = network(), network()
    teacher.load_state_dict(student.state_dict())
    teacher.requires_grad_(False)
    crops = [torch.rand(n, 3, sides[i > 1], sides[i > 1]) for i in range(2 + small)]
    centre = torch.zeros(1, outs)

    def scores(network: Any, groups: list[list[Any]]) -> Any:
        net, head, last = network
        seen = head(torch.cat([net(torch.cat(group)) for group in groups]))
        return last(functional.normalize(seen, dim=-1, p=2))

    def loss() -> Any:
        with torch.no_grad():
            taught = scores(teacher, [crops[:2]])
            goals = ((taught - centre) / 0.04).softmax(-1).chunk(2)
            centre.mul_(0.9).add_(taught.float().mean(0, keepdim=True), alpha=0.1)
        given = (scores(student, [crops[:2], crops[2:]]) / 0.1).chunk(2 + small)
        pairs = [(p, q) for i, p in enumerate(goals) for j, q in enumerate(given) if i != j]
        return sum((-p * q.log_softmax(-1)).sum(-1).mean() for p, q in pairs) / len(pairs)

    train = trained_by(loss, torch.optim.AdamW(student.parameters(), 5e-4), FP16, clip=3.0)

    @torch.no_grad()
    def follow() -> None:
        for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
            slow.mul_(0.996).add_(fast, alpha=0.004)

    return lambda: (train(), follow())


class FaceBlock(nn.Module):
    """A residual block of ArcFace's ResNet: a norm first, PReLU between."""

    def __init__(self, a: int, b: int, stride: int) -> None:
        super().__init__()
        first = nn.BatchNorm2d(a), *conv_norm(a, b, act=nn.PReLU(b))
        self.body = nn.Sequential(*first, *list(conv_norm(b, b, stride=stride))[:2])
        narrow = nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))
        self.skip = narrow if stride == 2 else nn.Identity()

    def forward(self, maps: Any) -> Any:
        return self.body(maps) + self.skip(maps)


@named
def faces_by_angles(tiny: bool) -> Step:
    """ArcFace (Deng et al., arXiv:1801.07698): a margin on the angle to one of 85,742 identities, outside autocast."""
    n, depths, people = (2, (1, 1, 1, 1), 50) if tiny else (128, (3, 4, 14, 3), 85_742)
    widths, blocks = (64, 64, 128, 256, 512), []
    for (a, b), depth in zip(itertools.pairwise(widths), depths, strict=True):
        blocks += [FaceBlock(a, b, 2), *(FaceBlock(b, b, 1) for _ in range(depth - 1))]
    first, flat = (
        conv_norm(3, 64, act=nn.PReLU(64)),
        (nn.BatchNorm2d(512), nn.Flatten(), nn.Linear(512 * 49, 512)),
    )
    model = nn.Sequential(*first, *blocks, *flat, nn.BatchNorm1d(512))
    weight = nn.Parameter(torch.randn(people, 512) * 0.01)
    faces, who = torch.rand(n, 3, 112, 112), torch.randint(people, (n,))
    optimizer = torch.optim.SGD([*model.parameters(), weight], 0.02, 0.9, weight_decay=5e-4)

    def loss() -> Any:
        seen = model(faces)
        with torch.autocast("cuda", enabled=False):
            cosine = functional.linear(functional.normalize(seen.float()), functional.normalize(weight))
            sine = (1 - cosine.square()).clamp(0, 1).sqrt()
            moved = torch.where(cosine > -0.8776, cosine * 0.8776 - sine * 0.4794, cosine - 0.2397)
            hot = torch.zeros_like(cosine).scatter_(1, who.view(-1, 1), 1)
            return functional.cross_entropy(64 * (hot * moved + (1 - hot) * cosine), who)

    return trained_by(loss, optimizer, FP16)


class Reversed(torch.autograd.Function):
    """The identity, whose gradient has the other sign."""

    @staticmethod
    def forward(ctx: Any, rows: Any, rate: float) -> Any:
        ctx.rate = rate
        return rows.view_as(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, None]:
        return gradient.neg() * ctx.rate, None


@named
def reversed_domains(tiny: bool) -> Step:
    """DANN (Ganin et al., arXiv:1505.07818): labelled images of one domain, unlabelled ones of another; a schedule."""
    net = classifier("resnet50", tiny)
    wide, net.fc = net.fc.in_features, nn.Identity()
    narrow, head = norm_act(nn.Linear(wide, 256), nn.BatchNorm1d(256)), nn.Linear(256, 31)
    judge = dense(256, 1024, 1024, 1)
    (source, labels), (target, _) = images_of(tiny, 32, 224, 31), images_of(tiny, 32, 224, 31)
    domains = torch.cat([torch.ones(len(source), 1), torch.zeros(len(target), 1)])
    fresh = [{"params": part.parameters(), "lr": 0.01} for part in (narrow, head, judge)]
    optimizer = torch.optim.SGD(
        [{"params": net.parameters(), "lr": 0.001}, *fresh], 0.01, 0.9, weight_decay=1e-3, nesterov=True
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda i: (1 + 0.001 * i) ** -0.75)

    def loss() -> Any:
        seen = narrow(net(torch.cat([source, target])))
        told = functional.binary_cross_entropy_with_logits(judge(Reversed.apply(seen, 1.0)), domains)
        return functional.cross_entropy(head(seen)[: len(source)], labels) + told

    train = trained_by(loss, optimizer)
    return lambda: (train(), schedule.step())
