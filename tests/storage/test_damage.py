import dataclasses
import random
from pathlib import Path

import pytest

from headwater.model.replica import CorruptReplica, Durability, Fenced
from headwater.storage.entry import EntryKind
from headwater.storage.identity import load_or_format
from headwater.storage.segment_store import SegmentStore
from headwater.storage.state_log import Checkpoint, StateLog
from headwater.testing.fakes.files import MemoryFiles
from tests.storage.storage_samples import DIRECTORY, SMALL, batch, create, fill, open_store, read_all, run, segment

UNCOVERED = {*range(8), *range(12, 16)}
"""Bytes of a batch that its own checksum leaves out: offset and epoch. The index covers them, the batch cannot."""

BOTH = pytest.mark.parametrize("durability", list(Durability))


def only(files: MemoryFiles, suffix: str) -> Path:
    (path,) = [path for path in files.paths() if path.name.endswith(suffix)]
    return path


async def closed_store(durability: Durability, *, sealed: bool = False) -> tuple[MemoryFiles, bytes]:
    files = MemoryFiles()
    store = await open_store(files)
    name = await create(store, durability=durability)
    written = await fill(store, name, 100)
    if sealed:
        await store.seal(name, 100)
    await store.close()
    return files, written


@BOTH
@pytest.mark.parametrize(
    "damage", ["deleted", "cut", "cut inside an entry", "flipped", "of another segment", "too long"]
)
@pytest.mark.parametrize("sealed", [False, True], ids=["open", "sealed"])
def test_an_index_that_is_missing_or_wrong_is_built_again(durability: Durability, damage: str, sealed: bool) -> None:
    async def scenario() -> None:
        files, written = await closed_store(durability, sealed=sealed)
        path = only(files, ".index")
        content = files.content(path)
        assert len(content) >= 4 * 44
        if damage == "deleted":
            files.unlink(path)
        elif damage == "cut":
            files.set_content(path, content[: 2 * 44])
        elif damage == "cut inside an entry":
            files.set_content(path, content[: 2 * 44 + 13])
        elif damage == "flipped":
            files.flip_bit(path, 8 * 50)
        elif damage == "of another segment":
            files.set_content(path, bytes(len(content)))
        else:
            files.set_content(path, content + content[-44:])
        for _ in range(2):
            store = await open_store(files.killed())
            assert await read_all(store, segment(1)) == written
            assert await read_all(store, segment(1), max_bytes=700) == written
            assert await store.find_timestamp(segment(1), 1050) == 50
            state = store.replica(segment(1))
            assert state is not None
            assert not state.in_doubt
            if not sealed:
                more = await fill(store, segment(1), 100, first=100)
                assert await read_all(store, segment(1)) == written + more

    run(scenario())


@BOTH
def test_every_flipped_bit_of_a_segment_is_noticed_by_whoever_reads_it(durability: Durability) -> None:
    async def scenario() -> None:
        pristine, written = await closed_store(durability, sealed=True)
        rng = random.Random(5)
        header_bits = [8 * 120 * 33 + bit for bit in range(8 * 61)]
        for bit in rng.sample(range(8 * len(written)), 150) + rng.sample(header_bits, 100):
            files = pristine.killed()
            files.flip_bit(only(files, ".log"), bit)
            store = await open_store(files)
            offset = bit // 8 // 120
            with pytest.raises(CorruptReplica):
                await store.read(segment(1), offset, 100, 1)
            with pytest.raises(CorruptReplica):
                await read_all(store, segment(1))
            state = store.replica(segment(1))
            assert state is not None
            assert state.in_doubt, "a damaged replica has no say in what was committed"

    run(scenario())


def test_a_sealed_segment_whose_index_is_gone_is_held_against_its_checksum() -> None:
    async def scenario() -> None:
        files, _ = await closed_store(Durability.SYNC, sealed=True)
        files.unlink(only(files, ".index"))
        files.flip_bit(only(files, ".log"), 8 * (120 * 50 + 15))
        store = await open_store(files)
        with pytest.raises(CorruptReplica):
            await store.read(segment(1), 0, 100, 1)
        with pytest.raises(CorruptReplica):
            await store.find_timestamp(segment(1), 0)

    run(scenario())


