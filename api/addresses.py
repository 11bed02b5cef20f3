"""Addresses of clients: whom limits count, and by what names a service may be asked."""

import ipaddress


def address_of(client: tuple[str, int] | None) -> str:
    """Address that a rate counts for: all of IPv4, the network (/64) of IPv6, which one machine has whole."""
    host = client[0] if client else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host


def host_name(host: str) -> str:
    """The name or address in a `Host`, without its port, in small letters and without a last dot."""
    name = host.strip().casefold()
    if name.startswith("["):
        return name.partition("]")[0].removeprefix("[")
    return name.partition(":")[0].removesuffix(".")


def is_allowed_host(host: str, allowed: frozenset[str]) -> bool:
    """Whether a service of these names may be asked as `host`: any address, this machine, and the names.

    Another page's script reaches a service by a name that was made to point to it (DNS rebinding); an address cannot be
    made to point elsewhere.
    """
    name = host_name(host)
    if "*" in allowed or name in allowed or name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
