import dataclasses
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headwater.model.ids import SegmentId
from headwater.storage.entry import END_MARK, PREFIX_BYTES, EntryKind, EntryNumber, JournalEntry, decode, encode, scan
from headwater.storage.journal import Journal, replay
from headwater.testing.fakes.files import MemoryFiles
from tests.storage.storage_samples import DIRECTORY, KIB, SMALL, create, fill, open_store, read_all, run, segment

SALT = 77
START = EntryNumber(0, 0, 1)


def image(groups: list[list[JournalEntry]], generation: int = 5) -> bytes:
    data = b""
    for group, entries in enumerate(groups, 1):
        for ordinal, entry in enumerate(entries):
            data += b"".join(encode(entry, EntryNumber(group, ordinal, len(entries)), generation, SALT))
    return data + END_MARK


def sample(number: int, payload: bytes = b"payload") -> JournalEntry:
    return JournalEntry(EntryKind.APPEND, SegmentId(f"{number:032x}"), number, 1, 2, 3, 4, 5, (payload,))


def firsts(entries: list[JournalEntry]) -> list[int]:
    return [entry.instance for entry in entries]


GROUPS = [[sample(1)], [sample(2), sample(3, b"x" * 900), sample(4)], [sample(5)]]


def test_entries_come_back_as_they_were_written() -> None:
    result = scan(image(GROUPS), 0, 5, SALT, START)
    assert [entry._replace(payload=()) for entry in result.entries] == [
        entry._replace(payload=()) for group in GROUPS for entry in group
    ]
    assert bytes(result.entries[2].payload[0]) == b"x" * 900
    assert (result.damage, result.last.group) == ("", 3)


def test_entries_of_another_generation_or_another_store_do_not_count() -> None:
    assert scan(image(GROUPS), 0, 6, SALT, START).entries == []
    assert scan(image(GROUPS), 0, 5, SALT + 1, START).entries == []


def test_stale_entries_behind_the_end_mark_are_not_damage() -> None:
    old = image([[sample(number)] for number in range(10)], generation=4)
    new = image(GROUPS[:1])
    result = scan(new + old[len(new) :], 0, 5, SALT, START)
    assert (firsts(result.entries), result.damage) == ([1], "")


def test_a_group_whose_first_sector_never_came_was_promised_to_nobody() -> None:
    data = bytearray(image(GROUPS[:2]))
    start = PREFIX_BYTES + len(b"payload")
    data[start : start + PREFIX_BYTES] = bytes(PREFIX_BYTES)
    result = scan(bytes(data), 0, 5, SALT, START)
    assert (firsts(result.entries), result.damage) == ([1], "")


def test_zeros_with_a_later_group_behind_them_are_damage() -> None:
    data = bytearray(image(GROUPS))
    start = PREFIX_BYTES + len(b"payload")
    data[start : start + PREFIX_BYTES] = bytes(PREFIX_BYTES)
    result = scan(bytes(data), 0, 5, SALT, START)
    assert result.has_gap
    assert firsts(result.entries) == [1, 5]


@pytest.mark.parametrize("keep", range(0, len(image(GROUPS)) - len(END_MARK), 37))
def test_a_write_that_was_cut_off_gives_the_entries_before_the_cut(keep: int) -> None:
    data = image(GROUPS)
    result = scan(data[:keep] + b"\xee" * (len(data) - keep), 0, 5, SALT, START)
    assert firsts(result.entries) == [1, 2, 3, 4, 5][: len(result.entries)]
    assert result.damage


@given(st.binary(max_size=400), st.integers(0, 10))
def test_arbitrary_bytes_are_never_taken_for_an_entry(data: bytes, position: int) -> None:
    assert decode(data, position, 5, SALT) is None
    assert decode(b"HWJ1" + (5).to_bytes(8, "big") + data, 0, 5, SALT) is None


@settings(max_examples=200)
@given(st.data())
def test_every_flipped_bit_is_noticed(data: st.DataObject) -> None:
    content = bytearray(image(GROUPS))
    written = len(content) - len(END_MARK)
    bit = data.draw(st.integers(0, 8 * written - 1))
    content[bit // 8] ^= 1 << bit % 8
    result = scan(bytes(content), 0, 5, SALT, START)
    assert result.damage
    assert set(firsts(result.entries)) < {1, 2, 3, 4, 5}


def test_a_journal_is_replayed_across_files_and_from_where_the_checkpoint_says() -> None:
    files = MemoryFiles()
    full: list[tuple[int, int]] = []

    def on_full(generation: int, group: int) -> None:
        full.append((generation, group))
        journal.recycle(generation)

    journal = Journal(
        files,
        DIRECTORY,
        file_bytes=4 * KIB,
        max_files=2,
        salt=SALT,
        generation=1,
        group=1,
        on_full=on_full,
    )
    rng = random.Random(3)
    for number in range(1, 200):
        journal.write([sample(number, rng.randbytes(rng.randint(0, 700)))])
    generation, group = full[-1]
    result = replay(files, DIRECTORY, salt=SALT, first_generation=generation, first_group=group)
    assert firsts(result.entries) == list(range(group, 200))
    assert (result.damage, result.next_group) == ("", 200)
    assert result.next_generation > generation
    stale = replay(files, DIRECTORY, salt=SALT, first_generation=generation - 4, first_group=1)
    assert stale.damage, "a journal that lacks what the checkpoint asks for is not whole"


@pytest.mark.parametrize("runs_inline", [True, False])
def test_the_journal_goes_round_many_times_and_every_restart_finds_everything(runs_inline: bool) -> None:
    options = dataclasses.replace(SMALL, journal_file_bytes=8 * KIB, journal_files=3, runs_inline=runs_inline)

    async def scenario() -> None:
        files = MemoryFiles()
        written: dict[int, bytes] = {1: b"", 2: b""}
        for life in range(6):
            store = await open_store(files, options)
            for number in written:
                if life == 0:
                    await create(store, number)
                state = store.replica(segment(number))
                assert state is not None
                assert (state.in_doubt, state.is_fenced) == (False, False)
                written[number] += await fill(store, segment(number), 40, size_bytes=700, first=state.end)
                assert await read_all(store, segment(number)) == written[number]
            if life % 2:
                files = files.killed()
                await store.close()
            else:
                await store.close()
        assert len([path for path in files.paths() if path.suffix == ".journal"]) <= 3
        store = await open_store(files, options)
        for number, content in written.items():
            assert await read_all(store, segment(number)) == content
        await store.close()

    run(scenario())
