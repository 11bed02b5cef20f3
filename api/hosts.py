"""Names by which the service may be asked, and what a service without a proxy says at its start."""

import ipaddress
import logging
import os
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send

from api.problems import problem
from api.words import WORDS

UNUSED_SETTINGS: list[str] = WORDS["unused_settings"]
"""Settings of earlier versions for bounds that the proxy holds now (proxy/nginx.conf)."""

_LOG = logging.getLogger("epochcast.proxy")


class KnownHosts:
    """ASGI layer that refuses requests to names that are not the service's, with a problem document of status 400.

    Any address, this machine and the names may be asked. Another page's script reaches a service by a name that was
    made to point to it (DNS rebinding); an address cannot be made to point elsewhere.
    """

    def __init__(self, app: ASGIApp, names: Sequence[str]) -> None:
        self._app, self._names = app, frozenset(name.casefold() for name in names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or refuse one request."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        await (refusal or self._app)(scope, receive, send)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        hosts = [value.decode("latin-1") for name, value in scope["headers"] if name == b"host"]
        if not hosts and scope["http_version"] == "1.0":
            return None
        if len(hosts) != 1:
            detail = f"the request names {len(hosts)} hosts. Send exactly one Host."
            return problem(400, detail, {"Connection": "close"})
        name = hosts[0].strip().casefold()
        if name.startswith("["):
            name = name.partition("]")[0].removeprefix("[")
        else:
            name = name.partition(":")[0].removesuffix(".")
        if {"*", name} & self._names or _is_local(name) or _address_in(name) is not None:
            return None
        detail = (
            f"this service is not called {hosts[0][:80]!r}. Ask it by its address; its operator names it in "
            "EPOCHCAST_HOSTS."
        )
        return problem(400, detail, {"Connection": "close"})


def warn_without_proxy(host: str) -> None:
    """Log that slow or large requests are not bounded, if `host` is reachable from other machines without a proxy.

    `FORWARDED_ALLOW_IPS` names the proxy, whose forwarded addresses uvicorn trusts.
    """
    address = _address_in(host)
    local = _is_local(host) if address is None else address.is_loopback
    if not local and not os.environ.get("FORWARDED_ALLOW_IPS"):
        _LOG.warning(
            "listening on %s without a proxy: slow heads, bodies and readers, bodies of any size on their way, and "
            "connections and requests of one address are not bounded. On a network put a proxy before the service "
            "(proxy/nginx.conf) and name it in FORWARDED_ALLOW_IPS.",
            host,
        )


def warn_of_unused_settings() -> None:
    """Log settings of earlier versions that are in the environment and do nothing any more."""
    names = [name for name in UNUSED_SETTINGS if name in os.environ]
    if names:
        _LOG.warning(
            "not used any more: %s. The proxy before the service holds these bounds (proxy/nginx.conf).",
            ", ".join(names),
        )


def _is_local(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")


def _address_in(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """IP address that a name spells; None for any other name."""
    try:
        return ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return None
