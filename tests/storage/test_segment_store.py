import asyncio
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from headwater.model.replica import (
    AppendTooLarge,
    Durability,
    Fenced,
    OutOfSequence,
    StoreFailed,
    UnknownSegment,
    UnsoundBatch,
)
from headwater.storage.files import DirectoryInUse
from headwater.storage.identity import UnreadableStore
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.testing.fakes.files import MemoryFiles
from tests.storage.storage_samples import (
    DIRECTORY,
    SEGMENTS,
    SMALL,
    bases,
    batch,
    create,
    fill,
    open_store,
    read_all,
    run,
    segment,
)

BOTH = pytest.mark.parametrize("durability", list(Durability))
THREADED = dataclasses.replace(SMALL, runs_inline=False)


@BOTH
@pytest.mark.parametrize("options", [SMALL, THREADED], ids=["inline", "threads"])
def test_what_was_appended_is_read_back_byte_for_byte(durability: Durability, options: StoreOptions) -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles(), options)
        name = await create(store, durability=durability)
        written = await fill(store, name, 100)
        assert await read_all(store, name) == written
        assert await read_all(store, name, max_bytes=500) == written
        await store.close()

    run(scenario())


@BOTH
def test_a_store_on_real_files_survives_a_restart(tmp_path: Path, durability: Durability) -> None:
    options = dataclasses.replace(THREADED, reserve_bytes=4096)

    async def scenario() -> None:
        store = await SegmentStore.open(tmp_path, options=options)
        store_id = store.store_id
        name = await create(store, durability=durability)
        written = await fill(store, name, 300, size_bytes=900)
        await store.close()
        store = await SegmentStore.open(tmp_path, options=options)
        assert store.store_id == store_id
        assert await read_all(store, name) == written
        state = store.replica(name)
        assert state is not None
        assert (state.end, state.header, state.in_doubt, state.max_timestamp) == (300, b"header", False, 1299)
        await fill(store, name, 10, first=300)
        await store.close()

    run(scenario())


@BOTH
def test_a_killed_store_has_everything_it_acknowledged(durability: Durability) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store, durability=durability)
        written = await fill(store, name, 50)
        store = await open_store(files.killed())
        state = store.replica(name)
        assert state is not None
        assert (state.end, state.size_bytes, state.in_doubt, state.is_fenced) == (50, len(written), False, False)
        assert await read_all(store, name) == written
        written += await fill(store, name, 50, first=50)
        assert await read_all(store, name) == written

    run(scenario())


def test_one_flush_serves_all_appends_that_wait() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        names = [await create(store, number) for number in range(1, 21)]
        before = files.counts["sync_data"]
        await asyncio.gather(*(store.append(name, 0, 1, 0, [batch(0)]) for name in names))
        assert files.counts["sync_data"] - before == 1

    run(scenario())


def test_a_thousand_concurrent_appends_take_far_fewer_flushes() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        options = dataclasses.replace(THREADED, journal_file_bytes=1 << 20)
        store = await open_store(files, options)
        names = [await create(store, number) for number in range(1, 101)]
        before = files.counts["sync_data"]
        await asyncio.gather(*(fill(store, name, 10) for name in names))
        assert files.counts["sync_data"] - before < 300
        for name in names:
            assert len(await read_all(store, name)) == 1200
        await store.close()

    run(scenario())


def test_appends_of_one_caller_may_overlap_in_time_and_keep_their_order() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles(), THREADED)
        name = await create(store)
        batches = [batch(offset) for offset in range(200)]
        ends = await asyncio.gather(
            *(store.append(name, offset, offset + 1, offset, [batches[offset]]) for offset in range(200))
        )
        assert ends[-1] == 200
        assert ends == sorted(ends)
        assert await read_all(store, name) == b"".join(batches)
        await store.close()

    run(scenario())


