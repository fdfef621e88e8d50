"""What a share partition answers: always the events to log, in order, and the dead letters to write."""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from headwater.model.errors import ErrorCode
from headwater.model.ids import Offset
from headwater.queues.events import DeadLetterReason, ShareEvent


class AcknowledgeType(enum.IntEnum):
    """The numbers of the protocol (KIP-932, and KIP-1222 for RENEW)."""

    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class AcquireMode(enum.IntEnum):
    """The numbers of the protocol (ShareFetch 2)."""

    BATCH_OPTIMIZED = 0
    """The batch in which the limit is reached is taken whole."""
    RECORD_LIMIT = 1


@dataclass(frozen=True, slots=True)
class AcquiredRange:
    first: Offset
    last: Offset
    delivery_count: int
    """1 for a first delivery."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Write these records to the dead-letter topic, once the events that came with this are logged; then call
    `SharePartition.dead_letters_written`. Offsets that hold no record are reported as written too."""

    first: Offset
    last: Offset
    reason: DeadLetterReason
    delivery_count: int


@dataclass(frozen=True, slots=True)
class Changes:
    events: tuple[ShareEvent, ...] = ()
    dead_letters: tuple[DeadLetter, ...] = ()


@dataclass(frozen=True, slots=True)
class Acquisition:
    ranges: tuple[AcquiredRange, ...]
    """By rising offset; neighbours differ in their delivery count or are apart."""
    changes: Changes
    """Usually empty: a lease is not logged. What a filter, a time to live or a gap resolves is."""


@dataclass(frozen=True, slots=True)
class AcknowledgedBatch:
    first: Offset
    last: Offset
    types: Sequence[int]
    """One for the whole batch, or one for each offset."""


@dataclass(frozen=True, slots=True)
class AcknowledgeOutcome:
    errors: tuple[ErrorCode, ...]
    """For each batch, in order. A batch with an error changed nothing."""
    changes: Changes

    @property
    def error(self) -> ErrorCode:
        """The first error: the protocol has one for each partition."""
        return next((error for error in self.errors if error is not ErrorCode.NONE), ErrorCode.NONE)
