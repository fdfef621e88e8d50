"""What the log of a shard remembers about its transactional ids.

Each event is the newest state of one id and replaces the one before whole: the log may be compacted, and replaying it
twice, or from any compacted form, ends in the same state. `event_bytes` has their bytes.
"""

from dataclasses import dataclass
from typing import TypeAlias

from headwater.transactions.transaction import Transaction


@dataclass(frozen=True, slots=True)
class TransactionStored:
    transaction: Transaction

    @property
    def transactional_id(self) -> str:
        return self.transaction.transactional_id


@dataclass(frozen=True, slots=True)
class TransactionForgotten:
    transactional_id: str


Event: TypeAlias = TransactionStored | TransactionForgotten
