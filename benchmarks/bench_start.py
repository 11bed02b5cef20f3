"""How fast the command starts and answers, beside a Python that does nothing.

Run it as `python benchmarks/bench_start.py`; the command of `make predict` is taken from the Makefile.
"""

import re
import shlex
import statistics
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from machine import machine

COMMAND = [sys.executable, "-c", "from epochcast.command import main; main()"]
REPEATS = 7


def main() -> int:
    bare = [sys.executable, "-c", "pass"]
    cases = {
        "python -c pass": ([bare], None),
        "epochcast --help": ([[*COMMAND, "--help"]], 0.3),
        "epochcast predict (one row)": ([[*COMMAND, *shlex.split("predict resnet50 -g T4 -b 64")]], None),
        "make predict": ([make_predict_command()], 3.0),
    }
    print(f"start | {datetime.now(UTC):%Y-%m-%d} | {machine()} | median of {REPEATS}\n")
    print(f"{'command':32}{'seconds':>9}{'x bare':>9}{'goal':>9}")
    bare_s = None
    for name, (runs, goal) in cases.items():
        seconds = statistics.median(timed(runs) for _ in range(REPEATS))
        bare_s = bare_s or seconds
        print(f"{name:32}{seconds:9.3f}{seconds / bare_s:9.1f}{'' if goal is None else f'< {goal} s':>9}")
    return 0


def make_predict_command() -> list[str]:
    """The command of the Makefile's `predict` target, run by this Python."""
    text = (Path(__file__).parents[1] / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    demo = re.search(r"^DEMO := (.*)$", text, re.MULTILINE)
    assert demo is not None, "the Makefile no longer has the arguments of `make predict` in DEMO"
    return [*COMMAND, *shlex.split(demo[1])]


def timed(commands: list[list[str]]) -> float:
    started = time.perf_counter()
    for command in commands:
        subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
