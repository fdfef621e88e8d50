"""Writes what the controller decided: each key by compare-and-set, on condition that this is still the controller.

Moves of leaders go together, some dozens in a transaction, because a node that dies leaves thousands. If one of them is
out of date, none of its transaction is written, and each is tried by itself.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from headwater.broker.cluster.controller_election import Mandate
from headwater.broker.cluster.watch import ClusterWatch
from headwater.broker.settings.key_cache import KeyCache
from headwater.logs.events import log_event
from headwater.metadata import keys
from headwater.metadata.store import Is, MetaStore, Put
from headwater.model.cluster import Reassignment, StoreState
from headwater.model.ids import PartitionId, StoreId
from headwater.model.segments import SealedSegment
from headwater.replication.actions import Action, Copy, FinishReassignment, MoveLeader
from headwater.replication.cluster_view import SealedKey

MOVES_PER_TXN: Final = 40
WRITES_AT_ONCE: Final = 8
MISSED_MS: Final = 1_000
"""A node that starts registers its stores first, and is there a moment later: that is no absence."""


@dataclass(frozen=True, slots=True)
class _Write:
    key: str
    version: int
    value: bytes
    note: Callable[[int], None]
    """Remember what was written, at which version."""
    reread: Callable[[str], Awaitable[None]]
    """Another node was faster: read what is there."""


class ActionWriter:
    def __init__(
        self,
        metadata: MetaStore,
        mandate: Mandate,
        cluster: ClusterWatch,
        sealed: KeyCache[SealedKey, SealedSegment],
    ) -> None:
        self._metadata = metadata
        self._mandate = mandate
        self._cluster = cluster
        self._sealed = sealed
        self._turns = asyncio.Semaphore(WRITES_AT_ONCE)
        self._missed_at_ms: dict[StoreId, int] = {}

    async def write(self, actions: Sequence[Action]) -> bool:
        """Say whether anything was written. Raises Unavailable or Unknown: then some may have been."""
        moves = [action for action in actions if isinstance(action, MoveLeader)]
        moved = await self.move_leaders(moves)
        others = [self._other(action) for action in actions if not isinstance(action, MoveLeader)]
        done = await asyncio.gather(*(self._one(write) for write in others))
        return bool(moved) or any(done)

    async def move_leaders(self, moves: Sequence[MoveLeader]) -> frozenset[PartitionId]:
        """Which were written."""
        chunks = [moves[start : start + MOVES_PER_TXN] for start in range(0, len(moves), MOVES_PER_TXN)]
        moved = frozenset().union(*await asyncio.gather(*map(self._move_together, chunks)))
        for move in moves:
            if move.partition in moved:
                log_event(
                    "leader_moved", partition=move.partition, to=move.to_node, epoch=move.head.epoch + 1,
                    reason=move.reason,
                )  # fmt: skip
        return moved

    async def place(self, partition: PartitionId, wanted: Reassignment, version: int) -> bool:
        """Say where the replicas of a partition are to be; False if another request has done so meanwhile."""
        return await self._one(self._reassignment(partition, wanted, version))

    async def note_absences(self, now_ms: int) -> None:
        """Which stores are without their node, and since when: for people who look. A node that is back says so
        itself; of one that was back faster than this was written, it is taken back."""
        living = {store for node in self._cluster.nodes.values() for store in node.store_ids}
        stores = self._cluster.stores_read
        kept = (id_ for id_, item in stores.items.items() if item.value.state is not StoreState.LOST)
        away = {id_ for id_ in kept if id_ not in living}
        self._missed_at_ms = {id_: self._missed_at_ms.get(id_, now_ms) for id_ in away}
        for store_id, item in list(stores.items.items()):
            is_noted = item.value.away_since_ms is not None
            missed_at_ms = self._missed_at_ms.get(store_id)
            is_long = missed_at_ms is not None and now_ms - missed_at_ms >= MISSED_MS
            if is_noted == (missed_at_ms is not None) or not (is_noted or is_long):
                continue
            record = replace(item.value, away_since_ms=missed_at_ms)
            note = partial(stores.note, store_id, record)
            await self._one(_Write(keys.store_key(store_id), item.version, keys.encode(record), note, stores.reread))

    async def _move_together(self, moves: Sequence[MoveLeader]) -> frozenset[PartitionId]:
        writes = [self._move(move) for move in moves]
        if len(moves) > 1 and await self._written(writes):
            return frozenset(move.partition for move in moves)
        done = [await self._one(write) for write in writes]
        return frozenset(move.partition for move, is_done in zip(moves, done, strict=True) if is_done)

    async def _one(self, write: _Write) -> bool:
        is_written = await self._written([write])
        if not is_written:
            await write.reread(write.key)
        return is_written

    async def _written(self, writes: Sequence[_Write]) -> bool:
        async with self._turns:
            txn = await self._metadata.txn(
                [self._mandate.condition, *(Is(write.key, write.version) for write in writes)],
                [Put(write.key, write.value) for write in writes],
            )
        if txn.ok:
            for write in writes:
                write.note(txn.versions[write.key])
        return txn.ok

    def _move(self, move: MoveLeader) -> _Write:
        heads, head = self._cluster.heads, move.new_head
        return _Write(
            keys.head_key(move.partition), move.version, keys.encode(head),
            lambda version: heads.note(move.partition, head, version), heads.reread,
        )  # fmt: skip

    def _other(self, action: Action) -> _Write:
        assert not isinstance(action, MoveLeader | Copy), "written elsewhere, or not at all"
        if isinstance(action, FinishReassignment):
            return self._reassignment(action.partition, action.new_reassignment, action.version)
        sealed, name = action.new_sealed, (action.partition, action.sealed.id)
        return _Write(
            keys.sealed_key(*name), action.version, keys.encode(sealed),
            lambda version: self._sealed.note(name, sealed, version), self._sealed.reread,
        )  # fmt: skip

    def _reassignment(self, partition: PartitionId, wanted: Reassignment, version: int) -> _Write:
        cache = self._cluster.reassignments
        return _Write(
            keys.reassignment_key(partition), version, keys.encode(wanted),
            lambda version: cache.note(partition, wanted, version), cache.reread,
        )  # fmt: skip
