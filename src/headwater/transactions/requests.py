"""What is asked of a transaction's coordinator, freed of wire versions: what a version leaves out is filled in."""

from dataclasses import dataclass
from typing import TypeAlias

from headwater.model.ids import PartitionId
from headwater.transactions.transaction import NO_EPOCH, NO_ID, ProducerIdentity


@dataclass(frozen=True, slots=True)
class InitProducer:
    """An instance of a producer begins, or goes on after an error with the id and epoch that it had (KIP-360)."""

    transactional_id: str
    timeout_ms: int
    producer_id: int = NO_ID
    producer_epoch: int = NO_EPOCH
    spare_producer_id: int = NO_ID
    """An id that no producer has, in case a new one is needed."""

    @property
    def producer(self) -> ProducerIdentity | None:
        """Who the instance says it is; None when it has just started."""
        return None if self.producer_id == NO_ID else ProducerIdentity(self.producer_id, self.producer_epoch)


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """Adds partitions to the transaction, or, with `is_verify_only`, asks whether they are part of it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[PartitionId]
    is_verify_only: bool = False
    version: int = 1
    connection: int = 0
    """Connections are numbered as they are opened; 0 is not known."""

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)


@dataclass(frozen=True, slots=True)
class EndTransaction:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_commit: bool
    version: int = 1
    spare_producer_id: int = NO_ID
    """Needed when `TransactionShard.needs_spare_producer_id` says so."""
    connection: int = 0

    @property
    def producer(self) -> ProducerIdentity:
        return ProducerIdentity(self.producer_id, self.producer_epoch)


Request: TypeAlias = InitProducer | AddPartitions | EndTransaction
