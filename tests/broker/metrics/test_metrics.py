"""Counting, and the page that shows the counts."""

import asyncio
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headwater.broker.metrics import metrics as metrics_module
from headwater.broker.metrics.group_health import health_page
from headwater.broker.metrics.metrics import OTHER_TOPICS, Histogram, Metrics
from headwater.broker.metrics.metrics_page import families, page
from headwater.broker.metrics.metrics_server import MAX_CONNECTIONS, MAX_REQUEST_BYTES, MetricsServer, PageAccess
from headwater.broker.metrics.timed_files import TimedFiles
from headwater.groups.departures import DepartureReason, MemberDeparture
from headwater.model.errors import ErrorCode
from tests.support.eventually import PATIENCE_S, until


def scraped(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    text = page(families(metrics)).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def exchange(address: tuple[str, int], request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(*address)
    writer.write(request)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    return answer


def test_a_value_on_a_bound_counts_as_not_above_it() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(value)
    assert histogram.cumulative() == [("0.1", 2), ("1.0", 4), ("+Inf", 5)]
    assert histogram.sum == pytest.approx(8.65)


def test_requests_are_counted_by_api_and_version_and_timed_by_api() -> None:
    metrics = Metrics()
    metrics.request_finished("Produce", 9, 0.0003)
    metrics.request_finished("Produce", 7, 0.0003)
    metrics.request_finished("Fetch", 12, 0.5)
    seen = scraped(metrics)
    assert seen["headwater_requests_total", (("api", "Produce"), ("version", "9"))] == 1
    assert seen["headwater_requests_total", (("api", "Produce"), ("version", "7"))] == 1
    assert seen["headwater_request_seconds_count", (("api", "Produce"),)] == 2
    assert seen["headwater_request_seconds_bucket", (("api", "Produce"), ("le", "0.00025"))] == 0
    assert seen["headwater_request_seconds_bucket", (("api", "Produce"), ("le", "0.0005"))] == 2
    assert seen["headwater_request_seconds_sum", (("api", "Fetch"),)] == 0.5


def test_connections_bytes_errors_and_flushes_reach_the_page() -> None:
    metrics = Metrics()
    metrics.connection_opened()
    metrics.connection_opened()
    metrics.connection_closed()
    metrics.bytes_in(100)
    metrics.bytes_out(250)
    metrics.error("Produce", ErrorCode.MESSAGE_TOO_LARGE)
    metrics.error("Produce", 9999)
    metrics.bad_request("frame_too_large")
    metrics.flushed(0.002)
    metrics.loop_delayed(0.003)
    seen = scraped(metrics)
    assert seen["headwater_connections", ()] == 1
    assert seen["headwater_connections_opened_total", ()] == 2
    assert seen["headwater_received_bytes_total", ()] == 100
    assert seen["headwater_sent_bytes_total", ()] == 250
    assert seen["headwater_request_errors_total", (("api", "Produce"), ("code", "MESSAGE_TOO_LARGE"))] == 1
    assert seen["headwater_request_errors_total", (("api", "Produce"), ("code", "9999"))] == 1
    assert seen["headwater_bad_requests_total", (("reason", "frame_too_large"),)] == 1
    assert seen["headwater_flush_seconds_count", ()] == 1
    assert seen["headwater_event_loop_delay_seconds_count", ()] == 1
    assert seen["process_resident_memory_bytes", ()] > 0
    assert seen["process_open_fds", ()] > 0
    assert seen["process_cpu_seconds_total", ()] > 0


def test_a_topic_is_counted_in_records_batches_and_bytes() -> None:
    metrics = Metrics()
    metrics.produced("orders", records=500, batches=2, size_bytes=40_000)
    metrics.fetched("orders", 80_000)
    seen = scraped(metrics)
    assert seen["headwater_produced_records_total", (("topic", "orders"),)] == 500
    assert seen["headwater_produced_batches_total", (("topic", "orders"),)] == 2
    assert seen["headwater_produced_bytes_total", (("topic", "orders"),)] == 40_000
    assert seen["headwater_fetched_bytes_total", (("topic", "orders"),)] == 80_000


def test_topics_past_the_limit_share_one_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_module, "MAX_TOPICS", 2)
    metrics = Metrics()
    for topic in ("a", "b", "c", "d", "c"):
        metrics.produced(topic, 1, 1, 10)
    assert {name: traffic.records_in for name, traffic in metrics.topics.items()} == {"a": 1, "b": 1, OTHER_TOPICS: 3}
    metrics.topic_deleted("a")
    metrics.topic_deleted(OTHER_TOPICS)
    metrics.produced("d", 1, 1, 10)
    assert metrics.topics["d"].records_in == 1


def test_a_gauge_is_read_when_somebody_looks() -> None:
    metrics = Metrics()
    lag = {"readers": 5.0}
    labels = ("group", "topic", "partition")
    metrics.watch(
        "group_lag_records", "Records not yet read.", labels, lambda: [(("readers", "t", "0"), lag["readers"])]
    )
    key = ("headwater_group_lag_records", (("group", "readers"), ("partition", "0"), ("topic", "t")))
    assert scraped(metrics)[key] == 5
    lag["readers"] = 2
    assert scraped(metrics)[key] == 2


def test_a_gauge_that_fails_does_not_cost_the_page(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> Iterator[tuple[tuple[str, ...], float]]:
        yield ("a",), 1.0
        raise KeyError("gone")

    metrics = Metrics()
    metrics.watch("log_size_bytes", "Size.", ("topic",), broken)
    metrics.watch("partitions", "Partitions led.", (), lambda: [((), 3)])
    assert scraped(metrics)["headwater_partitions", ()] == 3
    assert "metrics_gauge_failed gauge=log_size_bytes" in caplog.text


def test_a_gauge_with_too_many_values_says_how_many_it_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.broker.metrics.metrics_page.MAX_SERIES_PER_GAUGE", 3)
    metrics = Metrics()
    metrics.watch("log_size_bytes", "Size.", ("topic",), lambda: [((f"t{n}",), n) for n in range(5)])
    seen = scraped(metrics)
    assert sum(name == "headwater_log_size_bytes" for name, _ in seen) == 3
    assert seen["headwater_left_out_series", (("gauge", "log_size_bytes"),)] == 2


def test_every_flush_to_the_device_is_timed(tmp_path: Path) -> None:
    metrics = Metrics()
    files = TimedFiles(metrics.flushed)
    fd = files.open(tmp_path / "file", create=True)
    files.pwritev(fd, [b"x"], 0)
    files.sync_data(fd)
    files.sync_data(fd)
    files.close(fd)
    assert sum(metrics.flushes.counts) == 2
    assert metrics.flushes.sum > 0


def test_a_hostile_label_is_escaped() -> None:
    metrics = Metrics()
    name = 'x"} 1\nheadwater_connections 99'
    metrics.watch("group_lag_records", "Lag.", ("group",), lambda: [((name,), 7)])
    seen = scraped(metrics)
    assert seen["headwater_group_lag_records", (("group", name),)] == 7
    assert seen["headwater_connections", ()] == 0


def test_the_server_answers_get_metrics_and_nothing_else() -> None:
    async def run() -> None:
        metrics = Metrics()
        metrics.connection_opened()
        server = await MetricsServer.start(metrics, "127.0.0.1", 0)
        assert server is not None
        try:
            ok = await exchange(server.address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            assert ok.startswith(b"HTTP/1.1 200 OK\r\n") and b"\nheadwater_connections 1.0\n" in ok
            assert (await exchange(server.address, b"GET / HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 404")
            assert (await exchange(server.address, b"POST /metrics HTTP/1.1\r\n\r\n")).startswith(b"HTTP/1.1 405")
            assert (await exchange(server.address, b"\x00\x01\r\n\r\n")).startswith(b"HTTP/1.1 400")
            long = b"GET /metrics HTTP/1.1\r\nX: " + b"x" * MAX_REQUEST_BYTES
            assert (await exchange(server.address, long + b"\r\n\r\n")).startswith(b"HTTP/1.1 431")
        finally:
            await server.stop()

    asyncio.run(run())


TOKEN = b"a token of sixteen or more characters".replace(b" ", b"-")


@pytest.mark.parametrize(
    ("access", "header", "metrics_status", "groups_status", "names_a_topic"),
    [
        (PageAccess(), b"", b"200", b"200", True),
        (PageAccess(shows_names=False), b"", b"200", b"403", False),
        (PageAccess(shows_names=False), b"Authorization: Bearer " + TOKEN, b"200", b"403", False),
        (PageAccess(token=TOKEN), b"", b"401", b"401", False),
        (PageAccess(token=TOKEN), b"Authorization: Bearer " + TOKEN[:-1], b"401", b"401", False),
        (PageAccess(token=TOKEN), b"X-Authorization: Bearer " + TOKEN, b"401", b"401", False),
        (PageAccess(token=TOKEN, shows_names=False), b"authorization: bearer " + TOKEN, b"200", b"200", True),
    ],
)
def test_names_are_for_this_machine_or_a_token(
    access: PageAccess, header: bytes, metrics_status: bytes, groups_status: bytes, names_a_topic: bool
) -> None:
    async def run() -> None:
        metrics = Metrics()
        metrics.produced("a-secret-topic", 1, 1, 100)
        metrics.watch("group_lag", "Lag.", ("group",), lambda: [(("a-secret-group",), 7)])
        server = await MetricsServer.start(
            metrics, "127.0.0.1", 0, lambda group: health_page([], group), None, lambda: b"{}", access
        )
        assert server is not None
        try:
            head = b" HTTP/1.1\r\nHost: x\r\n" + (header + b"\r\n" if header else b"") + b"\r\n"
            page_of_metrics = await exchange(server.address, b"GET /metrics" + head)
            assert page_of_metrics.split()[1] == metrics_status
            assert (b"a-secret-topic" in page_of_metrics) is names_a_topic
            assert (b"a-secret-group" in page_of_metrics) is names_a_topic
            assert (b"\nheadwater_connections 0.0\n" in page_of_metrics) is (metrics_status == b"200")
            assert (await exchange(server.address, b"GET /groups" + head)).split()[1] == groups_status
            assert (await exchange(server.address, b"GET /quotas" + head)).split()[1] == groups_status
            assert (await exchange(server.address, b"GET /livez HTTP/1.1\r\n\r\n")).endswith(b"\r\n\r\nok\n")
        finally:
            await server.stop()

    asyncio.run(run())


def test_the_server_answers_for_groups_by_name() -> None:
    left = [
        MemberDeparture(
            group_id=group,
            at_ms=7,
            member_id="m",
            instance_id=None,
            client_id="app",
            client_host="/here",
            reason=DepartureReason.SESSION_EXPIRED,
        )
        for group in ("a b", "other")
    ]

    async def run() -> None:
        server = await MetricsServer.start(Metrics(), "127.0.0.1", 0, lambda group: health_page(left, group))
        assert server is not None
        try:
            answer = await exchange(server.address, b"GET /groups HTTP/1.1\r\n\r\n")
            assert b"Content-Type: application/json\r\n" in answer and b'"other"' in answer
            one = await exchange(server.address, b"GET /groups?group=a%20b HTTP/1.1\r\n\r\n")
            page = json.loads(one.partition(b"\r\n\r\n")[2])
            ((departure,),) = [each["departures"] for each in page["groups"]]
            assert (page["groups"][0]["group"], departure["reason"]) == ("a b", "session expired")
            odd = await exchange(server.address, b"GET /groups?group=\xff&" + b"x=1&" * 50 + b" HTTP/1.1\r\n\r\n")
            assert odd.startswith(b"HTTP/1.1 400")
        finally:
            await server.stop()

    asyncio.run(run())


def test_a_page_about_groups_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.broker.metrics.group_health.MAX_SHOWN", 3)
    left = [
        MemberDeparture(
            group_id="g",
            at_ms=number,
            member_id="m",
            instance_id=None,
            client_id="",
            client_host="",
            reason=DepartureReason.LEFT,
        )
        for number in range(5)
    ]
    page = json.loads(health_page(left, None))
    assert (len(page["groups"][0]["departures"]), page["left_out"]) == (3, 2)


def test_silent_connections_are_limited_and_closed_when_their_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.broker.metrics.metrics_server.REQUEST_TIMEOUT_S", 3600.0)

    async def run() -> None:
        server = await MetricsServer.start(Metrics(), "127.0.0.1", 0)
        assert server is not None
        try:
            silent = [await asyncio.open_connection(*server.address) for _ in range(MAX_CONNECTIONS)]
            refused = await asyncio.open_connection(*server.address)
            assert await asyncio.wait_for(refused[0].read(), PATIENCE_S) == b""
            for _, writer in (*silent, refused):
                writer.close()
                await writer.wait_closed()
            monkeypatch.setattr("headwater.broker.metrics.metrics_server.REQUEST_TIMEOUT_S", 0.1)
            reader, writer = await asyncio.open_connection(*server.address)
            assert await asyncio.wait_for(reader.read(), PATIENCE_S) == b""
            writer.close()
            await writer.wait_closed()
            assert b"200 OK" in await exchange(server.address, b"GET /metrics HTTP/1.1\r\n\r\n")
        finally:
            await server.stop()

    asyncio.run(run())


def test_a_taken_port_is_logged_and_the_broker_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert asyncio.run(MetricsServer.start(Metrics(), "127.0.0.1", port)) is None
    assert f"metrics_unavailable host=127.0.0.1 port={port}" in caplog.text


def test_the_delay_of_the_event_loop_is_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.broker.metrics.metrics_server.DELAY_SAMPLE_INTERVAL_S", 0.01)

    async def run() -> None:
        metrics = Metrics()
        began_s = time.monotonic()
        server = await MetricsServer.start(metrics, "127.0.0.1", 0)
        assert server is not None
        await until(lambda: sum(metrics.loop_delays.counts) >= 5)
        await server.stop()
        samples = sum(metrics.loop_delays.counts)
        assert time.monotonic() - began_s > samples * 0.009, "no more often than it should"

    asyncio.run(run())
