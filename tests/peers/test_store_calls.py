"""Every call of a store, on a local one and over loopback: whoever calls cannot tell them apart."""

import asyncio
import dataclasses
import errno
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest

from headwater.model.replica import (
    AppendTooLarge,
    CorruptReplica,
    Durability,
    Fenced,
    NoSpace,
    OutOfSequence,
    Store,
    StoreFailed,
    UnknownSegment,
    UnsoundBatch,
    WrongStore,
)
from headwater.storage.options import StoreOptions
from headwater.testing.fakes.files import MemoryFiles
from tests.peers.peer_nodes import MIB, ROOMY, THREADED, node
from tests.storage.storage_samples import bases, batch, create, fill, run, segment

Scenario: TypeAlias = Callable[[Store, MemoryFiles], Awaitable[None]]
EVERYWHERE = pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
BOTH = pytest.mark.parametrize("durability", list(Durability))


@asynccontextmanager
async def opened(is_remote: bool, files: MemoryFiles, options: StoreOptions = THREADED) -> AsyncIterator[Store]:
    async with node(files, options) as served:
        yield served.remote() if is_remote else served.store


def judge(is_remote: bool, scenario: Scenario, options: StoreOptions = THREADED) -> None:
    async def main() -> None:
        files = MemoryFiles()
        async with opened(is_remote, files, options) as store:
            await scenario(store, files)

    run(main())


@EVERYWHERE
@BOTH
def test_what_was_appended_is_read_back(is_remote: bool, durability: Durability) -> None:
    async def scenario(store: Store, _: MemoryFiles) -> None:
        name = await create(store, durability=durability)
        written = await fill(store, name, 60)
        assert bytes(await store.read(name, 0, 60, MIB)) == written
        assert bases(await store.read(name, 20, 60, 400)) == [20, 21, 22]
        assert bases(await store.read(name, 20, 21, 400)) == [20]
        assert bytes(await store.read(name, 60, 99, 400)) == b""
        assert await store.find_timestamp(name, 1_030) == 30
        assert await store.find_timestamp(name, 5_000) is None

    judge(is_remote, scenario)


@EVERYWHERE
def test_the_state_of_a_replica_is_told_in_full(is_remote: bool) -> None:
    async def scenario(store: Store, _: MemoryFiles) -> None:
        await store.create(segment(1), "topic.ä", 100, 7, b"\0header", Durability.SYNC)
        await store.append(segment(1), 100, 102, 101, [batch(100, timestamp=55), batch(101, timestamp=44)])
        state = await store.state(segment(1))
        assert (state.segment, state.partition, state.base, state.end) == (segment(1), "topic.ä", 100, 102)
        assert (state.epoch, state.lac, state.size_bytes, state.max_timestamp) == (7, 101, 240, 55)
        assert (state.is_fenced, state.in_doubt, state.is_sealed, state.header) == (False, False, False, b"\0header")
        assert state.instance > 0
        assert await store.fence(segment(1)) == dataclasses.replace(state, is_fenced=True)

    judge(is_remote, scenario)


@EVERYWHERE
def test_a_fence_refuses_appends_and_leaves_a_tombstone_where_nothing_was(is_remote: bool) -> None:
    async def scenario(store: Store, _: MemoryFiles) -> None:
        name = await create(store)
        await fill(store, name, 5)
        assert (await store.fence(name)).end == 5
        with pytest.raises(Fenced):
            await store.append(name, 5, 6, 5, [batch(5)])
        tombstone = await store.fence(segment(9))
        assert (tombstone.is_fenced, tombstone.in_doubt, tombstone.end) == (True, True, 0)
        with pytest.raises(Fenced):
            await create(store, 9)

    judge(is_remote, scenario)


@EVERYWHERE
def test_seal_measures_and_drops_what_is_past_the_end(is_remote: bool) -> None:
    async def scenario(store: Store, _: MemoryFiles) -> None:
        name = await create(store)
        written = await fill(store, name, 10)
        sealed = await store.seal(name, 8)
        assert (sealed.end, sealed.size_bytes, sealed.max_timestamp) == (8, 8 * 120, 1_007)
        assert bytes(await store.read(name, 0, 100, MIB)) == written[: 8 * 120]
        assert await store.seal(name, 8) == sealed
        with pytest.raises(OutOfSequence):
            await store.seal(name, 7)
        with pytest.raises(Fenced):
            await store.append(name, 8, 9, 8, [batch(8)])

    judge(is_remote, scenario)


@EVERYWHERE
def test_resending_is_harmless_and_a_gap_or_a_difference_is_refused(is_remote: bool) -> None:
    async def scenario(store: Store, _: MemoryFiles) -> None:
        name = await create(store)
        await asyncio.gather(create(store), create(store))
        await fill(store, name, 10)
        rows = [batch(offset, timestamp=1_000 + offset) for offset in range(12)]
        assert await store.append(name, 3, 12, 0, rows[3:]) == 12
        with pytest.raises(OutOfSequence):
            await store.append(name, 3, 4, 0, [batch(3, seed=1)])
        with pytest.raises(OutOfSequence):
            await store.append(name, 13, 14, 0, [batch(13)])
        with pytest.raises(OutOfSequence):
            await store.create(name, "other", 0, 3, b"header", Durability.SYNC)
        assert await store.append(name, 12, 12, 12, []) == 12
        assert (await store.state(name)).lac == 12

    judge(is_remote, scenario)


