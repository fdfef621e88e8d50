from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from headwater.queues.in_flight import NEVER_DELIVERED, RESOLVED, InFlight, RecordState, RecordStatus

READY = RecordStatus(RecordState.READY, 1)
HELD = RecordStatus(RecordState.ACQUIRED, 0, 0, 100, "ann")
STATUSES = (READY, HELD, RESOLVED, RecordStatus(RecordState.WAITING, 1, 5, 5), NEVER_DELIVERED)


def test_neighbours_of_one_status_are_one_run() -> None:
    window = InFlight(0)
    window.put(0, 4, HELD)
    window.put(5, 9, HELD)
    assert window.all_runs() == [(0, 9, HELD)]


def test_a_put_inside_a_run_splits_it_and_a_second_one_heals_it() -> None:
    window = InFlight(0)
    window.put(0, 9, HELD)
    window.put(4, 5, READY)
    assert window.all_runs() == [(0, 3, HELD), (4, 5, READY), (6, 9, HELD)]
    window.put(4, 5, HELD)
    assert window.all_runs() == [(0, 9, HELD)]


def test_what_a_put_jumps_over_is_unread() -> None:
    window = InFlight(10)
    window.put(13, 14, RESOLVED)
    assert window.all_runs() == [(10, 12, NEVER_DELIVERED), (13, 14, RESOLVED)]


def test_the_start_moves_over_what_is_settled_and_no_further() -> None:
    window = InFlight(0)
    window.put(0, 9, HELD)
    window.put(0, 3, RESOLVED)
    window.put(6, 6, RESOLVED)
    window.advance()
    assert (window.start, window.end) == (4, 10)


def test_a_million_million_offsets_are_one_run() -> None:
    window = InFlight(0)
    window.put(0, 10**12, HELD)
    window.put(5, 2**62, RESOLVED)
    assert window.run_count == 2
    assert window.counts[RecordState.RESOLVED] == 2**62 - 4


def test_the_rest_of_a_ready_run_is_still_found_when_its_head_is_taken() -> None:
    window = InFlight(0)
    window.put(0, 9, READY)
    window.put(0, 4, HELD)
    assert window.lowest_ready() == 5
    window.put(7, 8, HELD)
    window.put(5, 6, HELD)
    assert window.lowest_ready() == 9


@given(
    st.integers(0, 5),
    st.lists(
        st.one_of(
            st.tuples(st.just("put"), st.integers(0, 40), st.integers(0, 12), st.sampled_from(STATUSES)),
            st.tuples(st.just("drop"), st.integers(0, 60), st.just(0), st.none()),
            st.tuples(st.just("advance"), st.just(0), st.just(0), st.none()),
        ),
        max_size=30,
    ),
)
def test_the_window_is_a_map_from_offsets_to_statuses(
    start: int, steps: list[tuple[str, int, int, RecordStatus | None]]
) -> None:
    window, naive, naive_start = InFlight(start), dict[int, RecordStatus](), start
    for what, at, length, status in steps:
        if what == "put" and status is not None:
            first = naive_start + at
            window.put(first, first + length, status)
            for offset in range(max([naive_start - 1, *naive]) + 1, first):
                naive[offset] = NEVER_DELIVERED
            naive |= dict.fromkeys(range(first, first + length + 1), status)
        else:
            if what == "drop":
                window.drop_below(at)
                naive_start = max(naive_start, at)
            else:
                window.advance()
            naive = {offset: each for offset, each in naive.items() if offset >= naive_start}
            while naive.get(naive_start) == RESOLVED:
                del naive[naive_start]
                naive_start += 1
        assert window.start == naive_start
        runs = window.all_runs()
        assert {offset: each for first, last, each in runs for offset in range(first, last + 1)} == naive
        assert all(one[2] != other[2] and one[1] + 1 == other[0] for one, other in pairwise(runs))
        assert window.lowest_ready() == min((at for at, each in naive.items() if each.state <= 1), default=None)
        assert window.counts == [sum(each.state is state for each in naive.values()) for state in RecordState]
        for most in (RecordState.READY, RecordState.ACQUIRED):
            cut = window.runs(naive_start + 2, naive_start + 9, most)
            found = {offset: each for first, last, each in cut for offset in range(first, last + 1)}
            within = range(naive_start + 2, naive_start + 10)
            assert found == {at: each for at, each in naive.items() if at in within and each.state <= most}
