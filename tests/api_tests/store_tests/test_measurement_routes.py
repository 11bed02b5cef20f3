"""`/v1/measurements` on both databases; where processes matter, of a service in a process of its own."""

import csv
import gzip
import io
import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import httpx
import pytest
from case_tables import each_row
from services import Service
from waiting import PATIENCE_S, wait_until

from api.store.keys import add_key, revoke_key
from predictor.errors import StoreError

HEADER = "gpu,cnn,image_size,batch_size,precision,iteration_time_ms"
GOOD = "Tesla T4,resnet50,224,32,fp32,310.5"
CSV = {"Content-Type": "text/csv"}


def body(n, first=0):
    """An upload of n rows, all different from those of another `first`."""
    lines = [f"Tesla T4,resnet50,224,{1 + i % 512},fp32,{10.5 + i}" for i in range(first, first + n)]
    return "\n".join([HEADER, *lines]).encode()


def upload(http, content, **headers):
    return http.post("/v1/measurements", content=content, headers=CSV | headers)


def test_an_upload_is_acknowledged_and_comes_back_with_its_attribution(alice):
    answer = upload(alice, body(3))
    assert answer.status_code == 201
    assert answer.json() | {"ids": 0} == {"upload": 1, "stored": 3, "duplicates": 0, "ids": 0}
    rows = alice.get("/v1/measurements").json()["rows"]
    read = [(row["id"], row["upload"], row["key"], row["iteration_time_ms"]) for row in rows]
    assert read == sorted((number, 1, "alice", 10.5 + i) for i, number in enumerate(answer.json()["ids"]))


def test_an_upload_may_be_gzipped_or_json(alice):
    assert upload(alice, gzip.compress(body(3)), **{"Content-Encoding": "gzip"}).json()["stored"] == 3
    rows = [dict(zip(HEADER.split(","), GOOD.split(","), strict=True))]
    assert alice.post("/v1/measurements", json={"rows": rows}).json()["stored"] == 1
    assert upload(alice, f"{HEADER}\n{GOOD}".encode()).json()["duplicates"] == 1


def test_csv_that_comes_back_is_a_measurement_table(alice, tmp_path):
    from predictor.measurements.table import read_measurements

    upload(alice, body(3))
    path = tmp_path / "found.csv"
    path.write_bytes(alice.get("/v1/measurements", params={"format": "csv"}).content)
    assert sorted(read_measurements(path)["batch_size"]) == [1, 2, 3]


def test_pages_follow_one_another_to_the_end(alice):
    upload(alice, body(25))
    ids, address = [], "/v1/measurements?limit=10&gpu=t4"
    while address:
        answer = alice.get(address).json()
        ids += [row["id"] for row in answer["rows"]]
        address = answer["next"]
    assert len(ids) == len(set(ids)) == 25


def test_pages_of_csv_name_the_next_in_a_header(alice):
    upload(alice, body(3))
    first = alice.get("/v1/measurements?format=csv&limit=2")
    assert len(list(csv.DictReader(io.StringIO(first.text)))) == 2
    second = alice.get(first.links["next"]["url"])
    assert len(list(csv.DictReader(io.StringIO(second.text)))) == 1
    assert "next" not in second.links


@pytest.mark.parametrize(
    "authorization",
    ["", "Bearer epochcast_wrong", "Bearer x", "Basic YTpi", "Bearer", "Bearer " + "x" * 5000],
)
def test_without_a_key_or_with_a_wrong_one_nothing_is_stored(http, secret, authorization):
    answer = upload(http, body(1), **({"Authorization": authorization} if authorization else {}))
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    assert http.get("/v1/measurements").json()["rows"] == []


def test_a_revoked_or_expired_key_is_403_at_once(alice, store):
    assert upload(alice, body(1)).status_code == 201
    revoke_key(store, "alice")
    answer = upload(alice, body(2))
    assert (answer.status_code, "'alice' was revoked" in answer.text) == (403, True)
    assert len(alice.get("/v1/measurements").json()["rows"]) == 1
    answer = upload(alice, body(3), Authorization=f"Bearer {add_key(store, 'brief', days=-1)}")
    assert (answer.status_code, "'brief' expired on" in answer.json()["detail"]) == (403, True)


def test_each_key_is_named_by_the_rows_it_brought_first(alice, store):
    upload(alice, body(2))
    upload(alice, body(3), Authorization=f"Bearer {add_key(store, 'bob')}")
    assert [row["key"] for row in alice.get("/v1/measurements").json()["rows"]] == ["alice", "alice", "bob"]
    assert len(alice.get("/v1/measurements", params={"key": "bob"}).json()["rows"]) == 1


def test_a_wrong_row_refuses_the_upload_by_line_column_and_value(alice):
    answer = upload(alice, f"{HEADER}\n{GOOD}\nTesla T4,resnet50,224,0,fp32,1".encode())
    assert answer.status_code == 422
    for word in ("line 3", "batch_size", "'0'", "at least 1"):
        assert word in answer.json()["detail"]
    assert alice.get("/v1/measurements").json()["rows"] == []


@each_row
def test_another_form_is_refused(alice, headers, status):
    assert upload(alice, body(1), **headers).status_code == status


@each_row
def test_a_filter_that_makes_no_sense_is_422(http, query):
    assert http.get(f"/v1/measurements?{query}").status_code == 422


def test_killing_the_service_in_the_middle_of_a_burst_loses_nothing_acknowledged(store_url, secret):
    acknowledged = []

    def send(url, sender):
        headers = {"Authorization": f"Bearer {secret}"}
        with (
            httpx.Client(base_url=url, timeout=PATIENCE_S, headers=headers) as client,
            suppress(httpx.HTTPError),
        ):
            for batch in itertools.count():
                answer = upload(client, body(20, first=1_000_000 * sender + 20 * batch))
                assert answer.status_code == 201
                acknowledged.extend(answer.json()["ids"])

    with Service(store_url) as service:
        with ThreadPoolExecutor(4) as threads:
            senders = [threads.submit(send, service.url, i) for i in range(4)]
            wait_until(lambda: len(acknowledged) >= 400, lambda: all(sender.running() for sender in senders))
            service.kill()
        assert [sender.result() for sender in senders] == [None] * 4
        service.start()
        assert set(acknowledged) <= all_ids(service)


def all_ids(service):
    ids, address = set(), "/v1/measurements?limit=10000"
    while address:
        page = httpx.get(service.url + address, timeout=PATIENCE_S).json()
        ids |= {row["id"] for row in page["rows"]}
        address = page["next"]
    return ids


def test_who_sent_an_upload_deletes_it_and_nobody_else_does(alice, store):
    number = upload(alice, body(3)).json()["upload"]
    bobs_headers = {"Authorization": f"Bearer {add_key(store, 'bob')}"}
    assert alice.delete(f"/v1/measurements/uploads/{number}", headers=bobs_headers).status_code == 404
    deletion = alice.delete(f"/v1/measurements/uploads/{number}")
    assert deletion.json() == {"upload": number, "deleted": 3, "kept": 0}
    assert alice.get("/v1/measurements").json()["rows"] == []
    assert alice.delete(f"/v1/measurements/uploads/{number}").status_code == 404


def test_a_store_that_does_not_answer_is_told_without_its_address(alice, monkeypatch):
    def away(*_):
        raise StoreError("the store postgresql://u@secret.host/d does not answer")

    monkeypatch.setattr("api.routes.measurements.find_rows", away)
    answer = alice.get("/v1/measurements")
    assert (answer.status_code, "secret.host" in answer.text) == (503, False)
