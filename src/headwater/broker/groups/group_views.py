"""What is shown of the groups that this node coordinates: to administrators, in metrics, and to retention."""

from collections.abc import Callable, Iterable, Iterator

from headwater.broker.groups.group_log import OFFSETS_TOPIC, GroupLog
from headwater.broker.state.state_topic import StateTopic
from headwater.broker.topics.catalog import Catalog
from headwater.groups.departures import MemberDeparture
from headwater.groups.rebalance import GroupState
from headwater.groups.views import SHARE, DescribedConsumerGroup, DescribedGroup, ListedGroup
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.group_lag import partition_lag, partitions_read
from headwater.model.group_position import GroupPosition
from headwater.model.ids import PartitionId


class GroupViews:
    def __init__(self, topic: StateTopic[GroupLog], catalog: Catalog) -> None:
        self._topic = topic
        self._catalog = catalog

    def listed(self) -> Iterator[ListedGroup]:
        """Raises RequestError while groups are being read: a list with holes would mislead."""
        for log in self._topic:
            yield from log.shard.listed()

    def described(self, group_id: str) -> DescribedGroup:
        """An unknown group is described as dead."""
        if not self._topic.exists:
            return DescribedGroup(group_id=group_id, state=GroupState.DEAD)
        return self._topic.log(group_id).shard.described(group_id)

    def described_consumer(self, group_id: str) -> DescribedConsumerGroup:
        """Raises GROUP_ID_NOT_FOUND for what is no consumer group of KIP-848."""
        if not self._topic.exists:
            raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND)
        return self._topic.log(group_id).shard.described_consumer(group_id)

    def coordinates(self, group_id: str) -> bool:
        """Whether this node coordinates the group and has read its state. As long as there are no groups, any node
        does."""
        if not self._topic.exists:
            return True
        return self._topic.keeps(group_id) and self._topic.log(group_id).is_loaded

    def departures(self) -> Iterator[MemberDeparture]:
        """Which members left which group since the start, and why, as far as that is remembered."""
        for log in self._topic:
            if log.is_loaded:
                yield from log.shard.departures()

    def lags(self, subscribed: Callable[[str], str] = lambda _: "") -> Iterator[tuple[str, str, int, int]]:
        """(group, topic, partition, records that the group has still to read), of partitions that are led here.
        `subscribed` names the topic that a group is explicitly subscribed to, or nothing."""
        counts = {topic.name: topic.partition_count for topic in self._catalog}
        for log in self._topic:
            for group in log.shard.listed() if log.is_loaded else ():
                offsets = {(topic, index): each.offset for topic, index, each in log.shard.offsets(group.group_id)}
                topics = log.shard.topics_read(group.group_id)
                assigned = [(topic, index) for topic in topics for index in range(counts.get(topic, 0))]
                # What members read cannot always be known; then they are shown where they have committed.
                is_simple = group.protocol_type == "" or group.state is not GroupState.EMPTY
                named = subscribed(group.group_id) if group.kind != SHARE else ""
                for place in partitions_read(offsets, assigned, counts, is_simple=is_simple, subscribed=named):
                    led = self._catalog.topic(place[0]).led.get(place[1])
                    if led is not None:
                        known = partition_lag(place, offsets.get(place), led.log_start, led.high_watermark)
                        yield group.group_id, *place, known.lag or 0

    def positions(self) -> Iterator[GroupPosition]:
        """Everything that was committed to this node. Raises RequestError while some of it is still being read."""
        return _positions(self._topic)

    def positions_at(self, index: int) -> list[GroupPosition]:
        """As `positions`, of one partition. Raises RequestError if another node keeps it."""
        return list(_positions([self._topic.at(index)]))

    def is_kept(self, index: int) -> bool:
        """Whether this node leads this partition of the offsets topic."""
        return self._topic.is_kept(index)

    def offsets_partitions(self) -> list[PartitionId]:
        """The partitions of the offsets topic, whichever nodes lead them."""
        topic = self._catalog.find(OFFSETS_TOPIC)
        return [topic.partition_id(index) for index in range(topic.partition_count)] if topic is not None else []


def _positions(logs: Iterable[GroupLog]) -> Iterator[GroupPosition]:
    for log in logs:
        for group_id in log.shard.group_ids():
            for topic, partition, committed in list(log.shard.offsets(group_id)):
                yield GroupPosition(group_id, topic, partition, committed.offset)
