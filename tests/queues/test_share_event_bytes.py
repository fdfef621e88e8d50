import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.queues.event_bytes import decode, encode
from headwater.queues.events import (
    DeadLetterReason,
    RangeState,
    ShareEvent,
    ShareSnapshot,
    ShareStartMoved,
    ShareStateChanged,
    StateRange,
    merged,
)
from headwater.records.byte_reader import MalformedBytes

MAX_LONG = 2**63 - 1
longs = st.one_of(st.integers(0, 300), st.integers(0, MAX_LONG))


@st.composite
def state_ranges(draw: st.DrawFn) -> StateRange:
    first, last = sorted((draw(longs), draw(longs)))
    match draw(st.sampled_from(RangeState)):
        case RangeState.AVAILABLE:
            return StateRange(first, last, RangeState.AVAILABLE, draw(longs), draw(longs))
        case RangeState.ARCHIVING:
            reason = draw(st.sampled_from(DeadLetterReason))
            return StateRange(first, last, RangeState.ARCHIVING, draw(longs), reason=reason)
        case state:
            return StateRange(first, last, state)


ranges = st.lists(state_ranges(), max_size=8).map(tuple)
events = st.one_of(
    st.builds(ShareStateChanged, ranges), st.builds(ShareStartMoved, longs), st.builds(ShareSnapshot, longs, ranges)
)


@given(events)
def test_an_event_survives_its_bytes(event: ShareEvent) -> None:
    assert decode(encode(event)) == event


@given(events, st.data())
def test_an_event_that_is_cut_or_has_a_tail_is_refused(event: ShareEvent, data: st.DataObject) -> None:
    whole = encode(event)
    with pytest.raises(MalformedBytes):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(MalformedBytes):
        decode(whole + b"\0")


@given(st.binary(max_size=60))
def test_any_bytes_are_an_event_or_refused(data: bytes) -> None:
    for prefix in (b"", b"\1\1", b"\1\3\0"):
        try:
            event = decode(prefix + data)
        except MalformedBytes:
            continue
        assert decode(encode(event)) == event


def test_a_made_up_number_of_ranges_costs_nothing() -> None:
    with pytest.raises(MalformedBytes, match="do not fit"):
        decode(b"\1\1\xff\xff\xff\xff\xff\xff\xff\x7f")


def test_an_unknown_version_and_an_unknown_kind_are_refused() -> None:
    with pytest.raises(MalformedBytes, match="version 2"):
        decode(b"\2\2\0")
    with pytest.raises(MalformedBytes, match="kind 9"):
        decode(b"\1\x09\0")


def test_an_accepted_batch_is_a_handful_of_bytes() -> None:
    event = ShareStateChanged((StateRange(1_000_000, 1_000_499, RangeState.ACKNOWLEDGED),))
    assert len(encode(event)) <= 10


def test_only_neighbours_of_equal_state_are_merged() -> None:
    one = StateRange(0, 4, RangeState.AVAILABLE, 1)
    apart = StateRange(6, 7, RangeState.AVAILABLE, 1)
    other = StateRange(8, 9, RangeState.AVAILABLE, 2)
    assert merged([one, StateRange(5, 5, RangeState.AVAILABLE, 1), other]) == (
        StateRange(0, 5, RangeState.AVAILABLE, 1),
        other,
    )
    assert merged([one, apart]) == (one, apart)
