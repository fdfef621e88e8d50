"""The metadata store: a small, linearizable key-value store with compare-and-set transactions, watches
and sessions. SQLite, etcd and ZooKeeper can each be one; one conformance suite runs on all of them.

Contract (docs/replication.md, 17):
- `txn` is atomic, linearizable and durable; at most MAX_OPS operations and MAX_TXN_BYTES; a key appears once
  in its operations; it is never retried inside.
- `list` is not a snapshot: each item was current at some moment during the call.
- `watch` gives hints, level-triggered: first RESYNC, then sets of keys that may have changed, or RESYNC again when some
  may have been missed. The watcher re-reads.
- A put into a session that has ended is a condition that does not hold. One session per transaction.
- Versions are compared for equality only. A key that anyone compares is never created again after its deletion.
- A session's keys vanish some time after its owner was last heard of; that is a hint that the owner is gone.
"""

import asyncio
import enum
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

MAX_OPS = 100
MAX_TXN_BYTES = 512 * 1024


class Resync(enum.Enum):
    RESYNC = enum.auto()


RESYNC: Final = Resync.RESYNC


class Unavailable(Exception):
    """The engine could not be reached, and the call certainly had no effect."""


class Unknown(Exception):
    """The call may or may not have taken effect: re-read and decide."""


class MetaSession(Protocol):
    @property
    def id(self) -> str: ...

    @property
    def lost(self) -> asyncio.Event:
        """Set only on the engine's word."""

    def valid_until(self) -> float:
        """Monotonic seconds. Past it the session is suspended, not lost."""

    async def close(self) -> None:
        """Delete its keys now."""


@dataclass(frozen=True, slots=True)
class KV:
    key: str
    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Is:
    """The key has exactly this version; 0 means that it must not exist."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Has:
    """The key exists, at any version."""

    key: str


@dataclass(frozen=True, slots=True)
class Put:
    key: str
    value: bytes
    session: MetaSession | None = None


@dataclass(frozen=True, slots=True)
class Del:
    key: str


@dataclass(frozen=True, slots=True)
class Txn:
    ok: bool
    versions: dict[str, int]
    """The new version of each key written, 0 for a key deleted; empty when a condition did not hold."""


Condition: TypeAlias = Is | Has
Operation: TypeAlias = Put | Del


class MetaStore(Protocol):
    async def get(self, key: str) -> KV | None: ...

    async def get_many(self, keys: Sequence[str]) -> list[KV | None]:
        """As `get` for each of at most MAX_OPS keys, in their order, for about the price of one. Not a snapshot."""

    async def list(self, prefix: str) -> list[KV]:
        """Every key below a prefix that ends in "/", at any depth, in key order."""

    async def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn: ...

    def watch(self, prefix: str) -> AsyncIterator[set[str] | Resync]: ...

    async def session(self, ttl_s: float) -> MetaSession: ...

    async def close(self) -> None: ...
