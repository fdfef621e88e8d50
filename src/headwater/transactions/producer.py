"""One producer in one partition, as its last batches and markers have left it: a value.

A change makes a new one, so that a change is taken back by putting the old one in its place.
"""

from typing import Final, NamedTuple

from headwater.model.ids import NO_OFFSET, Offset
from headwater.records.batch import NO_SEQUENCE, NO_TIMESTAMP, BatchHeader
from headwater.records.control import EndMarker

KEPT_BATCHES: Final = 5
"""Clients have at most five requests in flight per connection when they are idempotent."""
NO_EPOCH: Final = -1

_SEQUENCES = 1 << 31


class StoredBatch(NamedTuple):
    base_sequence: int
    last_sequence: int
    base_offset: Offset
    last_offset: Offset
    timestamp: int


class ProducerState(NamedTuple):
    """A tuple, because every idempotent batch makes one."""

    epoch: int
    last_sequence: int = NO_SEQUENCE
    last_timestamp: int = NO_TIMESTAMP
    seen_at_ms: int = NO_TIMESTAMP
    coordinator_epoch: int = NO_EPOCH
    """Of the coordinator that wrote the last marker."""
    transaction_start: Offset = NO_OFFSET
    """The first offset of the transaction that is open."""
    marker_offset: Offset = NO_OFFSET
    """Of the last marker. Not in snapshots: it is asked for while the marker is on its way to the disk."""
    batches: tuple[StoredBatch, ...] = ()
    """The last ones of this epoch."""

    @property
    def is_open(self) -> bool:
        return self.transaction_start != NO_OFFSET

    def appended(self, header: BatchHeader, now_ms: int) -> "ProducerState":
        """After a batch of records. One that is transactional begins a transaction or goes on with it."""
        epoch, last_sequence, last_timestamp, seen_at_ms, coordinator_epoch, start, marker_offset, batches = self
        base_offset, sequence, timestamp = header.base_offset, header.base_sequence, header.max_timestamp
        if header.producer_epoch > epoch:
            epoch, last_sequence, batches = header.producer_epoch, NO_SEQUENCE, ()
        if sequence != NO_SEQUENCE and header.producer_epoch == epoch:
            last_sequence, last_timestamp = last_sequence_of(header), timestamp
            stored = StoredBatch(sequence, last_sequence, base_offset, header.last_offset, timestamp)
            batches = (*batches[1 - KEPT_BATCHES :], stored)
        if start == NO_OFFSET and header.is_transactional:
            start = base_offset
        seen_at_ms = max(seen_at_ms, now_ms if now_ms != NO_TIMESTAMP else timestamp)
        return ProducerState(  # by position: made for each batch
            epoch, last_sequence, last_timestamp, seen_at_ms, coordinator_epoch, start, marker_offset, batches
        )

    def ended(self, header: BatchHeader, marker: EndMarker, now_ms: int) -> "ProducerState":
        """After a marker: nothing is open, and epochs before the marker's are fenced. With the same epoch the
        sequence goes on; a new one (KIP-890) starts at 0."""
        is_new_epoch = header.producer_epoch > self.epoch
        return ProducerState(
            epoch=max(self.epoch, header.producer_epoch),
            last_sequence=NO_SEQUENCE if is_new_epoch else self.last_sequence,
            last_timestamp=header.max_timestamp,
            seen_at_ms=max(self.seen_at_ms, now_ms if now_ms != NO_TIMESTAMP else header.max_timestamp),
            coordinator_epoch=max(self.coordinator_epoch, marker.coordinator_epoch),
            transaction_start=NO_OFFSET,
            marker_offset=header.base_offset,
            batches=() if is_new_epoch else self.batches,
        )


def last_sequence_of(header: BatchHeader) -> int:
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES


def follows(first: int, last: int) -> bool:
    """Whether a batch that begins with sequence `first` goes on after `last`."""
    return first == last + 1 or (first == 0 and last == _SEQUENCES - 1)
