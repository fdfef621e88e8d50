"""What an operator may set about transactions, with every default, and the limits on what clients can make us keep."""

from dataclasses import dataclass

MAX_EXPIRED_AT_ONCE = 1_000
"""Transactional ids that one look for idle ones forgets; the next look goes on."""


@dataclass(slots=True)
class TransactionSettings:
    """One object for all shards of a coordinator. The operator may change values while it runs: decisions look at
    them, events that were decided do not."""

    max_timeout_ms: int = 900_000
    """The longest time that a producer may ask for before its open transaction is aborted."""
    id_expiration_ms: int = 7 * 24 * 3_600_000
    """A transactional id without a transaction is forgotten when no producer has used it for so long."""
    concurrent_wait_ms: int = 5_000
    """How long a request waits for the end of the transaction before it; then the client gets CONCURRENT_TRANSACTIONS
    and asks again."""
    max_parked: int = 16
    """Requests that may wait so, for each transactional id."""
    max_ids: int = 100_000
    """Transactional ids of one shard."""
    max_partitions: int = 10_000
    """Partitions of one transaction."""
    max_shard_bytes: int = 134_217_728
    """About what the transactional ids of one shard and their partitions take in memory."""
