"""Which topics a member of a `consumer` group subscribes to: the head of the metadata that consumers exchange.

int16 version, array of string topics, then fields that the broker does not need (user data, owned partitions, ...)
"""

from headwater.records.byte_reader import ByteReader, MalformedBytes

CONSUMER_PROTOCOL_TYPE = "consumer"
_MIN_TOPIC_BYTES = 2


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics; None if the metadata cannot be read, and they are unknown."""
    reader = ByteReader(metadata)
    try:
        if reader.int16() < 0:
            return None
        return frozenset([reader.string() for _ in range(reader.count(_MIN_TOPIC_BYTES))])
    except MalformedBytes:
        return None
