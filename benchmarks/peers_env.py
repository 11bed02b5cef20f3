"""What other tools say of a CNN, in an environment that holds them and not epochcast: `peers.py` runs it.

Standard input is JSON, `{"cnns": [{"cnn", "image_size", "batch_sizes": [...]}], "estimates": [[CNN, image size, batch
size, TFLOP/s, GB/s], ...]}`. For each tool and CNN of torchvision a line of JSON says the operations of a forward pass
of an image (a multiply-add is two), the memory in GiB of a training step at each batch size, or why the tool refuses,
and the seconds that it took; for each of `FORMS` the counted over the real operations.

A new peer is one entry of `COUNTERS` or `MEMORIES`.
"""

import contextlib
import copy
import functools
import importlib
import io
import itertools
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from peers_forms import CHANNELS, FORMS, SIDE
from torchvision_import import import_torchvision

GIB = 2**30


Count = Callable[[nn.Module, torch.Tensor], float]


def of(module: str, name: str) -> Any:
    """Function or class of a tool, which is imported now."""
    return getattr(importlib.import_module(module), name)


def by_fvcore(net: nn.Module, images: torch.Tensor) -> float:
    """Operations of a forward pass."""
    count = of("fvcore.nn", "FlopCountAnalysis")(net, images)
    return 2 * count.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total()


def by_ptflops(net: nn.Module, images: torch.Tensor) -> float:
    """Operations of a forward pass."""
    quiet = {"as_strings": False, "print_per_layer_stat": False}
    macs = of("ptflops", "get_model_complexity_info")(net, tuple(images.shape[1:]), **quiet)[0]
    if macs is None:
        raise ValueError("it counts nothing")
    return 2 * macs


def by_calflops(net: nn.Module, images: torch.Tensor) -> float:
    """Operations of a forward pass."""
    quiet = dict.fromkeys(("print_results", "print_detailed", "output_as_string"), False)
    return of("calflops", "calculate_flops")(net, input_shape=tuple(images.shape), **quiet)[0]


def by_flop_counter_mode(net: nn.Module, images: torch.Tensor) -> float:
    """Operations of a forward and a backward pass over three, as the others count."""
    with of("torch.utils.flop_counter", "FlopCounterMode")(display=False) as counter:
        output(net(images)).sum().backward()
    return counter.get_total_flops() / 3


def peaks_of_lightning() -> dict[str, dict[str, float]]:
    """Peaks in operations per second, by GPU and type, by which Lightning computes the share of the peak."""
    from lightning.fabric.utilities import throughput

    peaks = throughput._CUDA_FLOPS
    return {gpu: {str(kind): value for kind, value in row.items()} for gpu, row in peaks.items()}


COUNTERS: dict[str, Count] = {
    "thop": lambda net, images: 2 * of("thop", "profile")(net, inputs=(images,), verbose=False)[0],
    "torchinfo": lambda net, images: 2 * torchinfo_of(net, images).total_mult_adds,
    "fvcore": by_fvcore,
    "ptflops": by_ptflops,
    "calflops": by_calflops,
    "FlopCounterMode": by_flop_counter_mode,
    "Lightning": lambda net, images: (
        of("lightning.fabric.utilities.throughput", "measure_flops")(
            net, lambda: output(net(images)), lambda maps: maps.sum()
        )
        / 3
    ),
}
"""Operations of a forward pass, by tool; Lightning, too, counts a backward pass beside it: a third of both."""


def torchinfo_of(net: nn.Module, images: torch.Tensor) -> Any:
    """What torchinfo says of a module in training."""
    return of("torchinfo", "summary")(net, input_data=images, verbose=0, mode="train")


def of_accelerate(net: nn.Module, _: torch.Tensor) -> float:
    """GiB of training with Adam by `accelerate estimate-memory`: four times the weights; it knows no batch."""
    return 4 * of("accelerate.utils", "calculate_maximum_sizes")(net)[0] / GIB


def of_torchinfo(net: nn.Module, images: torch.Tensor) -> float:
    """GiB of input, maps of forward and backward pass, and weights; input and maps are those of two images, scaled."""
    sums = torchinfo_of(net, images[:2])
    return ((sums.total_input + sums.total_output_bytes) * len(images) / 2 + sums.total_param_bytes) / GIB


def of_mem_tracker(net: nn.Module, images: torch.Tensor) -> float:
    """Peak in GiB of two steps of SGD with momentum on fake tensors, by PyTorch's tracker."""
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    tracker = of("torch.distributed._tools.mem_tracker", "MemTracker")()
    tracker.track_external(net, optimizer, images)
    with tracker:
        for _ in range(2):
            tracker.reset_mod_stats()
            optimizer.zero_grad()
            output(net(images)).sum().backward()
            optimizer.step()
    return max(peak["Total"] for peak in tracker.get_tracker_snapshot("peak").values()) / GIB


