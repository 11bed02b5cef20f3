"""Peak memory and time of plans of `epochcast fit-memory`, forecast first and then measured on a GPU.

`python benchmarks/fit_memory.py forecast FILE` plans the trainings of `TRAININGS`, and writes the plans with the lines
of code that do them. `python benchmarks/fit_memory.py measure FILE OUT` runs these lines, each held to the memory that
it was planned for, and needs only PyTorch and torchvision. Each training runs again as a whole, without a limit, for
the time that fitting costs. Measured times include the transfer of the images from pinned memory; forecasts do not.
"""

import argparse
import csv
import gc
import os
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

GPU = "H100 SXM"
CONTEXT_GIB = 0.5  # of the estimate, beside what PyTorch allocates
STEPS = 4


class Training(NamedTuple):
    """A CNN of torchvision, or `unet`, with a mini-batch and the memory that it is to fit in."""

    cnn: str
    side: int
    batch_size: int
    memory_gib: float
    without: str = ""  # a concession that the plan may not make
    precision: str | None = None
    optimizer: str = "momentum"


TRAININGS = (
    Training("densenet121", 224, 256, 4),
    Training("vgg16_bn", 224, 128, 9, "accumulation"),
    Training("unet", 256, 32, 9, "accumulation", "tf32"),
    Training("resnet152", 224, 256, 14),
    Training("regnet_y_8gf", 224, 128, 9, "accumulation"),
    Training("swin_t", 224, 128, 9, "accumulation", None, "adamw"),
    Training("efficientnet_v2_s", 300, 64, 8, "accumulation"),
    Training("wide_resnet50_2", 224, 128, 9, "accumulation", "tf32"),
    Training("mnasnet1_0", 224, 512, 6),
    Training("densenet169", 224, 128, 5),
    Training("vgg19", 224, 128, 10, "", "tf32"),
)


def model_of(name: str) -> Any:
    """The module of a training."""
    import torch
    from torch import nn

    if name != "unet":
        from torchvision import models

        return getattr(models, name)(weights=None)

    class Double(nn.Sequential):
        def __init__(self, inside: int, outside: int) -> None:
            layers = [
                (nn.Conv2d(n, outside, 3, padding=1), nn.BatchNorm2d(outside), nn.ReLU())
                for n in (inside, outside)
            ]
            super().__init__(*(layer for some in layers for layer in some))

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            widths = (64, 128, 256, 512)
            self.down = nn.ModuleList(Double(n, m) for n, m in zip((3, *widths), widths, strict=False))
            self.bottom, self.pool = Double(512, 1024), nn.MaxPool2d(2)
            self.up = nn.ModuleList(nn.ConvTranspose2d(2 * n, n, 2, stride=2) for n in widths[::-1])
            self.joined = nn.ModuleList(Double(2 * n, n) for n in widths[::-1])
            self.head = nn.Conv2d(64, 10, 1)

        def forward(self, images: Any) -> Any:
            skips = []
            for block in self.down:
                images = block(images)
                skips.append(images)
                images = self.pool(images)
            images = self.bottom(images)
            for up, joined in zip(self.up, self.joined, strict=True):
                images = joined(torch.cat([skips.pop(), up(images)], dim=1))
            return self.head(images)

    return UNet()


