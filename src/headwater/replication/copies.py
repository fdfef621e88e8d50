"""What the controller knows of the copies it asked for: which run, which are done, which failed, and how many bytes
were asked for lately."""

import enum
from collections.abc import Mapping, Sequence

from headwater.model.ids import PartitionId, SegmentId, StoreId
from headwater.model.segments import SealedSegment
from headwater.replication.actions import Copy
from headwater.replication.cluster_view import SealedKey, Versioned

SMALLEST_COST_BYTES = 64 * 1024
"""A copy costs something even if there is little to copy."""


class CopyState(enum.Enum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"


class CopyLedger:
    """A copy belongs to the version of the key that it was started under, and counts for no other."""

    def __init__(self, bytes_per_s: int, retry_s: float) -> None:
        self._bytes_per_s = bytes_per_s
        self._retry_s = retry_s
        self._states: dict[tuple[SealedKey, int, StoreId], CopyState] = {}
        self._refused_until: dict[tuple[SegmentId, StoreId], float] = {}
        self._debt_bytes = 0.0
        self._debt_at = 0.0

    def limit(self, bytes_per_s: int, now: float) -> None:
        """What was asked for so far is paid at the rate before."""
        self._debt_bytes, self._debt_at = self.debt_bytes(now), now
        self._bytes_per_s = bytes_per_s

    @property
    def running(self) -> Sequence[PartitionId]:
        """The partition of each copy that runs."""
        return [partition for ((partition, _), _, _), state in self._states.items() if state is CopyState.RUNNING]

    def started(self, copy: Copy, now: float) -> None:
        self._states[_key(copy)] = CopyState.RUNNING
        self._debt_bytes = self.debt_bytes(now) + cost_bytes(copy.sealed)
        self._debt_at = now

    def finished(self, copy: Copy) -> None:
        self._states[_key(copy)] = CopyState.DONE

    def failed(self, copy: Copy, now: float) -> None:
        self._states[_key(copy)] = CopyState.FAILED
        self._refused_until[copy.sealed.id, copy.target] = now + self._retry_s

    def is_running(self, key: SealedKey, target: StoreId) -> bool:
        """Also under an earlier version: a second copy of the same segment would only get in its way."""
        return any(
            state is CopyState.RUNNING and (key, target) == (running, to)
            for (running, _, to), state in self._states.items()
        )

    def state(self, key: SealedKey, version: int, target: StoreId) -> CopyState | None:
        return self._states.get((key, version, target))

    def refused_targets(self, segment: SegmentId, stores: Mapping[StoreId, object], now: float) -> frozenset[StoreId]:
        """Stores on which a copy of the segment failed lately."""
        if not self._refused_until:
            return frozenset()
        return frozenset(store for store in stores if self._refused_until.get((segment, store), now) > now)

    def debt_bytes(self, now: float) -> float:
        """What was asked for beyond the rate. More copies may start while it is less than a second's worth."""
        return max(self._debt_bytes - (now - self._debt_at) * self._bytes_per_s, 0.0)

    def has_budget(self, planned_bytes: int, now: float) -> bool:
        return self.debt_bytes(now) + planned_bytes < self._bytes_per_s

    def forget_old(self, sealed: Mapping[SealedKey, Versioned[SealedSegment]], now: float) -> None:
        """Copies whose key has changed since do not count. Copies that still run are kept, to count them."""

        def is_current(key: SealedKey, version: int) -> bool:
            current = sealed.get(key)
            return current is not None and current.version == version

        self._states = {
            (key, version, target): state
            for (key, version, target), state in self._states.items()
            if state is CopyState.RUNNING or is_current(key, version)
        }
        self._refused_until = {key: until for key, until in self._refused_until.items() if until > now}


def cost_bytes(sealed: SealedSegment) -> int:
    return max(sealed.size_bytes, SMALLEST_COST_BYTES)


def _key(copy: Copy) -> tuple[SealedKey, int, StoreId]:
    return (copy.partition, copy.sealed.id), copy.version, copy.target
