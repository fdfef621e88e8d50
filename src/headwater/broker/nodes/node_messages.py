"""The bytes of the RPCs between nodes: requests and responses. Integers are big-endian; a text is its length in two
bytes and UTF-8, a blob its length in four; a partition is the topic's id and an index; an array begins with a count.
Reading raises MalformedBytes.

To change a body: a new kind, so that the nodes of a cluster can be upgraded one after the other.
"""

import enum
import struct
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from headwater.model.errors import ErrorCode
from headwater.model.group_position import GroupPosition
from headwater.model.ids import LeaderEpoch, Offset, PartitionId
from headwater.records.byte_reader import ByteReader
from headwater.transactions.effects import AddAnswer
from headwater.transactions.requests import AddPartitions


class NodeCallKind(enum.IntEnum):
    MARK = 1
    ADMIT = 2
    APPEND = 3
    READ = 4
    POSITIONS = 5
    CLAIM = 6
    CLAIM_ALL = 7
    WRITE_STATE = 8
    FORGET_STATE = 9
    SHARE_GROUP = 10
    DOUBT_MEMBER = 11
    SHARE_OFFSETS = 12
    RESET_SHARE = 13
    FORGET_SHARES = 14
    FOLLOW_TOPIC = 15
    FOLLOW_SETTINGS = 16


_PARTITION: Final = struct.Struct(">16si")
_MARKER: Final = struct.Struct(">qh?iq")
_PRODUCER: Final = struct.Struct(">qh?b")
_CODE: Final = struct.Struct(">h")
_COUNT: Final = struct.Struct(">I")
_SIZE: Final = struct.Struct(">H")
_LONG: Final = struct.Struct(">q")
_INT: Final = struct.Struct(">i")
_FLAG: Final = struct.Struct(">?")
_READ: Final = struct.Struct(">qI")
_BOUNDS: Final = struct.Struct(">qq")
_POSITION: Final = struct.Struct(">iq")
_STATE: Final = struct.Struct(">qI")
_SHARE: Final = struct.Struct(">qqi")


class ShareKey(NamedTuple):
    """A partition as one share group sees it."""

    group_id: str
    partition: PartitionId


class Marker(NamedTuple):
    partition: PartitionId
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    attempt: int
    """Grows with each try of a coordinator to write a marker."""


class Claimed(NamedTuple):
    """The state of a share partition, given to the leader that claimed it."""

    ticket: int
    """Names the claim. Of two claims only the later one can write."""
    snapshot: bytes
    """Empty if there is no state yet."""
    changes: Sequence[bytes]
    """Since the snapshot."""


class StateEntry(NamedTuple):
    is_snapshot: bool
    value: bytes


class StateWrite(NamedTuple):
    key: ShareKey
    ticket: int
    position: int
    """How many changes there are since the last snapshot, before this write."""
    entries: Sequence[StateEntry]


class ReadBatches(NamedTuple):
    log_start: Offset
    high_watermark: Offset
    batches: memoryview


class ShareOffset(NamedTuple):
    partition: PartitionId
    start_offset: Offset
    lag: int
    leader_epoch: LeaderEpoch


# Pieces


def partition(partition_id: PartitionId) -> bytes:
    return _PARTITION.pack(partition_id.topic_id.bytes, partition_id.index)


def read_partition(body: ByteReader) -> PartitionId:
    return PartitionId(body.uuid(), body.int32())


def text(value: str) -> bytes:
    data = value.encode()
    return _SIZE.pack(len(data)) + data


def read_text(body: ByteReader) -> str:
    return body.utf8(body.unpack(_SIZE)[0])


def number(value: int) -> bytes:
    return _LONG.pack(value)


def key(of: ShareKey) -> bytes:
    return text(of.group_id) + partition(of.partition)


def read_key(body: ByteReader) -> ShareKey:
    return ShareKey(read_text(body), read_partition(body))


def _blob(value: bytes) -> bytes:
    return _COUNT.pack(len(value)) + value


def _read_blob(body: ByteReader) -> bytes:
    return bytes(body.take(body.unpack(_COUNT)[0]))


def _array(pieces: Iterable[bytes]) -> bytes:
    items = list(pieces)
    return _COUNT.pack(len(items)) + b"".join(items)


def _read_count(body: ByteReader, min_bytes: int) -> range:
    return range(body.checked(body.unpack(_COUNT)[0], min_bytes))


# Transactions


def marker(of: Marker) -> bytes:
    return partition(of.partition) + _MARKER.pack(*of[1:])


def read_marker(body: ByteReader) -> Marker:
    found = Marker(read_partition(body), *body.unpack(_MARKER))
    body.check_end()
    return found


def admission(request: AddPartitions) -> bytes:
    who = _PRODUCER.pack(request.producer_id, request.producer_epoch, request.is_verify_only, request.version)
    return text(request.transactional_id) + who + _array(map(partition, sorted(request.partitions)))


