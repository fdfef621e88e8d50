"""One transactional id: which producer speaks for it, and how far its transaction has come.

    EMPTY ──add──► ONGOING ──end──► PREPARE_COMMIT ──all marked──► COMPLETE_COMMIT ──add──► ONGOING
                      └──end, fence, time-out──► PREPARE_ABORT ──all marked──► COMPLETE_ABORT ──add──► ONGOING

What is prepared is decided: the markers follow, and nothing can turn the outcome any more. Each step returns a new
value; whether it may be taken is for `decisions` to say.

Epochs fence. Each instance of a producer has the next one; in version 2 (KIP-890) so has each transaction. An epoch
above `LAST_EPOCH` is never given to a producer, so that every producer can still be fenced; when they are used up, a
new producer id starts from 0. The id and epoch before the last bump are remembered, and a request that their holder
repeats is recognised (KIP-360), unless another instance has come in between.
"""

import enum
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from headwater.model.ids import PartitionId

MAX_ID_BYTES: Final = 32_767
"""A transactional id may be as long as the protocol's strings, as in Kafka."""
NO_ID: Final = -1
NO_EPOCH: Final = -1
NO_TIME: Final = -1
MAX_EPOCH: Final = 32_767
LAST_EPOCH: Final = MAX_EPOCH - 1

_ID_BYTES: Final = 512
_PARTITION_BYTES: Final = 128


class TransactionState(enum.Enum):
    """The values are Kafka's names."""

    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_complete(self) -> bool:
        return self in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)

    @property
    def is_committed(self) -> bool | None:
        """The outcome, from the moment it is decided; None before, and when there was no transaction."""
        return _OUTCOMES.get(self)


_OUTCOMES = {
    TransactionState.PREPARE_COMMIT: True,
    TransactionState.COMPLETE_COMMIT: True,
    TransactionState.PREPARE_ABORT: False,
    TransactionState.COMPLETE_ABORT: False,
}


