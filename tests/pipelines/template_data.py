"""Data for the ready pipelines, made from a seed: late, doubled, out of order and broken, as in life."""

import json
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 60.0
START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
BROKEN = b'{"at": "2026-03-01T0'
Row = dict[str, Any]


@dataclass(frozen=True)
class Record:
    value: bytes | None
    key: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


def create_topics(bootstrap: str, *names: str, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, partitions) for name in names]).values():
        future.result(TIMEOUT_S)


def fill(bootstrap: str, topic: str, records: Iterable[Record], partitions: int = 2) -> None:
    create_topics(bootstrap, topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20, "queue.buffering.max.messages": 1_000_000})
    for each in records:
        producer.produce(topic, value=each.value, key=each.key, headers=list(each.headers))
    assert producer.flush(TIMEOUT_S) == 0, "all records were delivered"


def as_records(rows: Iterable[Row], key: str | None = None) -> list[Record]:
    return [Record(json.dumps(row).encode(), None if key is None else str(row[key])) for row in rows]


def at(seconds: float) -> str:
    return (START + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def when(text: str) -> datetime:
    return datetime.fromisoformat(text)


def with_doubles(rows: Sequence[Row], chance: random.Random, share: float, distance: int) -> list[Row]:
    """Some rows come a second time, a little later."""
    doubled = list(rows)
    for index in range(len(rows) - 1, -1, -1):
        if chance.random() < share:
            doubled.insert(index + chance.randint(1, distance), rows[index])
    return doubled


def activity(seed: int, users: int = 30, hours: int = 4) -> list[Row]:
    chance = random.Random(seed)
    events = []
    for user in range(users):
        now_s = chance.uniform(0, 3_600)
        while now_s < hours * 3_600:
            for _ in range(chance.randint(1, 8)):
                page = chance.choice(("/", "/search", "/item", "/help"))
                action = "view" if chance.random() < 0.7 else "click"
                events.append({"at": at(now_s), "user": f"u{user}", "page": page, "action": action})
                now_s += chance.uniform(1, 240)
            now_s += chance.uniform(2_000, 9_000)
    events.sort(key=lambda row: row["at"])
    return with_doubles([{"id": f"e{n}", **row} for n, row in enumerate(events)], chance, 0.05, 20)


def metrics(seed: int, minutes: int = 6) -> list[Row]:
    chance = random.Random(seed)
    rows = []
    for second in range(0, minutes * 60, 5):
        for host in ("a", "b"):
            for metric in ("cpu", "disk", "load"):
                is_hot = host == "b" and metric == "cpu" and 120 <= second < 180
                value = chance.uniform(0.92, 1.0) if is_hot else chance.uniform(0.1, 0.8)
                rows.append({"at": at(second), "host": host, "metric": metric, "value": round(value, 4)})
    return rows


def logs(seed: int, minutes: int = 6) -> list[Row]:
    chance = random.Random(seed)
    rows = []
    for second in range(minutes * 60):
        is_failing = 180 <= second < 240
        for service in ("web", "mail"):
            level = "error" if chance.random() < (0.5 if is_failing and service == "mail" else 0.02) else "info"
            row = {"at": at(second), "host": "a", "service": service, "level": level, "message": f"line {second}"}
            rows.append(row)
    return rows


def changes(seed: int, count: int = 400, customers: int = 40) -> list[Row]:
    """Changes that a table could have gone through: what is updated or deleted is there."""
    chance = random.Random(seed)
    table: dict[int, Row] = {}
    rows = []
    for number in range(count):
        customer = chance.randrange(customers)
        before = table.get(customer)
        if before is not None and chance.random() < 0.2:
            op, after = "d", None
        else:
            op = "c" if before is None else "u"
            after = {"id": customer, "name": f"name {number}", "email": f"{number}@example.org", "city": "Ulm"}
            if chance.random() < 0.2:
                after["city"] = None  # an empty column is no deleted row
        rows.append({"id": customer, "op": op, "at": at(number), "before": before, "after": after})
        if after is None:
            del table[customer]
        else:
            table[customer] = after
    return rows


def notifications(seed: int, count: int = 200) -> list[Row]:
    chance = random.Random(seed)
    rows = [
        {"id": f"n{n}", "at": at(n), "user": f"u{chance.randrange(12)}", "event": "shipped", "text": f"No. {n} " * 30}
        for n in range(count)
    ]
    return with_doubles(rows, chance, 0.1, 15)


def preferences(seed: int, users: int = 10) -> list[tuple[str, Row]]:
    """People change their minds; the last word counts."""
    chance = random.Random(seed)
    said = []
    for _ in range(3):
        for user in range(users):
            channels = sorted(chance.sample(("email", "sms", "push", "pigeon"), chance.randint(0, 3)))
            address = {"email": f"u{user}@example.org", "sms": f"+49{user}"}
            said.append((f"u{user}", {"channels": channels, "address": address}))
    return said


def ticks(seed: int, minutes: int = 8, per_minute: int = 60) -> list[Row]:
    """In the order of arrival: up to 20 seconds late, some twice, some never."""
    chance = random.Random(seed)
    arrivals: list[tuple[float, Row]] = []
    for symbol, price in (("ACME", 100.0), ("INIT", 40.0)):
        for seq in range(minutes * per_minute):
            second = seq * 60 / per_minute
            price = round(max(1.0, price + chance.gauss(0, 0.3)), 4)
            if chance.random() < 0.02:
                continue
            row = {"symbol": symbol, "seq": seq, "at": at(second), "price": price, "size": chance.randint(1, 500)}
            arrivals.append((second + chance.uniform(0, 20), row))
            if chance.random() < 0.05:
                arrivals.append((second + chance.uniform(0, 20), row))
    return [row for _, row in sorted(arrivals, key=lambda arrival: arrival[0])]


def orders(seed: int, count: int = 300) -> list[Row]:
    chance = random.Random(seed)
    return [
        {
            "id": f"o{n}",
            "at": at(n),
            "customer": f"c{chance.randrange(25)}",
            "total": chance.randint(-100, 100_000) / 100,
            "status": chance.choice(("paid", "paid", "cancelled", None)),
        }
        for n in range(count)
    ]
