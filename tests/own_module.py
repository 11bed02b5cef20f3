"""A module or chain of given children and forward, for tests of what reads them."""

from types import ModuleType
from typing import Any

__all__ = ["own_chain", "own_module"]


def own_module(torch: ModuleType, forward: Any, **children: Any) -> Any:
    """A module of these children with this forward."""

    class Own(torch.nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            for name, child in children.items():
                setattr(self, name, child)

    Own.forward = lambda self, x: forward(self, x)
    return Own()


def own_chain(chainer: ModuleType, forward: Any, **links: Any) -> Any:
    """A chain of these links with this forward."""

    class Own(chainer.Chain):  # type: ignore[misc,name-defined]
        def forward(self, x: Any) -> Any:
            return forward(self, x)

    chain = Own()
    with chain.init_scope():
        for name, link in links.items():
            setattr(chain, name, link)
    return chain
