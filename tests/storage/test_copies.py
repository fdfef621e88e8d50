"""Copies of sealed segments: what a store takes over from another, and what it does with what it had."""

import asyncio
import dataclasses
import errno
import random
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from headwater.model.ids import Offset
from headwater.model.replica import (
    AppendTooLarge,
    Buffer,
    CorruptReplica,
    Durability,
    Fenced,
    NoSpace,
    OutOfSequence,
    ReplicaState,
    SegmentDescription,
    Source,
    StoreFailed,
    StoreUnreachable,
    UnknownSegment,
)
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.testing.fakes.files import MemoryFiles
from tests.storage.storage_samples import (
    DIRECTORY,
    SEGMENTS,
    SMALL,
    batch,
    create,
    fill,
    open_store,
    read_all,
    run,
    segment,
)

BOTH = pytest.mark.parametrize("durability", list(Durability))
Before = Callable[[SegmentStore], Awaitable[None]]
THREADED = dataclasses.replace(SMALL, runs_inline=False)


class Donor:
    """A store with a sealed segment to give away, and what was asked of it."""

    def __init__(
        self, store: SegmentStore, description: SegmentDescription, content: bytes, max_bytes: int = 1000
    ) -> None:
        self.store = store
        self.description = description
        self.content = content
        self.max_bytes = max_bytes
        self.offsets: list[Offset] = []

    async def __call__(self, offset: Offset) -> Buffer:
        self.offsets.append(offset)
        return await self.store.read(self.description.segment, offset, self.description.end, self.max_bytes)


async def donor(count: int = 40, size_bytes: int = 300, durability: Durability = Durability.SYNC) -> Donor:
    store = await open_store(MemoryFiles())
    name = await create(store, durability=durability)
    content = await fill(store, name, count, size_bytes)
    sealed = await store.seal(name, count)
    description = SegmentDescription(
        segment=name,
        partition="topic.1",
        base=0,
        end=count,
        epoch=3,
        header=b"header",
        durability=durability,
        crc32c=sealed.crc32c,
        size_bytes=sealed.size_bytes,
    )
    return Donor(store, description, content)


def nothing_asked(offset: Offset) -> Awaitable[Buffer]:
    raise AssertionError(f"nobody needs the source, asked for {offset}")


def here(store: SegmentStore) -> ReplicaState:
    state = store.replica(segment(1))
    assert state is not None
    return state


