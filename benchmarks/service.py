"""Rates and latencies of the service: `python benchmarks/service.py [MEASUREMENT ...]`.

`speed` asks what nobody asked before over 16 connections; `day` is fourteen clients beside five burning processes.
Without an argument both run. Each starts `epochcast serve` for itself, on Linux.
"""

import asyncio
import gc
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from machine import heading

ROOT = Path(__file__).parents[1]
CONNECTIONS = 16
SECONDS = float(os.environ.get("EPOCHCAST_BENCH_SECONDS", "30"))
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Service:
    """`epochcast serve` without a store, in a process that sees at most 1,024 files, as many systems let it."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        command = f"ulimit -n 1024; exec {sys.executable} -m epochcast serve --port {self.port} --store ''"
        variables = os.environ | {"EPOCHCAST_LOG_LEVEL": "warning", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            ["bash", "-c", command], cwd=ROOT, env=variables, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> "Service":
        while not self._is_healthy():
            assert self.process.poll() is None, "the service did not start"
            time.sleep(0.05)
        return self

    def _is_healthy(self) -> bool:
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=90):
                return True
        except OSError:
            return False

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def cpu_s(self) -> float:
        """Processor time of the service so far, in s."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def request(path: str, question: dict[str, Any]) -> bytes:
    """Bytes of a POST request for a connection that stays open."""
    body = json.dumps(question)
    head = f"Host: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return f"POST {path} HTTP/1.1\r\n{head}\r\n{body}".encode()


async def answered_status(connection: Connection, content: bytes) -> int:
    """Send one request and read the whole answer; gives its status."""
    reader, writer = connection
    writer.write(content)
    head = (await reader.readuntil(b"\r\n\r\n")).lower()
    await reader.readexactly(int(head.partition(b"content-length:")[2].split(b"\r\n")[0]))
    return int(head.split(b" ", 2)[1])


async def clients(
    port: int,
    count: int,
    make: Callable[[int], bytes],
    more: Callable[[], bool],
    pause_s: float = 0.0,
    address: str = "127.0.0.1",
) -> list[tuple[int, float]]:
    """Status and seconds of answers to clients that each wait for one before they ask again."""
    answers: list[tuple[int, float]] = []
    numbers = itertools.count(1)

    async def one() -> None:
        connection = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
        while more():
            began = time.perf_counter()
            status = await answered_status(connection, make(next(numbers)))
            answers.append((status, time.perf_counter() - began))
            await asyncio.sleep(max(0.0, pause_s - answers[-1][1]))
        connection[1].close()

    await asyncio.gather(*(one() for _ in range(count)))
    return answers


def until(seconds: float) -> Callable[[], bool]:
    """Function that says whether `seconds` from now are not yet over."""
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() < end


def new_question(gpus: list[str], number: int, **more: object) -> dict[str, Any]:
    """A question of ten batch sizes that differs for every `number`."""
    sizes = sorted(random.Random(number).sample(range(1, 60_000), 10))  # noqa: S311 - no secret
    return {"cnn": "resnet50", "gpus": gpus, "batch_sizes": sizes, "samples": number, **more}


