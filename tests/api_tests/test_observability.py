"""Every request has an id, a line in the log, a count and safe headers, whatever becomes of it."""

import io
import json
import logging
import re
import urllib.request

import pytest
from fastapi.testclient import TestClient
from services import Service
from starlette.requests import ClientDisconnect
from waiting import PATIENCE_S, wait_until

from api.main import create_app
from api.observability import SECURITY_HEADERS, logging_json
from api.settings import Settings


def test_every_answer_has_safe_headers_and_other_origins_get_no_permission(client):
    for path in ("/healthz", "/v1/gpus/T4", "/v1/nothing", "/docs", "/docs/init.js", "/metrics"):
        headers = client.get(path).headers
        for name, value in SECURITY_HEADERS:
            assert headers[name.decode()] == value.decode()
        assert "content-security-policy" in headers
        assert "server" not in headers
    policy = client.get("/v1/gpus/T4").headers["content-security-policy"]
    assert policy == "default-src 'none'; frame-ancestors 'none'"
    policy = client.get("/docs").headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "unsafe-eval" not in policy
    for method in ("GET", "OPTIONS"):
        headers = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "POST"}
        answer = client.request(method, "/v1/gpus/T4", headers=headers)
        assert "access-control-allow-origin" not in answer.headers
    for path in ("/", "/healthz", "/v1/gpus/T4", "/v1/nothing"):
        get, head = client.get(path), client.head(path)
        assert (head.status_code, head.content) == (get.status_code, b"")
        assert head.headers["content-type"] == get.headers["content-type"]
    assert client.head("/v1/predictions").status_code == 405


def test_a_request_id_is_made_or_kept_if_it_is_a_plain_word(client):
    made = {client.get("/healthz").headers["x-request-id"] for _ in range(5)}
    assert len(made) == 5
    assert client.get("/healthz", headers={"X-Request-ID": "mine-1"}).headers["x-request-id"] == "mine-1"
    for odd in ("a b", "x" * 65, '"},{', ""):
        assert client.get("/healthz", headers={"X-Request-ID": odd}).headers["x-request-id"] != odd


@pytest.fixture
def log(client, monkeypatch):
    """What is logged while a test runs."""
    stream = io.StringIO()
    monkeypatch.setattr("sys.stderr", stream)
    with logging_json("info"):
        yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_request_is_one_line_of_json_that_nothing_sent_can_forge(client, log):
    client.get("/v1/cnns/resnet50?image_size=64", headers={"X-Request-ID": "mine"})
    (line,) = [entry for entry in log() if entry["logger"] == "epochcast.access"]
    assert line.pop("ms") > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line.pop("time"))
    assert line == {
        "level": "info", "logger": "epochcast.access", "request_id": "mine", "method": "GET",
        "path": "/v1/cnns/resnet50", "status": 200, "client": "testclient",
    }  # fmt: skip
    key = "epochcast_" + "Ab3-_" * 8
    answer = client.get(f"/v1/measurements/{key}", headers={"X-Request-ID": key})
    *_, line = log()
    assert "Ab3" not in str(line) + answer.headers["x-request-id"]
    assert line["path"] == "/v1/measurements/epochcast_..."
    client.get("/v1/gpus/%0A%7B%22level%22:%22error%22%7D")
    assert [line["level"] for line in log()] == ["info"] * 3


def test_a_failure_is_a_problem_with_the_id_under_which_it_is_logged(client, log, monkeypatch):
    monkeypatch.setattr(client.app.state.serving, "offers", None)
    answer = client.get("/v1/offers", headers={"X-Request-ID": "mine"})
    assert (answer.status_code, "mine" in answer.json()["detail"]) == (500, True)
    assert "NoneType" not in answer.text
    (line,) = [entry for entry in log() if entry["level"] == "error"]
    assert "NoneType" in line["exception"]
    assert line["request_id"] == "mine"


def test_logging_leaves_other_loggers_as_they_were():
    logger = logging.getLogger("epochcast")
    before = (logger.level, logger.propagate, list(logger.handlers))
    with logging_json("debug"):
        pass
    assert (logger.level, logger.propagate, list(logger.handlers)) == before


def test_requests_are_counted_by_known_route_and_status(client):
    def count(text, labels):
        match = re.search(rf"^epochcast_requests_total\{{{re.escape(labels)}\}} (\S+)", text, re.MULTILINE)
        return float(match[1]) if match else 0.0

    labels = 'method="GET",route="/v1/gpus/{name}",status="404"'
    before = client.get("/metrics").text
    client.get("/v1/gpus/T5")
    client.get("/v1/gpus/T6")
    after = client.get("/metrics").text
    assert count(after, labels) - count(before, labels) == 2
    assert f'epochcast_request_seconds_bucket{{le="+Inf",{labels}}}' in after
    assert "process_resident_memory_bytes" in after
    for i in range(5):
        client.get(f"/secret/{i}")
        client.request(f"M{i}", f"/secret/{i}")
    text = client.get("/metrics").text
    assert "secret" not in text
    assert 'method="M1"' not in text
    assert 'epochcast_requests_total{method="any",route="other",status="404"}' in text


def test_a_client_that_goes_is_no_failure(client, log, monkeypatch):
    async def gone(*_):
        raise ClientDisconnect

    monkeypatch.setattr("api.routes.predictions.answered", gone)
    with pytest.raises(AssertionError):  # the test's client misses an answer
        client.post("/v1/predictions", json={})
    (line,) = log()
    assert (line["level"], line["status"]) == ("info", 499)


def test_pages_of_allowed_origins_may_read_refusals_too():
    settings = Settings(store="", cors_origins=("https://page.example",), log_level="error")
    with TestClient(create_app(settings)) as open_to_pages:
        paths, headers = ("/v1/data_sets", "/v1/gpus/none"), {"Origin": "https://page.example"}
        answers = [open_to_pages.get(path, headers=headers) for path in paths]
    assert [answer.status_code for answer in answers] == [200, 404]
    for answer in answers:
        assert answer.headers["access-control-allow-origin"] == "https://page.example"
        assert "Retry-After" in answer.headers["access-control-expose-headers"]


def test_several_processes_tell_their_metrics_together(tmp_path):
    folder = tmp_path / "metrics"
    folder.mkdir()
    counted = 'epochcast_requests_total{method="GET",route="/v1/data_sets",status="200"} 2.0'
    options = {"PROMETHEUS_MULTIPROC_DIR": str(folder)}
    with Service(**options) as first, Service(**options) as second:
        for service in (first, second):
            asked(f"{service.url}/v1/data_sets")
        # a request is counted once its answer is on its way
        wait_until(lambda: counted in asked(f"{first.url}/metrics"))
        texts = [asked(f"{service.url}/metrics") for service in (first, second)]
        second.kill()
        texts.append(asked(f"{first.url}/metrics"))
    assert [counted in text for text in texts] == [True] * 3
    assert [text.count("\nepochcast_requests_in_work ") for text in texts] == [1] * 3


def asked(url):
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: S310 - our own
        return answer.read().decode()
