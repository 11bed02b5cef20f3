"""`epochcast check` and `diff` judged on a GPU: `python benchmarks/advice.py faults|changes forecast|measure|judge`.

Faults: three trainings at batch 128, each healthy in two modes and with one of six faults; is the fault named first,
and is no healthy training accused? Changes: twelve changes of CNNs in two modes; is the sign of the ratio right
where the forecast is sure, and does its interval hold it? `forecast` writes what is expected before anything is
measured; `measure` needs PyTorch and torchvision alone, writes a row as soon as it is measured, and stops in time.
"""

import argparse
import csv
import io
import random
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

GPUS = ("NVIDIA H100 80GB HBM3", "NVIDIA H200")
BATCH = 128
_CLASSES, _SIDE = 1000, 224
_WARM_UPS, _LEAST, _LONGEST_S = 3, 8, 2.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where is measured: on a GPU as forecast, or for a try on a CPU with fewer and smaller images."""

    device: str
    batch: int
    side: int


@dataclass(frozen=True, slots=True)
class Run:
    """How a CNN is trained; `workers` load JPEGs, without them the images lie on the GPU."""

    precision: str = "tf32"
    channels_last: bool = False
    batch: int = BATCH
    workers: int | None = None
    reads_loss: bool = False
    has_neighbour: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The same as options of `epochcast.check` and `epochcast.diff`."""
        loading = (
            {"loader": "none"} if self.workers is None else {"data_set": "imagenet", "workers": self.workers}
        )
        form = "channels_last" if self.channels_last else "nchw"
        return {"precision": self.precision, "memory_format": form, **loading}