def test_creating_thousands_of_replicas_makes_no_files_and_few_flushes() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files, dataclasses.replace(SMALL, journal_file_bytes=1 << 20))
        before = files.counts["sync_data"]
        await asyncio.gather(*(create(store, number) for number in range(1, 5001)))
        assert files.counts["sync_data"] - before <= 8
        assert not [path for path in files.paths() if path.parent == SEGMENTS]
        await store.close()
        store = await open_store(files)
        assert len(store.replicas()) == 5000

    run(scenario())


def test_more_segments_than_descriptors_can_be_written_and_read() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles(), THREADED)
        names = [await create(store, number) for number in range(1, 41)]
        for _ in range(2):
            for name in names:
                state = store.replica(name)
                assert state is not None
                await fill(store, name, 2, first=state.end)
        for name in names:
            assert bases(await store.read(name, 0, 4, 1000)) == [0, 1, 2, 3]
        await store.close()

    run(scenario())


def test_a_fence_refuses_appends_and_outlives_a_kill() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store)
        await fill(store, name, 5)
        state = await store.fence(name)
        assert (state.end, state.lac, state.is_fenced, state.in_doubt, state.header) == (5, 4, True, False, b"header")
        with pytest.raises(Fenced):
            await store.append(name, 5, 6, 5, [batch(5)])
        store = await open_store(files.killed())
        with pytest.raises(Fenced):
            await store.append(name, 5, 6, 5, [batch(5)])
        assert (await store.fence(name)).end == 5
        with pytest.raises(Fenced):
            await create(store)

    run(scenario())


def test_a_fence_answers_with_the_appends_that_were_before_it() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles(), THREADED)
        name = await create(store)
        appends = [asyncio.ensure_future(store.append(name, n, n + 1, 0, [batch(n)])) for n in range(10)]
        await asyncio.sleep(0)
        state = await store.fence(name)
        assert state.end == 10
        assert await asyncio.gather(*appends) == sorted(await asyncio.gather(*appends))
        await store.close()

    run(scenario())


def test_fencing_an_unknown_segment_leaves_a_tombstone_that_a_late_create_cannot_wake() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        state = await store.fence(segment(9))
        assert (state.is_fenced, state.in_doubt, state.end) == (True, True, 0)
        for later in (store, await open_store(files.killed())):
            with pytest.raises(Fenced):
                await create(later, 9)
            with pytest.raises(Fenced):
                await later.append(segment(9), 0, 1, 0, [batch(0)])

    run(scenario())


def test_an_identical_create_is_harmless_and_a_different_one_refused() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        await asyncio.gather(create(store), create(store))
        with pytest.raises(OutOfSequence):
            await store.create(segment(1), "other", 0, 3, b"header", Durability.SYNC)
        assert len(store.replicas()) == 1
        with pytest.raises(ValueError, match="32 hex digits"):
            await store.fence(type(segment(1))("../../etc/passwd"))

    run(scenario())


@BOTH
def test_resending_is_harmless(durability: Durability) -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        name = await create(store, durability=durability)
        written = await fill(store, name, 10)
        rows = [batch(offset, timestamp=1_000 + offset) for offset in range(20)]
        assert await store.append(name, 3, 6, 0, rows[3:6]) == 10
        assert await store.append(name, 8, 12, 0, rows[8:12]) == 12
        both = await asyncio.gather(
            store.append(name, 12, 14, 0, rows[12:14]), store.append(name, 12, 15, 0, rows[12:15])
        )
        assert list(both) == [14, 15]
        assert await read_all(store, name) == written + b"".join(rows[10:15])

    run(scenario())


def test_a_resend_that_differs_and_a_gap_are_refused() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        name = await create(store)
        written = await fill(store, name, 10)
        with pytest.raises(OutOfSequence):
            await store.append(name, 3, 4, 0, [batch(3, seed=1)])
        with pytest.raises(OutOfSequence):
            await store.append(name, 11, 12, 0, [batch(11)])
        with pytest.raises(OutOfSequence):
            await store.append(name, -1, 12, 0, [batch(11)])
        assert await read_all(store, name) == written
        assert await store.append(name, 10, 11, 0, [batch(10)]) == 11

    run(scenario())