async def is_complete(store: SegmentStore, source: Donor) -> None:
    state = here(store)
    description = source.description
    assert (state.is_sealed, state.in_doubt) == (True, False)
    described = description.partition, description.base, description.end, description.epoch, description.header
    assert (state.partition, state.base, state.end, state.epoch, state.header) == described
    assert state.size_bytes == description.size_bytes
    assert await read_all(store, segment(1)) == source.content
    assert await store.find_timestamp(segment(1), 1_000 + description.end // 2) == description.end // 2
    with pytest.raises(Fenced):
        await store.append(segment(1), description.end, description.end + 1, 0, [batch(description.end)])


@BOTH
@pytest.mark.parametrize("options", [SMALL, THREADED], ids=["inline", "threads"])
def test_a_copy_is_sealed_and_has_the_bytes_of_the_donor_after_a_kill_too(
    durability: Durability, options: StoreOptions
) -> None:
    async def scenario() -> None:
        source = await donor(durability=durability)
        files = MemoryFiles()
        store = await open_store(files, options)
        sealed = await store.copy(source.description, source)
        assert sealed == await source.store.seal(segment(1), 40)
        await is_complete(store, source)
        await is_complete(await open_store(files.killed(), options), source)
        await store.close()
        await is_complete(await open_store(files, options), source)

    run(scenario())


def test_a_copy_on_real_files_survives_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        source = await donor(count=300, size_bytes=900)
        store = await SegmentStore.open(tmp_path, options=THREADED)
        await store.copy(source.description, source)
        assert store.used_bytes() == len(source.content)
        assert store.capacity_bytes() >= store.free_bytes() > 0
        await store.close()
        store = await SegmentStore.open(tmp_path, options=THREADED)
        await is_complete(store, source)
        await store.close()

    run(scenario())


def test_a_copy_is_read_in_the_portions_of_its_source() -> None:
    async def scenario() -> None:
        source = await donor()
        store = await open_store(MemoryFiles())
        await store.copy(source.description, source)
        assert source.offsets == sorted(set(source.offsets)), "nothing is asked for twice"
        assert len(source.offsets) >= 40 // 3, "three batches of 300 bytes at a time"

    run(scenario())


def test_holes_that_compaction_left_are_copied_as_they_are() -> None:
    async def scenario() -> None:
        giver = await open_store(MemoryFiles())
        name = await create(giver)
        await giver.append(name, 0, 100, 0, [batch(10), batch(50, size_bytes=3000)])
        sealed = await giver.seal(name, 100)
        description = SegmentDescription(
            segment=name,
            partition="topic.1",
            base=0,
            end=100,
            epoch=3,
            header=b"header",
            durability=Durability.SYNC,
            crc32c=sealed.crc32c,
            size_bytes=sealed.size_bytes,
        )
        store = await open_store(MemoryFiles())
        assert await store.copy(description, Donor(giver, description, b"", max_bytes=1)) == sealed
        assert await read_all(store, name) == await read_all(giver, name)

    run(scenario())


def test_an_empty_segment_is_copied_without_a_file() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        description = SegmentDescription(
            segment=segment(1),
            partition="topic.1",
            base=7,
            end=7,
            epoch=3,
            header=b"",
            durability=Durability.SYNC,
            crc32c=0,
            size_bytes=0,
        )
        await store.copy(description, nothing_asked)
        assert (here(store).is_sealed, here(store).base, here(store).end) == (True, 7, 7)
        again = await open_store(files.killed())
        assert (here(again).is_sealed, here(again).end) == (True, 7)

    run(scenario())


async def incomplete(store: SegmentStore) -> None:
    await create(store)
    await fill(store, segment(1), 10, 300)


async def fenced(store: SegmentStore) -> None:
    await incomplete(store)
    await store.fence(segment(1))


async def tombstone(store: SegmentStore) -> None:
    await store.fence(segment(1))


async def sealed_too_early(store: SegmentStore) -> None:
    await incomplete(store)
    await store.seal(segment(1), 5)


async def something_else(store: SegmentStore) -> None:
    await create(store)
    for offset in range(40):
        await store.append(segment(1), offset, offset + 1, 0, [batch(offset, size_bytes=300, seed=9)])


async def empty(store: SegmentStore) -> None:
    await create(store)


@pytest.mark.parametrize("before", [empty, incomplete, fenced, tombstone, sealed_too_early, something_else])
def test_a_copy_takes_the_place_of_what_is_not_the_whole_segment(before: Before) -> None:
    async def scenario() -> None:
        source = await donor()
        files = MemoryFiles()
        store = await open_store(files)
        await before(store)
        old = here(store)
        await store.copy(source.description, source)
        await is_complete(store, source)
        assert here(store).instance > old.instance
        assert here(store).is_fenced == old.is_fenced, "an acknowledged fence stays one"
        await store.delete(segment(1), old.instance)
        await is_complete(store, source)  # a decision about the old one does not meet the new one
        again = await open_store(files.killed())
        await is_complete(again, source)
        assert {path.stem for path in files.paths() if path.parent == SEGMENTS} == {
            f"{segment(1)}-{here(store).instance:x}"
        }

    run(scenario())


async def sealed(store: SegmentStore) -> None:
    await create(store)
    await fill(store, segment(1), 40, 300)
    await store.seal(segment(1), 40)


async def open_and_longer(store: SegmentStore) -> None:
    await create(store)
    await fill(store, segment(1), 45, 300)


@pytest.mark.parametrize("before", [sealed, open_and_longer])
def test_a_complete_replica_is_adopted_under_a_new_instance_without_asking_a_donor(before: Before) -> None:
    async def scenario() -> None:
        source = await donor()
        files = MemoryFiles()
        store = await open_store(files)
        await before(store)
        old = here(store)
        await store.copy(source.description, nothing_asked)
        assert here(store).instance > old.instance
        await is_complete(store, source)
        await is_complete(await open_store(files.killed()), source)

    run(scenario())


def test_a_complete_replica_with_a_flipped_bit_is_replaced_from_the_donor() -> None:
    async def scenario() -> None:
        source = await donor()
        files = MemoryFiles()
        store = await open_store(files)
        await sealed(store)
        (path,) = (path for path in files.paths() if path.suffix == ".log")
        files.flip_bit(path, 8 * 5000)
        with pytest.raises(CorruptReplica):
            await read_all(store, segment(1))
        assert here(store).in_doubt
        await store.copy(source.description, source)
        await is_complete(store, source)

    run(scenario())


def flipped(data: bytes) -> bytes:
    return data[:100] + bytes([data[100] ^ 1]) + data[101:]


async def refuses(store: SegmentStore, description: SegmentDescription, source: Source, error: type[Exception]) -> None:
    with pytest.raises(error):
        await store.copy(description, source)


def test_a_source_that_gives_something_else_leaves_what_was_here() -> None:
    async def scenario() -> None:
        source = await donor()
        files = MemoryFiles()
        store = await open_store(files)
        await incomplete(store)
        before = here(store)
        description = source.description
        whole = source.content

        def gives(*pieces: bytes) -> Source:
            left = list(pieces)

            async def read(offset: Offset) -> Buffer:
                return left.pop(0) if left else b""

            return read

        for bad in (
            gives(),
            gives(whole[:3000]),
            gives(whole[:3000], whole[:3000]),
            gives(whole[:3001]),
            gives(flipped(whole)),
            gives(whole + batch(40)),
            gives(b"x" * 700),
            gives(whole[300:]),
            gives(b"".join(batch(offset, size_bytes=300, seed=5) for offset in range(40))),
        ):
            await refuses(store, description, bad, CorruptReplica)
        await refuses(store, dataclasses.replace(description, crc32c=description.crc32c ^ 1), source, CorruptReplica)
        await refuses(store, dataclasses.replace(description, end=30), gives(whole), CorruptReplica)
        await refuses(store, dataclasses.replace(description, end=-1), source, OutOfSequence)
        await refuses(store, dataclasses.replace(description, size_bytes=-1), source, OutOfSequence)
        await refuses(store, dataclasses.replace(description, header=bytes(100_000)), source, AppendTooLarge)

        async def lost(offset: Offset) -> Buffer:
            raise StoreUnreachable("gone")

        await refuses(store, description, lost, StoreUnreachable)
        assert here(store) == before
        assert await store.append(segment(1), 10, 11, 0, [batch(10)]) == 11
        assert len({path.stem for path in files.paths() if path.parent == SEGMENTS}) == 1, "no draft is left"

    run(scenario())


def test_a_copy_that_does_not_fit_is_refused_and_leaves_what_was_here() -> None:
    async def scenario() -> None:
        source = await donor()
        files = MemoryFiles()
        store = await open_store(files, dataclasses.replace(SMALL, low_water_bytes=1000, low_water_fraction=0.5))
        await incomplete(store)
        files.capacity_bytes = files.used_bytes() + len(source.content) + 500
        assert store.free_bytes() == len(source.content) + 500
        await refuses(store, source.description, source, NoSpace)
        assert source.offsets == [], "that was known before"
        files.capacity_bytes += 1000
        files.fail("pwritev", errno.ENOSPC, name_contains=".log", passes=2)
        await refuses(store, source.description, source, NoSpace)
        assert here(store).end == 10
        await store.copy(source.description, source)
        await is_complete(store, source)

    run(scenario())


def test_a_failed_flush_of_a_copy_fails_the_store() -> None:
    async def scenario() -> None:
        source = await donor()
        files = MemoryFiles()
        store = await open_store(files)
        files.fail("sync_data", errno.EIO, name_contains=".log")
        await refuses(store, source.description, source, StoreFailed)
        with pytest.raises(StoreFailed):
            await create(store, 2)

    run(scenario())


def test_a_journal_without_room_leaves_what_was_here() -> None:
    async def scenario() -> None:
        source = await donor()
        for before in (incomplete, None):
            files = MemoryFiles()
            store = await open_store(files)
            if before is not None:
                await before(store)
            files.fail("pwritev", errno.ENOSPC, name_contains=".journal")
            await refuses(store, source.description, source, NoSpace)
            assert (store.replica(segment(1)) is None) == (before is None)
            if before is not None:
                assert await store.append(segment(1), 10, 11, 0, [batch(10)]) == 11
            await store.copy(source.description, source)
            await is_complete(store, source)

    run(scenario())


@pytest.mark.parametrize("options", [SMALL, THREADED], ids=["inline", "threads"])
def test_two_copies_of_one_segment_take_turns(options: StoreOptions) -> None:
    async def scenario() -> None:
        source = await donor()
        store = await open_store(MemoryFiles(), options)
        first, second = await asyncio.gather(
            store.copy(source.description, source), store.copy(source.description, nothing_asked)
        )
        assert first == second
        await is_complete(store, source)
        await store.close()

    run(scenario())


def test_readers_go_on_while_a_copy_takes_the_place_of_what_they_read() -> None:
    async def scenario() -> None:
        source = await donor(count=200)
        store = await open_store(MemoryFiles(), THREADED)
        await create(store)
        await fill(store, segment(1), 200, 300)
        stop = asyncio.Event()

        async def read_on() -> int:
            rounds = 0
            while not stop.is_set():
                assert await read_all(store, segment(1), max_bytes=700) == source.content
                rounds += 1
                await asyncio.sleep(0)
            return rounds

        readers = [asyncio.ensure_future(read_on()) for _ in range(4)]
        for _ in range(5):
            await store.copy(source.description, source)
        stop.set()
        assert all(rounds > 0 for rounds in await asyncio.gather(*readers))
        assert not here(store).in_doubt
        await store.close()

    run(scenario())


@pytest.mark.parametrize("options", [SMALL, THREADED], ids=["inline", "threads"])
def test_a_copy_whose_caller_goes_away_leaves_nothing_or_all_of_it(options: StoreOptions) -> None:
    async def scenario() -> None:
        source = await donor()
        for turns in range(60):
            files = MemoryFiles()
            store = await open_store(files, options)
            await incomplete(store)
            copying = asyncio.ensure_future(store.copy(source.description, source))
            for _ in range(turns):
                await asyncio.sleep(0)
            copying.cancel()
            await asyncio.wait([copying])
            if here(store).is_sealed:
                await is_complete(store, source)
            await store.copy(source.description, source)
            await is_complete(store, source)
            await store.close()
            left = {path.stem for path in files.paths() if path.parent == SEGMENTS}
            assert left == {f"{segment(1)}-{here(store).instance:x}"}

    run(scenario())


def test_what_happens_to_the_old_replica_meanwhile_does_not_harm_the_copy() -> None:
    """Fences, deletes and seals at every moment of a copy, and a kill after it."""

    async def scenario(seed: int) -> None:
        rng = random.Random(seed)
        source = await donor()
        files = MemoryFiles()
        store = await open_store(files)
        await incomplete(store)
        old = here(store)

        async def later(call: Awaitable[object]) -> None:
            for _ in range(rng.randint(0, 40)):
                await asyncio.sleep(0)
            try:
                await call
            except (Fenced, OutOfSequence, UnknownSegment):
                return

        copying = asyncio.ensure_future(store.copy(source.description, source))
        was_fenced = rng.random() < 0.5
        calls = [later(store.delete(segment(1), old.instance)), later(create(store))]
        calls += [later(store.fence(segment(1)))] if was_fenced else []
        calls += [later(store.append(segment(1), 10, 11, 0, [batch(10)])), later(store.seal(segment(1), 8))]
        rng.shuffle(calls)
        await asyncio.gather(*calls)
        try:
            await copying
        except OutOfSequence:
            await store.copy(source.description, source)
        await is_complete(store, source)
        state = here(store)
        again = await open_store(files.killed())
        await is_complete(again, source)
        assert (here(again).instance, here(again).is_fenced) == (state.instance, state.is_fenced)
        assert not was_fenced or state.is_fenced or state.instance != old.instance
        await store.close()
        await is_complete(await open_store(files), source)

    for seed in range(80):
        run(scenario(seed))


def test_files_of_a_draft_are_removed_at_the_next_start() -> None:
    async def scenario() -> None:
        source = await donor()
        files = MemoryFiles()
        store = await open_store(files)
        blocked = asyncio.Event()

        async def breaks_off(offset: Offset) -> Buffer:
            if offset > 20:
                blocked.set()
                await asyncio.Event().wait()
            return await source(offset)

        copying = asyncio.ensure_future(store.copy(source.description, breaks_off))
        await blocked.wait()
        killed = files.killed()
        assert [path for path in killed.paths() if path.parent == SEGMENTS]
        store = await open_store(killed)
        assert store.replica(segment(1)) is None
        assert not [path for path in killed.paths() if path.parent == SEGMENTS]
        await store.copy(source.description, source)
        await is_complete(store, source)
        copying.cancel()
        await asyncio.wait([copying])

    run(scenario())


def test_after_damage_a_new_copy_does_not_meet_the_files_of_an_old_draft() -> None:
    async def scenario() -> None:
        source = await donor()
        files = MemoryFiles()
        store = await open_store(files)
        await create(store, 2)
        blocked = asyncio.Event()

        async def breaks_off(offset: Offset) -> Buffer:
            if offset > 20:
                blocked.set()
                await asyncio.Event().wait()
            return await source(offset)

        copying = asyncio.ensure_future(store.copy(source.description, breaks_off))
        await blocked.wait()
        killed = files.killed()
        journal = next(path for path in killed.paths() if path.suffix == ".journal")
        content = killed.content(journal)
        killed.set_content(journal, content[:200] + b"\xff" * 100 + content[300:])
        store = await open_store(killed)
        (left,) = {path.stem for path in killed.paths() if path.parent == SEGMENTS}
        await store.copy(source.description, source)
        await is_complete(store, source)
        assert f"{segment(1)}-{here(store).instance:x}" != left
        copying.cancel()
        await asyncio.wait([copying])

    run(scenario())


@pytest.mark.parametrize("before", [None, incomplete, fenced, sealed, something_else])
def test_a_power_cut_leaves_the_old_replica_or_the_whole_new_one(before: Before | None) -> None:
    async def scenario() -> None:
        source = await donor(count=12)
        description = source.description
        files = MemoryFiles()
        options = dataclasses.replace(SMALL, journal_file_bytes=4096, journal_files=2, block_bytes=1024)
        store = await SegmentStore.open(DIRECTORY, files=files, options=options)
        if before is not None:
            await before(store)
        start = len(files.effects)
        old = store.replica(segment(1))
        old_content = b"" if old is None else await read_all(store, segment(1))
        await store.copy(description, source)
        copied = len(files.effects)
        for number in range(2, 12):  # the journal goes round, checkpoints are taken
            await create(store, number)
            await fill(store, segment(number), 1, 900)
        for effect_count in range(start, len(files.effects) + 1):
            point = files.crash_point(effect_count)
            for disk in (point.nothing_more(), point.everything(), *point.draws(effect_count, 8)):
                booted = await SegmentStore.open(DIRECTORY, files=disk, options=options)
                state = booted.replica(segment(1))
                if state is not None and (old is None or state.instance != old.instance):
                    await is_complete(booted, source)
                    # After a torn write files that nobody names are kept for one more start.
                    disk = disk.killed()
                    await SegmentStore.open(DIRECTORY, files=disk, options=options)
                    left = {path.stem for path in disk.paths() if path.stem.startswith(segment(1))}
                    assert left == {f"{segment(1)}-{state.instance:x}"}
                    continue
                assert effect_count < copied, "an acknowledged copy survives"
                assert (state is None) == (old is None)
                if state is not None and old is not None:
                    assert (state.end, state.is_fenced, state.is_sealed) == (old.end, old.is_fenced, old.is_sealed) or (
                        state.in_doubt
                    )
                    assert await read_all(booted, segment(1)) == old_content

    run(scenario())
