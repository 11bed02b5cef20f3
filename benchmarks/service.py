"""What the service takes, and what one client can do to the others: `python benchmarks/service.py [what ...]`.

`speed` asks what nobody asked before over 16 connections; `day` is fourteen clients beside five burning processes;
`memory` asks 50,000 distinct questions; `overload` sends twice what it can take; `attacks` attack it from one
address or some while a victim at another asks. Without an argument all run. Each starts `epochcast serve` for
itself, on Linux.
"""

import asyncio
import gc
import gzip
import http.client
import itertools
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from machine import machine

ROOT = Path(__file__).parents[1]
CONNECTIONS, QUESTIONS = 16, 50_000
SECONDS = float(os.environ.get("EPOCHCAST_BENCH_SECONDS", "30"))
ATTACKER, VICTIM = "127.0.0.2", "127.0.0.9"
JSON = "application/json"
USUAL = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [64]}
HEAD = b"POST /v1/predictions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
LARGE = json.dumps(USUAL | {"gpus": ["all"], "batch_sizes": list(range(1, 121))})
KEPT = json.dumps(USUAL | {"gpus": ["all"], "batch_sizes": list(range(1, 21))}).encode()
MODES = {
    "precisions": ["fp32", "tf32", "fp16", "amp_fp16", "amp_bf16"],
    "memory_formats": ["nchw", "channels_last"],
}
COLUMNS = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms"
Counted = Counter[object]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Service:
    """`epochcast serve` in a process that sees at most 1,024 files, as many systems let it."""

    def __init__(self, store: str = "", **environment: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        command = (
            f"ulimit -n 1024; exec {sys.executable} -m epochcast serve --port {self.port} --store '{store}'"
        )
        given = os.environ | {"EPOCHCAST_LOG_LEVEL": "warning", "OMP_NUM_THREADS": "1", **environment}
        self.process = subprocess.Popen(
            ["bash", "-c", command], cwd=ROOT, env=given, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> "Service":
        while posted(self.port, "/healthz", None, address="127.0.0.1") != 200:
            assert self.process.poll() is None, "the service did not start"
            time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def mib(self, what: str = "VmHWM") -> int:
        """Its memory now (VmRSS) or at its highest."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(what)).split()[1]) // 1024

    def cpu_s(self) -> float:
        """Processor time that it has taken."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def posted(
    port: int, path: str, body: bytes | None, form: str = JSON, address: str = ATTACKER, **more: str
) -> object:
    """The status of an answer to a POST, or without a body to a GET; or what went wrong."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90, source_address=(address, 0))
    try:
        connection.request("GET" if body is None else "POST", path, body, {"Content-Type": form, **more})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()
    return answer.status


def request(path: str, body: str, form: str = JSON, **headers: str) -> bytes:
    """A POST as it is sent over a connection that is kept."""
    given = {"Host": "127.0.0.1", "Content-Type": form, "Content-Length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in given.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n{body}".encode()


async def asked(connection: Connection, content: bytes) -> int:
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
            status = await asked(connection, make(next(numbers)))
            answers.append((status, time.perf_counter() - began))
            await asyncio.sleep(max(0.0, pause_s - answers[-1][1]))
        connection[1].close()

    await asyncio.gather(*(one() for _ in range(count)))
    return answers


def until(seconds: float) -> Callable[[], bool]:
    """Whether the seconds from now are not over."""
    end = time.perf_counter() + seconds
    return lambda: time.perf_counter() < end


def new_question(gpus: list[str], number: int, **more: object) -> dict[str, Any]:
    """One that was not asked before: ten batch sizes."""
    sizes = sorted(random.Random(number).sample(range(1, 60_000), 10))  # noqa: S311 - no secret
    return {"cnn": "resnet50", "gpus": gpus, "batch_sizes": sizes, "samples": number, **more}


def latencies(answers: list[tuple[int, float]]) -> str:
    """Shares, medians and 99th percentiles by status."""
    found = []
    for status, count in sorted(Counter(status for status, _ in answers).items()):
        seconds = sorted(taken for known, taken in answers if known == status)
        p50, p99 = (1e3 * seconds[min(count - 1, int(share * count))] for share in (0.5, 0.99))
        found.append(f"{status or 'broken'}: {count / len(answers):.1%}, p50 {p50:.0f} ms, p99 {p99:.0f} ms")
    return "; ".join(found)


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

        asked = new_question(self.gpus, number + 10**7)
        found = answer(
            Question(
                asked["cnn"], self.gpus, asked["batch_sizes"], samples=asked["samples"], model=self.model
            )
        )
        _ = found.records() if self.form == "rows" else found.columns


def asked_anew(
    port: int, gpus: list[str], form: str, count: int, more: Callable[[], bool], first: int = 1
) -> list[tuple[int, float]]:
    """Answers to questions that were not asked before."""

    def make(number: int) -> bytes:
        return request("/v1/predictions", json.dumps(new_question(gpus, first + number, form=form)))

    return asyncio.run(clients(port, count, make, more))


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

    def user(number: int, n: int) -> bytes:
        return request("/v1/predictions", json.dumps(new_question(gpus, 1000 * number + n)))

    def notebook(n: int) -> bytes:
        return request("/v1/comparisons", json.dumps({"cnn": names[n % 4], "samples": n}))

    def loop(n: int) -> bytes:
        return request("/v1/predictions", json.dumps(new_question(["T4"], 10**6 + n)))

    def epochs(n: int) -> bytes:
        return request("/v1/comparisons", json.dumps({"cnn": "resnet18", "samples": 50_000, "epochs": n}))

    def profile(n: int) -> bytes:
        return request("/v1/predictions", json.dumps(new_question(["L40S"], n, measurements=runs)))

    kinds: dict[str, list[tuple[Callable[[int], bytes], int, float]]] = {
        "ten users": [(partial(user, number), 1, 1.0) for number in range(1, 11)],
        "eight threads that compare": [(notebook, 8, 0.0)],
        "a plain loop": [(loop, 1, 0.0)],
        "other numbers of epochs": [(epochs, 1, 0.0)],
        "a profile": [(profile, 1, 1.0)],
    }

    async def all_of(port: int) -> list[list[tuple[int, float]]]:
        more = until(SECONDS)
        everyone = [client for them in kinds.values() for client in them]
        return await asyncio.gather(
            *(
                clients(port, count, make, more, pause_s, f"127.0.3.{number}")
                for number, (make, count, pause_s) in enumerate(everyone, start=1)
            )
        )

    with Service() as service, burning(5):
        found = iter(asyncio.run(all_of(service.port)))
    for kind, them in kinds.items():
        answers = [answer for _ in them for answer in next(found)]
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


def memory() -> None:
    """Memory after 50,000 distinct questions about eight CNNs, at one to ten batch sizes."""
    names = (
        "resnet18", "resnet50", "vgg16", "densenet121", "mobilenet_v2", "alexnet", "googlenet", "efficientnet_b0",
    )  # fmt: skip

    def make(number: int) -> bytes:
        question = new_question(["T4"], number, cnn=names[number % 8])
        question["batch_sizes"] = question["batch_sizes"][: (1, 1, 3, 10)[number % 4]]
        return request("/v1/predictions", json.dumps(question))

    with Service() as service:
        first, left = service.mib("VmRSS"), iter(range(QUESTIONS))
        answers = asyncio.run(clients(service.port, 4, make, lambda: next(left, None) is not None))
        assert {status for status, _ in answers} == {200}
        after = f"{service.mib('VmRSS')} MiB after {len(answers):,} questions, peak {service.mib()} MiB"
    print(f"memory: {first} MiB at first, {after}")


def overload() -> None:
    """Twice as many requests as it answers, whether or not earlier ones were; one in twenty uploads 20 rows."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        key = new_key(store)
        with Service(store) as service:
            asyncio.run(overloaded(service.port, store, key))


async def overloaded(port: int, store: str, key: str) -> None:
    uploads: dict[int, str] = {}

    def make(number: int) -> bytes:
        given = {"X_Forwarded_For": f"10.0.0.{number % 100}", "Authorization": f"Bearer {key}"}
        if number % 20:
            return request("/v1/predictions", json.dumps(new_question(["T4"], number)), **given)
        uploads[number] = f"overload {number}"
        rows = (
            f"Tesla T4,resnet50,224,{8 + row},fp32,{100 + row + number / 1e6},{uploads[number]}"
            for row in range(20)
        )
        return request("/v1/measurements", "\n".join([f"{COLUMNS},source", *rows]), "text/csv", **given)

    await clients(port, CONNECTIONS, make, until(3))
    most = len(await clients(port, CONNECTIONS, lambda n: make(n + 10**6), until(10))) / 10
    answers: list[tuple[int, float]] = []
    acknowledged: set[str] = set()
    idle: list[Connection] = []

    async def one(number: int, due: float) -> None:
        status, content = 0, make(number)
        with suppress(OSError, asyncio.IncompleteReadError):
            connection = idle.pop() if idle else await asyncio.open_connection("127.0.0.1", port)
            status = await asked(connection, content)
            idle.append(connection)
        answers.append((status, time.perf_counter() - due))
        if status == 201:
            acknowledged.add(uploads[number])

    due, end = time.perf_counter(), time.perf_counter() + SECONDS
    async with asyncio.TaskGroup() as tasks:
        for number in itertools.count(2 * 10**6):
            due += random.expovariate(2 * most)
            if due > end:
                break
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            tasks.create_task(one(number, due))
    found = Counter(row["source"] for row in stored(store))
    lost = sum(found[name] != 20 for name in acknowledged)
    print(f"overload: capacity {most:.0f}/s, {len(answers) / SECONDS:.0f}/s sent; {latencies(answers)}")
    print(f"overload: {len(acknowledged)} uploads acknowledged, {lost} lost")


def new_key(store: str) -> str:
    from api.store.engine import open_store
    from api.store.keys import add_key

    return add_key(open_store(store), "benchmark")


def stored(store: str) -> Iterator[dict[str, Any]]:
    """All rows of a store."""
    from api.store.engine import open_store
    from api.store.measurements import find_rows

    engine, after = open_store(store), 0
    while (page := find_rows(engine, {}, after, 10_000)).rows:
        yield from (row.row() for row in page.rows)
        after = page.rows[-1].id


def at_once(calls: list[Callable[[], object]]) -> Counted:
    """Make calls at once; how often each answer came."""
    found: list[object] = []
    threads = [threading.Thread(target=lambda call=call: found.append(call())) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Counter(found)


def half_sent(
    port: int, content: bytes, count: int, seconds: float, addresses: tuple[str, ...] = (ATTACKER,)
) -> Counted:
    """Open connections that send a request or its beginning, and wait; how each ends."""
    held = []
    for i in range(count):
        address = addresses[i % len(addresses)], 0
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", port), 5, source_address=address))
            held[-1].sendall(content)
    time.sleep(seconds)
    closed = Counter(ended(each) for each in held)
    for each in held:
        each.close()
    return closed


def ended(connection: socket.socket) -> object:
    connection.settimeout(0.01)
    try:
        answer = connection.recv(100)
    except TimeoutError:
        return "open"
    except OSError:
        return "closed"
    return int(answer.split()[1]) if answer else "closed"


def slow_bodies(port: int) -> Counted:
    return half_sent(port, HEAD + b"Content-Length: 1000\r\n\r\n{", 270, 12)


def half_heads(port: int) -> Counted:
    return half_sent(port, b"GET /v1/gp", 1100, 12)


def endless(port: int, head: bytes, most: int) -> tuple[int, object]:
    """MiB of a header without an end that are taken, `most` at most, and how its connection ends."""
    with socket.create_connection(("127.0.0.1", port), 30, source_address=(ATTACKER, 0)) as connection:
        sent = 0
        with suppress(OSError):
            connection.sendall(head + b"X: ")
            while sent < most:
                connection.sendall(b"a" * 2**20)
                sent += 1
        return sent, ended(connection)


def large_head(port: int) -> Counted:
    sent, end = endless(port, b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n", 100)
    return Counter({f"{sent} MiB taken": 1, end: 1})


def table_of(layers: int) -> dict[str, object]:
    sides = dict.fromkeys(("in_height", "in_width", "out_height", "out_width"), 8)
    kernel = dict.fromkeys(("kernel_height", "kernel_width"), 3)
    ones = ("padding_height", "padding_width", "stride_height", "stride_width", "groups", "dilation")
    conv = {"type": "conv2d", **sides, **kernel, **dict.fromkeys(ones, 1)}
    channels = [(3 + i, 4 + i) for i in range(layers)]
    rows = [conv | {"in_channels": a, "out_channels": b, "parameters": a * b * 9} for a, b in channels]
    return {"layer_table": {"name": f"chain {random.random()}", "image_size": 8, "layers": rows}}  # noqa: S311


def sizes(count: int) -> list[int]:
    return random.sample(range(1, 60_000), count)


def questions(*made: tuple[str, Callable[[], dict[str, object]]]) -> Callable[[int], Counted]:
    """Four times each question, all at once, no two alike."""

    def attack(port: int) -> Counted:
        asked = [(f"/v1/{path}", json.dumps(make()).encode()) for path, make in made for _ in range(4)]
        return at_once([partial(posted, port, *each) for each in asked])

    return attack


zoo_question = questions(
    ("predictions", lambda: {"cnn": "densenet201", "gpus": ["all"], "batch_sizes": sizes(20), **MODES})
)
large_tables = questions(
    ("predictions", lambda: table_of(4000) | {"gpus": ["all"], "batch_sizes": sizes(100)}),
    ("comparisons", lambda: table_of(4000) | {"batch_sizes": sizes(100), "samples": 1000}),
    ("explanations", lambda: table_of(2000) | {"gpus": ["H200"], "batch_sizes": sizes(70)}),
)
largest_admitted = questions(
    ("predictions", lambda: table_of(1400) | {"gpus": ["all"], "batch_sizes": sizes(20)}),
    ("explanations", lambda: table_of(450) | {"gpus": ["H200"], "batch_sizes": sizes(10)}),
)


def nested_functions(port: int) -> Counted:
    """18 ONNX files of a kilobyte whose functions call each other ten times each."""
    from onnx import helper

    domains = [helper.make_opsetid("own", 1), helper.make_opsetid("", 17)]

    def function(level: int) -> object:
        values = ["a", *(f"v{i}" for i in range(9)), "b"]
        name, domain = (f"F{level + 1}", "own") if level < 6 else ("Relu", "")
        nodes = [helper.make_node(name, [one], [two], domain=domain) for one, two in pairwise(values)]
        return helper.make_function("own", f"F{level}", ["a"], ["b"], nodes, domains)

    image = helper.make_tensor_value_info("x", 1, (1, 3, 8, 8))
    out = helper.make_tensor_value_info("y", 1, None)
    graph = helper.make_graph([helper.make_node("F0", ["x"], ["y"], domain="own")], "g", [image], [out])
    model = helper.make_model(graph, functions=[function(i) for i in range(7)], opset_imports=domains)
    head = b'--b\r\nContent-Disposition: form-data; name="onnx"; filename="x.onnx"\r\n\r\n'
    body = head + model.SerializeToString() + b"\r\n--b--\r\n"
    return at_once([lambda: posted(port, "/v1/cnns", body, "multipart/form-data; boundary=b")] * 18)


def empty_members(port: int) -> Counted:
    empty = gzip.compress(b"", mtime=0)
    body = empty * (7_900_000 // len(empty))
    call = lambda: posted(port, "/v1/predictions", body, **{"Content-Encoding": "gzip"})  # noqa: E731
    return at_once([call] * 8)


def slow_readers(port: int) -> Counted:
    return half_sent(port, request("/v1/predictions", LARGE), 60, 25)


def many_anchors(port: int) -> Counted:
    """Questions of 15 kB whose 200 anchors correct all GPUs."""
    known = ("T4", "H200", "A10G", "L4", "V100-SXM2-16GB", "A100-SXM4-40GB")

    def make() -> bytes:
        anchors = [
            {"gpu": random.choice(known), "batch_size": size, "iteration_time_ms": 10.0 * size}  # noqa: S311
            for size in sizes(200)
        ]
        return json.dumps(USUAL | {"gpus": ["all"], "batch_sizes": sizes(20), "anchors": anchors}).encode()

    return at_once([partial(posted, port, "/v1/predictions", make()) for _ in range(8)])


def many_runs(runs: int, port: int) -> Counted:
    """Questions with runs of one CNN on one GPU, at as many batch sizes."""
    given = {
        "gpu": ["H200"] * runs,
        "cnn": ["resnet50"] * runs,
        "image_size": [224] * runs,
        "batch_size": list(range(1, runs + 1)),
        "precision": ["tf32"] * runs,
        "iteration_time_ms": [10.0 * size for size in range(1, runs + 1)],
    }

    def make() -> bytes:
        asked = USUAL | {"gpus": ["H200"], "batch_sizes": sizes(200), "measurements": given}
        return json.dumps(asked).encode()

    return at_once([partial(posted, port, "/v1/predictions", make()) for _ in range(6)])


def large_trailers(port: int) -> Counted:
    """Eight requests whose bodies in chunks end with a header of 30 MiB."""
    head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    return at_once([lambda: "all taken" if endless(port, head, 30)[0] == 30 else "closed"] * 8)


def many_sizes(port: int) -> Counted:
    """CNNs of many layers, each at an image size that nobody asked for."""
    paths = [f"/v1/cnns/densenet201?image_size={size}" for size in range(300, 360)]
    return at_once([partial(posted, port, path, None) for path in paths])


def packed_bodies(port: int) -> Counted:
    """Thirty bodies that unpack to eight MiB."""
    body = gzip.compress(b"[" + b" " * (8 * 2**20 - 1), 1, mtime=0)
    call = partial(posted, port, "/v1/predictions", body, **{"Content-Encoding": "gzip"})
    return at_once([call] * 30)


def many_readers(port: int) -> Counted:
    """80 readers of 20 addresses that ask for large answers and do not read them."""
    addresses = tuple(f"127.0.4.{number}" for number in range(1, 21))
    return half_sent(port, request("/v1/predictions", LARGE), 80, 40, addresses)


def slow_threads(port: int) -> Counted:
    """16 threads of one client that each read three large answers slowly, and parse them."""

    def one(number: int) -> str:
        asked = USUAL | {"gpus": ["all"], "batch_sizes": sorted(sizes(100)), "samples": number}
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300, source_address=(ATTACKER, 0))
        try:
            connection.request("POST", "/v1/predictions", json.dumps(asked), {"Content-Type": JSON})
            answer, parts = connection.getresponse(), list[bytes]()
            while part := answer.read(2**20):
                parts.append(part)
                time.sleep(0.5)
            json.loads(b"".join(parts))
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"lost: {type(error).__name__}"
        finally:
            connection.close()
        return f"{answer.status}, whole"

    def three(number: int) -> list[str]:
        return [one(3 * number + i) for i in range(3)]

    with ThreadPoolExecutor(16) as threads:
        return Counter(each for them in threads.map(three, range(16)) for each in them)


def packed_readers(port: int) -> Counted:
    """60 connections, of an address each, that ask for one large answer, gzipped, again and again for 10 s.

    They are in a process of their own, so that the victim does not wait for Python's lock.
    """
    with ProcessPoolExecutor(1) as process:
        return process.submit(_packed_readers, port).result()


def _packed_readers(port: int) -> Counted:
    content = request("/v1/predictions", KEPT.decode(), Accept_Encoding="gzip")

    async def readers() -> list[list[tuple[int, float]]]:
        more = until(10)
        addresses = [f"127.0.1.{number + 1}" for number in range(60)]
        return await asyncio.gather(
            *(clients(port, 1, lambda _: content, more, address=address) for address in addresses)
        )

    return Counter(status for answers in asyncio.run(readers()) for status, _ in answers)


ATTACKS: dict[str, Callable[[int], Counted]] = {
    "270 slow bodies": slow_bodies,
    "1,100 half-sent heads": half_heads,
    "a header of 100 MiB": large_head,
    "300 bytes: all GPUs x 10 modes x 20 sizes": zoo_question,
    "layer tables of 4,000 layers": large_tables,
    "the largest questions admitted": largest_admitted,
    "18 ONNX files of nested functions": nested_functions,
    "8 bodies of empty gzip members": empty_members,
    "60 readers that do not read": slow_readers,
    "60 connections on a kept answer, gzipped": packed_readers,
    "8 questions with 200 anchors": many_anchors,
    "6 questions with 9,700 runs of a CNN": partial(many_runs, 9_700),
    "6 questions with 500 runs of a CNN": partial(many_runs, 500),
    "8 headers of 30 MiB after a body": large_trailers,
    "60 CNNs at image sizes of their own": many_sizes,
    "30 bodies that unpack to 8 MiB": packed_bodies,
    "80 readers of 20 addresses that do not read": many_readers,
    "16 slow threads, 48 answers": slow_threads,
}


def watched(port: int, stop: threading.Event, seconds: list[float], refused: Counted) -> None:
    """Ask a question of the usual kind, never the same, again and again."""
    for n in range(10**9):
        if stop.is_set():
            return
        began = time.perf_counter()
        status = posted(
            port, "/v1/predictions", json.dumps(USUAL | {"samples": 1000 + n}).encode(), address=VICTIM
        )
        seconds.append(time.perf_counter() - began)
        refused[status] += status != 200
        time.sleep(0.05)


def attacks() -> None:
    """Each attack, or those in EPOCHCAST_BENCH_ATTACKS, on a service of its own, while a victim asks every 50 ms."""
    chosen = os.environ.get("EPOCHCAST_BENCH_ATTACKS", "")
    print(
        "| attack | what the attacker was answered | victim p50 | victim max | victim refused | memory, peak |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    for name, attack in ATTACKS.items():
        if not any(part in name for part in chosen.split(",")):
            continue
        with Service() as service:
            posted(service.port, "/v1/predictions", KEPT, address=VICTIM, **{"Accept-Encoding": "gzip"})
            stop, seconds, refused = threading.Event(), list[float](), Counter[object]()
            victim = threading.Thread(target=watched, args=(service.port, stop, seconds, refused))
            victim.start()
            began = time.perf_counter()
            attacker = attack(service.port)
            took_s = time.perf_counter() - began
            stop.set()
            victim.join()
            told = ", ".join(f"{count} x {what}" for what, count in attacker.items())
            others = ", ".join(f"{count} x {what}" for what, count in refused.items() if count) or "0"
            print(
                f"| {name} | {told} in {took_s:.1f} s | {statistics.median(seconds) * 1e3:.0f} ms | "
                f"{max(seconds) * 1e3:.0f} ms | {others} of {len(seconds)} | {service.mib()} MiB |",
                flush=True,
            )


WHAT = {what.__name__: what for what in (speed, day, memory, overload, attacks)}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in WHAT]
    if unknown:
        print(f"nothing is called {unknown[0]!r}. Valid: {', '.join(WHAT)}.", file=sys.stderr)
        return 2
    print(
        f"service | {datetime.now(UTC):%Y-%m-%d} | {machine()} | load {os.getloadavg()[0]:.1f}\n", flush=True
    )
    for name in names or WHAT:
        WHAT[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