class ProducerIdentity(NamedTuple):
    """Who writes, as partitions know it."""

    id: int
    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """All that is stored of one transactional id."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    """The epoch before the last bump, if its holder may repeat the request that bumped it."""
    previous_producer_id: int
    """The producer id before the last bump, if that was another one."""
    next_producer_id: int
    """The id that takes over when the transaction is complete, because the epochs of this one are used up."""
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[PartitionId]
    """Of records and of consumers' offsets alike."""
    started_ms: int
    updated_ms: int
    version: int
    """The protocol of the client that began or ended it: 1, or 2 with an epoch for each transaction (KIP-890)."""

    @property
    def producer(self) -> ProducerIdentity:
        """The id and epoch of the producer whose next request counts."""
        if self.next_producer_id != NO_ID:
            return ProducerIdentity(self.next_producer_id, 0)
        return ProducerIdentity(self.producer_id, self.producer_epoch)

    @property
    def producer_before(self) -> ProducerIdentity | None:
        """The id and epoch before the last bump, if their holder may repeat a request."""
        if self.last_producer_epoch == NO_EPOCH:
            return None
        producer_id = self.producer_id if self.previous_producer_id == NO_ID else self.previous_producer_id
        return ProducerIdentity(producer_id, self.last_producer_epoch)

    @property
    def is_exhausted(self) -> bool:
        """The next bump takes a new producer id."""
        return self.producer_epoch >= LAST_EPOCH

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory."""
        return _ID_BYTES + len(self.transactional_id) + _PARTITION_BYTES * len(self.partitions)

    # The steps

    def initialized(
        self, spare_producer_id: int, timeout_ms: int, is_same_instance: bool, now_ms: int
    ) -> "Transaction":
        """An instance of the producer begins. The same one as before may lose the answer and ask again."""
        bumped = self._bumped(spare_producer_id)
        if not is_same_instance:
            bumped = replace(bumped, last_producer_epoch=NO_EPOCH, previous_producer_id=NO_ID)
        return bumped.emptied(timeout_ms, now_ms)

    def emptied(self, timeout_ms: int, now_ms: int) -> "Transaction":
        """The present producer starts from nothing."""
        return replace(
            self,
            timeout_ms=timeout_ms,
            state=TransactionState.EMPTY,
            partitions=frozenset(),
            started_ms=NO_TIME,
            updated_ms=now_ms,
        )

    def with_partitions(self, partitions: frozenset[PartitionId], version: int, now_ms: int) -> "Transaction":
        """Partitions are added; with the first of them the transaction begins."""
        if self.state is TransactionState.ONGOING:
            return replace(self, partitions=self.partitions | partitions, updated_ms=now_ms)
        return replace(
            self,
            state=TransactionState.ONGOING,
            partitions=partitions,
            started_ms=now_ms,
            updated_ms=now_ms,
            version=version,
        )

    def without_partitions(self, partitions: frozenset[PartitionId], now_ms: int) -> "Transaction":
        return replace(self, partitions=self.partitions - partitions, updated_ms=now_ms)

    def prepared(self, is_commit: bool, now_ms: int) -> "Transaction":
        """Decided, as the older protocol does it: the next transaction has the same epoch."""
        state = TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT
        return replace(self, state=state, updated_ms=now_ms, version=1)

    def prepared_with_bump(self, is_commit: bool, spare_producer_id: int, now_ms: int) -> "Transaction":
        """Decided, as of version 2. The markers carry the new epoch: what is still under way of this one is refused."""
        return replace(
            self.prepared(is_commit, now_ms),
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch,
            previous_producer_id=NO_ID,
            next_producer_id=spare_producer_id if self.is_exhausted else NO_ID,
            version=2,
        )

    def fenced(self, is_same_instance: bool, now_ms: int) -> "Transaction":
        """Aborted without EndTxn: by the timeout, or because a new instance begins. The markers carry an epoch that no
        producer has."""
        return replace(
            self,
            producer_epoch=self.producer_epoch + 1,
            last_producer_epoch=self.producer_epoch if is_same_instance else NO_EPOCH,
            previous_producer_id=NO_ID,
            state=TransactionState.PREPARE_ABORT,
            updated_ms=now_ms,
        )

    def completed(self, now_ms: int) -> "Transaction":
        """Every partition has its marker."""
        is_commit = self.state is TransactionState.PREPARE_COMMIT
        complete = replace(
            self,
            state=TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT,
            partitions=frozenset(),
            updated_ms=now_ms,
        )
        if self.next_producer_id == NO_ID:
            return complete
        return replace(
            complete,
            producer_id=self.next_producer_id,
            producer_epoch=0,
            previous_producer_id=self.producer_id,
            next_producer_id=NO_ID,
        )

    def aborted_without_partitions(self, spare_producer_id: int, now_ms: int) -> "Transaction":
        """An abort before anything was added. The bump refuses what the producer gave up on and may still be under way,
        which would begin a transaction that no producer ends."""
        aborted = self._bumped(spare_producer_id).emptied(self.timeout_ms, now_ms)
        return replace(aborted, state=TransactionState.COMPLETE_ABORT, version=2)

    def _bumped(self, spare_producer_id: int) -> "Transaction":
        if not self.is_exhausted:
            return replace(
                self,
                producer_epoch=self.producer_epoch + 1,
                last_producer_epoch=self.producer_epoch,
                previous_producer_id=NO_ID,
            )
        return replace(
            self,
            producer_id=spare_producer_id,
            producer_epoch=0,
            last_producer_epoch=LAST_EPOCH,  # No producer has a higher one: at most a fence raised it.
            previous_producer_id=self.producer_id,
        )


def created(transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> Transaction:
    """A transactional id that was never used, or was forgotten."""
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=0,
        last_producer_epoch=NO_EPOCH,
        previous_producer_id=NO_ID,
        next_producer_id=NO_ID,
        timeout_ms=timeout_ms,
        state=TransactionState.EMPTY,
        partitions=frozenset(),
        started_ms=NO_TIME,
        updated_ms=now_ms,
        version=1,
    )


def is_transactional_id(text: str) -> bool:
    """Whether it can be stored."""
    try:
        return 0 < len(text.encode()) <= MAX_ID_BYTES
    except UnicodeEncodeError:
        return False
