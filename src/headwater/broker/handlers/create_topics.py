"""CreateTopics (19). Versions 2 to 7: from 4 on -1 means the broker's default for partitions and replicas, from 5 on
the answer tells the configuration, if the client may describe that, from 6 on topics are refused that the client's
quota has no room for, and from 7 on it tells the topic id.
"""

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING

from headwater.broker.access.client_access import ClientAccess
from headwater.broker.access.declared_access import Access, on_cluster, on_topic
from headwater.broker.access.topic_access import creation_refusal
from headwater.broker.api import Api, RequestContext
from headwater.broker.quotas.mutation_quota import MutationQuota
from headwater.broker.settings.config_resources import describe_topic
from headwater.broker.topics.topic import Topic
from headwater.broker.topics.topic_plan import TopicPlan, assigned_plan
from headwater.model.errors import ErrorCode, RequestError
from headwater.security.access_codes import Operation, ResourceType
from headwater.wire.api_keys import ApiKey
from headwater.wire.schema import NULL_UUID
from headwater.wire.typed.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from headwater.broker.server import Broker

STRICT = 6

API = Api(
    key=ApiKey.CREATE_TOPICS,
    name="CreateTopics",
    access=Access.by_handler(
        on_cluster(
            Operation.CREATE,
            refused_at="topics[].error_code",
            or_else=on_topic(Operation.CREATE, "topics[].name", refused_at="topics[].error_code"),
        ),
        on_topic(
            Operation.DESCRIBE_CONFIGS,
            "topics[].name",
            refused_at="topics[].topic_config_error_code",
            versions=range(5, 100),
        ),
    ),
    min_version=2,
    max_version=7,
)


async def handle(broker: "Broker", request: CreateTopicsRequest, context: RequestContext) -> CreateTopicsResponse:
    quota = MutationQuota.of(context.usage, is_strict=context.api_version >= STRICT)
    times = Counter(topic.name for topic in request.topics)
    results = []
    for asked in {topic.name: topic for topic in request.topics}.values():
        if times[asked.name] > 1:
            results.append(_refused(asked, ErrorCode.INVALID_REQUEST, "The topic is named twice."))
            continue
        refusal = creation_refusal(context.access, asked.name)
        if refusal is not None:
            results.append(_refused(asked, refusal.code, refusal.message))
            continue
        try:
            results.append(await _create(broker, asked, request.validate_only, context.access, quota))
        except RequestError as error:
            results.append(_refused(asked, error.code, error.message))
    return CreateTopicsResponse(topics=results)


async def _create(
    broker: "Broker", asked: CreatableTopic, validate_only: bool, access: ClientAccess, quota: MutationQuota
) -> CreatableTopicResult:
    plan = _plan(broker, asked)
    overrides = {config.name: config.value for config in asked.configs}
    create = partial(
        broker.catalog.changes.create,
        asked.name,
        plan.partitions,
        overrides,
        replication_factor=plan.replication_factor,
        leaders=plan.leaders,
    )
    topic = None
    if validate_only or quota.may_refuse:
        await create(validate_only=True)
    if not validate_only:
        with quota.admitted(plan.partitions):
            topic = await create()
    topic_id = topic.topic_id if topic is not None else NULL_UUID
    if not access.shows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, asked.name):
        return CreatableTopicResult(
            name=asked.name,
            topic_id=topic_id,
            error_code=ErrorCode.NONE,
            topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            configs=None,
        )
    return CreatableTopicResult(
        name=asked.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=plan.partitions,
        replication_factor=plan.replication_factor,
        configs=_describe_configs(broker, topic),
    )


def _plan(broker: "Broker", asked: CreatableTopic) -> TopicPlan:
    count: int = asked.num_partitions
    replicas: int = asked.replication_factor
    if not asked.assignments:
        return TopicPlan(
            broker.config.default_partitions if count == -1 else count,
            broker.default_replication_factor if replicas == -1 else replicas,
        )
    if count != -1 or replicas != -1:
        raise RequestError(ErrorCode.INVALID_REQUEST, "A request with an assignment must leave both counts at -1.")
    assignment = [(each.partition_index, list(each.broker_ids)) for each in asked.assignments]
    return assigned_plan(assignment, {node.node_id for node in broker.cluster_nodes.brokers()})


def _describe_configs(broker: "Broker", topic: Topic | None) -> list[CreatableTopicConfigs]:
    overrides = topic.overrides if topic is not None else {}
    return [
        CreatableTopicConfigs(
            name=entry.name,
            value=None if entry.is_sensitive else entry.value,
            read_only=False,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
        )
        for entry in describe_topic(overrides, broker.settings.topic_defaults)
    ]


def _refused(asked: CreatableTopic, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=asked.name, error_code=code, error_message=message, configs=())
