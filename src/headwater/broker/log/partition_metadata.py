"""The register of one partition's segments: what the metadata store says, and the only way to change it.

Every change is one compare-and-set transaction on the head (and the sealed keys it touches), then the same
change in memory. A change that finds another head means that another node leads the partition now. Sealed segments are
changed by others, too (the controller moves their replicas): a change that meets one reads it again and is repeated.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from headwater.broker.log.segment_chain import Chain
from headwater.metadata import keys
from headwater.metadata.store import KV, Condition, Del, Has, Is, Operation, Put, Txn, Unavailable, Unknown
from headwater.model.ids import Offset, PartitionId, SegmentId
from headwater.model.segments import Head, OpenSegment, SealedSegment

MAX_SEGMENTS_PER_CHANGE = 48
"""Each costs a condition and an operation, beside the head's own; a transaction has at most 100."""
MAX_TRIES = 5
"""Of a change that keeps meeting segments which others have changed."""
LOOK_AGAIN_S = 0.2
"""How often the head is read while it is not known whether it was changed."""


class LostLeadership(Exception):
    """The head is not what this leader last wrote."""


class SegmentsChanged(Exception):
    """Some of the segments are not in the chain any more."""


class Metadata(Protocol):
    """What the register needs of the metadata store."""

    async def get(self, key: str) -> KV | None: ...

    async def list(self, prefix: str) -> list[KV]: ...


