"""The bytes of RPCs between nodes: they are read as they were written, and anything else is refused."""

import contextlib
import uuid
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.broker.nodes import node_messages
from headwater.broker.nodes.node_messages import Claimed, Marker, ShareKey, ShareOffset, StateEntry, StateWrite
from headwater.model.errors import ErrorCode
from headwater.model.group_position import GroupPosition
from headwater.model.ids import PartitionId
from headwater.records.byte_reader import ByteReader, MalformedBytes
from headwater.transactions.effects import AddAnswer
from headwater.transactions.requests import AddPartitions

TOPIC = uuid.UUID(int=7)
PLACE = PartitionId(TOPIC, 3)
KEY = ShareKey("grüppe", PLACE)
STATE = Claimed(9, b"snapshot", [b"one", b"", b"two"])

SAMPLES: list[tuple[Callable[[], bytes], Callable[[ByteReader], object], object]] = [
    (
        lambda: node_messages.marker(Marker(PLACE, 1 << 40, 5, True, 8, 99)),
        node_messages.read_marker,
        Marker(PLACE, 1 << 40, 5, True, 8, 99),
    ),
    (
        lambda: node_messages.admission(
            AddPartitions(
                transactional_id="id",
                producer_id=1,
                producer_epoch=2,
                partitions=frozenset({PLACE}),
                is_verify_only=True,
                version=1,
            )
        ),
        node_messages.read_admission,
        AddPartitions(
            transactional_id="id",
            producer_id=1,
            producer_epoch=2,
            partitions=frozenset({PLACE}),
            is_verify_only=True,
            version=1,
        ),
    ),
    (
        lambda: node_messages.admitted(AddAnswer(ErrorCode.NONE, frozenset({PLACE}))),
        node_messages.read_admitted,
        AddAnswer(ErrorCode.NONE, frozenset({PLACE})),
    ),
    (lambda: node_messages.read_request(PLACE, 5, 6), node_messages.read_read_request, (PLACE, 5, 6)),
    (lambda: node_messages.batches(1, 2, b"abc"), node_messages.read_batches, (1, 2, b"abc")),
    (
        lambda: node_messages.positions([GroupPosition("g", "t", 1, 2), GroupPosition("h", "u", 3, 4)]),
        node_messages.read_positions,
        [GroupPosition("g", "t", 1, 2), GroupPosition("h", "u", 3, 4)],
    ),
    (lambda: node_messages.claim(KEY, 4), node_messages.read_claim, (KEY, 4)),
    (lambda: node_messages.claims(2, [(PLACE, 4)]), node_messages.read_claims, (2, {PLACE: 4})),
    (lambda: node_messages.claimed(STATE), node_messages.read_claimed, STATE),
    (lambda: node_messages.all_claimed([(KEY, STATE)]), node_messages.read_all_claimed, [(KEY, STATE)]),
    (
        lambda: node_messages.state_write(StateWrite(KEY, 9, 2, [StateEntry(True, b"x"), StateEntry(False, b"y")])),
        node_messages.read_state_write,
        StateWrite(KEY, 9, 2, [StateEntry(True, b"x"), StateEntry(False, b"y")]),
    ),
    (
        lambda: node_messages.share_offsets([ShareOffset(PLACE, 1, 2, 3)]),
        node_messages.read_share_offsets,
        [ShareOffset(PLACE, 1, 2, 3)],
    ),
]


@pytest.mark.parametrize(("write", "read", "value"), SAMPLES)
def test_what_is_written_is_read(
    write: Callable[[], bytes], read: Callable[[ByteReader], object], value: object
) -> None:
    assert read(ByteReader(write())) == value


@pytest.mark.parametrize(
    ("write", "read"), [sample[:2] for sample in SAMPLES if sample[1] is not node_messages.read_batches]
)
def test_what_is_cut_off_is_refused(write: Callable[[], bytes], read: Callable[[ByteReader], object]) -> None:
    data = write()
    for size in range(len(data)):
        with pytest.raises(MalformedBytes):
            read(ByteReader(data[:size]))


@given(data=st.binary(max_size=200), which=st.sampled_from(SAMPLES))
def test_no_bytes_do_harm(data: bytes, which: tuple[object, Callable[[ByteReader], object], object]) -> None:
    with contextlib.suppress(MalformedBytes):
        which[1](ByteReader(data))


def test_a_text_that_is_no_text_is_refused() -> None:
    with pytest.raises(MalformedBytes, match="UTF-8"):
        node_messages.read_text(ByteReader(b"\0\1\xff"))


def test_an_error_of_a_newer_node_is_an_unknown_error() -> None:
    body = (30_000).to_bytes(2, "big") + bytes(4)
    assert node_messages.read_admitted(ByteReader(body)).error is ErrorCode.UNKNOWN_SERVER_ERROR
