"""What a question costs that nobody asked before: CPU time, time over HTTP, and the first one after a start.

Run it as `python benchmarks/bench_cold.py`: every question has other batch sizes and another number of samples, so that
no kept answer helps. CPU time is that of the service's own thread: other jobs lengthen it less than they do waiting.
"""

import http.client
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench_api import CONNECTIONS, service
from machine import machine

QUESTIONS = 100
CHANCE = random.Random(0)  # noqa: S311 - no secret


def question(gpus: list[str]) -> dict[str, Any]:
    """One that was not asked before: ten batch sizes."""
    sizes = sorted(CHANCE.sample(range(1, 60_000), 10))
    return {"cnn": "resnet50", "gpus": gpus, "batch_sizes": sizes, "samples": CHANCE.randrange(1, 10**9)}


def cpu_ms(gpus: list[str]) -> float:
    """Median CPU time from the body to the answer, ms."""
    from functools import partial

    from api.parsing import _from_body
    from api.questions import PredictionQuestion
    from api.routes.predictions import answer_to
    from api.serving import ServingState
    from api.settings import Settings

    state, found = ServingState(Settings(store="")), list[float]()
    answer = partial(answer_to, max_rows=20_000)
    for _ in range(QUESTIONS // 2):
        body = json.dumps(question(gpus)).encode()
        began = time.thread_time()
        _from_body(body, PredictionQuestion, answer, state.model.current, state.offers)
        found.append(time.thread_time() - began)
    return 1e3 * statistics.median(found)


def asked(port: int, gpus: list[str], times: int) -> tuple[list[float], Counter[int]]:
    """Seconds of each answer on one connection, and the statuses."""
    connection, seconds, statuses = (
        http.client.HTTPConnection("127.0.0.1", port),
        list[float](),
        Counter[int](),
    )
    for _ in range(times):
        began = time.perf_counter()
        body = json.dumps(question(gpus))
        connection.request("POST", "/v1/predictions", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        seconds.append(time.perf_counter() - began)
        statuses[answer.status] += 1
    return seconds, statuses


def main() -> int:
    print(f"cold | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    for name, gpus in (("one GPU", ["T4"]), ("all GPUs", ["all"])):
        print(f"CPU time, {name} x 10 batch sizes: {cpu_ms(gpus):.1f} ms")
    with tempfile.TemporaryDirectory() as folder, service(Path(folder)) as url:
        port = int(url.rpartition(":")[2])
        first, _ = asked(port, ["all"], 1)
        print(f"first question after the start, all GPUs: {1e3 * first[0]:.0f} ms")
        for name, gpus in (("one GPU", ["T4"]), ("all GPUs", ["all"])):
            seconds, _ = asked(port, gpus, QUESTIONS)
            print(f"one connection, {name}: p50 {1e3 * statistics.median(seconds):.1f} ms")
        with ThreadPoolExecutor(CONNECTIONS) as threads:
            found = list(threads.map(lambda _: asked(port, ["all"], 20)[1], range(CONNECTIONS)))
        statuses = sum(found, Counter[int]())
        print(f"{CONNECTIONS} connections, all GPUs: {dict(statuses)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
