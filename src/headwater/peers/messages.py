"""The bytes of the calls between a leader and a remote store (docs/replication.md, 4).

    request   length 4 | version 1 | call 1 | number 4 | store id 16 | body
    reply     length 4 | status 1 | number 4 | body, or a message in UTF-8 if the status is not OK

All integers are big-endian. Replies come in the order of the requests; the number is there to notice when they do
not. In `append` and in the reply of `read` the batches are the rest of the frame: they are not copied.

To change a body: a new version. A node speaks every version from OLDEST_VERSION on, and in the handshake both agree on
the newest that they share, so that the nodes of a cluster can be upgraded one after the other.
"""

import enum
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from headwater.model.ids import LeaderEpoch, Offset, SegmentId, StoreId
from headwater.model.replica import (
    AppendTooLarge,
    Buffer,
    CorruptReplica,
    Durability,
    Fenced,
    NoSpace,
    OutOfSequence,
    ReplicaState,
    SealedReplica,
    SegmentDescription,
    StoreError,
    StoreFailed,
    StoreUnreachable,
    UnknownSegment,
    UnsoundBatch,
    WrongStore,
)
from headwater.wire.cursor import Cursor, MalformedRequest

OLDEST_VERSION: Final = 1
NEWEST_VERSION: Final = 2
"""2: the bodies of 1, and proofs that are about the TLS connection (peers.handshake)."""
MAX_DONORS: Final = 16
MAX_MESSAGE_BYTES: Final = 500
"""The longest error message in a reply."""
NO_STORE: Final = StoreId("0" * 32)

_REQUEST: Final = struct.Struct(">IBBI16s")
_HEADER: Final = struct.Struct(">BBI16s")
_STATUS: Final = struct.Struct(">BI")
REPLY_BYTES: Final = _STATUS.size
"""The bytes of a reply's frame before its body."""

_APPEND: Final = struct.Struct(">16sqqq")
_APPEND_REQUEST: Final = struct.Struct(">IBBI16s16sqqq")
_APPEND_REPLY: Final = struct.Struct(">BIq")
_CREATE: Final = struct.Struct(">16sqiB")
_READ: Final = struct.Struct(">16sqqI")
_COPY_BIT: Final = 1 << 31
_SEGMENT_AND_OFFSET: Final = struct.Struct(">16sq")
_SEALED: Final = struct.Struct(">qQIq")
_STATE: Final = struct.Struct(">16sqqiqQqBQ")
_DESCRIPTION: Final = struct.Struct(">16sqqiBIQ")
_DONOR: Final = struct.Struct(">16sH")
_TEXT: Final = struct.Struct(">H")
_BLOB: Final = struct.Struct(">I")
_OFFSET: Final = struct.Struct(">q")

APPEND_HEAD_BYTES: Final = _APPEND_REQUEST.size
_BATCHES_AT: Final = _HEADER.size + _APPEND.size
_NONE: Final = -1


class Call(enum.IntEnum):
    HELLO = 1
    PROVE = 2
    PING = 3
    CREATE = 4
    APPEND = 5
    FENCE = 6
    READ = 7
    FIND_TIMESTAMP = 8
    SEAL = 9
    STATE = 10
    COPY = 11
    ASK = 12
    """A call to the node's broker, not to its store: see peers.calls."""


class ReplyStatus(enum.IntEnum):
    """One for each exception of headwater.model.replica, and REFUSED for any other StoreError."""

    OK = 0
    REFUSED = 1
    UNKNOWN_SEGMENT = 2
    FENCED = 3
    OUT_OF_SEQUENCE = 4
    NO_SPACE = 5
    CORRUPT_REPLICA = 6
    STORE_FAILED = 7
    UNSOUND_BATCH = 8
    APPEND_TOO_LARGE = 9
    WRONG_STORE = 10
    UNREACHABLE = 11


ERRORS: Final[dict[int, type[StoreError]]] = {
    ReplyStatus.REFUSED: StoreError,
    ReplyStatus.UNKNOWN_SEGMENT: UnknownSegment,
    ReplyStatus.FENCED: Fenced,
    ReplyStatus.OUT_OF_SEQUENCE: OutOfSequence,
    ReplyStatus.NO_SPACE: NoSpace,
    ReplyStatus.CORRUPT_REPLICA: CorruptReplica,
    ReplyStatus.STORE_FAILED: StoreFailed,
    ReplyStatus.UNSOUND_BATCH: UnsoundBatch,
    ReplyStatus.APPEND_TOO_LARGE: AppendTooLarge,
    ReplyStatus.WRONG_STORE: WrongStore,
    ReplyStatus.UNREACHABLE: StoreUnreachable,
}
_STATUSES: Final = {error: status for status, error in ERRORS.items()}
_DURABILITIES: Final = (Durability.SYNC, Durability.OS)


class PeerAddress(NamedTuple):
    host: str
    port: int


class Donor(NamedTuple):
    """A store that has a sealed segment to give."""

    store_id: StoreId
    address: PeerAddress


class Request(NamedTuple):
    version: int
    call: int
    number: int
    store_id: bytes


