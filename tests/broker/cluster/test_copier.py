"""Copies between real stores that are served on loopback."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import pytest

from headwater.broker.cluster.copier import Copier
from headwater.broker.cluster.peer_pings import peer_ping
from headwater.model import cluster
from headwater.model.ids import PartitionId, StoreId
from headwater.model.replica import Durability, StoreError
from headwater.model.segments import SealedSegment
from headwater.peers.messages import PeerAddress
from headwater.peers.pace import AT_ONCE, CopyPace
from headwater.peers.store_directory import StoreDirectory
from headwater.peers.store_server import StoreServer
from headwater.replication.actions import Copy
from tests.peers.peer_nodes import IDENTITY, QUICK, Counting, Node, node
from tests.storage.storage_samples import create, fill, read_all, run, segment

PARTITION = PartitionId.parse("00000000000000000000000000000001.0")
NOBODY = StoreId("ab" * 16)


def copier(nodes: list[Node], local: Node | None = None, getting: CopyPace = AT_ONCE) -> tuple[Copier, StoreDirectory]:
    addresses: Mapping[StoreId, PeerAddress] = {it.store.store_id: it.address for it in nodes}
    own = local.store if local is not None else None
    directory = StoreDirectory(own, addresses.get, IDENTITY, options=QUICK)
    return Copier(directory, own, addresses.get, lambda _: Durability.SYNC, getting), directory


async def filled(served: Node) -> SealedSegment:
    """A segment that is sealed in the metadata, and not yet in the store."""
    await served.store.create(segment(1), str(PARTITION), 0, 1, b"header", Durability.SYNC)
    await fill(served.store, segment(1), 40, 300)
    return SealedSegment(
        id=segment(1),
        base=0,
        end=30,
        epoch=1,
        epoch_start=0,
        replicas=(served.store.store_id,),
        size_bytes=0,
        max_timestamp=0,
        crc32c=None,
    )


@pytest.mark.parametrize("is_local", [False, True])
def test_a_segment_that_nobody_has_measured_is_copied_up_to_its_end(is_local: bool) -> None:
    async def main() -> None:
        async with node() as donor, node() as taker:
            sealed = await filled(donor)
            copying, directory = copier([donor, taker], taker if is_local else None)
            target = taker.store.store_id
            await copying.copy(Copy(PARTITION, sealed, 1, target, (NOBODY, donor.store.store_id)))
            copied = taker.store.replica(segment(1))
            assert copied is not None
            assert (copied.end, copied.is_sealed, copied.header, copied.partition) == (
                30, True, b"header", str(PARTITION),
            )  # fmt: skip
            assert await read_all(taker.store, segment(1)) == await read_all(donor.store, segment(1))
            assert await copying.is_complete(target, sealed)
            directory.close()

    run(main())


class Counted:
    """A pace that lets everything pass, one batch at a time, and counts."""

    def __init__(self) -> None:
        self.bytes = 0

    async def admit(self, partition: str, most_bytes: int) -> int:
        assert partition == str(PARTITION)
        return 1

    def passed(self, partition: str, size_bytes: int) -> None:
        self.bytes += size_bytes


@pytest.mark.parametrize("is_local", [False, True])
def test_both_sides_of_a_copy_set_its_pace_and_readers_keep_theirs(is_local: bool) -> None:
    async def main() -> None:
        giving, getting, own = Counted(), Counted(), Counted()
        async with node(giving=giving) as donor, node(getting=getting) as taker:
            sealed = await filled(donor)
            copying, directory = copier([donor, taker], taker if is_local else None, own)
            await copying.copy(Copy(PARTITION, sealed, 1, taker.store.store_id, (donor.store.store_id,)))
            copied = taker.store.replica(segment(1))
            assert copied is not None
            assert giving.bytes == (own if is_local else getting).bytes == copied.size_bytes
            await directory.remote(donor.store.store_id).read(segment(1), 0, 30, 1 << 20)
            assert giving.bytes == copied.size_bytes
            directory.close()

    run(main())


def test_what_differs_from_the_metadata_is_not_a_copy() -> None:
    async def main() -> None:
        async with node() as donor, node() as taker:
            sealed = await filled(donor)
            measured = await donor.store.seal(segment(1), 30)
            wrong = replace(sealed, crc32c=measured.crc32c ^ 1, size_bytes=measured.size_bytes)
            copying, directory = copier([donor, taker])
            with pytest.raises(StoreError):
                await copying.copy(Copy(PARTITION, wrong, 1, taker.store.store_id, (donor.store.store_id,)))
            assert taker.store.replica(segment(1)) is None
            directory.close()

    run(main())


def test_without_a_donor_that_answers_the_copy_fails_and_says_whom_it_asked() -> None:
    async def main() -> None:
        async with node() as donor, node() as taker:
            sealed = await filled(donor)
            copying, directory = copier([taker])
            with pytest.raises(StoreError, match=NOBODY):
                await copying.copy(Copy(PARTITION, sealed, 1, taker.store.store_id, (NOBODY,)))
            directory.close()

    run(main())


def test_a_store_is_complete_only_if_it_says_so() -> None:
    async def main() -> None:
        async with node() as full, node() as partial, node() as empty:
            sealed = await filled(full)
            await create(partial.store)
            await fill(partial.store, segment(1), 10, 300)
            copying, directory = copier([full, partial, empty])
            assert await copying.is_complete(full.store.store_id, sealed)
            assert not await copying.is_complete(partial.store.store_id, sealed)
            assert not await copying.is_complete(empty.store.store_id, sealed)
            assert not await copying.is_complete(NOBODY, sealed)
            await empty.store.fence(segment(1))
            assert not await copying.is_complete(empty.store.store_id, sealed)
            directory.close()

    run(main())


def test_a_ping_is_answered_by_a_living_node_and_refused_by_a_dead_one() -> None:
    async def main() -> None:
        async with node() as living, node() as dying:
            _, directory = copier([living, dying])
            ping = peer_ping(directory)
            await ping(described(living))
            await ping(described(dying))
            await dying.server.close()
            for _ in range(3):
                async with asyncio.timeout(60):
                    with pytest.raises((StoreError, OSError)):
                        await ping(described(dying))
            bare = StoreServer(None, IDENTITY, Counting())
            host, port = await bare.listen("127.0.0.1", 0)
            storeless = replace(described(living), stores=(), peer_host=host, peer_port=port)
            await ping(storeless)
            await ping(storeless)
            await bare.close()
            for _ in range(2):
                with pytest.raises(StoreError):
                    await ping(storeless)
            directory.close()

    run(main())


def described(served: Node) -> cluster.Node:
    store = cluster.NodeStore(served.store.store_id, 1, 1)
    host, port = served.address
    return cluster.Node(node_id=1, epoch=1, host=host, port=port, peer_host=host, peer_port=port, stores=(store,))
