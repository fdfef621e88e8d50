import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.groups.event_records import decode, encode
from headwater.groups.events import (
    CommittedOffset,
    Event,
    GroupDeleted,
    GroupStored,
    OffsetCommitted,
    OffsetDeleted,
    PendingOffsetDeleted,
    PendingOffsetStored,
    StoredMember,
)
from headwater.groups.subscriptions import subscribed_topics
from headwater.records.byte_reader import MalformedBytes
from tests.groups.driven_group import subscription

names = st.text(max_size=20)
int16 = st.integers(-(2**15), 2**15 - 1)
int32 = st.integers(-(2**31), 2**31 - 1)
int64 = st.integers(-(2**63), 2**63 - 1)
commits = st.builds(CommittedOffset, int64, int32, names, int64)
members = st.builds(
    StoredMember,
    member_id=names,
    instance_id=st.none() | names,
    client_id=names,
    client_host=names,
    rebalance_timeout_ms=int32,
    session_timeout_ms=int32,
    subscription=st.binary(max_size=20),
    assignment=st.binary(max_size=20),
)
events = st.one_of(
    st.builds(OffsetCommitted, names, names, int32, commits),
    st.builds(OffsetDeleted, names, names, int32),
    st.builds(PendingOffsetStored, int64, int16, names, names, int32, commits),
    st.builds(PendingOffsetDeleted, int64, names, names, int32),
    st.builds(GroupDeleted, names),
    st.builds(
        GroupStored,
        group_id=names,
        protocol_type=names,
        generation=int32,
        protocol=st.none() | names,
        leader=st.none() | names,
        state_timestamp_ms=int64,
        members=st.lists(members, max_size=4).map(tuple),
    ),
)


@given(events)
def test_every_event_comes_back_from_its_bytes(event: Event) -> None:
    assert decode(*encode(event)) == event


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_hostile_bytes_are_refused_or_read_but_never_fatal(key: bytes, value: bytes | None) -> None:
    with contextlib.suppress(MalformedBytes):
        decode(key, value)


@given(events, st.data())
def test_every_shortened_record_is_refused(event: Event, data: st.DataObject) -> None:
    key, value = encode(event)
    with pytest.raises(MalformedBytes):
        decode(key[: data.draw(st.integers(0, len(key) - 1))], value)
    if value is not None:
        with pytest.raises(MalformedBytes):
            decode(key, value[: data.draw(st.integers(0, len(value) - 1))])


def test_the_bytes_of_a_commit_are_kafkas() -> None:
    key, value = encode(OffsetCommitted("g", "t", 3, CommittedOffset(42, 5, "m", 1000)))
    assert key == bytes.fromhex("0001 0001 67 0001 74 00000003")
    assert value == bytes.fromhex("0003 000000000000002a 00000005 0001 6d 00000000000003e8")


def test_the_bytes_of_a_group_are_kafkas() -> None:
    member = StoredMember(
        member_id="m",
        instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=2,
        session_timeout_ms=1,
        subscription=b"s",
        assignment=b"a",
    )
    key, value = encode(
        GroupStored(
            group_id="g",
            protocol_type="consumer",
            generation=7,
            protocol="range",
            leader="m",
            state_timestamp_ms=9,
            members=(member,),
        )
    )
    assert key == bytes.fromhex("0002 0001 67")
    assert value == bytes.fromhex(
        "0003 0008 636f6e73756d6572 00000007 0005 72616e6765 0001 6d 0000000000000009 00000001"
        "0001 6d ffff 0001 63 0001 68 00000002 00000001 00000001 73 00000001 61"
    )


def test_the_bytes_of_an_offset_in_a_transaction_are_as_documented() -> None:
    event = PendingOffsetStored(9, 2, "g", "t", 3, CommittedOffset(42, 5, "m", 1000))
    key, value = encode(event)
    assert key == bytes.fromhex("03e8 0000000000000009 0001 67 0001 74 00000003")
    assert value == bytes.fromhex("0000 0002 0003 000000000000002a 00000005 0001 6d 00000000000003e8")
    assert encode(PendingOffsetDeleted(9, "g", "t", 3)) == (key, None)


def test_a_commit_with_an_expiry_of_its_own_keeps_it() -> None:
    event = OffsetCommitted("g", "t", 0, CommittedOffset(42, -1, "", 1000, expire_timestamp_ms=2000))
    assert decode(*encode(event)) == event


def test_old_versions_are_read() -> None:
    key = bytes.fromhex("0000 0001 67 0001 74 00000003")
    value = bytes.fromhex("0000 000000000000002a 0001 6d 00000000000003e8")
    assert decode(key, value) == OffsetCommitted("g", "t", 3, CommittedOffset(42, -1, "m", 1000))
    group = bytes.fromhex("0000 0001 63 00000007 ffff ffff 00000001 0001 6d 0001 63 0001 68 00000001 00000000 00000000")
    stored = decode(bytes.fromhex("0002 0001 67"), group)
    assert stored == GroupStored(
        group_id="g",
        protocol_type="c",
        generation=7,
        protocol=None,
        leader=None,
        state_timestamp_ms=-1,
        members=(
            StoredMember(
                member_id="m",
                instance_id=None,
                client_id="c",
                client_host="h",
                rebalance_timeout_ms=1,
                session_timeout_ms=1,
                subscription=b"",
                assignment=b"",
            ),
        ),
    )


def test_records_of_other_kinds_of_groups_are_not_ours() -> None:
    assert decode(bytes.fromhex("0010 0001 67"), b"whatever") is None


def test_unknown_versions_of_values_are_refused() -> None:
    with pytest.raises(MalformedBytes):
        decode(bytes.fromhex("0002 0001 67"), bytes.fromhex("0005"))
    with pytest.raises(MalformedBytes):
        decode(bytes.fromhex("0001 0001 67 0001 74 00000003"), bytes.fromhex("ffff"))
    with pytest.raises(MalformedBytes):
        decode(bytes.fromhex("03e8 0000000000000009 0001 67 0001 74 00000003"), bytes.fromhex("0001 0002"))


def test_topics_are_read_from_a_consumers_metadata() -> None:
    assert subscribed_topics(subscription("a", "b")) == frozenset({"a", "b"})
    assert subscribed_topics(subscription()) == frozenset()


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x01\x7f\xff\xff\xff", b"junk"])
def test_metadata_that_cannot_be_read_says_nothing(metadata: bytes) -> None:
    assert subscribed_topics(metadata) is None
