"""Cuts the power after every effect of the store on its disk, and boots on what may be left: docs/reliability.md, 3."""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import pytest

from headwater.model.ids import SegmentId
from headwater.model.replica import Durability
from headwater.storage.options import StoreOptions
from headwater.storage.segment_store import SegmentStore
from headwater.testing.fakes.files import MemoryFiles
from tests.storage.storage_samples import DIRECTORY, KIB, SMALL, batch, read_all, run, segment

DRAWS = 12
SEEDS = 8


@dataclass
class Fate:
    """What a test did to one segment: for each fact, after how many effects it was begun and acknowledged."""

    durability: Durability
    written: bytes = b""
    ends: dict[int, int] = field(default_factory=dict)
    """Size in bytes of everything up to an offset."""
    begun: dict[str, int] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    acked_ends: list[tuple[int, int]] = field(default_factory=list)
    sealed_end: int | None = None

    def has(self, facts: dict[str, int], fact: str, effect_count: int) -> bool:
        return fact in facts and facts[fact] <= effect_count

    def acked_end(self, effect_count: int) -> int:
        return max((end for at, end in self.acked_ends if at <= effect_count), default=0)


class Recorder:
    """Drives a store and keeps the history that its disk is later held against."""

    def __init__(self, options: StoreOptions) -> None:
        self.files = MemoryFiles()
        self.options = options
        self.fates: dict[SegmentId, Fate] = {}
        self.store: SegmentStore
        self.closed: list[tuple[int, int]] = []
        """From when a close was begun to when the store was open again."""

    async def open(self) -> None:
        self.store = await SegmentStore.open(DIRECTORY, files=self.files, options=self.options)
        if self.closed:
            self.closed[-1] = (self.closed[-1][0], len(self.files.effects))

    async def create(self, number: int, durability: Durability = Durability.SYNC) -> None:
        fate = self.fates[segment(number)] = Fate(durability)
        await self._do(fate, "created", self.store.create(segment(number), "p", 0, 1, b"h" * 30, durability))

    async def append(self, number: int, count: int = 1, size_bytes: int = 400) -> None:
        fate = self.fates[segment(number)]
        first = max(fate.ends, default=0)
        rows = [batch(offset, size_bytes=size_bytes) for offset in range(first, first + count)]
        for offset, row in enumerate(rows, first):
            fate.written += row
            fate.ends[offset + 1] = len(fate.written)
        end = await self.store.append(segment(number), first, first + count, first, rows)
        fate.acked_ends.append((len(self.files.effects), end))

    async def fence(self, number: int) -> None:
        fate = self.fates.setdefault(segment(number), Fate(Durability.SYNC))
        await self._do(fate, "fenced", self.store.fence(segment(number)))

    async def seal(self, number: int, end: int) -> None:
        fate = self.fates[segment(number)]
        fate.sealed_end = end
        await self._do(fate, "sealed", self.store.seal(segment(number), end))

    async def delete(self, number: int) -> None:
        state = self.store.replica(segment(number))
        assert state is not None
        await self._do(self.fates[segment(number)], "deleted", self.store.delete(segment(number), state.instance))

    async def close(self) -> None:
        self.closed.append((len(self.files.effects), 1 << 62))
        await self.store.close()

    async def _do(self, fate: Fate, fact: str, call: Awaitable[object]) -> None:
        fate.begun[fact] = len(self.files.effects)
        await call
        fate.acked[fact] = len(self.files.effects)

    async def check(self, disk: MemoryFiles, effect_count: int) -> None:
        """Boot on a disk that lost its power after so many effects, and look at every segment."""
        store = await SegmentStore.open(DIRECTORY, files=disk, options=self.options)
        for name, fate in self.fates.items():
            await self._check_fate(store, name, fate, effect_count)
        # The next cut comes right after the boot: what was recovered must be there to stay.
        again = await SegmentStore.open(DIRECTORY, files=disk.crash_point().nothing_more(), options=self.options)
        for name in self.fates:
            before, after = store.replica(name), again.replica(name)
            assert (before is None) == (after is None)
            if before is not None and after is not None:
                assert (before.end, before.is_fenced) == (after.end, after.is_fenced)
                assert await read_all(store, name) == await read_all(again, name)

    async def _check_fate(self, store: SegmentStore, name: SegmentId, fate: Fate, at: int) -> None:
        state = store.replica(name)
        if fate.has(fate.acked, "deleted", at):
            assert state is None, "a deleted replica is gone"
            return
        if state is None:
            may_be_missing = not fate.has(fate.acked, "created", at) and not fate.has(fate.acked, "fenced", at)
            assert may_be_missing or fate.has(fate.begun, "deleted", at), "an acknowledged create survives"
            return
        assert await read_all(store, name) == fate.written[: state.size_bytes], "a prefix of what was written (I5)"
        assert state.size_bytes == fate.ends.get(state.end, 0)
        if fate.has(fate.acked, "fenced", at):
            assert state.is_fenced, "an acknowledged fence survives (I11)"
        if fate.has(fate.acked, "sealed", at):
            assert (state.is_sealed, state.end) == (True, fate.sealed_end)
        elif fate.durability is Durability.SYNC:
            floor = fate.acked_end(at)
            if fate.has(fate.begun, "sealed", at) and fate.sealed_end is not None:
                floor = min(floor, fate.sealed_end)
            assert state.end >= floor, "an acknowledged append survives (I11)"
        else:
            is_closed = any(begun <= at <= reopened for begun, reopened in self.closed)
            assert state.in_doubt or state.is_sealed or is_closed, "in os mode nobody knows what is missing"
            assert state.in_doubt or state.is_sealed or state.end >= fate.acked_end(at)
        if state.is_fenced and not state.in_doubt:
            assert fate.has(fate.begun, "fenced", at)


