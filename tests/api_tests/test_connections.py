"""Heads of requests are bounded, and so are connections: nobody can take them all, nor silence the others."""

import socket
from contextlib import suppress
from pathlib import Path

import pytest
from services import Service
from waiting import PATIENCE_S, wait_until

REQUEST = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def service():
    found = Service(EPOCHCAST_MAX_CONNECTIONS="30", EPOCHCAST_MAX_PER_ADDRESS="10")
    yield found
    found.kill()


def connected(service, address="127.0.0.1"):
    """A connection from one of this machine's addresses; 127.0.0.1 is a proxy's, of which any number may come."""
    port = int(service.url.rpartition(":")[2])
    return socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S, source_address=(address, 0))


def said(connection, request=b""):
    """All that the service says until it closes the connection, or its first answer."""
    found = b""
    try:
        connection.sendall(request)
        while b"\r\n\r\n" not in found and (part := connection.recv(65536)):
            found += part
    except (ConnectionError, BrokenPipeError):
        pass
    return found


def test_a_request_is_answered_and_the_next_on_the_same_connection(service):
    with connected(service) as connection:
        assert b" 200 " in said(connection, REQUEST + b"\r\n")
        assert b" 200 " in said(connection, REQUEST + b"\r\n")


@pytest.mark.parametrize("hosts", [b"", b"Host: 127.0.0.1\r\nHost: localhost\r\n"])
def test_a_request_names_exactly_one_host(service, hosts):
    with connected(service) as connection:
        answer = said(connection, b"GET /healthz HTTP/1.1\r\n" + hosts + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "host", [b"evil.example", b"evil.example:8000", b"localhost.evil.example", b"127.0.0.1.evil.example"]
)
def test_a_name_that_another_page_made_point_here_is_refused(service, host):
    with connected(service) as connection:
        answer = said(connection, b"GET /healthz HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")


@pytest.mark.parametrize(
    "host", [b"localhost", b"LOCALHOST:80", b"127.0.0.1:8000", b"[::1]:8000", b"192.0.2.7"]
)
def test_addresses_and_this_machine_need_no_name(service, host):
    with connected(service) as connection:
        assert b" 200 " in said(connection, b"GET /healthz HTTP/1.1\r\nHost: " + host + b"\r\n\r\n")


def test_a_request_of_before_hosts_needs_none(service):
    with connected(service) as connection:
        assert b" 200 " in said(connection, b"GET /healthz HTTP/1.0\r\n\r\n")


@pytest.mark.parametrize(
    "head",
    [
        REQUEST + b"X: " + b"a" * 40_000 + b"\r\n\r\n",
        REQUEST + b"X: " + b"a" * 2_000_000,  # and no end
        REQUEST + b"".join(b"X-%d: a\r\n" % i for i in range(10_000)) + b"\r\n",
        b"GET /" + b"a" * 40_000 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    ],
)
def test_a_large_head_is_refused(service, head):
    with connected(service) as connection:
        answer = said(connection, head)
    assert answer.startswith(b"HTTP/1.1 400 ") or answer == b""  # or the connection is reset as it is sent


def test_a_large_body_is_no_large_head(service):
    body = b'{"cnn": "resnet50"' + b" " * 200_000 + b"}"
    head = b"POST /v1/predictions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with connected(service) as connection:
        answer = said(connection, head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert b" 422 " in answer
        rest = int(answer.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        rest -= len(answer.partition(b"\r\n\r\n")[2])
        while rest > 0:
            rest -= len(connection.recv(rest))
        assert b" 200 " in said(connection, REQUEST + b"\r\n")


CHUNKED = b"POST /v1/predictions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED += b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


def test_headers_after_a_body_count_for_nothing(service):
    with connected(service) as connection:
        answer = said(connection, CHUNKED + b"X-Request-ID: from-a-trailer\r\n\r\n")
        assert b" 422 " in answer
        assert b"from-a-trailer" not in answer


def test_headers_after_a_body_are_bounded(service):
    with connected(service) as connection:
        sent = 0
        with suppress(ConnectionError):
            connection.sendall(CHUNKED + b"X: ")
            while sent < 64:
                connection.sendall(b"a" * 2**20)
                sent += 1
    assert sent < 32


def test_half_sent_heads_keep_no_other_out(service):
    silent = [connected(service) for _ in range(60)]
    for connection in silent[:10]:
        connection.sendall(REQUEST)
    with connected(service, "127.0.0.2") as other:
        assert b" 200 " in said(other, REQUEST + b"\r\n")
    for connection in silent:
        connection.close()


def test_one_address_has_its_share_of_connections(service):
    mine = [connected(service, "127.0.0.3") for _ in range(11)]
    assert said(mine[10]) == b""
    assert b" 200 " in said(mine[0], REQUEST + b"\r\n")
    for connection in mine:
        connection.close()


@pytest.fixture(scope="module")
def hurried():
    """A service that waits for clients for a moment alone."""
    found = Service(EPOCHCAST_HEAD_TIMEOUT_S="3", EPOCHCAST_TAKE_TIMEOUT_S="0.3")
    yield found
    found.kill()


def test_a_half_sent_head_is_given_up(hurried):
    with connected(hurried) as connection:
        assert said(connection, REQUEST) == b""  # closed without an answer


def test_who_does_not_take_its_answer_is_let_go(hurried):
    body = b'{"cnn": "resnet18", "gpus": ["all"], "batch_sizes": %s, "precisions": ["fp32"]}'
    body %= str(list(range(1, 121))).encode()
    head = b"POST /v1/predictions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    with connected(hurried) as slow:
        slow.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        found = slow.recv(65536)
        whole = int(found.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        wait_until(lambda: open_connections(hurried) == 0)
        assert len(found) + taken(slow) < whole


def open_connections(service):
    """Connections to the service that it has not closed."""
    port = f":{int(service.url.rpartition(':')[2]):04X}"
    lines = Path(f"/proc/{service.process.pid}/net/tcp").read_text().splitlines()[1:]
    mine = {
        str(each.readlink())[8:-1]
        for each in Path(f"/proc/{service.process.pid}/fd").iterdir()
        if each.is_symlink()
    }
    return sum(
        line.split()[1].endswith(port) and line.split()[3] == "01" and line.split()[9] in mine
        for line in lines
    )


def taken(connection):
    """Bytes that are left to read until the connection ends or is reset."""
    found = 0
    with suppress(ConnectionError):
        while part := connection.recv(1 << 20):
            found += len(part)
    return found
