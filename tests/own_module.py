"""A PyTorch module of given children and forward, for tests of what reads modules."""

from types import ModuleType
from typing import Any

__all__ = ["own_module"]


def own_module(torch: ModuleType, forward: Any, **children: Any) -> Any:
    """A module of these children with this forward."""

    class Own(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            for name, child in children.items():
                setattr(self, name, child)

    Own.forward = lambda self, x: forward(self, x)
    return Own()
