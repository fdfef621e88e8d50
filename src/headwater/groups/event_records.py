"""The bytes of events: key and value of records in Kafka's public format of `__consumer_offsets`.

    key    int16 1, string group, string topic, int32 partition      an offset (0 is read like 1)
           int16 2, string group                                     a group
           int16 1000, int64 producer, string group, string topic,
           int32 partition                                           an offset inside a transaction
    value  offset   int16 3, int64 offset, int32 leader epoch, string metadata, int64 commit time
                    int16 1, int64 offset, string metadata, int64 commit time, int64 expire time
           group    int16 3, string protocol type, int32 generation, string? protocol, string? leader,
                    int64 state time, array of members:
                    string member, string? instance, string client, string host, int32 rebalance timeout,
                    int32 session timeout, bytes subscription, bytes assignment
           pending  int16 0, int16 producer epoch, then as an offset
           none     the key is deleted

Keys of consumer groups are in `consumer_records`, those of share groups in `share_records`. Keys from 1000 on are our
own: Kafka writes the offsets of a transaction as ordinary ones of its producer, and a marker behind them; here their
end is an event like any other.

Older versions are read too. An unknown key is skipped; an unknown value version of a known key cannot be read.
To change a format: add a version, keep reading the old ones.
"""

import struct

from headwater.groups import consumer_records, share_records
from headwater.groups.events import (
    CommittedOffset,
    Event,
    GroupDeleted,
    GroupStored,
    OffsetCommitted,
    OffsetDeleted,
    PendingOffsetDeleted,
    PendingOffsetStored,
    ShareGroupDeleted,
    ShareGroupStored,
    ShareMemberDeleted,
    ShareMemberStored,
    StoredMember,
)
from headwater.model.ids import NO_LEADER_EPOCH, LeaderEpoch, Offset
from headwater.records.byte_reader import ByteReader, MalformedBytes

_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2
_PENDING_KEY = 1000
_OFFSET_VALUE = 3
_OFFSET_VALUE_WITH_EXPIRY = 1
_GROUP_VALUE = 3
_PENDING_VALUE = 0
_MIN_MEMBER_BYTES = 2 + 2 + 2 + 4 + 4 + 4

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_OFFSET_HEAD = struct.Struct(">hqi")
_OFFSET_HEAD_WITH_EXPIRY = struct.Struct(">hq")
_PENDING_KEY_HEAD = struct.Struct(">hq")
_PENDING_HEAD = struct.Struct(">hh")


def encode(event: Event) -> tuple[bytes, bytes | None]:
    """Key and value; no value deletes the key."""
    match event:
        case OffsetCommitted(group_id, topic, partition, committed):
            return _offset_key(group_id, topic, partition), _offset_value(committed)
        case OffsetDeleted(group_id, topic, partition):
            return _offset_key(group_id, topic, partition), None
        case PendingOffsetStored(producer_id, producer_epoch, group_id, topic, partition, committed):
            value = _PENDING_HEAD.pack(_PENDING_VALUE, producer_epoch) + _offset_value(committed)
            return _pending_key(producer_id, group_id, topic, partition), value
        case PendingOffsetDeleted(producer_id, group_id, topic, partition):
            return _pending_key(producer_id, group_id, topic, partition), None
        case GroupStored():
            return _group_key(event.group_id), _group_value(event)
        case GroupDeleted(group_id):
            return _group_key(group_id), None
        case ShareGroupStored() | ShareGroupDeleted() | ShareMemberStored() | ShareMemberDeleted():
            return share_records.encode(event)
        case _:
            return consumer_records.encode(event)


def decode(key: bytes, value: bytes | None) -> Event | None:
    """The event of a record; None if it is of a kind that is not for us. Raises MalformedBytes."""
    reader = ByteReader(key)
    version = reader.int16()
    if version in _OFFSET_KEYS:
        group_id, topic, partition = reader.string(), reader.string(), reader.int32()
        if value is None:
            return OffsetDeleted(group_id, topic, partition)
        return OffsetCommitted(group_id, topic, partition, _read_offset(ByteReader(value)))
    if version == _GROUP_KEY:
        group_id = reader.string()
        return GroupDeleted(group_id) if value is None else _read_group(group_id, ByteReader(value))
    if version == _PENDING_KEY:
        return _read_pending(reader, value)
    if version in consumer_records.KEYS:
        return consumer_records.decode(version, reader, value)
    if version in share_records.KEYS:
        return share_records.decode(version, reader, value)
    return None


