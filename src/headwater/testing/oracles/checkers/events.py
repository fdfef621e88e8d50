"""What clients say they did and saw: the words of a history.

A call that can fail is two events, one noted before it and one after. A client that dies in between leaves the first
alone, and the outcome is unknown: it may have happened or not. `FAILED` is a stronger word: it certainly did not
happen, and never will. A time-out is not a failure.

A value is sent once to a topic, so it is the name of its record. Producers, consumers, transactions and commits have
names that are unique in the run; a program that is started again takes new ones. What one name does is sequential.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

Records: TypeAlias = "tuple[tuple[int, str], ...]"
"""(offset, value), in the order of delivery."""


class CallOutcome(enum.StrEnum):
    OK = "ok"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Isolation(enum.StrEnum):
    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class TopicPartition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


Offsets: TypeAlias = "tuple[tuple[TopicPartition, int], ...]"
Positions: TypeAlias = "tuple[tuple[TopicPartition, int | None], ...]"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendBegan:
    producer: str
    topic: str
    value: str
    partition: int | None = None
    """None when the client's partitioner chooses; the acknowledgement tells."""
    transaction: str | None = None
    key: str | None = None
    is_idempotent: bool = True
    """Without it, retries may double and reorder records, and the checks allow for that."""


@dataclass(frozen=True, slots=True)
class SendEnded:
    topic: str
    value: str
    outcome: CallOutcome
    partition: int | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True)
class TransactionBegan:
    transaction: str
    producer: str


@dataclass(frozen=True, slots=True)
class OffsetsAdded:
    """The transaction will move the group to these offsets when it commits."""

    transaction: str
    group: str
    offsets: Offsets
    consumer: str | None = None
    """Whose polls the transaction processes. With it, inputs that were passed over or processed twice are found."""


@dataclass(frozen=True, slots=True)
class TransactionEnding:
    """A commit or an abort is about to be asked for. A transaction that never asked for a commit is never committed."""

    transaction: str
    is_commit: bool


@dataclass(frozen=True, slots=True)
class TransactionEnded:
    """How the last commit or abort ended that was asked for."""

    transaction: str
    outcome: CallOutcome


@dataclass(frozen=True, slots=True)
class CommitBegan:
    """A group's offsets are about to be committed outside a transaction. They may go back: that is a reset."""

    commit: str
    group: str
    offsets: Offsets


@dataclass(frozen=True, slots=True)
class CommitEnded:
    commit: str
    outcome: CallOutcome


@dataclass(frozen=True, slots=True)
class Assigned:
    """A consumer's partitions from now on, and where it stands in each; None where it does not know."""

    consumer: str
    positions: Positions


@dataclass(frozen=True, slots=True)
class Sought:
    consumer: str
    partition: TopicPartition
    position: int | None = None


@dataclass(frozen=True, slots=True)
class Polled:
    """What one poll brought of one partition. The positions are the client's own, where it tells them."""

    consumer: str
    isolation: Isolation
    partition: TopicPartition
    records: Records
    before: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class FinalRead:
    """A piece of the whole partition, read when all clients had ended and no transaction was open. The pieces follow
    each other from the start of the log to its end."""

    isolation: Isolation
    partition: TopicPartition
    records: Records
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class OffsetsRead:
    """What a group has committed, None where it has nothing. Final when all clients had ended."""

    reader: str
    group: str
    offsets: Positions
    is_final: bool = False


@dataclass(frozen=True, slots=True)
class CutOff:
    """The recorder's limit was reached: what came after is not in the history, so it cannot be judged."""

    max_events: int


Event: TypeAlias = (
    SendBegan
    | SendEnded
    | TransactionBegan
    | OffsetsAdded
    | TransactionEnding
    | TransactionEnded
    | CommitBegan
    | CommitEnded
    | Assigned
    | Sought
    | Polled
    | FinalRead
    | OffsetsRead
    | CutOff
)


class BrokenHistory(ValueError):
    """The history contradicts itself or cannot be read, so it proves nothing of the broker."""
