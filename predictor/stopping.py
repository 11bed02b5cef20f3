"""Ends work that takes too long or that nobody waits for: Python cannot stop a thread, so loops ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_CHECK: ContextVar[Callable[[], None] | None] = ContextVar("check_stop", default=None)


def check_stop() -> None:
    """Raise what the caller of this work raises to end it; without a caller's `stopped_by`, nothing."""
    check = _CHECK.get()
    if check is not None:
        check()


@contextmanager
def stopped_by(check: Callable[[], None]) -> Iterator[None]:
    """Work within the block calls `check` now and then, and ends with what it raises."""
    token = _CHECK.set(check)
    try:
        yield
    finally:
        _CHECK.reset(token)
