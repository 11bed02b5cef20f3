"""A measurement table is pushed to a service on a socket, wholly, however often it is sent."""

import http.server
import threading
from contextlib import contextmanager

import pandas as pd
import pytest

from api.store.keys import revoke_key
from api.store.measurements import find_rows, stored_frame
from epochcast.pushing import Service, upload
from predictor.errors import SchemaError, ServiceError
from predictor.measurements.table import read_measurements


@pytest.fixture
def table(tmp_path):
    """A measurement table of 25 rows with a column of one's own, gzipped."""
    row = {"gpu": "T4", "cnn": "resnet50", "image_size": 224, "precision": "fp32", "autotune": True}
    row |= {"samples_per_epoch": 50_000, "mood": "sunny"}
    numbers = ({"batch_size": 1 + i, "iteration_time_ms": 10.1 + 10 * i / 3} for i in range(25))
    rows = pd.DataFrame([row | number for number in numbers])
    rows.to_csv(tmp_path / "table.csv.gz", index=False)
    return tmp_path / "table.csv.gz"


def test_every_row_arrives_as_it_is_in_the_table(app, serve, store, secret, table, monkeypatch):
    monkeypatch.setattr("epochcast.pushing._ROWS_OF_AN_UPLOAD", 10)
    receipt = upload(table, serve(app), secret)
    assert (receipt.stored, receipt.duplicates, len(set(receipt.ids))) == (25, 0, 25)
    frame = stored_frame(store).sort_values("batch_size", ignore_index=True)
    sent = read_measurements(table)[list(frame.columns)]
    pd.testing.assert_frame_equal(frame, sent)


def test_pushing_again_stores_nothing_twice_and_the_key_may_come_from_the_environment(
    app, serve, secret, table, monkeypatch
):
    monkeypatch.setenv("EPOCHCAST_API_KEY", secret)
    url = serve(app)
    first, second = (upload(table, url) for _ in range(2))
    assert (first.stored, second.stored, second.duplicates, second.ids) == (25, 0, 25, first.ids)


def test_a_revoked_key_is_an_error_that_says_so(app, serve, store, secret, table):
    revoke_key(store, "alice")
    with pytest.raises(ServiceError, match="the API key of 'alice' was revoked"):
        upload(table, serve(app), secret)
    assert find_rows(store, {}).rows == []


def test_a_table_that_is_wrong_is_refused_before_anything_is_sent(tmp_path):
    (tmp_path / "table.csv").write_text("gpu,cnn\nT4,resnet50\n")
    with pytest.raises(SchemaError, match="lacks the column"):
        upload(tmp_path / "table.csv", "http://127.0.0.1:9")


@pytest.mark.parametrize("url", ["", "127.0.0.1:8000", "ftp://h", "file:///etc/passwd", "http://"])
def test_an_address_of_no_service_is_refused(url):
    with pytest.raises(SchemaError, match="is not the address of a service"):
        Service(url)


def test_a_service_that_is_away_is_an_error_with_its_address():
    with pytest.raises(ServiceError, match=r"http://127.0.0.1:9 does not answer: .*refused"):
        Service("http://127.0.0.1:9", attempts=1).get("/healthz")


@contextmanager
def pretending(*answers):
    """A server that gives these answers in turn, and the requests that it got."""
    left, got = list(answers), []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            got.append((self.path, self.headers))
            status, headers = left.pop(0)
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", got
        server.shutdown()


def test_an_overloaded_service_is_asked_again_when_it_says(monkeypatch):
    waits = []
    monkeypatch.setattr("epochcast.pushing.time.sleep", waits.append)
    with pretending((503, {}), (429, {"Retry-After": "7"}), (200, {})) as (url, got):
        assert Service(url).get("/x").status_code == 200
    assert (waits, len(got)) == ([0.5, 7.0], 3)


def test_a_redirect_is_not_followed_so_that_the_key_stays_where_it_was_meant_for():
    with pretending((302, {"Location": "http://127.0.0.1:9/"})) as (url, got):
        assert Service(url, "epochcast_secret").get("/x").status_code == 302
    assert got[0][1]["Authorization"] == "Bearer epochcast_secret"