class Writes(Protocol):
    async def txn(self, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn: ...


class PartitionMetadata:
    def __init__(
        self,
        metadata: Metadata,
        writes: Writes,
        partition: PartitionId,
        head: Head,
        version: int,
        sealed: Mapping[SegmentId, tuple[SealedSegment, int]],
    ) -> None:
        assert head.open is not None, "a led partition has an open segment"
        self._metadata = metadata
        self._writes = writes
        self._partition = partition
        self._head = head
        self._version = version
        self._sealed_versions = {segment_id: version for segment_id, (_, version) in sealed.items()}
        self._lock = asyncio.Lock()
        self.chain = Chain((segment for segment, _ in sealed.values()), head.open)

    @property
    def head(self) -> Head:
        return self._head

    @property
    def version(self) -> int:
        return self._version

    @property
    def start(self) -> Offset:
        return self._head.start

    async def roll(self, sealed: SealedSegment | None, open_segment: OpenSegment) -> None:
        """The open segment ends here and a new one begins. An empty one leaves no key behind. Raises Unavailable if
        certainly nothing was changed."""
        async with self._lock:
            operations: list[Operation] = []
            if sealed is not None:
                operations.append(Put(keys.sealed_key(self._partition, sealed.id), keys.encode(sealed)))
            txn = await self._change_head(replace(self._head, open=open_segment), [], operations)
            if sealed is not None:
                self._sealed_versions[sealed.id] = txn.versions[keys.sealed_key(self._partition, sealed.id)]
            self.chain.roll(sealed, open_segment)

    async def update(self, segment_id: SegmentId, change: Callable[[SealedSegment], SealedSegment]) -> None:
        """New facts about a sealed segment. One that is gone by now stays gone."""

        async def attempt() -> bool:
            version = self._sealed_versions.get(segment_id)
            known = next((segment for segment in self.chain.sealed if segment.id == segment_id), None)
            if version is None or known is None:
                return True
            changed = change(known)
            key = keys.sealed_key(self._partition, segment_id)
            txn = await self._writes.txn([Is(key, version)], [Put(key, keys.encode(changed))])
            if txn.ok:
                self._sealed_versions[segment_id] = txn.versions[key]
                self.chain.replace([changed], changed)
            return txn.ok

        async with self._lock:
            await self._until_done(attempt)

    async def advance_start(self, start: Offset) -> list[SealedSegment]:
        """Nothing below `start` is readable any more; return the segments that this made superfluous."""
        dropped: list[SealedSegment] = []

        async def attempt() -> bool:
            while True:
                old = [segment for segment in self.chain.sealed if segment.end <= start]
                step = old[:MAX_SEGMENTS_PER_CHANGE]
                reached = step[-1].end if len(step) < len(old) else max(start, self._head.start)
                if reached == self._head.start and not step:
                    return True
                conditions, operations = self._deletions(step)
                if await self._try_head(replace(self._head, start=reached), conditions, operations) is None:
                    return False
                dropped.extend(self.chain.drop(len(step)))
                self._forget(step)

        async with self._lock:
            await self._until_done(attempt)
        return dropped

    async def stage(self, segment: SealedSegment) -> None:
        """Announce a segment that is being made to replace others, so that its replicas are not taken for garbage."""
        key = keys.staged_key(self._partition, segment.id)
        txn = await self._writes.txn([Is(self._head_key, self._version)], [Put(key, keys.encode(segment))])
        if not txn.ok:
            raise LostLeadership(f"{self._head_key} was changed by another node")

    async def unstage_all(self) -> None:
        """What leaders before this one began and did not finish."""
        left = await self._metadata.list(keys.staged_prefix(self._partition))
        for start in range(0, len(left), MAX_SEGMENTS_PER_CHANGE):
            await self._writes.txn([], [Del(kv.key) for kv in left[start : start + MAX_SEGMENTS_PER_CHANGE]])

    async def unstage(self, segment: SegmentId) -> None:
        """It came to nothing."""
        await self._writes.txn([], [Del(keys.staged_key(self._partition, segment))])

    async def swap(self, old: Sequence[SealedSegment], new: SealedSegment) -> None:
        """One new segment, staged before, covers what the old ones did (compaction).

        It must be staged still: if a later leader has swept it away, its replicas may be collected by now."""
        assert len(old) <= MAX_SEGMENTS_PER_CHANGE, "a swap fits into one transaction"
        key, staged = keys.sealed_key(self._partition, new.id), keys.staged_key(self._partition, new.id)

        async def attempt() -> bool:
            if any(segment.id not in self._sealed_versions for segment in old):
                raise SegmentsChanged(f"segments of {self._partition} were dropped meanwhile")
            conditions, operations = self._deletions(old)
            operations += [Put(key, keys.encode(new)), Del(staged)]
            txn = await self._writes.txn([*conditions, Has(staged)], operations)
            if txn.ok:
                self._forget(old)
                self._sealed_versions[new.id] = txn.versions[key]
                self.chain.replace(old, new)
            return txn.ok

        async with self._lock:
            await self._until_done(attempt)

    async def confirm(self) -> None:
        """Raises LostLeadership if another node has changed the head; Unavailable, Unknown if that is not known."""
        async with self._lock:
            current = await self._metadata.get(self._head_key)
            if current is None or current.version != self._version:
                raise LostLeadership(f"{self._head_key} was changed by another node")

    async def refresh(self) -> bool:
        """Read what others may have changed of the sealed segments; say whether anything was. Raises LostLeadership."""
        async with self._lock:
            return await self._refresh()

    async def _until_done(self, attempt: Callable[[], Awaitable[bool]]) -> None:
        for _ in range(MAX_TRIES):
            if await attempt():
                return
            await self._refresh()
        raise Unavailable(f"the segments of {self._partition} keep being changed by others")

    async def _refresh(self) -> bool:
        """The head first: if it is still this leader's, only single segments can have been changed by others."""
        current = await self._metadata.get(self._head_key)
        if current is None or current.version != self._version:
            raise LostLeadership(f"{self._head_key} was changed by another node")
        has_changed = False
        found = {kv.key: kv for kv in await self._metadata.list(keys.sealed_prefix(self._partition))}
        for segment in self.chain.sealed:
            kv = found.get(keys.sealed_key(self._partition, segment.id))
            if kv is None:
                raise LostLeadership(f"segment {segment.id} of {self._partition} was removed by another node")
            if kv.version != self._sealed_versions.get(segment.id):
                fresh = keys.decode_sealed(kv.value)
                self.chain.replace([fresh], fresh)
                self._sealed_versions[segment.id] = kv.version
                has_changed = True
        return has_changed

    @property
    def _head_key(self) -> str:
        return keys.head_key(self._partition)

    def _deletions(self, segments: Sequence[SealedSegment]) -> tuple[list[Condition], list[Operation]]:
        names = [(keys.sealed_key(self._partition, segment.id), segment.id) for segment in segments]
        conditions: list[Condition] = [Is(key, self._sealed_versions[segment_id]) for key, segment_id in names]
        operations: list[Operation] = [Del(key) for key, _ in names]
        return conditions, operations

    def _forget(self, segments: Sequence[SealedSegment]) -> None:
        for segment in segments:
            self._sealed_versions.pop(segment.id, None)

    async def _change_head(self, head: Head, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        txn = await self._try_head(head, conditions, operations)
        if txn is None:
            raise LostLeadership(f"{self._head_key} was changed by another node")
        return txn

    async def _try_head(
        self, head: Head, conditions: Sequence[Condition], operations: Sequence[Operation]
    ) -> Txn | None:
        """None if a comparison failed: that of the head, or one of the conditions."""
        value = keys.encode(head)
        try:
            txn = await self._writes.txn(
                [Is(self._head_key, self._version), *conditions], [Put(self._head_key, value), *operations]
            )
        except Unknown:
            txn = await what_happened(self._metadata, self._head_key, value, operations)
        if not txn.ok:
            return None
        self._head = head
        self._version = txn.versions[self._head_key]
        return txn


async def what_happened(metadata: Metadata, head_key: str, value: bytes, operations: Sequence[Operation]) -> Txn:
    """A transaction without an answer: the head's bytes tell whether it took place. Never tried again blindly. Looks
    until it knows: a leader that goes on without knowing may lead beside another."""
    while True:
        try:
            current = await metadata.get(head_key)
            if current is None or current.value != value:
                return Txn(False, {})
            versions = {head_key: current.version}
            for operation in operations:
                if isinstance(operation, Put):
                    written = await metadata.get(operation.key)
                    versions[operation.key] = written.version if written is not None else 0
            return Txn(True, versions)
        except (Unavailable, Unknown):
            await asyncio.sleep(LOOK_AGAIN_S)