def _offset_key(group_id: str, topic: str, partition: int) -> bytes:
    return _INT16.pack(1) + _string(group_id) + _string(topic) + _INT32.pack(partition)


def _pending_key(producer_id: int, group_id: str, topic: str, partition: int) -> bytes:
    head = _PENDING_KEY_HEAD.pack(_PENDING_KEY, producer_id)
    return head + _string(group_id) + _string(topic) + _INT32.pack(partition)


def _group_key(group_id: str) -> bytes:
    return _INT16.pack(_GROUP_KEY) + _string(group_id)


def _offset_value(committed: CommittedOffset) -> bytes:
    metadata = _string(committed.metadata)
    commit_time = _INT64.pack(committed.commit_timestamp_ms)
    if committed.expire_timestamp_ms is not None:
        head = _OFFSET_HEAD_WITH_EXPIRY.pack(_OFFSET_VALUE_WITH_EXPIRY, committed.offset)
        return head + metadata + commit_time + _INT64.pack(committed.expire_timestamp_ms)
    return _OFFSET_HEAD.pack(_OFFSET_VALUE, committed.offset, committed.leader_epoch) + metadata + commit_time


def _read_offset(reader: ByteReader) -> CommittedOffset:
    version = reader.int16()
    if not 0 <= version <= _OFFSET_VALUE:
        raise MalformedBytes(f"version {version} of an offset is not known")
    offset = Offset(reader.int64())
    leader_epoch = LeaderEpoch(reader.int32()) if version >= 3 else NO_LEADER_EPOCH
    metadata = reader.string()
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == _OFFSET_VALUE_WITH_EXPIRY else -1
    return CommittedOffset(
        offset,
        leader_epoch,
        metadata,
        commit_timestamp_ms,
        expire_timestamp_ms if expire_timestamp_ms >= 0 else None,
    )


def _read_pending(key: ByteReader, value: bytes | None) -> PendingOffsetStored | PendingOffsetDeleted:
    producer_id, group_id, topic, partition = key.int64(), key.string(), key.string(), key.int32()
    if value is None:
        return PendingOffsetDeleted(producer_id, group_id, topic, partition)
    reader = ByteReader(value)
    version = reader.int16()
    if version != _PENDING_VALUE:
        raise MalformedBytes(f"version {version} of an offset inside a transaction is not known")
    return PendingOffsetStored(producer_id, reader.int16(), group_id, topic, partition, _read_offset(reader))


def _group_value(group: GroupStored) -> bytes:
    parts = [
        _INT16.pack(_GROUP_VALUE),
        _string(group.protocol_type),
        _INT32.pack(group.generation),
        _string(group.protocol),
        _string(group.leader),
        _INT64.pack(group.state_timestamp_ms),
        _INT32.pack(len(group.members)),
    ]
    for member in group.members:
        parts += (
            _string(member.member_id),
            _string(member.instance_id),
            _string(member.client_id),
            _string(member.client_host),
            _INT32.pack(member.rebalance_timeout_ms),
            _INT32.pack(member.session_timeout_ms),
            _INT32.pack(len(member.subscription)),
            member.subscription,
            _INT32.pack(len(member.assignment)),
            member.assignment,
        )
    return b"".join(parts)


def _read_group(group_id: str, reader: ByteReader) -> GroupStored:
    version = reader.int16()
    if not 0 <= version <= _GROUP_VALUE:
        raise MalformedBytes(f"version {version} of a group is not known")
    protocol_type, generation = reader.string(), reader.int32()
    protocol, leader = reader.nullable_string(), reader.nullable_string()
    state_timestamp_ms = reader.int64() if version >= 2 else -1
    members = tuple(_read_member(version, reader) for _ in range(reader.count(_MIN_MEMBER_BYTES)))
    return GroupStored(
        group_id=group_id,
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_timestamp_ms=state_timestamp_ms,
        members=members,
    )


def _read_member(version: int, reader: ByteReader) -> StoredMember:
    member_id = reader.string()
    instance_id = reader.nullable_string() if version >= 3 else None
    client_id, client_host = reader.string(), reader.string()
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    return StoredMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms if version >= 1 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=reader.blob(),
        assignment=reader.blob(),
    )


def _string(text: str | None) -> bytes:
    if text is None:
        return _INT16.pack(-1)
    data = text.encode()
    return _INT16.pack(len(data)) + data
