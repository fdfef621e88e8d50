"""Is a transaction all or nothing, and invisible before it is committed?

A transaction's parts are its writes and the offsets it adds to groups. For each part there is evidence that it took
effect, evidence that it did not, or neither. Both kinds of evidence in one transaction mean that it is torn, whatever
its client was told. A transaction whose commit had no outcome may have either fate, but all its parts have the same.
"""

from headwater.testing.oracles.checkers.events import Isolation, Outcome, Records, TopicPartition
from headwater.testing.oracles.checkers.group_offsets import GroupOffsets, Standing
from headwater.testing.oracles.checkers.ledger import Fate, Ledger, Transaction, Write
from headwater.testing.oracles.checkers.log_checker import Sighting
from headwater.testing.oracles.checkers.partition_log import PartitionLogs
from headwater.testing.oracles.checkers.violations import MAX_NAMED, Findings, Kind, listed


class TransactionChecker:
    def __init__(self, ledger: Ledger, logs: PartitionLogs, offsets: GroupOffsets, findings: Findings) -> None:
        self._ledger = ledger
        self._logs = logs
        self._offsets = offsets
        self._findings = findings
        self._suspects: list[tuple[Write, Sighting, int]] = []
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
                is_suspect = write.seen_at is None and write.outcome is not Outcome.OK
            else:
                is_settled = write.transaction.is_committed and write.outcome is Outcome.OK
                is_suspect = is_committed_read and not write.is_seen_committed and not is_settled
            if is_suspect:
                self._suspects.append((write, sighting, offset))

    def judge(self) -> None:
        for write, sighting, offset in self._suspects:
            self._judge_read(write, sighting, offset)
        for transaction in self._ledger.transactions.values():
            if transaction.fate is not Fate.ABORTED:
                self._judge_whole(transaction)

    def _judge_read(self, write: Write, sighting: Sighting, offset: int) -> None:
        transaction = write.transaction
        if write.outcome is Outcome.FAILED:
            kind, why = Kind.ABORTED_READ, "though its send failed for certain"
        elif transaction is None:
            return
        elif transaction.fate is Fate.ABORTED:
            kind, why = Kind.ABORTED_READ, f"though {_why_aborted(transaction)}"
        elif transaction.commit_began > sighting.number:
            kind, why = Kind.UNCOMMITTED_READ, "before its commit was asked for"
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

    def _judge_whole(self, transaction: Transaction) -> None:
        parts: dict[Standing, list[Write | str]] = {standing: [] for standing in Standing}
        for write in transaction.writes:
            parts[self._standing(write)].append(write)
        for (group, partition), advance in transaction.advances.items():
            standing = self._offsets[group, partition].standing(transaction)
            parts[standing].append(f"offset {advance.end} of {partition} for group {group}")
        if parts[Standing.THERE] and parts[Standing.MISSING]:
            told = "committed" if transaction.is_committed else "whose commit had no known outcome"
            self._findings.add(
                Kind.TORN_TRANSACTION,
                transaction,
                f"{transaction} of producer {transaction.producer}, {told}, took effect in part: "
                f"{_named(parts[Standing.THERE])} can be seen, but not {_named(parts[Standing.MISSING])}",
                transaction.began,
                transaction.commit_began,
                transaction.ended,
            )

    def _standing(self, write: Write) -> Standing:
        log = self._logs.find(write)
        if log is None or write.outcome is Outcome.FAILED:
            return Standing.OPEN
        if log.lacks(write, Isolation.READ_COMMITTED):
            return Standing.MISSING
        return Standing.THERE if write.is_seen_committed else Standing.OPEN


def _why_aborted(transaction: Transaction) -> str:
    if transaction.is_aborted:
        return f"{transaction} was aborted"
    return f"the commit of {transaction} failed" if transaction.commit_began else f"{transaction} never asked to commit"


def _named(parts: list[Write | str]) -> str:
    return listed([_part(each) if isinstance(each, Write) else each for each in parts[:MAX_NAMED]], len(parts))


def _part(write: Write) -> str:
    place = write.offset if write.offset is not None else write.seen_at
    at = "" if place is None else f" at offset {place}"
    return f"{write.value!r} in {write.topic}-{write.partition}{at}"
