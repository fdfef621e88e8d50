"""The bytes of a share group's events, under the key numbers that Kafka gives them.

    key    int16 10, string group, string member                     a member
           int16 11, string group                                    a group
    value  member   int16 0, string? rack, string client, string host, array of string topics
           group    int16 0, int32 epoch
           none     the key is deleted

The layout of the values is our own. To change it: add a version, keep reading the old ones.
"""

import struct

from headwater.groups.byte_reader import ByteReader, Malformed
from headwater.groups.events import (
    ShareEvent,
    ShareGroupDeleted,
    ShareGroupStored,
    ShareMemberDeleted,
    ShareMemberStored,
)

MEMBER_KEY = 10
GROUP_KEY = 11
KEYS = (MEMBER_KEY, GROUP_KEY)
_VERSION = 0
_MIN_TOPIC_BYTES = 2

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def encode(event: ShareEvent) -> tuple[bytes, bytes | None]:
    """Key and value; no value deletes the key."""
    match event:
        case ShareGroupStored(group_id, epoch):
            return _INT16.pack(GROUP_KEY) + _string(group_id), _INT16.pack(_VERSION) + _INT32.pack(epoch)
        case ShareGroupDeleted(group_id):
            return _INT16.pack(GROUP_KEY) + _string(group_id), None
        case ShareMemberStored(group_id, member_id):
            return _member_key(group_id, member_id), _member_value(event)
        case ShareMemberDeleted(group_id, member_id):
            return _member_key(group_id, member_id), None


def decode(key: int, reader: ByteReader, value: bytes | None) -> ShareEvent:
    """The event of a record whose key has been read up to its number. Raises Malformed."""
    group_id = reader.string()
    if key == GROUP_KEY:
        return ShareGroupDeleted(group_id) if value is None else ShareGroupStored(group_id, _open(value).int32())
    member_id = reader.string()
    if value is None:
        return ShareMemberDeleted(group_id, member_id)
    fields = _open(value)
    rack_id, client_id, client_host = fields.nullable_string(), fields.string(), fields.string()
    topics = tuple(fields.string() for _ in range(fields.count(_MIN_TOPIC_BYTES)))
    return ShareMemberStored(group_id, member_id, rack_id, client_id, client_host, topics)


def _open(value: bytes) -> ByteReader:
    reader = ByteReader(value)
    version = reader.int16()
    if version != _VERSION:
        raise Malformed(f"version {version} of a share group's record is not known")
    return reader


def _member_key(group_id: str, member_id: str) -> bytes:
    return _INT16.pack(MEMBER_KEY) + _string(group_id) + _string(member_id)


def _member_value(member: ShareMemberStored) -> bytes:
    parts = [
        _INT16.pack(_VERSION),
        _string(member.rack_id),
        _string(member.client_id),
        _string(member.client_host),
        _INT32.pack(len(member.topics)),
        *map(_string, member.topics),
    ]
    return b"".join(parts)


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    data = text.encode()
    return _INT16.pack(len(data)) + data
