"""The bytes that a segment begins with: round trips, the version before transactions, and bytes that are none."""

import contextlib
import struct

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from headwater.transactions.aborted_transactions import Aborted, AbortedTransactions
from headwater.transactions.partition_snapshot import CorruptSnapshot, read, read_aborted, write
from headwater.transactions.producer import ProducerState, StoredBatch

INT16, INT32, INT64 = st.integers(0, 2**15 - 1), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1)
batches = st.builds(StoredBatch, INT32, INT32, INT64, INT64, st.integers(-1, 2**63 - 1))
producers = st.builds(
    ProducerState,
    epoch=INT16,
    last_sequence=st.integers(-1, 2**31 - 1),
    last_timestamp=st.integers(-1, 2**63 - 1),
    seen_at_ms=st.integers(-1, 2**63 - 1),
    coordinator_epoch=st.integers(-1, 2**31 - 1),
    transaction_start=st.just(-1),
    marker_offset=st.just(-1),
    batches=st.lists(batches, max_size=5).map(tuple),
)


@st.composite
def some_producers(draw: st.DrawFn) -> dict[int, ProducerState]:
    """Some of them with an open transaction, each from an offset of its own."""
    found = draw(st.dictionaries(INT64, producers, max_size=4))
    starts = draw(st.lists(st.integers(-1, 1_000), min_size=len(found), max_size=len(found), unique=True))
    return {
        pid: producer._replace(transaction_start=start)
        for (pid, producer), start in zip(found.items(), starts, strict=True)
    }


@st.composite
def some_aborted(draw: st.DrawFn) -> list[Aborted]:
    lasts = sorted(draw(st.sets(INT64, max_size=6)))
    return [Aborted(draw(INT64), draw(st.integers(0, last)), last, draw(INT64)) for last in lasts]


def checked(version: int, body: bytes) -> bytes:
    return struct.pack(">BI", version, crc32c(body)) + body


def entries(aborted: AbortedTransactions) -> list[Aborted]:
    return aborted.overlapping(0, 2**63 - 1)


A_SNAPSHOT = write(
    {7: ProducerState(2, 5, 50, 60, 3, 11, batches=(StoredBatch(0, 5, 0, 5, 50),)), 9: ProducerState(0)},
    AbortedTransactions([Aborted(7, 2, 4, 3), Aborted(8, 1, 6, 7)]),
)


@given(some_producers(), some_aborted())
def test_a_snapshot_is_read_as_it_was_written(known: dict[int, ProducerState], aborted: list[Aborted]) -> None:
    data = write(known, AbortedTransactions(aborted))
    found, found_aborted = read(memoryview(data))
    assert list(found.items()) == list(known.items())
    assert found_aborted.to_bytes() == AbortedTransactions(aborted).to_bytes()
    assert read_aborted(data).to_bytes() == found_aborted.to_bytes()


def test_nothing_takes_no_bytes() -> None:
    assert write({}, AbortedTransactions()) == b""
    found, aborted = read(b"")
    assert not found and not aborted and not read_aborted(b"")


def test_the_bytes_do_not_change_between_releases() -> None:
    assert A_SNAPSHOT.hex() == (
        "02" + f"{crc32c(A_SNAPSHOT[5:]):08x}" + "00000002" + "00000002"
        "0000000000000007" "0000000000000002" "0000000000000004" "0000000000000003"
        "0000000000000008" "0000000000000001" "0000000000000006" "0000000000000007"
        "0000000000000007" "0002" "00000005" "0000000000000032" "000000000000003c" "00000003" "000000000000000b" "01"
        "00000000" "00000005" "0000000000000000" "0000000000000005" "0000000000000032"
        "0000000000000009" "0000" "ffffffff" "ffffffffffffffff" "ffffffffffffffff" "ffffffff" "ffffffffffffffff" "00"
    )  # fmt: skip


def test_a_snapshot_from_before_transactions_is_read() -> None:
    producer = struct.pack(">qhiqqqB", 7, 2, 5, 50, 60, 0, 1) + struct.pack(">iiqqq", 0, 5, 10, 15, 50)
    idle = struct.pack(">qhiqqqB", 9, 0, -1, -1, -1, 3, 0)
    data = checked(1, struct.pack(">I", 2) + producer + idle)
    found, aborted = read(data)
    assert found == {7: ProducerState(2, 5, 50, 60, batches=(StoredBatch(0, 5, 10, 15, 50),)), 9: ProducerState(0)}
    assert not aborted and not read_aborted(data)


def test_a_version_to_come_is_refused() -> None:
    with pytest.raises(CorruptSnapshot, match="version 3"):
        read(checked(3, bytes(8)))


@given(st.binary(min_size=1, max_size=200))
def test_arbitrary_bytes_are_no_snapshot(data: bytes) -> None:
    with pytest.raises(CorruptSnapshot):
        read(data)
    with pytest.raises(CorruptSnapshot):
        read_aborted(data)


@given(st.sampled_from([1, 2]), st.integers(0, 2**32 - 1), st.integers(0, 5), st.binary(max_size=300))
def test_a_right_checksum_over_arbitrary_bytes_raises_nothing_else(
    version: int, count: int, other: int, data: bytes
) -> None:
    for first, second in ((count, other), (other, count)):
        body = struct.pack(">II", first, second) + data
        with contextlib.suppress(CorruptSnapshot):
            known, aborted = read(checked(version, body))
            assert len(known) + len(aborted) <= len(data)
        with contextlib.suppress(CorruptSnapshot):
            assert len(read_aborted(checked(version, body))) <= len(data)


def test_every_cut_and_flip_of_a_snapshot_is_noticed() -> None:
    for position in range(len(A_SNAPSHOT)):
        if position:
            with pytest.raises(CorruptSnapshot):
                read(A_SNAPSHOT[:position])
        flipped = bytearray(A_SNAPSHOT)
        flipped[position] ^= 0x10
        with pytest.raises(CorruptSnapshot):
            read(flipped)


@pytest.mark.parametrize(
    "aborted",
    [
        [(7, 2, 4, 3), (7, 1, 4, 3)],
        [(7, 2, 4, 3), (7, 1, 3, 3)],
        [(7, 5, 4, 3)],
        [(7, -1, 4, 3)],
        [(-1, 2, 4, 3)],
    ],
)
def test_aborted_transactions_that_cannot_be_are_noticed(aborted: list[tuple[int, int, int, int]]) -> None:
    body = struct.pack(">II", len(aborted), 0) + b"".join(struct.pack(">qqqq", *entry) for entry in aborted)
    with pytest.raises(CorruptSnapshot):
        read(checked(2, body))
    with pytest.raises(CorruptSnapshot):
        read_aborted(checked(2, body))


def test_producers_that_cannot_be_are_noticed() -> None:
    good = (7, 0, 5, 50, 60, 3, 11, 0)
    bad = [
        [(-1, *good[1:])],
        [good, good],
        [good, (8, *good[1:])],  # two transactions that begin at one offset
        [(7, 0, -2, 50, 60, 3, 11, 0)],
        [(7, 0, 5, 50, 60, 3, -2, 0)],
        [(7, 0, 5, 50, 60, 3, 11, 6)],
    ]
    for some in bad:
        body = struct.pack(">II", 0, len(some)) + b"".join(struct.pack(">qhiqqiqB", *fields) for fields in some)
        with pytest.raises(CorruptSnapshot):
            read(checked(2, body + bytes(300)))
        with pytest.raises(CorruptSnapshot):
            read(checked(2, body))
