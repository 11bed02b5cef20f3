"""Tables of measurements as large as a profile's go along with a question; larger ones are told where to go."""

import gzip
import json
from http.client import HTTPConnection

import pytest
from case_tables import table
from waiting import PATIENCE_S

from api.main import create_app
from api.parsing import MAX_JSON_BYTES
from predictor.cnns.zoo import zoo_cnn
from predictor.operators.operators import operator_row, operators_of

QUESTION = {"cnn": "resnet18", "gpus": ["L40S"], "batch_sizes": [32], "precisions": ["fp32"]}
PATHS = ("/v1/predictions", "/v1/calibrations")
WORDS = table(__file__, "words of large measurements")
STORED = "`POST /v1/calibrations` with `stored` answers"


def a_profile(n_rows):
    """Rows with all the words that an instrument writes, of as many batch sizes as it takes."""
    operators = list(operators_of(zoo_cnn("resnet18", 224)))
    rows = []
    for i in range(n_rows):
        operator, batch_size = operators[i % len(operators)], 1 + i // len(operators)
        times = dict.fromkeys(("iteration_time_ms", "gpu_time_ms"), 0.012345678 * batch_size)
        sizes = {"image_size": operator.in_height or 1, "batch_size": batch_size, "host_time_ms": 0.129885}
        rows.append(WORDS | operator_row(operator) | sizes | times)
    return rows


def by_columns(rows):
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


@pytest.mark.parametrize("path", PATHS)
def test_columns_answer_as_rows_do(client, path):
    rows = a_profile(400)
    answers = [
        client.post(path, json=QUESTION | {"measurements": form}).json()["rows"]
        for form in (rows, by_columns(rows))
    ]
    assert answers[0] == answers[1]
    assert answers[0][0]["method"] == "layer-times"


@pytest.mark.parametrize("path", PATHS)
def test_ten_thousand_rows_go_along_as_columns(client, path):
    answer = client.post(path, json=QUESTION | {"measurements": by_columns(a_profile(10_000))})
    assert answer.status_code == 200, answer.text
    assert answer.json()["rows"][0]["method"] == "layer-times"


def test_too_many_rows_and_larger_bodies_are_refused_with_columns_and_the_store_as_ways(client):
    for rows, words in ((a_profile(4_500), "take least room as columns"), ([{"gpu": "T4"}] * 5_001, STORED)):
        refusal = client.post("/v1/predictions", json=QUESTION | {"measurements": rows}).json()
        assert words in refusal["detail"]
        assert STORED in refusal["detail"]
    spaces = b" " * MAX_JSON_BYTES + json.dumps(QUESTION).encode()
    columns = b'{"measurements":{' + b" " * MAX_JSON_BYTES + b"}}"
    for body in (spaces, columns):
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        answer = client.post("/v1/predictions", content=gzip.compress(body, 1), headers=headers)
        assert (answer.status_code, STORED in answer.json()["detail"]) == (413, True)


@pytest.mark.parametrize("size", [MAX_JSON_BYTES + 1, 40 * 2**20])
def test_whoever_sends_too_much_reads_why_and_sees_no_broken_connection(serve, settings, size):
    connection = HTTPConnection(serve(create_app(settings)).removeprefix("http://"), timeout=PATIENCE_S)
    headers = {"Content-Type": "application/json", "Connection": "close"}
    connection.request("POST", "/v1/predictions", bytes(size), headers)
    answer = connection.getresponse()
    assert (answer.status, b"larger than" in answer.read()) == (413, True)