def latencies(answers: list[tuple[int, float]]) -> str:
    """Shares, medians and 99th percentiles by status."""
    lines = []
    for status, count in sorted(Counter(status for status, _ in answers).items()):
        seconds = sorted(taken_s for own_status, taken_s in answers if own_status == status)
        p50, p99 = (1e3 * seconds[min(count - 1, int(share * count))] for share in (0.5, 0.99))
        lines.append(f"{status or 'broken'}: {count / len(answers):.1%}, p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    return "; ".join(lines)


def speed() -> None:
    """Answers to new questions over 16 connections beside the core's own answers, in turns of a few seconds.

    The rates have the same other work beside them, if the machine has any; processor times hold under any load.
    """
    for gpus, form in ((["T4"], "rows"), (["all"], "rows"), (["all"], "columns")):
        core, answers, service_s, cpu_s = CoreAnswers(gpus, form), list[tuple[int, float]](), 0.0, 0.0
        with Service() as service:
            ask = partial(asked_anew, service.port, gpus, form)
            ask(2, until(2))
            for turn in range(1, 6):
                core.compute(until(SECONDS / 20))
                cpu_before, began = service.cpu_s(), time.perf_counter()
                answers += ask(CONNECTIONS, until(SECONDS / 10), first=turn * 10**5)
                service_s += time.perf_counter() - began
                cpu_s += service.cpu_s() - cpu_before
        rate, core_rate = len(answers) / service_s, core.count / core.seconds
        service_ms, core_ms = 1e3 * cpu_s / len(answers), 1e3 * core.cpu_s / core.count
        print(
            f"speed, {gpus[0]} x 10 as {form}, new: {rate:.0f}/s, the core by itself {core_rate:.0f}/s: share "
            f"{rate / core_rate:.2f}; processor time of an answer {service_ms:.1f} ms, the core's {core_ms:.1f} ms: "
            f"share {core_ms / service_ms:.2f}; {latencies(answers)}",
            flush=True,
        )


class CoreAnswers:
    """The core's own answers to new questions in this process, on one core: how many, and what they took."""

    def __init__(self, gpus: list[str], form: str) -> None:
        from predictor.models.served import Model

        self.gpus, self.form, self.model = gpus, form, Model.load()
        self.count, self.seconds, self.cpu_s = 0, 0.0, 0.0
        self._answer(0)
        gc.collect()
        gc.freeze()  # as the service does

    def compute(self, more: Callable[[], bool]) -> None:
        """Answer on and on."""
        began, cpu_began = time.perf_counter(), time.thread_time()
        while more():
            self.count += 1
            self._answer(self.count)
        self.seconds += time.perf_counter() - began
        self.cpu_s += time.thread_time() - cpu_began

    def _answer(self, number: int) -> None:
        from predictor.answers.answer import answer
        from predictor.answers.question import Question

        answers = answer(Question(**new_question(self.gpus, number + 10**7), model=self.model))
        _ = answers.records() if self.form == "rows" else answers.columns


def asked_anew(
    port: int, gpus: list[str], form: str, count: int, more: Callable[[], bool], first: int = 1
) -> list[tuple[int, float]]:
    """Answers to questions that were not asked before."""
    question = partial(new_question, gpus, form=form)
    return asyncio.run(clients(port, count, lambda n: request("/v1/predictions", question(first + n)), more))


def day() -> None:
    """Fourteen clients beside five burning processes: how many of their requests are answered, and in which time.

    Ten users ask a question a second, a notebook compares in eight threads, another one asks question after question in
    a plain loop, a third compares the same training for other numbers of epochs, and one sends its quick profile.
    """
    names = ("resnet50", "vgg16", "densenet121", "efficientnet_b0")
    gpus = ["T4", "V100-SXM2-16GB", "A100-SXM4-40GB", "H200", "A10G", "H100 SXM"]
    runs = {
        "gpu": ["L40S"] * 5,
        "cnn": ["resnet50"] * 5,
        "image_size": [224] * 5,
        "batch_size": [8, 16, 32, 64, 128],
        "precision": ["tf32"] * 5,
        "iteration_time_ms": [40.0, 55.0, 96.0, 190.5, 380.0],
    }

    predict, compare = partial(request, "/v1/predictions"), partial(request, "/v1/comparisons")

    def user(number: int, n: int) -> bytes:
        return predict(new_question(gpus, 1000 * number + n))

    kinds: dict[str, list[tuple[Callable[[int], bytes], int, float]]] = {
        "ten users": [(partial(user, number), 1, 1.0) for number in range(1, 11)],
        "eight threads that compare": [(lambda n: compare({"cnn": names[n % 4], "samples": n}), 8, 0.0)],
        "a plain loop": [(lambda n: predict(new_question(["T4"], 10**6 + n)), 1, 0.0)],
        "other epochs": [(lambda n: compare({"cnn": "resnet18", "samples": 50_000, "epochs": n}), 1, 0.0)],
        "a profile": [(lambda n: predict(new_question(["L40S"], n, measurements=runs)), 1, 1.0)],
    }

    async def all_of(port: int) -> list[list[tuple[int, float]]]:
        more = until(SECONDS)
        everyone = [client for clients_of_kind in kinds.values() for client in clients_of_kind]
        return await asyncio.gather(
            *(
                clients(port, count, make, more, pause_s, f"127.0.3.{number}")
                for number, (make, count, pause_s) in enumerate(everyone, start=1)
            )
        )

    with Service() as service, burning(5):
        answers_by_client = iter(asyncio.run(all_of(service.port)))
    for kind, clients_of_kind in kinds.items():
        answers = [answer for _ in clients_of_kind for answer in next(answers_by_client)]
        print(f"day, {kind}, {len(answers)} requests: {latencies(answers)}", flush=True)


@contextmanager
def burning(count: int) -> Iterator[None]:
    """Processes that each take a core, if they get one."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


MEASUREMENTS = {run.__name__: run for run in (speed, day)}


def main(names: list[str]) -> None:
    if unknown := [name for name in names if name not in MEASUREMENTS]:
        sys.exit(f"nothing is called {unknown[0]!r}. Valid: {', '.join(MEASUREMENTS)}.")
    print(heading("service", load=True), flush=True)
    for name in names or MEASUREMENTS:
        MEASUREMENTS[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
