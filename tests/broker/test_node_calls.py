"""What nodes ask each other, in bytes: it comes out as it went in, and anything else is refused."""

import contextlib
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.housekeeping.consumed_positions import GroupPosition
from headwater.broker.nodes import node_messages as node_calls
from headwater.broker.nodes.node_messages import Claimed, Marker, ShareKey, ShareOffset, StateEntry, StateWrite
from headwater.model.errors import ErrorCode
from headwater.model.ids import PartitionId
from headwater.transactions.effects import AddAnswer
from headwater.transactions.requests import AddPartitions
from headwater.wire.codec import Cursor, MalformedRequest

TOPIC = uuid.UUID(int=7)
PLACE = PartitionId(TOPIC, 3)
KEY = ShareKey("grüppe", PLACE)
STATE = Claimed(9, b"snapshot", [b"one", b"", b"two"])

SAMPLES: list[tuple[Callable[[], bytes], Callable[[Cursor], object], object]] = [
    (
        lambda: node_calls.marker(Marker(PLACE, 1 << 40, 5, True, 8, 99)),
        node_calls.read_marker,
        Marker(PLACE, 1 << 40, 5, True, 8, 99),
    ),
    (
        lambda: node_calls.admission(AddPartitions("id", 1, 2, frozenset({PLACE}), True, 1)),
        node_calls.read_admission,
        AddPartitions("id", 1, 2, frozenset({PLACE}), True, 1),
    ),
    (
        lambda: node_calls.admitted(AddAnswer(ErrorCode.NONE, frozenset({PLACE}))),
        node_calls.read_admitted,
        AddAnswer(ErrorCode.NONE, frozenset({PLACE})),
    ),
    (lambda: node_calls.read_request(PLACE, 5, 6), node_calls.read_read_request, (PLACE, 5, 6)),
    (lambda: node_calls.batches(1, 2, b"abc"), node_calls.read_batches, (1, 2, b"abc")),
    (
        lambda: node_calls.positions([GroupPosition("g", "t", 1, 2), GroupPosition("h", "u", 3, 4)]),
        node_calls.read_positions,
        [GroupPosition("g", "t", 1, 2), GroupPosition("h", "u", 3, 4)],
    ),
    (lambda: node_calls.claim(KEY, 4), node_calls.read_claim, (KEY, 4)),
    (lambda: node_calls.claims(2, [(PLACE, 4)]), node_calls.read_claims, (2, {PLACE: 4})),
    (lambda: node_calls.claimed(STATE), node_calls.read_claimed, STATE),
    (lambda: node_calls.all_claimed([(KEY, STATE)]), node_calls.read_all_claimed, [(KEY, STATE)]),
    (
        lambda: node_calls.state_write(StateWrite(KEY, 9, 2, [StateEntry(True, b"x"), StateEntry(False, b"y")])),
        node_calls.read_state_write,
        StateWrite(KEY, 9, 2, [StateEntry(True, b"x"), StateEntry(False, b"y")]),
    ),
    (
        lambda: node_calls.share_offsets([ShareOffset(PLACE, 1, 2, 3)]),
        node_calls.read_share_offsets,
        [ShareOffset(PLACE, 1, 2, 3)],
    ),
]


@pytest.mark.parametrize(("write", "read", "value"), SAMPLES)
def test_what_is_written_is_read(write: Callable[[], bytes], read: Callable[[Cursor], object], value: object) -> None:
    assert read(Cursor(write())) == value


@pytest.mark.parametrize(
    ("write", "read"), [sample[:2] for sample in SAMPLES if sample[1] is not node_calls.read_batches]
)
def test_what_is_cut_off_is_refused(write: Callable[[], bytes], read: Callable[[Cursor], object]) -> None:
    data = write()
    for size in range(len(data)):
        with pytest.raises(MalformedRequest):
            read(Cursor(data[:size]))


@given(data=st.binary(max_size=200), which=st.sampled_from(SAMPLES))
def test_no_bytes_do_harm(data: bytes, which: tuple[object, Callable[[Cursor], object], object]) -> None:
    with contextlib.suppress(MalformedRequest):
        which[1](Cursor(data))


def test_a_text_that_is_no_text_is_refused() -> None:
    with pytest.raises(MalformedRequest, match="UTF-8"):
        node_calls.read_text(Cursor(b"\0\1\xff"))


def test_an_error_of_a_newer_node_is_an_unknown_error() -> None:
    body = (30_000).to_bytes(2, "big") + bytes(4)
    assert node_calls.read_admitted(Cursor(body)).error is ErrorCode.UNKNOWN_SERVER_ERROR
