"""Where pushed records come from, and where they are acknowledged: a queue, or a stream."""

from collections.abc import Sequence
from typing import Protocol

from headwater.gateway.subscriptions.members.deliveries import Delivery
from headwater.gateway.subscriptions.members.pending_acks import AckType
from headwater.gateway.subscriptions.members.queue_member import QueueMember
from headwater.gateway.subscriptions.members.stream_member import StreamMember
from headwater.gateway.subscriptions.members.stream_progress import StreamProgress


class Source(Protocol):
    async def take(self, max_records: int, max_bytes: int, wait_ms: int) -> list[Delivery]: ...

    def accept(self, deliveries: Sequence[Delivery]) -> None: ...

    def reject(self, deliveries: Sequence[Delivery]) -> None: ...

    def release(self, deliveries: Sequence[Delivery]) -> None:
        """Give back what was not sent, or not taken."""

    async def drain(self) -> None:
        """Wait until the cluster knows of all this, for a moment."""

    async def keep(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Called from time to time for all that is held; returns the deliveries that the subscription has lost."""

    @property
    def keep_every_s(self) -> float: ...

    async def run(self) -> None:
        """Until cancelled."""


class QueueSource:
    def __init__(self, member: QueueMember) -> None:
        self._member = member
        self.take = member.take
        self.run = member.run
        self.drain = member.drain

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        self._member.acknowledge_soon(deliveries, AckType.ACCEPT)

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        self._member.acknowledge_soon(deliveries, AckType.REJECT)

    def release(self, deliveries: Sequence[Delivery]) -> None:
        self._member.acknowledge_soon(deliveries, AckType.RELEASE)

    async def keep(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        return await self._member.extend(deliveries)

    @property
    def keep_every_s(self) -> float:
        return self._member.lock_ms / 1000 / 3


class StreamSource:
    """What was taken is committed as far as nothing before it is open, while its partition is the member's. A partition
    that went to another member and came back begins anew, at what is committed."""

    KEEP_EVERY_S = 0.5

    def __init__(self, member: StreamMember) -> None:
        self._member = member
        self._progress = StreamProgress()
        self._assignments: dict[int, int] = {}
        """By partition, the assignment of which the progress is."""

    async def take(self, max_records: int, max_bytes: int, wait_ms: int) -> list[Delivery]:
        deliveries = await self._member.take(max_records, max_bytes, wait_ms)
        deliveries = [each for each in deliveries if self._is_held(each)]
        for each in deliveries:
            if self._assignments.get(each.partition) != each.lease:
                self._progress.drop([each.partition])
                self._assignments[each.partition] = each.lease
            self._progress.began(each.partition, each.offset)
        return deliveries

    def accept(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            if self._assignments.get(each.partition) == each.lease:
                self._progress.ended(each.partition, each.offset)

    def reject(self, deliveries: Sequence[Delivery]) -> None:
        raise AssertionError("records of a stream are sent until they are taken")

    def release(self, deliveries: Sequence[Delivery]) -> None:
        """They are not committed, and so come again."""

    async def drain(self) -> None:
        await self.keep(())

    async def keep(self, deliveries: Sequence[Delivery]) -> Sequence[Delivery]:
        """Commit, and tell what went to another member meanwhile."""
        offsets = self._to_commit()
        if offsets:
            await self._member.commit(offsets)
            self._progress.committed(offsets)
        return [each for each in deliveries if not self._is_held(each)]

    async def run(self) -> None:
        await self._member.run(self._to_commit)

    @property
    def keep_every_s(self) -> float:
        return self.KEEP_EVERY_S

    def _is_held(self, delivery: Delivery) -> bool:
        return self._member.assignment(delivery.partition) == delivery.lease

    def _to_commit(self) -> dict[int, int]:
        """Of the partitions that are still the member's; the progress of others is of no use."""
        lost = [each for each, number in self._assignments.items() if self._member.assignment(each) != number]
        self._progress.drop(lost)
        for partition in lost:
            del self._assignments[partition]
        return self._progress.to_commit()
