"""The proxy's file, run by a real nginx before a real service: what it lets through, and what it ends itself."""

import re
import shutil
import socket
import ssl
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from services import Service
from waiting import PATIENCE_S, wait_until

ROOT = Path(__file__).parents[2]

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
pytestmark = pytest.mark.skipif(NGINX is None, reason="nginx is not installed (apt.txt names it)")


@pytest.fixture(scope="module")
def proxy(tmp_path_factory):
    """The ports for HTTP and HTTPS of the proxy of compose.yaml, in a folder and on ports of this test's own."""
    folder = tmp_path_factory.mktemp("proxy")
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    subject = ["-subj", "/CN=localhost", "-days", "2", "-newkey", "rsa:2048", "-nodes"]
    made = ["openssl", "req", "-x509", *subject, "-out", certificate, "-keyout", key]
    subprocess.run(made, check=True, capture_output=True)
    service = Service()
    ports = [_free_port(), _free_port()]
    text = (ROOT / "proxy" / "nginx.conf").read_text(encoding="utf-8")
    text = text.replace("service:8000", service.url.removeprefix("http://")).replace("/tmp/", f"{folder}/")  # noqa: S108
    text = text.replace("/tls/", f"{folder}/").replace("8080", str(ports[0])).replace("8443", str(ports[1]))
    text = re.sub(r"client_(header|body)_timeout 5s", r"client_\1_timeout 2s", text)
    text = text.replace("limit_conn connections 64", "limit_conn connections 4")
    (folder / "nginx.conf").write_text(text, encoding="utf-8")
    log = (folder / "log").open("w")
    command = [NGINX, "-c", folder / "nginx.conf", "-g", "daemon off;"]
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        wait_until(lambda: _answers(ports[0]), alive=lambda: process.poll() is None)
        yield ports
    finally:
        process.terminate()
        process.wait(PATIENCE_S)
        service.kill()
        log.close()


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


def _answers(port):
    with suppress(OSError):
        socket.create_connection(("127.0.0.1", port)).close()
        return True
    return False


def connected(port, address="127.0.0.1"):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    plain = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(address, 0))
    return context.wrap_socket(plain)


def said(connection, request):
    found = b""
    with suppress(ConnectionError, ssl.SSLError):
        connection.sendall(request)
        while part := connection.recv(65536):
            found += part
    return found


HEAD = b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"


def test_a_question_is_answered_over_tls_and_the_client_is_told_to_stay_with_it(proxy):
    with connected(proxy[1]) as connection:
        answer = said(connection, b"GET /v1/data_sets" + HEAD + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"Strict-Transport-Security" in answer


def test_plain_requests_are_sent_to_tls(proxy):
    with socket.create_connection(("127.0.0.1", proxy[0]), timeout=PATIENCE_S) as connection:
        answer = said(connection, b"GET /v1/gpus" + HEAD + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 308 ")
    assert b"Location: https://localhost/v1/gpus" in answer


def test_metrics_are_not_for_the_network(proxy):
    with connected(proxy[1]) as connection:
        assert said(connection, b"GET /metrics" + HEAD + b"\r\n").startswith(b"HTTP/1.1 404 ")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /v1/data_sets" + HEAD + b"X: " + b"a" * 100_000 + b"\r\n\r\n",
        b"GET /v1/data_sets HTTP/1.1\r\n\r\n",
        b"GET /v1/data_sets" + HEAD + b"Host: other\r\n\r\n",
    ],
)
def test_heads_that_are_large_or_name_no_one_host_end_at_the_proxy(proxy, head):
    with connected(proxy[1]) as connection:
        assert said(connection, head).startswith(b"HTTP/1.1 400 ")


def test_half_sent_heads_and_bodies_are_given_up_and_keep_nobody_out(proxy):
    half = [connected(proxy[1], "127.0.0.7") for _ in range(4)]
    for i, connection in enumerate(half):
        body = b"POST /v1/predictions" + HEAD + b"Content-Length: 9\r\n\r\n{"
        connection.sendall(body if i % 2 else b"GET /v1/da")
    with connected(proxy[1]) as other:
        assert said(other, b"GET /v1/data_sets" + HEAD + b"\r\n").startswith(b"HTTP/1.1 200 ")
    for connection in half:
        assert not said(connection, b"").startswith(b"HTTP/1.1 2")
        connection.close()


def test_one_address_has_its_share_of_connections(proxy):
    open_ones = [connected(proxy[1], "127.0.0.5") for _ in range(4)]
    for connection in open_ones:  # nginx counts a connection from its request's head on
        connection.sendall(b"POST /v1/predictions" + HEAD + b"Content-Length: 9\r\n\r\n{")
    with connected(proxy[1], "127.0.0.5") as one_more:
        assert said(one_more, b"GET /v1/data_sets" + HEAD + b"\r\n").startswith(b"HTTP/1.1 429 ")
    with connected(proxy[1], "127.0.0.6") as other:
        assert said(other, b"GET /v1/data_sets" + HEAD + b"\r\n").startswith(b"HTTP/1.1 200 ")
    for connection in open_ones:
        connection.close()
