"""confluent-kafka (librdkafka): a producer, a reader, and members of a group."""

import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from headwater.testing.chaos.stage import FLUSH_TIMEOUT_S, MAX_UNACKNOWLEDGED, PADDING, Partition, Stage

GROUP: Final = "chaos-group"
COMMIT_EVERY_S: Final = 0.5
POLL_S: Final = 0.2
QUICK: Final[dict[str, Any]] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
    "socket.timeout.ms": 3000,
    "socket.connection.setup.timeout.ms": 1000,
    "topic.metadata.refresh.interval.ms": 5000,
    "metadata.recovery.strategy": "none",
    "log_level": 0,
}
"""Find the new leader at once, do not wait a minute for one that hangs, and do not report each lost connection."""
PRODUCER: Final[dict[str, Any]] = {
    **QUICK,
    "enable.idempotence": True,
    "acks": "all",
    "request.timeout.ms": 1500,
    "message.timeout.ms": 900_000,
    "linger.ms": 2,
}
"""A record waits for as long as it takes: what is not acknowledged in the end is a failure of the cluster."""
REFUSED: Final = frozenset(
    {KafkaError.ILLEGAL_GENERATION, KafkaError.UNKNOWN_MEMBER_ID, KafkaError.REBALANCE_IN_PROGRESS}
)
"""A commit that ends so was certainly not made."""


def produce(stage: Stage, name: str) -> None:
    producer = Producer({**stage.way_in.confluent, "client.id": name, **PRODUCER})

    def delivered(value: str, partition: Partition, error: KafkaError | None, message: Message) -> None:
        if error is None:
            offset = message.offset()
            stage.record_acknowledged(value, partition, -1 if offset is None else offset)
        else:
            stage.unknown(name, value, partition, error)

    for due in stage.values(name):
        if due is None or len(producer) >= MAX_UNACKNOWLEDGED:
            producer.poll(0.005)
        if due is None:
            continue
        value, partition = due
        stage.sent(name, value, partition)
        producer.produce(
            partition[0], value.encode(), PADDING, partition[1],
            on_delivery=lambda error, message, value=value, partition=partition: delivered(
                value, partition, error, message
            ),
        )  # fmt: skip
        producer.poll(0)
    if left := producer.flush(FLUSH_TIMEOUT_S):
        stage.failure(f"{name}: {left} records were not acknowledged {FLUSH_TIMEOUT_S:.0f} s after the last fault")


def read(stage: Stage, name: str) -> None:
    """Everything from the start. An offset that is out of range would be a log that became shorter."""
    options = {
        **stage.way_in.confluent,
        "client.id": name,
        "group.id": name,
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.wait.max.ms": 100,
        **QUICK,
    }
    consumer = Consumer(options)
    consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in stage.watched])
    stage.recorder.assigned(name, dict.fromkeys(stage.watched, 0))
    try:
        while not stage.stop_reading.is_set():
            _note(stage, name, consumer.consume(500, POLL_S))
    finally:
        consumer.close()


def take_part(stage: Stage, name: str) -> None:
    """One member of a group that commits what it has read."""
    options = {
        **stage.way_in.confluent,
        "client.id": name,
        "group.id": GROUP,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "session.timeout.ms": 6000,
        "fetch.wait.max.ms": 100,
        **QUICK,
    }
    consumer = Consumer(options)
    positions: dict[Partition, int] = {}

    def assigned(_: Consumer, partitions: list[TopicPartition]) -> None:
        positions.clear()
        stage.recorder.assigned(name, [(each.topic, each.partition) for each in partitions])

    def revoked(_: Consumer, __: list[TopicPartition]) -> None:
        positions.clear()
        stage.recorder.assigned(name, [])

    consumer.subscribe(
        sorted({topic for topic, _ in stage.watched}), on_assign=assigned, on_revoke=revoked, on_lost=revoked
    )
    committed_s = time.monotonic()
    try:
        while not stage.stop_reading.is_set():
            for message in _note(stage, name, consumer.consume(500, POLL_S)):
                positions[message.topic(), message.partition()] = message.offset() + 1
            if positions and time.monotonic() - committed_s > COMMIT_EVERY_S:
                _commit(stage, name, consumer, dict(positions))
                positions.clear()
                committed_s = time.monotonic()
    finally:
        consumer.close()


def _note(stage: Stage, name: str, messages: list[Any]) -> list[Any]:
    """The records among them."""
    found = []
    for message in messages:
        error = message.error()
        if error is None:
            found.append(message)
        elif error.code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET):
            stage.failure(f"{name}: {error}")
        else:
            stage.trouble(f"{name}: {error}")
    rows = [(message.topic(), message.partition(), message.offset(), message.value()) for message in found]
    if rows:
        stage.recorder.polled(name, "read_committed", rows)
    return found


def _commit(stage: Stage, name: str, consumer: Consumer, positions: dict[Partition, int]) -> None:
    commit = stage.recorder.commit_offsets(GROUP, positions)
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        stage.recorder.commit_ended(commit, "failed" if error.args[0].code() in REFUSED else "unknown")
        stage.trouble(f"{name}: commit: {error}")
    else:
        stage.recorder.commit_ended(commit, "ok")
