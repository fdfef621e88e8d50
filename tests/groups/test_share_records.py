"""The bytes of share groups: Kafka's, and those that older versions wrote under the same keys."""

import pytest

from headwater.groups.event_records import decode, encode
from headwater.groups.events import ShareEvent, ShareGroupStored, ShareMemberStored
from headwater.records.byte_reader import MalformedBytes

GROUP = ShareGroupStored("g", 7)
MEMBER = ShareMemberStored("g", "m", "rack", "client", "/host", ("a", "b"))
GROUP_KEY, MEMBER_KEY = b"\0\x0b\0\1g", b"\0\x0a\0\1g\0\1m"


def test_groups_and_members_are_written_as_kafka_does() -> None:
    assert encode(GROUP) == (GROUP_KEY, b"\0\0\0\0\0\7\0\0\0\0\0\0\0\0\0")
    assert encode(MEMBER) == (MEMBER_KEY, b"\0\0\5rack\7client\6/host\3\2a\2b\0")


@pytest.mark.parametrize(
    ("key", "value", "event"),
    [
        (GROUP_KEY, b"\0\0\0\0\0\7", GROUP),
        (MEMBER_KEY, b"\0\0\0\4rack\0\6client\0\5/host\0\0\0\2\0\1a\0\1b", MEMBER),
        (MEMBER_KEY, b"\0\0\xff\xff\0\1c\0\1h\0\0\0\0", ShareMemberStored("g", "m", None, "c", "h", ())),
        (MEMBER_KEY, b"\0\0\0\0\0\0\0\0\0\0\0\0", ShareMemberStored("g", "m", "", "", "", ())),
    ],
)  # fmt: skip
def test_what_older_versions_wrote_is_read(key: bytes, value: bytes, event: ShareEvent) -> None:
    assert decode(key, value) == event


@pytest.mark.parametrize("event", [GROUP, MEMBER])
def test_cut_off_bytes_are_refused(event: ShareEvent) -> None:
    key, value = encode(event)
    assert value is not None
    for end in range(len(value)):
        if end != len(b"\0\0\0\0\0\7"):  # a group of an older version
            with pytest.raises(MalformedBytes):
                decode(key, value[:end])
    with pytest.raises(MalformedBytes):
        decode(key, value + b"\0")
