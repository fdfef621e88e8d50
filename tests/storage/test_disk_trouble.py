"""A disk that is full, and one that fails."""

import asyncio
import dataclasses
import errno

import pytest

from headwater.model.replica import Durability, Fenced, NoSpace, OutOfSequence, StoreError, StoreFailed
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.testing.fakes.files import MemoryFiles
from tests.storage.storage_samples import DIRECTORY, KIB, SMALL, batch, create, fill, open_store, read_all, run, segment

BOTH = pytest.mark.parametrize("durability", list(Durability))
THREADED = dataclasses.replace(SMALL, runs_inline=False)
MODES = pytest.mark.parametrize("options", [SMALL, THREADED], ids=["inline", "threads"])


@BOTH
@MODES
def test_a_full_disk_refuses_an_append_and_takes_it_when_there_is_room_again(
    durability: Durability, options: StoreOptions
) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files, options)
        name = await create(store, durability=durability)
        written = await fill(store, name, 10)
        files.capacity_bytes = files.used_bytes() + 500
        rows = [batch(10 + number, size_bytes=400) for number in range(3)]
        written += rows[0]
        assert await store.append(name, 10, 11, 0, rows[:1]) == 11
        with pytest.raises(NoSpace):
            await store.append(name, 11, 12, 0, rows[1:2])
        assert await read_all(store, name) == written
        files.capacity_bytes += 10 * KIB
        assert await store.append(name, 11, 13, 0, rows[1:]) == 13
        written += b"".join(rows[1:])
        assert await read_all(store, name) == written
        restarted = await open_store(files.killed())
        assert await read_all(restarted, name) == written
        await store.close()

    run(scenario())


@BOTH
@MODES
def test_a_full_disk_acknowledges_again_what_it_has(durability: Durability, options: StoreOptions) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files, options)
        name = await create(store, durability=durability)
        rows = [batch(number, size_bytes=400) for number in range(2)]
        assert await store.append(name, 0, 1, 0, rows[:1]) == 1
        files.capacity_bytes = files.used_bytes()
        files.fail("pwritev", errno.ENOSPC, is_lasting=True)
        assert await store.append(name, 0, 1, 0, rows[:1]) == 1
        with pytest.raises(NoSpace):
            await store.append(name, 0, 2, 0, rows)
        assert await store.append(name, 0, 1, 0, rows[:1]) == 1
        files.heal()
        assert await store.append(name, 0, 1, 0, rows[:1]) == 1
        assert await read_all(store, name) == rows[0]
        await store.close()

    run(scenario())


@MODES
@pytest.mark.parametrize("max_group_entries", [1, 2, 100])
def test_appends_queued_behind_one_that_found_no_room_fail_with_it(
    options: StoreOptions, max_group_entries: int
) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files, dataclasses.replace(options, max_group_entries=max_group_entries))
        name = await create(store)
        other = await create(store, 2)
        await fill(store, name, 1)
        files.fail("pwritev", errno.ENOSPC, name_contains=".log")
        outcomes = await asyncio.gather(
            *(store.append(name, n, n + 1, 0, [batch(n)]) for n in range(1, 6)),
            return_exceptions=True,
        )
        refused = [outcome for outcome in outcomes if isinstance(outcome, NoSpace | OutOfSequence)]
        assert isinstance(outcomes[0], NoSpace)
        assert len(refused) == 5
        written = await fill(store, other, 3)
        assert await read_all(store, other) == written
        assert await store.append(name, 1, 2, 0, [batch(1)]) == 2
        await store.close()

    run(scenario())


def test_a_journal_that_finds_no_room_fails_the_group_and_nothing_else() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store)
        written = await fill(store, name, 3)
        files.fail("pwritev", errno.ENOSPC, name_contains=".journal")
        with pytest.raises(NoSpace):
            await store.append(name, 3, 4, 0, [batch(3, seed=9)])
        files.fail("pwritev", errno.ENOSPC, name_contains=".journal")
        with pytest.raises(NoSpace):
            await create(store, 2)
        assert store.replica(segment(2)) is None
        written += await fill(store, name, 3, first=3)
        restarted = await open_store(files.killed())
        assert await read_all(restarted, name) == written
        assert [state.in_doubt for state in restarted.replicas()] == [False]

    run(scenario())