TF32, AMP = Run(), Run("amp_bf16", channels_last=True)
TRAINED = ("resnet101", "vgg16", "convnext_tiny")
FAULTS: dict[str, tuple[Run, Run, str | None]] = {
    "healthy, TF32": (TF32, TF32, None),
    "healthy, AMP": (AMP, AMP, None),
    "2 workers": (replace(TF32, workers=12), replace(TF32, workers=2), "loading"),
    "NCHW": (AMP, replace(AMP, channels_last=False), "memory_format"),
    "fp32 products": (TF32, replace(TF32, precision="fp32"), "precision"),
    "reads each loss": (AMP, replace(AMP, reads_loss=True), "waits"),
    "second process": (AMP, replace(AMP, has_neighbour=True), "process"),
    "half the batch": (AMP, replace(AMP, batch=BATCH // 2), "batch"),
}
"""The training as it is believed to run, as it runs, and the cause that should be named first."""


def _replaced(model: Any, kind: Any, made: Callable[[Any], Any]) -> Any:
    """The model with other modules in place of those of a kind."""
    for name, child in list(model.named_children()):
        setattr(model, name, made(child)) if isinstance(child, kind) else _replaced(child, kind, made)
    return model


def _torchvision(name: str, **options: Any) -> Any:
    import torchvision

    return getattr(torchvision.models, name)(weights=None, **options)


def _resnet(**options: Any) -> Any:
    from torchvision.models.resnet import Bottleneck, ResNet

    return ResNet(Bottleneck, [3, 4, 6, 3], **options)


def _densenet(growth_rate: int) -> Any:
    from torchvision.models import DenseNet

    return DenseNet(growth_rate, (6, 12, 24, 16), 64)


def _deep_stem() -> Any:
    from torch import nn

    model, sides = _resnet(), ((3, 32, 2), (32, 32, 1), (32, 64, 1))
    layers = [
        [nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(inplace=True)]
        for a, b, stride in sides
    ]
    model.conv1 = nn.Sequential(*[layer for each in layers for layer in each][:-2])
    return model


def _squeezed() -> Any:
    from torch import nn
    from torchvision.ops import SqueezeExcitation

    model = _resnet()
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        for block in stage:
            width = block.bn3.num_features
            block.bn3 = nn.Sequential(block.bn3, SqueezeExcitation(width, width // 16))
    return model


def _separable(convolution: Any) -> Any:
    from torch import nn

    n, m = convolution.in_channels, convolution.out_channels
    return nn.Sequential(nn.Conv2d(n, n, 3, padding=1, groups=n, bias=False), nn.Conv2d(n, m, 1))


def _with_kernel(convolution: Any, side: int) -> Any:
    from torch import nn

    n = convolution.in_channels
    if convolution.groups != n:
        return convolution
    return nn.Conv2d(n, n, side, padding=side // 2, groups=n)


def _other(kind: str, made: Callable[[Any], Any], name: str, **options: Any) -> Any:
    """A CNN of torchvision with other modules in place of a kind, a name in `torch.nn` or `torchvision.ops`."""
    import torchvision
    from torch import nn

    return _replaced(
        _torchvision(name, **options), getattr(nn, kind, None) or getattr(torchvision.ops, kind), made
    )


def _nn(name: str, *arguments: Any, **options: Any) -> Any:
    from torch import nn

    return getattr(nn, name)(*arguments, **options)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "resnet50, SiLU for ReLU": (
        _resnet,
        lambda: _other("ReLU", lambda _: _nn("SiLU", inplace=True), "resnet50"),
    ),
    "resnet50, group norm": (_resnet, lambda: _resnet(norm_layer=lambda n: _nn("GroupNorm", 32, n))),
    "resnet50, stem of three 3x3": (_resnet, _deep_stem),
    "resnet50, 1.5 times as wide": (_resnet, lambda: _resnet(width_per_group=96)),
    "resnet50, squeeze and excitation": (_resnet, _squeezed),
    "resnet50, dilated last stage": (
        _resnet,
        lambda: _resnet(replace_stride_with_dilation=[False, False, True]),
    ),
    "resnext50, 16 groups for 32": (
        lambda: _resnet(groups=32, width_per_group=4),
        lambda: _resnet(groups=16, width_per_group=8),
    ),
    "vgg13, separable": (
        lambda: _torchvision("vgg13"),
        lambda: _other("Conv2d", lambda each: each if each.in_channels == 3 else _separable(each), "vgg13"),
    ),
    "densenet121, growth 40": (
        lambda: _torchvision("densenet121"),
        lambda: _densenet(40),
    ),
    "mobilenet_v3_large, SiLU for hardswish": (
        lambda: _torchvision("mobilenet_v3_large"),
        lambda: _other("Hardswish", lambda _: _nn("SiLU"), "mobilenet_v3_large"),
    ),
    "efficientnet_b0, no excitation": (
        lambda: _torchvision("efficientnet_b0"),
        lambda: _other("SqueezeExcitation", lambda _: _nn("Identity"), "efficientnet_b0"),
    ),
    "convnext_tiny, kernels 11x11": (
        lambda: _torchvision("convnext_tiny"),
        lambda: _other("Conv2d", lambda each: _with_kernel(each, 11), "convnext_tiny"),
    ),
}
"""Changes as a pull request makes them: the CNN before and after."""


def forecast_faults() -> Iterator[dict[str, Any]]:
    import epochcast

    for cnn in TRAINED:
        for fault, (believed, _, cause) in FAULTS.items():
            found = epochcast.predict(cnn, list(GPUS), BATCH, **believed.options)
            for row in found.itertuples():
                times = (row.iteration_time_ms, row.low_ms, row.high_ms)
                yield {"cnn": cnn, "case": fault, "gpu": row.gpu, "cause": cause or ""} | _times(times)


def forecast_changes() -> Iterator[dict[str, Any]]:
    import epochcast

    for change, sides in CHANGES.items():
        before, after = (side() for side in sides)
        for run in (TF32, AMP):
            for found in epochcast.diff(before, after, list(GPUS), BATCH, image_size=_SIDE, **run.options):
                ends = {"ratio": found.ratio, "low": found.low, "high": found.high}
                ends = {name: f"{value:.4f}" for name, value in ends.items()}
                yield {"case": change, "precision": run.precision, "gpu": found.gpu} | ends


def _times(values: Sequence[float]) -> dict[str, str]:
    return {name: f"{ms:.4g}" for name, ms in zip(("normal_ms", "low_ms", "high_ms"), values, strict=True)}


def measure_faults(place: Place) -> Iterator[dict[str, Any]]:
    neighbour = Neighbour(place)
    try:
        for cnn in TRAINED:
            for fault, (_, run, _) in FAULTS.items():
                run = replace(run, batch=run.batch * place.batch // BATCH)
                if run.has_neighbour:
                    neighbour.train(cnn)
                found = measured(lambda cnn=cnn: _torchvision(cnn), run, place)
                if run.has_neighbour:
                    neighbour.rest()
                yield {"cnn": cnn, "case": fault} | found
    finally:
        neighbour.process.kill()


def measure_changes(place: Place) -> Iterator[dict[str, Any]]:
    known: dict[tuple[Any, Run], dict[str, Any]] = {}
    for change, sides in CHANGES.items():
        for run in (TF32, AMP):
            run = replace(run, batch=place.batch)
            for side, made in zip(("before", "after"), sides, strict=True):
                if (made, run) not in known:
                    known[made, run] = measured(made, run, place)
                yield {"case": change, "precision": run.precision, "side": side} | known[made, run]


def measured(made: Callable[[], Any], run: Run, place: Place) -> dict[str, Any]:
    """Mean milliseconds of an iteration, after warm-ups, and the share in which it waited for its images."""
    import torch
    from torch import nn

    device = place.device
    torch.backends.cudnn.allow_tf32 = run.precision != "fp32"
    form = torch.channels_last if run.channels_last else torch.contiguous_format
    with torch.device(device):
        model = made().train().to(memory_format=form)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of, batches = nn.CrossEntropyLoss(), _batches(run, place)
    waited_s, start, n = 0.0, 0.0, 0
    while n < _WARM_UPS + _LEAST or time.perf_counter() - start < _LONGEST_S:
        if n == _WARM_UPS:
            _wait(device)
            waited_s, start = 0.0, time.perf_counter()
        asked = time.perf_counter()
        images, labels = next(batches)
        waited_s += time.perf_counter() - asked
        images = images.to(device, non_blocking=True).to(memory_format=form)
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=run.precision == "amp_bf16"):
            loss = loss_of(model(images), labels.to(device, non_blocking=True))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if run.reads_loss:
            loss.item()
        n += 1
    _wait(device)
    took_s = time.perf_counter() - start
    gpu = torch.cuda.get_device_name() if device == "cuda" else device
    return {
        "gpu": gpu,
        "torch": torch.__version__,
        "iterations": n - _WARM_UPS,
        "iteration_time_ms": f"{1000 * took_s / (n - _WARM_UPS):.4g}",
        "waiting_share": "" if run.workers is None else f"{waited_s / took_s:.3f}",
    }


def _wait(device: str) -> None:
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def _batches(run: Run, place: Place) -> Iterator[Any]:
    import torch

    if run.workers is None:
        images = torch.randn(run.batch, 3, place.side, place.side, device=place.device)
        labels = torch.randint(_CLASSES, (run.batch,), device=place.device)
        while True:
            yield images, labels
    loader = torch.utils.data.DataLoader(
        Pictures(place.side), run.batch, num_workers=run.workers, pin_memory=place.device == "cuda"
    )
    yield from loader


class Pictures:
    """JPEGs of 500 x 375 pixels in memory, decoded, cropped, flipped and normalised as for ImageNet."""

    def __init__(self, side: int) -> None:
        from PIL import Image
        from torchvision import transforms

        draw = random.Random(0)  # noqa: S311 - pictures
        self.files = []
        for _ in range(32):
            coarse = Image.frombytes("RGB", (50, 38), draw.randbytes(50 * 38 * 3))
            file = io.BytesIO()
            coarse.resize((500, 375), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
            self.files.append(file.getvalue())
        steps = [
            transforms.RandomResizedCrop(side),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
        ]
        mean, deviation = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
        self.augment = transforms.Compose([*steps, transforms.Normalize(mean, deviation)])

    def __len__(self) -> int:
        return 10**6

    def __getitem__(self, index: int) -> tuple[Any, int]:
        from PIL import Image

        image = Image.open(io.BytesIO(self.files[index % len(self.files)])).convert("RGB")
        return self.augment(image), index % _CLASSES


class Neighbour:
    """Another process that trains on the same GPU while it is told to."""

    def __init__(self, place: Place) -> None:
        command = [
            sys.executable, __file__, "faults", "neighbour", "--device", place.device, "--batch", str(place.batch),
            "--side", str(place.side),
        ]  # fmt: skip
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def train(self, cnn: str) -> None:
        """Return once it trains."""
        self._say(cnn)

    def rest(self) -> None:
        """Return once it has stopped."""
        self._say("rest")

    def _say(self, word: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline(), "the second process ended"


def neighbour(place: Place) -> None:
    """What the second process does."""
    import torch
    from torch import nn

    while word := sys.stdin.readline().strip():
        if word in TRAINED:
            with torch.device(place.device):
                model = _torchvision(word).to(memory_format=torch.channels_last)
            images, labels = next(_batches(replace(AMP, batch=place.batch), place))
            images = images.to(memory_format=torch.channels_last)
            n = 0
            while not select.select([sys.stdin], [], [], 0)[0]:
                with torch.autocast(torch.device(place.device).type, torch.bfloat16):
                    nn.functional.cross_entropy(model(images), labels).backward()
                _wait(place.device)
                n += 1
                if n == _WARM_UPS:
                    print("trains", flush=True)
            del model, images
        else:
            print("rests", flush=True)


def judge_faults(rows: Sequence[Mapping[str, str]], host: str | None) -> None:
    """Print for each training what `check` says, and how many faults are named first."""
    import epochcast

    named, accused, faults, healthy = 0, 0, 0, 0
    for row in rows:
        believed, _, cause = FAULTS[row["case"]]
        found = epochcast.check(
            row["cnn"],
            row["gpu"],
            BATCH,
            iteration_time_ms=float(row["iteration_time_ms"]),
            waiting_share=float(row["waiting_share"]) if row["waiting_share"] else None,
            host=host,
            **believed.options,
        )
        first = ", ".join(f"{each.name} {each.probability:.0%}" for each in found.causes[:2])
        print(f"{row['cnn']:14} {row['case']:16} {found.factor:5.2f} {found.verdict:7} {first}")
        if cause is None:
            healthy, accused = healthy + 1, accused + (found.verdict != "normal")
        else:
            faults, named = faults + 1, named + (bool(found.causes) and found.causes[0].name == cause)
    print(f"{named} of {faults} faults named first, {accused} of {healthy} healthy trainings accused")


def judge_changes(rows: Sequence[Mapping[str, str]], forecasts: Sequence[Mapping[str, str]]) -> None:
    """Print for each change the forecast and the measured ratio, and how many signs and intervals hold."""
    sides = {(row["case"], row["precision"], row["side"]): float(row["iteration_time_ms"]) for row in rows}
    gpu, inside, sure, right, n = rows[0]["gpu"], 0, 0, 0, 0
    for each in forecasts:
        case = each["case"], each["precision"]
        if each["gpu"] != gpu or (*case, "after") not in sides:
            continue
        ratio = sides[*case, "after"] / sides[*case, "before"]
        low, high = float(each["low"]), float(each["high"])
        holds, is_sure = low <= ratio <= high, low > 1 or high < 1
        print(f"{case[0]:40} {case[1]:9} {each['ratio']} ({low:.3f} to {high:.3f}) measured {ratio:.3f}")
        n, inside, sure = n + 1, inside + holds, sure + is_sure
        right += is_sure and (low > 1) == (ratio > 1)
    print(f"{inside} of {n} ratios inside their interval; of {sure} sure signs {right} are right")


def _read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def _write(rows: Iterator[dict[str, Any]], path: Path, limit_s: float = float("inf")) -> None:
    start = time.monotonic()
    with path.open("w", newline="") as file:
        writer = None
        for row in rows:
            writer = writer or csv.DictWriter(file, list(row), lineterminator="\n")
            if file.tell() == 0:
                writer.writeheader()
            writer.writerow(row)
            file.flush()
            print(*row.values(), flush=True)
            if time.monotonic() - start > limit_s:
                print(f"stopped after {limit_s:.0f} s")
                return


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("subject", choices=["faults", "changes"])
    parser.add_argument("action", choices=["forecast", "measure", "judge", "neighbour"])
    parser.add_argument("file", nargs="?", type=Path, help="what forecast and measure write, and judge reads")
    parser.add_argument("--forecast", type=Path, help="of changes, for judge")
    parser.add_argument("--host", help="the file of `epochcast host`, for judge")
    parser.add_argument("--time-limit", type=float, default=120.0, metavar="S")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=BATCH, help="another one for a try on a CPU")
    parser.add_argument("--side", type=int, default=_SIDE, help="likewise, of images")
    asked = parser.parse_args()
    place = Place(asked.device, asked.batch, asked.side)
    if asked.action == "neighbour":
        neighbour(place)
    elif asked.action == "forecast":
        _write({"faults": forecast_faults, "changes": forecast_changes}[asked.subject](), asked.file)
    elif asked.action == "measure":
        program = {"faults": measure_faults, "changes": measure_changes}[asked.subject]
        _write(program(place), asked.file, asked.time_limit)
    elif asked.subject == "faults":
        judge_faults(_read(asked.file), asked.host)
    else:
        judge_changes(_read(asked.file), _read(asked.forecast))
    return 0


if __name__ == "__main__":
    sys.exit(main())
