"""While the model is asked too much: kept answers are given, other questions are refused."""

import asyncio
import gzip
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import httpx
import pytest
from case_tables import each_row
from fastapi.testclient import TestClient
from services import Service
from waiting import PATIENCE_S, wait_until, work

from api.main import create_app
from api.parsing import question_of
from api.queues import Queue
from api.routes import predictions
from api.serving import Snapshot

ASKED = {"cnn": "squeezenet1_0", "gpus": ["T4"], "batch_sizes": [3, 5]}
PACKED = {"content": gzip.compress(b"{}")}
PACKED["headers"] = {"Content-Encoding": "gzip", "Content-Type": "application/json"}


def beside_the_event_loop(*arguments):
    """The arguments, where no event loop runs in this thread."""
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
    return arguments


@pytest.fixture
def busy(client, monkeypatch):
    """Fill a queue of the service."""

    def now(name):
        monkeypatch.setattr(client.app.state.serving, name, Queue(waiting=0, per_client_running=-1))

    return now


def test_a_kept_answer_is_given_and_a_question_that_fails_is_answered_and_not_kept(client, busy):
    question = ASKED | {"batch_sizes": [11], "host": "nobody's"}
    refusals = [client.post("/v1/predictions", json=question) for _ in range(2)]
    assert [refusal.status_code for refusal in refusals] == [422, 422]
    answer = client.post("/v1/predictions", json=ASKED)
    busy("model_queue")
    assert client.post("/v1/predictions", json=ASKED).content == answer.content


@each_row
def test_what_needs_a_queue_that_is_full_is_told_to_come_back(client, busy, queue, path, body):
    busy(queue)
    answer = client.request("POST" if body else "GET", f"/v1/{path}", **(body or {}))
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")


def test_four_threads_of_one_notebook_that_compare_are_all_answered():
    def compare(samples):
        question = {"cnn": "densenet201", "samples": samples}
        return httpx.post(f"{service.url}/v1/comparisons", json=question, timeout=PATIENCE_S).status_code

    with Service() as service, ThreadPoolExecutor(4) as threads:
        assert list(threads.map(compare, range(1000, 1012))) == [200] * 12


@pytest.mark.parametrize(("kept_bytes", "sizes"), [(2**20, [11]), (1, [11, 13])])  # two kinds of questions
def test_what_several_clients_ask_at_once_is_computed_once(client, monkeypatch, kept_bytes, sizes):
    serving = client.app.state.serving.model
    monkeypatch.setattr(serving, "snapshot", Snapshot(serving.current, kept_bytes))
    computed, everybody_waits = [], threading.Event()
    compute = predictions.answer_to

    def held(question):
        computed.append(question)
        assert everybody_waits.wait(PATIENCE_S)
        return compute(question)

    monkeypatch.setattr(predictions, "answer_to", held)
    question = ASKED | {"batch_sizes": sizes, "samples": 1 + kept_bytes}
    with ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(client.post, "/v1/predictions", json=question) for _ in range(4)]
        wait_until(lambda: client.app.state.metrics.in_work == 4)
        everybody_waits.set()
    assert {answer.result().status_code for answer in answers} == {200}
    assert len({answer.result().content for answer in answers}) == len(computed) == 1


def test_a_large_answer_is_packed_and_a_body_unpacked_once_and_never_on_the_event_loop(client, monkeypatch):
    packed, compress = [], gzip.compress

    def counted(*content, **options):
        packed.append(beside_the_event_loop(*content))
        return compress(*content, **options)

    monkeypatch.setattr("gzip.compress", counted)
    question = ASKED | {"batch_sizes": [*range(10_000, 10_200)]}
    plain = client.post("/v1/predictions", json=question, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    for _ in range(3):
        answer = client.post("/v1/predictions", json=question, headers={"Accept-Encoding": "gzip"})
        assert (answer.headers["content-encoding"], answer.content) == ("gzip", plain.content)
    assert len(packed) == 1
    unpacked = []

    def noted(*arguments):
        unpacked.append(beside_the_event_loop(*arguments))
        return b"{}"

    monkeypatch.setattr("api.bodies._unpacked", noted)
    assert client.post("/v1/predictions", **PACKED).status_code == 422
    assert len(unpacked) == 1


@each_row
def test_only_few_other_batch_sizes_of_a_quick_question_are_answered_on_the_event_loop(
    client, monkeypatch, path, questions, in_thread
):
    serving, ran = client.app.state.serving.model, []

    def compute(body, kind, *_):
        posted = question_of(body, kind)
        ran.append("epochcast-queue" in threading.current_thread().name)
        work(posted.samples / 10**6)
        return b"{}"

    monkeypatch.setattr(serving, "snapshot", Snapshot(serving.current, 2**20))
    monkeypatch.setattr("api.parsing._from_body", compute)
    for question in questions:
        post = partial(client.post, f"/v1/{path}", json=ASKED | {"samples": 1} | question)
        with ThreadPoolExecutor(2) as threads:  # at once: one of them gets the answer kept for the other
            _ = threads.submit(post), threads.submit(post)
    assert ran == in_thread


def test_threads_take_short_turns_while_the_service_runs_and_usual_ones_after_a_start_that_failed(
    settings, monkeypatch
):
    before = sys.getswitchinterval()
    try:
        sys.setswitchinterval(0.005)
        with TestClient(create_app(settings)):
            during = sys.getswitchinterval()
        assert (during, sys.getswitchinterval()) == (0.0005, 0.005)
        monkeypatch.setattr("api.main._warm_up", None)
        with pytest.raises(TypeError), TestClient(create_app(settings)):
            pass
        assert sys.getswitchinterval() == 0.005
    finally:
        sys.setswitchinterval(before)
