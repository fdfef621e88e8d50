"""kafka-python: a producer and a reader."""

import threading
import time
from typing import Any, Final

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, OffsetOutOfRangeError

from headwater.testing.chaos.stage import FLUSH_TIMEOUT_S, MAX_UNACKNOWLEDGED, PADDING, Partition, Stage

TICK_S: Final = 0.005
QUICK: Final[dict[str, Any]] = {
    "request_timeout_ms": 5000,
    "retry_backoff_ms": 50,
    "reconnect_backoff_ms": 20,
    "reconnect_backoff_max_ms": 200,
    "metadata_max_age_ms": 5000,
}


def produce(stage: Stage, name: str) -> None:
    producer = KafkaProducer(
        **stage.way_in.kafka_python, client_id=name, enable_idempotence=True, acks="all",
        delivery_timeout_ms=900_000, max_block_ms=120_000, linger_ms=2, **QUICK,
    )  # fmt: skip
    unacknowledged = threading.Semaphore(MAX_UNACKNOWLEDGED)

    def acknowledged(value: str, partition: Partition, offset: int) -> None:
        unacknowledged.release()
        stage.record_acknowledged(value, partition, offset)

    def failed(value: str, partition: Partition, error: object) -> None:
        unacknowledged.release()
        stage.unknown(name, value, partition, f"{type(error).__name__}: {error}")

    for due in stage.values(name):
        if due is None:
            time.sleep(TICK_S)
            continue
        value, partition = due
        unacknowledged.acquire()
        stage.sent(name, value, partition)
        try:
            sent = producer.send(partition[0], value.encode(), key=PADDING, partition=partition[1])
        except KafkaError as error:
            failed(value, partition, error)
            continue
        sent.add_callback(lambda found, value=value, partition=partition: acknowledged(value, partition, found.offset))
        sent.add_errback(lambda error, value=value, partition=partition: failed(value, partition, error))
    try:
        producer.flush(FLUSH_TIMEOUT_S)
    except KafkaError as error:
        stage.failure(f"{name}: not everything was acknowledged after the last fault: {error}")
    producer.close(timeout=1)


def read(stage: Stage, name: str) -> None:
    consumer = KafkaConsumer(
        **stage.way_in.kafka_python, client_id=name, enable_auto_commit=False,
        auto_offset_reset="none", fetch_max_wait_ms=100, **QUICK,
    )  # fmt: skip
    partitions = [TopicPartition(*partition) for partition in stage.watched]
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, 0)
    stage.recorder.assigned(name, dict.fromkeys(stage.watched, 0))
    try:
        while not stage.stop_reading.is_set():
            try:
                found = consumer.poll(timeout_ms=200, max_records=500)
            except OffsetOutOfRangeError as error:
                stage.failure(f"{name}: {type(error).__name__}: {error}")
                return
            except KafkaError as error:
                stage.trouble(f"{name}: {type(error).__name__}: {error}")
                continue
            rows = [(each.topic, each.partition, each.offset, each.value) for batch in found.values() for each in batch]
            if rows:
                stage.recorder.polled(name, "read_uncommitted", rows)
    finally:
        consumer.close()
