"""The bytes of a consumer group's events: key and value of records in Kafka's public format of `__consumer_offsets`.

    key    int16 3, string group                    the group's epoch
           int16 5, string group, string member     a member
           int16 6, string group                    the target's epoch
           int16 7, string group, string member     the member's target
           int16 8, string group, string member     what the member has
    value  int16 0, then in compact form
           3       int32 epoch; tag 0: int64 hash of the topics that the group reads
           5       string? instance, string? rack, string client, string host, array of string topics, string? pattern,
                   int32 rebalance timeout, string? assignor; tag 0 for members of the classic protocol:
                   int8 1, int32 session timeout, array of (string protocol, bytes metadata)
           6       int32 epoch
           7       array of (uuid topic, array of int32)
           8       int32 epoch, int32 previous epoch, int8 state, array of assigned, array of revoking, as in 7
           none    the key is deleted

To change a format: add a version, keep reading the old ones.
"""

import struct

from headwater.groups.assignment import Assignment
from headwater.groups.compact_bytes import compact_string, varint
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
from headwater.records.byte_reader import ByteReader, MalformedBytes

GROUP_KEY, MEMBER_KEY, TARGET_EPOCH_KEY, TARGET_KEY, CURRENT_KEY = 3, 5, 6, 7, 8
KEYS = (GROUP_KEY, MEMBER_KEY, TARGET_EPOCH_KEY, TARGET_KEY, CURRENT_KEY)
_VERSION = 0
_HASH_TAG = 0
_CLASSIC_TAG = 0
_MIN_TOPIC_BYTES = 16 + 1
_MIN_PROTOCOL_BYTES = 3
_INDEX_BYTES = 4

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_CURRENT_HEAD = struct.Struct(">iib")
_NO_TAGS = b"\x00"


def encode(event: ConsumerEvent) -> tuple[bytes, bytes | None]:
    """Key and value; no value deletes the key."""
    match event:
        case ConsumerGroupStored(group_id, epoch, metadata_hash):
            tag = _tag(_HASH_TAG, _INT64.pack(metadata_hash)) if metadata_hash else _NO_TAGS
            return _key(GROUP_KEY, group_id), _value(_INT32.pack(epoch), tag)
        case ConsumerGroupDeleted(group_id):
            return _key(GROUP_KEY, group_id), None
        case ConsumerMemberStored():
            return _key(MEMBER_KEY, event.group_id, event.member_id), _member_value(event)
        case ConsumerMemberDeleted(group_id, member_id):
            return _key(MEMBER_KEY, group_id, member_id), None
        case TargetEpochStored(group_id, epoch):
            return _key(TARGET_EPOCH_KEY, group_id), _value(_INT32.pack(epoch), _NO_TAGS)
        case TargetEpochDeleted(group_id):
            return _key(TARGET_EPOCH_KEY, group_id), None
        case TargetStored(group_id, member_id, partitions):
            return _key(TARGET_KEY, group_id, member_id), _value(_partitions(partitions), _NO_TAGS)
        case TargetDeleted(group_id, member_id):
            return _key(TARGET_KEY, group_id, member_id), None
        case CurrentStored():
            head = _CURRENT_HEAD.pack(event.epoch, event.previous_epoch, event.state)
            value = _value(head, _partitions(event.assigned), _partitions(event.revoking), _NO_TAGS)
            return _key(CURRENT_KEY, event.group_id, event.member_id), value
        case CurrentDeleted(group_id, member_id):
            return _key(CURRENT_KEY, group_id, member_id), None


def decode(key: int, reader: ByteReader, value: bytes | None) -> ConsumerEvent:
    """The event of a record whose key has been read up to its number. Raises MalformedBytes."""
    group_id = reader.string()
    member_id = reader.string() if key in (MEMBER_KEY, TARGET_KEY, CURRENT_KEY) else ""
    if value is None:
        return _deleted(key, group_id, member_id)
    fields = ByteReader(value)
    version = fields.int16()
    if version != _VERSION:
        raise MalformedBytes(f"version {version} of a record of kind {key} is not known")
    match key:
        case 3:
            epoch = fields.int32()
            tagged = fields.tags().get(_HASH_TAG)
            return ConsumerGroupStored(group_id, epoch, tagged.int64() if tagged is not None else 0)
        case 5:
            return _read_member(group_id, member_id, fields)
        case 6:
            return TargetEpochStored(group_id, fields.int32())
        case 7:
            return TargetStored(group_id, member_id, _read_partitions(fields))
        case _:
            epoch, previous, state = fields.int32(), fields.int32(), fields.int8()
            if state not in list(MemberState):
                raise MalformedBytes(f"state {state} of a member is not known")
            assigned, revoking = _read_partitions(fields), _read_partitions(fields)
            return CurrentStored(
                group_id=group_id,
                member_id=member_id,
                epoch=epoch,
                previous_epoch=previous,
                state=MemberState(state),
                assigned=assigned,
                revoking=revoking,
            )