async def cut_everywhere(recorder: Recorder, draws: int = DRAWS) -> int:
    """Cut after every effect; return the number of disks that were booted."""
    booted = 0
    for effect_count in range(len(recorder.files.effects) + 1):
        point = recorder.files.crash_point(effect_count)
        for disk in (point.nothing_more(), point.everything(), *point.draws(effect_count, draws)):
            await recorder.check(disk, effect_count)
            booted += 1
    return booted


TINY = dataclasses.replace(SMALL, journal_file_bytes=4 * KIB, journal_files=2, block_bytes=1 * KIB)


async def appends_and_fences(recorder: Recorder) -> None:
    await recorder.open()
    await recorder.create(1)
    await recorder.append(1)
    await asyncio.gather(recorder.create(2), recorder.append(1, count=2))
    await asyncio.gather(recorder.append(1), recorder.append(2), recorder.fence(3))
    await recorder.fence(1)
    await recorder.append(2, size_bytes=1500)


async def recycling(recorder: Recorder) -> None:
    await recorder.open()
    await recorder.create(1)
    for number in range(9):
        await recorder.append(1, size_bytes=1200)
        if number == 4:
            await recorder.create(2)
            await recorder.fence(1 if number > 5 else 7)
        if number > 5:
            await recorder.append(2, size_bytes=300)
    await recorder.fence(2)


async def seals_and_deletes(recorder: Recorder) -> None:
    await recorder.open()
    await recorder.create(1)
    await recorder.create(2)
    await recorder.append(1, count=4, size_bytes=500)
    await recorder.append(2, count=2)
    await recorder.seal(1, 3)
    await recorder.append(2, count=2, size_bytes=900)
    await recorder.append(2, size_bytes=900)
    await recorder.delete(1)
    await recorder.fence(2)
    await recorder.seal(2, 4)
    await recorder.create(3)
    await recorder.append(3, count=2, size_bytes=1300)
    await recorder.seal(3, 1)
    await recorder.create(4)
    await recorder.append(4, count=2, size_bytes=500)


async def closing(recorder: Recorder) -> None:
    await recorder.open()
    await recorder.create(1)
    await recorder.append(1, count=3)
    await recorder.close()
    await recorder.open()
    await recorder.append(1, count=3)
    await recorder.close()


async def os_mode(recorder: Recorder) -> None:
    await recorder.open()
    await recorder.create(1, Durability.OS)
    await recorder.create(2)
    for _ in range(3):
        await recorder.append(1, count=3, size_bytes=500)
        await recorder.append(2, size_bytes=1100)
    await recorder.fence(1)
    await recorder.seal(1, 7)


async def os_mode_in_one_journal_file(recorder: Recorder) -> None:
    await recorder.open()
    await recorder.create(1, Durability.OS)
    await recorder.append(1, count=3, size_bytes=500)
    await recorder.seal(1, 2)


@pytest.mark.parametrize("scenario", [appends_and_fences, recycling, seals_and_deletes, closing])
def test_nothing_acknowledged_is_lost_wherever_the_power_goes(
    scenario: Callable[[Recorder], Awaitable[None]],
) -> None:
    async def main() -> None:
        recorder = Recorder(TINY)
        await scenario(recorder)
        assert await cut_everywhere(recorder) > 200

    run(main())


async def os_mode_with_an_index_on_disk(recorder: Recorder) -> None:
    await recorder.open()
    await recorder.create(1, Durability.OS)
    for _ in range(20):
        await recorder.append(1, size_bytes=1100)


