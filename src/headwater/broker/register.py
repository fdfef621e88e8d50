"""The register of one partition's segments: what the metadata store says, and the only way to change it.

Every change is one compare-and-set transaction on the head (and the sealed keys it touches), then the same
change in memory. A change that loses the comparison means that somebody else leads the partition now.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace

from headwater.broker.chain import Chain
from headwater.metadata import keys
from headwater.metadata.keys import Head, OpenSegment, SealedSegment
from headwater.metadata.store import Condition, Del, Is, MetaStore, Operation, Put, Txn, Unknown
from headwater.model.ids import Offset, PartitionId, SegmentId

MAX_SEGMENTS_PER_CHANGE = 48
"""Each costs a condition and an operation, beside the head's own; a transaction has at most 100."""


class LostLeadership(Exception):
    """The head is not what this leader last wrote."""


class SegmentsChanged(Exception):
    """Some of the segments are not in the chain any more."""


class Register:
    def __init__(
        self,
        metadata: MetaStore,
        partition: PartitionId,
        head: Head,
        version: int,
        sealed: Mapping[SegmentId, tuple[SealedSegment, int]],
    ) -> None:
        assert head.open is not None, "a led partition has an open segment"
        self._metadata = metadata
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
    def start(self) -> Offset:
        return self._head.start

    async def roll(self, sealed: SealedSegment, open_segment: OpenSegment) -> None:
        """The open segment ends here and a new one begins. An empty one leaves no key behind."""
        async with self._lock:
            operations: list[Operation] = []
            key = keys.sealed_key(self._partition, sealed.id)
            if sealed.end > sealed.base:
                operations.append(Put(key, keys.encode(sealed)))
            txn = await self._change_head(replace(self._head, open=open_segment), [], operations)
            if operations:
                self._sealed_versions[sealed.id] = txn.versions[key]
            self.chain.roll(sealed, open_segment)

    async def update(self, segment: SealedSegment) -> None:
        """New facts about a sealed segment. One that is gone by now stays gone."""
        async with self._lock:
            version = self._sealed_versions.get(segment.id)
            if version is None:
                return
            key = keys.sealed_key(self._partition, segment.id)
            txn = await self._metadata.txn([Is(key, version)], [Put(key, keys.encode(segment))])
            if not txn.ok:
                raise LostLeadership(f"{key} was changed by somebody else")
            self._sealed_versions[segment.id] = txn.versions[key]
            self.chain.replace([segment], segment)

    async def advance_start(self, start: Offset) -> list[SealedSegment]:
        """Nothing below `start` is readable any more; return the segments that this made superfluous."""
        dropped: list[SealedSegment] = []
        async with self._lock:
            while True:
                old = [segment for segment in self.chain.sealed if segment.end <= start]
                step = old[:MAX_SEGMENTS_PER_CHANGE]
                reached = step[-1].end if len(step) < len(old) else max(start, self._head.start)
                if reached == self._head.start and not step:
                    return dropped
                conditions, operations = self._deletions(step)
                await self._change_head(replace(self._head, start=reached), conditions, operations)
                dropped += self.chain.drop(len(step))
                self._forget(step)

    async def swap(self, old: Sequence[SealedSegment], new: SealedSegment) -> None:
        """One new segment covers what the old ones did (compaction)."""
        assert len(old) <= MAX_SEGMENTS_PER_CHANGE, "a swap fits into one transaction"
        async with self._lock:
            if any(segment.id not in self._sealed_versions for segment in old):
                raise SegmentsChanged(f"segments of {self._partition} were dropped meanwhile")
            conditions, operations = self._deletions(old)
            key = keys.sealed_key(self._partition, new.id)
            operations.append(Put(key, keys.encode(new)))
            txn = await self._metadata.txn(conditions, operations)
            if not txn.ok:
                raise LostLeadership(f"segments of {self._partition} were changed by somebody else")
            self._forget(old)
            self._sealed_versions[new.id] = txn.versions[key]
            self.chain.replace(old, new)

    def _deletions(self, segments: Sequence[SealedSegment]) -> tuple[list[Condition], list[Operation]]:
        names = [(keys.sealed_key(self._partition, segment.id), segment.id) for segment in segments]
        conditions: list[Condition] = [Is(key, self._sealed_versions[segment_id]) for key, segment_id in names]
        operations: list[Operation] = [Del(key) for key, _ in names]
        return conditions, operations

    def _forget(self, segments: Sequence[SealedSegment]) -> None:
        for segment in segments:
            self._sealed_versions.pop(segment.id, None)

    async def _change_head(self, head: Head, conditions: Sequence[Condition], operations: Sequence[Operation]) -> Txn:
        key = keys.head_key(self._partition)
        value = keys.encode(head)
        try:
            txn = await self._metadata.txn([Is(key, self._version), *conditions], [Put(key, value), *operations])
        except Unknown:
            txn = await self._what_happened(key, value, operations)
        if not txn.ok:
            raise LostLeadership(f"{key} was changed by somebody else")
        self._head = head
        self._version = txn.versions[key]
        return txn

    async def _what_happened(self, key: str, value: bytes, operations: Sequence[Operation]) -> Txn:
        """A transaction without an answer: the head's bytes tell whether it took place. Never tried again blindly."""
        current = await self._metadata.get(key)
        if current is None or current.value != value:
            return Txn(False, {})
        versions = {key: current.version}
        for operation in operations:
            if isinstance(operation, Put):
                written = await self._metadata.get(operation.key)
                versions[operation.key] = written.version if written is not None else 0
        return Txn(True, versions)
