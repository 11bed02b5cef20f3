"""Training steps as repositories of CNNs write them, which run in milliseconds on a processor.

Each function of `STEPS` makes one step: forward, loss, backward and optimizer, as a user's loop does them.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch  # noqa: TID253 - made of it
import torch.nn.functional as F  # noqa: N812, TID253 - its usual name
from torch import nn  # noqa: TID253 - made of it

SIZE, BATCH, CLASSES = 32, 4, 10

Step = Callable[[], object]

STEPS: dict[str, Callable[[], Step]] = {}
"""Makers of the steps, by what a user would call them."""


def recorded(make: Callable[[], Step]) -> Callable[[], Step]:
    STEPS[make.__name__] = make
    return make


class Net(nn.Module):
    """A module of these children with this forward."""

    def __init__(self, forward: Callable[..., Any], **children: Any) -> None:
        super().__init__()
        self.run = forward
        for name, child in children.items():
            setattr(self, name, child)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        return self.run(self, *inputs, **named)


def classified(forward: Callable[..., Any], **children: Any) -> Step:
    """Step of a CNN of these children with this forward."""
    return supervised(Net(forward, **children))


def block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(outputs), nn.ReLU(inplace=True))


def backbone(channels: int = 3, width: int = 16) -> nn.Sequential:
    return nn.Sequential(block(channels, width), block(width, 2 * width, 2), block(2 * width, 4 * width, 2))


def embedder(channels: int = 3, outputs: int = 32) -> nn.Sequential:
    return nn.Sequential(backbone(channels), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, outputs))


def classifier(channels: int = 3) -> nn.Sequential:
    return embedder(channels, CLASSES)


def images(channels: int = 3, height: int = SIZE, width: int = SIZE, batch: int = BATCH) -> torch.Tensor:
    return torch.randn(batch, channels, height, width)


def labels(batch: int = BATCH) -> torch.Tensor:
    return torch.randint(CLASSES, (batch,))


def sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    trained = [p for module in modules for p in module.parameters() if p.requires_grad]
    return torch.optim.SGD(trained, lr=0.1, momentum=0.9)


def trained_by(loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer) -> Step:
    """The usual step of a loss."""

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def supervised(module: nn.Module, x: torch.Tensor | None = None) -> Step:
    x = images() if x is None else x
    y = labels(len(x))
    return trained_by(lambda: F.cross_entropy(module(x), y), sgd(module))


@recorded
def plain_classifier() -> Step:
    return supervised(classifier())


@recorded
def features_without_gradients() -> Step:
    def forward(self: Any, x: Any) -> Any:
        with torch.no_grad():
            x = self.features(x)
        return self.head(x)

    return classified(forward, features=embedder(), head=nn.Linear(32, CLASSES))


@recorded
def mixed_precision_with_a_scaler() -> Step:
    module, x, y = classifier(), images(), labels()
    optimizer, scaler = sgd(module), torch.amp.GradScaler("cpu")

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(module(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


@recorded
def channels_last_adamw_groups() -> Step:
    module = classifier().to(memory_format=torch.channels_last)
    x, y = images().to(memory_format=torch.channels_last), labels()
    plain = [p for p in module.parameters() if p.ndim < 2]
    decayed = [p for p in module.parameters() if p.ndim >= 2]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    return trained_by(lambda: F.cross_entropy(module(x), y), torch.optim.AdamW(groups))


@recorded
def contrastive_views() -> Step:
    module, views = embedder(), [images(), images()]

    def loss() -> torch.Tensor:
        z = F.normalize(torch.cat([module(view) for view in views]))
        logits = (z @ z.T / 0.1).masked_fill(torch.eye(2 * BATCH, dtype=torch.bool), -1e9)
        return F.cross_entropy(logits, torch.arange(2 * BATCH).roll(BATCH))

    return trained_by(loss, sgd(module))


@recorded
def momentum_encoder_with_a_queue() -> Step:
    module = embedder()
    keys, queue = copy.deepcopy(module).requires_grad_(False), F.normalize(torch.randn(64, 32))
    optimizer, views = sgd(module), [images(), images()]

    def step() -> None:
        nonlocal queue
        query = F.normalize(module(views[0]))
        with torch.no_grad():
            for slow, fast in zip(keys.parameters(), module.parameters(), strict=True):
                slow.mul_(0.99).add_(fast, alpha=0.01)
            key = F.normalize(keys(views[1]))
        logits = torch.cat([(query * key).sum(1, keepdim=True), query @ queue.T], 1) / 0.07
        optimizer.zero_grad()
        F.cross_entropy(logits, torch.zeros(BATCH, dtype=torch.long)).backward()
        optimizer.step()
        queue = torch.cat([queue[BATCH:], key])

    return step


@recorded
def distillation_from_a_frozen_teacher() -> Step:
    student, teacher, x, y = classifier(), classifier().eval().requires_grad_(False), images(), labels()

    def loss() -> torch.Tensor:
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        logits = student(x)
        return F.cross_entropy(logits, y) + F.kl_div(logits.log_softmax(1), soft, reduction="batchmean")

    return trained_by(loss, sgd(student))


def generator() -> nn.Sequential:
    up = [
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1),
    ]
    return nn.Sequential(nn.Linear(16, 32 * 64), nn.Unflatten(1, (32, 8, 8)), *up, nn.Tanh())


@recorded
def gan_with_gradient_penalty() -> Step:
    makes, judges, real = generator(), embedder(outputs=1), images()
    of_makes, of_judges = sgd(makes), sgd(judges)

    def step() -> None:
        fake = makes(torch.randn(BATCH, 16))
        of_judges.zero_grad()
        loss = judges(fake.detach()).mean() - judges(real).mean()
        between = (0.5 * real + 0.5 * fake.detach()).requires_grad_(True)
        (slope,) = torch.autograd.grad(judges(between).sum(), between, create_graph=True)
        loss = loss + 10 * ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
        loss.backward()
        of_judges.step()
        of_makes.zero_grad()
        (-judges(fake).mean()).backward()
        of_makes.step()

    return step


class Dense(nn.Module):
    """A backbone with a head of classes and one of boxes on each of two maps."""

    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Sequential(block(3, 16, 2), block(16, 32, 2)), block(32, 32, 2)
        self.classes, self.boxes = nn.Conv2d(32, 3 * CLASSES, 3, padding=1), nn.Conv2d(32, 12, 3, padding=1)

    def forward(self, x: Any) -> Any:
        low = self.low(x)
        maps = [low, self.high(low)]
        return [self.classes(m) for m in maps], [self.boxes(m) for m in maps]


@recorded
def detector_of_lists_with_targets() -> Step:
    def forward(self: Any, pictures: Any, targets: Any) -> Any:
        classes, boxes = self.dense(torch.stack(pictures))
        hit = torch.stack([target["boxes"][:, 2:].mean() > 0.5 for target in targets])
        chosen = classes[0].permute(0, 2, 3, 1)[hit]  # as many as the data say
        return {"classes": chosen.square().sum() / max(1, len(chosen)), "boxes": boxes[0].abs().mean()}

    module, pictures = Net(forward, dense=Dense()), list(images())
    targets = [{"boxes": torch.rand(3, 4)} for _ in pictures]
    return trained_by(lambda: sum(module(pictures, targets).values()), sgd(module))


class UNet(nn.Module):
    """One step down and up again, with a skip."""

    def __init__(self, inputs: int = 3, outputs: int = CLASSES) -> None:
        super().__init__()
        self.down, self.deep = block(inputs, 16), block(16, 32, 2)
        self.up, self.out = nn.ConvTranspose2d(32, 16, 2, 2), nn.Conv2d(32, outputs, 1)

    def forward(self, x: Any) -> Any:
        low = self.down(x)
        return self.out(torch.cat([low, self.up(self.deep(low))], 1))


@recorded
def diffusion_with_time_steps() -> Step:
    def forward(self: Any, x: Any, t: Any) -> Any:
        return self.net(torch.cat([x, self.time(t)[:, None, :, None].expand(-1, 1, SIZE, SIZE)], 1))

    module, x = Net(forward, net=UNet(4, 3), time=nn.Linear(1, SIZE)), images()

    def loss() -> torch.Tensor:
        t, noise = torch.rand(BATCH, 1), torch.randn_like(x)
        mixed = (1 - t)[:, :, None, None] * x + t[:, :, None, None] * noise
        return F.mse_loss(module(mixed, t), noise)

    return trained_by(loss, sgd(module))


@recorded
def style_transfer_to_pixels() -> Step:
    module, pixels = backbone().eval().requires_grad_(False), nn.Parameter(images(batch=1))
    style = module(images(batch=1)).detach().flatten(2)

    def loss() -> torch.Tensor:
        maps = module(pixels).flatten(2)
        return F.mse_loss(maps @ maps.mT, style @ style.mT)

    return trained_by(loss, torch.optim.Adam([pixels]))


@recorded
def custom_autograd_function() -> Step:
    class Swish(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * torch.sigmoid(x)

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            (x,) = ctx.saved_tensors
            gate = torch.sigmoid(x)
            return grad * (gate * (1 + x * (1 - gate)))

    def forward(self: Any, x: Any) -> Any:
        return self.head(Swish.apply(self.second(Swish.apply(self.first(x)))).mean((2, 3)))

    convolutions = {"first": nn.Conv2d(3, 16, 3), "second": nn.Conv2d(16, 16, 3)}
    return classified(forward, head=nn.Linear(16, CLASSES), **convolutions)


@recorded
def mixup_with_logging() -> Step:
    module, x, y = classifier(), images(), labels()
    optimizer, log = sgd(module), []

    def step() -> None:
        share, order = float(torch.rand(())), torch.randperm(BATCH)
        logits = module(share * x + (1 - share) * x[order])
        loss = share * F.cross_entropy(logits, y, label_smoothing=0.1) + (1 - share) * F.cross_entropy(
            logits, y[order], label_smoothing=0.1
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.append((loss.item(), (logits.argmax(1) == y).float().mean().item()))

    return step


@recorded
def moving_average_of_weights() -> Step:
    module, x, y = classifier(), images(), labels()
    average = torch.optim.swa_utils.AveragedModel(
        module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn()
    )
    train = trained_by(lambda: F.cross_entropy(module(x), y), sgd(module))

    def step() -> None:
        train()
        average.update_parameters(module)

    return step


@recorded
def two_passes_of_sharpness_aware_minimisation() -> Step:
    module, x, y = classifier(), images(), labels()
    optimizer = sgd(module)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        with torch.no_grad():
            grads = [p.grad for p in module.parameters()]
            norm = torch.stack([g.norm() for g in grads]).norm()
            moves = [0.05 * g / (norm + 1e-12) for g in grads]
            torch._foreach_add_(list(module.parameters()), moves)
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        with torch.no_grad():
            torch._foreach_sub_(list(module.parameters()), moves)
        optimizer.step()

    return step


@recorded
def clips_folded_into_the_batch() -> Step:
    def forward(self: Any, clips: Any) -> Any:
        return self.net(clips.flatten(0, 1)).unflatten(0, clips.shape[:2]).mean(1)

    return supervised(Net(forward, net=classifier()), torch.randn(BATCH, 5, 3, SIZE, SIZE))


@recorded
def text_lines_read_by_an_lstm() -> Step:
    def forward(self: Any, x: Any) -> Any:
        steps, _ = self.steps(self.features(x).mean(2).transpose(1, 2))
        return self.head(steps).log_softmax(2)

    reads = nn.LSTM(64, 32, bidirectional=True, batch_first=True)
    module = Net(forward, features=backbone(), steps=reads, head=nn.Linear(64, CLASSES))
    x, y = images(3, 32, 64), torch.randint(1, CLASSES, (BATCH, 5))

    def loss() -> torch.Tensor:
        out = module(x).transpose(0, 1)
        return F.ctc_loss(out, y, torch.full((BATCH,), len(out)), torch.full((BATCH,), 5))

    return trained_by(loss, sgd(module))


@recorded
def tokens_of_maps_in_a_transformer() -> Step:
    def forward(self: Any, x: Any) -> Any:
        maps = self.features(x).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.token.expand(len(maps), -1, -1), maps], 1)
        return self.head(self.layers(tokens)[:, 0])

    layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
    token = nn.Parameter(torch.zeros(1, 1, 64))
    return classified(forward, features=backbone(), token=token, layers=layers, head=nn.Linear(64, CLASSES))


@recorded
def layers_left_out_at_random() -> Step:
    def forward(self: Any, x: Any) -> Any:
        x = self.stem(x)
        for number, residual in enumerate(self.blocks):
            if not self.training or torch.rand(()).item() > 0.1 * number:
                x = x + residual(x)
        return self.head(x.mean((2, 3)))

    blocks = nn.ModuleList(block(16, 16) for _ in range(4))
    return classified(forward, stem=block(3, 16), blocks=blocks, head=nn.Linear(16, CLASSES))


@recorded
def early_exit_that_depends_on_data() -> Step:
    def forward(self: Any, x: Any) -> Any:
        x = self.low(x)
        sure = self.head(x.mean((2, 3))).softmax(1).amax(1) > 0.9
        return self.head((x if sure.all() else self.high(x)).mean((2, 3)))

    return classified(forward, low=block(3, 16), high=block(16, 16), head=nn.Linear(16, CLASSES))


@recorded
def spectral_norm_of_weights() -> Step:
    module = classifier()
    for child in list(module.modules()):
        if isinstance(child, nn.Conv2d):
            nn.utils.parametrizations.spectral_norm(child)
    return supervised(module)


@recorded
def frequencies_by_fft() -> Step:
    def forward(self: Any, x: Any) -> Any:
        x = self.stem(x)
        return self.head(torch.fft.irfft2(torch.fft.rfft2(x) * self.scale, s=x.shape[-2:]).mean((2, 3)))

    scale = nn.Parameter(torch.ones(16, SIZE, SIZE // 2 + 1, dtype=torch.cfloat))
    return classified(forward, stem=block(3, 16), scale=scale, head=nn.Linear(16, CLASSES))
