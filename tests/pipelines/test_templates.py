"""Each ready pipeline, as it is shipped, over data of a seed: what comes out is what plain Python computes."""

import json
import math
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from tests.pipelines import template_data as data

pytest.importorskip("pyspark")

import pyarrow as pa
import pyarrow.parquet as pq

from headwater.demo.shop import CLICKS, ORDERS, Shop
from headwater.pipelines.run.progress import RunStatus, State
from headwater.pipelines.run.runner import Runner, RunOptions
from headwater.pipelines.spec.check import load
from headwater.pipelines.templates.catalog import pipeline_template
from headwater.testing import Broker
from tests.support.effort import only_long

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # many queries; a busy machine takes its time

Run = Callable[..., RunStatus]
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)


@pytest.fixture
def run(spark: "SparkSession", headwater: Broker, tmp_path: Path) -> Run:
    """Runs a ready pipeline until it has seen all that is in the topics, in batches of so many records."""

    def run_once(name: str, max_records: int | None = None) -> RunStatus:
        file, *tables = pipeline_template(name).copy_to(tmp_path)
        for each in tables:
            with closing(sqlite3.connect(tmp_path / f"{database_of(file)}")) as database:
                database.executescript(each.read_text())
        if max_records is not None:
            earliest = 'from = "earliest"\n'
            file.write_text(file.read_text().replace(earliest, f"{earliest}max_records = {max_records}\n"))
        runner = Runner(load(file), spark, RunOptions(headwater.bootstrap, is_once=True), None, lambda line: None)
        status = runner.run(lambda: False, lambda status: None)
        assert status.state is State.FINISHED
        return status

    return run_once


def database_of(file: Path) -> str:
    (url,) = {line for line in file.read_text().splitlines() if line.startswith('url = "sqlite:')}
    return url.partition("sqlite:")[2].rstrip('"')


