"""What the service does when it is asked for twice what it can: who is answered, how late, and that no upload is lost.

Run it as `python benchmarks/bench_overload.py`: it starts the service with a store of its own, finds its capacity with
16 connections that wait for their answers, then for 60 s sends requests at twice that rate, whether or not earlier
ones were answered. One request in twenty uploads 20 rows; the others ask about batch sizes that nobody asked about
before, so that no kept answer helps. Afterwards it looks for every acknowledged row in the store, and waits for the
service to answer as before.
"""

import asyncio
import itertools
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench_api import CONNECTIONS, service
from machine import machine

SECONDS = float(os.environ.get("EPOCHCAST_BENCH_SECONDS", "60"))
WARM_UP_S, CAPACITY_S = 3.0, 10.0
TIMES_CAPACITY = 2.0
UPLOAD_EVERY, ROWS = 20, 20
MOST_CONNECTIONS = 900
CLIENTS = 100
COLUMNS = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms,source"
LOST = 0  # status of a request whose connection broke


@dataclass(slots=True)
class Answer:
    """One request: what was sent, what came back, and how long after it was due."""

    source: str | None
    status: int
    seconds: float


@dataclass(slots=True)
class Target:
    """Where the service listens, and the key that uploads."""

    port: int
    key: str
    number: Iterator[int]
    client: Iterator[int]

    def request(self) -> tuple[str | None, bytes]:
        """The next request, and the name by which its rows are found again if it is an upload."""
        n = next(self.number)
        if n % UPLOAD_EVERY == 0:
            source = f"overload {n}"
            rows = (
                f"Tesla T4,resnet50,224,{8 + row},fp32,{100 + row + n / 1e6},{source}" for row in range(ROWS)
            )
            return source, self._post("/v1/measurements", "text/csv", "\n".join([COLUMNS, *rows]))
        sizes = f"[8,16,32,64,{65 + n % 60000}]"
        question = f'{{"cnn":"resnet50","gpus":["T4"],"batch_sizes":{sizes},"samples":{1000 + n}}}'
        return None, self._post("/v1/predictions", "application/json", question)

    def _post(self, path: str, form: str, body: str) -> bytes:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: {form}\r\nContent-Length: {len(body)}\r\n"
        )
        client = (
            f"X-Forwarded-For: 10.0.0.{next(self.client) % CLIENTS}\r\n"  # an address has its share alone
        )
        return f"{head}{client}Authorization: Bearer {self.key}\r\n\r\n{body}".encode()


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def asked(connection: Connection, content: bytes) -> int:
    """Send one request over a connection that is kept, and read the whole answer; gives its status."""
    reader, writer = connection
    writer.write(content)
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")
    )
    await reader.readexactly(length)
    return int(head.split(b" ", 2)[1])


async def capacity(target: Target, seconds: float) -> list[Answer]:
    """Answers that connections get which wait for each before they ask again."""
    answers: list[Answer] = []
    stop = time.perf_counter() + seconds

    async def one() -> None:
        connection = await asyncio.open_connection("127.0.0.1", target.port)
        while time.perf_counter() < stop:
            began = time.perf_counter()
            source, content = target.request()
            answers.append(Answer(source, await asked(connection, content), time.perf_counter() - began))
        connection[1].close()

    await asyncio.gather(*(one() for _ in range(CONNECTIONS)))
    return answers


