"""`epochcast serve` says what is wrong before a server starts, in one line."""

import socket

import pytest

from api.observability import logging_json


@pytest.fixture(autouse=True)
def logs_as_before():
    """Loggers keep no handler of a server, whose standard error is closed with its test."""
    with logging_json("info"):
        yield


def test_a_wrong_setting_is_named_by_its_variable(epochcast, monkeypatch):
    monkeypatch.setenv("EPOCHCAST_STORE", "")
    monkeypatch.setenv("EPOCHCAST_QUEUE_WAIT_S", "soon")
    run = epochcast("serve")
    assert run.code == 2
    assert "EPOCHCAST_QUEUE_WAIT_S is 'soon': Give a number from 1e-06 to 3,600." in run.err


def test_it_listens_on_this_machine_alone_and_a_taken_port_is_one_line_that_says_to_pick_another(
    epochcast, monkeypatch
):
    server = {}
    monkeypatch.setenv("EPOCHCAST_STORE", "")
    monkeypatch.setattr("api.connections.serve", lambda config: server.update(vars(config)))
    assert epochcast("serve").code == 0
    assert (server["app"], server["host"], server["port"]) == ("api.main:create_app", "127.0.0.1", 8000)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        run = epochcast("serve", "--port", str(port))
    assert (run.code, len(run.err.splitlines())) == (2, 1)
    assert f"cannot listen on 127.0.0.1, port {port}" in run.err
    assert "Pass another --port" in run.err
