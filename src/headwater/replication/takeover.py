"""A new leader takes over a partition: fence, decide, replay, plant the tail, publish (docs/replication.md, 7).

The order is what keeps acknowledged records: the old segment takes nothing more once a replica is fenced; the tail, of
which some may have been acknowledged, is on all replicas of the new segment before the metadata points there. A leader
that crashes on the way leaves an orphan, and the next leader begins again from the segment that is still listed.
"""

import enum
from collections.abc import Callable
from dataclasses import dataclass, replace

from headwater.model.ids import LeaderEpoch, Offset, SegmentId, StoreId
from headwater.model.replica import ReplicaState
from headwater.model.segments import Head, OpenSegment, SealedSegment
from headwater.replication.effects import (
    Choose,
    Effect,
    Fence,
    NewSegmentId,
    Plant,
    Publish,
    Refusal,
    Replay,
    Rules,
    StepDown,
)
from headwater.replication.recovery import Recovered, decide


class _Step(enum.Enum):
    FENCING = enum.auto()
    REPLAYING = enum.auto()
    PLANTING = enum.auto()
    PUBLISHING = enum.auto()
    OVER = enum.auto()


@dataclass(frozen=True, slots=True)
class Led:
    """The partition is this node's. Everything below `end` is committed."""

    open: OpenSegment
    sealed: SealedSegment | None
    end: Offset


@dataclass(slots=True)
class _Planting:
    segment: OpenSegment
    deadline: float
    planted: list[StoreId]
    failed: list[StoreId]


def next_epoch(head: Head) -> LeaderEpoch:
    """The epoch that the head's leader begins: the epoch it was given or, if it has led in that epoch before and starts
    again, the one after it."""
    return head.epoch if head.open is None or head.open.epoch < head.epoch else LeaderEpoch(head.epoch + 1)


def _is_never_lost(store: StoreId) -> bool:
    return False


