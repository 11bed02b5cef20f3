"""Twice twelve kinds of training steps, recorded and forecast without a GPU, then timed on one.

python benchmarks/recorded_steps.py forecast --gpu H100 --out FORECAST.csv
python benchmarks/recorded_steps.py time --out FILE.csv

`--later` takes the second dozen alone.
"""

import argparse
import csv
import sys
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch  # noqa: TID253 - made of it
import torch.nn.functional as F  # noqa: N812, TID253 - its usual name
from compiled_hosts import iteration_times
from machine import machine
from torch import nn  # noqa: TID253 - made of it

from predictor.errors import EpochcastError

Step = Callable[[], object]
Maker = Callable[[torch.device, int], Step]
STEPS: dict[str, Maker] = {}
"""Makers of the steps, by name: of a device and a divisor of their mini-batches."""


def kind(make: Maker) -> Maker:
    STEPS[make.__name__] = make
    return make


def _cnn(name: str, device: torch.device, classes: int = 1000, **more: Any) -> nn.Module:
    import torchvision

    module: nn.Module = getattr(torchvision.models, name)(weights=None, num_classes=classes, **more)
    return module.to(device)


def _images(device: torch.device, batch: int, size: int) -> torch.Tensor:
    return torch.randn(batch, 3, size, size, device=device)


def _labels(device: torch.device, batch: int, classes: int = 1000) -> torch.Tensor:
    return torch.randint(classes, (batch,), device=device)


def _sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD([p for each in modules for p in each.parameters()], 0.01, momentum=0.9)


@kind
def sharpness_aware(device: torch.device, less: int) -> Step:
    """Two passes, the second where the weights are moved along the gradient, with foreach calls."""
    model, x, y = _cnn("resnet34", device), _images(device, 64 // less, 128), _labels(device, 64 // less)
    optimizer, parameters = _sgd(model), list(model.parameters())

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        gradients = [p.grad for p in parameters]
        norm = torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))
        moves = torch._foreach_mul(gradients, 0.05 / (norm + 1e-12))
        with torch.no_grad():
            torch._foreach_add_(parameters, moves)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with torch.no_grad():
            torch._foreach_sub_(parameters, moves)
        optimizer.step()

    return step


@kind
def adversarial_pair(device: torch.device, less: int) -> Step:
    """A generator and a discriminator of 64 pixels, each with its Adam."""

    def up(a: int, b: int) -> list[nn.Module]:
        return [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]

    def down(a: int, b: int) -> list[nn.Module]:
        return [nn.Conv2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2, inplace=True)]

    head = [nn.ConvTranspose2d(128, 512, 4, bias=False), nn.BatchNorm2d(512), nn.ReLU(inplace=True)]
    ups, downs = (
        [*up(512, 256), *up(256, 128), *up(128, 64)],
        [*down(64, 128), *down(128, 256), *down(256, 512)],
    )
    generator = nn.Sequential(*head, *ups, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).to(device)
    judge = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), *downs, nn.Conv2d(512, 1, 4)).to(
        device
    )
    of_generator, of_judge = (
        torch.optim.Adam(each.parameters(), 2e-4, betas=(0.5, 0.999)) for each in (generator, judge)
    )
    batch = 128 // less
    real, noise = _images(device, batch, 64), torch.randn(batch, 128, 1, 1, device=device)
    ones, zeros = torch.ones(batch, device=device), torch.zeros(batch, device=device)
    loss = F.binary_cross_entropy_with_logits

    def step() -> None:
        of_judge.zero_grad()
        made = generator(noise)
        (loss(judge(real).flatten(), ones) + loss(judge(made.detach()).flatten(), zeros)).backward()
        of_judge.step()
        of_generator.zero_grad()
        loss(judge(made).flatten(), ones).backward()
        of_generator.step()

    return step


