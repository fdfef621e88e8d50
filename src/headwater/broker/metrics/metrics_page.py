"""The Prometheus page of a broker: the names its counters have outside, and the text.

Made in two steps, because the first needs the broker's state to stand still and the second can take long:
`families` reads the counters, on the event loop; `page` writes the text, on any thread.
"""

import asyncio
import importlib
import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from headwater.broker.metrics.metrics import MAX_SERIES_PER_GAUGE, Gauge, Histogram, Metrics, TopicCounters
from headwater.logs.events import log_event
from headwater.model.errors import ErrorCode

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


NAMELESS_LABELS = frozenset(("api", "code", "gauge", "le", "operation", "reason", "resource", "version"))
"""Labels whose values are this program's own. All others may be names of topics, groups or users."""


async def metrics_text(metrics: Metrics, *, shows_names: bool = True) -> bytes:
    """Without names: no value of a topic, group or user."""
    # The first time this takes 0.1 s, longer than the loop may stand still.
    await asyncio.to_thread(importlib.import_module, "prometheus_client")
    snapshot = families(metrics)
    if not shows_names:
        snapshot = [family for family in snapshot if _is_nameless(family)]
    return await asyncio.to_thread(page, snapshot)


def _is_nameless(family: "Metric") -> bool:
    return all(label in NAMELESS_LABELS for sample in family.samples for label in sample.labels)


def page(snapshot: "Iterable[Metric]") -> bytes:
    """The text of a snapshot, and of the process (memory, CPU, open files), which is read while writing."""
    from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
    from prometheus_client.registry import Collector

    class Snapshot(Collector):
        def collect(self) -> "Iterable[Metric]":
            return snapshot

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Snapshot())
    ProcessCollector(registry=registry)
    return generate_latest(registry)


def families(metrics: Metrics) -> "list[Metric]":
    """Everything as it stands now. What is counted later does not change the result."""
    return [*_traffic(metrics), *_requests(metrics), *_topics(metrics), *_latencies(metrics), *_gauges(metrics)]


def _traffic(metrics: Metrics) -> "Iterator[Metric]":
    from importlib.metadata import version

    from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily

    build = GaugeMetricFamily("headwater_build_info", "The version that runs.", labels=["version"])
    build.add_metric([version("headwater")], 1)
    yield build
    yield GaugeMetricFamily("headwater_connections", "Client connections that are open.", metrics.connections)
    yield CounterMetricFamily("headwater_connections_opened", "Connections accepted.", metrics.connections_opened)
    yield CounterMetricFamily("headwater_received_bytes", "Bytes read from clients.", metrics.received_bytes)
    yield CounterMetricFamily("headwater_sent_bytes", "Bytes written to clients.", metrics.sent_bytes)


def _requests(metrics: Metrics) -> "Iterator[Metric]":
    from prometheus_client.metrics_core import CounterMetricFamily

    requests = CounterMetricFamily("headwater_requests", "Requests answered.", labels=["api", "version"])
    for (api, version), count in metrics.requests.items():
        requests.add_metric([api, str(version)], count)
    yield requests
    errors = CounterMetricFamily("headwater_request_errors", "Error codes in answers.", labels=["api", "code"])
    for (api, code), count in metrics.errors.items():
        errors.add_metric([api, _code_name(code)], count)
    yield errors
    refused = CounterMetricFamily(
        "headwater_bad_requests", "Connections closed for what their client sent.", labels=["reason"]
    )
    for fact, count in metrics.bad_requests.items():
        refused.add_metric([fact], count)
    yield refused
    refusals = CounterMetricFamily(
        "headwater_authorization_refusals",
        "What clients may not do and asked for; allowed all the same where bindings are only observed.",
        labels=["operation", "resource"],
    )
    for (operation, resource_type), count in metrics.authorization_refusals.items():
        refusals.add_metric([operation, resource_type], count)
    yield refusals


def _topics(metrics: Metrics) -> "Iterator[Metric]":
    from prometheus_client.metrics_core import CounterMetricFamily

    def by_topic(name: str, help: str, read: Callable[[TopicCounters], int]) -> "Metric":
        family = CounterMetricFamily(name, help, labels=["topic"])
        for topic, traffic in metrics.topics.items():
            family.add_metric([topic], read(traffic))
        return family

    yield by_topic("headwater_produced_records", "Records appended.", lambda traffic: traffic.records_in)
    yield by_topic("headwater_produced_batches", "Record batches appended.", lambda traffic: traffic.batches_in)
    yield by_topic("headwater_produced_bytes", "Bytes of the batches appended.", lambda traffic: traffic.bytes_in)
    yield by_topic(
        "headwater_fetched_bytes", "Bytes of the batches given to readers.", lambda traffic: traffic.bytes_out
    )


def _latencies(metrics: Metrics) -> "Iterator[Metric]":
    from prometheus_client.metrics_core import HistogramMetricFamily

    def unlabelled(name: str, help: str, histogram: Histogram) -> "Metric":
        return HistogramMetricFamily(name, help, buckets=histogram.cumulative(), sum_value=histogram.sum)

    requests = HistogramMetricFamily(
        "headwater_request_seconds",
        "Time from a request to its answer; a Fetch includes the wait for records that its client asked for.",
        labels=["api"],
    )
    for api, histogram in metrics.latencies.items():
        requests.add_metric([api], histogram.cumulative(), histogram.sum)
    yield requests
    yield unlabelled("headwater_flush_seconds", "Duration of a flush to the device.", metrics.flushes)
    yield unlabelled("headwater_event_loop_delay_seconds", "Lateness of the event loop, sampled.", metrics.loop_delays)


def _gauges(metrics: Metrics) -> "Iterator[Metric]":
    from prometheus_client.metrics_core import GaugeMetricFamily

    left_out = GaugeMetricFamily("headwater_left_out_series", "Values that a gauge has no room for.", labels=["gauge"])
    for gauge in metrics.gauges.values():
        family = GaugeMetricFamily(f"headwater_{gauge.name}", gauge.help, labels=list(gauge.labels))
        samples = iter(_samples(gauge))
        for labels, value in islice(samples, MAX_SERIES_PER_GAUGE):
            family.add_metric(list(labels), value)
        yield family
        if left := sum(1 for _ in samples):
            left_out.add_metric([gauge.name], left)
    yield left_out


def _samples(gauge: Gauge) -> list[tuple[list[str], float]]:
    """A reader that fails costs its own gauge, not the page."""
    try:
        return [(list(labels), value) for labels, value in gauge.read()]
    except Exception as error:
        log_event("metrics_gauge_failed", logging.ERROR, error, gauge=gauge.name)
        return []


def _code_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)