class CreateCall(NamedTuple):
    segment: SegmentId
    partition: str
    base: Offset
    epoch: LeaderEpoch
    header: bytes
    durability: Durability


class AppendCall(NamedTuple):
    segment: SegmentId
    first: Offset
    end: Offset
    lac: Offset
    batches: memoryview


class ReadCall(NamedTuple):
    segment: SegmentId
    offset: Offset
    limit: Offset
    max_bytes: int
    is_copy: bool = False
    """The read is for a copy on another store, and may be throttled. On the wire it is the highest bit of `max_bytes`,
    which a store that does not know the flag takes for a limit above its own."""


# Requests, written


def request(version: int, call: Call, number: int, store_id: bytes, *body: bytes) -> bytes:
    """The whole frame, its length included."""
    rest = b"".join(body)
    return _REQUEST.pack(_HEADER.size + len(rest), version, call, number, store_id) + rest


def append_request(
    version: int,
    number: int,
    store_id: bytes,
    segment: SegmentId,
    first: Offset,
    end: Offset,
    lac: Offset,
    size_bytes: int,
) -> bytes:
    """The frame up to the batches, which have `size_bytes` bytes."""
    return _APPEND_REQUEST.pack(
        _BATCHES_AT + size_bytes, version, Call.APPEND, number, store_id, bytes.fromhex(segment), first, end, lac
    )


def create_body(create: CreateCall) -> bytes:
    durability = _DURABILITIES.index(create.durability)
    fixed = _CREATE.pack(bytes.fromhex(create.segment), create.base, create.epoch, durability)
    return fixed + _text(create.partition) + create.header


def segment_body(segment: SegmentId) -> bytes:
    return bytes.fromhex(segment)


def read_body(segment: SegmentId, offset: Offset, limit: Offset, max_bytes: int, is_copy: bool = False) -> bytes:
    most = min(max(max_bytes, 0), _COPY_BIT - 1)
    return _READ.pack(bytes.fromhex(segment), offset, limit, most | (_COPY_BIT if is_copy else 0))


def segment_and_offset_body(segment: SegmentId, offset: int) -> bytes:
    """Of a search, `offset` is a timestamp."""
    return _SEGMENT_AND_OFFSET.pack(bytes.fromhex(segment), offset)


def copy_body(description: SegmentDescription, donors: Sequence[Donor]) -> bytes:
    fixed = _DESCRIPTION.pack(
        bytes.fromhex(description.segment),
        description.base,
        description.end,
        description.epoch,
        _DURABILITIES.index(description.durability),
        description.crc32c,
        description.size_bytes,
    )
    out = [
        fixed,
        _text(description.partition),
        _BLOB.pack(len(description.header)),
        description.header,
        bytes([len(donors)]),
    ]
    for donor in donors:
        out += [_DONOR.pack(bytes.fromhex(donor.store_id), donor.address.port), _text(donor.address.host)]
    return b"".join(out)


# Requests, read. Whatever is wrong with the bytes is MalformedRequest.


def read_request(frame: bytearray) -> Request:
    if len(frame) < _HEADER.size:
        raise MalformedRequest(f"a request of {len(frame)} bytes has no header")
    return Request._make(_HEADER.unpack_from(frame))


def body_of(frame: bytearray) -> Cursor:
    return Cursor(frame, _HEADER.size)


def read_append(frame: bytearray) -> AppendCall:
    if len(frame) < _BATCHES_AT:
        raise MalformedRequest(f"an append of {len(frame)} bytes")
    segment, first, end, lac = _APPEND.unpack_from(frame, _HEADER.size)
    return AppendCall(SegmentId(segment.hex()), first, end, lac, memoryview(frame)[_BATCHES_AT:])


def read_create(cursor: Cursor) -> CreateCall:
    segment, base, epoch, durability = _CREATE.unpack(cursor.take(_CREATE.size))
    partition = _read_text(cursor)
    header = bytes(cursor.take(cursor.end - cursor.position))
    return CreateCall(SegmentId(segment.hex()), partition, base, epoch, header, _read_durability(durability))


def read_segment(cursor: Cursor) -> SegmentId:
    segment = SegmentId(cursor.take(16).hex())
    check_end(cursor)
    return segment


def read_read(cursor: Cursor) -> ReadCall:
    segment, offset, limit, max_bytes = _READ.unpack(cursor.take(_READ.size))
    check_end(cursor)
    return ReadCall(SegmentId(segment.hex()), offset, limit, max_bytes & (_COPY_BIT - 1), bool(max_bytes & _COPY_BIT))


def read_segment_and_offset(cursor: Cursor) -> tuple[SegmentId, Offset]:
    segment, offset = _SEGMENT_AND_OFFSET.unpack(cursor.take(_SEGMENT_AND_OFFSET.size))
    check_end(cursor)
    return SegmentId(segment.hex()), offset


