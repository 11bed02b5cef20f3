"""What kinds of dispatches take a host: `python benchmarks/host_dispatches.py --out FILE.csv`.

Numbers of the law of what is enqueued (`predictor.models.hosts`, `predictor.cnns.step_reader`), in passes of a mean
layer: microseconds of a layer or a tensor over the reference iteration timed just after, x what that enqueues. It tells
`forward`, the numbers of optimizers, of clipping, of gradient checkpoints and of averages. Needs PyTorch and a GPU.
"""

import argparse
import csv
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch  # noqa: TID253 - made of it
from compiled_hosts import reference_iteration
from machine import machine
from real_epochs import enqueued_ms
from torch import nn  # noqa: TID253 - made of it
from torch.utils.checkpoint import checkpoint  # noqa: TID253 - made of it

from predictor.catalogue.hosts import REFERENCE_CNN
from predictor.cnns.zoo import zoo_cnn
from predictor.models.hosts import enqueued

_LAYERS, _TENSORS, _REPEATS = 40, 160, 9
_OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "momentum": lambda p: torch.optim.SGD(p, 0.01, 0.9),
    "momentum_one_by_one": lambda p: torch.optim.SGD(p, 0.01, 0.9, foreach=False),
    "adam": lambda p: torch.optim.Adam(p, 1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-3),
    "adamw_fused": lambda p: torch.optim.AdamW(p, 1e-3, fused=True),
    "nadam": lambda p: torch.optim.NAdam(p, 1e-3),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 1e-3, momentum=0.9),
}


class Again(nn.Module):
    """A convolution that gradient checkpointing runs again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(16, 16, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return checkpoint(self.layer, x, use_reentrant=False)


def _block() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(16, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(inplace=True)
    )


_MODULES: dict[str, Callable[[], nn.Module]] = {
    "conv_bn_relu": _block,
    "conv": lambda: nn.Conv2d(16, 16, 3, padding=1),
    "conv_checkpointed": Again,
}


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="CSV file; rows are added as they come")
    options = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    reference, unit = reference_iteration(device), enqueued(zoo_cnn(*REFERENCE_CNN), "momentum")

    def idle() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize()

    with options.out.open("a", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        if not file.tell():
            rows.writerow(("kind", "part", "us", "reference_ms", "layers", "machine", "at"))

        def say(kind: str, part: str, us: float) -> None:
            reference_ms = enqueued_ms(reference, idle, _REPEATS)
            about = (machine(), datetime.now(UTC).isoformat(timespec="seconds"))
            row = (kind, part, f"{us:.4g}", f"{reference_ms:.4g}", f"{us / 1000 / reference_ms * unit:.3g}")
            rows.writerow((*row, *about))
            file.flush()
            print(*row, sep="  ")

        for kind, make in _MODULES.items():
            for part, us in zip(("forward", "backward"), _passes_us(make, device, idle), strict=True):
                say(kind, part, us)
        tensors = [nn.Parameter(torch.randn(16, 16, device=device)) for _ in range(_TENSORS)]
        averages = [each.detach().clone() for each in tensors]
        for each in tensors:
            each.grad = torch.randn_like(each)

        def average() -> None:
            for own, new in zip(averages, tensors, strict=True):
                own.copy_(new.detach())

        steps = {name: make(tensors).step for name, make in _OPTIMIZERS.items()}
        steps |= {"clip": lambda: nn.utils.clip_grad_norm_(tensors, 1e9), "copy": average}
        for name, step in steps.items():
            for _ in range(3):
                step()
            say(name, "tensor", 1000 * enqueued_ms(step, idle, _REPEATS) / _TENSORS)
    return 0


def _passes_us(
    make: Callable[[], nn.Module], device: torch.device, idle: Callable[[], None]
) -> tuple[float, float]:
    """Microseconds of a module's forward and backward pass, in a row of some."""
    model = nn.Sequential(*(make() for _ in range(_LAYERS))).train().to(device)
    images = torch.randn(4, 16, 8, 8, device=device, requires_grad=True)
    times = []
    for _ in range(_REPEATS):
        model.zero_grad(set_to_none=True)
        idle()
        start = time.perf_counter()
        said = model(images * 1.0)
        middle = time.perf_counter()
        idle()
        again = time.perf_counter()
        said.backward(said.detach())
        times.append((middle - start, time.perf_counter() - again))
    forward, backward = (1e6 * median(each) / _LAYERS for each in zip(*times, strict=True))
    return forward, backward


if __name__ == "__main__":
    sys.exit(main())
