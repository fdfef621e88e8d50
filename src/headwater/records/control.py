"""Markers: the control batches that end a transaction in a partition (KIP-98).

A marker is a batch of one record with the attributes control and transactional, the producer's id and epoch, and no
sequence number. It takes an offset, and no reader is given its record.

    key    version i16 = 0 | type i16: 0 abort, 1 commit
    value  version i16 = 0 | coordinator epoch i32

A later version may say more behind these fields; what is known of it is read all the same.
"""

import struct
from dataclasses import dataclass
from typing import Final

from headwater.model.replica import Buffer
from headwater.records.batch import CONTROL, TRANSACTIONAL, BatchHeader, CorruptBatch
from headwater.records.build import build_batch
from headwater.records.record import Record, records

_VERSION: Final = 0
_ABORT: Final = 0
_COMMIT: Final = 1
_KEY: Final = struct.Struct(">hh")
_VALUE: Final = struct.Struct(">hi")


@dataclass(frozen=True, slots=True)
class EndMarker:
    is_commit: bool
    coordinator_epoch: int


def build_marker(producer_id: int, producer_epoch: int, marker: EndMarker, timestamp: int) -> bytearray:
    """The batch of a marker, ready to be given its offset."""
    key = _KEY.pack(_VERSION, _COMMIT if marker.is_commit else _ABORT)
    value = _VALUE.pack(_VERSION, marker.coordinator_epoch)
    return build_batch(
        [Record(key, value, timestamp=timestamp)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=CONTROL | TRANSACTIONAL,
    )


def read_marker(batch: Buffer, header: BatchHeader) -> EndMarker:
    """The marker in a control batch. Raises CorruptBatch."""
    if not header.is_control or header.compression or header.record_count != 1:
        raise CorruptBatch(
            f"attributes {header.attributes:#x} and {header.record_count} records at {header.base_offset}: no marker"
        )
    (record,) = records(batch, header)
    key, value = record.key or b"", record.value or b""
    if len(key) < _KEY.size or len(value) < _VALUE.size:
        raise CorruptBatch(f"marker with a key of {len(key)} and a value of {len(value)} bytes")
    key_version, kind = _KEY.unpack_from(key)
    value_version, coordinator_epoch = _VALUE.unpack_from(value)
    if key_version < _VERSION or value_version < _VERSION or kind not in (_ABORT, _COMMIT):
        raise CorruptBatch(f"marker of type {kind}, versions {key_version} and {value_version}")
    return EndMarker(kind == _COMMIT, coordinator_epoch)
