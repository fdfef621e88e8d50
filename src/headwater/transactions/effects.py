"""What a decision asks for: events to log; replies to give and markers to write once they are logged.

`ReplyTo` is the caller's own token for a request that waits; the core only hands it back. Every token given to the
core comes back exactly once, unless the whole shard is dropped.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from headwater.model.errors import ErrorCode
from headwater.model.ids import PartitionId
from headwater.transactions.events import Event, TransactionStored
from headwater.transactions.transaction import NO_EPOCH, NO_ID

ReplyTo: TypeAlias = object


@dataclass(frozen=True, slots=True)
class ProducerAnswer:
    """To InitProducer."""

    error: ErrorCode
    producer_id: int = NO_ID
    producer_epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class AddAnswer:
    error: ErrorCode
    missing: frozenset[PartitionId] = frozenset()
    """Asked whether they are part of the transaction, and are not."""

    def errors(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, ErrorCode]:
        """What is refused, of the partitions asked for. Adding is all or nothing."""
        if self.error is not ErrorCode.NONE:
            return dict.fromkeys(partitions, self.error)
        return dict.fromkeys(self.missing, ErrorCode.INVALID_TXN_STATE)


@dataclass(frozen=True, slots=True)
class EndAnswer:
    error: ErrorCode
    producer_id: int = NO_ID
    producer_epoch: int = NO_EPOCH
    """The producer's id and epoch from now on. In version 1 nothing changes."""


Answer: TypeAlias = ProducerAnswer | AddAnswer | EndAnswer


@dataclass(frozen=True, slots=True)
class TransactionReply:
    to: ReplyTo
    answer: Answer


@dataclass(frozen=True, slots=True)
class WriteMarkers:
    """A transaction is decided: write this into each of its partitions, as often as it takes, and report each partition
    once, to the shard that asked.

    The marker writer of a shard must stop when the shard is dropped. The shard that replaces it asks again; a late
    marker of the dropped shard would end the next transaction, which in version 1 has the same epoch."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    partitions: tuple[PartitionId, ...]


@dataclass(slots=True)
class TransactionEffects:
    events: list[Event] = field(default_factory=list)
    replies: list[TransactionReply] = field(default_factory=list)
    markers: list[WriteMarkers] = field(default_factory=list)

    @property
    def can_wait(self) -> bool:
        """Whether no request waits for the events, and they only say that transactions are complete. If a crash takes
        such an event, the transaction is still prepared: its markers are asked for again, and are there already."""
        return not (self.replies or self.markers) and all(
            isinstance(event, TransactionStored) and event.transaction.state.is_complete for event in self.events
        )

    def reply(self, to: ReplyTo, answer: Answer) -> None:
        self.replies.append(TransactionReply(to, answer))
