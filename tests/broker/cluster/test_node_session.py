import asyncio
from pathlib import Path

import pytest

from headwater.broker.cluster.followed_secrets import cluster_secrets
from headwater.broker.cluster.node_session import NodeIdInUse
from headwater.metadata import keys
from headwater.metadata.sqlite.store import SqliteMetaStore
from headwater.metadata.store import Put
from headwater.model.cluster import Node, StoreRecord, StoreState
from tests.broker.cluster_fakes import GB, TTL_S, CuttableMetaStore, a_session, metadata_store, store_of, this_node
from tests.support.eventually import until
from tests.support.tasks import running


class Counted:
    """The free space of a store, at which its node looks each time it might tell of itself."""

    def __init__(self, free_bytes: int) -> None:
        self.free_bytes = free_bytes
        self._looks = 0

    def look(self) -> int:
        self._looks += 1
        return self.free_bytes

    async def looked_at(self) -> None:
        """Twice: what followed from the first time is done."""
        before = self._looks
        await until(lambda: self._looks >= before + 2)


async def registered(metadata: CuttableMetaStore) -> list[Node]:
    return [keys.decode_node(kv.value) for kv in await metadata.list(keys.NODES)]


def test_a_node_is_registered_until_it_closes_and_its_store_for_ever(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            session = a_session(metadata, this_node(1))
            await session.start()
            assert await registered(metadata) == [session.node]
            assert session.node.store_ids == (store_of(1),)
            assert await metadata.get(session.key) is not None
            await session.close()
            assert await registered(metadata) == []
            found = await metadata.get(keys.store_key(store_of(1)))
            assert found is not None
            node = session.node
            assert keys.decode_store(found.value) == StoreRecord(store_of(1), 1, host=node.host, port=node.port)

    asyncio.run(scenario())


def test_every_registration_has_a_new_epoch(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            epochs = []
            for _ in range(3):
                session = a_session(metadata, this_node(1))
                await session.start()
                epochs.append(session.node.epoch)
                await session.close()
            assert epochs == sorted(set(epochs))

    asyncio.run(scenario())


def test_a_node_id_that_is_alive_elsewhere_is_refused_with_a_clear_message(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            first = a_session(metadata, this_node(1, port=7001))
            await first.start()
            with pytest.raises(NodeIdInUse, match=r"node id 1 is in use by a node at 127.0.0.1:7001 .* --node-id"):
                await a_session(metadata, this_node(1, port=7002)).start()
            assert await registered(metadata) == [first.node]
            await first.close()

    asyncio.run(scenario())


def test_a_node_waits_for_the_session_of_a_dead_namesake_to_end(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "metadata.db"
        dead = await SqliteMetaStore.open(path)
        await a_session(dead, this_node(1, port=7001)).start()
        await dead.close()  # as a killed process: the session stays until its time is over
        async with metadata_store(tmp_path) as metadata:
            assert len(await registered(metadata)) == 1
            session = a_session(metadata, this_node(1, port=7002))
            await session.start()
            assert await registered(metadata) == [session.node]
            await session.close()

    asyncio.run(scenario())


def test_the_record_of_an_earlier_process_at_the_same_address_is_replaced_at_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        path = tmp_path / "metadata.db"
        dead = await SqliteMetaStore.open(path)
        long_lived = await dead.session(600.0)
        past = this_node(1)
        await dead.txn([], [Put(keys.node_key(1, 77), keys.encode(past), long_lived)])
        await dead.close()
        async with metadata_store(tmp_path) as metadata:
            session = a_session(metadata, this_node(1))
            await session.start()
            assert await registered(metadata) == [session.node]
            await session.close()

    asyncio.run(scenario())


def test_a_session_that_the_engine_ended_is_replaced_under_a_new_epoch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            session = a_session(metadata, this_node(1))
            await session.start()
            first_epoch, engine_session = session.node.epoch, session.session
            assert engine_session is not None
            async with running(session.run()):
                metadata.is_cut = True
                await engine_session.close()
                await until(lambda: "node_not_registered" in caplog.text)
                assert session.session is None
                metadata.is_cut = False
                await until(lambda: session.session is not None)
                assert session.node.epoch > first_epoch
                assert await registered(metadata) == [session.node]
            await session.close()

    asyncio.run(scenario())


def test_free_space_is_told_when_it_has_changed_notably(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            store = Counted(50 * GB)
            session = a_session(metadata, this_node(1), store.look)
            await session.start()
            written = len(metadata.transactions)
            async with running(session.run()):
                store.free_bytes = 50 * GB - 1000
                await store.looked_at()
                assert len(metadata.transactions) == written
                store.free_bytes = 20 * GB

                async def is_told() -> bool:
                    return [node.stores[0].free_bytes for node in await registered(metadata)] == [20 * GB]

                await until(is_told)
            await session.close()

    asyncio.run(scenario())


def test_a_node_that_leaves_says_so_once(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            store = Counted(50 * GB)
            session = a_session(metadata, this_node(1), store.look)
            await session.start()
            async with running(session.run()):
                session.leave()

                async def is_told() -> bool:
                    return [node.is_leaving for node in await registered(metadata)] == [True]

                await until(is_told)
                written = len(metadata.transactions)
                await store.looked_at()
                assert len(metadata.transactions) == written
            await session.close()

    asyncio.run(scenario())


def test_a_disk_that_moved_belongs_to_its_new_node_and_stays_what_it_was(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            record = StoreRecord(store_of(1), 7, StoreState.DRAINING, "elsewhere", 1, "rack", away_since_ms=5)
            await metadata.txn([], [Put(keys.store_key(store_of(1)), keys.encode(record))])
            session = a_session(metadata, this_node(1))
            await session.start()
            found = await metadata.get(keys.store_key(store_of(1)))
            assert found is not None
            node = session.node
            expected = StoreRecord(store_of(1), 1, StoreState.DRAINING, node.host, node.port)
            assert keys.decode_store(found.value) == expected
            await session.close()

    asyncio.run(scenario())


def test_a_registration_whose_answer_was_lost_is_found_out_about(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            metadata.answers_to_lose = 3
            session = a_session(metadata, this_node(1))
            await session.start()
            assert await registered(metadata) == [session.node]
            await session.close()

    asyncio.run(scenario())


def test_all_nodes_get_the_same_secret(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with metadata_store(tmp_path) as metadata:
            metadata.answers_to_lose = 1
            drawn = await asyncio.gather(*(cluster_secrets(metadata) for _ in range(5)))
            assert len({secret for (secret,) in drawn}) == 1
            assert len(drawn[0][0]) == 32

    asyncio.run(scenario())


def test_the_default_time_to_live_is_long_enough_for_every_engine() -> None:
    from headwater.broker.cluster.node_session import NodeSessionOptions

    assert NodeSessionOptions().ttl_s >= 6.0 > TTL_S
