"""Putting a compacted segment in the place of others, when somebody else leads by now. Found by the simulator: a later
leader sweeps what is staged, stores collect the output, and then the swap of the earlier one arrives."""

import asyncio
import uuid
from pathlib import Path

import pytest

from headwater.broker.log.partition_metadata import LostLeadership, PartitionMetadata
from headwater.metadata import keys
from headwater.metadata.store import Is, Put
from headwater.model.ids import PartitionId, SegmentId, StoreId
from headwater.model.segments import Head, OpenSegment, SealedSegment
from tests.broker.cluster_fakes import metadata_store

PARTITION = PartitionId(uuid.UUID(int=5), 0)
STORES = (StoreId("a" * 32),)
OPEN = OpenSegment(SegmentId("9" * 32), 20, 1, 20, STORES)
HEAD = Head(1, 1, 0, OPEN)
OLD = SealedSegment(
    id=SegmentId("1" * 32),
    base=0,
    end=20,
    epoch=1,
    epoch_start=0,
    replicas=STORES,
    size_bytes=100,
    max_timestamp=0,
    crc32c=None,
)
NEW = SealedSegment(
    id=SegmentId("2" * 32),
    base=0,
    end=20,
    epoch=1,
    epoch_start=0,
    replicas=STORES,
    size_bytes=50,
    max_timestamp=0,
    crc32c=None,
    compacted=True,
)
HEAD_KEY, OLD_KEY, NEW_KEY = keys.head_key(PARTITION), *(keys.sealed_key(PARTITION, it.id) for it in (OLD, NEW))


def test_what_is_not_staged_any_more_is_not_swapped_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            txn = await metadata.txn([], [Put(HEAD_KEY, keys.encode(HEAD)), Put(OLD_KEY, keys.encode(OLD))])
            sealed = {OLD.id: (OLD, txn.versions[OLD_KEY])}
            earlier = PartitionMetadata(metadata, metadata, PARTITION, HEAD, txn.versions[HEAD_KEY], sealed)
            await earlier.stage(NEW)
            moved = Head(2, 2, 0, OPEN)
            txn = await metadata.txn([Is(HEAD_KEY, earlier.version)], [Put(HEAD_KEY, keys.encode(moved))])
            later = PartitionMetadata(metadata, metadata, PARTITION, moved, txn.versions[HEAD_KEY], sealed)
            await later.unstage_all()
            with pytest.raises(LostLeadership):
                await earlier.swap([OLD], NEW)
            assert [kv.key for kv in await metadata.list(keys.sealed_prefix(PARTITION))] == [OLD_KEY]

    asyncio.run(scenario())


def test_what_is_staged_is_swapped_in(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            txn = await metadata.txn([], [Put(HEAD_KEY, keys.encode(HEAD)), Put(OLD_KEY, keys.encode(OLD))])
            sealed = {OLD.id: (OLD, txn.versions[OLD_KEY])}
            register = PartitionMetadata(metadata, metadata, PARTITION, HEAD, txn.versions[HEAD_KEY], sealed)
            await register.stage(NEW)
            await register.swap([OLD], NEW)
            assert [kv.key for kv in await metadata.list(keys.sealed_prefix(PARTITION))] == [NEW_KEY]
            assert await metadata.list(keys.staged_prefix(PARTITION)) == []

    asyncio.run(scenario())
