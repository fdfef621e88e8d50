"""The bytes of share partition events: the value of a log record.

    version     u8       1
    kind        u8       1 ShareStateChanged, 2 ShareStartMoved, 3 ShareSnapshot
    start       uvarint  kinds 2 and 3
    count       uvarint  kinds 1 and 3
      first     svarint  minus the last offset of the range before; of the first range, minus start (0 in kind 1)
      length    uvarint  offsets in the range, minus 1
      state     u8       a RangeState
      count     uvarint  AVAILABLE, ARCHIVING: the delivery count
      at        uvarint  AVAILABLE: when it is available, in ms
      reason    u8       ARCHIVING: a DeadLetterReason

uvarint: seven bits a byte, least significant first; svarint: the same, zigzag. Offsets and times are below 2^63.
To change the format: write a new version, and keep reading the old ones.
"""

from typing import Final

from headwater.model.ids import FIRST_OFFSET, Offset
from headwater.queues.events import (
    DeadLetterReason,
    RangeState,
    ShareEvent,
    ShareSnapshot,
    ShareStartMoved,
    ShareStateChanged,
    StateRange,
)
from headwater.records.byte_reader import ByteReader, MalformedBytes

_VERSION: Final = 1
_CHANGED, _START_MOVED, _SNAPSHOT = 1, 2, 3
_MIN_RANGE_BYTES: Final = 3
_MAX_LONG: Final = 2**63 - 1


def encode(event: ShareEvent) -> bytes:
    """The value of a log record. Group and partition belong into its key, which is the log's business."""
    out = bytearray((_VERSION,))
    match event:
        case ShareStateChanged(ranges):
            out.append(_CHANGED)
            _write_ranges(out, ranges, 0)
        case ShareStartMoved(start_offset):
            out.append(_START_MOVED)
            _write_unsigned(out, start_offset)
        case ShareSnapshot(start_offset, ranges):
            out.append(_SNAPSHOT)
            _write_unsigned(out, start_offset)
            _write_ranges(out, ranges, start_offset)
    return bytes(out)


def decode(data: bytes) -> ShareEvent:
    """Raises MalformedBytes. Work and memory are bounded by the bytes given."""
    reader = ByteReader(data)
    version = reader.byte()
    if version != _VERSION:
        raise MalformedBytes(f"version {version} of an event is not known")
    kind = reader.byte()
    event: ShareEvent
    match kind:
        case 1:
            event = ShareStateChanged(_read_ranges(reader, FIRST_OFFSET))
        case 2:
            event = ShareStartMoved(Offset(_read_unsigned(reader)))
        case 3:
            start_offset = Offset(_read_unsigned(reader))
            event = ShareSnapshot(start_offset, _read_ranges(reader, start_offset))
        case _:
            raise MalformedBytes(f"kind {kind} of an event is not known")
    reader.check_end()
    return event


def _write_ranges(out: bytearray, ranges: tuple[StateRange, ...], position: int) -> None:
    _write_unsigned(out, len(ranges))
    for each in ranges:
        delta = each.first - position
        _write_unsigned(out, delta << 1 if delta >= 0 else (-delta << 1) - 1)
        _write_unsigned(out, each.last - each.first)
        out.append(each.state)
        if each.state is RangeState.AVAILABLE:
            _write_unsigned(out, each.delivery_count)
            _write_unsigned(out, each.available_at_ms)
        elif each.state is RangeState.ARCHIVING:
            assert each.reason is not None, "what is on its way to the dead letters has a reason"
            _write_unsigned(out, each.delivery_count)
            out.append(each.reason)
        position = each.last


def _write_unsigned(out: bytearray, number: int) -> None:
    assert number >= 0, "only whole numbers from 0 on are written"
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _read_ranges(reader: ByteReader, position: Offset) -> tuple[StateRange, ...]:
    ranges = []
    for _ in range(reader.checked(reader.varlong(), _MIN_RANGE_BYTES)):
        each = _read_range(reader, position)
        ranges.append(each)
        position = each.last
    return tuple(ranges)


def _read_range(reader: ByteReader, position: Offset) -> StateRange:
    delta = reader.varlong()
    first = position + ((delta >> 1) ^ -(delta & 1))
    last = first + reader.varlong()
    if not 0 <= first <= last <= _MAX_LONG:
        raise MalformedBytes(f"{first} to {last} is no range of offsets")
    try:
        state = RangeState(reader.byte())
        if state is RangeState.AVAILABLE:
            return StateRange(first, last, state, _read_unsigned(reader), _read_unsigned(reader))
        if state is RangeState.ARCHIVING:
            return StateRange(first, last, state, _read_unsigned(reader), reason=DeadLetterReason(reader.byte()))
    except ValueError as error:
        raise MalformedBytes(str(error)) from error
    return StateRange(first, last, state)


def _read_unsigned(reader: ByteReader) -> int:
    number = reader.varlong()
    if number > _MAX_LONG:
        raise MalformedBytes(f"{number} is too large")
    return number
