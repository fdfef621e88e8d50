"""Is a transaction all or nothing, and invisible before it is committed?

A transaction's parts are its writes and the offsets it adds to groups. For each part there is evidence that it took
effect, evidence that it did not, or neither. Both kinds of evidence in one transaction mean that it is torn, whatever
answer its client got. A transaction whose commit had no outcome may have either fate, but all its parts have the same.
"""

from headwater.testing.oracles.checkers.events import CallOutcome, Isolation, Records, TopicPartition
from headwater.testing.oracles.checkers.group_offsets import CommitEffect, ObservedGroupOffsets
from headwater.testing.oracles.checkers.ledger import CommitFate, Ledger, RecordedTransaction, RecordedWrite
from headwater.testing.oracles.checkers.log_checker import Sighting
from headwater.testing.oracles.checkers.partition_log import PartitionLogs
from headwater.testing.oracles.checkers.violations import MAX_NAMED, ViolationKind, Violations, listed


class TransactionChecker:
    def __init__(
        self, ledger: Ledger, logs: PartitionLogs, offsets: ObservedGroupOffsets, findings: Violations
    ) -> None:
        self._ledger = ledger
        self._logs = logs
        self._offsets = offsets
        self._findings = findings
        self._suspects: list[tuple[RecordedWrite, Sighting, int]] = []
        """First sightings of values that were not known to be committed at that time."""

    def about_to_be_seen(self, sighting: Sighting, partition: TopicPartition, records: Records) -> None:
        """To be called before the log checker notes the records as seen."""
        of_topic = self._ledger.writes.get(partition.topic, {})
        is_committed_read = sighting.isolation is Isolation.READ_COMMITTED
        for offset, value in records:
            write = of_topic.get(value)
            if write is None or not write.began:
                continue
            if write.transaction is None:
                is_suspect = write.seen_at is None and write.outcome is not CallOutcome.OK
            else:
                is_certain = write.transaction.is_committed and write.outcome is CallOutcome.OK
                is_suspect = is_committed_read and not write.is_seen_committed and not is_certain
            if is_suspect:
                self._suspects.append((write, sighting, offset))

    def judge(self) -> None:
        for write, sighting, offset in self._suspects:
            self._judge_read(write, sighting, offset)
        for transaction in self._ledger.transactions.values():
            if transaction.fate is not CommitFate.ABORTED:
                self._judge_whole(transaction)

    def _judge_read(self, write: RecordedWrite, sighting: Sighting, offset: int) -> None:
        transaction = write.transaction
        if write.outcome is CallOutcome.FAILED:
            kind, why = ViolationKind.ABORTED_READ, "though its send failed for certain"
        elif transaction is None:
            return
        elif transaction.fate is CommitFate.ABORTED:
            kind, why = ViolationKind.ABORTED_READ, f"though {_why_aborted(transaction)}"
        elif transaction.commit_began > sighting.number:
            kind, why = ViolationKind.UNCOMMITTED_READ, "before its commit was asked for"
        else:
            return
        self._findings.add(
            kind,
            write,
            f"{sighting} saw {write} at offset {offset}, {why}",
            write.began,
            write.ended,
            sighting.number,
            *(() if transaction is None else (transaction.commit_began, transaction.ended)),
        )

    def _judge_whole(self, transaction: RecordedTransaction) -> None:
        parts: dict[CommitEffect, list[RecordedWrite | str]] = {standing: [] for standing in CommitEffect}
        for write in transaction.writes:
            parts[self._standing(write)].append(write)
        for (group, partition), advance in transaction.advances.items():
            standing = self._offsets[group, partition].standing(transaction)
            parts[standing].append(f"offset {advance.end} of {partition} for group {group}")
        if parts[CommitEffect.THERE] and parts[CommitEffect.MISSING]:
            outcome = "committed" if transaction.is_committed else "whose commit had no known outcome"
            self._findings.add(
                ViolationKind.TORN_TRANSACTION,
                transaction,
                f"{transaction} of producer {transaction.producer}, {outcome}, took effect in part: "
                f"{_named(parts[CommitEffect.THERE])} can be seen, but not {_named(parts[CommitEffect.MISSING])}",
                transaction.began,
                transaction.commit_began,
                transaction.ended,
            )

    def _standing(self, write: RecordedWrite) -> CommitEffect:
        log = self._logs.find(write)
        if log is None or write.outcome is CallOutcome.FAILED:
            return CommitEffect.OPEN
        if log.lacks(write, Isolation.READ_COMMITTED):
            return CommitEffect.MISSING
        return CommitEffect.THERE if write.is_seen_committed else CommitEffect.OPEN


def _why_aborted(transaction: RecordedTransaction) -> str:
    if transaction.is_aborted:
        return f"{transaction} was aborted"
    return f"the commit of {transaction} failed" if transaction.commit_began else f"{transaction} never asked to commit"


def _named(parts: list[RecordedWrite | str]) -> str:
    return listed([_part(each) if isinstance(each, RecordedWrite) else each for each in parts[:MAX_NAMED]], len(parts))


def _part(write: RecordedWrite) -> str:
    offset = write.offset if write.offset is not None else write.seen_at
    at = "" if offset is None else f" at offset {offset}"
    return f"{write.value!r} in {write.topic}-{write.partition}{at}"