@BOTH
def test_a_flipped_bit_in_an_open_segment_cuts_it_there_or_is_noticed_on_read(durability: Durability) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store, durability=durability)
        written = await fill(store, name, 100)
        rng = random.Random(7)
        for bit in rng.sample(range(8 * len(written)), 150):
            if bit // 8 % 120 in UNCOVERED and durability is Durability.OS:
                continue
            damaged = files.killed()
            damaged.flip_bit(only(damaged, ".log"), bit)
            store = await open_store(damaged)
            state = await store.fence(name)
            if durability is Durability.SYNC:
                assert await read_all(store, name) == written, "the journal still has it all"
                continue
            try:
                found = await read_all(store, name)
            except CorruptReplica:
                found = b""
            assert written.startswith(found)
            assert state.in_doubt or found in (b"", written)

    run(scenario())


def test_a_segment_file_that_lost_its_end_is_fenced_and_in_doubt() -> None:
    async def scenario() -> None:
        files, written = await closed_store(Durability.SYNC)
        path = only(files, ".log")
        files.set_content(path, files.content(path)[:-150])
        store = await open_store(files)
        with pytest.raises(Fenced):
            await store.append(segment(1), 100, 101, 0, [batch(100)])
        state = await store.fence(segment(1))
        assert (state.end, state.in_doubt, state.is_fenced, state.lac) == (98, True, True, 98)
        assert await read_all(store, segment(1)) == written[: 98 * 120]
        store = await open_store(files.killed())
        assert (await store.fence(segment(1))).end == 98

    run(scenario())


def test_a_segment_file_that_is_gone_leaves_an_empty_doubtful_replica() -> None:
    async def scenario() -> None:
        files, _ = await closed_store(Durability.SYNC)
        files.unlink(only(files, ".log"))
        files.unlink(only(files, ".index"))
        store = await open_store(files)
        state = await store.fence(segment(1))
        assert (state.end, state.size_bytes, state.in_doubt) == (0, 0, True)

    run(scenario())


def test_a_damaged_journal_fences_and_doubts_all_open_replicas_and_keeps_what_can_be_read() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        first, second = await create(store, 1), await create(store, 2)
        written = await fill(store, first, 5)
        at = files.content(DIRECTORY / "0.journal").rfind(batch(4, timestamp=1004)[60:])
        await fill(store, second, 5)
        files = files.killed()
        files.flip_bit(DIRECTORY / "0.journal", 8 * at)
        store = await open_store(files)
        states = {state.segment: state for state in store.replicas()}
        assert states[first].end == 4
        assert states[second].end == 5
        assert all(state.in_doubt and state.is_fenced for state in states.values())
        assert await read_all(store, first) == written[: 4 * 120]
        store = await open_store(files.killed())
        assert all(state.in_doubt and state.is_fenced for state in store.replicas())

    run(scenario())


@pytest.mark.parametrize("seed", range(4))
def test_flipped_bits_in_journal_or_checkpoint_never_lose_data_without_doubt(seed: int) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        options = dataclasses.replace(SMALL, journal_file_bytes=8192, journal_files=2)
        store = await open_store(files, options)
        names = [await create(store, number) for number in (1, 2)]
        written = {name: await fill(store, name, 40) for name in names}
        await store.fence(names[1])
        rng = random.Random(seed)
        journal_files = [path for path in files.paths() if path.suffix == ".journal"]
        for path in rng.choices([*journal_files, DIRECTORY / "state"], k=60):
            damaged = files.killed()
            damaged.flip_bit(path, rng.randrange(8 * len(damaged.content(path))))
            store = await open_store(damaged, options)
            for name in names:
                state = await store.fence(name)
                found = await read_all(store, name)
                assert written[name].startswith(found)
                assert state.in_doubt or found == written[name]

    run(scenario())


