"""Was each input processed by exactly one committed transaction?

The input of a transaction is what its consumer was given since the last one, or since it was assigned the partition or
sought in it, up to the offset that the transaction adds to the group. The inputs of all committed transactions of a
group must lie end to end: a hole is input that the group's offset covers though no transaction processed it, an overlap
is input that was processed twice. Transactions without a known fate may fill holes, and make no overlaps.
"""

from bisect import bisect_left
from typing import NamedTuple

from headwater.testing.oracles.checkers.events import Assigned, Isolation, OffsetsAdded, Polled, Sought, TopicPartition
from headwater.testing.oracles.checkers.group_offsets import GroupPartition, ObservedGroupOffsets
from headwater.testing.oracles.checkers.ledger import CommitFate, RecordedTransaction
from headwater.testing.oracles.checkers.partition_log import PartitionLogs
from headwater.testing.oracles.checkers.violations import MAX_NAMED, ViolationKind, Violations, listed


class Input(NamedTuple):
    start: int
    end: int
    transaction: RecordedTransaction


class InputChecker:
    def __init__(self, logs: PartitionLogs, offsets: ObservedGroupOffsets, findings: Violations) -> None:
        self._logs = logs
        self._offsets = offsets
        self._findings = findings
        self._untaken: dict[str, dict[TopicPartition, int | None]] = {}
        """By consumer: from where on no transaction has taken its records; None until its next poll tells."""
        self._visible: dict[TopicPartition, list[int]] = {}

    def assigned(self, event: Assigned) -> None:
        self._untaken[event.consumer] = dict(event.positions)

    def sought(self, event: Sought) -> None:
        self._untaken.setdefault(event.consumer, {})[event.partition] = event.position

    def polled(self, event: Polled) -> None:
        untaken = self._untaken.setdefault(event.consumer, {})
        if untaken.get(event.partition) is None:
            if event.before is not None:
                untaken[event.partition] = event.before
            elif event.records:
                untaken[event.partition] = event.records[0][0]

    def take(self, event: OffsetsAdded) -> dict[TopicPartition, int]:
        """Where the inputs of the transaction begin, as far as that is known."""
        if event.consumer is None:
            return {}
        untaken = self._untaken.setdefault(event.consumer, {})
        starts = {partition: start for partition, _ in event.offsets if (start := untaken.get(partition)) is not None}
        untaken.update(event.offsets)
        return starts

    def judge(self) -> None:
        for book in self._offsets.all():
            if not book.has_plain_commits:
                self._judge_tiling(book)

    def _judge_tiling(self, book: GroupPartition) -> None:
        last: Input | None = None
        filled_end = 0
        for each in _inputs(book):
            if each.transaction.fate is CommitFate.UNKNOWN:
                filled_end = max(filled_end, each.end)
                continue
            if last is not None:
                self._judge_hole(book, max(last.end, filled_end), each)
                self._judge_overlap(book, last, each)
            last = each if last is None or each.end > last.end else last

    def _judge_hole(self, book: GroupPartition, start: int, after: Input) -> None:
        if passed := self._records(book.partition, start, after.start):
            self._findings.add(
                ViolationKind.DIRTY_OFFSET,
                (book.group, book.partition, start, "hole"),
                f"{after.transaction} moved {book} past {passed}, which no committed transaction processed",
                after.transaction.began,
                after.transaction.commit_began,
            )

    def _judge_overlap(self, book: GroupPartition, before: Input, after: Input) -> None:
        if twice := self._records(book.partition, after.start, min(before.end, after.end)):
            self._findings.add(
                ViolationKind.PROCESSED_TWICE,
                (book.group, after.transaction, book.partition),
                f"group {book.group} processed {twice} of {book.partition} twice, in {before.transaction} "
                f"and in {after.transaction}",
                before.transaction.began,
                after.transaction.began,
            )

    def _records(self, partition: TopicPartition, start: int, end: int) -> str:
        """Names what a group must process from `start` up to and without `end`; that excludes markers and aborted
        records. Empty when there is nothing."""
        if start >= end:
            return ""
        log = self._logs[partition]
        if partition not in self._visible:
            self._visible[partition] = log.visible_offsets(Isolation.READ_COMMITTED)
        offsets = self._visible[partition]
        first, last = bisect_left(offsets, start), bisect_left(offsets, end)
        named = [f"{log.at[offset].value!r} at {offset}" for offset in offsets[first : min(first + MAX_NAMED, last)]]
        return listed(named, last - first)


def _inputs(book: GroupPartition) -> list[Input]:
    """In order. Of no use, and so none, when the start of one is not known."""
    found: list[Input] = []
    for transaction in book.transactions():
        if transaction.fate is CommitFate.ABORTED:
            continue
        advance = transaction.advances[book.group, book.partition]
        if advance.start is None:
            return []
        found.append(Input(advance.start, advance.end, transaction))
    return sorted(found, key=lambda each: (each.start, each.end))
