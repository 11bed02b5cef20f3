"""The machine that a benchmark ran on, in one line; every table names it."""

import os
import platform
from pathlib import Path

__all__ = ["machine"]


def machine() -> str:
    """Give processor, cores, system and Python, e.g. ``Intel Xeon, 2 cores, Linux, Python 3.11.2``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {cores} cores, {platform.system()}, Python {platform.python_version()}"


def _processor() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