def read_admission(body: ByteReader) -> AddPartitions:
    transactional_id = read_text(body)
    producer_id, epoch, is_verify_only, version = body.unpack(_PRODUCER)
    partitions = frozenset(read_partition(body) for _ in _read_count(body, _PARTITION.size))
    body.check_end()
    return AddPartitions(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        partitions=partitions,
        is_verify_only=is_verify_only,
        version=version,
    )


def admitted(answer: AddAnswer) -> bytes:
    return _CODE.pack(answer.error) + _array(map(partition, sorted(answer.missing)))


def read_admitted(body: ByteReader) -> AddAnswer:
    code = body.int16()
    try:
        error = ErrorCode(code)
    except ValueError:
        error = ErrorCode.UNKNOWN_SERVER_ERROR
    return AddAnswer(error, frozenset(read_partition(body) for _ in _read_count(body, _PARTITION.size)))


# Batches and positions


def read_request(partition_id: PartitionId, offset: Offset, max_bytes: int) -> bytes:
    return partition(partition_id) + _READ.pack(offset, max_bytes)


def read_read_request(body: ByteReader) -> tuple[PartitionId, Offset, int]:
    partition_id = read_partition(body)
    offset, max_bytes = body.unpack(_READ)
    body.check_end()
    return partition_id, offset, max_bytes


def batches(log_start: Offset, high_watermark: Offset, data: bytes) -> bytes:
    return _BOUNDS.pack(log_start, high_watermark) + data


def read_batches(body: ByteReader) -> ReadBatches:
    log_start, high_watermark = body.unpack(_BOUNDS)
    return ReadBatches(log_start, high_watermark, body.rest())


def positions(found: Iterable[GroupPosition]) -> bytes:
    return _array(
        text(group_id) + text(topic) + _POSITION.pack(index, offset) for group_id, topic, index, offset in found
    )


def read_positions(body: ByteReader) -> list[GroupPosition]:
    return [
        GroupPosition(read_text(body), read_text(body), *body.unpack(_POSITION))
        for _ in _read_count(body, 2 * _SIZE.size + _POSITION.size)
    ]


# The state of share groups


def claim(of: ShareKey, epoch: LeaderEpoch) -> bytes:
    return key(of) + _INT.pack(epoch)


def read_claim(body: ByteReader) -> tuple[ShareKey, LeaderEpoch]:
    of, epoch = read_key(body), LeaderEpoch(body.int32())
    body.check_end()
    return of, epoch


def claims(index: int, leaders: Iterable[tuple[PartitionId, LeaderEpoch]]) -> bytes:
    return _INT.pack(index) + _array(partition(each) + _INT.pack(epoch) for each, epoch in leaders)


def read_claims(body: ByteReader) -> tuple[int, dict[PartitionId, LeaderEpoch]]:
    index = body.int32()
    leaders = {}
    for _ in _read_count(body, _PARTITION.size + _INT.size):
        partition_id = read_partition(body)
        leaders[partition_id] = LeaderEpoch(body.int32())
    body.check_end()
    return index, leaders


def claimed(state: Claimed) -> bytes:
    return _LONG.pack(state.ticket) + _blob(state.snapshot) + _array(map(_blob, state.changes))


def read_claimed(body: ByteReader) -> Claimed:
    ticket = body.int64()
    return Claimed(ticket, _read_blob(body), [_read_blob(body) for _ in _read_count(body, _COUNT.size)])


def all_claimed(states: Iterable[tuple[ShareKey, Claimed]]) -> bytes:
    return _array(key(of) + claimed(state) for of, state in states)


def read_all_claimed(body: ByteReader) -> list[tuple[ShareKey, Claimed]]:
    return [(read_key(body), read_claimed(body)) for _ in _read_count(body, _SIZE.size + _PARTITION.size)]


def state_write(write: StateWrite) -> bytes:
    entries = _array(_FLAG.pack(entry.is_snapshot) + _blob(entry.value) for entry in write.entries)
    return key(write.key) + _STATE.pack(write.ticket, write.position) + entries


def read_state_write(body: ByteReader) -> StateWrite:
    of = read_key(body)
    ticket, position = body.unpack(_STATE)
    entries = []
    for _ in _read_count(body, _FLAG.size + _COUNT.size):
        (is_snapshot,) = body.unpack(_FLAG)
        entries.append(StateEntry(is_snapshot, _read_blob(body)))
    body.check_end()
    return StateWrite(of, ticket, position, entries)


def share_offsets(found: Iterable[ShareOffset]) -> bytes:
    return _array(partition(each.partition) + _SHARE.pack(*each[1:]) for each in found)


def read_share_offsets(body: ByteReader) -> list[ShareOffset]:
    return [
        ShareOffset(read_partition(body), *body.unpack(_SHARE))
        for _ in _read_count(body, _PARTITION.size + _SHARE.size)
    ]
