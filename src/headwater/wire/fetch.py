"""Fetch, by hand: the response that carries most of the bytes.

Records are never copied into the response: it is a list of buffers, the batches as they were stored
between the few bytes that frame them. Versions 4 to 18; from 7 on with fetch sessions (KIP-227), from 12 on flexible,
from 13 on with topic ids instead of names.
"""

import struct
import uuid
from dataclasses import dataclass, field

from headwater.model.errors import ErrorCode
from headwater.model.ids import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, NodeId, Offset
from headwater.model.replica import Buffer
from headwater.wire.api_keys import ApiKey
from headwater.wire.codec import write_uvarint
from headwater.wire.cursor import Cursor, MalformedRequest
from headwater.wire.messages import RequestHeader, response_start
from headwater.wire.primitives import array_length, string, write_array_length, write_string

KEY = ApiKey.FETCH
MIN_VERSION = 4
MAX_VERSION = 18
FIRST_SESSION_VERSION = 7
TOPIC_IDS = 13
_FLEXIBLE = 12

_INT32 = struct.Struct(">i")
_WAITS = struct.Struct(">iiib")
_SESSION = struct.Struct(">ii")
_REPLICA_STATE = struct.Struct(">iq")
_TOP = struct.Struct(">ihi")
_OFFSETS_V4 = struct.Struct(">ihqq")
_OFFSETS_V5 = struct.Struct(">ihqqq")
_LEADER = struct.Struct(">ii")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")


@dataclass(slots=True)
class FetchPartition:
    index: int
    current_leader_epoch: LeaderEpoch
    fetch_offset: Offset
    last_fetched_epoch: LeaderEpoch
    log_start_offset: Offset
    max_bytes: int


@dataclass(slots=True)
class FetchTopic:
    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[FetchPartition]


@dataclass(slots=True)
class ForgottenTopic:
    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[int]


@dataclass(slots=True)
class FetchRequest:
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]


@dataclass(slots=True)
class FetchPartitionResult:
    index: int
    error_code: ErrorCode = ErrorCode.NONE
    high_watermark: Offset = NO_OFFSET
    last_stable_offset: Offset = NO_OFFSET
    log_start_offset: Offset = NO_OFFSET
    records: list[Buffer] = field(default_factory=list)
    size_bytes: int = 0
    aborted: list[tuple[int, Offset]] | None = None
    """(producer id, first offset) of aborted transactions, for read_committed."""
    diverging_epoch: tuple[LeaderEpoch, Offset] | None = None
    current_leader: tuple[NodeId, LeaderEpoch] | None = None


@dataclass(slots=True)
class FetchTopicResult:
    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[FetchPartitionResult]


def read_request(frame: bytearray, header: RequestHeader) -> FetchRequest:
    cursor = Cursor(frame, header.body_position)
    version = header.api_version
    is_flexible = version >= _FLEXIBLE
    replica_id = _INT32.unpack(cursor.take(4))[0] if version <= 14 else -1
    max_wait_ms, min_bytes, max_bytes, isolation_level = _WAITS.unpack(cursor.take(_WAITS.size))
    session_id, session_epoch = 0, -1
    if version >= FIRST_SESSION_VERSION:
        session_id, session_epoch = _SESSION.unpack(cursor.take(_SESSION.size))
    topics = [_read_topic(cursor, version) for _ in range(array_length(cursor, is_flexible, 5))]
    forgotten: list[ForgottenTopic] = []
    if version >= FIRST_SESSION_VERSION:
        forgotten = [_read_forgotten(cursor, version) for _ in range(array_length(cursor, is_flexible, 5))]
    if version >= 11:
        string(cursor, is_flexible)  # rack: one node has no nearer replica to offer
    if is_flexible:
        replica_id = _read_tags(cursor, replica_id)
    return FetchRequest(  # by position: made for each fetch
        replica_id, max_wait_ms, min_bytes, max_bytes, isolation_level, session_id, session_epoch, topics, forgotten
    )


def _read_tags(cursor: Cursor, replica_id: int) -> int:
    """Of the tagged fields only the replica state (1) matters: a client that claims to be a replica is refused."""
    for tag, size in cursor.tags():
        data = cursor.take(size)
        if tag == 1:
            if size <= _REPLICA_STATE.size:
                raise MalformedRequest(f"a replica's state of {size} bytes")
            replica_id = _REPLICA_STATE.unpack_from(data)[0]
    return replica_id


def _partition_layout(version: int) -> struct.Struct:
    if version >= 12:
        return struct.Struct(">iiqiqi")
    if version >= 9:
        return struct.Struct(">iiqqi")
    if version >= 5:
        return struct.Struct(">iqqi")
    return struct.Struct(">iqi")


_PARTITION_LAYOUTS = {version: _partition_layout(version) for version in range(MIN_VERSION, MAX_VERSION + 1)}


