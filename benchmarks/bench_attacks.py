"""What one client can do to the others: a victim asks every 50 ms from an address of its own while another attacks.

Run it as `python benchmarks/bench_attacks.py [name ...]` on Linux: it starts a service for each attack, as
`epochcast serve` does with its default limits, and prints what the attacker was answered, how long the victim
waited, and how often it was refused. `kills` kills the service 20 times in a burst of uploads and looks for every row
that was acknowledged.
"""

import gzip
import http.client
import json
import os
import random
import selectors
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

from machine import machine

ROOT = Path(__file__).parents[1]
ATTACKER, VICTIM = "127.0.0.2", "127.0.0.9"
JSON = "application/json"
USUAL = {"cnn": "resnet50", "gpus": ["T4"], "batch_sizes": [64]}
KEPT = json.dumps(USUAL | {"gpus": ["all"], "batch_sizes": list(range(1, 21))}).encode()
MODES = {
    "precisions": ["fp32", "tf32", "fp16", "amp_fp16", "amp_bf16"],
    "memory_formats": ["nchw", "channels_last"],
}
KILLS = int(os.environ.get("EPOCHCAST_BENCH_KILLS", "20"))
Counted = Counter[object]


@contextmanager
def service(port: int, store: str = "", **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`epochcast serve`, which sees at most 1,024 files, as many systems let it."""
    command = [
        "bash",
        "-c",
        f"ulimit -n 1024; exec {sys.executable} -m epochcast serve --port {port} --store '{store}'",
    ]
    given = {"EPOCHCAST_LOG_LEVEL": "warning", **environment}
    process = subprocess.Popen(command, cwd=ROOT, env=os.environ | given, stderr=subprocess.DEVNULL)
    try:
        while True:
            with suppress(OSError):
                socket.create_connection(("127.0.0.1", port)).close()
                break
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait()


def posted(
    port: int, path: str, body: bytes, form: str = JSON, address: str = ATTACKER, **more: str
) -> object:
    """The status of an answer, or what went wrong."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=90, source_address=(address, 0))
    try:
        connection.request("POST", path, body, {"Content-Type": form, **more})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException) as error:
        return type(error).__name__
    finally:
        connection.close()
    return answer.status


