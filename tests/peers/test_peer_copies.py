"""A store that pulls a sealed segment from others."""

import asyncio
import dataclasses

import pytest

from headwater.model.ids import StoreId
from headwater.model.replica import CorruptReplica, Durability, SegmentDescription, StoreUnreachable
from headwater.peers.messages import Donor, PeerAddress
from headwater.testing.fakes.files import MemoryFiles
from tests.peers.peer_nodes import MIB, QUICK, ROOMY, Node, description_of, here, node
from tests.storage.storage_samples import batch, create, fill, read_all, run, segment
from tests.support.eventually import until

NOBODY = Donor(StoreId("ab" * 16), PeerAddress("127.0.0.1", 1))


async def giver(served: Node, count: int = 60, size_bytes: int = 300) -> SegmentDescription:
    await create(served.store)
    await fill(served.store, segment(1), count, size_bytes)
    return await description_of(served.store)


def test_a_store_pulls_a_segment_from_another() -> None:
    async def main() -> None:
        async with node() as donor, node() as taker:
            description = await giver(donor)
            sealed = await taker.remote().copy(description, [donor.donor])
            assert sealed == await donor.store.seal(segment(1), 60)
            assert here(taker.store).is_sealed
            assert await read_all(taker.store, segment(1)) == await read_all(donor.store, segment(1))
            await until(lambda: (donor.traffic.opened, donor.traffic.closed) == (1, 1), "the connection is closed")

    run(main())


def test_a_large_segment_is_pulled_in_portions() -> None:
    async def main() -> None:
        async with node(options=ROOMY) as donor, node(options=ROOMY) as taker:
            await create(donor.store, durability=Durability.SYNC)
            for offset in range(40):
                await donor.store.append(segment(1), offset, offset + 1, 0, [batch(offset, size_bytes=MIB)])
            description = await description_of(donor.store)
            assert (await taker.remote().copy(description, [donor.donor])).size_bytes == 40 * MIB
            assert await read_all(taker.store, segment(1)) == await read_all(donor.store, segment(1))

    run(main())


def test_donors_that_are_gone_know_nothing_or_are_others_are_left_for_the_next() -> None:
    async def main() -> None:
        async with node() as empty, node() as donor, node() as taker:
            description = await giver(donor)
            not_there = Donor(NOBODY.store_id, donor.address)
            donors = [NOBODY, taker.donor, empty.donor, not_there, donor.donor]
            await taker.remote().copy(description, donors)
            assert await read_all(taker.store, segment(1)) == await read_all(donor.store, segment(1))

    run(main())


def test_a_damaged_donor_is_left_in_the_middle_for_the_next() -> None:
    async def main() -> None:
        files = MemoryFiles()
        async with node(files) as damaged, node() as sound, node() as taker:
            description = await giver(damaged)
            assert description == await giver(sound)
            (path,) = (path for path in files.paths() if path.suffix == ".log")
            files.flip_bit(path, 8 * 15_000)
            await taker.remote().copy(description, [damaged.donor, sound.donor])
            assert await read_all(taker.store, segment(1)) == await read_all(sound.store, segment(1))
            with pytest.raises(CorruptReplica):
                await damaged.store.read(segment(1), 0, 60, MIB)

    run(main())


def test_a_donor_with_something_else_is_found_out_and_the_next_one_asked() -> None:
    async def main() -> None:
        async with node() as other, node() as sound, node() as taker:
            description = await giver(sound)
            await create(other.store)
            for offset in range(60):
                await other.store.append(
                    segment(1), offset, offset + 1, 0, [batch(offset, size_bytes=300, seed=7)]
                )  # fmt: skip
            with pytest.raises(CorruptReplica):
                await taker.remote().copy(description, [other.donor])
            assert taker.store.replica(segment(1)) is None
            await taker.remote().copy(description, [other.donor, sound.donor])
            assert await read_all(taker.store, segment(1)) == await read_all(sound.store, segment(1))

    run(main())


def test_without_a_donor_that_gives_it_the_copy_says_why_and_what_was_here_stays() -> None:
    async def main() -> None:
        async with node() as empty, node() as taker:
            await create(taker.store)
            await fill(taker.store, segment(1), 5, 300)
            before = here(taker.store)
            description = SegmentDescription(
                segment=segment(1),
                partition="topic.1",
                base=0,
                end=60,
                epoch=3,
                header=b"header",
                durability=Durability.SYNC,
                crc32c=77,
                size_bytes=18_000,
            )
            with pytest.raises(StoreUnreachable, match=f"{NOBODY.store_id}.*{empty.store.store_id}.*no replica"):
                await taker.remote().copy(description, [NOBODY, empty.donor])
            with pytest.raises(StoreUnreachable, match="none was named"):
                await taker.remote().copy(description, [])
            assert here(taker.store) == before

    run(main())


def test_a_complete_replica_is_adopted_without_donors() -> None:
    async def main() -> None:
        async with node() as taker:
            description = await giver(taker)
            before = here(taker.store)
            await taker.remote().copy(description, [])
            assert here(taker.store) == dataclasses.replace(before, instance=here(taker.store).instance)
            assert here(taker.store).instance > before.instance

    run(main())


def test_a_copy_ends_when_whoever_asked_for_it_is_gone() -> None:
    async def main() -> None:
        started = asyncio.Event()
        gone = asyncio.Event()

        async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            started.set()
            await reader.read(1000)
            await reader.read()
            gone.set()
            writer.close()

        hanging = await asyncio.start_server(hang, "127.0.0.1", 0)
        async with node(donor_options=dataclasses.replace(QUICK, connect_timeout_s=60.0)) as taker:
            description = SegmentDescription(
                segment=segment(1),
                partition="topic.1",
                base=0,
                end=60,
                epoch=3,
                header=b"header",
                durability=Durability.SYNC,
                crc32c=77,
                size_bytes=18_000,
            )
            donors = [Donor(NOBODY.store_id, PeerAddress(*hanging.sockets[0].getsockname()))]
            copying = asyncio.ensure_future(taker.remote().copy(description, donors))
            await started.wait()
            copying.cancel()
            async with asyncio.timeout(60):
                await gone.wait()
            assert taker.store.replicas() == []
        hanging.close()

    run(main())
