import asyncio
import uuid
from pathlib import Path

import pytest

from headwater.broker.cluster.watch import ClusterChange
from headwater.metadata import keys
from headwater.metadata.store import MAX_OPS, Del, Put
from headwater.model.cluster import (
    ControllerRecord,
    Node,
    NodeStore,
    Reassignment,
    StoreRecord,
    StoreState,
    TopicRecord,
)
from headwater.model.ids import PartitionId
from headwater.model.segments import Head
from headwater.peers.messages import PeerAddress
from tests.broker.cluster_fakes import CuttableMetaStore, a_watch, metadata_store, store_of
from tests.support.eventually import rests, until

TOPIC = uuid.UUID(int=5)


async def put(metadata: CuttableMetaStore, key: str, value: keys.Value) -> int:
    return (await metadata.txn([], [Put(key, keys.encode(value))])).versions[key]


def test_what_is_written_is_known_soon_and_what_is_deleted_is_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_watch(metadata) as watch:
            assert watch.view() == watch.view()
            node = Node(
                node_id=1, epoch=4, host="h", port=1, peer_host="p", peer_port=2, stores=(NodeStore(store_of(1), 1, 2),)
            )
            partition = PartitionId(TOPIC, 3)
            await put(metadata, keys.node_key(1, 4), node)
            await put(metadata, keys.store_key(store_of(1)), StoreRecord(store_of(1), 1, StoreState.DRAINING))
            await put(metadata, keys.topic_key(TOPIC), TopicRecord(TOPIC, "t", 4, 2))
            version = await put(metadata, keys.head_key(partition), Head(1, 2, 0, None))
            await put(metadata, keys.reassignment_key(partition), Reassignment((1,)))
            await put(metadata, keys.CONTROLLER_LEADER, ControllerRecord(9, 1))
            await until(lambda: watch.controller == ControllerRecord(9, 1) and watch.reassignments.items)
            view = watch.view()
            assert view.nodes == {1: node}
            assert view.store_infos[store_of(1)].is_alive
            assert view.topics[TOPIC].name == "t"
            assert (view.heads[partition].value.epoch, view.heads[partition].version) == (2, version)
            assert view.target_replica_count(partition) == 1
            assert watch.store_address(store_of(1)) == PeerAddress("p", 2)
            await metadata.txn([], [Del(keys.node_key(1, 4)), Del(keys.head_key(partition))])
            await until(lambda: not watch.nodes and not watch.heads.items)
            assert watch.store_address(store_of(1)) is None

    asyncio.run(scenario())


def test_of_a_node_that_came_back_the_newer_record_counts(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_watch(metadata) as watch:
            for epoch in (11, 9):
                await put(
                    metadata,
                    keys.node_key(1, epoch),
                    Node(node_id=1, epoch=epoch, host="h", port=epoch, peer_host="p", peer_port=epoch),
                )
            await until(lambda: len(watch._nodes.items) == 2)
            assert watch.nodes[1].epoch == 11

    asyncio.run(scenario())


def test_listeners_are_told_what_changed(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_watch(metadata) as watch:
            told: list[ClusterChange] = []
            watch.listen(told.append)
            partition = PartitionId(TOPIC, 0)
            await put(metadata, keys.head_key(partition), Head(1, 2, 0, None))
            await until(lambda: told)
            assert told == [ClusterChange(heads=frozenset({partition}))]

    asyncio.run(scenario())


def test_many_changes_are_read_in_few_calls(tmp_path: Path) -> None:
    """Neither one by one, nor everything again for each group of them."""

    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_watch(metadata) as watch:
            count = 20 * MAX_OPS
            partitions = [PartitionId(TOPIC, index) for index in range(count)]
            for start in range(0, count, MAX_OPS):
                some = partitions[start : start + MAX_OPS]
                await metadata.txn([], [Put(keys.head_key(each), keys.encode(Head(1, 0, 0, None))) for each in some])
            await until(lambda: len(watch.heads.items) == count)
            await rests(lambda: (metadata.reads, metadata.lists))  # hints of what a read has had already come after it
            metadata.reads = metadata.lists = 0
            metadata.may_read.clear()
            for partition in partitions[: 3 * MAX_OPS]:
                await put(metadata, keys.head_key(partition), Head(2, 1, 0, None))
            assert metadata.reads <= 1
            metadata.may_read.set()
            await until(lambda: sum(item.value.leader == 2 for item in watch.heads.items.values()) == 3 * MAX_OPS)
            assert metadata.lists == 0
            assert metadata.reads < 10

    asyncio.run(scenario())


def test_an_unreadable_value_hides_no_other(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_watch(metadata) as watch:
            bad = {
                keys.node_key(1, 1): b"\xff",
                keys.node_key(2, 1): b"[]",
                keys.head_key(PartitionId(TOPIC, 0)): b"{}",
                "p/nonsense": keys.encode(Head(1, 0, 0, None)),
                keys.store_key(store_of(3)): b'{"store_id":"x","node_id":1,"state":"hungry"}',
                keys.topic_key(TOPIC): b"7",
                keys.CONTROLLER_LEADER: b'"x"',
            }
            await metadata.txn([], [Put(key, value) for key, value in bad.items()])
            await put(
                metadata, keys.node_key(3, 1), Node(node_id=3, epoch=1, host="h", port=1, peer_host="p", peer_port=1)
            )
            await until(lambda: watch.nodes)
            await metadata.txn([], [Del(key) for key in bad])
            later = PartitionId(TOPIC, 1)
            await put(metadata, keys.node_key(4, 1), Node(4, 1, "h", 1, "p", 1))
            await put(metadata, keys.head_key(later), Head(1, 0, 0, None))
            await until(lambda: 4 in watch.nodes and later in watch.heads.items)
            assert set(watch.nodes) == {3, 4}
            assert set(watch.heads.items) == {later}

    asyncio.run(scenario())


def test_an_outage_leaves_everything_as_it_was_and_then_all_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata, a_watch(metadata) as watch:
            partition = PartitionId(TOPIC, 0)
            await put(metadata, keys.head_key(partition), Head(1, 2, 0, None))
            await until(lambda: watch.heads.items)
            await put(metadata, keys.head_key(partition), Head(1, 3, 0, None))
            metadata.is_cut = True
            await until(lambda: "metadata_watch_failed" in caplog.text)
            assert partition in watch.heads.items
            metadata.is_cut = False
            await put(metadata, keys.head_key(partition), Head(1, 4, 0, None))
            await until(lambda: watch.heads.items[partition].value.epoch == 4)

    asyncio.run(scenario())
