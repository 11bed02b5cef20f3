"""Image and compose.yaml answer at their published port without the proxy: their command, run here as a process."""

import json
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from services import free_port, listens
from waiting import PATIENCE_S, wait_until

DOCKERFILE = (Path(__file__).parents[2] / "Dockerfile").read_text(encoding="utf-8")
QUESTION = {"cnn": "resnet18", "gpus": ["T4"], "batch_sizes": [32]}


@contextmanager
def started(environment, folder):
    """Run the image's command on a free port; gives the port, and a function that stops it and reads its log."""
    lists = [re.findall(rf"^{word} (\[.*\])$", DOCKERFILE, re.M) for word in ("ENTRYPOINT", "CMD")]
    words = [json.loads(texts[-1]) for texts in lists]
    [program, *arguments] = [*words[0], *words[1]]
    port = free_port()
    command = [sys.executable, "-m", program, *arguments, "--port", str(port)]
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("EPOCHCAST_")}
    inherited.pop("FORWARDED_ALLOW_IPS", None)
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            command, stderr=log, env=inherited | environment, cwd=Path(__file__).parents[2]
        )

    def read_log():
        process.terminate()
        process.wait(PATIENCE_S)
        return [
            json.loads(line) for line in (folder / "log").read_text().splitlines() if line.startswith("{")
        ]

    try:
        wait_until(lambda: listens(port), alive=lambda: process.poll() is None)
        yield port, read_log
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize("file", ["Dockerfile", "compose.yaml"])
def test_the_published_port_answers_and_says_once_what_nobody_bounds(compose, tmp_path, file):
    environment = {"EPOCHCAST_STORE": f"sqlite:///{tmp_path}/store.db"}
    if file == "compose.yaml":
        named = compose["services"]["service"]["environment"]
        environment |= {"FORWARDED_ALLOW_IPS": named["FORWARDED_ALLOW_IPS"], "EPOCHCAST_HOSTS": "[]"}
    with started(environment, tmp_path) as (port, read_log):
        for host in (f"localhost:{port}", f"127.0.0.1:{port}", f"192.0.2.7:{port}"):
            url = f"http://127.0.0.1:{port}/v1/predictions"
            answer = httpx.post(url, json=QUESTION, headers={"Host": host}, timeout=PATIENCE_S)
            assert (answer.status_code, len(answer.json()["rows"])) == (200, 1)
        lines = [line for line in read_log() if line["logger"] == "epochcast.proxy"]
    assert len(lines) == (1 if file == "Dockerfile" else 0)
