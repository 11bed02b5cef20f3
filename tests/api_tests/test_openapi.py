"""Requests made from the OpenAPI document: no failure of the service, no answer that the document does not name.

`EPOCHCAST_FUZZ_EXAMPLES=1000 pytest tests/api_tests/test_openapi.py` makes a thousand of each operation.
"""

import json
import os
import re
import tempfile
from urllib.parse import quote

import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
    unsupported_method,
)

from api.main import create_app
from api.settings import Settings
from api.store.keys import add_key

EXAMPLES = int(os.environ.get("EPOCHCAST_FUZZ_EXAMPLES", "5"))
SETTINGS = hypothesis.settings(
    max_examples=EXAMPLES, deadline=None, derandomize=EXAMPLES < 100, database=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)  # fmt: skip
CHECKS = [
    not_a_server_error, status_code_conformance, content_type_conformance, response_headers_conformance,
    response_schema_conformance, unsupported_method,
]  # fmt: skip


@pytest.fixture(scope="module")
def service():
    """A service with a store, and a key to it."""
    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(store=f"sqlite:///{folder}/store.db", log_level="error"))
        schema = schemathesis.openapi.from_asgi(
            "/openapi.json", app, timeout=3600
        )  # the machine may be loaded
        yield schema, add_key(app.state.store, "fuzz")
        app.state.store.dispose()


@pytest.mark.parametrize("mode", schemathesis.GenerationMode)
def test_every_answer_is_one_that_the_document_names(service, mode):
    schema, key = service
    operations = [operation.ok() for operation in schema.get_all_operations()]
    if mode is schemathesis.GenerationMode.NEGATIVE:  # any text will do as a path
        operations = [operation for operation in operations if list(operation.body) or list(operation.query)]

    def ask(case):
        headers = {"Authorization": f"Bearer {key}"} if case.method in ("POST", "DELETE") else None
        case.call_and_validate(checks=CHECKS, headers=headers)

    assert len(operations) >= 10
    for operation in operations:
        SETTINGS(hypothesis.given(case=operation.as_strategy(generation_mode=mode))(ask))()


WORDS = st.text(max_size=60) | st.sampled_from(
    ["main.js", "vendor/README.md", "..", "index.html", "%00", "init.js"]
)


@pytest.mark.parametrize("folder", ["/", "/web/", "/docs/"])
def test_whatever_is_asked_of_the_pages_is_a_file_or_a_refusal(client, folder):
    @hypothesis.given(
        path=WORDS,
        tag=st.text(st.characters(codec="latin-1"), max_size=30),
        packing=st.sampled_from(["gzip", "identity", "br", "gzip;q=0", ""]),
        method=st.sampled_from(["GET", "HEAD", "POST", "OPTIONS", "DELETE"]),
    )
    @hypothesis.settings(SETTINGS, max_examples=6 * EXAMPLES)
    def ask(path, tag, packing, method):
        headers = {"If-None-Match": tag.encode("latin-1"), "Accept-Encoding": packing}
        answer = client.request(method, folder + quote(path), headers=headers, follow_redirects=False)
        assert answer.status_code in (200, 204, 304, 307, 401, 404, 405, 415, 422)
        assert "content-security-policy" in answer.headers

    ask()


def test_an_end_of_an_interval_may_be_null_wherever_it_is_answered(client):
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    ends = {
        (kind, name): field
        for kind in ("PredictionRow", "ComparisonRow", "Columns", "Explanation")
        for name, field in schemas[kind]["properties"].items()
        if re.search(r"(^|_)(low|high)_", name)
    }
    assert {kind for kind, _ in ends} == {"PredictionRow", "ComparisonRow", "Columns", "Explanation"}
    assert [path for path, field in ends.items() if '"null"' not in json.dumps(field)] == []
