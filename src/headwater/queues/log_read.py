"""What a share partition learns of the log: spans that were read, their batches, and, where needed, their records."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from headwater.model.ids import Offset


class DeliveryTerms(NamedTuple):
    """What decides about the delivery of one record. A tuple, because there is one for each record."""

    offset: Offset
    key: bytes | None = None
    """Looked at with order=key; records without a key have no order."""
    deliver_at_ms: int | None = None
    expires_at_ms: int | None = None
    matches: bool = True
    """What the group's filter says."""


TermsReader: TypeAlias = Callable[[], Sequence[DeliveryTerms]]
"""The records of a batch by rising offset. Called at most once for each acquire, and only if a record of the batch
could be taken whose facts are not known. Offsets that it leaves out hold no record."""


@dataclass(frozen=True, slots=True)
class CandidateBatch:
    first_offset: Offset
    last_offset: Offset
    read_terms: TermsReader | None = None
    """None: no record of the batch has anything that delays, expires or orders it, and no filter applies."""


@dataclass(frozen=True, slots=True)
class LogRead:
    """A span of the log that was read from `next_fetch_offset()` on.

    Offsets from `first_offset` on and below `end_offset` that no batch covers hold no records for this group (control
    batches, aborted transactions, compaction). The first batch may begin below, the last may end behind: no matter."""

    first_offset: Offset
    end_offset: Offset
    batches: Sequence[CandidateBatch]
