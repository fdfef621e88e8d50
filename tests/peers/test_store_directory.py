"""From the id of a store to the store."""

import asyncio

import pytest

from headwater.model.ids import StoreId
from headwater.model.replica import StoreUnreachable, WrongStore
from headwater.peers.messages import PeerAddress
from headwater.peers.store_directory import StoreDirectory
from tests.peers.peer_nodes import IDENTITY, QUICK, node
from tests.storage.storage_samples import batch, create, run, segment
from tests.support.eventually import until

UNKNOWN = StoreId("ab" * 16)


def test_the_own_store_is_itself_and_others_are_called() -> None:
    async def main() -> None:
        async with node() as here, node() as there:
            addresses = {there.store.store_id: there.address}
            directory = StoreDirectory(here.store, addresses.get, IDENTITY, options=QUICK)
            assert directory.find(here.store.store_id) is here.store
            remote = directory.find(there.store.store_id)
            assert directory.find(there.store.store_id) is remote
            await create(remote)
            assert there.store.replica(segment(1)) is not None
            with pytest.raises(StoreUnreachable, match="no node serves"):
                directory.find(UNKNOWN)
            directory.close()

    run(main())


def test_a_new_address_closes_the_old_connection_and_is_used_from_then_on() -> None:
    async def main() -> None:
        lost: list[StoreId] = []
        async with node() as old, node() as new:
            store_id = old.store.store_id
            addresses: dict[StoreId, PeerAddress] = {store_id: old.address}
            directory = StoreDirectory(None, addresses.get, IDENTITY, options=QUICK, on_lost=lost.append)
            before = directory.find(store_id)
            await create(before)
            addresses[store_id] = new.address
            after = directory.find(store_id)
            assert after is not before
            with pytest.raises(WrongStore):
                await after.append(segment(1), 0, 1, 0, [batch(0)])
            with pytest.raises(StoreUnreachable):
                await before.append(segment(1), 0, 1, 0, [batch(0)])
            await until(lambda: (old.traffic.opened, old.traffic.closed) == (1, 1))
            del addresses[store_id]
            directory.refresh()
            await until(lambda: (new.traffic.opened, new.traffic.closed) == (1, 1))
            assert lost == []
            directory.close()

    run(main())


def test_the_leader_hears_of_a_reset() -> None:
    async def main() -> None:
        lost: asyncio.Queue[StoreId] = asyncio.Queue()
        async with node() as there:
            store_id = there.store.store_id
            addresses = {store_id: there.address}
            directory = StoreDirectory(None, addresses.get, IDENTITY, options=QUICK, on_lost=lost.put_nowait)
            await create(directory.find(store_id))
            await there.server.close()
            async with asyncio.timeout(60):
                assert await lost.get() == store_id
            directory.close()

    run(main())
