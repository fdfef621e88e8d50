"""Is each partition one log? Each value at one offset, each offset with one value, nothing lost, nothing made up.

Acknowledgements and readers make the same claim, that a value stands at an offset, and all claims must agree. A write
that must be there is missing when the final read lacks it; without a final read, when consumers were given something
before and after its offset, and none was given the write itself.

Logs must not be compacted, and not be cut at the start while they are read: that looks like loss.
"""

from typing import NamedTuple

from headwater.testing.oracles.checkers.events import CallOutcome, Isolation, Records, SendEnded, TopicPartition
from headwater.testing.oracles.checkers.ledger import Ledger, RecordedWrite
from headwater.testing.oracles.checkers.partition_log import PartitionLog, PartitionLogs
from headwater.testing.oracles.checkers.violations import ViolationKind, Violations


class Sighting(NamedTuple):
    number: int
    reader: str
    isolation: Isolation

    def __str__(self) -> str:
        return f"{self.isolation} {self.reader}"


class LogChecker:
    def __init__(self, ledger: Ledger, logs: PartitionLogs, findings: Violations) -> None:
        self._ledger = ledger
        self._logs = logs
        self._findings = findings
        self._unsent: dict[RecordedWrite, tuple[Sighting, int]] = {}
        self._sent_late: set[RecordedWrite] = set()
        self._repeats: dict[RecordedWrite, set[int]] = {}
        """Further offsets of values that were seen at several."""

    def sent(self, write: RecordedWrite) -> None:
        if early := self._unsent.pop(write, None):
            sighting, offset = early
            self._sent_late.add(write)
            self._findings.add(
                ViolationKind.FUTURE_READ,
                write,
                f"{sighting} saw {write} at offset {offset} before it was sent",
                sighting.number,
                write.began,
            )

    def acknowledged(self, number: int, write: RecordedWrite, event: SendEnded) -> None:
        if event.partition is not None and not _is_its_partition(write, event.partition):
            self._findings.add(
                ViolationKind.INCONSISTENT_OFFSET,
                (write, event.partition),
                f"{write} was acknowledged in partition {event.partition}",
                write.began,
                number,
            )
            return
        if write.partition is not None and event.offset is not None:
            write.offset = event.offset
            log = self._logs[TopicPartition(write.topic, write.partition)]
            holder = log.at.setdefault(event.offset, write)
            if holder is not write:
                self._conflicting(log, event.offset, holder, write, "was acknowledged", number)

    def seen(self, sighting: Sighting, partition: TopicPartition, records: Records, is_final: bool) -> None:
        topic, index = partition
        log = self._logs[partition]
        for offset, value in records:
            write = self._ledger.write(topic, value)
            if not write.began:
                self._unsent.setdefault(write, (sighting, offset))
            if _is_its_partition(write, index):
                holder = log.at.setdefault(offset, write)
                if holder is not write:
                    self._conflicting(log, offset, holder, write, f"was seen by {sighting}", sighting.number)
                if write.seen_at is None:
                    write.seen_at = offset
                elif write.seen_at != offset:
                    self._repeated(write, offset, sighting)
            else:
                self._astray(write, partition, offset, sighting)
            _note(write, sighting.isolation, is_final)

    def lost(self, write: RecordedWrite, why: str, *operations: int) -> None:
        """No consumer got the write, though one should have, as `why` says."""
        self._findings.add(
            ViolationKind.LOST_WRITE,
            write,
            f"{write}, {_claimed(write)}, was not given to any consumer, though {why}",
            write.began,
            write.ended,
            *operations,
        )

    def judge(self) -> None:
        for write, (sighting, offset) in self._unsent.items():
            self._findings.add(
                ViolationKind.PHANTOM,
                write,
                f"{sighting} saw {write} at offset {offset}, and no producer sent it",
                sighting.number,
            )
        for of_topic in self._ledger.writes.values():
            self._judge_order(of_topic)
            for write in of_topic.values():
                self._judge_offset(write)
                if write.began and write.must_be_there:
                    self._judge_loss(write)

    def _conflicting(
        self, log: PartitionLog, offset: int, holder: RecordedWrite, write: RecordedWrite, how: str, number: int
    ) -> None:
        self._findings.add(
            ViolationKind.INCONSISTENT_OFFSET,
            (holder, write),
            f"offset {offset} of {log.partition} has two values: {write} {how} there, but {holder} had it before",
            holder.began,
            write.began,
            number,
        )

    def _repeated(self, write: RecordedWrite, offset: int, sighting: Sighting) -> None:
        self._repeats.setdefault(write, set()).add(offset)
        if write.is_idempotent:
            self._findings.add(
                ViolationKind.DUPLICATE,
                (write, offset),
                f"{write} stands at offset {write.seen_at} and again at offset {offset}, where {sighting} saw it",
                write.began,
                sighting.number,
            )

    def _astray(self, write: RecordedWrite, partition: TopicPartition, offset: int, sighting: Sighting) -> None:
        """Seen in another partition than it was sent to, or than it was seen in before."""
        kind = ViolationKind.INCONSISTENT_OFFSET if write.seen_at is None else ViolationKind.DUPLICATE
        if write.is_idempotent or write.seen_at is None:
            self._findings.add(
                kind,
                (write, partition),
                f"{write} was seen by {sighting} in {partition}, at offset {offset}",
                write.began,
                sighting.number,
            )

    def _judge_offset(self, write: RecordedWrite) -> None:
        is_elsewhere = write.seen_at is not None and write.offset is not None and write.seen_at != write.offset
        if is_elsewhere and write.is_idempotent and write.offset not in self._repeats.get(write, ()):
            self._findings.add(
                ViolationKind.INCONSISTENT_OFFSET,
                write,
                f"{write} was acknowledged at offset {write.offset}, but stands at offset {write.seen_at}",
                write.began,
                write.ended,
            )

    def _judge_order(self, of_topic: dict[str, RecordedWrite]) -> None:
        """Only what certainly arrived, of producers that promise an order: the last of each per partition."""
        last: dict[tuple[str, int], tuple[int, RecordedWrite]] = {}
        for write in of_topic.values():
            offset = write.seen_at if write.seen_at is not None else write.offset
            if offset is None or write.partition is None or not write.is_idempotent or write in self._sent_late:
                continue
            if write.began and (write.outcome is CallOutcome.OK or write.must_be_there):
                before = last.get((write.producer, write.partition))
                if before is not None and offset < before[0]:
                    self._findings.add(
                        ViolationKind.REORDERED,
                        write,
                        f"{write} was sent after {before[1].value!r} and stands before it, "
                        f"at offset {offset} instead of after {before[0]}",
                        before[1].began,
                        write.began,
                    )
                last[write.producer, write.partition] = (offset, write)

    def _judge_loss(self, write: RecordedWrite) -> None:
        log = self._logs.find(write)
        if log is None:
            return
        for isolation, span in log.finals.items():
            if log.lacks(write, isolation) and not _is_torn(write, isolation):
                self._findings.add(
                    ViolationKind.LOST_WRITE,
                    write,
                    f"{write}, {_claimed(write)}, is missing in the final {isolation} read, "
                    f"which has {span}{_hidden(write, isolation)}",
                    write.began,
                    write.ended,
                )
        if log.finals or log.was_sought or log.polled is None or write.seen_at is not None or write.offset is None:
            return
        if log.polled.start <= write.offset < log.polled.end:
            self.lost(write, f"consumers were given {log.polled} of {log.partition}")


