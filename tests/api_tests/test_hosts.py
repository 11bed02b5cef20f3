"""By which names a service may be asked, what one address is, and what a service says that nobody bounds for."""

import asyncio
import json
import logging

from case_tables import each_row

from api.hosts import UNUSED_SETTINGS, KnownHosts, warn_of_unused_settings, warn_without_proxy
from api.serving import address_of
from api.settings import Settings


def answer_to(*hosts, http_version="1.1", names=("gpu.example",)):
    """Status and detail of the answer to a request with these `Host` headers."""
    messages = []

    async def application(_scope, _receive, send):
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b'{"detail": ""}'})

    async def send(message):
        messages.append(message)

    headers = [(b"host", host.encode()) for host in hosts]
    scope = {"type": "http", "http_version": http_version, "headers": headers}
    asyncio.run(KnownHosts(application, names)(scope, None, send))
    return messages[0]["status"], json.loads(messages[1]["body"])["detail"]


@each_row
def test_addresses_this_machine_and_the_services_names_are_answered(host):
    assert answer_to(host)[0] == 200


@each_row
def test_a_name_that_another_page_made_point_here_is_refused(hosts, words):
    status, detail = answer_to(*hosts)
    assert (status, words in detail) == (400, True)


def test_any_name_is_answered_where_the_operator_says_so_and_one_machine_has_one_address():
    assert answer_to("evil.example", names=("*",))[0] == 200
    assert answer_to(http_version="1.0")[0] == 200
    assert address_of(("192.0.2.7", 5)) == "192.0.2.7"
    assert address_of(("2001:db8:1:2:aaaa::1", 5)) == address_of(("2001:db8:1:2:bbbb::9", 7))
    assert address_of(("2001:db8:1:3::1", 5)) != address_of(("2001:db8:1:2::1", 5))
    assert address_of(("fe80::1%eth0", 5)) == "fe80::/64"
    assert address_of(("testclient", 5)) == "testclient"
    assert address_of(("no:address", 5)) == "no:address"
    assert address_of(None) == ""


@each_row
def test_a_service_beyond_this_machine_without_a_proxy_says_what_nobody_bounds(
    caplog, monkeypatch, host, proxy, lines
):
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", proxy)
    with caplog.at_level(logging.WARNING):
        warn_without_proxy(host)
    assert len(caplog.messages) == lines
    assert all("slow heads, bodies and readers" in message for message in caplog.messages)


def test_settings_of_earlier_versions_are_named_and_are_none(caplog, monkeypatch):
    monkeypatch.setenv("EPOCHCAST_RATE_PER_S", "50")
    monkeypatch.setenv("EPOCHCAST_TIMEOUT_S", "90")
    warn_of_unused_settings()
    [message] = caplog.messages
    assert "not used any more: EPOCHCAST_RATE_PER_S, EPOCHCAST_TIMEOUT_S." in message
    assert {f"EPOCHCAST_{field}".upper() for field in Settings.model_fields}.isdisjoint(UNUSED_SETTINGS)
