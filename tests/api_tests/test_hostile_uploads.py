"""Uploads that mean harm each get a 4xx, run nothing, and leave the service as large and as quick as it was."""

import os
import re
import sys
from pathlib import Path

import httpx
import pytest
from services import Service
from waiting import PATIENCE_S

sys.path.insert(0, str(Path(__file__).parent))
from hostile import QUESTION, hostile_requests

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
    running = Service(url)
    yield running.url, running.process, key
    running.kill()


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
    with httpx.Client(base_url=url, timeout=PATIENCE_S) as client:
        client.post("/v1/predictions", json=QUESTION).raise_for_status()
        client.get("/openapi.json").raise_for_status()  # it is made when it is first asked for
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
    answer = client.post("/v1/cnns", files=files)
    assert answer.status_code == 200