@BOTH
@MODES
def test_after_a_failed_flush_nothing_is_acknowledged_any_more(durability: Durability, options: StoreOptions) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        failures: list[Exception] = []
        store = await SegmentStore.open(DIRECTORY, files=files, options=options, on_failure=failures.append)
        name = await create(store, durability=durability)
        other = await create(store, 2)
        written = await fill(store, name, 3)
        files.fail("sync_data", errno.EIO, name_contains=".journal")
        outcomes = await asyncio.gather(
            store.append(other, 0, 1, 0, [batch(0)]), store.fence(name), return_exceptions=True
        )
        assert all(isinstance(outcome, StoreFailed) for outcome in outcomes)
        assert len(failures) == 1
        flushes = files.counts["sync_data"]
        for call in (
            store.append(name, 3, 4, 0, [batch(3)]),
            store.read(name, 0, 1, 1),
            store.fence(name),
            store.seal(name, 1),
            store.create(segment(3), "p", 0, 1, b"", durability),
            store.delete(name, 1),
        ):
            with pytest.raises(StoreFailed):
                await call
        await store.close()
        assert files.counts["sync_data"] == flushes, "a failed flush is not tried again"
        restarted = await open_store(files.crash_point().nothing_more())
        state = restarted.replica(name)
        assert state is not None
        if durability is Durability.SYNC:
            assert await read_all(restarted, name) == written

    run(scenario())


@MODES
@pytest.mark.parametrize("file", [".log", "state"])
def test_a_flush_that_fails_in_the_background_stops_the_store(options: StoreOptions, file: str) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        failures: list[Exception] = []
        store = await SegmentStore.open(DIRECTORY, files=files, options=options, on_failure=failures.append)
        name = await create(store)
        files.fail("sync_data", errno.EIO, name_contains=file)
        with pytest.raises(StoreFailed):
            await fill(store, name, 2000, size_bytes=900)
        assert len(failures) == 1
        await store.close()

    run(scenario())


def test_a_write_error_that_is_not_about_room_stops_the_store() -> None:
    async def scenario() -> None:
        for durability in Durability:
            files = MemoryFiles()
            store = await open_store(files)
            name = await create(store, durability=durability)
            files.fail("pwritev", errno.EIO, name_contains=".log")
            with pytest.raises(StoreFailed):
                await store.append(name, 0, 1, 0, [batch(0)])
            with pytest.raises(StoreFailed):
                await store.fence(name)

    run(scenario())


@MODES
def test_a_full_disk_is_met_with_the_reserve_and_fences_still_work(options: StoreOptions) -> None:
    reserve = DIRECTORY / "reserve"
    options = dataclasses.replace(options, journal_file_bytes=8 * KIB, journal_files=2, reserve_bytes=16 * KIB)

    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files, options)
        assert reserve in files.paths()
        names = [await create(store, number) for number in range(1, 4)]
        await fill(store, names[0], 20, size_bytes=900)
        files.capacity_bytes = files.used_bytes()
        with pytest.raises(NoSpace):
            await store.append(names[0], 20, 21, 0, [batch(20)])
        for number in range(100, 300):  # tombstones, until journal and checkpoint have gone round several times
            assert (await store.fence(segment(number))).is_fenced
        assert reserve not in files.paths()
        for name in names:
            assert (await store.fence(name)).is_fenced
        files.capacity_bytes += 200 * KIB
        fresh = await create(store, 9)
        await fill(store, fresh, 100, size_bytes=900)
        assert reserve in files.paths()
        restarted = await open_store(files.killed(), options)
        assert len(await read_all(restarted, names[0])) == 20 * 900
        assert len(await read_all(restarted, fresh)) == 100 * 900
        with pytest.raises(Fenced):
            await restarted.append(names[1], 0, 1, 0, [batch(0)])
        await store.close()

    run(scenario())


