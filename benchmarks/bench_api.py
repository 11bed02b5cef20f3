"""How fast the service answers, beside an empty endpoint of the same application and beside ready-made bytes.

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
CNNS = (
    "resnet50",
    "resnet18",
    "vgg16",
    "mobilenet_v2",
    "densenet121",
    "efficientnet_b0",
    "alexnet",
    "googlenet",
)
GPUS = ("T4", "V100-SXM2-16GB", "A100-SXM4-40GB", "H200", "K80", "RTX 3090", "P100-PCIE-16GB", "L4")

APP = """
import api.main
from fastapi import Request, Response

def create_app():
    app = api.main.create_app()

    @app.get("/empty")
    async def empty():
        return Response(b"")

    @app.post("/ready-made")
    async def ready_made(request: Request):
        if not hasattr(app.state, "ready_made"):
            app.state.ready_made = await request.body()
        return Response(app.state.ready_made, media_type="application/json")

    routes = app.router.routes
    routes[:] = routes[-2:] + routes[:-2]  # tried first, as those of predictions nearly are: routing takes its time
    return app
"""


@dataclass
class Case:
    """What is asked: a path, and Lua that makes the body of request n."""

    name: str
    path: str
    body: str | None = None
    beside: str | None = None
    goal: float | None = None


def question(gpus: str, form: str, more: str, cnn: str = '"resnet50"') -> str:
    return f"""'{{"cnn":' .. '{cnn}' .. ',"gpus":{gpus},"batch_sizes":{SIZES},"form":"{form}",' .. {more} .. '}}'"""


def cases() -> list[Case]:
    imagenet = """'"data_set":"imagenet"'"""
    samples = """'"samples":' .. (1000 + n)"""
    one, all_gpus = '["T4"]', '["all"]'
    many = (
        '\'{"cnn":"\' .. cnns[1 + n % #cnns] .. \'","gpus":["\' .. gpus[1 + math.floor(n / #cnns) % #gpus] .. \'"],'
        f'"batch_sizes":{SIZES},"data_set":"imagenet"}}\''
    )
    new = SIZES.replace("512]", "' .. (513 + n % 60000) .. ']")
    return [
        Case("an empty endpoint", "/empty"),
        Case("(a) one CNN, one GPU, 10 batch sizes", "/v1/predictions", question(one, "rows", imagenet), "empty", 0.5),
        Case("    64 such questions in turn", "/v1/predictions", many, "empty"),
        Case("    samples that nobody asked about", "/v1/predictions", question(one, "rows", samples), "empty"),
        Case(
            "    a batch size that nobody asked about", "/v1/predictions",
            question(one, "rows", imagenet).replace(SIZES, new), "empty",
        ),
        Case("the same bytes, ready-made", "/ready-made", "'x'"),
        Case(
            "(b) one CNN, all GPUs, 10 batch sizes", "/v1/predictions",
            question(all_gpus, "columns", imagenet), "ready", 0.5,
        ),
        Case("    samples that nobody asked about", "/v1/predictions", question(all_gpus, "columns", samples), "ready"),
    ]  # fmt: skip


def main() -> int:
    if shutil.which("wrk") is None:
        print("wrk is not installed: apt-get install wrk", file=sys.stderr)
        return 0
    with tempfile.TemporaryDirectory() as name, service(Path(name)) as url:
        folder = Path(name)
        post(url + "/ready-made", post(url + "/v1/predictions", question_text('["all"]', "columns")))
        rounds = [[measured(case, url, folder, turn) for case in cases()] for turn in range(ROUNDS)]
        rows = [max(runs, key=lambda row: row[1]) for runs in zip(*rounds, strict=True)]
        half = latency_at_half(rows[1], url, folder)
    show(rows, half)
    return 0


def question_text(gpus: str, form: str) -> bytes:
    return f'{{"cnn":"resnet50","gpus":{gpus},"batch_sizes":{SIZES},"form":"{form}","data_set":"imagenet"}}'.encode()


def measured(case: Case, url: str, folder: Path, turn: int) -> tuple[Case, float, str, str]:
    """Requests per second, p50 and p99; what nobody asked about is something else in each turn."""
    script = folder / "case.lua"
    script.write_text(lua(case, turn * 1_000_000))
    return (case, *wrk(url + case.path, script))


def lua(case: Case, first: int = 0) -> str:
    if case.body is None:
        return ""
    words = "\n".join(
        f"{name} = {{{', '.join(repr(w) for w in of)}}}" for name, of in (("cnns", CNNS), ("gpus", GPUS))
    )
    return (
        f'{words}\nlocal n = {first}\nlocal headers = {{["Content-Type"] = "application/json"}}\n'
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
    """Latency of (a) at half its rate: each connection waits between two requests."""
    case, rate, _, _ = row
    script = folder / "half.lua"
    pause_ms = 1000.0 * CONNECTIONS / (rate / 2)
    script.write_text(lua(case) + f"delay = function() return {pause_ms:.3f} end\n")
    runs = [wrk(url + case.path, script) for _ in range(ROUNDS)]
    reached, p50, p99 = min(runs, key=lambda run: milliseconds(run[2]))
    return f"(a) at half load ({reached:.0f} requests/s): p50 {p50}, p99 {p99} (goal: p99 <= 20 ms)"


def milliseconds(text: str) -> float:
    """What wrk writes, such as 900us, 1.42ms or 1.20s."""
    unit = next(unit for unit in ("us", "ms", "s") if text.endswith(unit))
    return float(text.removesuffix(unit)) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def show(rows: list[tuple[Case, float, str, str]], half: str) -> None:
    base = {"empty": rows[0][1], "ready": next(rate for case, rate, *_ in rows if case.path == "/ready-made")}
    print(
        f"api | {datetime.now(UTC):%Y-%m-%d} | {machine()} | "
        f"wrk, {CONNECTIONS} connections, best of {ROUNDS} x {SECONDS} s\n"
    )
    print(f"{'what':44}{'requests/s':>12}{'p50':>10}{'p99':>10}{'ratio':>8}{'goal':>8}")
    for case, rate, p50, p99 in rows:
        ratio = f"{rate / base[case.beside]:.2f}" if case.beside else ""
        print(
            f"{case.name:44}{rate:12.0f}{p50:>10}{p99:>10}{ratio:>8}{f'>= {case.goal}' if case.goal else '':>8}"
        )
    print(f"\n{half}")


@contextmanager
def service(folder: Path, store: str = "") -> Iterator[str]:
    """The service in a process of its own, without limits of rate and access log, by default without a store."""
    (folder / "benched.py").write_text(APP)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    settings = {"EPOCHCAST_STORE": store, "EPOCHCAST_RATE_PER_S": "0", "EPOCHCAST_LOG_LEVEL": "warning"}
    environment = os.environ | settings | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "uvicorn", "benched:create_app", "--factory", "--app-dir", str(folder)]
    command += [
        "--port",
        str(port),
        "--no-access-log",
        "--log-level",
        "warning",
        "--timeout-keep-alive",
        "75",
    ]
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


def post(url: str, content: bytes) -> bytes:
    asked = urllib.request.Request(url, content, {"Content-Type": "application/json"})  # noqa: S310 - our own
    with urllib.request.urlopen(asked) as answer:  # noqa: S310
        return bytes(answer.read())


if __name__ == "__main__":
    sys.exit(main())
