"""What subscriptions still need: the positions of all groups in all partitions, collected once for a round of the
cleaner.

A group subscribes to a partition by having a position there: an offset that it committed, or the start of its queue.
An explicit subscription also subscribes to those partitions of its topic where it has none yet, from their start.
Deleting the group, or its position, ends the subscription.

While positions are still being read after a start, nothing may be concluded from missing ones.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from headwater.broker.housekeeping.retention import ConsumedPosition
from headwater.broker.settings.group_configs import GroupConfigs
from headwater.broker.topics.catalog import Catalog
from headwater.model.errors import RequestError
from headwater.model.group_position import GroupPosition
from headwater.model.ids import FIRST_OFFSET

POSITIONS_AT_ONCE = 1_000
"""Positions that are collected before others may work: about a millisecond."""


Positions: TypeAlias = Callable[[], Iterable[GroupPosition]]
"""All positions that a coordinator knows; changes between two of them do no harm. Raises RequestError while some are
still being read."""


class SubscribedRanges:
    """What subscriptions want of each partition."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, list[ConsumedPosition]]] = {}

    def add(self, topic: str, partition: int, subscription: ConsumedPosition) -> None:
        self._topics.setdefault(topic, {}).setdefault(partition, []).append(subscription)

    def of(self, topic: str, partition: int) -> Sequence[ConsumedPosition]:
        return self._topics.get(topic, {}).get(partition, ())


class ConsumedPositions:
    def __init__(
        self,
        catalog: Catalog,
        configs: GroupConfigs,
        sources: Sequence[Positions],
        collect: Callable[[], Awaitable[Sequence[GroupPosition]]] | None = None,
    ) -> None:
        """`collect` asks other nodes, too. Raises RequestError if one of them does not answer."""
        self._catalog = catalog
        self._configs = configs
        self._sources = sources
        self._collect = collect

    async def survey(self) -> SubscribedRanges | None:
        """What all subscriptions need now; None while that is not known. Other tasks run in between."""
        ranges = SubscribedRanges()
        partitions_of: dict[str, set[int]] = {}
        try:
            collected = await self._collect() if self._collect is not None else ()
            sources = chain(collected, chain.from_iterable(source() for source in self._sources))
            for number, position in enumerate(sources):
                if number % POSITIONS_AT_ONCE == POSITIONS_AT_ONCE - 1:
                    await asyncio.sleep(0)
                group_id, topic, partition, offset = position
                settings = self._configs.subscription(group_id)
                is_its_topic = topic == settings.topic
                retention_ms = settings.retention_ms if is_its_topic or not settings.is_explicit else 0
                ranges.add(topic, partition, ConsumedPosition(offset, retention_ms))
                if is_its_topic:
                    partitions_of.setdefault(group_id, set()).add(partition)
        except RequestError:
            return None
        for group_id, settings in self._configs.subscriptions():
            found = self._catalog.find(settings.topic)
            for index in range(found.partition_count if found is not None else 0):
                if index not in partitions_of.get(group_id, ()):
                    ranges.add(settings.topic, index, ConsumedPosition(FIRST_OFFSET, settings.retention_ms))
        return ranges
