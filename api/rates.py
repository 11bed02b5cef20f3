"""How often somebody may ask: token buckets in memory, one for each address and each API key.

The number of buckets is bounded: those that were not used for longest go first, which are full again anyway
unless somebody has very many addresses.
"""

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable

__all__ = ["Rates", "address_of"]

_MOST_BUCKETS = 20_000


class Rates:
    """Token buckets: `burst` requests at once, `per_s` each second after that; `per_s` 0 allows all."""

    def __init__(self, per_s: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_s, self._burst, self._clock = per_s, float(burst), clock
        self._buckets: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def wait_s(self, who: Hashable) -> int:
        """Take a token; 0, or the seconds after which there is one again."""
        if not self._per_s:
            return 0
        now = self._clock()
        tokens, last = self._buckets.pop(who, (self._burst, now))
        tokens = min(self._burst, tokens + (now - last) * self._per_s)
        allowed = tokens >= 1.0
        self._buckets[who] = (tokens - 1.0 if allowed else tokens, now)
        if len(self._buckets) > _MOST_BUCKETS:
            self._buckets.popitem(last=False)
        return 0 if allowed else max(1, math.ceil((1.0 - tokens) / self._per_s))


def address_of(client: tuple[str, int] | None) -> str:
    """Whose address it is: all of IPv4, the network part (/64) of IPv6, which one machine has whole."""
    host = client[0] if client else ""
    if ":" not in host:
        return host
    try:
        return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
    except ValueError:
        return host
