from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.log.tail_cache import Tail, TailCache


def filled(cache: TailCache, *batches: tuple[int, int, bytes]) -> Tail:
    tail = Tail()
    for base, end, batch in batches:
        cache.add(tail, base, end, batch)
    return tail


def test_a_reader_gets_the_batch_that_holds_its_offset_and_those_behind() -> None:
    tail = filled(TailCache(1000), (0, 5, b"aa"), (5, 6, b"bb"), (6, 9, b"cc"))
    assert tail.read(3, 9, 100) == [b"aa", b"bb", b"cc"]
    assert tail.read(5, 9, 100) == [b"bb", b"cc"]


def test_nothing_past_the_limit_is_shown() -> None:
    tail = filled(TailCache(1000), (0, 5, b"aa"), (5, 6, b"bb"))
    assert tail.read(0, 5, 100) == [b"aa"]
    assert tail.read(5, 5, 100) == []


def test_the_first_batch_is_returned_however_large() -> None:
    tail = filled(TailCache(1000), (0, 5, b"a" * 50), (5, 6, b"bb"))
    assert tail.read(0, 6, 1) == [b"a" * 50]


def test_an_offset_that_is_not_in_memory_is_told_apart_from_one_without_data() -> None:
    tail = filled(TailCache(4), (0, 5, b"aa"), (5, 6, b"bb"), (6, 7, b"cc"))
    assert tail.read(0, 7, 100) is None
    assert tail.read(7, 7, 100) is None


def test_the_oldest_batch_of_all_partitions_goes_first() -> None:
    cache = TailCache(4)
    first, second = Tail(), Tail()
    cache.add(first, 0, 1, b"aa")
    cache.add(second, 0, 1, b"bb")
    cache.add(second, 1, 2, b"cc")
    assert first.read(0, 1, 9) is None
    assert second.read(0, 2, 9) == [b"bb", b"cc"]


def test_a_batch_larger_than_the_budget_empties_the_tail_so_that_it_has_no_gap() -> None:
    cache = TailCache(4)
    tail = filled(cache, (0, 1, b"aa"), (1, 2, b"b" * 9), (2, 3, b"cc"))
    assert tail.read(0, 3, 9) is None
    assert tail.read(2, 3, 9) == [b"cc"]
    assert cache.size_bytes == 2


def test_a_small_slice_of_a_large_request_is_copied() -> None:
    request = bytearray(1000)
    tail = filled(TailCache(10_000), (0, 1, memoryview(request)[:10]), (1, 2, memoryview(request)[:900]))  # type: ignore[arg-type]
    small, large = tail.read(0, 2, 10_000) or []
    assert isinstance(small, bytes)
    assert isinstance(large, memoryview)


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), max_size=200), st.integers(1, 30))
def test_memory_stays_within_the_budget_and_reads_are_right(steps: list[tuple[int, int]], budget: int) -> None:
    cache = TailCache(budget)
    tails = [Tail(), Tail(), Tail()]
    written: list[list[bytes]] = [[], [], []]
    for which, size in steps:
        offset = len(written[which])
        batch = bytes([offset % 256]) * size
        written[which].append(batch)
        cache.add(tails[which], offset, offset + 1, batch)
        assert cache.size_bytes <= budget
        for tail, batches in zip(tails, written, strict=True):
            for start in range(len(batches)):
                found = tail.read(start, len(batches), 10_000)
                assert found is None or found == batches[start:]


def test_partitions_that_come_and_go_leave_nothing_behind() -> None:
    cache = TailCache(1000)
    old = filled(cache, (0, 1, b"o"), (1, 2, b"o"))
    for _ in range(5_000):
        cache.clear(filled(cache, (0, 1, b"x"), (1, 2, b"y")))
    young = filled(cache, (0, 1, b"n"))
    assert cache.size_bytes == 3
    assert len(cache._order) < 2_100
    cache.resize(1)
    assert (old.read(0, 2, 10), young.read(0, 1, 10)) == (None, [b"n"]), "the oldest went first"


@given(st.lists(st.tuples(st.sampled_from("acd"), st.integers(0, 2)), max_size=60))
def test_turns_that_are_left_behind_are_counted(steps: list[tuple[str, int]]) -> None:
    cache, tails, ends = TailCache(20), [Tail() for _ in range(3)], [0, 0, 0]
    for step, which in steps:
        if step == "a":
            cache.add(tails[which], ends[which], ends[which] + 1, b"four")
            ends[which] += 1
        elif step == "c":
            cache.clear(tails[which])
        else:
            cache.drop_below(tails[which], ends[which] - 1)
        held = sum(map(len, tails))
        assert cache.size_bytes == 4 * held <= 20
        assert len(cache._order) - cache._left_behind == held
