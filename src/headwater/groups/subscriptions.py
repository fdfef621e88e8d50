"""Which topics a member of a `consumer` group subscribes to: the head of the metadata that consumers exchange.

int16 version, array of string topics, then what the broker has no need of (user data, owned partitions, ...)
"""

from headwater.groups.byte_reader import ByteReader, Malformed

CONSUMER_PROTOCOL_TYPE = "consumer"
_MIN_TOPIC_BYTES = 2


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """None if the metadata cannot be read; then nothing may be concluded from it."""
    reader = ByteReader(metadata)
    try:
        if reader.int16() < 0:
            return None
        return frozenset([reader.string() for _ in range(reader.count(_MIN_TOPIC_BYTES))])
    except Malformed:
        return None
