"""What the service loads to answer: numpy, and nothing heavier."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections import Counter

import pytest
from services import free_port, listens
from waiting import PATIENCE_S, wait_until

from api.connections import ON_ITS_WAY_S

CODE = """
import sys
from fastapi.testclient import TestClient
from api.main import create_app
from api.settings import Settings

with TestClient(create_app(Settings(store="", log_level="error"))) as client:
    for path, question in (
        ("/v1/predictions", {"cnn": "resnet18", "gpus": ["all"], "batch_sizes": [8, 16], "data_set": "imagenet"}),
        ("/v1/comparisons", {"cnn": "resnet18", "batch_sizes": [8], "data_set": "imagenet"}),
    ):
        assert client.post(path, json=question).status_code == 200
    for path in ("/v1/gpus", "/v1/offers", "/v1/cnns", "/v1/models", "/docs", "/metrics", "/readyz"):
        assert client.get(path).status_code == 200
print("LOADED", *[name for name in ("numpy", "pandas", "sklearn", "scipy", "onnx", "torch") if name in sys.modules])
"""


def test_answering_loads_neither_pandas_nor_scikit_learn():
    run = subprocess.run([sys.executable, "-Wignore", "-c", CODE], capture_output=True, text=True, check=True)
    assert run.stdout.split()[-2:] == ["LOADED", "numpy"]


def test_workers_end_with_the_process_that_started_them():
    port = free_port()
    command = [*f"{sys.executable} -m epochcast serve --port {port} --workers 2 --store".split(), ""]
    service = subprocess.Popen(
        command, stderr=subprocess.DEVNULL, env=os.environ | {"EPOCHCAST_LOG_LEVEL": "error"}
    )
    try:
        wait_until(lambda: answers(port))
    finally:
        service.kill()
        service.wait()
    wait_until(lambda: not listens(port))


def answers(port):
    """Whether a worker answers."""
    with socket.socket() as client:
        if client.connect_ex(("127.0.0.1", port)):
            return False
        client.settimeout(1)
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        try:
            return b" 200 " in client.recv(1000)
        except OSError:
            return False


@pytest.fixture(scope="module")
def two_workers():
    """Port and log of a service of two workers, and the function that ends it and gives what it logged."""
    port = free_port()
    command = [*f"{sys.executable} -m epochcast serve --port {port} --workers 2 --store".split(), ""]
    with tempfile.TemporaryFile() as log:
        service = subprocess.Popen(command, stderr=log)
        try:
            wait_until(lambda: len({worker_of(port) for _ in range(20)} - {None}) == 2)
            yield port, service, log
        finally:
            service.terminate()
            service.wait()


def worker_of(port):
    """Which process answers a new connection, by the beginning of its request ids; None if none does."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=PATIENCE_S) as answer:
            return answer.headers["X-Request-ID"].partition("-")[0]
    except OSError:
        return None


def test_workers_share_connections_and_answer_at_once_on_a_kept_one(two_workers):
    port, *_ = two_workers
    shares = Counter(worker_of(port) for _ in range(64))
    assert len(shares) == 2
    assert min(shares.values()) >= 12
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)

    def seconds():
        began = time.perf_counter()
        connection.request("GET", "/v1/data_sets")
        connection.getresponse().read()
        return time.perf_counter() - began

    # A held-back packet waits 0.04 s for the client's acknowledgement; on a busy machine few answers come in less.
    assert any(seconds() < 0.03 for _ in range(500))


def test_a_service_that_ends_breaks_no_request_and_logs_json_alone_and_refuses_what_is_no_http(two_workers):
    port, service, log = two_workers
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as client:
        client.sendall(b"\x16\x03\x01 no request\r\n\r\n")
        head, _, body = client.makefile("rb").read().partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 ")
    assert b"content-type: application/problem+json" in head.lower()
    assert json.loads(body)["status"] == 400

    broken, answered = [], []

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
        while True:
            try:
                connection.connect()
            except ConnectionRefusedError:
                return
            try:
                while connection.sock is not None:  # until an answer says that it is the last
                    idle_since, sent = time.monotonic(), float("inf")
                    connection.request("GET", "/v1/data_sets")
                    sent = time.monotonic()
                    answered.append(len(connection.getresponse().read()))
            except (OSError, http.client.HTTPException) as error:
                connection.close()
                if sent < idle_since + ON_ITS_WAY_S:  # else a busy machine left this client without a turn
                    broken.append(error)

    clients = [threading.Thread(target=ask) for _ in range(8)]
    for client in clients:
        client.start()
    wait_until(lambda: len(answered) > 200)
    service.terminate()
    assert service.wait(PATIENCE_S) in (0, -signal.SIGTERM)
    for client in clients:
        client.join()
    assert not broken
    log.seek(0)
    lines = [json.loads(line) for line in log.read().splitlines()]
    assert {"Invalid HTTP request received.", "Finished server process"} <= {
        line.get("message", "").partition(" [")[0] for line in lines
    }
