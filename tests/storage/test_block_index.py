import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.storage.batches import Run
from headwater.storage.block_index import ENTRY_BYTES, MAX_LANDMARKS, BlockIndex, seed_of
from headwater.storage.segment_file import execute, plan, rebuild
from tests.storage.storage_samples import batch, segment, spans

SEED = seed_of(segment(1), 1)


def filled(sizes: list[int], block_bytes: int = 1000) -> tuple[BlockIndex, bytes]:
    """An index of batches of these sizes, two offsets each with a hole of one behind, and the segment file."""
    index = BlockIndex(SEED, block_bytes)
    content = b""
    for number, size_bytes in enumerate(sizes):
        row = batch(3 * number, count=2, size_bytes=size_bytes, timestamp=number)
        index.extend(Run(memoryview(row), 3 * number, 3 * number + 2, number), lac=3 * number)
        content += row
    return index, content


SIZES = st.lists(st.integers(61, 1500), min_size=1, max_size=30)


@given(SIZES, st.integers(100, 3000))
def test_blocks_lie_back_to_back_and_all_but_the_last_are_large_enough(sizes: list[int], block_bytes: int) -> None:
    index, content = filled(sizes, block_bytes)
    position = 0
    for number, block in enumerate(index.blocks()):
        assert block.position == position
        assert block.length >= block_bytes or number == index.count
        position = block.stop
    assert position == index.stop == len(content)
    assert len(index.landmarks) <= MAX_LANDMARKS


@given(SIZES, st.data())
def test_a_rebuilt_index_is_the_one_that_was_kept(sizes: list[int], data: st.DataObject) -> None:
    index, content = filled(sizes)
    keep = data.draw(st.integers(0, len(index.entries)))
    again = BlockIndex(SEED, 1000)
    again.load(bytes(index.entries[:keep]), len(content))
    assert again.count == keep // ENTRY_BYTES
    found = rebuild(again, lambda length, position: content[position : position + length], 0, len(content), 0)
    assert found.size_bytes == len(content)
    assert found.end == spans(content)[-1][1]
    assert [block[:5] for block in again.blocks()] == [block[:5] for block in index.blocks()]


@given(SIZES, st.data())
def test_a_read_is_that_of_a_simple_list(sizes: list[int], data: st.DataObject) -> None:
    index, content = filled(sizes)
    end = 3 * len(sizes)
    offset = data.draw(st.integers(0, end - 1))
    limit = data.draw(st.integers(offset + 1, end))
    max_bytes = data.draw(st.integers(1, 5000))
    rows = [(span, size) for span, size in zip(spans(content), sizes, strict=True) if span[1] > offset]
    expected = [span[0] for span, _ in rows if span[1] <= limit]
    chosen = plan(index, offset, limit, end, max_bytes)
    found: list[int] = []
    if chosen is not None:
        bytes_read = content[chosen.position : chosen.position + chosen.length]
        batches = execute(chosen, bytes_read).data
        found = [base for base, _ in spans(batches)]
        assert len(batches) <= max([max_bytes, *(size for _, size in rows[:1])])
    assert found == expected[: len(found)]
    holds_it = any(base <= offset < stop for base, stop in spans(content))
    assert found or not expected or not holds_it


@pytest.mark.parametrize("bit", range(0, 8 * ENTRY_BYTES, 5))
def test_a_flipped_bit_in_an_entry_ends_what_is_taken_from_the_file(bit: int) -> None:
    index, content = filled([600] * 20)
    entries = bytearray(index.entries)
    entries[2 * ENTRY_BYTES + bit // 8] ^= 1 << bit % 8
    again = BlockIndex(SEED, 1000)
    again.load(bytes(entries), len(content))
    assert again.count == 2
    assert again.is_file_longer


def test_entries_of_another_replica_are_not_taken() -> None:
    index, content = filled([600] * 20)
    again = BlockIndex(seed_of(segment(1), 2), 1000)
    again.load(bytes(index.entries), len(content))
    assert again.count == 0