def test_bytes_that_are_not_sound_batches_are_refused() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        name = await create(store)
        good = batch(0)
        for bad in (b"x", good[:-1], good + b"\0", good[:70] + b"\xff" + good[71:], batch(5) + batch(4)):
            with pytest.raises(UnsoundBatch):
                await store.append(name, 0, 6, 0, [bad])
        with pytest.raises(UnsoundBatch):
            await store.append(name, 0, 1, 0, [batch(0, count=2)])
        with pytest.raises(AppendTooLarge):
            await store.append(name, 0, 1, 0, [batch(0, size_bytes=SMALL.journal_file_bytes)])
        assert await store.append(name, 0, 1, 0, [good]) == 1

    run(scenario())


def test_an_empty_append_tells_the_leader_of_the_end_and_the_store_of_the_watermark() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        name = await create(store)
        await fill(store, name, 4)
        assert await store.append(name, 4, 4, 4, []) == 4
        state = store.replica(name)
        assert state is not None
        assert state.lac == 4

    run(scenario())


def test_a_read_returns_whole_batches_from_the_one_that_holds_the_offset() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        name = await create(store)
        rows = [batch(base, count=10, size_bytes=200) for base in range(0, 1000, 10)]
        for row, base in zip(rows, range(0, 1000, 10), strict=True):
            await store.append(name, base, base + 10, 0, [row])
        assert bases(await store.read(name, 455, 1000, 1)) == [450]
        assert bases(await store.read(name, 455, 1000, 450)) == [450, 460]
        assert bases(await store.read(name, 455, 480, 10_000)) == [450, 460, 470]
        assert bases(await store.read(name, 455, 479, 10_000)) == [450, 460]
        assert await store.read(name, 455, 459, 10_000) == b""
        assert await store.read(name, 1000, 2000, 10_000) == b""
        assert await store.read(name, 990, 5000, 10_000) == rows[-1]
        assert await read_all(store, name, max_bytes=1) == b"".join(rows)

    run(scenario())


def test_offsets_that_compaction_removed_are_read_from_the_next_batch_on() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        name = await create(store)
        await store.append(name, 0, 100, 0, [batch(10), batch(50, size_bytes=3000)])
        await store.append(name, 100, 300, 0, [batch(150)])
        assert bases(await store.read(name, 0, 300, 1)) == [10]
        assert bases(await store.read(name, 11, 300, 1)) == [50]
        assert bases(await store.read(name, 51, 300, 10_000)) == [150]
        assert await store.read(name, 151, 300, 10_000) == b""
        assert (await store.seal(name, 300)).end == 300

    run(scenario())


def test_the_first_batch_at_or_after_a_time_is_found() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        name = await create(store)
        assert await store.find_timestamp(name, 0) is None
        for offset, timestamp in enumerate([100, 300, 200, 400] * 30):
            await store.append(name, offset, offset + 1, 0, [batch(offset, timestamp=timestamp + offset)])
        assert await store.find_timestamp(name, 0) == 0
        assert await store.find_timestamp(name, 301) == 1
        assert await store.find_timestamp(name, 302) == 3
        assert await store.find_timestamp(name, 519) == 119
        assert await store.find_timestamp(name, 520) is None
        assert store.max_timestamp(name) == 519

    run(scenario())


@BOTH
def test_sealing_drops_what_is_past_the_end_and_measures_the_rest(durability: Durability) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store, durability=durability)
        written = await fill(store, name, 100)
        sealed = await store.seal(name, 60)
        assert (sealed.end, sealed.size_bytes, sealed.max_timestamp) == (60, 60 * 120, 1059)
        assert await store.seal(name, 60) == sealed
        with pytest.raises(OutOfSequence):
            await store.seal(name, 50)
        with pytest.raises(Fenced):
            await store.append(name, 60, 61, 0, [batch(60)])
        for later in (store, await open_store(files.killed())):
            state = later.replica(name)
            assert state is not None
            assert (state.is_sealed, state.end, state.lac) == (True, 60, 60)
            assert await read_all(later, name) == written[: 60 * 120]
            assert await later.seal(name, 60) == sealed

    run(scenario())


