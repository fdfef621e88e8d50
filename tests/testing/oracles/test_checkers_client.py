"""The recorder fits a client library as it is: a real run is recorded, and one lie about it is found."""

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from headwater.testing import Broker
from headwater.testing.oracles.checkers import Recorder, ViolationKind, check

TOPIC = "orders"
GROUP = "readers"
RECORDS = 300
READ_TIMEOUT_S = 30.0


def produce(broker: Broker, recorder: Recorder) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})

    def delivered(error: KafkaError | None, message: Message) -> None:
        value, partition = message.value(), message.partition()
        assert isinstance(value, bytes) and partition is not None
        if error is None:
            recorder.acknowledged(TOPIC, value, partition, message.offset())
        else:
            recorder.send_unknown(TOPIC, value)

    for number in range(RECORDS):
        value = f"v{number}"
        recorder.send("p", TOPIC, value)
        producer.produce(TOPIC, value.encode(), on_delivery=delivered)
        producer.poll(0)
    assert producer.flush(READ_TIMEOUT_S) == 0


def consume(broker: Broker, recorder: Recorder) -> list[tuple[int, str]]:
    """One partition from its start, and a commit at its end."""
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "enable.auto.commit": False})
    found: list[tuple[int, str]] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        recorder.assigned("c", {(TOPIC, 0): 0})
        while len(found) < RECORDS:
            messages = consumer.consume(100, READ_TIMEOUT_S)
            assert messages, "the records did not arrive"
            batch = [(message.offset() or 0, (message.value() or b"").decode()) for message in messages]
            recorder.polled("c", "read_committed", [(TOPIC, 0, *each) for each in batch])
            found += batch
        commit = recorder.commit_offsets(GROUP, {(TOPIC, 0): RECORDS})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, RECORDS)], asynchronous=False)
        recorder.commit_ended(commit, "ok")
        (committed,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=READ_TIMEOUT_S)
        recorder.offsets_read("end", GROUP, {(TOPIC, 0): committed.offset}, is_final=True)
    finally:
        consumer.close()
    return found


def test_a_run_with_a_client_is_recorded_and_checked() -> None:
    recorder = Recorder()
    with Broker() as broker:
        produce(broker, recorder)
        found = consume(broker, recorder)
    recorder.final_read("read_committed", TOPIC, 0, found, end=RECORDS)
    assert check(recorder.history()) == []
    recorder.final_read("read_uncommitted", TOPIC, 0, found[:-1], end=RECORDS)
    assert [violation.kind for violation in check(recorder.history())] == [ViolationKind.LOST_WRITE]
