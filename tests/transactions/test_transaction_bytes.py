import contextlib
import struct
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.model.ids import PartitionId
from headwater.records.byte_reader import MalformedBytes
from headwater.transactions.event_bytes import decode, encode
from headwater.transactions.events import Event, TransactionForgotten, TransactionStored
from headwater.transactions.transaction import LAST_EPOCH, MAX_EPOCH, Transaction, TransactionState
from tests.transactions.driven_transactions import P0, P1

ids = st.text(min_size=1, max_size=20)
producer_ids = st.integers(0, 2**63 - 1)
times = st.integers(-1, 2**63 - 1)
topic_ids = st.sampled_from([uuid.UUID(int=0), uuid.UUID(int=7), uuid.UUID(int=2**128 - 1)])
partitions = st.frozensets(st.builds(PartitionId, topic_ids, st.integers(0, 2**31 - 1)), max_size=8)
IDLE = (TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)


@st.composite
def transactions(draw: st.DrawFn) -> Transaction:
    state = draw(st.sampled_from(TransactionState))
    highest = LAST_EPOCH if state is TransactionState.ONGOING else MAX_EPOCH
    return Transaction(
        transactional_id=draw(ids),
        producer_id=draw(producer_ids),
        producer_epoch=draw(st.integers(0, highest)),
        last_producer_epoch=draw(st.integers(-1, MAX_EPOCH)),
        previous_producer_id=draw(st.just(-1) | producer_ids),
        next_producer_id=draw(st.just(-1) | producer_ids) if state.is_prepared else -1,
        timeout_ms=draw(st.integers(1, 2**31 - 1)),
        state=state,
        partitions=frozenset() if state in IDLE else draw(partitions),
        started_ms=draw(times),
        updated_ms=draw(times),
        version=draw(st.sampled_from([1, 2])),
    )


events = st.builds(TransactionStored, transactions()) | st.builds(TransactionForgotten, ids)
OPEN = Transaction(
    transactional_id="t",
    producer_id=5,
    producer_epoch=3,
    last_producer_epoch=2,
    previous_producer_id=4,
    next_producer_id=-1,
    timeout_ms=60_000,
    state=TransactionState.ONGOING,
    partitions=frozenset({P1, P0}),
    started_ms=100,
    updated_ms=200,
    version=2,
)


@given(events)
def test_every_event_comes_back_from_its_bytes(event: Event) -> None:
    assert decode(*encode(event)) == event
    assert encode(event)[0][:2] >= b"\1\0", "Kafka's tools know no keys of such numbers, and skip them"


@given(st.binary(max_size=60), st.none() | st.binary(max_size=120))
def test_hostile_bytes_are_refused_or_read_but_never_fatal(key: bytes, value: bytes | None) -> None:
    for each in (key, b"\x01" + key):
        with contextlib.suppress(MalformedBytes):
            decode(each, value)


@given(transactions(), st.data())
def test_what_is_read_from_damaged_bytes_can_be_written_again(transaction: Transaction, data: st.DataObject) -> None:
    key, value = encode(TransactionStored(transaction))
    assert value is not None
    damaged = bytearray(value)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedBytes):
        event = decode(key, bytes(damaged))
        assert event is not None
        assert encode(event) == (key, bytes(damaged)), "one state has one form"


@given(transactions(), st.data())
def test_every_value_that_is_cut_or_too_long_is_refused(transaction: Transaction, data: st.DataObject) -> None:
    key, value = encode(TransactionStored(transaction))
    assert value is not None
    with pytest.raises(MalformedBytes):
        decode(key, value[: data.draw(st.integers(0, len(value) - 1))])
    with pytest.raises(MalformedBytes):
        decode(key, value + data.draw(st.binary(min_size=1, max_size=40)))


def test_the_bytes_of_a_transaction_are_as_documented() -> None:
    key, value = encode(TransactionStored(OPEN))
    assert key == b"\x01t"
    assert value == bytes.fromhex(
        "01 01 02 0000000000000005 0003 0002 0000000000000004 ffffffffffffffff 0000ea60"
        "0000000000000064 00000000000000c8 00000001"
        "00000000000000000000000000000007 00000002 00000000 00000001"
    )
    assert encode(TransactionForgotten("t")) == (b"\x01t", None)


def test_a_kind_of_record_that_is_not_known_is_not_for_us() -> None:
    assert decode(b"\x02t", b"whatever") is None
    assert decode(b"\x00", None) is None


def test_a_version_that_is_not_known_is_refused_by_name() -> None:
    key, value = encode(TransactionStored(OPEN))
    assert value is not None
    with pytest.raises(MalformedBytes, match="version 2"):
        decode(key, b"\x02" + value[1:])


@pytest.mark.parametrize("key", [b"", b"\x01", b"\x01\xff", b"\x01" + b"x" * 32_768])
def test_keys_that_name_nobody_are_refused(key: bytes) -> None:
    with pytest.raises(MalformedBytes):
        decode(key, None)


@pytest.mark.parametrize(
    ("position", "shape", "number"),
    [
        (1, "B", 6),  # state
        (1, "B", 0),  # partitions without a transaction
        (2, "B", 0),  # protocol
        (2, "B", 3),
        (3, "q", -1),  # producer id
        (11, "h", -1),  # epoch
        (11, "h", MAX_EPOCH),  # which leaves none to fence with
        (13, "h", -2),  # last epoch
        (15, "q", -2),  # previous id
        (23, "q", 0),  # next id, while nothing is decided
        (31, "i", 0),  # timeout
        (35, "q", -2),  # started
        (43, "q", -2),  # updated
        (51, "I", 0),  # topics
        (51, "I", 2),
        (51, "I", 2**32 - 1),
        (71, "I", 0),  # partitions
        (71, "I", 2**32 - 1),
        (75, "I", 1),  # an index twice
        (75, "I", 2),  # out of order
        (79, "I", 2**31),  # an index that is too high
    ],
)
def test_what_no_transaction_can_be_is_refused(position: int, shape: str, number: int) -> None:
    key, value = encode(TransactionStored(OPEN))
    assert value is not None
    damaged = bytearray(value)
    struct.pack_into(f">{shape}", damaged, position, number)
    with pytest.raises(MalformedBytes):
        decode(key, bytes(damaged))