def test_garbage_behind_the_journal_is_a_torn_write() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store)
        written = await fill(store, name, 5)
        at = files.content(DIRECTORY / "0.journal").rfind(batch(4, timestamp=1004)) + 120
        files = files.killed()
        content = bytearray(files.content(DIRECTORY / "0.journal"))
        content[at : at + 50] = b"x" * 50
        files.set_content(DIRECTORY / "0.journal", bytes(content))
        store = await open_store(files)
        state = await store.fence(name)
        assert (state.end, state.in_doubt) == (5, True)
        assert await read_all(store, name) == written

    run(scenario())


def test_a_replica_sealed_in_the_checkpoint_ignores_appends_that_the_journal_still_has() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store)
        written = await fill(store, name, 10)
        await store.seal(name, 6)
        files = files.killed()
        state_log = StateLog(files, DIRECTORY / "state", load_or_format(files, DIRECTORY).salt)
        loaded = state_log.load()
        assert loaded.checkpoint is not None
        sealed = store._replicas[name].to_entry()
        assert sealed.kind == EntryKind.STATE
        checkpoint = loaded.checkpoint
        state_log.append([sealed], Checkpoint(checkpoint.first_generation, checkpoint.first_group, 2, "boot-0"))
        store = await open_store(files)
        state = store.replica(name)
        assert state is not None
        assert (state.end, state.is_sealed) == (6, True)
        assert await read_all(store, name) == written[: 6 * 120]

    run(scenario())


def test_entries_of_a_replica_that_was_deleted_do_not_touch_the_one_that_came_after_it() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store)
        await fill(store, name, 5)
        await store.delete(name, 1)
        await create(store)
        files = files.killed()
        state_log = StateLog(files, DIRECTORY / "state", load_or_format(files, DIRECTORY).salt)
        checkpoint = state_log.load().checkpoint
        assert checkpoint is not None
        second = store._replicas[name].to_entry()
        state_log.append([second], Checkpoint(checkpoint.first_generation, checkpoint.first_group, 3, "boot-0"))
        store = await open_store(files)
        state = store.replica(name)
        assert state is not None
        assert (state.instance, state.end, state.size_bytes, state.in_doubt) == (2, 0, 0, False)

    run(scenario())


def test_after_a_new_boot_every_open_replica_in_os_mode_is_in_doubt() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store, durability=Durability.OS)
        sealed = await create(store, 2, Durability.OS)
        written = await fill(store, name, 10)
        await fill(store, sealed, 10)
        await store.seal(sealed, 10)
        disk = files.crash_point().everything()
        store = await open_store(disk)
        states = {state.segment: state for state in store.replicas()}
        assert states[name].in_doubt
        assert not states[sealed].in_doubt
        assert await read_all(store, name) == written
        await store.close()
        store = await open_store(disk.crash_point().nothing_more())
        assert await read_all(store, name) == written

    run(scenario())


def test_after_a_clean_close_a_new_boot_casts_no_doubt() -> None:
    async def scenario() -> None:
        files, written = await closed_store(Durability.OS)
        store = await open_store(files.crash_point().nothing_more())
        state = store.replica(segment(1))
        assert state is not None
        assert not state.in_doubt
        assert await read_all(store, segment(1)) == written

    run(scenario())


def test_in_os_mode_data_is_not_in_the_journal() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await SegmentStore.open(DIRECTORY, files=files, options=SMALL)
        name = await create(store, durability=Durability.OS)
        before = files.counts["sync_data"]
        await fill(store, name, 10)
        large = batch(10, size_bytes=100_000)
        assert await store.append(name, 10, 11, 0, [large]) == 11
        assert files.counts["sync_data"] == before
        journals = b"".join(files.content(path) for path in files.paths() if path.suffix == ".journal")
        assert batch(3, timestamp=1003)[61:] not in journals
        assert large[61:200] not in journals

    run(scenario())
