"""What is known of subscriptions: groups of every kind with their settings, where they are, and what they lack."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.cli.group_config import KIND, PAUSED, RETENTION, TOPIC
from headwater.cli.position import offset_range
from headwater.cli.share_group import ListedGroup, configured_groups, list_groups, share_offsets
from headwater.gateway.kafka.blocking import GroupConfig, committed_places, group_configs

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

STREAM, QUEUE = "stream", "queue"
UNUSED = "unused"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a subscription is in one partition. `lag` counts what it has not consumed."""

    topic: str
    partition: int
    position: int
    end_offset: int
    lag: int


@dataclass(frozen=True, slots=True)
class SubscriptionFacts:
    name: str
    kind: str
    state: str
    """Of its group; `unused` if there is none yet."""
    config: GroupConfig
    places: list[Place] = field(default_factory=list)

    @property
    def explicit_topic(self) -> str:
        return self.config.values.get(TOPIC, "")

    @property
    def is_known(self) -> bool:
        """Settings alone, such as those that outlive a group, make none."""
        return self.state != UNUSED or self.explicit_topic != ""

    @property
    def topics(self) -> list[str]:
        named = {self.explicit_topic} - {""}
        return sorted(named | {place.topic for place in self.places})

    @property
    def retention_ms(self) -> int:
        return int(self.config.values.get(RETENTION, "0"))

    @property
    def is_paused(self) -> bool:
        return self.config.values.get(PAUSED) == "true"

    @property
    def shown_state(self) -> str:
        return "paused" if self.is_paused else self.state

    def lag(self, topic: str | None = None) -> int:
        return sum(place.lag for place in self.places if topic in (None, place.topic))


def all_subscriptions(client: "AdminClient") -> list[SubscriptionFacts]:
    """Every group that there is, and every explicit subscription, by name."""
    listed = list_groups(client)
    found = _facts(client, sorted(listed.keys() | set(configured_groups(client))), listed)
    return [facts for facts in found if facts.is_known]


def readers(client: "AdminClient", topic: str | None) -> Iterator[tuple[SubscriptionFacts, str]]:
    """Each subscription with each topic that it reads, or with this one alone. One that has read nothing yet is there
    with an empty topic."""
    for facts in all_subscriptions(client):
        for each in facts.topics or [""]:
            if topic in (None, each):
                yield facts, each


def subscription(client: "AdminClient", name: str) -> SubscriptionFacts | None:
    (found,) = _facts(client, [name], list_groups(client))
    return found if found.is_known else None


def _facts(client: "AdminClient", names: list[str], listed: dict[str, ListedGroup]) -> list[SubscriptionFacts]:
    configs = group_configs(client, names)
    found = []
    positions: dict[str, dict[tuple[str, int], tuple[int, int | None]]] = {}
    for name in names:
        config, group = configs[name], listed.get(name)
        is_queue = group.is_share if group is not None else config.values.get(KIND) == QUEUE
        found.append(SubscriptionFacts(name, QUEUE if is_queue else STREAM, group.state if group else UNUSED, config))
        if group is not None and is_queue:
            positions[name] = share_offsets(client, name)
        elif group is not None:
            places = committed_places(client, name)
            positions[name] = {(place.topic, place.partition): (place.offset, None) for place in places}
    ends = _ends(client, (key for known in positions.values() for key in known))
    for facts in found:
        facts.places.extend(
            Place(*key, position, ends[key], lag if lag is not None else max(ends[key] - position, 0))
            for key, (position, lag) in sorted(positions.get(facts.name, {}).items())
            if key in ends
        )
    return found


def _ends(client: "AdminClient", keys: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """The end of each partition that still exists."""
    from confluent_kafka import TopicPartition

    from headwater.cli.client import REQUEST_TIMEOUT_S

    topics = client.list_topics(timeout=REQUEST_TIMEOUT_S).topics
    existing = [key for key in set(keys) if key[0] in topics and key[1] in topics[key[0]].partitions]
    return {key: end for key, (_, end) in offset_range(client, [TopicPartition(*key) for key in existing]).items()}
