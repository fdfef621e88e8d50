"""What producers meant to write: every send and every transaction, and what became of it as far as clients know.

Nothing is judged here. The ledger only refuses histories that contradict themselves.
"""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from headwater.testing.oracles.checkers.events import (
    BrokenHistory,
    CallOutcome,
    OffsetsAdded,
    SendBegan,
    SendEnded,
    TopicPartition,
    TransactionBegan,
    TransactionEnded,
    TransactionEnding,
)

NEVER = 0
"""The number of an operation that is not in the history; the first is 1."""


class CommitFate(enum.Enum):
    COMMITTED = enum.auto()
    ABORTED = enum.auto()
    UNKNOWN = enum.auto()


@dataclass(slots=True, eq=False)
class Advance:
    """The input that a transaction says it processed: from `start`, if that is known, up to and without `end`."""

    start: int | None
    end: int


@dataclass(slots=True, eq=False)
class RecordedTransaction:
    name: str
    producer: str
    began: int
    writes: "list[RecordedWrite]" = field(default_factory=list)
    advances: dict[tuple[str, TopicPartition], Advance] = field(default_factory=dict)
    commit_began: int = NEVER
    ended: int = NEVER
    """When the client learnt that it was committed or aborted."""
    is_seen_committed: bool = False
    """A read_committed reader saw one of its values."""
    is_in_committed_read: bool = False
    """So did the final read."""
    asked_for: TransactionEnding | None = None
    is_committed: bool = False
    is_aborted: bool = False
    possible_commits: int = 0
    """Commits that were asked for and did not certainly fail."""

    @property
    def fate(self) -> CommitFate:
        """To be asked when the whole history is known. A commit without an outcome happened if a read_committed reader
        saw anything of it. An abort without an outcome changes nothing: what never asked for a commit has none."""
        if self.is_committed:
            return CommitFate.COMMITTED
        if self.is_aborted or self.possible_commits == 0:
            return CommitFate.ABORTED
        return CommitFate.COMMITTED if self.is_seen_committed else CommitFate.UNKNOWN

    def __str__(self) -> str:
        return f"transaction {self.name}"


@dataclass(slots=True, eq=False)
class RecordedWrite:
    """One value of one topic: how it was sent, how that ended, and where it was seen."""

    topic: str
    value: str
    producer: str = ""
    began: int = NEVER
    """NEVER when the value was seen, but not sent."""
    partition: int | None = None
    transaction: RecordedTransaction | None = None
    is_idempotent: bool = True
    outcome: CallOutcome = CallOutcome.UNKNOWN
    ended: int = NEVER
    offset: int | None = None
    """As acknowledged."""
    seen_at: int | None = None
    """The offset where it was seen first."""
    is_seen_committed: bool = False
    is_in_committed_read: bool = False
    is_in_uncommitted_read: bool = False

    @property
    def must_be_there(self) -> bool:
        """Whether every reader that gets so far must see it, whatever its isolation."""
        if self.transaction is not None:
            return self.outcome is not CallOutcome.FAILED and self.transaction.fate is CommitFate.COMMITTED
        return self.outcome is CallOutcome.OK or self.seen_at is not None

    def __str__(self) -> str:
        partition = "" if self.partition is None else f"-{self.partition}"
        sender = f" of producer {self.producer}" if self.began else ""
        transaction = "" if self.transaction is None else f" in {self.transaction}"
        return f"{self.value!r} in {self.topic}{partition}{sender}{transaction}"


class Ledger:
    def __init__(self) -> None:
        self.writes: dict[str, dict[str, RecordedWrite]] = {}
        """By topic and value, in the order of sending."""
        self.transactions: dict[str, RecordedTransaction] = {}

    def send_began(self, number: int, event: SendBegan) -> RecordedWrite:
        write = self.write(event.topic, event.value)
        if write.began:
            raise BrokenHistory(
                f"operation {number}: {event.value!r} is sent to topic {event.topic} again, after operation "
                f"{write.began}; values must be unique in their topic"
            )
        write.began, write.producer, write.is_idempotent = number, event.producer, event.is_idempotent
        write.partition = event.partition if event.partition is not None else write.partition
        if event.transaction is not None:
            transaction = self._open(number, event.transaction)
            write.transaction = transaction
            transaction.writes.append(write)
            transaction.is_seen_committed |= write.is_seen_committed
            transaction.is_in_committed_read |= write.is_in_committed_read
        return write

    def send_ended(self, number: int, event: SendEnded) -> RecordedWrite:
        write = self.writes.get(event.topic, {}).get(event.value)
        if write is None or not write.began:
            raise BrokenHistory(f"operation {number}: a send of {event.value!r} to {event.topic} ends that never began")
        if write.ended:
            raise BrokenHistory(f"operation {number}: the send of {write} has already ended with {write.ended}")
        write.outcome, write.ended = event.outcome, number
        return write

    def write(self, topic: str, value: str) -> RecordedWrite:
        """Created when a value is seen before its send was recorded."""
        of_topic = self.writes.get(topic)
        if of_topic is None:
            of_topic = self.writes[topic] = {}
        write = of_topic.get(value)
        if write is None:
            write = of_topic[value] = RecordedWrite(topic, value)
        return write

    def transaction_began(self, number: int, event: TransactionBegan) -> None:
        if event.transaction in self.transactions:
            raise BrokenHistory(f"operation {number}: transaction {event.transaction} begins again; names are unique")
        self.transactions[event.transaction] = RecordedTransaction(event.transaction, event.producer, number)

    def offsets_added(
        self, number: int, event: OffsetsAdded, starts: Mapping[TopicPartition, int]
    ) -> RecordedTransaction:
        """`starts` are the inputs from which the transaction's consumer has given nothing to a transaction yet."""
        transaction = self._open(number, event.transaction)
        for partition, offset in event.offsets:
            advance = transaction.advances.setdefault((event.group, partition), Advance(starts.get(partition), offset))
            advance.end = offset
        return transaction

    def transaction_ending(self, number: int, event: TransactionEnding) -> None:
        transaction = self._known(number, event.transaction)
        transaction.asked_for = event
        if event.is_commit:
            transaction.commit_began = transaction.commit_began or number
            transaction.possible_commits += 1

    def transaction_ended(self, number: int, event: TransactionEnded) -> None:
        transaction = self._known(number, event.transaction)
        ending, transaction.asked_for = transaction.asked_for, None
        if ending is None:
            raise BrokenHistory(f"operation {number}: {transaction} ends, but neither commit nor abort was asked for")
        if event.outcome is CallOutcome.OK:
            if transaction.ended:
                raise BrokenHistory(f"operation {number}: {transaction} has already ended with {transaction.ended}")
            transaction.ended = number
            transaction.is_committed, transaction.is_aborted = ending.is_commit, not ending.is_commit
        elif event.outcome is CallOutcome.FAILED and ending.is_commit:
            transaction.possible_commits -= 1

    def _known(self, number: int, name: str) -> RecordedTransaction:
        transaction = self.transactions.get(name)
        if transaction is None:
            raise BrokenHistory(f"operation {number}: transaction {name} never began")
        return transaction

    def _open(self, number: int, name: str) -> RecordedTransaction:
        transaction = self._known(number, name)
        if transaction.commit_began or transaction.ended:
            raise BrokenHistory(f"operation {number}: something is added to {transaction} after its end was asked for")
        return transaction