def test_a_replica_cannot_be_sealed_past_its_end_or_inside_a_batch() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        name = await create(store)
        await store.append(name, 0, 10, 0, [batch(0, count=10)])
        for end in (11, 5, -1):
            with pytest.raises(OutOfSequence):
                await store.seal(name, end)
        assert await store.append(name, 10, 11, 0, [batch(10)]) == 11
        assert (await store.seal(name, 10)).size_bytes == 120

    run(scenario())


def test_an_empty_replica_can_be_sealed() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        name = await create(store)
        assert (await store.seal(name, 0)).size_bytes == 0
        await store.close()

    run(scenario())


def test_deleting_takes_the_instance_that_was_looked_at_and_no_other() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store)
        await fill(store, name, 40)
        state = store.replica(name)
        assert state is not None
        await store.delete(name, state.instance + 1)
        assert store.replica(name) is not None
        await store.delete(name, state.instance)
        assert store.replica(name) is None
        assert not [path for path in files.paths() if path.parent == SEGMENTS]
        with pytest.raises(UnknownSegment):
            await store.read(name, 0, 1, 1)
        await create(store)
        again = store.replica(name)
        assert again is not None
        assert again.instance > state.instance
        await store.delete(name, state.instance)
        assert store.replica(name) is not None
        store = await open_store(files.killed())
        again = store.replica(name)
        assert again is not None
        assert (again.end, await store.read(name, 0, 40, 1000)) == (0, b"")

    run(scenario())


def test_files_of_a_deleted_replica_that_a_crash_left_are_removed() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        await create(store)
        orphan = SEGMENTS / f"{segment(7)}-7.log"
        files.close(files.open(orphan, create=True))
        files = files.killed()
        await open_store(files)
        assert orphan not in files.paths()

    run(scenario())


def test_two_processes_cannot_open_one_directory(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = await SegmentStore.open(tmp_path, options=THREADED)
        with pytest.raises(DirectoryInUse, match="in use by another process"):
            await SegmentStore.open(tmp_path, options=THREADED)
        await store.close()
        await (await SegmentStore.open(tmp_path, options=THREADED)).close()

    run(scenario())


def test_a_directory_of_another_format_or_without_identity_is_refused() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        await (await open_store(files)).close()
        files.set_content(DIRECTORY / "store.json", b'{"format": 99, "store_id": "ab", "salt": 1}')
        with pytest.raises(UnreadableStore, match="format 99"):
            await open_store(files)
        files.set_content(DIRECTORY / "store.json", b"{")
        with pytest.raises(UnreadableStore):
            await open_store(files)
        files.unlink(DIRECTORY / "store.json")
        with pytest.raises(UnreadableStore, match="but no store"):
            await open_store(files)

    run(scenario())


def test_a_closed_store_answers_nothing() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles())
        name = await create(store)
        await store.close()
        await store.close()
        with pytest.raises(StoreFailed, match="closed"):
            await store.append(name, 0, 1, 0, [batch(0)])
        with pytest.raises(StoreFailed, match="closed"):
            await store.read(name, 0, 1, 1)

    run(scenario())


def test_appends_beyond_the_queue_wait_their_turn_in_order() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles(), dataclasses.replace(THREADED, max_queued_bytes=300))
        name = await create(store)
        ends = await asyncio.gather(*(store.append(name, n, n + 1, 0, [batch(n)]) for n in range(50)))
        assert ends[-1] == 50
        assert bases(await read_all(store, name)) == list(range(50))
        await store.close()

    run(scenario())


def test_a_caller_that_goes_away_leaves_its_append_in_place() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles(), THREADED)
        name = await create(store)
        task = asyncio.ensure_future(store.append(name, 0, 1, 0, [batch(0)]))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await store.append(name, 1, 2, 0, [batch(1)]) == 2
        assert bases(await read_all(store, name)) == [0, 1]
        await store.close()

    run(scenario())