@kind
def averaged_weights(device: torch.device, less: int) -> Step:
    """AMP, AdamW, and an exponential average of the weights."""
    from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

    model = _cnn("mobilenet_v3_large", device)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    x, y = _images(device, 64 // less, 224), _labels(device, 64 // less)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        loss.backward()
        optimizer.step()
        average.update_parameters(model)

    return step


@kind
def clipped_gradients(device: torch.device, less: int) -> Step:
    """SGD whose gradients' norm is clipped."""
    model, x, y = _cnn("resnet50", device), _images(device, 16 // less, 224), _labels(device, 16 // less)
    optimizer = _sgd(model)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


@kind
def clipped_rmsprop(device: torch.device, less: int) -> Step:
    """RMSprop with momentum, and clipping, as EfficientNets are trained."""
    model, x, y = (
        _cnn("efficientnet_b0", device),
        _images(device, 16 // less, 224),
        _labels(device, 16 // less),
    )
    optimizer = torch.optim.RMSprop(model.parameters(), 1e-3, alpha=0.9, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 2.0)
        optimizer.step()

    return step


@kind
def recomputed_blocks(device: torch.device, less: int) -> Step:
    """Dense blocks whose layers are recomputed."""
    model = _cnn("densenet121", device, memory_efficient=True)
    x, y, optimizer = _images(device, 16 // less, 224), _labels(device, 16 // less), _sgd(model)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


@kind
def accumulated_gradients(device: torch.device, less: int) -> Step:
    """Four mini-batches for one step of NAdam."""
    model, x, y = _cnn("resnet34", device), _images(device, 16 // less, 224), _labels(device, 16 // less)
    optimizer = torch.optim.NAdam(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(4):
            (F.cross_entropy(model(x), y) / 4).backward()
        optimizer.step()

    return step


@kind
def taught_by_a_larger(device: torch.device, less: int) -> Step:
    """A student that learns from a teacher, which only answers; both in AMP."""
    teacher, student = _cnn("resnet50", device).eval(), _cnn("shufflenet_v2_x1_0", device)
    x, y, optimizer = _images(device, 64 // less, 224), _labels(device, 64 // less), _sgd(student)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            with torch.no_grad():
                taught = F.softmax(teacher(x) / 4, 1)
            said = student(x)
            loss = F.kl_div(F.log_softmax(said / 4, 1), taught, reduction="batchmean") + F.cross_entropy(
                said, y
            )
        loss.backward()
        optimizer.step()

    return step


@kind
def scaled_losses(device: torch.device, less: int) -> Step:
    """fp16 with a gradient scaler, unscaled for clipping, AdamW in two groups."""
    model = _cnn("convnext_tiny", device)
    plain = [p for p in model.parameters() if p.ndim < 2]
    decayed = [p for p in model.parameters() if p.ndim > 1]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], 1e-3)
    scaler = torch.amp.GradScaler(device.type)
    x, y = _images(device, 32 // less, 224), _labels(device, 32 // less)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.float16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()

    return step


@kind
def two_views(device: torch.device, less: int) -> Step:
    """Contrasts two views of each image."""
    model, batch = _cnn("resnet18", device, 128), 64 // less
    first, second, optimizer = _images(device, batch, 128), _images(device, batch, 128), _sgd(model)
    same = torch.arange(batch, device=device)

    def step() -> None:
        optimizer.zero_grad()
        one, other = F.normalize(model(first)), F.normalize(model(second))
        alike = one @ other.T / 0.1
        (F.cross_entropy(alike, same) + F.cross_entropy(alike.T, same)).backward()
        optimizer.step()

    return step


class UNet(nn.Module):
    """Ronneberger's U-Net with batch norms and padding, halved and doubled by its `widths`."""

    def __init__(self, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()

        def twice(a: int, b: int) -> nn.Sequential:
            def once(a: int) -> list[nn.Module]:
                return [nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]

            return nn.Sequential(*once(a), *once(b))

        self.downs = nn.ModuleList(twice(a, b) for a, b in zip((3, *widths), widths, strict=False))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(2 * a, a, 2, 2) for a in widths[-2::-1])
        self.joins = nn.ModuleList(twice(2 * a, a) for a in widths[-2::-1])
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x: Any) -> Any:
        kept = []
        for i, down in enumerate(self.downs):
            x = down(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for up, join, skip in zip(self.ups, self.joins, kept[-2::-1], strict=True):
            x = join(torch.cat((skip, up(x)), 1))
        return self.head(x)


@kind
def segmented_images(device: torch.device, less: int) -> Step:
    """A U-Net with a Dice loss, Adam, AMP."""
    model, batch = UNet((32, 64, 128, 256), 1).to(device), 8 // less
    x, y = _images(device, batch, 192), torch.rand(batch, 1, 192, 192, device=device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16):
            said = model(x)
        p = torch.sigmoid(said.float())
        dice = 1 - (2 * (p * y).sum() + 1) / (p.sum() + y.sum() + 1)
        (dice + F.binary_cross_entropy_with_logits(said.float(), y)).backward()
        optimizer.step()

    return step


@kind
def mixed_images(device: torch.device, less: int) -> Step:
    """MixUp, channels-last, AMP; SGD with Nesterov's momentum without foreach calls."""
    model = _cnn("regnet_x_400mf", device).to(memory_format=torch.channels_last)
    batch = 64 // less
    x = _images(device, batch, 224).contiguous(memory_format=torch.channels_last)
    y, order = _labels(device, batch), torch.arange(batch - 1, -1, -1, device=device)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9, nesterov=True, weight_decay=1e-4, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        mixed = 0.7 * x + 0.3 * x[order]
        with torch.autocast(device.type, torch.bfloat16):
            said = model(mixed)
            loss = 0.7 * F.cross_entropy(said, y) + 0.3 * F.cross_entropy(said, y[order])
        loss.backward()
        optimizer.step()

    return step


# --------------------------------------------------------------------------------------------------- the second dozen

_FIRST = tuple(STEPS)


def _trained(loss: Callable[[], torch.Tensor], optimizer: torch.optim.Optimizer, amp: str = "") -> Step:
    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(amp or "cpu", torch.bfloat16, enabled=bool(amp)):
            value = loss()
        value.backward()
        optimizer.step()

    return step


@kind
def moved_images(device: torch.device, less: int) -> Step:
    """Images are moved along the gradient of the loss before they are learned (FGSM)."""
    model, x, y = _cnn("resnet18", device), _images(device, 64 // less, 128), _labels(device, 64 // less)
    optimizer = _sgd(model)

    def step() -> None:
        moved = x.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(F.cross_entropy(model(moved), y), moved)
        optimizer.zero_grad()
        F.cross_entropy(model(moved.detach() + 0.03 * gradient.sign()), y).backward()
        optimizer.step()

    return step


@kind
def mean_teacher(device: torch.device, less: int) -> Step:
    """A teacher that is the average of its student, parameter by parameter."""
    student, teacher = (_cnn("mobilenet_v2", device) for _ in range(2))
    x, y, optimizer = _images(device, 32 // less, 160), _labels(device, 32 // less), _sgd(student)

    def step() -> None:
        optimizer.zero_grad()
        with torch.no_grad():
            taught = teacher(x).softmax(1)
        said = student(x)
        (F.cross_entropy(said, y) + F.mse_loss(said.softmax(1), taught)).backward()
        optimizer.step()
        with torch.no_grad():
            for own, new in zip(teacher.parameters(), student.parameters(), strict=True):
                own.mul_(0.99).add_(new, alpha=0.01)

    return step


@kind
def triplets(device: torch.device, less: int) -> Step:
    """Three images of each sample through one CNN, AMP."""
    model = _cnn("shufflenet_v2_x1_0", device, 128)
    views = [_images(device, 32 // less, 128) for _ in range(3)]
    loss = nn.TripletMarginLoss()
    return _trained(lambda: loss(*(F.normalize(model(x)) for x in views)), _sgd(model), device.type)


@kind
def three_heads(device: torch.device, less: int) -> Step:
    """One backbone, three tasks, Adam."""
    model = _cnn("regnet_y_400mf", device, 512)
    heads = nn.ModuleList(nn.Linear(512, n) for n in (10, 100, 4)).to(device)
    x, batch = _images(device, 64 // less, 160), 64 // less
    first, second, boxes = (
        _labels(device, batch, 10),
        _labels(device, batch, 100),
        torch.rand(batch, 4, device=device),
    )
    optimizer = torch.optim.Adam([*model.parameters(), *heads.parameters()], 1e-3)

    def loss() -> torch.Tensor:
        said = model(x)
        a, b, c = (head(said) for head in heads)
        return F.cross_entropy(a, first) + F.cross_entropy(b, second) + F.smooth_l1_loss(c, boxes)

    return _trained(loss, optimizer)


def _down_and_up(device: torch.device, drawn: bool) -> nn.Module:
    def block(make: Any, a: int, b: int) -> list[nn.Module]:
        return [make(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.SiLU()]

    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (3, 32, 64, 128, 256)
            pairs = list(pairwise(widths))
            self.down = nn.Sequential(*(m for a, b in pairs for m in block(nn.Conv2d, a, b)))
            self.up = nn.Sequential(*(m for a, b in pairs[:0:-1] for m in block(nn.ConvTranspose2d, b, a)))
            self.last = nn.ConvTranspose2d(32, 3, 4, 2, 1)
            self.spread = nn.Conv2d(256, 256, 1) if drawn else None

        def forward(self, x: Any) -> Any:
            z = self.down(x)
            if self.spread is not None:
                z = z + torch.exp(0.5 * self.spread(z)) * torch.randn_like(z)
            return self.last(self.up(z))

    return Autoencoder().to(device)


@kind
def autoencoder(device: torch.device, less: int) -> Step:
    """Convolutions down and up again, AdamW."""
    model, x = _down_and_up(device, drawn=False), _images(device, 128 // less, 64)
    return _trained(lambda: F.mse_loss(model(x), x), torch.optim.AdamW(model.parameters(), 1e-3))


@kind
def variational(device: torch.device, less: int) -> Step:
    """The same with a drawn code, AMP, RMSprop."""
    model, x = _down_and_up(device, drawn=True), _images(device, 128 // less, 64)
    return _trained(
        lambda: F.l1_loss(model(x), x), torch.optim.RMSprop(model.parameters(), 1e-3), device.type
    )


@kind
def trained_end(device: torch.device, less: int) -> Step:
    """All but the last stage of a ResNet-50 is frozen."""
    model, x, y = _cnn("resnet50", device), _images(device, 32 // less, 224), _labels(device, 32 // less)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(name.startswith(("layer4", "fc")))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], 0.01, momentum=0.9)
    return _trained(lambda: F.cross_entropy(model(x), y), optimizer)


@kind
def recomputed_stages(device: torch.device, less: int) -> Step:
    """Each stage of a ResNet-101 is recomputed."""
    from torch.utils.checkpoint import checkpoint

    model, x, y = _cnn("resnet101", device), _images(device, 16 // less, 224), _labels(device, 16 // less)

    def loss() -> torch.Tensor:
        z: Any = model.maxpool(model.relu(model.bn1(model.conv1(x))))  # type: ignore[operator]
        for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
            z = checkpoint(stage, z, use_reentrant=False)
        return F.cross_entropy(model.fc(model.avgpool(z).flatten(1)), y)  # type: ignore[operator]

    return _trained(loss, _sgd(model))


@kind
def group_for_each_layer(device: torch.device, less: int) -> Step:
    """A learning rate for each parameter."""
    model, x, y = _cnn("resnet34", device), _images(device, 32 // less, 160), _labels(device, 32 // less)
    groups = [{"params": [p], "lr": 0.01} for p in model.parameters()]
    return _trained(lambda: F.cross_entropy(model(x), y), torch.optim.SGD(groups, momentum=0.9))


@kind
def fused_update(device: torch.device, less: int) -> Step:
    """AMP, channels-last, a fused AdamW."""
    model = _cnn("efficientnet_b1", device).to(memory_format=torch.channels_last)
    x = _images(device, 32 // less, 240).contiguous(memory_format=torch.channels_last)
    y, optimizer = _labels(device, 32 // less), torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    return _trained(lambda: F.cross_entropy(model(x), y), optimizer, device.type)


@kind
def clipped_parts(device: torch.device, less: int) -> Step:
    """Two mini-batches for a step whose gradients are clipped one by one."""
    model, x, y = _cnn("mnasnet1_0", device), _images(device, 32 // less, 192), _labels(device, 32 // less)
    optimizer = _sgd(model)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(2):
            (F.cross_entropy(model(x), y) / 2).backward()
        nn.utils.clip_grad_value_(model.parameters(), 1.0)
        optimizer.step()

    return step


@kind
def trained_by_halves(device: torch.device, less: int) -> Step:
    """Two optimizers for one CNN: momentum for its convolutions, Adam for the rest."""
    model, x, y = (
        _cnn("googlenet", device, aux_logits=False, init_weights=True),
        _images(device, 32 // less, 192),
        _labels(device, 32 // less),
    )
    convolutions = [p for p in model.parameters() if p.ndim == 4]
    first = torch.optim.SGD(convolutions, 0.01, momentum=0.9)
    second = torch.optim.Adam([p for p in model.parameters() if p.ndim != 4], 1e-3)

    def step() -> None:
        first.zero_grad()
        second.zero_grad()
        F.cross_entropy(model(x), y).backward()
        first.step()
        second.step()

    return step


# ----------------------------------------------------------------------------------------------------- the program


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("forecast", "time"))
    parser.add_argument("--out", type=Path, required=True, help="CSV file; rows are added")
    parser.add_argument("--gpu", action="append", help="forecast: GPUs", default=[])
    parser.add_argument("--host", help="forecast: file of `epochcast host`")
    parser.add_argument("--budget", type=float, default=100, help="time: seconds after which none begins")
    parser.add_argument("--later", action="store_true", help="the second dozen alone")
    parser.add_argument("--less", type=int, default=1, help="divisor of the mini-batches, for a try on a CPU")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    end = time.perf_counter() + options.budget
    chosen = {name: make for name, make in STEPS.items() if not (options.later and name in _FIRST)}
    for name, make in chosen.items():
        if options.what == "time" and time.perf_counter() > end:
            print(f"the budget is over before {name}")
            break
        rows = (
            _forecasts(name, make, options)
            if options.what == "forecast"
            else [_timed(name, make, options.less)]
        )
        for row in rows:
            _append(options.out, row)
    return 0


def _forecasts(name: str, make: Maker, options: argparse.Namespace) -> list[dict[str, Any]]:
    import epochcast

    start = time.perf_counter()
    try:
        table = epochcast.record(make(torch.device("cpu"), 1), name=name)
        rows = [epochcast.predict(table, gpu, host=options.host).iloc[0].to_dict() for gpu in options.gpu]
    except EpochcastError as error:
        rows = [dict.fromkeys(_FORECAST) | {"gpu": gpu, "error": str(error)[:300]} for gpu in options.gpu]
    print(f"{name}: {time.perf_counter() - start:.1f} s", flush=True)
    about = {"step": name, "host": Path(options.host).name if options.host else "not measured"}
    return [about | {each: row.get(each) for each in (*_FORECAST, "error")} | _now() for row in rows]


_FORECAST = (
    "gpu", "batch_size", "precision", "optimizer", "iteration_time_ms", "low_ms", "high_ms", "gpu_time_ms",
    "host_time_ms", "method",
)  # fmt: skip


def _timed(name: str, make: Maker, less: int) -> dict[str, Any]:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.allow_tf32 = True
    found: dict[str, Any] = dict.fromkeys(("wall_ms", "enqueue_ms", "reference_ms", "gpu_ms", "kernels"))
    try:
        found |= iteration_times(make(device, less), device) | {"error": ""}
    except Exception as error:  # noqa: BLE001 - a row says so
        found |= {"error": f"{type(error).__name__}: {error}"[:300]}
    gpu = "cpu" if device.type == "cpu" else torch.cuda.get_device_name()
    print(name, found, flush=True)
    return {"step": name, "gpu": gpu, **found, "version": torch.__version__, "machine": machine()} | _now()


def _now() -> dict[str, str]:
    return {"at": datetime.now(UTC).isoformat(timespec="seconds")}


def _append(path: Path, row: dict[str, Any]) -> None:
    is_new = not path.is_file()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row), lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow({name: float(f"{v:.5g}") if isinstance(v, float) else v for name, v in row.items()})


if __name__ == "__main__":
    sys.exit(main())
