"""What a broker counts about itself, cheap enough to count on every request.

Contract, for the code that is being measured (on the broker's event loop, unless said otherwise):

    metrics = Metrics()                                      # one per broker; several may live in one process
    metrics.connection_opened(); metrics.connection_closed()
    metrics.bytes_in(n); metrics.bytes_out(n)                # whole frames, as they cross the socket
    metrics.request_finished("Produce", 9, seconds)          # from the last byte read to the answer being queued
    metrics.bad_request("frame_too_large")                   # a connection that was closed for what it sent
    metrics.error("Produce", ErrorCode.MESSAGE_TOO_LARGE)    # once for each error code in an answer
    metrics.produced(topic, records, batches, size_bytes)    # once per partition in a request, not per record
    metrics.fetched(topic, size_bytes)
    metrics.flushed(seconds)                                 # a flush to the device, by timed_files.py
    metrics.watch("log_size_bytes", "...", ("topic",), read) # a gauge that `read()` computes for each page

`MetricsServer.start(metrics, host, port)` in metrics_server.py shows them; metrics_page.py gives them their names.

The hot calls touch dictionaries and lists only: 0.4 µs for a request, measured, where a counter and a histogram of
the Prometheus client take 1.5 µs, or 3.6 µs with the lookup of their labels. That client writes the page, and is
not imported before the first request for it.

Label values come from outside (topic and group names), so their number is limited: past MAX_TOPICS the rest is
counted under one name, and a gauge shows at most MAX_SERIES_PER_GAUGE values and says how many it left out.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

MAX_TOPICS = 1_000
MAX_SERIES_PER_GAUGE = 10_000
OTHER_TOPICS = "(other)"
"""Not a legal topic name, so it cannot be taken for one."""

REQUEST_BOUNDS_S = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
)
FLUSH_BOUNDS_S = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)
DELAY_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

Sample: TypeAlias = tuple[Sequence[str], float]
"""Label values and the value they have."""


class Histogram:
    """Counts by upper bound. Observing costs one binary search in C and two additions."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, int]]:
        """Pairs of upper bound and the number of values not above it, as Prometheus wants them."""
        total = 0
        pairs = []
        for bound, count in zip((*map(repr, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            pairs.append((bound, total))
        return pairs


@dataclass(slots=True)
class TopicCounters:
    records_in: int = 0
    batches_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(frozen=True, slots=True)
class Gauge:
    """A number that is computed for each page. `read` yields one value for each set of labels."""

    name: str
    help: str
    labels: tuple[str, ...]
    read: Callable[[], Iterable[Sample]]


@dataclass(slots=True)
class Metrics:
    connections: int = 0
    connections_opened: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    requests: dict[tuple[str, int], int] = field(default_factory=dict)
    """By API and version."""
    latencies: dict[str, Histogram] = field(default_factory=dict)
    """By API."""
    errors: dict[tuple[str, int], int] = field(default_factory=dict)
    """By API and error code."""
    bad_requests: dict[str, int] = field(default_factory=dict)
    authorization_refusals: dict[tuple[str, str], int] = field(default_factory=dict)
    """By operation and type of resource."""
    """By the event that was logged, or left out of the log."""
    topics: dict[str, TopicCounters] = field(default_factory=dict)
    flushes: Histogram = field(default_factory=lambda: Histogram(FLUSH_BOUNDS_S))
    loop_delays: Histogram = field(default_factory=lambda: Histogram(DELAY_BOUNDS_S))
    gauges: dict[str, Gauge] = field(default_factory=dict)

    def request_finished(self, api_name: str, version: int, seconds: float) -> None:
        key = (api_name, version)
        try:
            self.requests[key] += 1
        except KeyError:
            self.requests[key] = 1
            self.latencies.setdefault(api_name, Histogram(REQUEST_BOUNDS_S))
        latency = self.latencies[api_name]
        latency.counts[bisect_left(REQUEST_BOUNDS_S, seconds)] += 1
        latency.sum += seconds

    def error(self, api_name: str, code: int) -> None:
        key = (api_name, int(code))
        self.errors[key] = self.errors.get(key, 0) + 1

    def connection_opened(self) -> None:
        self.connections += 1
        self.connections_opened += 1

    def connection_closed(self) -> None:
        assert self.connections > 0, "a connection closes once, after it was opened"
        self.connections -= 1

    def bytes_in(self, count: int) -> None:
        self.received_bytes += count

    def bytes_out(self, count: int) -> None:
        self.sent_bytes += count

    def bad_request(self, event: str) -> None:
        self.bad_requests[event] = self.bad_requests.get(event, 0) + 1

    def authorization_refused(self, operation: str, resource_type: str) -> None:
        key = (operation, resource_type)
        self.authorization_refusals[key] = self.authorization_refusals.get(key, 0) + 1

    def produced(self, topic: str, records: int, batches: int, size_bytes: int) -> None:
        traffic = self.topics.get(topic) or self._traffic(topic)
        traffic.records_in += records
        traffic.batches_in += batches
        traffic.bytes_in += size_bytes

    def fetched(self, topic: str, size_bytes: int) -> None:
        traffic = self.topics.get(topic) or self._traffic(topic)
        traffic.bytes_out += size_bytes

    def topic_deleted(self, topic: str) -> None:
        """Forget its counters, so that topics that come and go do not fill the room there is."""
        self.topics.pop(topic, None)

    def flushed(self, seconds: float) -> None:
        """Only ever called by one thread at a time; a page made meanwhile may miss the last one."""
        self.flushes.observe(seconds)

    def loop_delayed(self, seconds: float) -> None:
        """How much later than asked the event loop ran a callback."""
        self.loop_delays.observe(seconds)

    def watch(self, name: str, help: str, labels: Sequence[str], read: Callable[[], Iterable[Sample]]) -> None:
        """Show a gauge `headwater_<name>`. `read` runs on the event loop at every scrape, so it must be quick."""
        assert name not in self.gauges, "a gauge has one reader"
        self.gauges[name] = Gauge(name, help, tuple(labels), read)

    def _traffic(self, topic: str) -> TopicCounters:
        name = topic if len(self.topics) < MAX_TOPICS else OTHER_TOPICS
        return self.topics.setdefault(name, TopicCounters())