def forecast(out: Path) -> None:
    """Write a plan for each training."""
    from predictor.answers.fit_memory import code_of, fit_memory
    from predictor.answers.question import Question
    from predictor.cnns.resolve import resolve_cnn

    rows = []
    for training in TRAININGS:
        name, side, size, memory_gib, without, precision, optimizer = training
        table = resolve_cnn(model_of(name), side)
        asked = Question(
            table, GPU, size, samples=10_000 * size, usd_per_hour=1, precision=precision, optimizer=optimizer
        )
        plans = fit_memory(asked, memory_gib=memory_gib)
        plan = plans.without.get(without, plans.best) if without else plans.best
        if plan is None:
            raise SystemExit(f"{training} has no plan without {without}")
        print(plan.words, flush=True)
        rows.append(
            training._asdict()
            | {"mode": f"{plan.row.precision} {plan.row.memory_format}", "parts": plan.parts}
            | {
                "recomputed": " ".join(plan.recomputed),
                "peak_gib": plan.row.peak_memory_gib,
                "slower": plan.slower,
            }
            | {"iteration_ms": plan.row.iteration_time_ms, "code": plan.code}
            | {"whole": code_of(plan.row.precision, plan.row.memory_format, 1, ())}
        )
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def measure(planned: Path, out: Path, budget_s: float, small: bool) -> None:
    """Run each plan in its memory, and the training as a whole without a limit; a row each as it goes."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"  # as the plans' lines say
    began, errors = time.monotonic(), []
    names = (
        "cnn", "memory_gib", "mode", "parts", "n_recomputed", "outcome", "peak_gib", "forecast_gib", "reserved_gib",
    )  # fmt: skip
    with (
        planned.open(newline="", encoding="utf-8") as file,
        out.open("w", newline="", encoding="utf-8") as found,
    ):
        writer = csv.DictWriter(
            found,
            (*names, "slower", "slower_forecast", "iteration_ms", "iteration_ms_forecast", "gpu", "date"),
            lineterminator="\n",
        )
        writer.writeheader()
        for row in csv.DictReader(file):
            if time.monotonic() - began > budget_s:
                print("the time is over")
                break
            of_plan = run(row, row["code"], float(row["memory_gib"]), small)
            whole = run(row, row["whole"], None, small)
            peak, expected = of_plan["peak_gib"], float(row["peak_gib"])
            errors.append(abs(expected / peak - 1) if peak else None)
            measured = {name: row[name] for name in ("cnn", "memory_gib", "mode", "parts")}
            measured |= {"n_recomputed": len(row["recomputed"].split()), "forecast_gib": f"{expected:.3f}"}
            measured |= {
                "outcome": of_plan["outcome"],
                "peak_gib": f"{peak:.3f}",
                "reserved_gib": f"{of_plan['reserved_gib']:.3f}",
            }
            measured |= {
                "slower": f"{of_plan['ms'] / whole['ms']:.3f}",
                "slower_forecast": f"{float(row['slower']):.3f}",
            }
            measured |= {
                "iteration_ms": f"{of_plan['ms']:.2f}",
                "iteration_ms_forecast": f"{float(row['iteration_ms']):.2f}",
            }
            measured |= {"gpu": of_plan["gpu"], "date": f"{datetime.now(UTC):%Y-%m-%d}"}
            writer.writerow(measured)
            found.flush()
            print(*measured.values(), flush=True)
    known = sorted(error for error in errors if error is not None)
    if known:
        print(
            f"{len(known)} peaks: median error {100 * known[len(known) // 2]:.1f} %, worst {100 * known[-1]:.1f} %"
        )


def run(row: dict[str, str], code: str, memory_gib: float | None, small: bool) -> dict[str, Any]:
    """Steps of a plan: whether they fit, peak and reserved memory with the context, median time in ms."""
    import torch
    from torch import nn

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    size = 4 * int(row["parts"]) if small else int(row["batch_size"])
    side = 64 if small else int(row["side"])
    torch.manual_seed(0)
    gc.collect()
    gpu = "CPU"
    if device.type == "cuda":
        torch.cuda.empty_cache()
        properties = torch.cuda.get_device_properties(0)
        gpu, total = properties.name, properties.total_memory / 2**30
        limit = total if memory_gib is None else memory_gib - CONTEXT_GIB
        torch.cuda.set_per_process_memory_fraction(min(1.0, limit / total))
        torch.cuda.reset_peak_memory_stats()
    outcome, times = "fits", []
    model = model_of(row["cnn"]).to(device)
    kinds = {
        "momentum": (torch.optim.SGD, {"lr": 1e-3, "momentum": 0.9}),
        "adamw": (torch.optim.AdamW, {"lr": 1e-4}),
    }
    kind, options = kinds[row["optimizer"]]
    space: dict[str, Any] = {
        "model": model,
        "criterion": nn.CrossEntropyLoss(),
        "optimizer": kind(model.parameters(), **options),
    }
    try:
        exec(code if device.type == "cuda" else code.replace('"cuda"', '"cpu"'), space)  # noqa: S102 - the plan's own lines
        images = torch.randn(size, 3, side, side)
        shape = (size, side, side) if row["cnn"] == "unet" else (size,)
        labels = torch.randint(0, 10, shape)
        if device.type == "cuda":
            images, labels = images.pin_memory(), labels.pin_memory()
        for _ in range(2 if small else STEPS):
            start = time.perf_counter()
            space["train_step"](images, labels)
            if device.type == "cuda":
                torch.cuda.synchronize()
            times.append(1000 * (time.perf_counter() - start))
    except RuntimeError as error:  # out of memory, whichever library says so
        outcome = f"{type(error).__name__}: {str(error)[:60]}"
    on_gpu = device.type == "cuda"
    peak = torch.cuda.max_memory_allocated() / 2**30 + CONTEXT_GIB if on_gpu else 0.0
    reserved = torch.cuda.max_memory_reserved() / 2**30 + CONTEXT_GIB if on_gpu else 0.0
    later = sorted(times[1:])
    ms = later[len(later) // 2] if later else float("nan")
    return {"outcome": outcome, "peak_gib": peak, "reserved_gib": reserved, "ms": ms, "gpu": gpu}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("forecast", help="write plans").add_argument("out", type=Path)
    measuring = commands.add_parser("measure", help="run plans on this machine's GPU")
    measuring.add_argument("planned", type=Path)
    measuring.add_argument("out", type=Path)
    measuring.add_argument("--seconds", type=float, default=150.0, help="start no training after this time")
    measuring.add_argument(
        "--small", action="store_true", help="few small images, to try the program without a GPU"
    )
    options = parser.parse_args(arguments)
    if options.command == "forecast":
        forecast(options.out)
    else:
        measure(options.planned, options.out, options.seconds, options.small)
    return 0


if __name__ == "__main__":
    sys.exit(main())