def _is_its_partition(write: RecordedWrite, index: int) -> bool:
    """The first to tell the partition of a write whose sender left it open is believed."""
    if write.partition is None:
        write.partition = index
    return write.partition == index


def _note(write: RecordedWrite, isolation: Isolation, is_final: bool) -> None:
    if isolation is Isolation.READ_UNCOMMITTED:
        write.is_in_uncommitted_read |= is_final
        return
    write.is_seen_committed = True
    write.is_in_committed_read |= is_final
    if write.transaction is not None:
        write.transaction.is_seen_committed = True
        write.transaction.is_in_committed_read |= is_final


def _is_torn(write: RecordedWrite, isolation: Isolation) -> bool:
    """Then the whole transaction is reported, instead of each write that it lacks."""
    is_partly_there = write.transaction is not None and write.transaction.is_in_committed_read
    return isolation is Isolation.READ_COMMITTED and is_partly_there


def _claimed(write: RecordedWrite) -> str:
    if write.offset is not None:
        return f"acknowledged at offset {write.offset}"
    if write.seen_at is not None:
        return f"seen at offset {write.seen_at} before"
    return "acknowledged" if write.outcome is CallOutcome.OK else "committed"


def _hidden(write: RecordedWrite, isolation: Isolation) -> str:
    is_hidden = isolation is Isolation.READ_COMMITTED and write.is_in_uncommitted_read
    return "; read_uncommitted readers see it, so an open transaction may hide it" if is_hidden else ""
