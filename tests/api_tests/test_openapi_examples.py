"""Every operation of the OpenAPI document shows an answer, and a new service answers its examples so."""

import asyncio
import re
from functools import partial

import pytest
from fastapi.testclient import TestClient

from api import pages
from api.main import create_app
from api.queues import Queue
from api.settings import Settings
from api.store.keys import add_key

TIMES = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|\+00:00)")
KEPT_SHORT = ("list_gpus", "list_offers", "list_cnns", "list_options", "list_data_sets", "list_models")


@pytest.fixture(scope="module")
def new_service(tmp_path_factory):
    """A service with an empty store, and a key to it."""
    store = f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
    app = create_app(Settings(store=store, log_level="error"))
    with TestClient(app) as client:
        client.headers["Authorization"] = f"Bearer {add_key(app.state.store, 'lab')}"
        yield client


@pytest.fixture(scope="module")
def operations(new_service):
    document = new_service.get("/openapi.json").json()
    return {
        operation["operationId"]: (method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }


def shown(operation):
    """The example of an operation's answer."""
    answer = next(answer for code, answer in operation["responses"].items() if code.startswith("2"))
    content = next(iter(answer["content"].values()))
    return next(iter(content["examples"].values()))["value"]


def answered(client, method, path, operation):
    """What the service answers to the first example of a request, or to the examples of its parameters."""
    for parameter in operation.get("parameters", []):
        if parameter["in"] == "path":
            path = path.replace(f"{{{parameter['name']}}}", str(parameter["schema"]["examples"][0]))
    body = operation.get("requestBody", {}).get("content", {}).get("application/json")
    arguments = {"json": next(iter(body["examples"].values()))["value"]} if body else {}
    answer = client.request(method, path, **arguments)
    assert answer.is_success, answer.text
    return answer.json() if "json" in answer.headers["content-type"] else answer.text


def test_a_new_service_answers_each_example_as_the_document_shows_it(new_service, operations):
    in_turn = ["create_measurements", "list_measurements", "delete_upload"]
    quick_operations = [name for name in operations if name not in (*in_turn, "create_cnn", "get_metrics")]
    differing = []
    for name in (*quick_operations, *in_turn):
        example, answer = shown(operations[name][2]), answered(new_service, *operations[name])
        answer = answer[: len(example)] if name in KEPT_SHORT else answer
        if name == "list_measurements":  # leaves out nothing; the example leaves out what is not given
            answer["rows"] = [{key: row[key] for key in example["rows"][0]} for row in answer["rows"]]
        if TIMES.sub("", str(example)) != TIMES.sub("", str(answer)):
            differing.append((name, example, answer))
    assert not differing


def test_every_operation_shows_an_answer_that_a_new_service_gives(new_service, operations):
    lines = shown(operations["get_metrics"][2]).splitlines()
    assert new_service.get("/metrics").text.startswith("\n".join(lines[:2]))
    assert len([shown(operation) for _, _, operation in operations.values()]) == 22
    example = shown(operations["create_calibration"][2])
    assert {row["method"] for row in example["rows"]} <= {"anchored", "layer-times, anchored"}


def test_examples_of_the_document_take_turns_with_questions():
    async def begun():
        queue, ran = Queue(), []
        examples = {name: partial(ran.append, name) for name in ("one", "another")}
        await pages.Document(dict, examples, queue).begin()
        return ran

    assert asyncio.run(begun()) == ["one", "another"]