async def overload(target: Target, rate: float, seconds: float) -> list[Answer]:
    """Answers to requests that are sent when they are due, at random moments of the given mean rate."""
    answers: list[Answer] = []
    idle: list[Connection] = []
    opened = 0

    async def one(due: float) -> None:
        nonlocal opened
        source, content = target.request()
        connection: Connection | None = None
        try:
            while idle and (connection := idle.pop())[0].at_eof():  # the service closed what was not used
                connection[1].close()
                opened -= 1
                connection = None
            if connection is None:
                opened += 1
                connection = await asyncio.open_connection("127.0.0.1", target.port)
            answers.append(Answer(source, await asked(connection, content), time.perf_counter() - due))
            idle.append(connection)
        except (OSError, asyncio.IncompleteReadError):
            opened -= 1
            answers.append(Answer(source, LOST, time.perf_counter() - due))

    chance = random.Random(0)  # noqa: S311 - arrival times
    began = due = time.perf_counter()
    unsent = 0
    async with asyncio.TaskGroup() as tasks:
        while due < began + seconds:
            due += chance.expovariate(rate)
            if (pause := due - time.perf_counter()) > 0:
                await asyncio.sleep(pause)
            if idle or opened < MOST_CONNECTIONS:
                tasks.create_task(one(due))
            else:
                unsent += 1
    if unsent:
        print(f"{unsent} requests found {MOST_CONNECTIONS} connections waiting and were not sent.")
    return answers


async def recovery(target: Target, usual_s: float) -> float:
    """Seconds until ten requests in a row are answered as fast as 99 % of them were before the overload."""
    began, good, since = time.perf_counter(), 0, 0.0
    connection = await asyncio.open_connection("127.0.0.1", target.port)
    while good < 10:
        sent = time.perf_counter()
        if good == 0:
            since = sent
        _source, content = target.request()
        fine = await asked(connection, content) in (200, 201) and time.perf_counter() - sent <= usual_s
        good = good + 1 if fine else 0
        assert time.perf_counter() - began < 60, "no recovery within a minute"
    return since - began


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = f"sqlite:///{folder / 'store.db'}"
        key = new_key(store)
        with service(folder, store) as url:
            asyncio.run(
                measured(
                    Target(int(url.rsplit(":", 1)[1]), key, itertools.count(1), itertools.count(1)), store
                )
            )
    return 0


async def measured(target: Target, store: str) -> None:
    await capacity(target, WARM_UP_S)
    before = await capacity(target, CAPACITY_S)
    most = len(before) / CAPACITY_S
    usual_s = quantile(taken(before), 0.99)
    print(f"overload | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    print(f"capacity: {most:.0f} requests/s, {CONNECTIONS} connections; {latencies(taken(before))}")
    answers = await overload(target, TIMES_CAPACITY * most, SECONDS)
    back_s = await recovery(target, usual_s)
    print(
        f"sent: {len(answers) / SECONDS:.0f} requests/s for {SECONDS:g} s, {TIMES_CAPACITY:g} x the capacity"
    )
    for status, count in sorted(Counter(answer.status for answer in answers).items()):
        of_status = [answer.seconds for answer in answers if answer.status == status]
        print(f"{status or 'broken':>8}: {count / len(answers):6.1%}  {latencies(of_status)}")
    acknowledged = {answer.source for answer in answers if answer.source and answer.status == 201}
    print(f"uploads acknowledged: {len(acknowledged)}, lost: {len(acknowledged - stored(store))}")
    print(f"recovery: answered as before after {back_s:.2f} s")


def taken(answers: list[Answer]) -> list[float]:
    return [answer.seconds for answer in answers if answer.status in (200, 201)]


def latencies(seconds: list[float]) -> str:
    return f"p50 {quantile(seconds, 0.5) * 1e3:.0f} ms, p99 {quantile(seconds, 0.99) * 1e3:.0f} ms"


def quantile(seconds: list[float], share: float) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(share * len(seconds)))]


def new_key(store: str) -> str:
    from api.store.keys import add_key
    from epochcast.api import open_store

    return add_key(open_store(store), "overload benchmark")


def stored(store: str) -> set[str]:
    """Sources of which every row is in the store."""
    from sqlalchemy import text

    from epochcast.api import open_store

    with open_store(store).connect() as connection:
        found = connection.execute(text("select source, count(*) from measurements group by source"))
        return {source for source, count in found if count == ROWS}


if __name__ == "__main__":
    sys.exit(main())