@MODES
def test_without_room_for_a_checkpoint_calls_fail_instead_of_waiting_and_later_ones_succeed(
    options: StoreOptions,
) -> None:
    options = dataclasses.replace(options, journal_file_bytes=4 * KIB, journal_files=1)

    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files, options)
        name = await create(store)
        files.fail("pwritev", errno.ENOSPC, name_contains="state", is_lasting=True)
        end = 0
        with pytest.raises(NoSpace):
            for end in range(100):
                await store.append(name, end, end + 1, 0, [batch(end, size_bytes=700)])
        with pytest.raises(NoSpace):
            await store.append(name, end, end + 1, 0, [batch(end, size_bytes=700)])
        with pytest.raises(StoreError):
            await store.fence(segment(50))
        files.heal()
        last = end + 30
        for offset in range(end, last):
            assert await store.append(name, offset, offset + 1, 0, [batch(offset, size_bytes=700)]) == offset + 1
        await store.fence(segment(50))
        restarted = await open_store(files.killed(), options)
        assert len(await read_all(restarted, name)) == 700 * last
        assert restarted.replica(segment(50)) is not None
        assert not any(state.in_doubt for state in restarted.replicas() if state.partition)
        await store.close()

    run(scenario())


def test_no_new_replica_below_the_low_water_mark() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        options = dataclasses.replace(SMALL, low_water_bytes=50 * KIB, low_water_fraction=0.5)
        store = await open_store(files, options)
        name = await create(store)
        files.capacity_bytes = files.used_bytes() + 40 * KIB
        with pytest.raises(NoSpace):
            await create(store, 2)
        await fill(store, name, 3)
        assert (await store.fence(segment(3))).is_fenced
        files.capacity_bytes += 200 * KIB
        await create(store, 2)

    run(scenario())


def test_an_index_that_finds_no_room_costs_nothing_but_a_rebuild() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store)
        files.fail("pwritev", errno.ENOSPC, name_contains=".index", is_lasting=True)
        written = await fill(store, name, 500)
        assert await read_all(store, name) == written
        await store.seal(name, 500)
        await store.close()
        files.heal()
        store = await open_store(files)
        assert await read_all(store, name) == written

    run(scenario())


@MODES
def test_a_fence_counts_even_when_the_create_or_the_append_before_it_found_no_room(options: StoreOptions) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files, dataclasses.replace(options, max_group_entries=1))
        name = await create(store)
        files.fail("pwritev", errno.ENOSPC, name_contains=".log")
        outcomes = await asyncio.gather(
            store.append(name, 0, 1, 0, [batch(0)]), store.fence(name), return_exceptions=True
        )
        assert isinstance(outcomes[0], NoSpace)
        assert not isinstance(outcomes[1], BaseException)
        files.fail("pwritev", errno.ENOSPC, name_contains=".journal")
        created, fenced = await asyncio.gather(create(store, 2), store.fence(segment(2)), return_exceptions=True)
        assert isinstance(created, NoSpace)
        assert not isinstance(fenced, BaseException)
        restarted = await open_store(files.killed())
        assert all(state.is_fenced for state in restarted.replicas())
        assert len(restarted.replicas()) == 2
        await store.close()

    run(scenario())


def test_a_store_on_a_full_disk_opens_by_giving_up_its_reserve() -> None:
    options = dataclasses.replace(SMALL, reserve_bytes=16 * KIB)

    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files, options)
        name = await create(store)
        written = await fill(store, name, 20)
        files = files.killed()
        files.capacity_bytes = files.used_bytes()
        store = await open_store(files, options)
        assert await read_all(store, name) == written
        assert (await store.fence(name)).is_fenced
        await store.close()

    run(scenario())


def test_a_seal_that_finds_no_room_can_be_repeated_and_appends_go_on() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store)
        written = await fill(store, name, 40)
        files.fail("pwritev", errno.ENOSPC, name_contains=".journal")
        with pytest.raises(NoSpace):
            await store.seal(name, 25)
        written += await fill(store, name, 60, first=40)
        assert await read_all(store, name) == written
        assert await read_all(await open_store(files.killed()), name) == written
        assert (await store.seal(name, 90)).size_bytes == 90 * 120
        assert await read_all(store, name) == written[: 90 * 120]
        await store.close()
        assert await read_all(await open_store(files), name) == written[: 90 * 120]

    run(scenario())