def _deleted(key: int, group_id: str, member_id: str) -> ConsumerEvent:
    match key:
        case 3:
            return ConsumerGroupDeleted(group_id)
        case 5:
            return ConsumerMemberDeleted(group_id, member_id)
        case 6:
            return TargetEpochDeleted(group_id)
        case 7:
            return TargetDeleted(group_id, member_id)
        case _:
            return CurrentDeleted(group_id, member_id)


def _key(number: int, *names: str) -> bytes:
    parts = [_INT16.pack(number)]
    for name in names:
        data = name.encode()
        parts += [_INT16.pack(len(data)), data]
    return b"".join(parts)


def _value(*parts: bytes) -> bytes:
    return _INT16.pack(_VERSION) + b"".join(parts)


def _member_value(member: ConsumerMemberStored) -> bytes:
    return _value(
        compact_string(member.instance_id),
        compact_string(member.rack_id),
        compact_string(member.client_id),
        compact_string(member.client_host),
        varint(len(member.topic_names) + 1),
        *map(compact_string, member.topic_names),
        compact_string(member.topic_regex),
        _INT32.pack(member.rebalance_timeout_ms),
        compact_string(member.server_assignor),
        _tag(_CLASSIC_TAG, _classic(member.classic)) if member.classic is not None else _NO_TAGS,
    )


def _classic(classic: ClassicPart) -> bytes:
    parts = [_INT8.pack(1), _INT32.pack(classic.session_timeout_ms), varint(len(classic.protocols) + 1)]
    for name, metadata in classic.protocols:
        parts += [compact_string(name), varint(len(metadata) + 1), metadata, _NO_TAGS]
    return b"".join(parts) + _NO_TAGS


def _read_member(group_id: str, member_id: str, fields: ByteReader) -> ConsumerMemberStored:
    instance_id, rack_id = fields.compact_nullable_string(), fields.compact_nullable_string()
    client_id, client_host = fields.compact_string(), fields.compact_string()
    topic_names = tuple(sorted({fields.compact_string() for _ in range(fields.compact_count(1))}))
    topic_regex = fields.compact_nullable_string() or None
    rebalance_timeout_ms = max(fields.int32(), 0)
    server_assignor = fields.compact_nullable_string()
    tagged = fields.tags().get(_CLASSIC_TAG)
    classic = _read_classic(tagged) if tagged is not None else None
    return ConsumerMemberStored(
        group_id=group_id,
        member_id=member_id,
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topic_names=topic_names,
        topic_regex=topic_regex,
        rebalance_timeout_ms=rebalance_timeout_ms,
        server_assignor=server_assignor,
        classic=classic,
    )


def _read_classic(fields: ByteReader) -> ClassicPart | None:
    if fields.int8() < 0:
        return None
    session_timeout_ms = fields.int32()
    protocols = []
    for _ in range(fields.compact_count(_MIN_PROTOCOL_BYTES)):
        protocols.append((fields.compact_string(), fields.compact_blob()))
        fields.tags()
    return ClassicPart(session_timeout_ms, tuple(protocols))


def _partitions(assignment: Assignment) -> bytes:
    parts = [varint(len(assignment) + 1)]
    for topic_id, indexes in sorted(assignment.items()):
        parts += [
            topic_id.bytes,
            varint(len(indexes) + 1),
            struct.pack(f">{len(indexes)}i", *sorted(indexes)),
            _NO_TAGS,
        ]
    return b"".join(parts)


def _read_partitions(fields: ByteReader) -> Assignment:
    found = {}
    for _ in range(fields.compact_count(_MIN_TOPIC_BYTES)):
        topic_id = fields.uuid()
        indexes = frozenset(fields.int32() for _ in range(fields.compact_count(_INDEX_BYTES)))
        fields.tags()
        if indexes:
            found[topic_id] = indexes
    return found


def _tag(number: int, data: bytes) -> bytes:
    return varint(1) + varint(number) + varint(len(data)) + data
