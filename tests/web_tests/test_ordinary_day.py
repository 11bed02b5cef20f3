"""An ordinary day of a service that has just started: nobody is refused, no page is broken.

How long a turn at the model may take is the machine's business, so it may take long; every bound of a number holds.
"""

import importlib
import json
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection

import httpx
import pytest
from generated_client import PACKAGE, generate_client
from page_parts import answered
from services import Service
from waiting import PATIENCE_S, wait_until

playwright = pytest.importorskip(
    "playwright.sync_api", reason="playwright is not installed: pip install playwright"
)

TABS = ("openapi.json", "docs", "", "#cnn=vgg16")
CNNS = ("resnet18", "resnet50", "alexnet", "vgg16")
PATIENT = {"EPOCHCAST_QUEUE_WAIT_S": "300"}


@pytest.fixture
def fresh():
    with Service(**PATIENT) as service:
        yield service.url


def user(url, number):
    """Statuses of the questions of a user with an address of their own, none asked before."""
    address = (f"127.0.3.{number}", 0)
    connection = HTTPConnection("127.0.0.1", int(url.rpartition(":")[2]), PATIENCE_S, source_address=address)
    statuses = []
    for samples in range(3):
        question = {"cnn": "resnet50", "gpus": ["T4", "H200"], "samples": 1000 * number + samples}
        connection.request(
            "POST", "/v1/predictions", json.dumps(question), {"Content-Type": "application/json"}
        )
        answer = connection.getresponse()
        answer.read()
        statuses.append(answer.status)
    return statuses


def notebook(url, thread):
    """Rows of a comparison that a thread of a notebook asks for."""
    question = {"cnn": CNNS[thread % 4], "samples": 10_000 + thread}
    answer = httpx.post(f"{url}/v1/comparisons", json=question, timeout=PATIENCE_S)
    return len(answer.json()["rows"])


def generated(url, folder):
    """The status of a question by a client that is made of the document of this service."""
    with urllib.request.urlopen(f"{url}/openapi.json", timeout=PATIENCE_S) as document:  # noqa: S310 - our own
        made = generate_client(json.load(document), folder)
    sys.path.insert(0, str(made))
    client = importlib.import_module(PACKAGE).Client(base_url=url, timeout=PATIENCE_S)
    models = importlib.import_module(f"{PACKAGE}.models")
    question = models.PredictionQuestion.from_dict({"cnn": "resnet18", "gpus": ["T4"], "batch_sizes": [8]})
    module = importlib.import_module(f"{PACKAGE}.api.predictions.create_prediction")
    return int(module.sync_detailed(client=client, body=question).status_code)


def test_nobody_is_refused_on_an_ordinary_day_and_no_page_is_broken(fresh, browser, tmp_path):
    window = browser.new_context(locale="en-US")
    window.set_default_timeout(1000 * PATIENCE_S)
    refused = []
    window.on("response", lambda answer: answer.status >= 400 and refused.append((answer.status, answer.url)))
    with ThreadPoolExecutor(19) as threads:
        client = threads.submit(generated, fresh, tmp_path)  # its document is asked for first
        opener = window.new_page()
        opener.evaluate("urls => { for (const url of urls) open(url); }", [f"{fresh}/{tab}" for tab in TABS])
        users = [threads.submit(user, fresh, number) for number in range(1, 11)]
        comparisons = [threads.submit(notebook, fresh, thread) for thread in range(8)]
        wait_until(lambda: opener.wait_for_timeout(10) or len(window.pages) == 1 + len(TABS))
        for tab in window.pages[1:]:
            tab.wait_for_url(f"{fresh}/**")
        tabs = {tab.url.removeprefix(f"{fresh}/"): tab for tab in window.pages[1:]}
        for name in ("", "#cnn=vgg16"):
            tabs[name].bring_to_front()
            answered(tabs[name])
        playwright.expect(tabs["docs"].locator(".opblock").first).to_be_visible()
        window.close()
        assert [task.result() for task in users] == [[200] * 3] * 10
        assert min(task.result() for task in comparisons) > 1
        assert client.result() == 200
    assert refused == []
