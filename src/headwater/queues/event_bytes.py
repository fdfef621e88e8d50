"""The bytes of share partition events."""

from headwater.queues.events import ShareEvent


class MalformedEvent(Exception):
    """The bytes are not those of an event."""


def encode(event: ShareEvent) -> bytes:
    """The value of a log record. Group and partition belong into its key, which is the log's business."""
    raise NotImplementedError


def decode(data: bytes) -> ShareEvent:
    """Raises MalformedEvent. Work and memory are bounded by the bytes given."""
    raise NotImplementedError
