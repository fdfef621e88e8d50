"""CreateTopics (19). Versions 2 to 7: from 4 on -1 means the broker's default for partitions and replicas, from 5 on
the answer tells the configuration, from 7 on the topic id.

One node keeps one replica. A higher replication factor is refused as Kafka would with too few brokers.
"""

from collections import Counter
from typing import TYPE_CHECKING

from headwater.broker.catalog import Topic
from headwater.broker.config_resources import describe_topic
from headwater.broker.dispatch import Api, RequestContext
from headwater.model.errors import ErrorCode, RequestError
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
    partitions = _partition_count(broker, asked)
    overrides = {config.name: config.value for config in asked.configs}
    topic = await broker.catalog.create(asked.name, partitions, overrides, validate_only=validate_only)
    return Message(
        name=asked.name,
        topic_id=topic.topic_id if topic is not None else None,
        error_code=ErrorCode.NONE,
        num_partitions=partitions,
        replication_factor=1,
        configs=_describe_configs(broker, topic),
    )


def _partition_count(broker: "Broker", asked: Message) -> int:
    if asked.assignments:
        if asked.num_partitions != -1 or asked.replication_factor != -1:
            raise RequestError(ErrorCode.INVALID_REQUEST, "A request with an assignment must leave both counts at -1.")
        indexes = sorted(assignment.partition_index for assignment in asked.assignments)
        if indexes != list(range(len(indexes))):
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "An assignment numbers its partitions from 0 without gaps."
            )
        if any(assignment.broker_ids != [broker.config.node_id] for assignment in asked.assignments):
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The only broker is {broker.config.node_id}; each partition can be assigned to it alone.",
            )
        return len(indexes)
    if asked.replication_factor not in (-1, 1):
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor {asked.replication_factor} needs more brokers than the one there is.",
        )
    count: int = asked.num_partitions
    return broker.config.default_partitions if count == -1 else count


def _describe_configs(broker: "Broker", topic: Topic | None) -> list[Message]:
    overrides = topic.overrides if topic is not None else {}
    return [
        Message(name=entry.name, value=entry.value, read_only=False, config_source=entry.source, is_sensitive=False)
        for entry in describe_topic(overrides, broker.config.topic_defaults)
    ]


def _refused(asked: Message, code: ErrorCode, message: str) -> Message:
    return Message(name=asked.name, error_code=code, error_message=message, configs=())