def read_copy(cursor: Cursor) -> tuple[SegmentDescription, list[Donor]]:
    segment, base, end, epoch, durability, crc, size_bytes = _DESCRIPTION.unpack(cursor.take(_DESCRIPTION.size))
    partition = _read_text(cursor)
    header = bytes(cursor.take(_BLOB.unpack(cursor.take(_BLOB.size))[0]))
    description = SegmentDescription(
        segment=SegmentId(segment.hex()),
        partition=partition,
        base=base,
        end=end,
        epoch=epoch,
        header=header,
        durability=_read_durability(durability),
        crc32c=crc,
        size_bytes=size_bytes,
    )
    count = cursor.take(1)[0]
    if count > MAX_DONORS:
        raise MalformedRequest(f"{count} donors, and {MAX_DONORS} are the most")
    donors = []
    for _ in range(count):
        store_id, port = _DONOR.unpack(cursor.take(_DONOR.size))
        donors.append(Donor(StoreId(store_id.hex()), PeerAddress(_read_text(cursor), port)))
    check_end(cursor)
    return description, donors


def check_end(cursor: Cursor) -> None:
    if cursor.position != cursor.end:
        raise MalformedRequest(f"{cursor.end - cursor.position} bytes behind the end of a request")


# Replies, written without the length, which belongs to the transport


def reply(number: int, *body: Buffer) -> list[Buffer]:
    return [_STATUS.pack(ReplyStatus.OK, number), *body]


def append_reply(number: int, end: Offset) -> list[Buffer]:
    return [_APPEND_REPLY.pack(ReplyStatus.OK, number, end)]


def error_reply(number: int, error: StoreError) -> list[Buffer]:
    status = next((_STATUSES[cls] for cls in type(error).__mro__ if cls in _STATUSES), ReplyStatus.REFUSED)
    message = str(error).encode()[:MAX_MESSAGE_BYTES]
    return [_STATUS.pack(status, number) + message]


def offset_body(offset: Offset | None) -> bytes:
    return _OFFSET.pack(_NONE if offset is None else offset)


def sealed_body(sealed: SealedReplica) -> bytes:
    return _SEALED.pack(sealed.end, sealed.size_bytes, sealed.crc32c, sealed.max_timestamp)


def state_body(state: ReplicaState) -> bytes:
    flags = state.is_fenced | state.in_doubt << 1 | state.is_sealed << 2
    fixed = _STATE.pack(
        bytes.fromhex(state.segment),
        state.base,
        state.end,
        state.epoch,
        state.lac,
        state.size_bytes,
        state.max_timestamp,
        flags,
        state.instance,
    )
    return fixed + _text(state.partition) + state.header


# Replies, read


def check_reply(frame: bytearray, number: int) -> None:
    """Raises what the store raised; MalformedRequest if it is not the reply to request `number`."""
    if len(frame) < REPLY_BYTES:
        raise MalformedRequest(f"a reply of {len(frame)} bytes")
    status, answered = _STATUS.unpack_from(frame)
    if answered != number:
        raise MalformedRequest(f"the reply to request {answered} in place of that to {number}")
    if not status:
        return
    error = ERRORS.get(status, StoreError)  # a newer node may have more statuses
    raise error(str(frame[REPLY_BYTES:], "utf-8", "replace"))


def read_append_reply(frame: bytearray) -> Offset:
    if len(frame) != _APPEND_REPLY.size:
        raise MalformedRequest(f"{len(frame)} bytes for an append's reply")
    end: Offset = _OFFSET.unpack_from(frame, REPLY_BYTES)[0]
    return end


def read_offset_reply(frame: bytearray) -> Offset | None:
    offset = read_append_reply(frame)
    return None if offset == _NONE else offset


def read_sealed_reply(frame: bytearray) -> SealedReplica:
    if len(frame) != REPLY_BYTES + _SEALED.size:
        raise MalformedRequest(f"{len(frame)} bytes for a seal's reply")
    return SealedReplica(*_SEALED.unpack_from(frame, REPLY_BYTES))


def read_state_reply(frame: bytearray) -> ReplicaState:
    cursor = Cursor(frame, REPLY_BYTES)
    segment, base, end, epoch, lac, size_bytes, max_timestamp, flags, instance = _STATE.unpack(cursor.take(_STATE.size))
    return ReplicaState(
        segment=SegmentId(segment.hex()),
        partition=_read_text(cursor),
        base=base,
        end=end,
        epoch=epoch,
        lac=lac,
        size_bytes=size_bytes,
        max_timestamp=max_timestamp,
        is_fenced=bool(flags & 1),
        in_doubt=bool(flags & 2),
        is_sealed=bool(flags & 4),
        instance=instance,
        header=bytes(cursor.take(cursor.end - cursor.position)),
    )


def _text(text: str) -> bytes:
    data = text.encode()
    return _TEXT.pack(len(data)) + data


def _read_text(cursor: Cursor) -> str:
    try:
        return str(cursor.take(_TEXT.unpack(cursor.take(_TEXT.size))[0]), "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRequest(f"a text is not UTF-8: {error}") from None


def _read_durability(number: int) -> Durability:
    if number >= len(_DURABILITIES):
        raise MalformedRequest(f"there is no durability {number}")
    return _DURABILITIES[number]
