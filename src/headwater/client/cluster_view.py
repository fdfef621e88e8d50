"""What a client knows of a cluster: where brokers listen, which broker leads what, which coordinates whom. State that
responses fill in, without a connection."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from headwater.client.address import BrokerAddress
from headwater.client.errors import CoordinatorUnknown, check
from headwater.model.errors import ErrorCode
from headwater.wire.schema import NULL_UUID
from headwater.wire.typed.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from headwater.wire.typed.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

GROUP: Final = 0
TRANSACTION: Final = 1

ABSENT: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION})
"""What metadata says of a topic that does not exist. A name that no topic can have is one that does not exist."""


class Coordinated(NamedTuple):
    """What has a coordinator: a GROUP or a TRANSACTION of this name."""

    kind: int
    name: str


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    topic_id: UUID | None
    """None: the broker is older than ids."""
    is_internal: bool
    leaders: Mapping[int, int]
    """Of each partition, the node that leads it; below 0 if there is none."""


class ClusterView:
    def __init__(self, bootstrap: Iterable[BrokerAddress]) -> None:
        self._bootstrap = tuple(bootstrap)
        self.nodes: dict[int, BrokerAddress] = {}
        self.topics: dict[str, TopicView] = {}
        self.coordinators: dict[Coordinated, BrokerAddress] = {}

    @property
    def addresses(self) -> list[BrokerAddress]:
        """Brokers to ask, one after another: the nodes in the last metadata, then the bootstrap list."""
        return list(dict.fromkeys((*self.nodes.values(), *self._bootstrap)))

    def learn(self, names: Iterable[str] | None, response: MetadataResponse) -> dict[str, TopicView]:
        """Those of the topics that exist, from the response to `metadata_request` with the same names. Raises
        BrokerRefused for a topic that cannot be described."""
        self.nodes = {node.node_id: BrokerAddress(node.host, node.port) for node in response.brokers}
        found = {}
        for topic in response.topics:
            if topic.name is None or topic.error_code in ABSENT:
                continue
            check(topic.error_code, None, f"Topic {topic.name}")
            found[topic.name] = TopicView(
                topic.name,
                topic.topic_id if topic.topic_id != NULL_UUID else None,
                topic.is_internal,
                {each.partition_index: each.leader_id for each in topic.partitions},
            )
        asked = None if names is None else set(names)
        kept = {} if asked is None else {name: topic for name, topic in self.topics.items() if name not in asked}
        self.topics = kept | found
        return found

    def leader(self, topic: str, partition: int) -> BrokerAddress | None:
        """None if it is not known, or not led now."""
        view = self.topics.get(topic)
        return None if view is None else self.nodes.get(view.leaders.get(partition, -1))

    def learn_coordinator(self, of: Coordinated, response: FindCoordinatorResponse) -> BrokerAddress:
        """Raises CoordinatorUnknown."""
        found = response.coordinators[0] if response.coordinators else response
        if found.error_code:
            raise CoordinatorUnknown(found.error_code, found.error_message, f"The coordinator of {of.name}")
        address = self.coordinators[of] = BrokerAddress(found.host, found.port)
        return address

    def forget_topic(self, name: str) -> None:
        """What is known of a topic turned out to be wrong."""
        self.topics.pop(name, None)


def metadata_request(names: Iterable[str] | None) -> MetadataRequest:
    """For the named topics, or all. Asking does not create them."""
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=False)


def coordinator_request(of: Coordinated) -> FindCoordinatorRequest:
    """Old versions have one key, new ones a list."""
    return FindCoordinatorRequest(key=of.name, key_type=of.kind, coordinator_keys=[of.name])