def test_an_append_behind_a_resend_waits_for_it() -> None:
    async def scenario() -> None:
        store = await open_store(MemoryFiles(), THREADED)
        name = await create(store)
        rows = [batch(offset, timestamp=1_000 + offset) for offset in range(10)]
        await fill(store, name, 4)
        ends = await asyncio.gather(
            store.append(name, 2, 6, 0, rows[2:6]),
            store.append(name, 6, 7, 0, rows[6:7]),
            store.append(name, 7, 9, 0, rows[7:9]),
            store.append(name, 5, 10, 0, rows[5:10]),
        )
        assert list(ends) == [6, 7, 9, 10]
        assert await read_all(store, name) == b"".join(rows)
        await store.close()

    run(scenario())


@BOTH
def test_offsets_without_any_batch_can_be_appended(durability: Durability) -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files)
        name = await create(store, durability=durability)
        assert await store.append(name, 0, 50, 0, []) == 50
        assert await store.append(name, 50, 60, 0, [batch(55)]) == 60
        assert await store.append(name, 60, 80, 0, []) == 80
        if durability is Durability.SYNC:
            state = (await open_store(files.killed())).replica(name)
            assert state is not None
            assert (state.end, state.in_doubt) == (80, False)
        assert bases(await store.read(name, 0, 80, 1000)) == [55]
        sealed = await store.seal(name, 80)
        assert (sealed.end, sealed.size_bytes) == (80, 120)
        await store.close()

    run(scenario())


def test_a_process_that_is_killed_while_it_appends_has_kept_what_it_acknowledged(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from pathlib import Path
from tests.storage.storage_samples import batch, create
from headwater.model.replica import Durability
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore

async def main():
    options = StoreOptions(journal_file_bytes=65536, journal_files=2, block_bytes=4096, reserve_bytes=0)
    store = await SegmentStore.open(Path(sys.argv[1]), options=options)
    names = [await create(store, 1), await create(store, 2, Durability.OS)]
    offset = 0
    while True:
        for name in names:
            await store.append(name, offset, offset + 1, offset, [batch(offset, size_bytes=500)])
        offset += 1
        print(offset, flush=True)

asyncio.run(main())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)], stdout=subprocess.PIPE, text=True, env=environment
    )
    with process:
        assert process.stdout is not None
        acknowledged = 0
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged >= 400:
                process.kill()
                break
        acknowledged = max([acknowledged, *(int(line) for line in process.stdout if line.endswith("\n"))])

    async def scenario() -> None:
        store = await SegmentStore.open(tmp_path, options=dataclasses.replace(THREADED, block_bytes=4096))
        for number in (1, 2):
            state = await store.fence(segment(number))
            assert state.end >= acknowledged
            found = await read_all(store, segment(number))
            assert found == b"".join(batch(offset, size_bytes=500) for offset in range(state.end))
        await store.close()

    run(scenario())


def test_what_happens_to_a_deleted_replica_later_does_not_bring_it_back() -> None:
    async def scenario() -> None:
        files = MemoryFiles()
        store = await open_store(files, THREADED)
        name = await create(store)
        await fill(store, name, 5)
        await asyncio.gather(store.delete(name, 1), store.fence(name))
        state = store.replica(name)
        assert state is not None
        assert (state.instance, state.is_fenced, state.end) == (2, True, 0)
        await store.close()
        store = await open_store(files)
        assert [(state.instance, state.is_fenced, state.end) for state in store.replicas()] == [(2, True, 0)]

    run(scenario())


def test_reads_go_on_while_a_segment_is_sealed_and_cut() -> None:
    async def scenario() -> None:
        options = dataclasses.replace(THREADED, inline_read_bytes=0)
        for _ in range(20):
            store = await open_store(MemoryFiles(), options)
            name = await create(store)
            written = await fill(store, name, 30)
            reads = [asyncio.ensure_future(store.read(name, 10, 20, 10_000)) for _ in range(10)]
            _, *answers = await asyncio.gather(store.seal(name, 20), *reads)
            assert all(answer == written[10 * 120 : 20 * 120] for answer in answers)
            state = store.replica(name)
            assert state is not None
            assert not state.in_doubt
            await store.close()

    run(scenario())
