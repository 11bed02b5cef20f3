"""PyTorch's compiler around a CNN: every configuration is compiled from scratch, so its seconds are its own."""

import time
from collections.abc import Callable
from typing import Any


def compiled(model: Any) -> Any:
    """The model as ``torch.compile`` trains it, forward and backward, only for the sizes of its first call."""
    import torch

    forget_compiled()
    return torch.compile(model, dynamic=False)


class CompiledFirst:
    """The first iteration, which compiles; `seconds` is its time, None before it ran.

    It finds nothing compiled on disk, as on a machine that was just rented.
    """

    def __init__(self, iterate: Callable[[], None]) -> None:
        self._iterate = iterate
        self.seconds: float | None = None

    def run(self) -> None:
        """Run it."""
        from torch._inductor.utils import fresh_cache

        start = time.perf_counter()
        with fresh_cache():
            self._iterate()
        self.seconds = time.perf_counter() - start


def forget_compiled() -> None:
    """Drop all compiled code: many CNNs in one process would exceed PyTorch's limit of compilations."""
    import torch._dynamo

    torch._dynamo.reset()
