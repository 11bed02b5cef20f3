"""Uploads that mean harm each get a 4xx, run nothing, and leave the service as large and as quick as it was."""

import os
import re
import sys
from pathlib import Path

import httpx
import pytest
from onnx_files import conv_file, node, onnx_file
from services import Service
from waiting import PATIENCE_S

from api.store.engine import open_store
from api.store.keys import add_key

sys.path.insert(0, str(Path(__file__).parent))
from hostile import QUESTION, hostile_requests

onnx = pytest.importorskip("onnx")
MOST_GROWTH_MIB = 300


@pytest.fixture
def service(tmp_path):
    """A service in a process of its own, with a key; its address, its process and the key."""
    url = f"sqlite:///{tmp_path}/store.db"
    engine = open_store(url)
    key = add_key(engine, "mallory")
    engine.dispose()
    with Service(url) as running:
        yield running.url, running.process, key


def most_memory_mib(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_hostile_uploads_get_a_4xx_run_nothing_and_leave_memory_bounded(service, tmp_path):
    url, process, key = service
    trace = tmp_path / "unpickled"
    wrong, count = [], 0
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        client.post("/v1/predictions", json=QUESTION).raise_for_status()
        client.get("/openapi.json").raise_for_status()  # it is made when it is first asked for
        before = most_memory_mib(process)
        for name, (method, path, headers, body) in hostile_requests(trace, conv_file()):
            count += 1
            answer = client.request(
                method, path, headers=headers | {"Authorization": f"Bearer {key}"}, content=body
            )
            if not (
                400 <= answer.status_code < 500
                and answer.headers["content-type"] == "application/problem+json"
            ):
                wrong.append((name, answer.status_code, answer.text[:200]))
        after = most_memory_mib(process)
        client.post("/v1/predictions", json=QUESTION).raise_for_status()
        assert client.get("/v1/measurements").json()["rows"] == []
    assert wrong == []
    assert count >= 100
    assert not trace.exists()
    assert after - before < MOST_GROWTH_MIB


def test_weights_in_other_files_are_never_opened(client, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # whoever opens it waits for ever
    location = onnx.TensorProto.EXTERNAL
    weights = onnx.TensorProto(name="w", data_type=1, dims=[8, 3, 3, 3], data_location=location)
    weights.external_data.add(key="location", value=str(pipe))
    files = {"onnx": ("x.onnx", onnx_file([node("Conv", "x w", "y")], [weights]))}
    assert client.post("/v1/cnns", files=files).status_code == 200
