"""How fast the service answers what it keeps and what it has to compute, beside an empty endpoint of the application.

Run it as `python benchmarks/bench_api.py`; it needs wrk (Debian: `apt-get install wrk`), 16 connections, and starts the
service itself. All rows are of one run; what else the machine does moves them together, so that ratios count.
"""

import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from machine import machine

SECONDS = int(os.environ.get("EPOCHCAST_BENCH_SECONDS", "5"))
ROUNDS = 3
CONNECTIONS = 16
SIZES = "[8,16,32,64,96,128,192,256,384,512]"
APP = """
import api.main
from fastapi import Response

def create_app():
    app = api.main.create_app()

    @app.get("/empty")
    async def empty():
        return Response(b"")

    routes = app.router.routes
    routes[:] = routes[-1:] + routes[:-1]  # tried first, as those of predictions nearly are: routing takes its time
    return app
"""


RUN = """
import sys
import uvicorn
from epochcast.commands.serve import server_options
uvicorn.run("benched:create_app", port=int(sys.argv[1]), log_level="warning", **server_options())
"""


@dataclass
class Case:
    """What is asked: a path, and Lua that makes the body of request n; `kept` where every request is the same."""

    name: str
    path: str
    body: str | None = None
    kept: bool = False


def question(gpus: str, form: str, more: str) -> str:
    return f"""'{{"cnn":"resnet50","gpus":{gpus},"batch_sizes":{SIZES},"form":"{form}",' .. {more} .. '}}'"""


def cases() -> list[Case]:
    """Every question twice: always the same, whose answer is kept, and never the same, for which the model is asked."""
    same, new = """'"samples":50000'""", """'"samples":' .. (1000 + n)"""
    one, all_gpus = '["T4"]', '["all"]'
    comparison = f"""'{{"cnn":"resnet50","batch_sizes":{SIZES},' .. MORE .. '}}'"""
    return [
        Case("an empty endpoint", "/empty"),
        Case("one GPU, 10 batch sizes: kept", "/v1/predictions", question(one, "rows", same), kept=True),
        Case("one GPU, 10 batch sizes: new", "/v1/predictions", question(one, "rows", new)),
        Case("all GPUs, 10 batch sizes: kept", "/v1/predictions", question(all_gpus, "columns", same), kept=True),
        Case("all GPUs, 10 batch sizes: new", "/v1/predictions", question(all_gpus, "columns", new)),
        Case("a comparison of all offers: kept", "/v1/comparisons", comparison.replace("MORE", same), kept=True),
        Case("a comparison of all offers: new", "/v1/comparisons", comparison.replace("MORE", new)),
    ]  # fmt: skip


def main() -> int:
    if shutil.which("wrk") is None:
        print("wrk is not installed: apt-get install wrk", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as name, service(Path(name), queue_wait_s=30) as url:
        folder = Path(name)
        rounds = [[measured(case, url, folder, turn) for case in cases()] for turn in range(ROUNDS)]
        rows = [max(runs, key=lambda row: row[1]) for runs in zip(*rounds, strict=True)]
        half = latency_at_half(rows[2], url, folder)
    show(rows, half)
    return 0


def measured(case: Case, url: str, folder: Path, turn: int) -> tuple[Case, float, str, str]:
    """Requests per second, p50 and p99; questions that are new differ between turns, too."""
    script = folder / "case.lua"
    script.write_text(lua(case, turn * 1_000_000))
    return (case, *wrk(url + case.path, script))


def lua(case: Case, first: int = 0) -> str:
    if case.body is None:
        return ""
    return (
        f'local n = {first}\nlocal headers = {{["Content-Type"] = "application/json"}}\n'
        f'request = function()\n  n = n + 1\n  return wrk.format("POST", nil, headers, {case.body})\nend\n'
    )


def wrk(url: str, script: Path) -> tuple[float, str, str]:
    command = ["wrk", "-t1", f"-c{CONNECTIONS}", f"-d{SECONDS}s", "--latency", "-s", str(script), url]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert "Non-2xx" not in text, text
    found = dict(line.split()[:2] for line in text.splitlines() if line.strip().startswith(("50%", "99%")))
    rate = next(line.split()[1] for line in text.splitlines() if line.startswith("Requests/sec"))
    return float(rate), found["50%"], found["99%"]


def latency_at_half(row: tuple[Case, float, str, str], url: str, folder: Path) -> str:
    """Latency of a new question at half its rate: each connection waits between two requests."""
    case, rate, _, _ = row
    script = folder / "half.lua"
    pause_ms = 1000.0 * CONNECTIONS / (rate / 2)
    script.write_text(lua(case) + f"delay = function() return {pause_ms:.3f} end\n")
    runs = [wrk(url + case.path, script) for _ in range(ROUNDS)]
    reached, p50, p99 = min(runs, key=lambda run: milliseconds(run[2]))
    return f"{case.name}, at half load ({reached:.0f} requests/s): p50 {p50}, p99 {p99}"


def milliseconds(text: str) -> float:
    """What wrk writes, such as 900us, 1.42ms or 1.20s."""
    unit = next(unit for unit in ("us", "ms", "s") if text.endswith(unit))
    return float(text.removesuffix(unit)) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def show(rows: list[tuple[Case, float, str, str]], half: str) -> None:
    """Print the table; the gain is the rate of a kept answer over that of the same question asked anew."""
    print(
        f"api | {datetime.now(UTC):%Y-%m-%d} | {machine()} | "
        f"wrk, {CONNECTIONS} connections, best of {ROUNDS} x {SECONDS} s\n"
    )
    print(f"{'what':40}{'requests/s':>12}{'p50':>10}{'p99':>10}{'gain':>8}")
    for place, (case, rate, p50, p99) in enumerate(rows):
        gain = f"{rate / rows[place + 1][1]:.1f}" if case.kept else ""
        print(f"{case.name:40}{rate:12.0f}{p50:>10}{p99:>10}{gain:>8}")
    print(f"\n{half}")


@contextmanager
def service(folder: Path, store: str = "", queue_wait_s: float = 10.0) -> Iterator[str]:
    """The service in a process of its own, without limits of rate and access log, by default without a store."""
    (folder / "benched.py").write_text(APP)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"EPOCHCAST_STORE": store, "EPOCHCAST_RATE_PER_S": "0", "EPOCHCAST_LOG_LEVEL": "warning"}
    settings["EPOCHCAST_QUEUE_WAIT_S"] = str(queue_wait_s)
    environment = os.environ | settings | {"OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), str(Path(__file__).parents[1])])
    command = [sys.executable, "-c", RUN, str(port)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], env=environment) as process:
        try:
            wait(f"http://127.0.0.1:{port}/readyz", process)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    while process.poll() is None:
        try:
            urllib.request.urlopen(url).close()  # noqa: S310 - our own
        except OSError:
            time.sleep(0.05)
        else:
            return
    raise AssertionError("the service did not start")


if __name__ == "__main__":
    sys.exit(main())