@pytest.mark.parametrize("scenario", [os_mode, os_mode_in_one_journal_file, os_mode_with_an_index_on_disk])
def test_in_os_mode_a_power_cut_leaves_a_doubtful_prefix(scenario: Callable[[Recorder], Awaitable[None]]) -> None:
    async def main() -> None:
        recorder = Recorder(TINY)
        await scenario(recorder)
        await cut_everywhere(recorder)

    run(main())


@pytest.mark.parametrize("scenario", [appends_and_fences, recycling])
def test_a_cut_between_groups_leaves_no_doubt(scenario: Callable[[Recorder], Awaitable[None]]) -> None:
    async def main() -> None:
        recorder = Recorder(TINY)
        await scenario(recorder)
        acked = {at for fate in recorder.fates.values() for at, _ in fate.acked_ends}
        for effect_count in acked:
            disk = recorder.files.crash_point(effect_count).nothing_more()
            store = await SegmentStore.open(DIRECTORY, files=disk, options=TINY)
            assert not any(state.in_doubt for state in store.replicas() if state.partition)

    run(main())


def test_a_cut_after_a_kill_and_a_restart_leaves_a_doubtful_prefix_in_os_mode() -> None:
    async def main() -> None:
        recorder = Recorder(TINY)
        await os_mode_with_an_index_on_disk(recorder)
        files = recorder.files.killed()
        store = await SegmentStore.open(DIRECTORY, files=files, options=TINY)
        state = store.replica(segment(1))
        assert state is not None
        assert (state.end, state.in_doubt) == (20, False)
        point = files.crash_point()
        for disk in (point.nothing_more(), *point.draws(1, 20)):
            await recorder.check(disk, len(recorder.files.effects))
            booted = await SegmentStore.open(DIRECTORY, files=disk.killed(), options=TINY)
            after = booted.replica(segment(1))
            assert after is not None
            assert after.end == 20, "what the restart found was flushed before the store relied on it"

    run(main())


@pytest.mark.parametrize("scenario", [recycling, seals_and_deletes, os_mode])
def test_a_second_cut_while_the_store_recovers_loses_nothing_either(
    scenario: Callable[[Recorder], Awaitable[None]],
) -> None:
    async def main() -> None:
        recorder = Recorder(TINY)
        await scenario(recorder)
        for effect_count in range(0, len(recorder.files.effects), 6):
            (disk,) = recorder.files.crash_point(effect_count).draws(effect_count, 1)
            found = len(disk.effects)
            await SegmentStore.open(DIRECTORY, files=disk, options=TINY)
            for second in range(found, len(disk.effects) + 1):
                point = disk.crash_point(second)
                for again in (point.nothing_more(), *point.draws(second, 1)):
                    await recorder.check(again, effect_count)

    run(main())


async def random_history(recorder: Recorder, rng: random.Random) -> None:
    """Calls as they come, some of them at the same time."""
    await recorder.open()
    open_segments: list[int] = []
    newest = 0
    for _ in range(rng.randint(5, 25)):
        choice = rng.random()
        if not open_segments or choice < 0.15:
            newest += 1
            await recorder.create(newest, rng.choice([Durability.SYNC, Durability.SYNC, Durability.OS]))
            open_segments.append(newest)
        elif choice < 0.75:
            numbers = rng.sample(open_segments, rng.randint(1, len(open_segments)))
            calls = [recorder.append(n, rng.randint(1, 3), rng.randint(61, 900)) for n in numbers]
            if rng.random() < 0.2:
                calls.append(recorder.fence(1000 + newest * 50 + len(recorder.files.effects) % 50))
            await asyncio.gather(*calls)
        elif choice < 0.82:
            await recorder.fence(open_segments.pop(rng.randrange(len(open_segments))))
        elif choice < 0.89:
            number = open_segments.pop(rng.randrange(len(open_segments)))
            await recorder.seal(number, rng.randint(0, max(recorder.fates[segment(number)].ends, default=0)))
        elif choice < 0.95:
            await recorder.delete(open_segments.pop(rng.randrange(len(open_segments))))
        else:
            await recorder.close()
            await recorder.open()


@pytest.mark.parametrize("seed", range(SEEDS))
def test_random_histories_survive_random_cuts(seed: int) -> None:
    async def main() -> None:
        rng = random.Random(seed)
        recorder = Recorder(
            dataclasses.replace(TINY, journal_files=rng.randint(1, 3), block_bytes=rng.randint(100, 2000))
        )
        await random_history(recorder, rng)
        for _ in range(15):
            effect_count = rng.randint(0, len(recorder.files.effects))
            point = recorder.files.crash_point(effect_count)
            for disk in (point.nothing_more(), *point.draws(rng.randrange(1 << 30), 3)):
                await recorder.check(disk, effect_count)

    run(main())
