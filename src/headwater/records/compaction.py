"""Log compaction, batch by batch: of each key the last record stays, in its place and with its offset.

A pass has two halves. `scan_batch` reads the dirty part of a log, in order, into an `OffsetMap`: where each key was
last seen. `compact_batch` then goes over the log from its start and drops what a later record replaced. Both hold one
batch at a time, and the map is bounded, so a pass takes the same memory whatever the size of the log. When the
map is full the pass covers the log up to `latest_offset`; records past that are not touched.

What stays of a batch stays under its header: base and last offset, leader epoch, producer id, epoch and sequence are
kept, so offsets, epochs and producer state are the same before and after. A batch that loses all records stays as a
bare header if it is the last one of a producer that is still known.

Tombstones (null values) go `delete_retention_ms` after a pass first kept them (KIP-534). That time is the batch's
delete horizon: it lies in the base timestamp, with a bit in the attributes, and the records' timestamp deltas count
from it. As long as a batch before it could not be read, a tombstone stays: it may be all that hides a value there.

Records of aborted transactions replace nothing and go at once; whether a batch belongs to one is for the caller to say.
Markers go like tombstones, but later: as long as there is anything of their transaction, and `delete_retention_ms`
longer, readers need them.
"""

from hashlib import blake2b
from typing import Final

from headwater.model.ids import FIRST_OFFSET, NO_OFFSET, Offset
from headwater.model.replica import Buffer
from headwater.records.batch import (
    CODEC_MASK,
    DELETE_HORIZON,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatch,
    UnknownCodec,
)
from headwater.records.build import assemble
from headwater.records.compression import MAX_OUTPUT_BYTES, MAX_RATIO, DecompressedTooLarge
from headwater.records.record import Layout, layouts, payload, wrap_int64, write_varint

DIGEST_BYTES: Final = 16
ENTRY_BYTES: Final = 192
"""What an entry of the map takes at its worst, in the middle of growing: turns memory into a number of entries."""

_UNREADABLE = (CorruptBatch, UnknownCodec, DecompressedTooLarge)


class OffsetMap:
    """Where each key was last seen. Long keys are known by a digest, short ones by themselves: the lengths
    tell them apart."""

    __slots__ = ("_offsets", "latest_offset", "max_entries", "unread_batches")

    def __init__(self, max_entries: int) -> None:
        assert max_entries > 0, "without an entry no pass gets anywhere"
        self._offsets: dict[bytes, Offset] = {}
        self.max_entries = max_entries
        self.latest_offset = NO_OFFSET
        """Every record up to here is in the map."""
        self.unread_batches = 0
        """Batches met in this pass that could not be read, and stay as they are."""

    def __len__(self) -> int:
        return len(self._offsets)

    def add(self, key: bytes, offset: Offset) -> bool:
        """Note a record's offset, in the order of the log; False if the map has no room for its key."""
        name = key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest()
        if name not in self._offsets and len(self._offsets) >= self.max_entries:
            return False
        self._offsets[name] = offset
        return True

    def get(self, key: bytes) -> Offset:
        """The last offset of the key, or NO_OFFSET."""
        return self._offsets.get(
            key if len(key) < DIGEST_BYTES else blake2b(key, digest_size=DIGEST_BYTES).digest(), NO_OFFSET
        )


def scan_batch(
    batch: Buffer,
    header: BatchHeader,
    offsets: OffsetMap,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    max_ratio: int = MAX_RATIO,
    *,
    start: Offset = FIRST_OFFSET,
    is_aborted: bool = False,
) -> bool:
    """Note the keys of the next batch of the log. False when the map is full: the scan ends here.

    Records below `start` are passed over. A scan that goes on in the middle of a batch thus gets further each time,
    even if the batch has more keys than the map has room for."""
    if header.record_count and not header.is_control and not is_aborted:
        base_offset = header.base_offset
        add = offsets.add
        try:
            data = payload(batch, header, max_output_bytes, max_ratio)
            # Read to the end before the first key is noted: an unreadable batch replaces nothing.
            found = list(layouts(data, header))
        except _UNREADABLE:
            offsets.unread_batches += 1
            found = []
        first_delta = start - base_offset
        for _, _, _, _, offset_delta, key_start, key_end, _, _ in found:
            if (
                key_start >= 0
                and offset_delta >= first_delta
                and not add(data[key_start:key_end], base_offset + offset_delta)
            ):
                offsets.latest_offset = base_offset + offset_delta - 1
                return False
    offsets.latest_offset = header.last_offset
    return True


