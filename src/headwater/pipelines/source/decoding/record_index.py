"""Where the parts of many records lie: the layout of `records/record.py`, read for all records at once.

Once it is known where each record begins, all else is arithmetic on arrays: the first varint of every record, then
the second, and so on. The arrays are checked to be exactly what the headers of the batches claim. What passes here,
`records.record.layouts` reads alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from headwater.model.replica import Buffer
from headwater.pipelines.source.decoding.record_starts import Bytes, Integers, Payload, record_starts
from headwater.records.batch import CorruptBatch

INT32_BYTES: Final = 5
INT64_BYTES: Final = 10
_NO_LENGTH: Final = -1


@dataclass(frozen=True, slots=True)
class Slices:
    """Pieces of a buffer. A length of -1 is a null."""

    starts: Integers
    lengths: Integers


@dataclass(frozen=True, slots=True)
class RecordIndex:
    """One entry for each record, in the order of offsets."""

    offsets: Integers
    timestamps: Integers
    timestamp_types: Integers
    keys: Slices
    values: Slices
    header_positions: Integers
    """Where the count of headers lies."""
    ends: Integers

    def __len__(self) -> int:
        return len(self.offsets)


def index_records(data: Buffer, payloads: Sequence[Payload], first_offset: int, end_offset: int) -> RecordIndex:
    """The records of these payloads, which lie one after another in `data`, from `first_offset` up to `end_offset`."""
    view = np.frombuffer(data, np.uint8)
    try:
        return _index(data, view, payloads, first_offset, end_offset)
    except IndexError:
        raise CorruptBatch(f"records are cut off after {len(data)} bytes") from None


def _index(data: Buffer, view: Bytes, payloads: Sequence[Payload], first_offset: int, end_offset: int) -> RecordIndex:
    starts, batch_of = record_starts(data, payloads)
    lengths, positions = read_varints(view, starts, INT32_BYTES)
    ends = positions + lengths
    _check_chain(starts, lengths, ends, payloads, batch_of)

    timestamp_deltas, positions = read_varints(view, positions + 1, INT64_BYTES)  # one byte of unused attributes
    offset_deltas, positions = read_varints(view, positions, INT32_BYTES)
    headers = [payload.header for payload in payloads]
    last_deltas = _of_batches([header.last_offset_delta for header in headers], batch_of)
    _require((offset_deltas >= 0) & (offset_deltas <= last_deltas), "offsets lie outside their batch")
    offsets = _of_batches([header.base_offset for header in headers], batch_of) + offset_deltas
    _require(offsets[1:] > offsets[:-1], "offsets do not rise")

    first, last = np.searchsorted(offsets, (first_offset, end_offset))
    kept = slice(int(first), int(last))
    batch_of, offsets, ends, positions = batch_of[kept], offsets[kept], ends[kept], positions[kept]
    timestamps = _of_batches([header.base_timestamp for header in headers], batch_of) + timestamp_deltas[kept]
    types = _of_batches([int(header.uses_log_append_time) for header in headers], batch_of)
    if types.any():
        timestamps = np.where(types, _of_batches([header.max_timestamp for header in headers], batch_of), timestamps)
    keys, positions = read_slices(view, positions, ends)
    values, positions = read_slices(view, positions, ends)
    return RecordIndex(
        offsets=offsets,
        timestamps=timestamps,
        timestamp_types=types,
        keys=keys,
        values=values,
        header_positions=positions,
        ends=ends,
    )


def read_varints(view: Bytes, positions: Integers, max_bytes: int) -> tuple[Integers, Integers]:
    """The zigzag integers at all these positions, and the positions after them. Past the end is an IndexError."""
    first = view[positions]
    values = (first >> 1 & 0x3F).astype(np.int64)
    after = positions + 1
    longer = np.flatnonzero(first & 0x80)
    shift = 6
    for _ in range(1, max_bytes):
        if not longer.size:
            break
        more = view[after[longer]]
        values[longer] |= (more & 0x7F).astype(np.int64) << shift
        after[longer] += 1
        longer = longer[more > 0x7F]
        shift += 7
    if longer.size:
        raise CorruptBatch(f"varint of more than {max_bytes} bytes")
    return values ^ -(first & 1).astype(np.int64), after


def read_slices(view: Bytes, positions: Integers, ends: Integers) -> tuple[Slices, Integers]:
    """A length and as many bytes, at all these positions, and the positions after them, each of which lies before the
    record's end."""
    lengths, starts = read_varints(view, positions, INT32_BYTES)
    after = starts + np.maximum(lengths, 0)
    _require((lengths >= _NO_LENGTH) & (after < ends), "a key or value does not fit into its record")
    return Slices(starts, lengths), after


def _check_chain(
    starts: Integers, lengths: Integers, ends: Integers, payloads: Sequence[Payload], batch_of: Integers
) -> None:
    """Each record ends where the next one begins, and the last one of a batch where the batch ends."""
    expected = np.empty_like(starts)
    expected[:-1] = starts[1:]
    is_last = np.empty(len(starts), np.bool_)
    is_last[:-1] = batch_of[1:] != batch_of[:-1]
    is_last[-1:] = True
    expected[is_last] = [payload.end for payload in payloads if payload.header.record_count]
    _require((lengths > 0) & (ends == expected), "records do not fill their batch")


def _of_batches(values: list[int], batch_of: Integers) -> Integers:
    return np.array(values, np.int64)[batch_of]


def _require(claims: NDArray[np.bool_], otherwise: str) -> None:
    if not claims.all():
        raise CorruptBatch(f"{otherwise} (record {int(np.argmin(claims))} of those fetched)")
