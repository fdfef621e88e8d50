"""The bytes of a share group's events: key and value of records in Kafka's public format of `__consumer_offsets`.

    key    int16 10, string group, string member                     a member
           int16 11, string group                                    a group
    value  int16 0, then in compact form
           member   string? rack, string client, string host, array of string topics
           group    int32 epoch, int64 hash of the topics that the group reads, which is not used here
           none     the key is deleted

Older versions wrote values of their own under the same keys: a group ended behind its epoch, a member's texts and
topics had lengths of two and four bytes. They are read, too: what does not fill the bytes of one form exactly is in the
other.
"""

import struct

from headwater.groups.compact_bytes import compact_string, varint
from headwater.groups.events import (
    ShareEvent,
    ShareGroupDeleted,
    ShareGroupStored,
    ShareMemberDeleted,
    ShareMemberStored,
)
from headwater.records.byte_reader import ByteReader, MalformedBytes

MEMBER_KEY = 10
GROUP_KEY = 11
KEYS = (MEMBER_KEY, GROUP_KEY)
_VERSION = 0
_OLD_GROUP_BYTES = 2 + 4
_MIN_TOPIC_BYTES = 1
_MIN_OLD_TOPIC_BYTES = 2
_NO_HASH = 0

_INT16 = struct.Struct(">h")
_GROUP = struct.Struct(">hiq")
_NO_TAGS = b"\x00"


def encode(event: ShareEvent) -> tuple[bytes, bytes | None]:
    """Key and value; no value deletes the key."""
    match event:
        case ShareGroupStored(group_id, epoch):
            return _INT16.pack(GROUP_KEY) + _string(group_id), _GROUP.pack(_VERSION, epoch, _NO_HASH) + _NO_TAGS
        case ShareGroupDeleted(group_id):
            return _INT16.pack(GROUP_KEY) + _string(group_id), None
        case ShareMemberStored(group_id, member_id):
            return _member_key(group_id, member_id), _member_value(event)
        case ShareMemberDeleted(group_id, member_id):
            return _member_key(group_id, member_id), None


def decode(key: int, reader: ByteReader, value: bytes | None) -> ShareEvent:
    """The event of a record whose key has been read up to its number. Raises MalformedBytes."""
    group_id = reader.string()
    if key == GROUP_KEY:
        return ShareGroupDeleted(group_id) if value is None else _read_group(group_id, value)
    member_id = reader.string()
    if value is None:
        return ShareMemberDeleted(group_id, member_id)
    try:
        return _read_member(group_id, member_id, _open(value))
    except MalformedBytes:
        return _read_old_member(group_id, member_id, _open(value))


def _read_group(group_id: str, value: bytes) -> ShareGroupStored:
    fields = _open(value)
    epoch = fields.int32()
    if len(value) != _OLD_GROUP_BYTES:
        fields.int64()
        fields.tags()
        fields.check_end()
    return ShareGroupStored(group_id, epoch)


def _read_member(group_id: str, member_id: str, fields: ByteReader) -> ShareMemberStored:
    rack_id = fields.compact_nullable_string()
    client_id, client_host = fields.compact_string(), fields.compact_string()
    topics = tuple(fields.compact_string() for _ in range(fields.compact_count(_MIN_TOPIC_BYTES)))
    fields.tags()
    fields.check_end()
    return ShareMemberStored(group_id, member_id, rack_id, client_id, client_host, topics)


def _read_old_member(group_id: str, member_id: str, fields: ByteReader) -> ShareMemberStored:
    rack_id, client_id, client_host = fields.nullable_string(), fields.string(), fields.string()
    topics = tuple(fields.string() for _ in range(fields.count(_MIN_OLD_TOPIC_BYTES)))
    fields.check_end()
    return ShareMemberStored(group_id, member_id, rack_id, client_id, client_host, topics)


def _open(value: bytes) -> ByteReader:
    reader = ByteReader(value)
    version = reader.int16()
    if version != _VERSION:
        raise MalformedBytes(f"version {version} of a share group's record is not known")
    return reader


def _member_key(group_id: str, member_id: str) -> bytes:
    return _INT16.pack(MEMBER_KEY) + _string(group_id) + _string(member_id)


def _member_value(member: ShareMemberStored) -> bytes:
    parts = [
        _INT16.pack(_VERSION),
        compact_string(member.rack_id),
        compact_string(member.client_id),
        compact_string(member.client_host),
        varint(len(member.topics) + 1),
        *map(compact_string, member.topics),
        _NO_TAGS,
    ]
    return b"".join(parts)


def _string(text: str) -> bytes:
    data = text.encode()
    return _INT16.pack(len(data)) + data
