"""Which topics there are, and with how many partitions: remembered, because every request to write asks.

A topic that is not remembered is looked for at once. One that was deleted elsewhere stays known for up to REFRESH_S;
writing to it then fails with the cluster's own words, and does not make it anew.
"""

import asyncio
import time

from headwater.gateway.kafka.admin import Admin
from headwater.gateway.kafka.errors import InvalidRequest, KafkaFailure, topic_not_found

REFRESH_S = 5.0


class KnownTopics:
    def __init__(self, admin: Admin) -> None:
        self._admin = admin
        self._partitions: dict[str, int] = {}
        self._refreshed_s = float("-inf")
        self._refreshing: asyncio.Task[None] | None = None

    async def partitions_of(self, topic: str) -> int:
        """Raises TopicNotFound, and other failures if no broker answers."""
        count = self.known(topic)
        if count is None:
            await self.refresh()
            count = self._partitions.get(topic)
        if count is None:
            raise topic_not_found(topic)
        return count

    def known(self, topic: str) -> int | None:
        """At once; None if the cluster must be asked first."""
        if time.monotonic() - self._refreshed_s > REFRESH_S:
            self._begin()
        return self._partitions.get(topic)

    async def check_partition(self, topic: str, partition: int) -> None:
        count = await self.partitions_of(topic)
        if partition >= count:
            await self.refresh()  # it may have got more
            count = await self.partitions_of(topic)
        if partition >= count:
            raise InvalidRequest(f"Topic {topic} has no partition {partition}: it has {count}, from 0 on.")

    async def refresh(self) -> None:
        """All who want it at one time share one question."""
        await asyncio.shield(self._begin())

    def forget(self, topic: str) -> None:
        self._partitions.pop(topic, None)

    async def close(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.gather(self._refreshing, return_exceptions=True)

    def _begin(self) -> "asyncio.Task[None]":
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh(), name="known-topics")
            self._refreshing.add_done_callback(_seen)
        return self._refreshing

    async def _refresh(self) -> None:
        asked_s = time.monotonic()
        metadata = await self._admin.metadata()
        self._partitions = {name: len(topic.partitions) for name, topic in metadata.topics.items()}
        self._refreshed_s = asked_s


def _seen(task: "asyncio.Task[None]") -> None:
    """A refresh in the background may have no caller; its failure is raised to the request that needs it."""
    if not task.cancelled():
        error = task.exception()
        assert error is None or isinstance(error, KafkaFailure), "the cluster's failure, not ours"
