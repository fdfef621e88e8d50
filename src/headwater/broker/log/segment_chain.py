"""The segments of one partition, in order: sealed ones, then the open one.

Invariants: the chain is contiguous (each segment begins where the one before ends), only the last is open, and epochs
never decrease.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from headwater.model.ids import LeaderEpoch, Offset, SegmentId
from headwater.model.segments import OpenSegment, SealedSegment


@dataclass(frozen=True, slots=True)
class EpochStart:
    epoch: LeaderEpoch
    start: Offset


class Chain:
    def __init__(self, sealed: Iterable[SealedSegment], open_segment: OpenSegment) -> None:
        self._sealed = sorted(sealed, key=lambda segment: segment.base)
        self._bases = [segment.base for segment in self._sealed]
        self.open = open_segment
        self._check()

    @property
    def sealed(self) -> list[SealedSegment]:
        return list(self._sealed)

    def __iter__(self) -> Iterator[SealedSegment | OpenSegment]:
        yield from self._sealed
        yield self.open

    @property
    def sealed_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._sealed)

    def find(self, offset: Offset) -> SealedSegment | OpenSegment:
        """The segment whose range holds `offset`; the first one for anything before the chain."""
        if offset >= self.open.base or not self._sealed:
            return self.open
        return self._sealed[max(bisect_right(self._bases, offset) - 1, 0)]

    def holds(self, segment: SegmentId) -> bool:
        return any(each.id == segment for each in self)

    def roll(self, sealed: SealedSegment | None, open_segment: OpenSegment) -> None:
        """The open segment becomes `sealed`, or goes if it is empty, and a new one takes its place."""
        if sealed is not None:
            assert sealed.id == self.open.id, "only the open segment can be sealed"
            self._sealed.append(sealed)
            self._bases.append(sealed.base)
        self.open = open_segment
        self._check()

    def drop(self, count: int) -> list[SealedSegment]:
        """Forget the oldest segments."""
        dropped = self._sealed[:count]
        del self._sealed[:count]
        del self._bases[:count]
        return dropped

    def replace(self, old: Iterable[SealedSegment], new: SealedSegment) -> None:
        """Put one segment in the place of one or more neighbours (compaction, or new facts about the same one)."""
        old_ids = {segment.id for segment in old}
        kept = [segment for segment in self._sealed if segment.id not in old_ids]
        self._sealed = sorted([*kept, new], key=lambda segment: segment.base)
        self._bases = [segment.base for segment in self._sealed]
        self._check()

    def epochs(self) -> list[EpochStart]:
        """Where each leader epoch began, oldest first."""
        starts: list[EpochStart] = []
        for segment in self:
            earlier = segment.earlier_epochs if isinstance(segment, SealedSegment) else ()
            for epoch, start in (*earlier, (segment.epoch, segment.epoch_start)):
                if not starts or epoch > starts[-1].epoch:
                    starts.append(EpochStart(epoch, start))
        return starts

    def _check(self) -> None:
        place = gap(self._sealed, self.open)
        assert place is None, f"gap in the chain before {place}"


def gap(sealed: Iterable[SealedSegment], open_segment: OpenSegment) -> SealedSegment | OpenSegment | None:
    """The first segment that does not begin where the one before it ends; None if they are a chain."""
    previous_end = None
    segments: list[SealedSegment | OpenSegment] = [*sorted(sealed, key=lambda each: each.base), open_segment]
    for segment in segments:
        if previous_end is not None and segment.base != previous_end:
            return segment
        previous_end = segment.end if isinstance(segment, SealedSegment) else None
    return None