MEMORIES: dict[str, Count] = {
    "accelerate": of_accelerate,
    "torchinfo": of_torchinfo,
    "MemTracker": of_mem_tracker,
}


def by_runtime_estimator(cnn: str, side: int, batch_size: int, tflop_per_s: float, gb_per_s: float) -> float:
    """Milliseconds of a step of SGD with momentum by PyTorch's roofline of operators, given the GPU's peaks."""
    from torch.distributed._tools.runtime_estimator import RuntimeEstimator
    from torch.utils import _runtime_estimation

    with (
        patch.object(_runtime_estimation, "get_device_tflops", lambda _: tflop_per_s),  # of the GPU at hand
        patch.object(_runtime_estimation, "get_gpu_dram_gbps", lambda: gb_per_s),
        patch.object(torch.cuda, "is_available", lambda: True),
        without_numbers(torchvision_cnn(cnn)) as net,
    ):
        images = torch.randn(batch_size, 3, side, side)
        optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)

        def step() -> None:
            output(net(images)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()

        step()  # makes the momentum
        estimator = RuntimeEstimator()
        with estimator(estimate_mode_type="operator-level-cost-model"):
            step()
    return float(estimator.total_runtime)


@contextlib.contextmanager
def without_numbers(net: nn.Module) -> Iterator[nn.Module]:
    """Copy of a module whose tensors, like all made in the block, have shapes and no numbers."""
    from torch._subclasses.fake_tensor import FakeCopyMode, FakeTensorMode

    mode = FakeTensorMode()
    with FakeCopyMode(mode):
        copied = copy.deepcopy(net)
    with mode:
        yield copied


def output(maps: Any) -> torch.Tensor:
    """Main output of a CNN that may have auxiliary ones."""
    return maps if isinstance(maps, torch.Tensor) else maps[0]


def torchvision_cnn(name: str) -> nn.Module:
    """CNN without weights, in training."""
    options = {"aux_logits": False, "init_weights": False} if name in ("googlenet", "inception_v3") else {}
    return import_torchvision().get_model(name, weights=None, **options).train()


def asked(function: Count, make: Callable[[], nn.Module], *shape: int) -> dict:
    """What the tool answers of a mini-batch of this shape, or its refusal; with its seconds."""
    start = time.perf_counter()
    made = without_numbers(make()) if function is of_mem_tracker else contextlib.nullcontext(make())
    try:
        with contextlib.redirect_stdout(io.StringIO()), made as net:
            images = torch.zeros(shape, requires_grad=shape[1] > 3)
            answer: dict[str, Any] = {"value": float(function(net, images))}
    except Exception as error:  # noqa: BLE001 - whatever a tool raises is what its user sees
        answer = {"refused": f"{type(error).__name__}: {error}"[:200]}
    return {**answer, "seconds": time.perf_counter() - start}


def counted(tool: str, make: Callable[[], nn.Module], *shape: int) -> dict:
    """Operations of a forward pass of one image of this shape; those that run it with its backward pass get two."""
    n_images = 2 if tool in ("FlopCounterMode", "Lightning") else 1
    answer = asked(COUNTERS[tool], make, n_images, *shape)
    return answer | ({"value": answer["value"] / n_images} if "value" in answer else {})


def main() -> None:
    """Answer the question on standard input, a line for each tool, CNN or form, and batch size."""

    def write(tool: str, what: str, **answer: Any) -> None:
        print(json.dumps({"tool": tool, "what": what, **answer}), flush=True)

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    import_torchvision()
    question = json.load(sys.stdin)
    write("Lightning", "peaks", peaks=peaks_of_lightning())
    for row in question["estimates"]:
        start = time.perf_counter()
        answer = {"value": by_runtime_estimator(*row), "seconds": time.perf_counter() - start}
        write("RuntimeEstimator", "estimate", estimated=row, **answer)
    for name, (make, multiply_adds) in FORMS.items():
        for tool in COUNTERS:
            answer = counted(tool, make, CHANNELS, SIDE, SIDE)
            ratio = {"value": answer["value"] / (2 * multiply_adds)} if "value" in answer else {}
            write(tool, "form", form=name, **answer | ratio)
    for row in question["cnns"]:
        cnn, side, batch_sizes = row["cnn"], row["image_size"], row["batch_sizes"]
        make = functools.partial(torchvision_cnn, cnn)
        for tool in COUNTERS:
            write(tool, "flops", cnn=cnn, image_size=side, **counted(tool, make, 3, side, side))
        for tool, batch_size in itertools.product(MEMORIES, batch_sizes):
            answer = asked(MEMORIES[tool], make, batch_size, 3, side, side)
            write(tool, "memory", cnn=cnn, image_size=side, batch_size=batch_size, **answer)


if __name__ == "__main__":
    main()