class Takeover:
    def __init__(
        self,
        head: Head,
        rules: Rules,
        choose: Choose,
        new_segment_id: NewSegmentId,
        is_lost: Callable[[StoreId], bool] = _is_never_lost,
    ) -> None:
        """`is_lost` names stores that will never answer, if their records may be given up (docs/replication.md, 14)."""
        self.head = head
        self.epoch = next_epoch(head)
        assert head.open is None or self.epoch > head.open.epoch, "a segment has one writer, in one leader epoch"
        self.result: Led | None = None
        self._rules = rules
        self._choose = choose
        self._new_segment_id = new_segment_id
        self._is_lost = is_lost
        self._step = _Step.FENCING
        self._answers: dict[StoreId, ReplicaState] = {}
        self._refence: dict[StoreId, float] = {}
        """Replicas that did not answer, and when they are asked again."""
        self._unreadable: dict[StoreId, float] = {}
        """Replicas that could not be replayed, and until when they count as if they had not answered. Afterwards they
        are believed where no sound one can be."""
        self._grace_until: float | None = None
        self._found: Recovered | None = None
        self._planting: _Planting | None = None
        self._bad: dict[StoreId, float] = {}
        self._retry_at: float | None = None

    @property
    def is_over(self) -> bool:
        return self._step is _Step.OVER

    @property
    def replay_source(self) -> ReplicaState | None:
        """The answer of the replica that is replayed; its header has the producers at the old segment's base."""
        return self._answers.get(self._found.source) if self._found is not None else None

    @property
    def deadline(self) -> float | None:
        times = [self._retry_at]
        if self._step is _Step.FENCING:
            times += [self._grace_until, *self._refence.values()]
        if self._step is _Step.PLANTING and self._planting is not None:
            times.append(self._planting.deadline)
        return min((time for time in times if time is not None), default=None)

    def start(self, now: float) -> list[Effect]:
        old = self.head.open
        if old is None:
            self._found = Recovered(self.head.start, self.head.start, StoreId(""))
            return self._plant(now)
        return [Fence(store, old.id) for store in old.replicas]

    # Fencing

    def fenced(self, store: StoreId, state: ReplicaState, now: float) -> list[Effect]:
        if self._step is not _Step.FENCING:
            return []
        if now < (until := self._unreadable.get(store, now)):
            self._refence[store] = until
        else:
            self._answers[store] = state
            self._refence.pop(store, None)
        return self._maybe_decide(now)

    def fence_failed(self, store: StoreId, now: float) -> list[Effect]:
        if self._step is _Step.FENCING and store not in self._answers:
            self._refence[store] = now + self._rules.retry_s
        return self._maybe_decide(now) if self._step is _Step.FENCING else []

    def _maybe_decide(self, now: float) -> list[Effect]:
        old = self._old
        expected = [store for store in old.replicas if not self._is_lost(store)]
        found = decide(expected, self._believed) if self._answers else None
        if found is None:
            return []
        if not all(store in self._answers for store in expected):
            if self._grace_until is None:
                self._grace_until = now + self._rules.grace_s
            if now < self._grace_until:
                return []
        committed, end = max(found.committed, old.base), max(found.end, old.base)
        assert committed <= end, "what is known to be committed is on the longest replica"
        self._found = Recovered(committed, end, found.source)
        self._step = _Step.REPLAYING
        self._grace_until = None
        return [Replay(found.source, old, committed, end)]

    @property
    def _believed(self) -> dict[StoreId, ReplicaState]:
        """Two damaged replicas must not take turns as the longest while a sound one, which is shorter, waits."""
        readable = {store: state for store, state in self._answers.items() if store not in self._unreadable}
        return readable if any(not state.in_doubt for state in readable.values()) else self._answers

    @property
    def _old(self) -> OpenSegment:
        assert self.head.open is not None, "only a partition that was led before is fenced"
        return self.head.open

    # Replaying

    def replayed(self, now: float) -> list[Effect]:
        return self._plant(now) if self._step is _Step.REPLAYING else []

    def replay_failed(self, source: StoreId, now: float) -> list[Effect]:
        """The replica that was to be read is gone or damaged: ask all again, and decide without what it says.

        A damaged replica goes on to answer fences, often with the longest tail. If it were believed again at once, it
        would be chosen again, for ever; without it any sound answer still has everything that was committed."""
        if self._step is not _Step.REPLAYING:
            return []
        self._step = _Step.FENCING
        self._unreadable[source] = self._refence[source] = now + self._rules.bad_store_s
        self._answers.clear()
        self._found = None
        return [Fence(store, self._old.id) for store in self._old.replicas if store != source]

    # Planting

    def _plant(self, now: float) -> list[Effect]:
        assert self._found is not None, "what is planted was decided before"
        self._step = _Step.PLANTING
        self._retry_at = None
        self._bad = {store: until for store, until in self._bad.items() if until > now}
        segment_id = self._new_segment_id()
        stores = self._choose(self._rules.replication_factor, frozenset(self._bad), segment_id)
        if len(stores) < self._rules.min_insync:
            return self._wait(now)
        found = self._found
        segment = OpenSegment(segment_id, found.committed, self.epoch, found.end, stores)
        self._planting = _Planting(segment, now + self._rules.plant_timeout_s, [], [])
        return [Plant(store, segment, found.committed, found.end) for store in stores]

    def planted(self, store: StoreId, segment: SegmentId, now: float) -> list[Effect]:
        planting = self._planting
        if planting is None or planting.segment.id != segment or self._step is not _Step.PLANTING:
            return []
        if store not in planting.planted and store not in planting.failed:
            planting.planted.append(store)
        return self._maybe_publish(planting, now)

    def plant_failed(self, store: StoreId, segment: SegmentId, refusal: Refusal, now: float) -> list[Effect]:
        planting = self._planting
        if planting is None or planting.segment.id != segment or self._step is not _Step.PLANTING:
            return []
        if store not in planting.planted and store not in planting.failed:
            planting.failed.append(store)
            self._bad[store] = now + self._rules.bad_store_s
        return self._maybe_publish(planting, now)

    def _maybe_publish(self, planting: _Planting, now: float) -> list[Effect]:
        answered = len(planting.planted) + len(planting.failed)
        if answered < len(planting.segment.replicas) and now < planting.deadline:
            return []
        if len(planting.planted) < self._rules.min_insync:
            return self._wait(now)
        replicas = tuple(store for store in planting.segment.replicas if store in planting.planted)
        assert replicas, "a segment is published when its tail is on a store"
        planting.segment = replace(planting.segment, replicas=replicas)
        return self._publish(planting.segment)

    def _wait(self, now: float) -> list[Effect]:
        """Too few stores. A segment that was planted on some is an orphan now."""
        self._planting = None
        self._retry_at = now + self._rules.retry_s
        return []

    # Publishing

    def _publish(self, segment: OpenSegment) -> list[Effect]:
        self._step = _Step.PUBLISHING
        self._retry_at = None
        return [Publish(self._sealed, segment)]

    @property
    def _sealed(self) -> SealedSegment | None:
        """The old segment, unless nothing of it is left."""
        found, old = self._found, self.head.open
        if old is None or found is None or found.committed == old.base:
            return None
        state = self._answers[found.source]
        return SealedSegment(
            id=old.id,
            base=old.base,
            end=found.committed,
            epoch=old.epoch,
            epoch_start=old.epoch_start,
            replicas=old.replicas,
            size_bytes=state.size_bytes,
            max_timestamp=state.max_timestamp,
            crc32c=None,
        )

    def published(self, segment: SegmentId, now: float) -> list[Effect]:
        planting = self._planting
        if self._step is _Step.PUBLISHING and planting is not None and planting.segment.id == segment:
            found, sealed = self._found, self._sealed
            assert found is not None, "what is published was decided before"
            assert sealed is None or sealed.end == planting.segment.base, "the chain of segments has no gap"
            self._step = _Step.OVER
            self.result = Led(planting.segment, sealed, found.end)
        return []

    def publish_failed(self, segment: SegmentId, now: float) -> list[Effect]:
        """Certainly not published: the metadata could not be reached. The same again in a while."""
        if self._step is _Step.PUBLISHING:
            self._retry_at = now + self._rules.retry_s
        return []

    def publish_lost(self, now: float) -> list[Effect]:
        self._step = _Step.OVER
        return [StepDown("another node changed the head of the partition")]

    # Time

    def tick(self, now: float) -> list[Effect]:
        if self._step is _Step.FENCING:
            return self._tick_fencing(now)
        if self._step is _Step.PLANTING and self._planting is not None and now >= self._planting.deadline:
            for store in self._planting.segment.replicas:
                if store not in self._planting.planted:
                    self._bad[store] = now + self._rules.bad_store_s
            return self._maybe_publish(self._planting, now)
        if self._retry_at is None or now < self._retry_at:
            return []
        if self._step is _Step.PLANTING:
            return self._plant(now)
        if self._step is _Step.PUBLISHING and self._planting is not None:
            return self._publish(self._planting.segment)
        return []

    def _tick_fencing(self, now: float) -> list[Effect]:
        due = [store for store, at in self._refence.items() if now >= at]
        for store in due:
            del self._refence[store]
        again: list[Effect] = [Fence(store, self._old.id) for store in due]
        if self._grace_until is not None and now >= self._grace_until:
            return again + self._maybe_decide(now)
        return again
