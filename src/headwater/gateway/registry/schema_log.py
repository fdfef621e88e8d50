"""The topic `_schemas` as the registry's log: read to its end and beyond, written by one gateway at a time.

The gateway that writes owns the log's transactional id. Taking it over ends what the owner before had begun, and makes
its later commits fail. So an owner that has read the log to its end knows everything in it for as long as its commits
succeed, and no id is given twice, though several gateways may be asked at once.

Everything here blocks. `follow` has a dedicated thread; the others are called by one thread at a time.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from headwater.gateway.config import GatewayConfig
from headwater.gateway.kafka.librdkafka_errors import UNKNOWN_TOPIC
from headwater.gateway.kafka.settings import client_settings, producer_settings
from headwater.schemas.event_records import TOPIC, UnknownRecord, from_record, to_record
from headwater.schemas.events import Event

MAX_BATCH_BYTES = 9 * 1024 * 1024
"""A schema and what is around it."""
TOPIC_CONFIG = {"cleanup.policy": "compact", "max.message.bytes": str(MAX_BATCH_BYTES)}
TRANSACTIONAL_ID = "headwater-schema-registry"
TRANSACTION_TIMEOUT_MS = 30_000
MAX_READ = 500
READ_WAIT_S = 0.25
LOOK_AGAIN_S = 5.0
"""For a topic that does not exist yet, or a cluster that does not answer."""

Follower = Callable[[Sequence[Event], int], None]
"""Gets events in their order, and how far the log was read."""


class SchemaLog:
    def __init__(self, config: GatewayConfig) -> None:
        self._config = config
        self._timeout_s = config.request_timeout_ms / 1000
        self._producer: Producer | None = None
        self._is_stopping = False
        self._wake = threading.Event()

    # Reading

    def follow(self, follower: Follower, restart: Callable[[], None]) -> None:
        """Until `stop`. `restart` is called when the log is not the one it was, and is read from its start."""
        consumer = Consumer(
            {
                **client_settings(self._config),
                "group.id": "headwater-schema-registry",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        try:
            while not self._is_stopping:
                try:
                    if TOPIC in consumer.list_topics(timeout=self._timeout_s).topics:
                        restart()
                        consumer.assign([TopicPartition(TOPIC, 0, 0)])
                        self._read(consumer, follower)
                        consumer.unassign()
                except KafkaException:
                    pass  # no broker answers: look again
                self._wake.wait(LOOK_AGAIN_S)
                self._wake.clear()
        finally:
            consumer.close()

    def wake(self) -> None:
        """The topic may be there now."""
        self._wake.set()

    def stop(self) -> None:
        self._is_stopping = True
        self._wake.set()

    def _read(self, consumer: Any, follower: Follower) -> None:
        while not self._is_stopping:
            events: list[Event] = []
            position = -1
            for message in consumer.consume(MAX_READ, READ_WAIT_S):
                error = message.error()
                if error is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        position = max(position, message.offset())
                    elif error.code() in UNKNOWN_TOPIC:
                        return
                    continue  # the client goes on by itself
                position = max(position, message.offset() + 1)
                try:
                    event = from_record(message.key(), message.value())
                except UnknownRecord:
                    continue
                if event is not None:
                    events.append(event)
            if position >= 0:
                follower(events, position)

    # Writing

    def own(self) -> None:
        """Become the owner. What was read up to the end of the log after this is everything. Raises KafkaException."""
        if self._producer is not None:
            return
        settings = producer_settings(
            self._config, transactional_id=TRANSACTIONAL_ID, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        producer = Producer({**settings, "message.max.bytes": MAX_BATCH_BYTES})
        producer.init_transactions(self._timeout_s)
        self._producer = producer

    def append(self, events: Sequence[Event]) -> None:
        """All of them, or none. Raises KafkaException; then the log has another owner, or it is not known how it
        ended: the next owner finds out by reading."""
        assert self._producer is not None, "owned"
        self._producer.begin_transaction()
        for event in events:
            key, value = to_record(event)
            self._producer.produce(TOPIC, value, key, 0)
        # It sends what waits, and fails if a record was not taken. No record has a callback: being fenced meanwhile, it
        # would be called with the client's exception already set, which Python does not forgive.
        self._producer.commit_transaction(self._timeout_s)

    def disown(self) -> None:
        """What was begun, the next owner ends."""
        if self._producer is not None:
            self._producer.purge()
            self._producer = None
