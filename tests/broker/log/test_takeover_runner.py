"""A node that takes a partition over while another one does the same, and is faster."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headwater.broker.log.node_ports import NodePorts, OneStore
from headwater.broker.log.tail_cache import TailCache
from headwater.broker.log.takeover_runner import Deposed, TakeoverRun
from headwater.metadata import keys
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import KV, MetaStore, Put
from headwater.model.ids import NodeId, PartitionId, SegmentId, StoreId, segment_id
from headwater.model.replica import Buffer, Durability
from headwater.model.segments import Head, OpenSegment, SealedSegment
from headwater.records.build import build_batch
from headwater.records.record import Record
from headwater.replication.effects import Rules
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.testing.fakes.files import MemoryFiles
from headwater.transactions.partition_transactions import PartitionTransactions
from headwater.transport.system_clock import SystemClock

PARTITION = PartitionId(uuid.UUID(int=1), 0)
OLD = segment_id(1, 1)
OPTIONS = StoreOptions(journal_file_bytes=1 << 20, reserve_bytes=0, low_water_bytes=0, runs_inline=True)
COMMITTED, END = 2, 5


class SealedBehindOurBack:
    """A store whose segment somebody else seals as soon as it was replayed."""

    def __init__(self, store: SegmentStore) -> None:
        self._store = store
        self._reads = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def read(self, segment: SegmentId, offset: int, limit: int, max_bytes: int) -> Buffer:
        self._reads += 1
        if self._reads == 2:
            await self._store.seal(segment, COMMITTED)
        return await self._store.read(segment, offset, limit, max_bytes)


class ChangedBehindOurBack:
    """Metadata in which another leader takes over between the publication and the list of sealed segments."""

    def __init__(self, metadata: MetaStore) -> None:
        self._metadata = metadata

    def __getattr__(self, name: str) -> Any:
        return getattr(self._metadata, name)

    async def list(self, prefix: str) -> list[KV]:
        key = keys.head_key(PARTITION)
        kv = await self._metadata.get(key)
        assert kv is not None
        head = keys.decode_head(kv.value)
        ours = head.open
        assert ours is not None and ours.id != OLD, "it was published"
        sealed = SealedSegment(
            id=ours.id,
            base=ours.base,
            end=END,
            epoch=ours.epoch,
            epoch_start=ours.epoch_start,
            replicas=ours.replicas,
            size_bytes=10,
            max_timestamp=0,
            crc32c=None,
        )
        theirs = replace(head, leader=2, epoch=9, open=replace(ours, id=segment_id(9, 9), base=END, epoch=9))
        sealed_key = keys.sealed_key(PARTITION, ours.id)
        await self._metadata.txn([], [Put(key, keys.encode(theirs)), Put(sealed_key, keys.encode(sealed))])
        return await self._metadata.list(prefix)


@asynccontextmanager
async def partition(directory: Path) -> AsyncIterator[tuple[SegmentStore, MetaStore, Head, int]]:
    """A segment of five batches, of which the last leader knew two to be committed."""
    store = await SegmentStore.open(Path("/store"), files=MemoryFiles(), options=OPTIONS)
    metadata = await SqliteMetaStore.open(str(directory / "metadata.db"))
    try:
        header = PartitionTransactions().snapshot(0, 0)
        await store.create(OLD, str(PARTITION), 0, 0, header, Durability.OS)
        for offset in range(END):
            batch = build_batch([Record(None, b"value")], base_offset=offset)
            await store.append(OLD, offset, offset + 1, min(offset, COMMITTED), [batch])
        head = Head(1, 1, 0, OpenSegment(OLD, 0, 0, 0, (store.store_id,)))
        txn = await metadata.txn([], [Put(keys.head_key(PARTITION), keys.encode(head))])
        yield store, metadata, head, txn.versions[keys.head_key(PARTITION)]
    finally:
        await store.close()
        await metadata.close()


def takeover(store: Any, metadata: Any, head: Head, version: int) -> TakeoverRun:
    def choose(
        count: int, avoid: frozenset[StoreId], salt: SegmentId, preferred: frozenset[NodeId] = frozenset()
    ) -> tuple[StoreId, ...]:
        return () if store.store_id in avoid else (store.store_id,)

    numbers = iter(range(2, 100))
    ports = NodePorts(
        node_id=1,
        store=store,
        stores=OneStore(store),
        choose=choose,
        clock=SystemClock(),
        tail_cache=TailCache(1 << 20),
        spawn=asyncio.ensure_future,
        new_segment_id=lambda: segment_id(2, next(numbers)),
    )
    return TakeoverRun(ports, metadata, metadata, PARTITION, head, version, Rules(1, 1), Durability.OS)


def test_a_takeover_carries_over_what_may_be_committed(tmp_path: Path) -> None:
    async def run() -> None:
        async with partition(tmp_path) as (store, metadata, head, version):
            taken = await takeover(store, metadata, head, version).run()
            assert taken is not None and taken.begun.end == END
            assert [segment.base for segment in taken.register.chain] == [0, COMMITTED]

    asyncio.run(run())


def test_a_tail_that_somebody_else_has_cut_off_ends_the_takeover(tmp_path: Path) -> None:
    async def run() -> None:
        async with partition(tmp_path) as (store, metadata, head, version):
            with pytest.raises(Deposed, match="was sealed at 2"):
                async with asyncio.timeout(60):
                    await takeover(SealedBehindOurBack(store), metadata, head, version).run()

    asyncio.run(run())


def test_sealed_segments_of_a_later_leader_end_the_takeover(tmp_path: Path) -> None:
    async def run() -> None:
        async with partition(tmp_path) as (store, metadata, head, version):
            with pytest.raises(Deposed, match="changed by another node"):
                await takeover(store, ChangedBehindOurBack(metadata), head, version).run()

    asyncio.run(run())
