"""CreateTopics (19). Versions 2 to 7: from 4 on -1 means the broker's default for partitions and replicas, from 5 on
the answer tells the configuration, from 7 on the topic id.

Replicas are placed segment by segment, so of an assignment the first node of each partition counts, which leads it, and
the number of nodes, which is the replication factor.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headwater.broker.api import Api, RequestContext
from headwater.broker.settings.config_resources import describe_topic
from headwater.broker.topics.topic import Topic
from headwater.model.errors import ErrorCode, RequestError
from headwater.model.ids import NodeId
from headwater.wire.messages import Message

if TYPE_CHECKING:
    from headwater.broker.server import Broker

API = Api(key=19, name="CreateTopics", min_version=2, max_version=7)


async def handle(broker: "Broker", request: Message, context: RequestContext) -> Message:
    times = Counter(topic.name for topic in request.topics)
    results = []
    for asked in request.topics:
        if times[asked.name] > 1:
            if times.pop(asked.name):
                results.append(_refused(asked, ErrorCode.INVALID_REQUEST, "The topic is named twice."))
            continue
        try:
            results.append(await _create(broker, asked, request.validate_only))
        except RequestError as error:
            results.append(_refused(asked, error.code, error.message))
    return Message(topics=results)


async def _create(broker: "Broker", asked: Message, validate_only: bool) -> Message:
    plan = _plan(broker, asked)
    overrides = {config.name: config.value for config in asked.configs}
    topic = await broker.catalog.changes.create(
        asked.name,
        plan.partitions,
        overrides,
        replication_factor=plan.replication_factor,
        leaders=plan.leaders,
        validate_only=validate_only,
    )
    return Message(
        name=asked.name,
        topic_id=topic.topic_id if topic is not None else None,
        error_code=ErrorCode.NONE,
        num_partitions=plan.partitions,
        replication_factor=plan.replication_factor,
        configs=_describe_configs(broker, topic),
    )


@dataclass(frozen=True, slots=True)
class _Plan:
    partitions: int
    replication_factor: int
    leaders: Sequence[NodeId] | None = None


def _plan(broker: "Broker", asked: Message) -> _Plan:
    if asked.assignments:
        return _assigned(broker, asked)
    count: int = asked.num_partitions
    replicas: int = asked.replication_factor
    return _Plan(
        broker.config.default_partitions if count == -1 else count,
        broker.default_replication_factor if replicas == -1 else replicas,
    )


def _assigned(broker: "Broker", asked: Message) -> _Plan:
    if asked.num_partitions != -1 or asked.replication_factor != -1:
        raise RequestError(ErrorCode.INVALID_REQUEST, "A request with an assignment must leave both counts at -1.")
    nodes = {assignment.partition_index: list(assignment.broker_ids) for assignment in asked.assignments}
    if sorted(nodes) != list(range(len(asked.assignments))):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "An assignment numbers its partitions from 0 without gaps."
        )
    sizes = {len(each) for each in nodes.values()}
    if len(sizes) != 1 or 0 in sizes or any(len(set(each)) != len(each) for each in nodes.values()):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "An assignment gives every partition the same number of nodes."
        )
    known = {node.node_id for node in broker.cluster_nodes.brokers()}
    unknown = sorted({node for each in nodes.values() for node in each} - known)
    if unknown:
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"There is no broker {unknown[0]}; those that are alive are {', '.join(map(str, sorted(known)))}.",
        )
    return _Plan(len(nodes), sizes.pop(), [nodes[index][0] for index in range(len(nodes))])


def _describe_configs(broker: "Broker", topic: Topic | None) -> list[Message]:
    overrides = topic.overrides if topic is not None else {}
    return [
        Message(name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False)
        for entry in describe_topic(overrides, broker.settings.topic_defaults)
    ]


def _refused(asked: Message, code: ErrorCode, message: str) -> Message:
    return Message(name=asked.name, error_code=code, error_message=message, configs=())
