import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.groups.consumer_events import (
    ClassicPart,
    ConsumerEvent,
    ConsumerGroupDeleted,
    ConsumerGroupStored,
    ConsumerMemberDeleted,
    ConsumerMemberStored,
    CurrentDeleted,
    CurrentStored,
    MemberState,
    TargetDeleted,
    TargetEpochDeleted,
    TargetEpochStored,
    TargetStored,
)
from headwater.groups.consumer_protocol import read_assignment, read_subscription, with_ids, write_assignment
from headwater.groups.consumer_records import KEYS
from headwater.groups.event_records import decode, encode
from headwater.groups.topics import TopicInfo, TopicTable
from headwater.records.byte_reader import MalformedBytes

names = st.text(max_size=20)
maybe = st.none() | names
int32 = st.integers(-(2**31), 2**31 - 1)
assignments = st.dictionaries(st.uuids(), st.frozensets(int32, min_size=1, max_size=5), max_size=4)
classic = st.builds(ClassicPart, int32, st.lists(st.tuples(names, st.binary(max_size=40)), max_size=3).map(tuple))
events = st.one_of(
    st.builds(ConsumerGroupStored, names, int32, st.integers(-(2**63), 2**63 - 1)),
    st.builds(ConsumerGroupDeleted, names),
    st.builds(
        ConsumerMemberStored,
        group_id=names,
        member_id=names,
        instance_id=maybe,
        rack_id=maybe,
        client_id=names,
        client_host=names,
        topic_names=st.frozensets(names, max_size=4).map(lambda each: tuple(sorted(each))),
        topic_regex=st.none() | st.text(min_size=1),
        rebalance_timeout_ms=st.integers(0, 2**31 - 1),
        server_assignor=maybe,
        classic=st.none() | classic,
    ),
    st.builds(ConsumerMemberDeleted, names, names),
    st.builds(TargetEpochStored, names, int32),
    st.builds(TargetEpochDeleted, names),
    st.builds(TargetStored, names, names, assignments),
    st.builds(TargetDeleted, names, names),
    st.builds(
        CurrentStored,
        group_id=names,
        member_id=names,
        epoch=int32,
        previous_epoch=int32,
        state=st.sampled_from(MemberState),
        assigned=assignments,
        revoking=assignments,
    ),
    st.builds(CurrentDeleted, names, names),
)


@given(events)
def test_every_event_comes_back_from_its_bytes(event: ConsumerEvent) -> None:
    assert decode(*encode(event)) == event


@given(st.sampled_from(KEYS), st.binary(max_size=40), st.none() | st.binary(max_size=80))
def test_hostile_bytes_are_refused_or_read_but_never_fatal(kind: int, key: bytes, value: bytes | None) -> None:
    for names in (key, b"\x00\x01g\x00\x01m"):
        for body in (value, b"\x00\x00" + value if value is not None else None):
            with contextlib.suppress(MalformedBytes):
                decode(kind.to_bytes(2, "big") + names, body)


@given(events, st.data())
def test_every_shortened_record_is_refused(event: ConsumerEvent, data: st.DataObject) -> None:
    key, value = encode(event)
    if value is None:
        return
    end = {TargetEpochStored: 1, TargetStored: 1, CurrentStored: 1}.get(type(event), 0)  # the empty tags, unread
    cut = data.draw(st.integers(0, len(value) - 1 - end))
    with pytest.raises(MalformedBytes):
        decode(key, value[:cut])


def test_the_bytes_of_a_members_assignment_are_kafkas() -> None:
    topic_id = uuid.UUID(int=7)
    key, value = encode(
        CurrentStored(
            group_id="g",
            member_id="m",
            epoch=3,
            previous_epoch=2,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned={},
            revoking={topic_id: frozenset({1})},
        )
    )
    assert key == bytes.fromhex("0008 0001 67 0001 6d")
    assert value == bytes.fromhex("0000 00000003 00000002 01 01 02") + topic_id.bytes + bytes.fromhex(
        "02 00000001 00 00"
    )


def test_the_bytes_of_a_group_are_kafkas() -> None:
    assert encode(ConsumerGroupStored("g", 5, 0)) == (bytes.fromhex("0003 0001 67"), bytes.fromhex("0000 00000005 00"))
    _, value = encode(ConsumerGroupStored("g", 5, 1))
    assert value == bytes.fromhex("0000 00000005 01 00 08 0000000000000001")


def test_an_unknown_state_or_version_is_refused() -> None:
    key = bytes.fromhex("0008 0001 67 0001 6d")
    for value in ("0000 00000003 00000002 09 01 01 00", "0001 00000003 00000002 00 01 01 00"):
        with pytest.raises(MalformedBytes):
            decode(key, bytes.fromhex(value))


# What classic consumers write for each other


def table(**topics: int) -> TopicTable:
    found = TopicTable()
    for number, (name, count) in enumerate(topics.items()):
        found.put(TopicInfo(name, uuid.UUID(int=number), count))
    return found


@given(st.binary(max_size=60))
def test_what_is_no_subscription_or_assignment_says_nothing(data: bytes) -> None:
    read_subscription(data)
    with_ids(read_assignment(data), table(t=2))


def test_an_assignment_comes_back_without_topics_that_are_gone() -> None:
    topics = table(a=3, b=2)
    written = write_assignment({uuid.UUID(int=0): frozenset({0, 2}), uuid.UUID(int=9): frozenset({1})}, topics)
    assert read_assignment(written) == (("a", 0), ("a", 2))
    assert with_ids((("a", 2), ("a", 3), ("b", -1), ("c", 0)), topics) == {uuid.UUID(int=0): frozenset({2})}


def test_a_subscription_tells_topics_and_from_version_1_on_what_is_owned() -> None:
    head = bytes.fromhex("00000002 0001 62 0001 61 ffffffff")
    first = read_subscription(b"\x00\x00" + head)
    assert first is not None and (first.topics, first.owned) == (("a", "b"), ())
    owned = bytes.fromhex("00000001 0001 61 00000002 00000000 00000001")
    later = read_subscription(b"\x00\x03" + head + owned + b"\x00\x00\x00\x05\xff\xff")
    assert later is not None and later.owned == (("a", 0), ("a", 1))
    assert read_subscription(b"\x00\x01" + head) is None
