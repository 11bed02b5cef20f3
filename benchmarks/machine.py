"""The machine that a benchmark ran on, in one line; every table names it."""

import platform

from proxy_cnns.device import host_name


def machine() -> str:
    """Give processor, cores, system and Python, e.g. ``Intel Xeon, 2 cores, Linux, Python 3.11.2``."""
    return f"{host_name()}, {platform.system()}, Python {platform.python_version()}"
