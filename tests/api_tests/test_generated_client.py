"""A client that a generator makes of the OpenAPI document imports, is type-checked, and asks every route."""

import importlib
import inspect
import io
import subprocess
import sys

import pytest
from generated_client import PACKAGE, generate_client
from onnx_files import node, onnx_file
from services import ROOT, Service
from waiting import PATIENCE_S

from api.main import create_app
from api.settings import Settings
from api.store.engine import open_store
from api.store.keys import add_key


@pytest.fixture(scope="module")
def document():
    return create_app(Settings(store="")).openapi()


@pytest.fixture(scope="module")
def generated(document, tmp_path_factory):
    """The folder with the generated package, which can be imported."""
    folder = tmp_path_factory.mktemp("generated")
    made = generate_client(document, folder)
    sys.path.insert(0, str(made))
    yield made
    sys.path.remove(str(made))


@pytest.fixture(scope="module")
def client(generated, tmp_path_factory):
    """A client of a service with a store, with a key."""
    url = f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"
    engine = open_store(url)
    key = add_key(engine, "generated")
    engine.dispose()
    with Service(url) as running:
        package = importlib.import_module(PACKAGE)
        yield package.AuthenticatedClient(base_url=running.url, token=key, timeout=PATIENCE_S)


def test_it_is_type_checked_and_every_operation_is_named_and_has_a_tag_that_is_described(generated, document):
    command = [sys.executable, "-m", "mypy", f"--cache-dir={ROOT / '.mypy_cache'}", "--config-file=", PACKAGE]
    done = subprocess.run(command, cwd=generated, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    tags = {tag["name"] for tag in document["tags"]}
    operations = [operation for operations in document["paths"].values() for operation in operations.values()]
    names = [operation["operationId"] for operation in operations]
    assert len(set(names)) == len(names)
    assert {tag for operation in operations for tag in operation["tags"]} == tags
    assert document["servers"][0]["url"] == "/"


def test_it_asks_every_route_and_uploads_csv(client, document):
    statuses = {
        operation["operationId"]: asked(client, operation)
        for operations in document["paths"].values()
        for operation in operations.values()
    }
    unanswered = {name: status for name, status in statuses.items() if status not in (200, 201)}
    assert (unanswered, len(statuses)) == ({}, 22)
    content = document["paths"]["/v1/measurements"]["post"]["requestBody"]["content"]["text/csv"]
    example = content["examples"]["one_row"]["value"].replace("310.5", "311.5")
    file = importlib.import_module(f"{PACKAGE}.types").File(payload=io.BytesIO(example.encode()))
    module = importlib.import_module(f"{PACKAGE}.api.measurements.create_measurements")
    assert module.sync_detailed(client=client, body=file).parsed.stored == 1


def asked(client, operation):
    """The status of one route's answer, asked with the example of the document."""
    name = operation["operationId"]
    module = importlib.import_module(f"{PACKAGE}.api.{operation['tags'][0]}.{name}")
    parameters = operation.get("parameters", [])
    of_path = [parameter for parameter in parameters if parameter["in"] == "path"]
    arguments = {parameter["name"]: parameter["schema"]["examples"][0] for parameter in of_path}
    if name == "create_cnn":
        pytest.importorskip("onnx")
        types = importlib.import_module(f"{PACKAGE}.types")
        file = types.File(payload=io.BytesIO(onnx_file([node("Relu", "x", "y")])), file_name="mine.onnx")
        arguments["body"] = inspect.get_annotations(module.sync_detailed)["body"](onnx=file)
    elif "requestBody" in operation:
        content = operation["requestBody"]["content"]["application/json"]
        example = next(iter(content["examples"].values()))["value"]
        models = importlib.import_module(f"{PACKAGE}.models")
        model = getattr(models, content["schema"]["$ref"].rpartition("/")[2])
        arguments["body"] = model.from_dict(example)
    answer = module.sync_detailed(client=client, **arguments)
    assert answer.parsed is not None or name in ("get_health", "get_metrics"), name
    return int(answer.status_code)
