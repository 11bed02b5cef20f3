"""Twelve training steps as repositories write them: forecast from what `epochcast.record` reads, then timed on a GPU.

    python benchmarks/timed_steps.py forecast --gpu H200
    python benchmarks/timed_steps.py measure --out FILE.csv [--limit-s 200]
    python benchmarks/timed_steps.py passes --out FILE.csv
    python benchmarks/timed_steps.py report --measured FILE.csv

`passes` times forward and backward passes of single layers apart, which the forecasts do not use. `--dry-run` runs
small steps on the processor. Times of the GPU are taken with the host ahead, the wall's without.
"""

import argparse
import csv
import importlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch  # noqa: TID253 - what is timed
import torch.nn.functional as F  # noqa: N812, TID253 - its usual name
from torch import nn  # noqa: TID253 - what is timed
from torch.utils.checkpoint import checkpoint  # noqa: TID253 - what is timed

_FORECAST = Path(__file__).with_name("timed_steps_forecast.csv")
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_REPEATS, _MIB = 7, 2**20
_LEAD_CYCLES = 400_000_000  # of a kernel that waits while the host runs ahead: about 0.2 s

Step = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Place:
    """Where steps run, and by what their batch sizes and images are divided in a trial."""

    device: str = "cpu"
    smaller: int = 1

    def batch(self, size: int) -> int:
        """Images of a mini-batch."""
        return max(2, size // self.smaller)

    def images(self, batch: int, channels: int = 3, side: int = 224) -> torch.Tensor:
        """A mini-batch of square images."""
        return torch.randn(
            self.batch(batch), channels, *[max(32, side // self.smaller)] * 2, device=self.device
        )

    def labels(self, batch: int, classes: int = 1000) -> torch.Tensor:
        """Classes of a mini-batch."""
        return torch.randint(classes, (self.batch(batch),), device=self.device)

    def put(self, module: Any) -> Any:
        """The module on the device."""
        return module.to(self.device)

    def cnn(self, name: str, **options: Any) -> Any:
        """A CNN of torchvision, on the device."""
        return self.put(getattr(_torchvision(), name)(**options))


def _torchvision() -> Any:
    """torchvision, also beside a PyTorch that its compiled part is not made for."""
    try:
        return importlib.import_module("torchvision.models")
    except RuntimeError:
        library = torch.library.Library("torchvision", "FRAGMENT")
        for operator in _OPERATORS:
            library.define(operator)
        _kept.append(library)
        return importlib.import_module("torchvision.models")


_kept: list[Any] = []


def sgd(*modules: nn.Module) -> torch.optim.Optimizer:
    trained = [p for module in modules for p in module.parameters() if p.requires_grad]
    return torch.optim.SGD(trained, lr=0.01, momentum=0.9)


def supervised(module: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Step:
    optimizer = sgd(module)

    def step() -> None:
        optimizer.zero_grad()
        F.cross_entropy(module(x), y).backward()
        optimizer.step()

    return step


def plain_classifier(at: Place) -> Step:
    return supervised(at.cnn("resnet50"), at.images(64), at.labels(64))


def frozen_backbone(at: Place) -> Step:
    module = at.cnn("resnet50").requires_grad_(False)
    module.fc.requires_grad_(True)
    return supervised(module, at.images(128), at.labels(128))


def partly_frozen_backbone(at: Place) -> Step:
    module = at.cnn("resnet50")
    for part in (module.conv1, module.bn1, module.layer1, module.layer2):
        part.requires_grad_(False)
    return supervised(module, at.images(96), at.labels(96))


def frozen_batch_norms(at: Place) -> Step:
    module = at.cnn("resnet50")
    for part in module.modules():
        if isinstance(part, nn.BatchNorm2d):
            part.eval().requires_grad_(False)
    return supervised(module, at.images(64), at.labels(64))


def gradient_checkpointing(at: Place) -> Step:
    cnn = at.cnn("resnet50")

    class Checkpointed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cnn = cnn

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            c = self.cnn
            x = c.maxpool(c.relu(c.bn1(c.conv1(x))))
            for part in (c.layer1, c.layer2, c.layer3, c.layer4):
                x = checkpoint(part, x, use_reentrant=False)
            return c.fc(c.avgpool(x).flatten(1))

    return supervised(Checkpointed(), at.images(128), at.labels(128))


def gradient_accumulation(at: Place) -> Step:
    module, parts = at.cnn("resnet50"), 4
    optimizer, x, y = sgd(module), at.images(192), at.labels(192)

    def step() -> None:
        optimizer.zero_grad()
        for images, labels in zip(x.chunk(parts), y.chunk(parts), strict=True):
            (F.cross_entropy(module(images), labels) / parts).backward()
        optimizer.step()

    return step


def mixed_precision_channels_last_adamw(at: Place) -> Step:
    module = at.cnn("resnet50").to(memory_format=torch.channels_last)
    x, y = at.images(128).to(memory_format=torch.channels_last), at.labels(128)
    optimizer, kind = torch.optim.AdamW(module.parameters(), 1e-3), at.device.partition(":")[0]

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast(kind, torch.bfloat16):
            loss = F.cross_entropy(module(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()

    return step


def siamese_pairs(at: Place) -> Step:
    module = at.cnn("resnet18", num_classes=128)
    optimizer, left, right = sgd(module), at.images(128), at.images(128)
    same = torch.randint(2, (at.batch(128),), device=at.device).float()

    def step() -> None:
        distance = F.pairwise_distance(module(left), module(right))
        optimizer.zero_grad()
        (same * distance**2 + (1 - same) * F.relu(1 - distance) ** 2).mean().backward()
        optimizer.step()

    return step


def momentum_encoder_with_a_queue(at: Place) -> Step:
    module, keys = at.cnn("resnet50", num_classes=128), at.cnn("resnet50", num_classes=128)
    keys.requires_grad_(False)
    queue = F.normalize(torch.randn(4096, 128, device=at.device))
    optimizer, one, two = sgd(module), at.images(64), at.images(64)
    zeros = torch.zeros(at.batch(64), dtype=torch.long, device=at.device)

    def step() -> None:
        query = F.normalize(module(one))
        with torch.no_grad():
            for slow, fast in zip(keys.parameters(), module.parameters(), strict=True):
                slow.mul_(0.99).add_(fast, alpha=0.01)
            key = F.normalize(keys(two))
        logits = torch.cat([(query * key).sum(1, keepdim=True), query @ queue.T], 1) / 0.07
        optimizer.zero_grad()
        F.cross_entropy(logits, zeros).backward()
        optimizer.step()

    return step


def distillation_from_a_frozen_teacher(at: Place) -> Step:
    student, teacher = at.cnn("resnet18"), at.cnn("resnet101").eval().requires_grad_(False)
    optimizer, x, y = sgd(student), at.images(128), at.labels(128)

    def step() -> None:
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        logits = student(x)
        loss = F.cross_entropy(logits, y) + F.kl_div(logits.log_softmax(1), soft, reduction="batchmean")
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def gan_of_two_networks(at: Place) -> Step:
    def up(ins: int, outs: int, stride: int) -> list[nn.Module]:
        conv = nn.ConvTranspose2d(ins, outs, 4, stride, stride // 2, bias=False)
        return [conv, nn.BatchNorm2d(outs), nn.ReLU(True)]

    def down(ins: int, outs: int) -> list[nn.Module]:
        conv = nn.Conv2d(ins, outs, 4, 2, 1, bias=False)
        return [conv, nn.BatchNorm2d(outs), nn.LeakyReLU(0.2, True)]

    layers = [*up(100, 512, 1), *up(512, 256, 2), *up(256, 128, 2), *up(128, 64, 2)]
    makes = at.put(nn.Sequential(*layers, nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()))
    layers = [nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2, True), *down(64, 128), *down(128, 256)]
    judges = at.put(nn.Sequential(*layers, *down(256, 512), nn.Conv2d(512, 1, 4), nn.Flatten()))
    of_makes, of_judges, batch = sgd(makes), sgd(judges), at.batch(512)
    real = torch.randn(batch, 3, 64, 64, device=at.device)

    def step() -> None:
        fake = makes(torch.randn(batch, 100, 1, 1, device=at.device))
        of_judges.zero_grad()
        (judges(fake.detach()).mean() - judges(real).mean()).backward()
        of_judges.step()
        of_makes.zero_grad()
        (-judges(fake).mean()).backward()
        of_makes.step()

    return step


class UNet(nn.Module):
    """Four steps down and up again, with skips."""

    def __init__(self, classes: int, width: int = 32) -> None:
        super().__init__()
        widths = [width * 2**i for i in range(5)]
        self.down = nn.ModuleList(self.block(a, b) for a, b in zip([3, *widths[:-1]], widths, strict=True))
        self.up = nn.ModuleList(nn.ConvTranspose2d(2 * w, w, 2, 2) for w in reversed(widths[:-1]))
        self.joined = nn.ModuleList(self.block(2 * w, w) for w in reversed(widths[:-1]))
        self.out = nn.Conv2d(width, classes, 1)

    @staticmethod
    def block(a: int, b: int) -> nn.Sequential:
        """Two convolutions."""
        return nn.Sequential(
            *(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)),
            *(nn.Conv2d(b, b, 3, padding=1, bias=False), nn.BatchNorm2d(b), nn.ReLU(True)),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores of every pixel."""
        skips = []
        for i, block in enumerate(self.down):
            x = block(F.max_pool2d(x, 2) if i else x)
            skips.append(x)
        for up, joined, skip in zip(self.up, self.joined, reversed(skips[:-1]), strict=True):
            x = joined(torch.cat([skip, up(x)], 1))
        return self.out(x)


def segmentation_per_pixel(at: Place) -> Step:
    module, x = at.put(UNet(classes=21)), at.images(32, side=256)
    return supervised(module, x, torch.randint(21, (len(x), *x.shape[2:]), device=at.device))


STEPS: dict[str, Callable[[Place], Step]] = {
    make.__name__: make
    for make in (
        plain_classifier, frozen_backbone, partly_frozen_backbone, frozen_batch_norms, gradient_checkpointing,
        gradient_accumulation, mixed_precision_channels_last_adamw, siamese_pairs, momentum_encoder_with_a_queue,
        distillation_from_a_frozen_teacher, gan_of_two_networks, segmentation_per_pixel,
    )
}  # fmt: skip
FORECAST_COLUMNS = (
    *("step", "gpu", "batch_size", "precision", "memory_format", "optimizer", "method", "iteration_time_ms"),
    *("low_ms", "high_ms", "gpu_time_ms", "host_time_ms", "peak_memory_gib", "extrapolates"),
)
MEASURED_COLUMNS = (
    *("step", "gpu", "gpu_time_ms", "gpu_time_ms_iqr", "wall_ms", "reserved_gib", "allocated_gib", "torch"),
)


def forecast(options: argparse.Namespace) -> None:
    """Write what `epochcast.predict` answers to the recorded steps."""
    import epochcast

    with options.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, FORECAST_COLUMNS, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for name, make in _chosen(options):
            start = time.perf_counter()
            seen = epochcast.record(make(options.place), name=name)
            took_s = time.perf_counter() - start
            (row,) = epochcast.predict(seen, options.gpu).to_dict("records")
            row |= {"step": name, "optimizer": seen.step.optimizer}
            row["extrapolates"] = "; ".join(each.kind for each in row["extrapolates"])
            writer.writerow({key: f"{v:.5g}" if isinstance(v, float) else v for key, v in row.items()})
            print(
                f"{name:40} {row['iteration_time_ms']:8.1f} ms {row['peak_memory_gib']:6.2f} GiB ({took_s:.1f} s)"
            )


def measure(options: argparse.Namespace) -> None:
    """Time each step, and write its row at once."""
    deadline = time.monotonic() + options.limit_s
    is_new = not options.out.exists()
    with options.out.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, MEASURED_COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        for name, make in _chosen(options):
            if time.monotonic() > deadline:
                print(f"{name}: no time left")
                continue
            row = {"step": name, **_timed(make, options.place), "torch": torch.__version__}
            writer.writerow(row)
            file.flush()
            print(row, flush=True)


def _timed(make: Callable[[Place], Step], at: Place) -> dict[str, Any]:
    is_gpu = at.device.startswith("cuda")
    if is_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    step = make(at)
    for _ in range(3 if is_gpu else 1):
        step()
    row: dict[str, Any] = {"gpu": torch.cuda.get_device_name() if is_gpu else "cpu"}
    if is_gpu:
        busy = sorted(_gpu_ms(step) for _ in range(_REPEATS))
        row["gpu_time_ms"] = round(median(busy), 4)
        row["gpu_time_ms_iqr"] = round(busy[-2] - busy[1], 4)
        row["reserved_gib"] = round(torch.cuda.max_memory_reserved() / 2**30, 4)
        row["allocated_gib"] = round(torch.cuda.max_memory_allocated() / 2**30, 4)
    row["wall_ms"] = round(median(_wall_ms(step, is_gpu) for _ in range(_REPEATS if is_gpu else 1)), 4)
    return row


def _gpu_ms(step: Step) -> float:
    """GPU time of one step whose kernels are all enqueued before the first runs."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    torch.cuda._sleep(_LEAD_CYCLES)
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def _wall_ms(step: Step, is_gpu: bool) -> float:
    began, n = time.perf_counter(), 5 if is_gpu else 1
    for _ in range(n):
        step()
    if is_gpu:
        torch.cuda.synchronize()
    return 1000 * (time.perf_counter() - began) / n


_TIMES = ("forward_ms", "input_ms", "weight_ms")
PASSES_COLUMNS = (
    *("layer", "channels", "side", "batch_size", "precision", "memory_format", "kernel", "groups"),
    *_TIMES,
)
_CONVOLUTIONS = (  # channels in, out, side, kernel, groups
    *(
        (64, 64, 128, 3, 1),
        (64, 64, 56, 3, 1),
        (64, 256, 56, 1, 1),
        (256, 64, 56, 1, 1),
        (128, 128, 28, 3, 1),
    ),
    *((512, 128, 28, 1, 1), (128, 512, 28, 1, 1), (256, 256, 14, 3, 1), (1024, 256, 14, 1, 1)),
    *(
        (256, 1024, 14, 1, 1),
        (512, 512, 7, 3, 1),
        (2048, 512, 7, 1, 1),
        (96, 96, 56, 3, 96),
        (384, 384, 14, 3, 384),
    ),
)
_NORMS = ((64, 112), (256, 56), (128, 28), (1024, 14), (2048, 7))


def passes(options: argparse.Namespace) -> None:
    """Time the passes of single layers apart, in the modes of the steps."""
    at = options.place
    rows = []
    for precision, last in (("tf32", False), ("amp_bf16", True)):
        dtype = torch.bfloat16 if precision == "amp_bf16" else torch.float32
        form = torch.channels_last if last else torch.contiguous_format
        common = {"batch_size": at.batch(64), "precision": precision}
        common["memory_format"] = "channels_last" if last else "nchw"
        for ins, outs, side, kernel, groups in _CONVOLUTIONS:
            x = torch.randn(at.batch(64), ins, side, side, device=at.device).to(dtype, memory_format=form)
            w = torch.randn(outs, ins // groups, kernel, kernel, device=at.device).to(
                dtype, memory_format=form
            )
            more = ([1, 1], [kernel // 2] * 2, [1, 1], False, [0, 0], groups)
            y = torch.ops.aten.convolution(x, w, None, *more)
            back = torch.ops.aten.convolution_backward
            times = [
                _layer_ms(lambda: torch.ops.aten.convolution(x, w, None, *more), at),  # noqa: B023 - called here
                *(
                    _layer_ms(lambda: back(y, x, w, None, *more, [i == 0, i == 1, False]), at)  # noqa: B023
                    for i in range(2)
                ),
            ]
            rows.append({"layer": "conv2d", "channels": f"{ins}x{outs}", "side": side, "kernel": kernel,
                         "groups": groups, **common, **dict(zip(_TIMES, times, strict=True))})  # fmt: skip
        for channels, side in _NORMS:
            x = torch.randn(at.batch(64), channels, side, side, device=at.device).to(
                dtype, memory_format=form
            )
            norm, act = nn.BatchNorm2d(channels).to(at.device), nn.ReLU()
            for name, layer in (("batch_norm", norm), ("relu", act)):
                x.requires_grad_(True)
                y = layer(x)
                forward_ms = _layer_ms(lambda: layer(x.detach()), at)  # noqa: B023
                input_ms = _layer_ms(lambda: torch.autograd.grad(y, x, y, retain_graph=True), at)  # noqa: B023
                rows.append({"layer": name, "channels": channels, "side": side, **common,
                             "forward_ms": forward_ms, "input_ms": input_ms})  # fmt: skip
    with options.out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, PASSES_COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} layers timed")


def _layer_ms(run: Step, at: Place, n: int = 10) -> float:
    if not at.device.startswith("cuda"):
        run()
        return 0.0
    for _ in range(3):
        run()

    def several() -> None:
        for _ in range(n):
            run()

    return round(median(_short_ms(several) for _ in range(3)) / n, 5)


def _short_ms(step: Step) -> float:
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(_LEAD_CYCLES // 40)
    start.record()
    step()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end))


def report(options: argparse.Namespace) -> None:
    """Set forecasts beside measurements."""
    with options.measured.open(newline="", encoding="utf-8") as file:
        measured = {row["step"]: row for row in csv.DictReader(file)}
    off: list[float] = []
    print(
        f"{'step':40} {'GPU ms':>8} {'forecast':>9} {'off':>6} {'inside':>7} {'wall':>7} {'GiB':>6} {'forecast':>9}"
    )
    with options.forecasts.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            seen = measured.get(row["step"])
            if seen is None:
                continue
            busy, said = float(seen["gpu_time_ms"]), float(row["gpu_time_ms"])
            inside = float(row["low_ms"]) <= float(seen["wall_ms"]) <= float(row["high_ms"])
            off.append(abs(said / busy - 1))
            context = float(seen["allocated_gib"]) + 0.5  # GiB of the CUDA context, which answers count
            print(
                f"{row['step']:40} {busy:8.2f} {said:9.2f} {said / busy - 1:6.0%} {inside!s:>7} "
                f"{float(seen['wall_ms']):7.1f} {context:6.2f} {float(row['peak_memory_gib']):9.2f} "
                f"{float(row['peak_memory_gib']) / context - 1:6.0%}"
            )
    print(f"mean absolute error of the GPU time {sum(off) / len(off):.1%} of {len(off)} steps")


def _chosen(options: argparse.Namespace) -> Iterator[tuple[str, Callable[[Place], Step]]]:
    return ((name, make) for name, make in STEPS.items() if not options.steps or name in options.steps)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True)
    for run in (forecast, measure, passes, report):
        command = commands.add_parser(run.__name__, help=run.__doc__)
        command.set_defaults(run=run)
        command.add_argument("--dry-run", action="store_true", help="small steps, on the processor")
        command.add_argument("--steps", nargs="*", choices=[*STEPS], default=())
        command.add_argument("--out", type=Path, default=_FORECAST)
        command.add_argument("--gpu", default="NVIDIA H200")
        command.add_argument("--limit-s", type=float, default=200.0)
        command.add_argument("--measured", type=Path)
        command.add_argument("--forecasts", type=Path, default=_FORECAST)
    options = parser.parse_args(arguments)
    on_gpu = options.run in (measure, passes) and not options.dry_run
    options.place = Place("cuda" if on_gpu else "cpu", 32 if options.dry_run else 1)
    options.run(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
