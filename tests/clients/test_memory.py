"""Topics, groups, queues and transactional producers that come, are used and go leave nothing behind in memory."""

import gc
import time
import uuid
from collections import Counter
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from headwater.testing import Broker
from tests.support.eventually import gathered

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ours_only")]

TOPICS, PARTITIONS = 10, 2
WARM_ROUNDS, ROUNDS = 4, 12
TIMEOUT_S = 60.0
REST_S = 60.0
LOOK_S = 1.0
"""Requests that wait, sessions and timers are over by then."""
KEPT = {"Transaction", "Producer", "QueueSettings"}
"""One for each transactional id, until it expires, and one for each group that was asked for, up to a limit."""
TIDIED = {"Tail"}
"""Removed many at a time (broker.tail_cache, of which a test of its own says how many are left behind)."""
EMPTIED_MIB = 12
"""What the allocator, SQLite's pages and the logs of the internal topics may take more. A topic that stayed would be
seen by its objects."""


def test_what_comes_and_goes_leaves_nothing_behind() -> None:
    few: dict[str, Any] = {
        "offsets_topic_partitions": 4,
        "share_state_topic_partitions": 4,
        "transaction_state_topic_partitions": 4,
    }
    with Broker(tail_cache_bytes=256 * 1024, **few) as broker:
        for _ in range(WARM_ROUNDS):
            come_and_go(broker.bootstrap)
        before, before_mib = rested(), resident_mib()
        for _ in range(ROUNDS):
            come_and_go(broker.bootstrap)
        after, after_mib = rested(expected=before), resident_mib()
    grown = {name: (before[name], count) for name, count in after.items() if count > before[name] + ROUNDS // 2}
    assert {name: counts for name, counts in grown.items() if name not in KEPT | TIDIED} == {}
    assert all(after[name] <= 2 * (WARM_ROUNDS + ROUNDS) for name in KEPT)
    assert after_mib - before_mib < EMPTIED_MIB


def come_and_go(bootstrap: str) -> None:
    common: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0}
    name = uuid.uuid4().hex[:8]
    topics = [f"{name}-{number}" for number in range(TOPICS)]
    admin = AdminClient(common)
    finish(admin.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]))
    written = write(common, name, topics)
    groups = []
    for protocol in ("classic", "consumer"):
        groups.append(f"{protocol}-{name}")
        own = {"group.id": groups[-1], "group.protocol": protocol, "auto.offset.reset": "earliest"}
        consumer = Consumer({**common, **own, "enable.auto.commit": False})
        consumer.subscribe(topics)
        read(written, lambda consumer=consumer: consumer.consume(1000, 1.0))
        consumer.commit(asynchronous=False)
        consumer.close()
    groups.append(f"queue-{name}")
    configure(admin, groups[-1], AlterConfigOpType.SET)
    worker = ShareConsumer({**common, "group.id": groups[-1]})
    worker.subscribe(topics)
    read(written, lambda: worker.poll(1.0))
    worker.commit_sync(TIMEOUT_S)
    worker.close()
    finish(admin.delete_topics(topics))
    finish(admin.delete_consumer_groups(groups))
    configure(admin, groups[-1], AlterConfigOpType.DELETE)


def write(common: dict[str, Any], name: str, topics: list[str]) -> int:
    """Two transactions, one of which is aborted, and records without one; how many can be read."""
    producer = Producer({**common, "transactional.id": name})
    producer.init_transactions()
    for is_commit in (True, False):
        producer.begin_transaction()
        for topic in topics:
            for partition in range(PARTITIONS):
                producer.produce(topic, b"x" * 100, partition=partition)
        producer.commit_transaction() if is_commit else producer.abort_transaction()
    other = Producer(common)
    for topic in topics:
        other.produce(topic, b"y" * 100, partition=0)
    assert other.flush(TIMEOUT_S) == 0
    return len(topics) * (PARTITIONS + 1)


def read(count: int, poll: Any) -> None:
    gathered(lambda: [message for message in poll() if message.error() is None], count, patience_s=TIMEOUT_S)


def configure(admin: AdminClient, group: str, operation: AlterConfigOpType) -> None:
    entry = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=operation)
    finish(admin.incremental_alter_configs([ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])]))


def finish(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result(TIMEOUT_S)


def rested(expected: "Counter[str] | None" = None) -> "Counter[str]":
    """The broker's objects by their type; as soon as there are no more than expected, or when all must be over."""
    until = time.monotonic() + REST_S
    while True:
        gc.collect()
        found = Counter(
            type(each).__name__ for each in gc.get_objects() if str(type(each).__module__).startswith("headwater.")
        )
        is_over = time.monotonic() >= until
        if is_over or (
            expected is not None and all(found[name] <= expected[name] for name in found.keys() - KEPT - TIDIED)
        ):
            return found
        time.sleep(LOOK_S)


def resident_mib() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 >> 20
