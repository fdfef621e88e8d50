"""Topics for tests of the source: made, filled, cut and deleted through librdkafka.

With HEADWATER_TEST_BOOTSTRAP=host:port the source is judged on another broker, as the suite of clients is:
`python -m bench.kafka` starts an Apache Kafka and prints where it listens."""

import os
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition

from tests.support.eventually import eventually

OTHER_BROKER = os.environ.get("HEADWATER_TEST_BOOTSTRAP")
TIMEOUT_S = 60.0


class Topics:
    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self._quiet: dict[str, Any] = {"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": lambda error: None}
        self._admin = AdminClient(self._quiet)

    def options(self, topic: str, **more: str) -> dict[str, str]:
        """The options of a query that reads the topic, with the prefix `kafka.` for names with a dot."""
        given = {"kafka." + name.replace("_", ".") if "_" in name else name: value for name, value in more.items()}
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **given}

    def create(self, partitions: int = 1, config: Mapping[str, str] | None = None, name: str | None = None) -> str:
        topic = name or f"rows-{uuid.uuid4().hex[:10]}"
        asked = NewTopic(topic, partitions, config=dict(config or {}))
        self._admin.create_topics([asked])[topic].result(TIMEOUT_S)
        self._until(lambda: topic in self._admin.list_topics(timeout=TIMEOUT_S).topics)
        return topic

    def produce(
        self, topic: str, values: Sequence[bytes | None], partition: int = 0, codec: str = "none", **more: Any
    ) -> None:
        """One batch, or a few, with the values in their order. `more` are further arguments for every record."""
        producer = Producer({**self._quiet, "linger.ms": 50, "compression.codec": codec})
        for value in values:
            producer.produce(topic, value=value, partition=partition, **more)
        assert producer.flush(TIMEOUT_S) == 0, "all records were delivered"

    def produce_transaction(self, topic: str, values: Sequence[bytes], is_committed: bool) -> None:
        producer = Producer({**self._quiet, "transactional.id": f"tx-{uuid.uuid4().hex[:8]}"})
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value=value, partition=0)
        producer.flush(TIMEOUT_S)
        if is_committed:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)

    def add_partitions(self, topic: str, total: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, total)])[topic].result(TIMEOUT_S)
        self._until(lambda: len(self._admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions) == total)

    def delete_records(self, topic: str, before: int, partition: int = 0) -> None:
        cut = TopicPartition(topic, partition, before)
        self._admin.delete_records([cut])[cut].result(TIMEOUT_S)

    def delete(self, topic: str) -> None:
        self._admin.delete_topics([topic])[topic].result(TIMEOUT_S)
        self._until(lambda: topic not in self._admin.list_topics(timeout=TIMEOUT_S).topics)

    def _until(self, is_done: Any) -> None:
        eventually(is_done, "the brokers know of it", patience_s=TIMEOUT_S)


def judged_topics(request: pytest.FixtureRequest) -> Topics:
    """On the broker that the run judges."""
    return Topics(OTHER_BROKER or request.getfixturevalue("headwater_session").bootstrap)


def numbered(count: int, first: int = 0) -> list[bytes]:
    return [b"value %d" % number for number in range(first, first + count)]


def values_of(reader: DataSourceReader | DataSourceStreamReader, partitions: Iterable[InputPartition]) -> list[bytes]:
    """What the tasks read, one after the other."""
    found = [rows for partition in partitions for rows in reader.read(partition)]
    return [value for rows in found for value in rows["value"].to_pylist()]  # type: ignore[call-overload]
