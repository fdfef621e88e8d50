"""The collector over a real store and a real metadata store."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headwater.broker.housekeeping.garbage_collector import GarbageCollector
from headwater.metadata import keys
from headwater.metadata.store import KV, Del, Put
from headwater.model.cluster import TopicRecord
from headwater.model.ids import PartitionId, SegmentId, StoreId
from headwater.model.replica import Durability
from headwater.model.segments import Head, OpenSegment, SealedSegment
from headwater.storage.segment_store import SegmentStore
from tests.broker.cluster_fakes import CuttableMetaStore, metadata_store
from tests.support.eventually import until
from tests.support.tasks import running

TOPIC = uuid.UUID(int=5)
PARTITION = PartitionId(TOPIC, 0)
OTHER = StoreId("f" * 32)


def name(number: int) -> SegmentId:
    return SegmentId(f"{number:032x}")


OPEN = name(99)
HEAD = Head(1, 5, 0, OpenSegment(OPEN, 100, 5, 100, (OTHER,)))


@asynccontextmanager
async def a_store(path: Path) -> AsyncIterator[SegmentStore]:
    store = await SegmentStore.open(path / "store")
    try:
        yield store
    finally:
        await store.close()


async def create(store: SegmentStore, number: int, *, base: int = 0, epoch: int = 5, index: int = 0) -> None:
    partition = str(PartitionId(TOPIC, index))
    await store.create(name(number), partition, base, epoch, b"", Durability.OS)


async def write(metadata: CuttableMetaStore, **changed: keys.Value) -> None:
    """A topic and its head, and whatever else is named."""
    values: dict[str, keys.Value] = {
        keys.topic_key(TOPIC): TopicRecord(TOPIC, "t", 1, 1),
        keys.head_key(PARTITION): HEAD,
        **changed,
    }
    await metadata.txn([], [Put(key, keys.encode(value)) for key, value in values.items()])


def kept(store: SegmentStore) -> set[int]:
    return {int(replica.segment, 16) for replica in store.replicas()}


def sealed(number: int, *replicas: StoreId, adding: tuple[StoreId, ...] = ()) -> SealedSegment:
    return SealedSegment(
        id=name(number),
        base=0,
        end=10,
        epoch=1,
        epoch_start=0,
        replicas=replicas,
        size_bytes=0,
        max_timestamp=0,
        crc32c=0,
        adding=adding,
    )


def test_what_is_named_stays_and_the_rest_goes(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_store(tmp_path) as store:
            me = store.store_id
            for number in (1, 2, 3, 4, 5):
                await create(store, number, epoch=4)
            await create(store, 6, base=100, epoch=5)
            await create(store, 99, base=100)
            await write(
                metadata,
                **{
                    keys.sealed_key(PARTITION, name(1)): sealed(1, me, OTHER),
                    keys.sealed_key(PARTITION, name(2)): sealed(2, OTHER, adding=(me,)),
                    keys.sealed_key(PARTITION, name(3)): sealed(3, OTHER),
                    keys.staged_key(PARTITION, name(4)): sealed(4, me),
                },
            )
            collector = GarbageCollector(store, metadata)
            assert await collector.collect_some() == 2
            assert kept(store) == {1, 2, 4, 6, 99}
            assert await collector.collect_some() == 0

    asyncio.run(scenario())


def test_a_topic_that_is_gone_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_store(tmp_path) as store:
            for number in (1, 2):
                await create(store, number)
            await write(metadata)
            await metadata.txn([], [Del(keys.topic_key(TOPIC)), Del(keys.head_key(PARTITION))])
            assert await GarbageCollector(store, metadata).collect_some() == 2
            assert kept(store) == set()

    asyncio.run(scenario())


def test_a_replica_that_was_made_anew_while_the_metadata_was_read_stays(tmp_path: Path) -> None:
    """A copy of the same segment arrives after the collector has read that this store should not have it."""

    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_store(tmp_path) as store:
            await create(store, 3, epoch=4)
            await write(metadata, **{keys.sealed_key(PARTITION, name(3)): sealed(3, OTHER)})
            inner = metadata.list

            async def list_then_copy(prefix: str) -> list[KV]:
                found = await inner(prefix)
                if prefix == keys.sealed_prefix(PARTITION):
                    (old,) = store.replicas()
                    await store.delete(old.segment, old.instance)
                    await create(store, 3, epoch=4)
                return found

            metadata.list = list_then_copy  # type: ignore[method-assign]
            await GarbageCollector(store, metadata).collect_some()
            assert kept(store) == {3}

    asyncio.run(scenario())


def test_the_reads_are_made_in_the_order_that_makes_them_safe(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_store(tmp_path) as store:
            await create(store, 1)
            await write(metadata)
            read: list[str] = []
            get, list_, replicas = metadata.get, metadata.list, store.replicas

            async def noted_get(key: str) -> Any:
                read.append(key)
                return await get(key)

            async def noted_list(prefix: str) -> Any:
                read.append(prefix)
                return await list_(prefix)

            def noted_replicas() -> Any:
                read.append("inventory")
                return replicas()

            metadata.get, metadata.list = noted_get, noted_list  # type: ignore[method-assign]
            store.replicas = noted_replicas  # type: ignore[method-assign]
            await GarbageCollector(store, metadata).collect([str(PARTITION)])
            ours = [key for key in read if key != keys.topic_key(TOPIC)]
            assert ours == [
                "inventory",
                keys.head_key(PARTITION),
                keys.staged_prefix(PARTITION),
                keys.sealed_prefix(PARTITION),
            ]

    asyncio.run(scenario())


def test_every_round_looks_at_a_few_partitions_and_in_turn_at_all(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_store(tmp_path) as store:
            for index in range(5):
                await create(store, index, index=index)
            collector = GarbageCollector(store, metadata, partitions_per_round=2)
            assert [await collector.collect_some() for _ in range(4)] == [2, 2, 1, 0]

    asyncio.run(scenario())


def test_a_partition_that_somebody_asks_for_comes_next(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_store(tmp_path) as store:
            await create(store, 1)
            collector = GarbageCollector(store, metadata, interval_s=3600)
            async with running(collector.run()):
                collector.ask(PARTITION)
                await until(lambda: kept(store) == set())

    asyncio.run(scenario())


def test_an_outage_or_an_unreadable_head_deletes_nothing(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_store(tmp_path) as store:
            await create(store, 1, epoch=1)
            collector = GarbageCollector(store, metadata)
            metadata.is_cut = True
            assert await collector.collect_some() == 0
            metadata.is_cut = False
            await write(metadata)
            await metadata.txn([], [Put(keys.head_key(PARTITION), b"{")])
            assert await collector.collect_some() == 0
            assert kept(store) == {1}

    asyncio.run(scenario())


def test_a_tombstone_without_a_partition_stays(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_store(tmp_path) as store:
            await store.fence(name(1))
            assert await GarbageCollector(store, metadata).collect_some() == 0
            assert kept(store) == {1}

    asyncio.run(scenario())
