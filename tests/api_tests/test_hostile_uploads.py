"""Uploads that mean harm each get a 4xx, run nothing, and leave the service as large and as quick as it was."""

import os
import re
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from hostile import QUESTION, hostile_requests

ROOT = Path(__file__).parents[2]
MOST_GROWTH_MIB = 300


@pytest.fixture
def service(tmp_path):
    """A service in a process of its own, with a key; its address, its process and the key."""
    from api.store.engine import open_store
    from api.store.keys import add_key

    url = f"sqlite:///{tmp_path}/store.db"
    engine = open_store(url)
    key = add_key(engine, "mallory")
    engine.dispose()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {
        **os.environ,
        "EPOCHCAST_STORE": url,
        "EPOCHCAST_RATE_PER_S": "0",
        "EPOCHCAST_LOG_LEVEL": "error",
    }
    command = [sys.executable, "-m", "uvicorn", "api.main:create_app", "--factory", "--port", str(port)]
    with subprocess.Popen([*command, "--log-level", "error"], cwd=ROOT, env=environment) as process:
        for _ in range(600):
            with suppress(httpx.TransportError):
                httpx.get(f"http://127.0.0.1:{port}/healthz")
                break
            assert process.poll() is None, "the service did not start"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}", process, key
        process.terminate()


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    """A good file."""
    helper = pytest.importorskip("onnx").helper
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    weights = helper.make_tensor("w", 1, [8, 3, 3, 3], [0.5] * 216)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", 1, None)], [weights],
    )  # fmt: skip
    return helper.make_model(graph).SerializeToString()


def most_memory_mib(process):
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_hostile_uploads_get_a_4xx_run_nothing_and_leave_memory_bounded(service, onnx_file, tmp_path):
    url, process, key = service
    trace = tmp_path / "unpickled"
    wrong, count = [], 0
    with httpx.Client(base_url=url, timeout=60) as client:
        client.post("/v1/predictions", json=QUESTION).raise_for_status()
        before = most_memory_mib(process)
        for name, (method, path, headers, body) in hostile_requests(trace, onnx_file):
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
    onnx = pytest.importorskip("onnx")
    helper, pipe = onnx.helper, tmp_path / "pipe"
    os.mkfifo(pipe)  # whoever opens it waits for ever
    weights = onnx.TensorProto(
        name="w", data_type=1, dims=[8, 3, 3, 3], data_location=onnx.TensorProto.EXTERNAL
    )
    weights.external_data.add(key="location", value=str(pipe))
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["y"])], "g", [helper.make_tensor_value_info("x", 1, (1, 3, 8, 8))],
        [helper.make_tensor_value_info("y", 1, None)], [weights],
    )  # fmt: skip
    files = {"onnx": ("x.onnx", helper.make_model(graph).SerializeToString())}
    answer = client.post(
        "/v1/predictions", data={"question": '{"gpus":["T4"],"batch_sizes":[1]}'}, files=files
    )
    assert answer.status_code == 200
