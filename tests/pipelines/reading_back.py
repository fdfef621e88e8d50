"""What a topic holds, as librdkafka reads it."""

from typing import Any

from confluent_kafka import Consumer, Message, TopicPartition

TIMEOUT_S = 60.0


def read_back(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message]:
    """All that a reader gets from the beginning to the present end, partition by partition. With read_committed, a
    transaction that is open hides what follows."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": "reading-back",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "isolation.level": isolation,
        "fetch.wait.max.ms": 10,
        "log_level": 0,
    }
    consumer = Consumer(config)
    try:
        partitions = sorted(consumer.list_topics(topic, TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        found: list[Message] = []
        waiting = set(partitions)
        while waiting:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, "the end of every partition is reached in time"
            if message.error() is not None:
                waiting.discard(message.partition())
            else:
                found.append(message)
        return sorted(found, key=lambda message: (message.partition(), message.offset()))
    finally:
        consumer.close()


def values_in(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[str]:
    return [(message.value() or b"").decode() for message in read_back(bootstrap, topic, isolation)]
