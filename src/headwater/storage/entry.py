"""The entries of a journal: how they are written, and how they are found again after a crash.

    offset size
       0    4  magic "HWJ1"
       4    8  generation of the file     a recycled file still holds entries of its former lives
      12    4  crc32c                     of all but itself, seeded with the store's salt
      16    8  group                      entries flushed together; groups are numbered without gaps
      24    4  ordinal in the group
      28    4  entries in the group
      32    4  kind
      36    4  payload length
      40   16  segment id
      56    8  instance of the replica
      64    8  first      72    8  end      80    8  lac
      88    8  position in the segment file
      96    8  max timestamp
     104    .  payload

All integers are big-endian. A group is followed by a mark of zeros, which the next group overwrites. A group is
written only after the one before it was flushed. So, where entries stop:

* zeros at the end of a group: nothing more was flushed. What lies behind can only be the rest of a group whose first
  sector never came to the disk, and which was therefore never acknowledged.
* anything else: a write was cut off, or flushed bytes are damaged. The two cannot be distinguished for sure unless a
  later group is there, so both are reported as damage. Entries behind the damage are found by their magic, and given
  out: what was acknowledged and can still be read is not thrown away.

The salt is known to the store alone: bytes that a producer sends cannot pose as an entry.
"""

import enum
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from crc32c import crc32c

from headwater.model.ids import FIRST_OFFSET, Offset, SegmentId
from headwater.model.replica import Buffer

MAGIC: Final = b"HWJ1"
_OPENING: Final = struct.Struct(">4sQI")
_BODY: Final = struct.Struct(">QIIII16sQqqqQq")
PREFIX_BYTES: Final = _OPENING.size + _BODY.size
END_MARK: Final = bytes(PREFIX_BYTES)
assert PREFIX_BYTES == 104, "the prefix has the size that is drawn"

NO_SEGMENT: Final = SegmentId("0" * 32)


class EntryKind(enum.IntEnum):
    START = 1
    """First in each file: names its generation. Belongs to no group."""
    STATE = 2
    """All that is known of a replica, replacing what was known of that segment before."""
    APPEND = 3
    FENCE = 4
    SEAL = 5
    DELETE = 6
    DOUBT = 7
    CHECKPOINT = 8


class JournalEntry(NamedTuple):
    kind: int
    segment: SegmentId = NO_SEGMENT
    instance: int = 0
    first: Offset = FIRST_OFFSET
    end: Offset = FIRST_OFFSET
    lac: Offset = FIRST_OFFSET
    position: int = 0
    max_timestamp: int = 0
    payload: Sequence[Buffer] = ()

    @property
    def payload_bytes(self) -> int:
        return sum(map(len, self.payload))


class EntryNumber(NamedTuple):
    """Which entry it is: its group, and which of how many in the group."""

    group: int
    ordinal: int
    total: int

    def is_followed_by(self, other: "EntryNumber") -> bool:
        if self.ordinal + 1 < self.total:
            return other.group == self.group and other.ordinal == self.ordinal + 1 and other.total == self.total
        return other.group == self.group + 1 and other.ordinal == 0

    @property
    def ends_group(self) -> bool:
        return self.ordinal + 1 == self.total


class DecodedEntry(NamedTuple):
    entry: JournalEntry
    number: EntryNumber
    stop: int


class Scan(NamedTuple):
    """What a file holds of one generation. `last` is the number of the last entry, or where it was to begin."""

    entries: list[JournalEntry]
    numbers: list[EntryNumber]
    """Of the entries, one for one."""
    last: EntryNumber
    damage: str
    """Empty if the file ends as a sound one does."""
    has_gap: bool
    """Entries were found behind the damage, so it is not just a write that was cut off."""
    stop: int
    """Behind the last entry."""


def encode(entry: JournalEntry, number: EntryNumber, generation: int, salt: int) -> list[Buffer]:
    """The entry as buffers to be written one after the other. The payload is not copied."""
    body = _BODY.pack(
        number.group,
        number.ordinal,
        number.total,
        entry.kind,
        entry.payload_bytes,
        bytes.fromhex(entry.segment),
        entry.instance,
        entry.first,
        entry.end,
        entry.lac,
        entry.position,
        entry.max_timestamp,
    )
    crc = crc32c(body, _seed(generation, salt))
    for part in entry.payload:
        crc = crc32c(part, crc)
    return [_OPENING.pack(MAGIC, generation, crc) + body, *entry.payload]