def _read_topic(cursor: Cursor, version: int) -> FetchTopic:
    name, topic_id = _read_topic_name(cursor, version)
    layout = _PARTITION_LAYOUTS[version]
    partitions = []
    for _ in range(array_length(cursor, version >= _FLEXIBLE, layout.size)):
        values = layout.unpack(cursor.take(layout.size))
        if version >= 12:
            partition = FetchPartition(*values)
        elif version >= 9:
            index, leader_epoch, offset, log_start, max_bytes = values
            partition = FetchPartition(index, leader_epoch, offset, NO_LEADER_EPOCH, log_start, max_bytes)
        elif version >= 5:
            index, offset, log_start, max_bytes = values
            partition = FetchPartition(index, NO_LEADER_EPOCH, offset, NO_LEADER_EPOCH, log_start, max_bytes)
        else:
            index, offset, max_bytes = values
            partition = FetchPartition(index, NO_LEADER_EPOCH, offset, NO_LEADER_EPOCH, NO_OFFSET, max_bytes)
        if version >= _FLEXIBLE:
            cursor.skip_tags()
        partitions.append(partition)
    if version >= _FLEXIBLE:
        cursor.skip_tags()
    return FetchTopic(name, topic_id, partitions)


def _read_forgotten(cursor: Cursor, version: int) -> ForgottenTopic:
    name, topic_id = _read_topic_name(cursor, version)
    count = array_length(cursor, version >= _FLEXIBLE, 4)
    partitions = [_INT32.unpack(cursor.take(4))[0] for _ in range(count)]
    if version >= _FLEXIBLE:
        cursor.skip_tags()
    return ForgottenTopic(name, topic_id, partitions)


def _read_topic_name(cursor: Cursor, version: int) -> tuple[str | None, uuid.UUID | None]:
    if version >= TOPIC_IDS:
        return None, uuid.UUID(bytes=bytes(cursor.take(16)))
    return string(cursor, version >= _FLEXIBLE), None


def write_response(
    header: RequestHeader, error_code: ErrorCode, session_id: int, topics: list[FetchTopicResult]
) -> list[Buffer]:
    """The response as buffers to be written one after the other."""
    version = header.api_version
    is_flexible = version >= _FLEXIBLE
    pieces: list[Buffer] = []
    out = response_start(KEY, version, header.correlation_id)
    if version >= FIRST_SESSION_VERSION:
        out += _TOP.pack(0, error_code, session_id)
    else:
        out += b"\0\0\0\0"  # throttle time
    write_array_length(out, len(topics), is_flexible)
    for topic in topics:
        if version >= TOPIC_IDS:
            out += (topic.topic_id or uuid.UUID(int=0)).bytes
        else:
            write_string(out, topic.name or "", is_flexible)
        write_array_length(out, len(topic.partitions), is_flexible)
        for result in topic.partitions:
            _write_partition_start(out, result, version)
            if result.records:
                pieces.append(out)
                pieces.extend(result.records)
                out = bytearray()
            if is_flexible:
                _write_partition_tags(out, result)
        if is_flexible:
            out.append(0)
    if is_flexible:
        out.append(0)
    pieces.append(out)
    return pieces


def tell_throttle(pieces: list[Buffer], header: RequestHeader, throttle_ms: int) -> None:
    """Into a response that is written: how long its client waits depends on its size."""
    out = pieces[0]
    assert isinstance(out, bytearray), "a response begins with bytes of its own"
    _INT32.pack_into(out, len(response_start(KEY, header.api_version, header.correlation_id)), throttle_ms)


def _write_partition_start(out: bytearray, result: FetchPartitionResult, version: int) -> None:
    is_flexible = version >= _FLEXIBLE
    start = (result.index, result.error_code, result.high_watermark, result.last_stable_offset)
    if version >= 5:
        out += _OFFSETS_V5.pack(*start, result.log_start_offset)
    else:
        out += _OFFSETS_V4.pack(*start)
    if result.aborted is None:
        out += b"\0" if is_flexible else b"\xff\xff\xff\xff"
    else:
        write_array_length(out, len(result.aborted), is_flexible)
        for producer_id, first_offset in result.aborted:
            out += _ABORTED.pack(producer_id, first_offset)
            if is_flexible:
                out.append(0)
    if version >= 11:
        out += b"\xff\xff\xff\xff"  # preferred read replica: none
    if is_flexible:
        write_uvarint(out, result.size_bytes + 1)
    else:
        out += _INT32.pack(result.size_bytes)


def _write_partition_tags(out: bytearray, result: FetchPartitionResult) -> None:
    if result.diverging_epoch is None and result.current_leader is None:
        out.append(0)
        return
    tags = []
    if result.diverging_epoch is not None:
        tags.append((0, _EPOCH_END.pack(*result.diverging_epoch) + b"\0"))
    if result.current_leader is not None:
        tags.append((1, _LEADER.pack(*result.current_leader) + b"\0"))
    write_uvarint(out, len(tags))
    for tag, body in tags:
        write_uvarint(out, tag)
        write_uvarint(out, len(body))
        out += body
