"""How micro-batches are limited and ranges divided: arithmetic."""

from hypothesis import given
from hypothesis import strategies as st

from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.offsets import OffsetRange, Offsets, from_json, to_json
from headwater.pipelines.source.task_ranges import limit_rows, split

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b", "10", "9"]), st.integers(0, 12))
some_offsets = st.dictionaries(partitions, st.integers(0, 1000), min_size=1, max_size=8)


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", number, 100, 100 + size) for number, size in enumerate(sizes)]


@given(some_offsets)
def test_offsets_have_one_text(offsets: Offsets) -> None:
    shaped = to_json(offsets)
    assert from_json(shaped) == offsets
    assert list(shaped) == sorted(shaped)
    assert all(list(inner) == sorted(inner, key=int) for inner in shaped.values())


@given(some_offsets, st.data(), st.integers(1, 5000))
def test_a_limit_moves_every_partition_that_has_rows_and_none_beyond_its_end(
    start: Offsets, data: st.DataObject, max_rows: int
) -> None:
    end = {partition: offset + data.draw(st.integers(0, 1000)) for partition, offset in start.items()}
    limited = limit_rows(start, end, max_rows)
    for partition in start:
        assert start[partition] <= limited[partition] <= end[partition]
        assert (limited[partition] > start[partition]) == (end[partition] > start[partition])
    rows = sum(limited[partition] - start[partition] for partition in start)
    assert rows <= max_rows + len(start), "no more than asked for, but for those that give one at least"


def test_a_limit_is_shared_in_proportion() -> None:
    big, small = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limit_rows({big: 0, small: 0}, {big: 900, small: 100}, 100) == {big: 90, small: 10}


def test_a_log_that_became_shorter_does_not_count() -> None:
    shrunk, grown = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limit_rows({shrunk: 50, grown: 0}, {shrunk: 20, grown: 100}, 10) == {shrunk: 20, grown: 10}


@given(st.lists(st.integers(0, 500), max_size=6), st.integers(1, 20), st.none() | st.integers(1, 50))
def test_parts_are_the_ranges_again(sizes: list[int], min_parts: int, max_rows: int | None) -> None:
    whole = ranges(*sizes)
    parts = split(whole, min_parts, max_rows)
    assert all(part.size > 0 for part in parts)
    covered = [(part.partition, offset) for part in parts for offset in range(part.start, part.end)]
    assert covered == [(one.partition, offset) for one in whole for offset in range(one.start, one.end)]
    assert max_rows is None or all(part.size <= max_rows for part in parts)


def test_a_range_is_a_task_unless_more_are_asked_for() -> None:
    assert split(ranges(10, 0, 20), None, None) == [ranges(10, 0, 20)[0], ranges(10, 0, 20)[2]]


def test_large_ranges_are_cut_into_more_parts() -> None:
    parts = split(ranges(900, 100), 10, None)
    assert [part.partition for part in parts] == [0] * 9 + [1]
    assert {part.size for part in parts} == {100}
