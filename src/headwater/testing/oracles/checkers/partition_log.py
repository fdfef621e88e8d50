"""A partition as all clients together describe it: which value stands at which offset, and how far readers got."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from headwater.testing.oracles.checkers.events import Isolation, TopicPartition
from headwater.testing.oracles.checkers.ledger import CommitFate, RecordedWrite


@dataclass(slots=True)
class OffsetSpan:
    """Offsets from `start` up to and without `end`."""

    start: int
    end: int

    def __str__(self) -> str:
        return f"offsets {self.start} to {self.end - 1}" if self.end > self.start else f"nothing from {self.start} on"


@dataclass(slots=True)
class PartitionLog:
    partition: TopicPartition
    at: dict[int, RecordedWrite] = field(default_factory=dict)
    """By offset: acknowledged there, or seen there."""
    polled: OffsetSpan | None = None
    """From where any consumer began to the last offset that any was given."""
    was_sought: bool = False
    """A consumer sought to another offset, so that not everything between two polled offsets need be polled."""
    finals: dict[Isolation, OffsetSpan] = field(default_factory=dict)

    def note_polled(self, start: int, end: int) -> None:
        if self.polled is None:
            self.polled = OffsetSpan(start, end)
        else:
            self.polled.start, self.polled.end = min(self.polled.start, start), max(self.polled.end, end)

    def note_final(self, isolation: Isolation, start: int, end: int) -> None:
        span = self.finals.setdefault(isolation, OffsetSpan(start, end))
        span.start, span.end = min(span.start, start), max(span.end, end)

    def lacks(self, write: RecordedWrite, isolation: Isolation) -> bool:
        """Whether the final read would have the write if it were there, and has not."""
        span = self.finals.get(isolation)
        if span is None:
            return False
        is_in_it = write.is_in_committed_read if isolation is Isolation.READ_COMMITTED else write.is_in_uncommitted_read
        offset = write.offset if write.offset is not None else write.seen_at
        return not is_in_it and (span.start == 0 if offset is None else offset >= span.start)

    def visible_offsets(self, isolation: Isolation) -> list[int]:
        """The offsets that such a reader cannot pass without being given them, in order."""
        if isolation is Isolation.READ_UNCOMMITTED:
            return sorted(self.at)
        return sorted(offset for offset, write in self.at.items() if _is_committed(write))


class PartitionLogs:
    def __init__(self) -> None:
        self._logs: dict[TopicPartition, PartitionLog] = {}

    def __getitem__(self, partition: TopicPartition) -> PartitionLog:
        log = self._logs.get(partition)
        if log is None:
            log = self._logs[partition] = PartitionLog(partition)
        return log

    def __iter__(self) -> Iterator[PartitionLog]:
        return iter(self._logs.values())

    def find(self, write: RecordedWrite) -> PartitionLog | None:
        """Where the write went, if its partition is known."""
        return None if write.partition is None else self._logs.get(TopicPartition(write.topic, write.partition))


def _is_committed(write: RecordedWrite) -> bool:
    return write.transaction is None or write.transaction.fate is CommitFate.COMMITTED