@EVERYWHERE
def test_every_refusal_has_its_own_name(is_remote: bool) -> None:
    async def scenario(store: Store, files: MemoryFiles) -> None:
        name = await create(store)
        for call in (
            store.append(segment(8), 0, 1, 0, [batch(0)]),
            store.read(segment(8), 0, 1, 100),
            store.state(segment(8)),
            store.seal(segment(8), 0),
            store.find_timestamp(segment(8), 0),
        ):
            with pytest.raises(UnknownSegment, match=segment(8)):
                await call
        with pytest.raises(UnsoundBatch):
            await store.append(name, 0, 1, 0, [b"nothing of the kind"])
        with pytest.raises(AppendTooLarge):
            await store.append(name, 0, 1, 0, [batch(0, size_bytes=THREADED.journal_file_bytes)])
        files.fail("pwritev", errno.ENOSPC)
        with pytest.raises(NoSpace):
            await store.append(name, 0, 1, 0, [batch(0)])
        await fill(store, name, 30, 300)
        (path,) = (path for path in files.paths() if path.suffix == ".log")
        files.flip_bit(path, 8 * 1000)
        with pytest.raises(CorruptReplica):
            await store.read(name, 0, 30, MIB)
        files.fail("sync_data", errno.EIO)
        with pytest.raises(StoreFailed):
            await store.append(name, 30, 31, 0, [batch(30)])
        with pytest.raises(StoreFailed):
            await store.read(name, 0, 30, MIB)

    judge(is_remote, scenario)


@EVERYWHERE
@BOTH
def test_appends_need_not_wait_for_each_other_and_keep_their_order(is_remote: bool, durability: Durability) -> None:
    async def scenario(store: Store, _: MemoryFiles) -> None:
        name = await create(store, durability=durability)
        rows = [batch(offset, size_bytes=500) for offset in range(2_000)]
        ends = await asyncio.gather(
            *(store.append(name, offset, offset + 1, offset, [row]) for offset, row in enumerate(rows))
        )
        assert ends == sorted(ends)
        assert ends[-1] == 2_000
        assert (await store.state(name)).size_bytes == 2_000 * 500

    options = dataclasses.replace(THREADED, max_queued_bytes=20_000)
    judge(is_remote, scenario, options)


@EVERYWHERE
def test_an_append_may_follow_its_create_and_a_fence_its_appends_at_once(is_remote: bool) -> None:
    async def scenario(store: Store, _: MemoryFiles) -> None:
        name = segment(1)
        calls: list[asyncio.Future[Any]] = [asyncio.ensure_future(create(store))]
        calls += [asyncio.ensure_future(store.append(name, n, n + 1, 0, [batch(n)])) for n in range(20)]
        fence = asyncio.ensure_future(store.fence(name))
        late = asyncio.ensure_future(store.append(name, 20, 21, 0, [batch(20)]))
        await asyncio.gather(*calls)
        assert (await fence).end == 20
        with pytest.raises(Fenced):
            await late

    judge(is_remote, scenario)


@EVERYWHERE
@BOTH
def test_eight_megabytes_are_one_append_and_one_read(is_remote: bool, durability: Durability) -> None:
    async def scenario(store: Store, _: MemoryFiles) -> None:
        name = await create(store, durability=durability)
        for start in (0, 2):
            rows = [batch(start, size_bytes=8 * MIB - 500), batch(start + 1, size_bytes=500)]
            assert await store.append(name, start, start + 2, 0, rows) == start + 2
            assert bytes(await store.read(name, start, start + 2, 8 * MIB)) == b"".join(rows)

    judge(is_remote, scenario, ROOMY)


def test_a_store_at_the_address_of_another_says_so() -> None:
    async def main() -> None:
        async with node() as served, node() as other:
            lost = served.remote(store_id=other.store.store_id)
            for call in (
                lost.append(segment(1), 0, 1, 0, [batch(0)]),
                lost.create(segment(1), "p", 0, 0, b"", Durability.SYNC),
                lost.fence(segment(1)),
                lost.read(segment(1), 0, 1, 1),
                lost.state(segment(1)),
                lost.seal(segment(1), 0),
                lost.ping(),
            ):
                with pytest.raises(WrongStore):
                    await call
            assert served.store.replicas() == []

    run(main())


def test_a_remote_store_uses_two_connections_and_another_for_a_seal() -> None:
    async def main() -> None:
        async with node() as served:
            remote = served.remote()
            assert served.traffic.opened == 0, "nobody connects before the first call"
            name = await create(remote)
            await fill(remote, name, 10)
            assert served.traffic.opened == 1
            await asyncio.gather(remote.ping(), remote.read(name, 0, 1, 10), remote.state(name))
            assert served.traffic.opened == 2
            await remote.seal(name, 10)
            assert served.traffic.opened == 3
            assert remote.append_now(name, 10, 11, 0, [batch(10)]) is None

    run(main())
