"""What the service loads to answer: numpy, and nothing heavier."""

import os
import socket
import subprocess
import sys

from services import free_port, listens
from waiting import wait_until

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
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CODE], capture_output=True, text=True, check=True
    )
    assert run.stdout.split()[-2:] == ["LOADED", "numpy"]


def test_workers_end_with_the_process_that_started_them():
    port = free_port()
    command = [
        sys.executable, "-m", "epochcast", "serve", "--port", str(port), "--workers", "2", "--store", "",
    ]  # fmt: skip
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
        except TimeoutError:
            return False