def compact_batch(
    batch: Buffer,
    header: BatchHeader,
    offsets: OffsetMap,
    *,
    is_last_batch_of_producer: bool,
    now_ms: int,
    delete_retention_ms: int,
    is_aborted: bool = False,
    is_marker_needed: bool = True,
    max_output_bytes: int = MAX_OUTPUT_BYTES,
    max_ratio: int = MAX_RATIO,
) -> Buffer | None:
    """What stays of the next batch, from the start of the log on: `batch` itself if all of it stays, a new batch, or
    None. `is_aborted` is about a batch of records, `is_marker_needed` about a marker."""
    if header.base_offset > offsets.latest_offset:
        return batch
    if header.is_control:
        return batch if is_marker_needed else _passing(batch, header, now_ms, delete_retention_ms)
    if header.record_count == 0:
        return batch if is_last_batch_of_producer else None
    if is_aborted:
        return _bare(header) if is_last_batch_of_producer else None
    horizon = header.base_timestamp if header.has_delete_horizon else NO_TIMESTAMP
    keeps_tombstones = not header.has_delete_horizon or now_ms < horizon or offsets.unread_batches > 0
    try:
        data = payload(batch, header, max_output_bytes, max_ratio)
        kept, has_tombstone = _survivors(data, header, offsets, keeps_tombstones)
    except _UNREADABLE:
        offsets.unread_batches += 1
        return batch
    if not kept:
        return _bare(header) if is_last_batch_of_producer else None
    sets_horizon = has_tombstone and not header.has_delete_horizon
    if len(kept) == header.record_count and not sets_horizon:
        return batch
    if not header.uses_log_append_time:
        latest = max(layout[2] for layout in kept)
        header = header._replace(max_timestamp=wrap_int64(header.base_timestamp + latest))
    if sets_horizon:
        horizon = now_ms + delete_retention_ms
        records: Buffer = _rebased(data, kept, header.base_timestamp - horizon)
        header = header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon)
    else:
        records = b"".join([data[layout[0] : layout[1]] for layout in kept])
    return assemble(records, header._replace(record_count=len(kept)))


def _passing(batch: Buffer, header: BatchHeader, now_ms: int, delete_retention_ms: int) -> Buffer | None:
    """A marker whose transaction has no records left: gets a delete horizon, and goes when that is past."""
    if header.has_delete_horizon:
        return batch if now_ms < header.base_timestamp else None
    try:
        data = payload(batch, header)
        horizon = now_ms + delete_retention_ms
        records = _rebased(data, list(layouts(data, header)), header.base_timestamp - horizon)
    except _UNREADABLE:
        return batch
    return assemble(records, header._replace(attributes=header.attributes | DELETE_HORIZON, base_timestamp=horizon))


def _survivors(
    data: bytes, header: BatchHeader, offsets: OffsetMap, keeps_tombstones: bool
) -> tuple[list[Layout], bool]:
    """The records that stay, and whether a tombstone is among those that the map covers."""
    base_offset = header.base_offset
    latest_offset = offsets.latest_offset
    get = offsets.get
    kept = []
    has_tombstone = False
    for layout in layouts(data, header):
        _, _, _, _, offset_delta, key_start, key_end, value_start, _ = layout
        offset = base_offset + offset_delta
        if offset <= latest_offset:
            # A record without a key cannot be replaced, so it has no place in a compacted log.
            if key_start < 0 or get(data[key_start:key_end]) > offset:
                continue
            if value_start < 0:
                if not keeps_tombstones:
                    continue
                has_tombstone = True
        kept.append(layout)
    return kept, has_tombstone


def _rebased(data: bytes, kept: list[Layout], shift: int) -> bytearray:
    """The records with timestamp deltas that count from another base."""
    output = bytearray()
    delta_field = bytearray()
    for _, end, timestamp_delta, timestamp_end, *_ in kept:
        delta_field.clear()
        write_varint(delta_field, wrap_int64(timestamp_delta + shift))
        write_varint(output, 1 + len(delta_field) + end - timestamp_end)
        output.append(0)  # attributes, unused
        output += delta_field
        output += data[timestamp_end:end]
    return output


def _bare(header: BatchHeader) -> bytearray:
    """A batch without records: nothing to compress, and no tombstone that needs a delete horizon."""
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON)
    return assemble(b"", header._replace(attributes=attributes, record_count=0, base_timestamp=header.max_timestamp))
