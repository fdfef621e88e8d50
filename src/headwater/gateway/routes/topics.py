"""/v1/topics: what topics there are, making them, changing them, deleting them."""

from typing import Annotated, Any

from confluent_kafka.admin import ConfigSource
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from headwater.gateway.cluster.broker_pages import broker_page
from headwater.gateway.context import Context
from headwater.gateway.http.problems import Problem, bad_request, unknown_topic
from headwater.gateway.kafka.admin import DEFAULT, is_internal
from headwater.gateway.openapi import answer, operation

PATH = "/v1/topics"
ONE = "/v1/topics/{topic}"
MAX_PARTITIONS = 10_000
MAX_REPLICAS = 32
MAX_SETTINGS = 200

TopicName = Annotated[str, Meta(min_length=1, max_length=249, pattern="^[a-zA-Z0-9._-]+$")]
Partitions = Annotated[int, Meta(ge=1, le=MAX_PARTITIONS)]
ConfigValue = str | int | float | bool
"""What people write; the cluster gets it as text."""


class TopicsQuery(Struct):
    internal: Annotated[bool, Meta(description="Also those of the cluster itself.")] = False


class TopicSummary(Struct):
    name: str
    partitions: int
    replication_factor: int
    records: int | None
    """Of the partitions that a node leads; null if there are none."""
    unknown_partitions: int
    """Those that no node leads now: their records are not counted."""
    size_bytes: int | None
    internal: bool


class Topics(Struct):
    topics: list[TopicSummary]


class NewTopic(Struct, forbid_unknown_fields=True):
    name: TopicName
    partitions: Partitions | None = None
    replication_factor: Annotated[int, Meta(ge=1, le=MAX_REPLICAS)] | None = None
    config: dict[str, ConfigValue] = {}


class TopicChange(Struct, forbid_unknown_fields=True):
    partitions: Partitions | None = None
    config: dict[str, ConfigValue | None] = {}


class PartitionOut(Struct):
    partition: int
    leader: int
    """-1 while nobody leads it."""
    replicas: list[int]
    in_sync: list[int]
    start_offset: int | None
    end_offset: int | None
    size_bytes: int | None


class Setting(Struct):
    name: str
    value: str | None
    is_default: bool
    is_read_only: bool
    is_sensitive: bool
    source: str


class Topic(Struct):
    name: str
    topic_id: str
    internal: bool
    partitions: list[PartitionOut]
    config: list[Setting]


class Segment(Struct):
    partition: int
    start_offset: int
    end_offset: int | None
    size_bytes: int | None
    state: str
    nodes: list[int]
    first_timestamp: int | None
    last_timestamp: int | None = None


class Segments(Struct):
    segments: list[Segment]
    left_out: int = 0
    """Segments for which there was no room."""
    partitions_left_out: int = 0
    """Partitions that were not looked at."""


def routes(context: Context) -> list[BaseRoute]:
    async def list_topics(request: Request, query: TopicsQuery) -> Response:
        return answer(Topics(await summaries(context, internal=query.internal)))

    async def create_topic(request: Request, body: NewTopic) -> Response:
        if is_internal(body.name):
            raise bad_request("Names that begin with __ are the cluster's own.")
        _check_count(body.config)
        config = {name: as_text(value) for name, value in body.config.items()}
        await context.admin.create_topic(
            body.name, body.partitions or DEFAULT, body.replication_factor or DEFAULT, config
        )
        await context.topics.refresh()
        return answer(await describe(context, body.name), 201, {"Location": f"{PATH}/{body.name}"})

    async def describe_topic(request: Request) -> Response:
        return answer(await describe(context, request.path_params["topic"]))

    async def alter_topic(request: Request, body: TopicChange) -> Response:
        topic = await _own_topic(context, request)
        _check_count(body.config)
        if body.config:
            changes = {name: None if value is None else as_text(value) for name, value in body.config.items()}
            await context.admin.alter_config(topic, changes)
        if body.partitions is not None and body.partitions != await context.topics.partitions_of(topic):
            await context.admin.add_partitions(topic, body.partitions)
            await context.topics.refresh()
        return answer(await describe(context, topic))

    async def delete_topic(request: Request) -> Response:
        topic = await _own_topic(context, request)
        context.topics.forget(topic)
        await context.admin.delete_topic(topic)
        await context.topics.refresh()
        return Response(status_code=204)

    async def list_segments(request: Request) -> Response:
        topic: str = request.path_params["topic"]
        await context.topics.partitions_of(topic)
        page = await broker_page(context, "segments", topic=topic)
        if page is None:
            raise Problem(
                404,
                "Segments unknown",
                "No broker tells this gateway about them: start it with --metrics and the metrics address of one.",
            )
        return answer(page)

    return [
        operation(
            "GET", PATH, list_topics, "List topics with what they hold", context,
            query=TopicsQuery, answers={200: Topics}, problems=(502,),
        ),
        operation(
            "POST", PATH, create_topic, "Create a topic", context,
            body=NewTopic, answers={201: Topic}, problems=(404, 409, 502),
        ),
        operation(
            "GET", ONE, describe_topic, "A topic's partitions and settings", context,
            answers={200: Topic}, problems=(404, 502),
        ),
        operation(
            "PATCH", ONE, alter_topic, "Change settings, or add partitions", context,
            body=TopicChange, answers={200: Topic}, problems=(404, 502),
        ),
        operation(
            "DELETE", ONE, delete_topic, "Delete a topic and its records", context,
            answers={204: None}, problems=(404, 502),
        ),
        operation(
            "GET", ONE + "/segments", list_segments, "The segments of a topic and where they lie", context,
            answers={200: Segments}, problems=(404, 502),
        ),
    ]  # fmt: skip


