"""The machine that a benchmark ran on, in one line; every table names it."""

import os
import platform
from datetime import UTC, datetime

from proxy_cnns.device import host_name


def machine() -> str:
    """Give processor, cores, system and Python, e.g. ``Intel Xeon, 2 cores, Linux, Python 3.11.2``."""
    return f"{host_name()}, {platform.system()}, Python {platform.python_version()}"


def heading(name: str, *, load: bool = False) -> str:
    """First line of what a benchmark prints, with an empty one: its name, today, the machine, and its `load`."""
    now = f" | load {os.getloadavg()[0]:.1f}" if load else ""
    return f"{name} | {datetime.now(UTC):%Y-%m-%d} | {machine()}{now}\n"
