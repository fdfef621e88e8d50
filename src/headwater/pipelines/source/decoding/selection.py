"""Which batches of a fetched stretch hold records for the reader, decided by their headers.

Not wanted are batches before the range, control batches, and for a reader of committed data those of aborted
transactions (KIP-98): a broker names each with its producer and first offset, and it ends at the producer's abort
marker.

Every batch is checked against its CRC, and offsets must rise from batch to batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headwater.model.replica import Buffer
from headwater.records.batch import HEADER_BYTES, BatchHeader, CorruptBatch, check_crc, parse_header
from headwater.records.control import read_marker

MAX_OFFSET: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class SelectedBatch:
    header: BatchHeader
    position: int
    """Where it begins in the fetched bytes."""


@dataclass(frozen=True, slots=True)
class Selection:
    batches: list[SelectedBatch]
    next_offset: int
    """What to fetch next: one past the last whole batch, or `start` if there is none."""


def select_batches(
    fetched: Buffer, start: int, end: int, aborted: Sequence[tuple[int, int]] | None = None
) -> Selection:
    """The batches with records from `start` up to `end`. `aborted` is what the broker said with these bytes to a reader
    of committed data, and None for others."""
    rest_aborted = sorted(aborted or (), key=lambda one: -one[1])
    aborting: set[int] = set()
    selected: list[SelectedBatch] = []
    next_offset = start
    previous_last = -1
    position = 0
    while len(fetched) - position >= HEADER_BYTES:
        header = parse_header(fetched, position)
        if position + header.size_bytes > len(fetched):
            break
        check_crc(fetched, header, position)
        last_offset = header.last_offset
        if not previous_last < header.base_offset or last_offset > MAX_OFFSET:
            raise CorruptBatch(f"batch from {header.base_offset} to {last_offset} follows offset {previous_last}")
        if header.base_offset >= end:
            next_offset = max(next_offset, end)
            break
        previous_last = last_offset
        while rest_aborted and rest_aborted[-1][1] <= last_offset:
            aborting.add(rest_aborted.pop()[0])
        if header.is_control:
            if header.producer_id in aborting and not _commits(fetched, position, header):
                aborting.discard(header.producer_id)
        elif last_offset >= start and header.record_count and not _is_aborted(header, aborting):
            selected.append(SelectedBatch(header, position))
        next_offset = max(next_offset, last_offset + 1)
        position += header.size_bytes
    return Selection(selected, next_offset)


def _is_aborted(header: BatchHeader, aborting: set[int]) -> bool:
    return header.is_transactional and header.producer_id in aborting


def _commits(fetched: Buffer, position: int, header: BatchHeader) -> bool:
    return read_marker(memoryview(fetched)[position : position + header.size_bytes], header).is_commit