async def summaries(context: Context, *, internal: bool) -> list[TopicSummary]:
    metadata = await context.admin.metadata()
    topics = [topic for name, topic in sorted(metadata.topics.items()) if internal or not is_internal(name)]
    places = [(topic.topic, index) for topic in topics for index in topic.partitions]
    offsets = await context.admin.offset_range(places)
    sizes = await context.admin.sizes((broker.host, broker.port) for broker in metadata.brokers.values())
    told = []
    for topic in topics:
        own = [(topic.topic, index) for index in topic.partitions]
        counts = [end - start for place in own if place in offsets for start, end in [offsets[place]]]
        known = [sizes[place] for place in own if place in sizes]
        told.append(
            TopicSummary(
                topic.topic,
                len(topic.partitions),
                max((len(partition.replicas) for partition in topic.partitions.values()), default=0),
                sum(counts) if counts else None,
                len(own) - len(counts),
                sum(known) if known else None,
                is_internal(topic.topic),
            )
        )
    return told


async def describe(context: Context, topic: str) -> Topic:
    metadata = await context.admin.metadata()
    if topic not in metadata.topics:
        raise unknown_topic(topic)
    described = await context.admin.topic(topic)
    config = await context.admin.topic_config(topic)
    found = metadata.topics[topic].partitions
    offsets = await context.admin.offset_range([(topic, index) for index in found])
    sizes = await context.admin.sizes((broker.host, broker.port) for broker in metadata.brokers.values())
    partitions = []
    for index, partition in sorted(found.items()):
        start, end = offsets.get((topic, index), (None, None))
        replicas, in_sync = list(partition.replicas), list(partition.isrs)
        size_bytes = sizes.get((topic, index))
        partitions.append(PartitionOut(index, partition.leader, replicas, in_sync, start, end, size_bytes))
    settings = [_setting(name, entry) for name, entry in sorted(config.items())]
    return Topic(topic, str(described.topic_id), is_internal(topic), partitions, settings)


def as_text(value: ConfigValue) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _setting(name: str, entry: Any) -> Setting:
    source = entry.source
    word = ConfigSource(source).name if not isinstance(source, ConfigSource) else source.name
    is_own = word == ConfigSource.DYNAMIC_TOPIC_CONFIG.name
    value = None if entry.is_sensitive else entry.value
    return Setting(name, value, not is_own, bool(entry.is_read_only), bool(entry.is_sensitive), word.lower())


async def _own_topic(context: Context, request: Request) -> str:
    """The topic that is named, if a client may change it."""
    topic: str = request.path_params["topic"]
    await context.topics.partitions_of(topic)
    if is_internal(topic):
        raise Problem(403, "Forbidden", f"{topic} belongs to the cluster itself.")
    return topic


def _check_count(config: Any) -> None:
    if len(config) > MAX_SETTINGS:
        raise bad_request(f"A topic has no more than {MAX_SETTINGS} settings.")
