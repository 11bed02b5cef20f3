"""`/metrics`: what the service does, in Prometheus' text form; counting costs a request about a microsecond.

`Metrics` is filled by `api.observed` and read by the route; the numbers become Prometheus' families when they are asked
for, not in requests. Paths are counted by their route, so that no client makes the table grow.
"""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

__all__ = ["Metrics", "router"]

_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

router = APIRouter(tags=["health"])


@dataclass(slots=True)
class _Series:
    """Requests of one method, route and status: how many, how long, how many in each bucket of time."""

    count: int = 0
    seconds: float = 0.0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(_BOUNDS_S) + 1))


class Metrics(Collector):
    """Counts of requests; belongs to one event loop, so that it needs no lock."""

    def __init__(self) -> None:
        self.in_work = 0
        """Requests that have begun and not ended."""
        self.lag_s = 0.0
        """How late the event loop was when it was last looked at."""
        self._series: dict[tuple[str, str, int], _Series] = {}
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)
        ProcessCollector(registry=self.registry)

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request that has ended."""
        key = (method, route, status)
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = _Series()
        series.count += 1
        series.seconds += seconds
        series.buckets[bisect_left(_BOUNDS_S, seconds)] += 1

    def collect(self) -> Iterator[Metric]:
        """Families as Prometheus' client wants them."""
        labels = ("method", "route", "status")
        requests = CounterMetricFamily("epochcast_requests", "Requests answered.", labels=labels)
        times = HistogramMetricFamily(
            "epochcast_request_seconds", "Time from a request to its answer.", labels=labels
        )
        for (method, route, status), series in list(self._series.items()):
            words = (method, route, str(status))
            requests.add_metric(words, series.count)
            times.add_metric(words, _cumulated(series.buckets), series.seconds)
        yield requests
        yield times
        yield GaugeMetricFamily("epochcast_requests_in_work", "Requests begun and not ended.", self.in_work)
        yield GaugeMetricFamily("epochcast_loop_lag_seconds", "How late the event loop is.", self.lag_s)


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
async def metrics(request: Request) -> Response:
    """Requests by route and status, their times, what is in work, the process's memory and CPU time."""
    found: Metrics = request.app.state.metrics
    return Response(generate_latest(found.registry), media_type=_CONTENT_TYPE)


def _cumulated(counts: list[int]) -> list[tuple[str, float]]:
    total, found = 0, []
    for bound, count in zip((*map(str, _BOUNDS_S), "+Inf"), counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