def decode(data: bytes, position: int, generation: int, salt: int) -> DecodedEntry | None:
    """The entry at this position, if there is a whole one of this generation."""
    if len(data) - position < PREFIX_BYTES:
        return None
    magic, its_generation, crc = _OPENING.unpack_from(data, position)
    if magic != MAGIC or its_generation != generation:
        return None
    body_at = position + _OPENING.size
    (group, ordinal, count, kind, length, segment, instance, first, end, lac, where, max_timestamp) = _BODY.unpack_from(
        data, body_at
    )
    start = position + PREFIX_BYTES
    stop = start + length
    if stop > len(data):
        return None
    view = memoryview(data)
    if crc32c(view[body_at:stop], _seed(generation, salt)) != crc:
        return None
    payload = (view[start:stop],) if length else ()
    entry = JournalEntry(
        kind=kind,
        segment=SegmentId(segment.hex()),
        instance=instance,
        first=first,
        end=end,
        lac=lac,
        position=where,
        max_timestamp=max_timestamp,
        payload=payload,
    )
    return DecodedEntry(entry, EntryNumber(group, ordinal, count), stop)


def generation_of(data: bytes, salt: int) -> tuple[int, int] | None:
    """The generation a file was started with, and where its entries begin."""
    if len(data) < PREFIX_BYTES or data[: len(MAGIC)] != MAGIC:
        return None
    generation = _OPENING.unpack_from(data, 0)[1]
    found = decode(data, 0, generation, salt)
    if found is None or found.entry.kind != EntryKind.START:
        return None
    return generation, found.stop


def newest_generation(data: bytes, salt: int) -> int | None:
    """The highest generation of which any entry is left, in a file whose start cannot be read."""
    newest: int | None = None
    at = data.find(MAGIC)
    while at >= 0:
        if len(data) - at >= PREFIX_BYTES:
            generation = _OPENING.unpack_from(data, at)[1]
            if (newest is None or generation > newest) and decode(data, at, generation, salt) is not None:
                newest = generation
        at = data.find(MAGIC, at + 1)
    return newest


def scan(data: bytes, start: int, generation: int, salt: int, before: EntryNumber) -> Scan:
    """All entries of this generation from `start` on; `before` is the number of the entry that precedes them."""
    entries: list[JournalEntry] = []
    numbers: list[EntryNumber] = []
    damage = ""
    has_gap = False
    last = before
    position = start
    while True:
        found = decode(data, position, generation, salt)
        if found is not None and last.is_followed_by(found.number):
            entries.append(found.entry)
            numbers.append(found.number)
            last = found.number
            position = found.stop
            continue
        is_clean = last.ends_group and not any(data[position : position + PREFIX_BYTES])
        stray = _next_stray(data, position, generation, salt, last, last.group + 1 if is_clean else last.group)
        if stray is None:
            if not is_clean:
                damage = damage or f"generation {generation} breaks off at {position}"
            return Scan(entries, numbers, last, damage, has_gap, position)
        has_gap = True
        damage = damage or f"generation {generation} is damaged between {position} and later entries"
        entries.append(stray.entry)
        numbers.append(stray.number)
        last = stray.number
        position = stray.stop


def _next_stray(
    data: bytes, position: int, generation: int, salt: int, last: EntryNumber, ignored: int
) -> DecodedEntry | None:
    """The next entry behind a position where entries stopped, if its group is later than `ignored` or, within the
    group that broke off, its ordinal is later."""
    at = data.find(MAGIC, position)
    while at >= 0:
        found = decode(data, at, generation, salt)
        if found is not None:
            number = found.number
            if number.group > ignored or (ignored == last.group == number.group and number.ordinal > last.ordinal):
                return found
        at = data.find(MAGIC, at + 1)
    return None


def _seed(generation: int, salt: int) -> int:
    seed: int = crc32c(generation.to_bytes(8, "big"), salt)
    return seed
