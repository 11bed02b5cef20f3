"""The machine that feeds the GPU, in words."""

import os
import platform
from pathlib import Path

__all__ = ["cpu_model", "host_name"]


def cpu_model() -> str:
    """Model of the processor as it names itself, or its architecture where it does not."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.machine()


def host_name() -> str:
    """Processor and how many of its cores this process may use, such as ``Intel(R) Xeon(R) ..., 16 cores``."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cpu_model()}, {cores} cores"
