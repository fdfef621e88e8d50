"""Who still wants what: the positions of all groups in all partitions, collected once for a round of the cleaner.

A group subscribes to a partition by having a position there: an offset that it committed, or the start of its queue.
An explicit subscription also subscribes to those partitions of its topic where it has none yet, from their start.
Deleting the group, or its position, ends the subscription.

While positions are still being read after a start, nothing may be concluded from those that are missing.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeAlias

from headwater.broker.catalog import Catalog
from headwater.broker.group_configs import GroupConfigs
from headwater.broker.retention import Subscription
from headwater.model.errors import RequestError
from headwater.model.ids import Offset


class GroupPosition(NamedTuple):
    group_id: str
    topic: str
    partition: int
    offset: Offset
    """Everything below is consumed."""


Positions: TypeAlias = Callable[[], Iterable[GroupPosition]]
"""All positions that a coordinator knows. Raises RequestError while it is still reading them."""


class Wanted:
    """What subscriptions want of each partition."""

    def __init__(self) -> None:
        self._topics: dict[str, dict[int, list[Subscription]]] = {}

    def add(self, topic: str, partition: int, subscription: Subscription) -> None:
        self._topics.setdefault(topic, {}).setdefault(partition, []).append(subscription)

    def of(self, topic: str, partition: int) -> Sequence[Subscription]:
        return self._topics.get(topic, {}).get(partition, ())


class Subscriptions:
    def __init__(self, catalog: Catalog, configs: GroupConfigs, sources: Sequence[Positions]) -> None:
        self._catalog = catalog
        self._configs = configs
        self._sources = sources

    def survey(self) -> Wanted | None:
        """What everybody wants now; None while that is not known."""
        wanted = Wanted()
        placed: dict[str, set[int]] = {group_id: set() for group_id, _ in self._configs.subscriptions()}
        try:
            for source in self._sources:
                for group_id, topic, partition, offset in source():
                    settings = self._configs.subscription(group_id)
                    is_its_topic = topic == settings.topic
                    retention_ms = settings.retention_ms if is_its_topic or not settings.is_explicit else 0
                    wanted.add(topic, partition, Subscription(offset, retention_ms))
                    if is_its_topic:
                        placed[group_id].add(partition)
        except RequestError:
            return None
        for group_id, settings in self._configs.subscriptions():
            found = self._catalog.find(settings.topic)
            for index in range(len(found.partitions) if found is not None else 0):
                if index not in placed[group_id]:
                    wanted.add(settings.topic, index, Subscription(0, settings.retention_ms))
        return wanted