def rows_of(directory: Path) -> list[dict[str, Any]]:
    """Of Parquet files, without the column of their day. Spark writes times as UTC without saying so."""
    table = pq.read_table(directory).drop_columns(["day"])
    for index, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            times = table.column(index).cast(pa.timestamp("us")).cast(pa.timestamp("us", "UTC"))
            table = table.set_column(index, field.name, times)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def selected(database: Path, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


def consumed(bootstrap: str, topic: str) -> Iterator[Message]:
    """All that is committed in the topic, partition by partition in order."""
    config = {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": True}
    consumer = Consumer({**config, "isolation.level": "read_committed", "enable.auto.commit": False})
    try:
        for index in consumer.list_topics(topic, timeout=data.TIMEOUT_S).topics[topic].partitions:
            consumer.assign([TopicPartition(topic, index, 0)])
            while True:
                message = consumer.poll(data.TIMEOUT_S)
                assert message is not None, "the end of the partition is reached in time"
                if message.error() is None:
                    yield message
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    break
    finally:
        consumer.close()


def letters(bootstrap: str, topic: str) -> list[tuple[bytes | None, str]]:
    """Values and reasons of dead letters."""
    return [
        (message.value(), dict(message.headers() or [])["headwater.dlq.reason"].decode())
        for message in consumed(bootstrap, topic)
    ]


def floor(moment: datetime, size: timedelta) -> datetime:
    return datetime.fromtimestamp(moment.timestamp() // size.total_seconds() * size.total_seconds(), UTC)


def grouped(rows: Iterable[Any], key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
    groups: dict[Any, list[Any]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def once_each(rows: Iterable[data.Row], *key: str) -> list[data.Row]:
    return list({tuple(row[name] for name in key): row for row in rows}.values())


def about(number: int) -> object:
    """A count of distinct things to one percent, and never by less than one."""
    return pytest.approx(number, rel=0.03, abs=1)


@only_long
def test_activity_becomes_reports_of_pages_and_visits(run: Run, headwater: Broker, tmp_path: Path) -> None:
    sent = data.activity(seed=1)
    bootstrap = headwater.bootstrap
    data.create_topics(bootstrap, "activity.bad")
    data.fill(bootstrap, "activity", [*data.as_records(sent, "user"), data.Record(data.BROKEN)])
    run("activity_reports")

    events = once_each(sent, "id")
    assert len(events) < len(sent)
    over = max(data.when(row["at"]) for row in events) - timedelta(minutes=10)
    hours = grouped(events, lambda row: (floor(data.when(row["at"]), HOUR), row["page"]))
    expected = {
        key: (
            sum(row["action"] == "view" for row in rows),
            sum(row["action"] == "click" for row in rows),
            about(len({row["user"] for row in rows})),
        )
        for key, rows in hours.items()
        if key[0] + HOUR <= over
    }
    report = rows_of(tmp_path / "reports/pages")
    assert len(report) == len(expected) > 4
    assert {(row["hour"], row["page"]): (row["views"], row["clicks"], row["visitors"]) for row in report} == expected

    visits = []
    for user, rows in grouped(events, lambda row: row["user"]).items():
        visit: list[data.Row] = []
        for row in sorted(rows, key=lambda row: (row["at"], row["id"])):
            if visit and data.when(row["at"]) - data.when(visit[-1]["at"]) >= timedelta(minutes=30):
                visits.append((user, visit))
                visit = []
            visit.append(row)
        visits.append((user, visit))
    finished = [(user, rows) for user, rows in visits if data.when(rows[-1]["at"]) + timedelta(minutes=30) <= over]
    found = rows_of(tmp_path / "reports/visits")
    assert sorted((row["user"], row["started"], row["views"], row["landing"], row["exit"]) for row in found) == sorted(
        (
            user,
            data.when(rows[0]["at"]),
            sum(row["action"] == "view" for row in rows),
            rows[0]["page"],
            rows[-1]["page"],
        )
        for user, rows in finished
    )
    assert letters(bootstrap, "activity.bad")[0][0] == data.BROKEN


@only_long
def test_metrics_and_logs_become_aggregates_and_alerts(run: Run, headwater: Broker, tmp_path: Path) -> None:
    metrics, logs = data.metrics(seed=2), data.logs(seed=3)
    bootstrap = headwater.bootstrap
    data.create_topics(bootstrap, "alerts", "metrics.bad", "logs.bad")
    data.fill(bootstrap, "metrics", data.as_records(metrics, "host"))
    data.fill(bootstrap, "logs", [data.Record(b"Segmentation fault"), *data.as_records(logs, "host")])
    run("metrics_alerts")

    def is_over(minute: datetime, rows: list[data.Row]) -> bool:
        return minute + MINUTE <= max(data.when(row["at"]) for row in rows) - timedelta(seconds=30)

    of_metric = grouped(metrics, lambda row: (floor(data.when(row["at"]), MINUTE), row["host"], row["metric"]))
    expected = {}
    for key, rows in of_metric.items():
        values = sorted(row["value"] for row in rows)
        if is_over(key[0], metrics):
            p95 = values[math.ceil(0.95 * len(values)) - 1]
            mean = pytest.approx(sum(values) / len(values))
            expected[key] = (len(values), values[0], mean, values[-1], p95)
    found = rows_of(tmp_path / "aggregates/metrics")
    facts = ("samples", "low", "mean", "high", "p95")
    assert len(found) == len(expected) > 20
    assert {(r["minute"], r["host"], r["metric"]): tuple(r[name] for name in facts) for r in found} == expected

    of_log = grouped(logs, lambda row: (floor(data.when(row["at"]), MINUTE), row["service"], row["level"]))
    lines = {key: len(rows) for key, rows in of_log.items() if is_over(key[0], logs)}
    found = rows_of(tmp_path / "aggregates/logs")
    assert {(row["minute"], row["service"], row["level"]): row["lines"] for row in found} == lines

    limits = {"cpu": 0.9, "memory": 0.95, "disk": 0.9}
    alerts = [(minute, host, metric, p95) for (minute, host, metric), (*_, p95) in expected.items()
              if p95 > limits.get(metric, math.inf)]  # fmt: skip
    alerts += [(minute, service, "errors a minute", float(count)) for (minute, service, level), count in lines.items()
               if level == "error" and count > 10]  # fmt: skip
    assert {alert[1] for alert in alerts} == {"b", "mail"}
    sent = list(consumed(bootstrap, "alerts"))
    told = [json.loads(message.value() or b"") for message in sent]
    assert [(message.key() or b"").decode() for message in sent] == [alert["about"] for alert in told]
    assert sorted((data.when(a["minute"]), a["about"], a["what"], a["value"]) for a in told) == sorted(alerts)
    assert [value for value, _ in letters(bootstrap, "logs.bad")] == [b"Segmentation fault"]


def test_changes_become_the_table_that_they_came_from(run: Run, headwater: Broker, tmp_path: Path) -> None:
    sent = data.changes(seed=4)
    bootstrap = headwater.bootstrap
    data.create_topics(bootstrap, "customers.changes.bad")
    data.fill(bootstrap, "customers.changes", data.as_records(sent, "id"), partitions=3)
    run("changes_to_table", max_records=150)

    table: dict[int, tuple[Any, ...]] = {}
    for row in sent:
        if row["after"] is None:
            del table[row["id"]]
        else:
            table[row["id"]] = (*(row["after"][name] for name in ("id", "name", "email", "city")), row["at"][:19] + "Z")
    found = selected(tmp_path / "customers.db", "select id, name, email, city, changed_at from customers")
    assert sorted(found) == sorted(table.values())


@only_long
def test_notifications_go_to_the_channels_that_people_chose(run: Run, headwater: Broker) -> None:
    requests, said = data.notifications(seed=5), data.preferences(seed=6)
    bootstrap = headwater.bootstrap
    topics = {channel: f"notify.{channel}" for channel in ("email", "sms", "push")}
    data.create_topics(bootstrap, "notifications.bad", *topics.values())
    data.fill(bootstrap, "notifications", [*data.as_records(requests, "user"), data.Record(b"[]")])
    data.fill(bootstrap, "preferences", [data.Record(json.dumps(row).encode(), user) for user, row in said])
    run("notifications")

    chosen = dict(said)
    expected = defaultdict(list)
    for row in once_each(requests, "id"):
        for channel in chosen.get(row["user"], {"channels": ()})["channels"]:
            address = chosen[row["user"]]["address"].get(channel)
            if address is not None:
                text = row["text"][:160] if channel == "sms" else row["text"]
                expected[channel].append((row["id"], row["user"], "shipped", text, address))
    assert len(expected["email"]) > 20 and len(expected["sms"]) > 20 and not expected["push"]
    for channel, topic in topics.items():
        notices = [json.loads(message.value() or b"") for message in consumed(bootstrap, topic)]
        assert sorted(tuple(notice.values()) for notice in notices) == sorted(expected[channel])
    assert letters(bootstrap, "notifications.bad") == [(b"[]", "It is JSON, but no object: []")]


@only_long
def test_a_shop_sees_its_revenue_products_funnel_and_fraud(run: Run, headwater: Broker, tmp_path: Path) -> None:
    start_ms = int(data.START.timestamp() * 1000)
    events = list(Shop(7, start_ms, sessions_per_s=8.0).until(start_ms + 300_000))
    bootstrap = headwater.bootstrap
    data.create_topics(bootstrap, f"{CLICKS}.bad", f"{ORDERS}.bad")
    for topic in (CLICKS, ORDERS):
        records = [data.Record(event.value, event.key) for event in events if event.topic == topic]
        data.fill(bootstrap, topic, records)
    run("ecommerce")

    def parsed(topic: str) -> Iterator[data.Row]:
        for event in events:
            if event.topic == topic and event.value.endswith(b"}"):
                yield json.loads(event.value, parse_float=Decimal)

    def minute(row: data.Row) -> str:
        return str(row["at"][:16].replace("T", " "))

    clicks, orders = list(parsed(CLICKS)), list(parsed(ORDERS))
    database = tmp_path / "shop.db"
    assert selected(database, "select * from revenue_per_minute order by minute") == [
        (key, len(rows), float(sum(row["total"] for row in rows)), float(max(row["total"] for row in rows)))
        for key, rows in sorted(grouped(orders, minute).items())
    ]
    items = [(minute(row), item) for row in orders for item in row["items"]]
    assert selected(database, "select * from product_sales order by minute, product") == [
        (*key, sum(i["quantity"] for _, i in sold), float(sum(i["quantity"] * i["price"] for _, i in sold)))
        for key, sold in sorted(grouped(items, lambda each: (each[0], each[1]["product"])).items())
    ]
    assert selected(database, "select * from funnel order by minute") == [
        (key, *(about(len({row["session"] for row in rows if row["action"] == action}))
                for action in ("view", "cart", "checkout", "order")))
        for key, rows in sorted(grouped(clicks, minute).items())
    ]  # fmt: skip
    flags = {}
    for card, rows in grouped(orders, lambda row: row["card"]).items():
        countries, total = {row["country"] for row in rows}, sum(row["total"] for row in rows)
        if len(rows) >= 5 or len(countries) >= 2 or total >= 5000:
            flags[card] = (len(rows), len(countries), float(total))
    assert len(flags) >= 3, "the shop has stolen cards"
    found = selected(database, "select card, orders, countries, total, reasons from fraud_flags")
    assert {card: (orders, countries, total) for card, orders, countries, total, _ in found} == flags
    broken = [event.value for event in events if not event.value.endswith(b"}")]
    assert sorted(value or b"" for value, _ in letters(bootstrap, f"{CLICKS}.bad")) == sorted(broken)
    assert broken


def test_late_and_doubled_ticks_make_exact_candles(run: Run, headwater: Broker, tmp_path: Path) -> None:
    arrived = data.ticks(seed=8)
    bootstrap = headwater.bootstrap
    data.create_topics(bootstrap, "ticks.bad")
    data.fill(bootstrap, "ticks", data.as_records(arrived, "symbol"))
    status = run("candles", max_records=300)
    assert max(query.batch or 0 for query in status.queries) >= 3, "watermarks moved between batches"

    trades = once_each(arrived, "symbol", "seq")
    assert len(trades) < len(arrived)
    over = max(data.when(row["at"]) for row in trades) - timedelta(seconds=30)
    expected = []
    for (symbol, minute), rows in grouped(trades, lambda r: (r["symbol"], floor(data.when(r["at"]), MINUTE))).items():
        if minute + MINUTE <= over:
            rows.sort(key=lambda row: row["seq"])
            prices = [Decimal(str(row["price"])) for row in rows]
            missing = rows[-1]["seq"] - rows[0]["seq"] + 1 - len(rows)
            volume = sum(row["size"] for row in rows)
            ohlc = (prices[0], max(prices), min(prices), prices[-1])
            expected.append((symbol, minute, *ohlc, volume, len(rows), missing))
    found = [tuple(row.values()) for row in rows_of(tmp_path / "candles")]
    assert sorted(found) == sorted(expected)
    assert len(expected) >= 12 and any(candle[-1] for candle in expected)


@only_long
def test_a_topic_is_filtered_enriched_and_keyed_anew(run: Run, headwater: Broker, tmp_path: Path) -> None:
    orders = data.orders(seed=9)
    customers = {f"c{n}": (f"name {n}", ("DE", "FR", "JP")[n % 3], "gold" if n % 4 else "basic") for n in range(20)}
    lines = [f"{customer},{','.join(facts)}\n" for customer, facts in customers.items()]
    (tmp_path / "customers.csv").write_text("customer,name,country,tier\n" + "".join(lines))
    bootstrap = headwater.bootstrap
    data.create_topics(bootstrap, "orders.by_country", "orders.bad", partitions=3)
    data.fill(bootstrap, "orders", [*data.as_records(orders, "id"), data.Record(data.BROKEN)])
    run("reshape")

    expected = {}
    for row in orders:
        if row["status"] == "paid" and row["total"] > 0:
            name, country, tier = customers.get(row["customer"], (None, "unknown", "none"))
            expected[row["id"]] = (row["customer"], row["total"], name, country, tier)
    sent = list(consumed(bootstrap, "orders.by_country"))
    found = {}
    partition_of: dict[str, int | None] = {}
    for message in sent:
        row = json.loads(message.value() or b"")
        found[row["id"]] = tuple(row[name] for name in ("customer", "total", "name", "country", "tier"))
        assert (message.key(), message.headers()) == (row["country"].encode(), [("tier", row["tier"].encode())])
        assert partition_of.setdefault(row["country"], message.partition()) == message.partition()
    assert len(sent) == len(found)
    assert found == expected
    assert len(letters(bootstrap, "orders.bad")) == 1


def test_an_archive_holds_every_record_as_it_was(run: Run, headwater: Broker, tmp_path: Path) -> None:
    records = [data.Record(b"\x00\xff%d" % n, f"k{n % 7}", (("n", b"%d" % n),)) for n in range(500)]
    records += [data.Record(None, "gone"), data.Record(b"", None)]
    data.fill(headwater.bootstrap, "orders", records, partitions=3)
    run("archive", max_records=200)

    archived = rows_of(tmp_path / "archive/orders")
    read = [
        (m.topic(), m.partition(), m.offset(), m.timestamp()[1], m.key(), m.value(), m.headers() or [])
        for m in consumed(headwater.bootstrap, "orders")
    ]
    found = [
        (
            *(row[name] for name in ("topic", "partition", "offset")),
            int(row["timestamp"].timestamp() * 1000),
            *(row[name] for name in ("key", "value")),
            [(header["key"], header["value"]) for header in row["headers"] or []],
        )
        for row in archived
    ]
    assert len(read) == len(records)
    assert sorted(found, key=lambda row: row[:3]) == sorted(read, key=lambda row: row[:3])
