"""Forty habits of repositories that train CNNs, as small training steps that run in milliseconds on a processor.

Each function makes one: its step (forward, loss, backward, optimizer, as a user's loop does them), the module that a
user would give to a predictor of modules, its image size, and the images of one step.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch  # noqa: TID253 - made of it
import torch.nn.functional as F  # noqa: N812, TID253 - its usual name
from torch import nn  # noqa: TID253 - made of it
from torch.utils.checkpoint import checkpoint  # noqa: TID253 - made of it

SIZE, BATCH, CLASSES = 32, 4, 10


@dataclass(frozen=True)
class Habit:
    """A training step; `module` maps images, as today's reader takes them, `batch_size` are the images of one step."""

    step: Callable[[], object]
    module: nn.Module
    image_size: int = SIZE
    batch_size: int = BATCH


HABITS: dict[str, Callable[[], Habit]] = {}
"""Makers of the habits, by what a user would call them."""


def habit(make: Callable[[], Habit]) -> Callable[[], Habit]:
    HABITS[make.__name__] = make
    return make


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


def trained_by(loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """The usual step of a loss."""

    def step() -> None:
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()

    return step


def supervised(module: nn.Module, x: torch.Tensor | None = None, **more: Any) -> Habit:
    x = images() if x is None else x
    y = labels(len(x))
    return Habit(trained_by(lambda: F.cross_entropy(module(x), y), sgd(module)), module, **more)


@habit
def plain_classifier() -> Habit:
    return supervised(classifier())


@habit
def grey_images() -> Habit:
    return supervised(classifier(1), images(1, 28, 28), image_size=28)


@habit
def twelve_satellite_bands() -> Habit:
    return supervised(classifier(12), images(12))


@habit
def images_that_are_not_square() -> Habit:
    return supervised(classifier(), images(3, 48, 32))


@habit
def frozen_backbone() -> Habit:
    module = classifier()
    module[0].requires_grad_(False)
    return supervised(module)


@habit
def partly_frozen_backbone() -> Habit:
    module = classifier()
    module[0][:2].requires_grad_(False)
    return supervised(module)


@habit
def frozen_batch_norms() -> Habit:
    module = classifier()
    for child in module.modules():
        if isinstance(child, nn.BatchNorm2d):
            child.eval().requires_grad_(False)
    return supervised(module)


@habit
def features_without_gradients() -> Habit:
    class Probe(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.head = embedder(), nn.Linear(32, CLASSES)

        def forward(self, x: Any) -> Any:
            with torch.no_grad():
                x = self.features(x)
            return self.head(x)

    return supervised(Probe())


@habit
def adapters_beside_frozen_layers() -> Habit:
    class Adapted(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(16, 16, 3, padding=1).requires_grad_(False)
            self.down, self.up = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

        def forward(self, x: Any) -> Any:
            return F.relu(self.conv(x) + self.up(self.down(x)))

    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, CLASSES)]
    return supervised(nn.Sequential(block(3, 16).requires_grad_(False), Adapted(), Adapted(), *head))


@habit
def gradient_checkpointing() -> Habit:
    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.body = block(3, 16), nn.Sequential(block(16, 32, 2), block(32, 64, 2))
            self.head = nn.Linear(64, CLASSES)

        def forward(self, x: Any) -> Any:
            return self.head(checkpoint(self.body, self.stem(x), use_reentrant=False).mean((2, 3)))

    return supervised(Checkpointed())


@habit
def gradient_accumulation() -> Habit:
    module, parts = classifier(), 4
    optimizer = sgd(module)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(parts):
            (F.cross_entropy(module(images()), labels()) / parts).backward()
        optimizer.step()

    return Habit(step, module, batch_size=parts * BATCH)


@habit
def mixed_precision_with_a_scaler() -> Habit:
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

    return Habit(step, module)


@habit
def channels_last_adamw_groups() -> Habit:
    module = classifier().to(memory_format=torch.channels_last)
    x, y = images().to(memory_format=torch.channels_last), labels()
    plain = [p for p in module.parameters() if p.ndim < 2]
    decayed = [p for p in module.parameters() if p.ndim >= 2]
    groups = [{"params": decayed, "weight_decay": 0.05}, {"params": plain, "weight_decay": 0.0}]
    return Habit(trained_by(lambda: F.cross_entropy(module(x), y), torch.optim.AdamW(groups)), module)


@habit
def auxiliary_losses() -> Habit:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = block(3, 16), block(16, 32, 2)
            self.aux, self.head = nn.Linear(16, CLASSES), nn.Linear(32, CLASSES)

        def forward(self, x: Any) -> Any:
            low = self.low(x)
            high = self.high(low)
            return SimpleNamespace(logits=self.head(high.mean((2, 3))), aux=self.aux(low.mean((2, 3))))

    module, x, y = Deep(), images(), labels()

    def loss() -> torch.Tensor:
        out = module(x)
        return F.cross_entropy(out.logits, y) + 0.4 * F.cross_entropy(out.aux, y)

    return Habit(trained_by(loss, sgd(module)), module)


@habit
def siamese_pairs() -> Habit:
    class Siamese(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = embedder()

        def forward(self, left: Any, right: Any) -> Any:
            return F.pairwise_distance(self.embed(left), self.embed(right))

    module, left, right = Siamese(), images(), images()
    same = torch.randint(2, (BATCH,)).float()

    def loss() -> torch.Tensor:
        distance = module(left, right)
        return (same * distance**2 + (1 - same) * F.relu(1 - distance) ** 2).mean()

    return Habit(trained_by(loss, sgd(module)), module)


@habit
def contrastive_views() -> Habit:
    module, views = embedder(), [images(), images()]

    def loss() -> torch.Tensor:
        z = F.normalize(torch.cat([module(view) for view in views]))
        logits = (z @ z.T / 0.1).masked_fill(torch.eye(2 * BATCH, dtype=torch.bool), -1e9)
        return F.cross_entropy(logits, torch.arange(2 * BATCH).roll(BATCH))

    return Habit(trained_by(loss, sgd(module)), module)


@habit
def momentum_encoder_with_a_queue() -> Habit:
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

    return Habit(step, module)


@habit
def distillation_from_a_frozen_teacher() -> Habit:
    student, teacher, x, y = classifier(), classifier().eval().requires_grad_(False), images(), labels()

    def loss() -> torch.Tensor:
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        logits = student(x)
        return F.cross_entropy(logits, y) + F.kl_div(logits.log_softmax(1), soft, reduction="batchmean")

    return Habit(trained_by(loss, sgd(student)), student)


def generator() -> nn.Sequential:
    up = [
        nn.ConvTranspose2d(32, 16, 4, 2, 1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.ConvTranspose2d(16, 3, 4, 2, 1),
    ]
    return nn.Sequential(nn.Linear(16, 32 * 64), nn.Unflatten(1, (32, 8, 8)), *up, nn.Tanh())


def gan_step(penalty: bool) -> Habit:
    makes, judges, real = generator(), embedder(outputs=1), images()
    of_makes, of_judges = sgd(makes), sgd(judges)

    def step() -> None:
        fake = makes(torch.randn(BATCH, 16))
        of_judges.zero_grad()
        loss = judges(fake.detach()).mean() - judges(real).mean()
        if penalty:
            between = (0.5 * real + 0.5 * fake.detach()).requires_grad_(True)
            (slope,) = torch.autograd.grad(judges(between).sum(), between, create_graph=True)
            loss = loss + 10 * ((slope.flatten(1).norm(dim=1) - 1) ** 2).mean()
        loss.backward()
        of_judges.step()
        of_makes.zero_grad()
        (-judges(fake).mean()).backward()
        of_makes.step()

    return Habit(step, judges)


@habit
def gan_of_two_networks() -> Habit:
    return gan_step(penalty=False)


@habit
def gan_with_gradient_penalty() -> Habit:
    return gan_step(penalty=True)


@habit
def dict_batch_and_dict_output() -> Habit:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = classifier()

        def forward(self, batch: Any) -> Any:
            logits = self.net(batch["image"])
            return {"logits": logits, "loss": F.cross_entropy(logits, batch["label"])}

    module, batch = Model(), {"image": images(), "label": labels()}
    return Habit(trained_by(lambda: module(batch)["loss"], sgd(module)), module)


@habit
def loss_inside_the_module() -> Habit:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = classifier()

        def forward(self, pixel_values: Any, labels: Any = None) -> Any:
            logits = self.net(pixel_values)
            loss = None if labels is None else F.cross_entropy(logits, labels)
            return SimpleNamespace(logits=logits, loss=loss)

    module, x, y = Model(), images(), labels()
    return Habit(trained_by(lambda: module(x, labels=y).loss, sgd(module)), module)


@habit
def colour_and_depth() -> Habit:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.colour, self.depth = embedder(3), embedder(1)
            self.head = nn.Linear(64, CLASSES)

        def forward(self, colour: Any, depth: Any) -> Any:
            return self.head(torch.cat([self.colour(colour), self.depth(depth)], 1))

    module, colour, depth, y = Two(), images(), images(1), labels()
    return Habit(trained_by(lambda: F.cross_entropy(module(colour, depth), y), sgd(module)), module)


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


@habit
def detector_head_on_all_anchors() -> Habit:
    module, x = Dense(), images()

    def loss() -> torch.Tensor:
        classes, boxes = module(x)
        focal = [F.binary_cross_entropy_with_logits(c, torch.zeros_like(c)) for c in classes]
        return sum(focal, sum(F.smooth_l1_loss(b, torch.zeros_like(b)) for b in boxes))  # type: ignore[return-value]

    return Habit(trained_by(loss, sgd(module)), module)


@habit
def detector_of_lists_with_targets() -> Habit:
    class Detector(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.dense = Dense()

        def forward(self, pictures: Any, targets: Any) -> Any:
            classes, boxes = self.dense(torch.stack(pictures))
            hit = torch.stack([t["boxes"][:, 2:].mean() > 0.5 for t in targets])
            chosen = classes[0].permute(0, 2, 3, 1)[hit]  # as many as the data say
            return {"classes": chosen.square().sum() / max(1, len(chosen)), "boxes": boxes[0].abs().mean()}

    module, pictures = Detector(), list(images())
    targets = [{"boxes": torch.rand(3, 4)} for _ in pictures]
    return Habit(trained_by(lambda: sum(module(pictures, targets).values()), sgd(module)), module)


class UNet(nn.Module):
    """One step down and up again, with a skip."""

    def __init__(self, inputs: int = 3, outputs: int = CLASSES) -> None:
        super().__init__()
        self.down, self.deep = block(inputs, 16), block(16, 32, 2)
        self.up, self.out = nn.ConvTranspose2d(32, 16, 2, 2), nn.Conv2d(32, outputs, 1)

    def forward(self, x: Any) -> Any:
        low = self.down(x)
        return self.out(torch.cat([low, self.up(self.deep(low))], 1))


@habit
def segmentation_per_pixel() -> Habit:
    module, x, y = UNet(), images(), torch.randint(CLASSES, (BATCH, SIZE, SIZE))

    def loss() -> torch.Tensor:
        logits = module(x)
        one_hot = F.one_hot(y, CLASSES).permute(0, 3, 1, 2)
        overlap = (logits.softmax(1) * one_hot).sum((2, 3))
        return F.cross_entropy(logits, y) + 1 - overlap.mean() / (SIZE * SIZE)

    return Habit(trained_by(loss, sgd(module)), module)


@habit
def super_resolution_with_perceptual_loss() -> Habit:
    layers = [block(3, 16), nn.Conv2d(16, 12, 3, padding=1), nn.PixelShuffle(2)]
    module, critic = nn.Sequential(*layers), backbone().eval().requires_grad_(False)
    x, y = images(), images(3, 2 * SIZE, 2 * SIZE)

    def loss() -> torch.Tensor:
        out = module(x)
        return F.l1_loss(out, y) + F.mse_loss(critic(out), critic(y))

    return Habit(trained_by(loss, sgd(module)), module)


@habit
def diffusion_with_time_steps() -> Habit:
    class Denoiser(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.time = UNet(4, 3), nn.Linear(1, SIZE)

        def forward(self, x: Any, t: Any) -> Any:
            return self.net(torch.cat([x, self.time(t)[:, None, :, None].expand(-1, 1, SIZE, SIZE)], 1))

    module, x = Denoiser(), images()

    def loss() -> torch.Tensor:
        t, noise = torch.rand(BATCH, 1), torch.randn_like(x)
        mixed = (1 - t)[:, :, None, None] * x + t[:, :, None, None] * noise
        return F.mse_loss(module(mixed, t), noise)

    return Habit(trained_by(loss, sgd(module)), module)


@habit
def style_transfer_to_pixels() -> Habit:
    module, pixels = backbone().eval().requires_grad_(False), nn.Parameter(images(batch=1))
    wanted = module(images(batch=1)).detach()
    optimizer = torch.optim.Adam([pixels])

    def loss() -> torch.Tensor:
        found = module(pixels).flatten(2)
        return F.mse_loss(found @ found.mT, wanted.flatten(2) @ wanted.flatten(2).mT)

    return Habit(trained_by(loss, optimizer), module, batch_size=1)


@habit
def custom_autograd_function() -> Habit:
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

    class Own(nn.Module):
        def forward(self, x: Any) -> Any:
            return Swish.apply(x)

    return supervised(nn.Sequential(nn.Conv2d(3, 16, 3), Own(), nn.Conv2d(16, 16, 3), Own(), nn.AdaptiveAvgPool2d(1),
                                    nn.Flatten(), nn.Linear(16, CLASSES)))  # fmt: skip


@habit
def mixup_with_logging() -> Habit:
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

    return Habit(step, module)


@habit
def moving_average_of_weights() -> Habit:
    module, x, y = classifier(), images(), labels()
    average = torch.optim.swa_utils.AveragedModel(
        module, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn()
    )
    train = trained_by(lambda: F.cross_entropy(module(x), y), sgd(module))

    def step() -> None:
        train()
        average.update_parameters(module)

    return Habit(step, module)


@habit
def two_passes_of_sharpness_aware_minimisation() -> Habit:
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

    return Habit(step, module)


@habit
def clips_folded_into_the_batch() -> Habit:
    class Clips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = classifier()

        def forward(self, clips: Any) -> Any:
            return self.net(clips.flatten(0, 1)).unflatten(0, clips.shape[:2]).mean(1)

    module, clips, y = Clips(), torch.randn(BATCH, 5, 3, SIZE, SIZE), labels()
    return Habit(trained_by(lambda: F.cross_entropy(module(clips), y), sgd(module)), module)


@habit
def text_lines_read_by_an_lstm() -> Habit:
    class Crnn(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.steps = backbone(), nn.LSTM(64, 32, bidirectional=True, batch_first=True)
            self.head = nn.Linear(64, CLASSES)

        def forward(self, x: Any) -> Any:
            steps, _ = self.steps(self.features(x).mean(2).transpose(1, 2))
            return self.head(steps).log_softmax(2)

    module, x, y = Crnn(), images(3, 32, 64), torch.randint(1, CLASSES, (BATCH, 5))

    def loss() -> torch.Tensor:
        out = module(x).transpose(0, 1)
        return F.ctc_loss(out, y, torch.full((BATCH,), len(out)), torch.full((BATCH,), 5))

    return Habit(trained_by(loss, sgd(module)), module)


@habit
def tokens_of_maps_in_a_transformer() -> Habit:
    class Hybrid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.token = backbone(), nn.Parameter(torch.zeros(1, 1, 64))
            self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True), 2)
            self.head = nn.Linear(64, CLASSES)

        def forward(self, x: Any) -> Any:
            maps = self.features(x).flatten(2).transpose(1, 2)
            tokens = torch.cat([self.token.expand(len(maps), -1, -1), maps], 1)
            return self.head(self.layers(tokens)[:, 0])

    return supervised(Hybrid())


@habit
def layers_left_out_at_random() -> Habit:
    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.blocks = block(3, 16), nn.ModuleList(block(16, 16) for _ in range(4))
            self.head = nn.Linear(16, CLASSES)

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            for number, each in enumerate(self.blocks):
                if not self.training or torch.rand(()).item() > 0.1 * number:
                    x = x + each(x)
            return self.head(x.mean((2, 3)))

    return supervised(Dropped())


@habit
def early_exit_that_depends_on_data() -> Habit:
    class Exits(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.low, self.high = block(3, 16), block(16, 16)
            self.head = nn.Linear(16, CLASSES)

        def forward(self, x: Any) -> Any:
            x = self.low(x)
            sure = self.head(x.mean((2, 3))).softmax(1).amax(1) > 0.9
            return self.head((x if sure.all() else self.high(x)).mean((2, 3)))

    return supervised(Exits())


@habit
def spectral_norm_of_weights() -> Habit:
    module = classifier()
    for child in list(module.modules()):
        if isinstance(child, nn.Conv2d):
            nn.utils.parametrizations.spectral_norm(child)
    return supervised(module)


@habit
def frequencies_by_fft() -> Habit:
    class Fourier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = block(3, 16), nn.Linear(16, CLASSES)
            self.scale = nn.Parameter(torch.ones(16, SIZE, SIZE // 2 + 1, dtype=torch.cfloat))

        def forward(self, x: Any) -> Any:
            x = self.stem(x)
            return self.head(torch.fft.irfft2(torch.fft.rfft2(x) * self.scale, s=x.shape[-2:]).mean((2, 3)))

    return supervised(Fourier())
