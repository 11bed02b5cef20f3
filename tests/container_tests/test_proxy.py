"""The proxy's file, run by a real nginx before a real service: what it lets through, and what it ends itself."""

import json
import re
import shutil
import socket
import ssl
import subprocess
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pytest
from services import Service, free_port, listens
from waiting import PATIENCE_S, wait_until

from api.problems import TITLES

ROOT = Path(__file__).parents[2]
CONFIGURATION = (ROOT / "proxy" / "nginx.conf").read_text(encoding="utf-8")
HEAD = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
GET = b"GET /v1/data_sets" + HEAD + b"\r\n"
POST = b"POST /v1/predictions" + HEAD + b"Content-Type: application/json\r\n"
TIGHT = (
    ("client_header_timeout 5s", "client_header_timeout 2s"),
    ("client_body_timeout 5s", "client_body_timeout 2s"),
    ("client_max_body_size 32m", "client_max_body_size 100k"),
    ("connections 64", "connections 4"),
    ("rate=1000r/s", "rate=1r/s"),
    ("burst=1000", "burst=9"),
)
"""Bounds of the file, and those that a test reaches soon."""

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (apt.txt names it)")
_NUMBERS = count(10)


@contextmanager
def running_proxy(folder, service_address, changes=()):
    """Run nginx with the file of compose.yaml in a folder, on free ports; gives those for HTTP and HTTPS."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-days", "2", "-newkey", "rsa:2048", "-nodes"]
    command = ["openssl", "req", "-x509", *subject, "-out", certificate, "-keyout", key]
    subprocess.run(command, check=True, capture_output=True)
    ports = [free_port(), free_port()]
    text = CONFIGURATION
    for bound, tight_bound in changes:
        assert text.count(bound) == 1
        text = text.replace(bound, tight_bound)
    text = text.replace("service:8000", service_address).replace("/tmp/", f"{folder}/")  # noqa: S108
    text = text.replace("/tls/", f"{folder}/").replace("8080", str(ports[0])).replace("8443", str(ports[1]))
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    with (folder / "log").open("w") as log:
        command = [NGINX, "-c", folder / "nginx.conf", "-g", "daemon off;"]
        process = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            wait_until(lambda: listens(ports[0]), alive=lambda: process.poll() is None)
            yield ports
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """The ports of a proxy with tight bounds before a service."""
    with Service() as service:
        address = service.url.removeprefix("http://")
        with running_proxy(tmp_path_factory.mktemp("proxy"), address, TIGHT) as ports:
            yield ports


@pytest.fixture
def address():
    """An address of this machine that no other test asks from."""
    return f"127.0.0.{next(_NUMBERS)}"


def connected(port, address):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(address, 0))
    return context.wrap_socket(plain)


def answer_of(connection, request):
    """All that comes until the connection is closed."""
    answer = b""
    with suppress(ConnectionError, ssl.SSLError):
        connection.sendall(request)
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


def answer_to(ports, address, request):
    with connected(ports[1], address) as connection:
        return answer_of(connection, request)


def status_of(answer):
    """The status of an answer, 0 if the connection was closed without one; a refusal must be a problem document."""
    if not answer:
        return 0
    status = int(answer.split()[1])
    if status >= 400:
        head, _, body = answer.partition(b"\r\n\r\n")
        assert b"\r\ncontent-type: application/problem+json" in head.lower(), head
        problem = json.loads(body)
        assert (problem["status"], problem["title"]) == (status, TITLES.get(status, "Refused"))
        assert problem["detail"]
    return status


def test_a_question_is_answered_over_tls_and_plain_requests_are_sent_there(proxy, address):
    answer = answer_to(proxy, address, GET)
    assert status_of(answer) == 200
    assert b"Strict-Transport-Security" in answer
    with socket.create_connection(("127.0.0.1", proxy[0]), timeout=PATIENCE_S) as connection:
        answer = answer_of(connection, b"GET /v1/gpus" + HEAD + b"\r\n")
    assert status_of(answer) == 308
    assert b"Location: https://localhost/v1/gpus" in answer
    with socket.create_connection(("127.0.0.1", proxy[1]), timeout=PATIENCE_S) as connection:
        assert status_of(answer_of(connection, GET)) == 400


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /metrics" + HEAD + b"\r\n", 404),
        (b"GET /problem" + HEAD + b"\r\n", 404),
        (b"TRACE /v1/gpus" + HEAD + b"\r\n", 405),
        (b"GET /v1/data_sets" + HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n", 400),
        (b"GET /" + b"a" * 9_000 + HEAD + b"\r\n", 414),
        (b"GET /v1/data_sets HTTP/1.1\r\n\r\n", 400),
        (b"GET /v1/data_sets" + HEAD + b"Host: other\r\n\r\n", 400),
        (b"no HTTP\r\n\r\n", 400),
        (POST + b"Transfer-Encoding: br\r\n\r\n", 501),
        (POST + b"Content-Length: -1\r\n\r\n", 400),
        (b"GET /v1/data_sets HTTP/3.0\r\nHost: localhost\r\n\r\n", 505),
        (POST + b"Content-Length: 200000\r\n\r\n" + b" " * 200_000, 413),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n30d40\r\n" + b" " * 200_000 + b"\r\n0\r\n\r\n", 413),
        (POST + b"Content-Length: 2\r\n\r\n{}", 422),  # the service's own
    ],
)
def test_refusals_are_problem_documents(proxy, address, request_bytes, status):
    assert status_of(answer_to(proxy, address, request_bytes)) == status


def test_a_service_that_does_not_answer_is_a_problem_document(tmp_path, address):
    with running_proxy(tmp_path, f"127.0.0.1:{free_port()}") as ports:
        answer = answer_to(ports, address, GET)
    assert status_of(answer) == 502
    assert b"Retry-After: 5" in answer


@pytest.mark.parametrize("half", [b"GET /v1/da", POST + b"Content-Length: 9\r\n\r\n{"], ids=["head", "body"])
def test_half_sent_heads_and_bodies_are_given_up_and_keep_nobody_out(proxy, address, half):
    connections = [connected(proxy[1], address) for _ in range(4)]
    for connection in connections:
        connection.sendall(half)
    assert status_of(answer_to(proxy, "127.0.0.2", GET)) == 200
    for connection in connections:
        assert status_of(answer_of(connection, b"")) == 0
        connection.close()


def test_one_address_has_its_share_of_connections(proxy, address):
    connections = [connected(proxy[1], address) for _ in range(4)]
    for connection in connections:  # nginx counts a connection from its request's head on
        connection.sendall(POST + b"Content-Length: 9\r\n\r\n{")
    answer = answer_to(proxy, address, GET)
    assert (status_of(answer), b"Retry-After: 1\r\n" in answer) == (429, True)
    assert status_of(answer_to(proxy, "127.0.0.3", GET)) == 200
    for connection in connections:
        connection.close()


def test_one_address_has_its_share_of_requests_a_second(proxy, address):
    statuses = [status_of(answer_to(proxy, address, GET)) for _ in range(30)]
    assert statuses[:10] == [200] * 10
    assert 429 in statuses
    assert status_of(answer_to(proxy, "127.0.0.4", GET)) == 200


def test_titles_are_the_services_own_and_details_name_the_bounds_of_the_file():
    titles = dict(
        re.findall(r"^        (\d{3}) \"([^\"]+)\";$", CONFIGURATION.partition("$problem_detail")[0], re.M)
    )
    assert titles
    assert titles == {status: TITLES[int(status)] for status in titles}
    for bound, words in (
        ("large_client_header_buffers 4 8k;", "32 KiB"),
        ("client_max_body_size 32m;", "32 MiB"),
        ("limit_conn connections 64;", "64 connections"),
        ("rate=1000r/s", "1,000 requests"),
        ("proxy_read_timeout 95s;", "95 s"),
    ):
        assert (bound in CONFIGURATION, words in CONFIGURATION) == (True, True)