def at_once(calls: list[Callable[[], object]]) -> Counted:
    """Make calls at once; how often each answer came."""
    found: list[object] = []
    threads = [threading.Thread(target=lambda each=each: found.append(each())) for each in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return Counter(found)


def half_sent(port: int, content: bytes, count: int, seconds: float) -> Counted:
    """Open connections that send the beginning of a request and wait."""
    held = []
    for _ in range(count):
        with suppress(OSError):
            held.append(socket.create_connection(("127.0.0.1", port), 5, source_address=(ATTACKER, 0)))
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
    head = b"POST /v1/predictions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    return half_sent(port, head + b"Content-Length: 1000\r\n\r\n{", 270, 12)


def half_heads(port: int) -> Counted:
    return half_sent(port, b"GET /v1/gp", 1100, 12)


def large_head(port: int) -> Counted:
    with socket.create_connection(("127.0.0.1", port), 30, source_address=(ATTACKER, 0)) as connection:
        sent = 0
        with suppress(OSError):
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: a\r\nX: ")
            while sent < 100:
                connection.sendall(b"a" * 2**20)
                sent += 1
        return Counter({f"{sent} MiB taken": 1, ended(connection): 1})


def table_of(layers: int) -> dict[str, object]:
    conv = {
        "type": "conv2d",
        "in_height": 8,
        "in_width": 8,
        "out_height": 8,
        "out_width": 8,
        "kernel_height": 3,
    }
    conv |= {
        "kernel_width": 3,
        "padding_height": 1,
        "padding_width": 1,
        "stride_height": 1,
        "stride_width": 1,
        "groups": 1,
        "dilation": 1,
    }
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
    body = json.dumps(USUAL | {"gpus": ["all"], "batch_sizes": list(range(1, 121))}).encode()
    head = b"POST /v1/predictions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
    return half_sent(port, head + b"Content-Length: %d\r\n\r\n" % len(body) + body, 60, 25)


def packed_readers(port: int) -> Counted:
    """60 connections, of an address each, that ask for one large answer, gzipped, again and again for 10 s.

    They are in a process of their own, so that the victim does not wait for Python's lock.
    """
    with ProcessPoolExecutor(1) as process:
        return process.submit(_packed_readers, port).result()


def _packed_readers(port: int) -> Counted:
    head = f"POST /v1/predictions HTTP/1.1\r\nHost: a\r\nContent-Type: {JSON}\r\nAccept-Encoding: gzip\r\n"
    request = f"{head}Content-Length: {len(KEPT)}\r\n\r\n".encode() + KEPT
    statuses: Counted = Counter()
    sizes_left: dict[socket.socket, int] = {}
    readers, end = selectors.DefaultSelector(), time.perf_counter() + 10
    for number in range(60):
        connection = socket.create_connection(
            ("127.0.0.1", port), 30, source_address=(f"127.0.1.{number + 1}", 0)
        )
        connection.sendall(request)
        readers.register(connection, selectors.EVENT_READ)
        sizes_left[connection] = 0
    while time.perf_counter() < end:
        ready = {key.fd for key, _ in readers.select(1)}
        for connection in [one for one in sizes_left if one.fileno() in ready]:
            part = connection.recv(2**20)
            if not part:
                return statuses + Counter(["closed"])
            if not sizes_left[connection]:
                answer, _, rest = part.partition(b"\r\n\r\n")
                sizes_left[connection] = int(answer.lower().partition(b"content-length: ")[2].split()[0])
                statuses[int(part.split()[1])] += 1
                part = rest
            sizes_left[connection] -= len(part)
            if not sizes_left[connection]:
                connection.sendall(request)
    return statuses


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


def memory_mib(process: subprocess.Popen[bytes]) -> int:
    text = Path(f"/proc/{process.pid}/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) // 1024


def attacked(name: str, port: int) -> None:
    with service(port) as process:
        posted(port, "/v1/predictions", json.dumps(USUAL).encode(), address=VICTIM)
        posted(port, "/v1/predictions", KEPT, address=VICTIM, **{"Accept-Encoding": "gzip"})
        stop, seconds, refused = threading.Event(), list[float](), Counter[object]()
        victim = threading.Thread(target=watched, args=(port, stop, seconds, refused))
        victim.start()
        began = time.perf_counter()
        attacker = ATTACKS[name](port)
        took_s = time.perf_counter() - began
        stop.set()
        victim.join()
        told = ", ".join(f"{count} x {what}" for what, count in attacker.items())
        others = ", ".join(f"{count} x {what}" for what, count in refused.items() if count) or "0"
        print(
            f"| {name} | {told} in {took_s:.1f} s | {statistics.median(seconds) * 1e3:.0f} ms | "
            f"{max(seconds) * 1e3:.0f} ms | {others} of {len(seconds)} | {memory_mib(process)} MiB |",
            flush=True,
        )


def uploading(port: int, key: str, acknowledged: dict[str, int], stop: threading.Event, worker: int) -> None:
    header = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms\n"
    for n in range(10**9):
        if stop.is_set():
            return
        names = [f"w{worker}_{time.monotonic_ns()}_{n}_{i}" for i in range(random.choice([1, 20, 300]))]  # noqa: S311
        body = header + "".join(f"T4,{name},224,32,fp32,9.5\n" for name in names)
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            headers = {"Content-Type": "text/csv", "Authorization": f"Bearer {key}"}
            connection.request("POST", "/v1/measurements", body, headers)
            answer = connection.getresponse()
            ids = json.loads(answer.read()).get("ids", [])
            if answer.status == 201:
                acknowledged.update(zip(names, ids, strict=True))


def kills(port: int) -> None:
    """Kill the service again and again in a burst of uploads; every acknowledged row is there, once."""
    from api.store.engine import open_store
    from api.store.keys import add_key
    from api.store.measurements import find_rows

    with tempfile.TemporaryDirectory() as folder:
        store = f"sqlite:///{folder}/store.db"
        engine = open_store(store)
        key, acknowledged = add_key(engine, "kills"), dict[str, int]()
        for _ in range(KILLS):
            with service(port, store, EPOCHCAST_RATE_PER_S="0") as process:
                stop = threading.Event()
                uploads = [
                    threading.Thread(target=uploading, args=(port, key, acknowledged, stop, i))
                    for i in range(6)
                ]
                for thread in uploads:
                    thread.start()
                time.sleep(random.uniform(1.0, 2.5))  # noqa: S311
                process.send_signal(signal.SIGKILL)
                stop.set()
                for thread in uploads:
                    thread.join()
        found, after = Counter[str](), 0
        while (page := find_rows(engine, {}, after, 10_000)).rows:
            found.update(row.row()["cnn"] for row in page.rows)
            after = page.rows[-1].id
        lost = sum(name not in found for name in acknowledged)
        print(
            f"{KILLS} kills with -9: {len(acknowledged):,} rows acknowledged, {lost} lost, "
            f"{sum(count > 1 for count in found.values())} twice"
        )


def main(names: list[str]) -> int:
    print(f"attacks | {datetime.now(UTC):%Y-%m-%d} | {machine()}\n")
    print(
        "| attack | what the attacker was answered | victim p50 | victim max | victim refused | memory, peak |"
    )
    print("|---|---|---|---|---|---|", flush=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    for name in ATTACKS:
        if not names or any(each in name for each in names):
            attacked(name, port)
    if not names or "kills" in names:
        kills(port)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
