"""Counts of the gateway, as Prometheus reads them.

Counting is a few additions on the event loop; the Prometheus client is imported with the first request for the page.
Other parts add their own families with `register`.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from prometheus_client.core import Metric

LATENCY_BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
OTHER = "other"
"""The route of requests that no route took: their paths are not names that we chose."""
MAX_SERIES = 2_000

Families = Callable[[], "Iterable[Metric]"]


class _Latency:
    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(LATENCY_BOUNDS_S) + 1)
        self.total_s = 0.0


class HttpMetrics:
    def __init__(self) -> None:
        self.in_flight = 0
        """Requests that were begun and not answered."""
        self.records_written = 0
        self.records_refused = 0
        self.records_read = 0
        self._requests: dict[tuple[str, str, int], int] = {}
        self._latencies: dict[tuple[str, str], _Latency] = {}
        self._others: list[Families] = []

    def register(self, families: Families) -> None:
        self._others.append(families)

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        counted = self._requests.get(key)
        if counted is None and len(self._requests) >= MAX_SERIES:
            return
        self._requests[key] = (counted or 0) + 1
        latency = self._latencies.get((method, route))
        if latency is None:
            latency = self._latencies[method, route] = _Latency()
        latency.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        latency.total_s += seconds

    def page(self) -> bytes:
        """The text format of Prometheus."""
        from prometheus_client import CollectorRegistry, generate_latest

        registry = CollectorRegistry(auto_describe=False)
        registry.register(self)
        return generate_latest(registry)

    def collect(self) -> "Iterable[Metric]":
        """The Prometheus client calls this."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        requests = CounterMetricFamily(
            "headwater_http_requests", "Requests answered.", labels=["method", "route", "status"]
        )
        for (method, route, status), count in self._requests.items():
            requests.add_metric([method, route, str(status)], count)
        yield requests
        latencies = HistogramMetricFamily(
            "headwater_http_request_seconds", "From the head of a request to its answer.", labels=["method", "route"]
        )
        for key, latency in self._latencies.items():
            latencies.add_metric(list(key), _buckets(latency), latency.total_s)
        yield latencies
        yield GaugeMetricFamily("headwater_http_in_flight", "Requests that wait for their answer.", self.in_flight)
        for name, help_text, value in (
            ("records_written", "Records that the cluster acknowledged.", self.records_written),
            ("records_refused", "Records that it did not acknowledge.", self.records_refused),
            ("records_read", "Records read without a group.", self.records_read),
        ):
            yield CounterMetricFamily(f"headwater_http_{name}", help_text, value)
        for families in self._others:
            yield from families()


def _buckets(latency: _Latency) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*LATENCY_BOUNDS_S, "+Inf"), latency.counts, strict=True):
        total += count
        buckets.append((str(bound), total))
    return buckets
