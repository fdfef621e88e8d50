"""Which partitions a query reads: some by name (`assign`), all of some topics (`subscribe`), or all of the topics whose
names match (`subscribePattern`). Topics and partitions that appear later belong to it, too."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from headwater.client.cluster_view import TopicView
from headwater.client.topic_partition import TopicPartition
from headwater.pipelines.client.cluster_client import ClusterClient
from headwater.pipelines.errors import InvalidOption, UnknownTopic

ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN = "assign", "subscribe", "subscribePattern"
WAYS = (ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN)


@dataclass(frozen=True, slots=True)
class AssignedPartitions:
    partitions: tuple[TopicPartition, ...]

    def find(self, cluster: ClusterClient, must_exist: bool = True) -> set[TopicPartition]:
        """The partitions that there are now. It is an UnknownTopic if one is missing that must exist."""
        topics = cluster.topics({partition.topic for partition in self.partitions})
        missing = set(self.partitions) - _all_partitions(topics.values())
        if missing and must_exist:
            raise UnknownTopic(_unknown(f"partition {min(missing)}", cluster))
        return set(self.partitions) - missing

    def names(self, topic: str) -> bool:
        return any(partition.topic == topic for partition in self.partitions)


@dataclass(frozen=True, slots=True)
class Subscribed:
    topics: tuple[str, ...]

    def find(self, cluster: ClusterClient, must_exist: bool = True) -> set[TopicPartition]:
        topics = cluster.topics(self.topics)
        missing = set(self.topics) - topics.keys()
        if missing and must_exist:
            raise UnknownTopic(_unknown(f"topic {min(missing)}", cluster))
        return _all_partitions(topics.values())

    def names(self, topic: str) -> bool:
        return topic in self.topics


@dataclass(frozen=True, slots=True)
class Matching:
    pattern: str

    def find(self, cluster: ClusterClient, must_exist: bool = True) -> set[TopicPartition]:
        """None need exist yet: what matches later is read from its beginning."""
        matches = re.compile(self.pattern).fullmatch
        found = [topic for name, topic in cluster.topics().items() if matches(name) and not topic.is_internal]
        return _all_partitions(found)

    def names(self, topic: str) -> bool:
        return re.fullmatch(self.pattern, topic) is not None


Subscription: TypeAlias = AssignedPartitions | Subscribed | Matching


def subscription(options: Mapping[str, str]) -> Subscription:
    """From the options, whose names are in lower case."""
    given = [way for way in WAYS if way.lower() in options]
    if len(given) != 1:
        problem = f"both {' and '.join(given)} are given" if given else "none of them is given"
        raise InvalidOption(f"A query names its topics by one of the options {', '.join(WAYS)}: {problem}.")
    text = options[given[0].lower()].strip()
    if given[0] == ASSIGN:
        return AssignedPartitions(_assigned(text))
    if given[0] == SUBSCRIBE:
        names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
        if not names:
            raise InvalidOption(f"Option {SUBSCRIBE} is {text!r}; it must name topics, with commas between.")
        return Subscribed(names)
    try:
        re.compile(text)
    except re.error as error:
        raise InvalidOption(f"Option {SUBSCRIBE_PATTERN} is no regular expression: {text!r}, {error}.") from None
    if not text:
        raise InvalidOption(f"Option {SUBSCRIBE_PATTERN} is empty.")
    return Matching(text)


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    wrong = InvalidOption(f'Option {ASSIGN} is {text!r}; it must be like {{"orders": [0, 1], "payments": [0]}}.')
    try:
        topics = json.loads(text)
    except (ValueError, RecursionError):
        raise wrong from None
    if not isinstance(topics, dict) or not all(isinstance(numbers, list) for numbers in topics.values()):
        raise wrong
    pairs = [(topic, number) for topic, numbers in topics.items() for number in numbers]
    if not pairs or not all(type(number) is int and number >= 0 for _, number in pairs):
        raise wrong
    return tuple(sorted({TopicPartition(topic, number) for topic, number in pairs}))


def _all_partitions(topics: Iterable[TopicView]) -> set[TopicPartition]:
    return {TopicPartition(topic.name, number) for topic in topics for number in topic.leaders}


def _unknown(what: str, cluster: ClusterClient) -> str:
    brokers = ", ".join(map(str, cluster.config.bootstrap))
    return f"There is no {what} at {brokers}. Create it first, or correct the name in the query."
