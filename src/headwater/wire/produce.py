"""Produce, by hand: the request that carries most of the bytes.

Record batches are not copied: each partition's records are a slice of the frame, in which the broker later writes the
base offset and the leader epoch. Versions 3 to 13; from 9 on flexible, from 13 on with topic ids instead of names.
"""

import struct
import uuid
from dataclasses import dataclass, field

from headwater.model.errors import ErrorCode
from headwater.model.ids import NO_OFFSET, Offset
from headwater.wire.api_keys import ApiKey
from headwater.wire.cursor import Cursor, check_null
from headwater.wire.messages import RequestHeader, response_start
from headwater.wire.primitives import array_length, nullable_string, string, write_array_length, write_string

KEY = ApiKey.PRODUCE
MIN_VERSION = 3
MAX_VERSION = 13
_FLEXIBLE = 9
_TOPIC_IDS = 13
_RECORD_ERRORS = 8
_LOG_START = 5

_INT32 = struct.Struct(">i")
_ACKS_TIMEOUT = struct.Struct(">hi")
_PARTITION = struct.Struct(">ihqq")
_PARTITION_WITH_START = struct.Struct(">ihqqq")


@dataclass(slots=True)
class PartitionData:
    index: int
    records: memoryview | None


@dataclass(slots=True)
class TopicData:
    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[PartitionData]


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[TopicData]


@dataclass(slots=True)
class ProducePartitionResult:
    index: int
    error_code: ErrorCode = ErrorCode.NONE
    base_offset: Offset = NO_OFFSET
    log_append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    record_errors: list[tuple[int, str]] = field(default_factory=list)
    error_message: str | None = None


@dataclass(slots=True)
class ProduceTopicResult:
    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[ProducePartitionResult]


def read_request(frame: bytearray, header: RequestHeader) -> ProduceRequest:
    cursor = Cursor(frame, header.body_position)
    version = header.api_version
    is_flexible = version >= _FLEXIBLE
    transactional_id = nullable_string(cursor, is_flexible)
    acks, timeout_ms = _ACKS_TIMEOUT.unpack(cursor.take(6))
    topics = [_read_topic(cursor, version, is_flexible) for _ in range(array_length(cursor, is_flexible, 6))]
    if is_flexible:
        cursor.skip_tags()
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _read_topic(cursor: Cursor, version: int, is_flexible: bool) -> TopicData:
    name = topic_id = None
    if version >= _TOPIC_IDS:
        topic_id = uuid.UUID(bytes=bytes(cursor.take(16)))
    else:
        name = string(cursor, is_flexible)
    partitions = []
    for _ in range(array_length(cursor, is_flexible, 5)):
        (index,) = _INT32.unpack(cursor.take(4))
        size = cursor.uvarint() - 1 if is_flexible else _INT32.unpack(cursor.take(4))[0]
        if size < 0:
            check_null(size, True, "records")
        records = cursor.take(size) if size >= 0 else None
        if is_flexible:
            cursor.skip_tags()
        partitions.append(PartitionData(index, records))
    if is_flexible:
        cursor.skip_tags()
    return TopicData(name, topic_id, partitions)


def write_response(header: RequestHeader, topics: list[ProduceTopicResult], throttle_ms: int = 0) -> bytearray:
    version = header.api_version
    is_flexible = version >= _FLEXIBLE
    out = response_start(KEY, version, header.correlation_id)
    write_array_length(out, len(topics), is_flexible)
    for topic in topics:
        if version >= _TOPIC_IDS:
            out += (topic.topic_id or uuid.UUID(int=0)).bytes
        else:
            write_string(out, topic.name or "", is_flexible)
        write_array_length(out, len(topic.partitions), is_flexible)
        for result in topic.partitions:
            _write_partition(out, result, version)
        if is_flexible:
            out.append(0)
    out += _INT32.pack(throttle_ms)
    if is_flexible:
        out.append(0)
    return out


def _write_partition(out: bytearray, result: ProducePartitionResult, version: int) -> None:
    is_flexible = version >= _FLEXIBLE
    start = (result.index, result.error_code, result.base_offset, result.log_append_time_ms)
    if version < _LOG_START:
        out += _PARTITION.pack(*start)
    else:
        out += _PARTITION_WITH_START.pack(*start, result.log_start_offset)
    if version >= _RECORD_ERRORS:
        write_array_length(out, len(result.record_errors), is_flexible)
        for index, message in result.record_errors:
            out += _INT32.pack(index)
            write_string(out, message, is_flexible)
            if is_flexible:
                out.append(0)
        write_string(out, result.error_message, is_flexible)
    if is_flexible:
        out.append(0)
