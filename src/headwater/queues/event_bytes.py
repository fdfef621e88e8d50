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

from headwater.queues.events import (
    DeadLetterReason,
    RangeState,
    ShareEvent,
    ShareSnapshot,
    ShareStartMoved,
    ShareStateChanged,
    StateRange,
)

_VERSION: Final = 1
_CHANGED, _START_MOVED, _SNAPSHOT = 1, 2, 3
_MIN_RANGE_BYTES: Final = 3
_MAX_VARINT_BYTES: Final = 10
_MAX_LONG: Final = 2**63 - 1


class MalformedEvent(ValueError):
    """The bytes are not those of an event."""


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
    """Raises MalformedEvent. Work and memory are bounded by the bytes given."""
    reader = _Reader(data)
    version = reader.byte()
    if version != _VERSION:
        raise MalformedEvent(f"version {version} of an event is not known")
    kind = reader.byte()
    event: ShareEvent
    match kind:
        case 1:
            event = ShareStateChanged(reader.ranges(0))
        case 2:
            event = ShareStartMoved(reader.unsigned())
        case 3:
            start_offset = reader.unsigned()
            event = ShareSnapshot(start_offset, reader.ranges(start_offset))
        case _:
            raise MalformedEvent(f"kind {kind} of an event is not known")
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


class _Reader:
    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def byte(self) -> int:
        if self._position >= len(self._data):
            raise MalformedEvent("the bytes end too early")
        self._position += 1
        return self._data[self._position - 1]

    def unsigned(self) -> int:
        number = self._varint()
        if number > _MAX_LONG:
            raise MalformedEvent(f"{number} is too large")
        return number

    def ranges(self, position: int) -> tuple[StateRange, ...]:
        count = self._varint()
        if count * _MIN_RANGE_BYTES > len(self._data) - self._position:
            raise MalformedEvent(f"{count} ranges do not fit into what is left")
        found = []
        for _ in range(count):
            each = self._range(position)
            found.append(each)
            position = each.last
        return tuple(found)

    def check_end(self) -> None:
        if self._position != len(self._data):
            raise MalformedEvent("bytes are left over")

    def _range(self, position: int) -> StateRange:
        delta = self._varint()
        first = position + ((delta >> 1) ^ -(delta & 1))
        last = first + self._varint()
        if not 0 <= first <= last <= _MAX_LONG:
            raise MalformedEvent(f"{first} to {last} is no range of offsets")
        try:
            state = RangeState(self.byte())
            if state is RangeState.AVAILABLE:
                return StateRange(first, last, state, self.unsigned(), self.unsigned())
            if state is RangeState.ARCHIVING:
                return StateRange(first, last, state, self.unsigned(), reason=DeadLetterReason(self.byte()))
        except ValueError as error:
            raise MalformedEvent(str(error)) from error
        return StateRange(first, last, state)

    def _varint(self) -> int:
        number = 0
        for shift in range(0, 7 * _MAX_VARINT_BYTES, 7):
            byte = self.byte()
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise MalformedEvent("a number is too long")
