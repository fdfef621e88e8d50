"""The keys of `__share_group_state`, the internal topic that remembers what share groups did with their records.

    key    int16 1000, string group, uuid topic, int32 partition                a snapshot: the whole state
           int16 1001, string group, uuid topic, int32 partition, int32 slot    a change since the last snapshot
           int16 1002, string group, uuid topic, int32 partition                a claim

A key's first number is what Kafka's tools go by. Kafka's own topic of this name has 0 and 1, with values that have no
place for delays and dead letters; what it does not know, its tools skip. Older versions of ours wrote 0, 1 and 2, which
are read as well (docs/decisions/0019).
"""

import enum
import struct
from typing import Final, NamedTuple

from headwater.broker.nodes.node_messages import ShareKey
from headwater.model.ids import PartitionId
from headwater.records.byte_reader import ByteReader, MalformedBytes

MAX_CHANGES: Final = 500
"""Changes between two snapshots, and thereby the slots of one share partition."""

_OWN: Final = 1000
_HEAD = struct.Struct(">hh")
_TAIL = struct.Struct(">16si")
_SLOT = struct.Struct(">i")


class Kind(enum.IntEnum):
    SNAPSHOT = 0
    CHANGE = 1
    CLAIM = 2


class StateKey(NamedTuple):
    """The key of a record."""

    kind: Kind
    share: ShareKey
    slot: int = -1
    """Of a change."""
    is_old: bool = False
    """Under a number that Kafka uses for something else."""

    def encode(self) -> bytes:
        group = self.share.group_id.encode()
        number = self.kind if self.is_old else _OWN + self.kind
        head = _HEAD.pack(number, len(group)) + group
        tail = _TAIL.pack(self.share.partition.topic_id.bytes, self.share.partition.index)
        return head + tail + (_SLOT.pack(self.slot) if self.kind is Kind.CHANGE else b"")


def decode(data: bytes) -> StateKey:
    """Raises ValueError."""
    reader = ByteReader(data)
    number = reader.int16()
    is_old = number < _OWN
    kind = Kind(number if is_old else number - _OWN)
    share = ShareKey(reader.string(), PartitionId(reader.uuid(), reader.int32()))
    slot = reader.int32() if kind is Kind.CHANGE else -1
    if kind is Kind.CHANGE and not 0 <= slot < MAX_CHANGES:
        raise MalformedBytes(f"slot {slot} of a change is not known")
    return StateKey(kind, share, slot, is_old)
