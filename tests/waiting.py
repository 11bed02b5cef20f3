"""Waiting for what must come: on a condition, never for a time that ought to suffice."""

import time
from collections.abc import Callable

from predictor.stopping import check_stop

__all__ = ["PATIENCE_S", "wait_until", "work"]

PATIENCE_S = 300.0
"""What is not there by now does not come, however loaded the machine."""


def wait_until(true: Callable[[], object], alive: Callable[[], object] = lambda: True) -> None:
    """Return once `true()` holds; fail where `alive()` no longer does, or after `PATIENCE_S`."""
    end = time.monotonic() + PATIENCE_S
    while not true():
        assert alive(), "what was waited for has ended without it"
        assert time.monotonic() < end, f"it did not come within {PATIENCE_S:g} s"
        time.sleep(0.02)


def work(seconds: float) -> None:
    """Use a processor for some time, or until stopped."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        check_stop()
